//! Pictures, as a loader of samples has them: workers take one each, decode it and scale it down.

use std::path::Path;
use std::process::Command;

use crate::data::datasets::{Need, PYTHON, python};
use crate::data::job::Job;
use crate::data::system_programs as sys;
use crate::error::Error;

pub const NEEDS: [Need; 2] =
    [(PYTHON, "python3"), ("/usr/lib/python3/dist-packages/PIL/__init__.py", "python3-pil")];

const SCRIPT: &str = include_str!("../../programs/images.py");
const WORKERS: &str = "8";
/// 100 to 230 KB each.
const COUNT: &str = "400";
const QUICK: &str = "20";

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    let mut python = Command::new(PYTHON);
    python.args(["-c", SCRIPT, "make", if quick { QUICK } else { COUNT }]).current_dir(dir);
    sys::run_helper("python3", python, dir)
}

pub fn job(dir: &Path) -> Job {
    python(dir, SCRIPT).args(["load", WORKERS])
}
