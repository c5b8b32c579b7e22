//! Small C programs of the benchmark itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{require_program, run_helper};

use crate::error::Error;

/// Compiles `source` to a program with this name in `dir`.
pub fn program(name: &str, source: &str, dir: &Path) -> Result<PathBuf, Error> {
    let cc = require_program("cc", "gcc")?;
    let (text, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&text, source).map_err(Error::system("write", &text))?;
    // The mathematical library is linked only into programs that need it.
    let libraries = ["-Wl,--as-needed", "-lm"];
    run_helper(
        Command::new(cc).args(["-O2", "-Wall", "-o"]).args([&program, &text]).args(libraries),
    )?;
    Ok(program)
}
