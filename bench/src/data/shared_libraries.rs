//! Shared libraries of programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// Parts of the C library, which stay where they are.
pub const C_LIBRARY: [&str; 7] = [
    "libc.so.",
    "libm.so.",
    "libdl.so.",
    "libpthread.so.",
    "librt.so.",
    "libresolv.so.",
    "ld-linux",
];

/// True if the file's own name starts with one of these.
pub fn named(path: &Path, prefixes: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the libraries that the dynamic linker would load for `program`.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    // A static program is an error to ldd, and has none.
    let output = Command::new("ldd").arg(program).output().map_err(Error::system("run", "ldd"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| library(line).map(PathBuf::from)).collect())
}

/// Returns the path in `libz.so.1 => /lib/libz.so.1 (0x7f..)`.
fn library(line: &str) -> Option<&str> {
    let (_, path) = line.split_once("=>")?;
    path.split_whitespace().next().filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_lines_with_a_path() {
        assert_eq!(library("\tlibz.so.1 => /lib/libz.so.1 (0x7f)"), Some("/lib/libz.so.1"));
        assert_eq!(library("\tlibnone.so => not found"), None);
        assert_eq!(library("\t/lib64/ld-linux-x86-64.so.2 (0x7f)"), None);
        assert!(named(Path::new("/lib/libc.so.6"), &C_LIBRARY));
        assert!(!named(Path::new("/lib/libcap.so.2"), &C_LIBRARY));
    }
}
