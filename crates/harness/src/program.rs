//! Files that are about to be executed.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes `bytes` as a program: to `path`, with `mode`, by another process.
///
/// A file that any process has open for writing cannot be executed (`ETXTBSY`, execve(2)). A
/// process with threads that wrote it itself cannot be sure that none has: whatever another thread
/// starts in the meantime holds a copy of the descriptor until its own exec.
///
/// # Errors
/// What starting `sh` gives; or `sh` or `cat` ended with a status, and said why on standard error.
pub fn write_program(path: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod \"$1\" \"$0\""])
        .arg(path)
        .arg(format!("{mode:o}"))
        .stdin(Stdio::piped())
        .spawn()?;
    let mut pipe = writer.stdin.take().expect("asked for");
    let written = pipe.write_all(bytes.as_ref());
    drop(pipe);
    let status = writer.wait()?;
    match status.success() {
        true => written,
        false => Err(io::Error::other(format!("writing {}: {status}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_can_be_executed_while_other_threads_start_programs() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let dir = dir.path();
                threads.spawn(move || {
                    for n in 0..50 {
                        let path = dir.join(format!("{thread}-{n}"));
                        write_program(&path, "#!/bin/sh\nexit 3\n", 0o755).expect("written");
                        let status = std::process::Command::new(&path).status().expect("executed");
                        assert_eq!(status.code(), Some(3));
                    }
                });
            }
        });
    }

    #[test]
    fn mode_and_content_are_as_given_and_failure_is_told() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("with space");
        write_program(&path, b"\0\xff", 0o4711).expect("written");
        assert_eq!(std::fs::read(&path).expect("readable"), b"\0\xff");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o4711);
        assert!(write_program(&dir.path().join("none/x"), "", 0o755).is_err());
    }
}
