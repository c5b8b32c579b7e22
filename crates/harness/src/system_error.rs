//! Failed system calls.

use std::io;
use std::path::{Path, PathBuf};

/// A system call failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", .path.display())]
pub struct System {
    /// The step that failed, as an infinitive.
    pub what: &'static str,
    /// The file or program that the step concerns.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Returns a function for `map_err`; `what` is an infinitive, as in "cannot read FILE".
pub fn system<E: From<System>>(
    what: &'static str,
    path: impl AsRef<Path>,
) -> impl FnOnce(io::Error) -> E {
    let path = path.as_ref().to_owned();
    move |source| System { what, path, source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_failed_on_what_and_why() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let error: System = system("read", "/some/file")(missing);
        assert_eq!(error.to_string(), "cannot read /some/file: entity not found");
    }
}
