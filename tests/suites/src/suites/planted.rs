//! The suite that tests the harness: units whose outcome is known.

use std::path::Path;

use super::{Command, Suite, TREE, argv};
use crate::results::Format;

/// See the module's text.
pub static PLANTED: Suite = Suite {
    name: "planted",
    about: "units that a false runahead breaks, to see that it is found",
    script: include_str!("../../prepare/planted.sh"),
    command,
    limit: 5,
    writes: true,
    grows: None,
    quick: false,
    slow: &["slow"],
    unplanted: &[("cold", "for the sake of the harness's own tests")],
};

fn command(unit: &str, _version: &str, _tree: &Path) -> Command {
    Command {
        argv: argv(&[&format!("./{unit}")]),
        dir: TREE.into(),
        env: Vec::new(),
        format: Format::Tap,
    }
}
