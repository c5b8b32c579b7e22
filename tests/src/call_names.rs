//! The kernel's system calls, as its headers tell.

use std::collections::BTreeMap;
use std::process::Command;

/// Names by number.
///
/// # Panics
/// There is no gcc.
#[must_use]
pub fn names_of_calls() -> BTreeMap<i64, String> {
    let text = Command::new("gcc")
        .args(["-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"])
        .output()
        .expect("gcc is installed")
        .stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let entry = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((number.trim().parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}
