//! The C programs of `programs/`, compiled when first asked for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Linking of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// Against shared libraries.
    Dynamic,
    /// Into one file, at a fixed address.
    Static,
}

/// Both ways of linking.
pub const BOTH: [Link; 2] = [Link::Dynamic, Link::Static];

/// The source of program `name`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.c"))
}

/// Path of program `name`, compiled.
pub fn program(name: &str, link: Link) -> PathBuf {
    let flags: &[&str] = match link {
        Link::Dynamic => &[],
        Link::Static => &["-static"],
    };
    compile(name, flags)
}

/// Path of program `name`, compiled with `flags`.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    static MADE: Mutex<Option<HashMap<(String, String), PathBuf>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    let key = (name.to_owned(), flags.concat());
    let number = made.len();
    made.entry(key)
        .or_insert_with(|| {
            let output = crate::scratch().join(format!("{name}.{number}"));
            let status = Command::new("gcc")
                .args(["-O1", "-g", "-pthread", "-D_GNU_SOURCE", "-Wall"])
                // The programs make wrong calls on purpose.
                .args([
                    "-Wno-nonnull",
                    "-Wno-array-bounds",
                    "-Wno-stringop-overflow",
                    "-Wno-stringop-overread",
                ])
                .args(flags)
                .arg("-o")
                .arg(&output)
                .arg(source(name))
                .status()
                .expect("gcc is installed");
            assert!(status.success(), "compiling {name} failed: {status}");
            output
        })
        .clone()
}
