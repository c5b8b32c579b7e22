//! Memory that is swapped out to a slow disk.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Fixture, root};

/// A file that memory is swapped out to; taken away when dropped.
pub struct Swap {
    file: PathBuf,
}

impl Swap {
    /// One of `bytes` on the fixture's disk; the error is the reason to skip.
    pub fn on(fixture: &Fixture, bytes: usize) -> Result<Self, String> {
        root()?;
        let file = fixture.dir().join("swap");
        fixture.change(|dir| {
            let file = dir.join("swap");
            std::fs::write(&file, vec![0; bytes]).expect("there is room");
            let rights = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, rights).expect("the disk is ours");
        });
        let swap = Swap { file };
        run("mkswap", &swap.file)?;
        run("swapon", &swap.file)?;
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = run("swapoff", &self.file);
        let _ = std::fs::remove_file(&self.file);
    }
}

fn run(program: &str, file: &Path) -> Result<(), String> {
    let output = Command::new(program).arg(file).output();
    let output = output.map_err(|e| format!("{program} cannot be run: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("memory cannot be swapped out ({program}: {})", text.trim()))
        }
    }
}
