//! The `runahead` command under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the command: `RUNAHEAD_BIN`, or built from this workspace, optimised, once.
pub fn runahead() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("RUNAHEAD_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

/// Path of the command that a test runs with `options`; with `--plant`, one that can inject faults.
pub fn runahead_for(options: &[&str]) -> PathBuf {
    if options.contains(&"--plant") { runahead_faulty() } else { runahead().to_owned() }
}

/// Path of the command built with the feature `fault-injection`.
///
/// # Panics
/// It was not built: cargo builds it with every target of this package, and for `--test NAME`.
pub fn runahead_faulty() -> PathBuf {
    let exe = std::env::current_exe().expect("tests know their own path");
    let faulty = exe.ancestors().nth(2).expect("tests lie in a target directory");
    let faulty = faulty.join("runahead-faulty");
    assert!(faulty.exists(), "{}: not built (cargo build -p runahead-tests)", faulty.display());
    faulty
}

fn build() -> PathBuf {
    // This test lies in <target>/<profile>/deps. A directory of its own shares no lock with other
    // builds.
    let exe = std::env::current_exe().expect("tests know their own path");
    let target = exe.ancestors().nth(3).expect("tests lie in a target directory");
    let target = target.join("runahead-under-test");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--package", "runahead-cli", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "building runahead failed: {status}");
    target.join("release/runahead")
}
