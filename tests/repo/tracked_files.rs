//! Files of the repository: those that git tracks, and new ones that it does not ignore.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the repository.
pub struct Tracked {
    /// Path from the repository's root.
    pub path: String,
    pub text: String,
}

impl Tracked {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_c(&self) -> bool {
        [".c", ".h", ".cpp"].iter().any(|end| self.path.ends_with(end))
    }

    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}

/// Paths of all files, from the root.
pub fn paths() -> Vec<String> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(git.status.success(), "git ls-files: {}", String::from_utf8_lossy(&git.stderr));
    let list = String::from_utf8(git.stdout).expect("paths are UTF-8");
    let mut paths: Vec<_> = list.split_terminator('\0').map(str::to_owned).collect();
    paths.retain(|path| root().join(path).is_file());
    paths.sort();
    paths.dedup();
    assert!(paths.len() > 100, "found only {paths:?}");
    paths
}

/// Files that are UTF-8 text.
pub fn texts() -> Vec<Tracked> {
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).ok()?;
        Some(Tracked { path, text })
    };
    paths().into_iter().filter_map(read).collect()
}
