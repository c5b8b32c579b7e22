//! Small C programs of the benchmark itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::data::system_programs as sys;
use crate::error::Error;

/// Compiles `source` to a program of this name in `dir`.
///
/// # Errors
/// [`Error::NoProgram`] without a compiler, or it failed.
pub fn program(name: &str, source: &str, dir: &Path) -> Result<PathBuf, Error> {
    let cc = sys::require_program("cc", "gcc")?;
    let (text, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&text, source).map_err(Error::system("write", &text))?;
    let output = Command::new(cc)
        .args(["-O2", "-Wall", "-o"])
        .args([&program, &text])
        // The mathematical library, for programs that need it.
        .args(["-Wl,--as-needed", "-lm"])
        .stdin(Stdio::null())
        .output()
        .map_err(Error::system("run", "cc"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(Error::Helper {
            program: "cc",
            status: output.status,
            path: text,
            message: sys::last_line(&output.stderr),
        }),
    }
}
