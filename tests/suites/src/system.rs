//! Small questions to the system: programs, helpers, the user that tests run as.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::error::Error;

/// The user and group `nobody`, on every Linux.
pub const NOBODY: u32 = 65534;

/// Programs that the harness itself starts, with Debian's packages of them.
const NEEDED: [(&str, &str); 7] = [
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("findmnt", "util-linux"),
    ("cp", "coreutils"),
    ("env", "coreutils"),
    ("ip", "iproute2"),
];

/// Whether everything is there that running a unit needs.
///
/// # Errors
/// [`Error::NoProgram`], or what a slow disk misses.
pub fn require() -> Result<(), Error> {
    runahead_testbed::Disk::probe()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    for (program, package) in NEEDED {
        if !dirs.iter().any(|dir| dir.join(program).is_file()) {
            return Err(Error::NoProgram { program, package });
        }
    }
    Ok(())
}

/// Runs a helper to its end; its output, which is not shown.
///
/// # Errors
/// [`Error::Helper`] if it fails.
pub fn helper(argv: &[&str]) -> Result<String, Error> {
    let failed =
        |end: String, message: String| Error::Helper { command: argv.join(" "), end, message };
    let output = Command::new(argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed("not started".into(), e.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            let said = text(&output.stderr);
            let last = said.lines().last().unwrap_or("no message").to_owned();
            Err(failed(end(output.status), last))
        }
    }
}

/// How something ended, in words.
pub fn end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".into(),
    }
}

/// A path as the helpers and reports want it. Those made here are all UTF-8.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
