//! Words in front of a command that put it under `runahead run`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use runahead_harness::last_line;

use crate::error::{Error, Failure};

/// An option and the file that is its value.
pub fn option(name: &str, file: &Path) -> [OsString; 1] {
    let mut option = OsString::from(name);
    option.push(file);
    [option]
}

/// The options of `runahead run` that switch these mechanisms off.
pub fn switches<S: AsRef<str>>(without: impl IntoIterator<Item = S>) -> Vec<OsString> {
    without.into_iter().flat_map(|what| ["--without".into(), what.as_ref().into()]).collect()
}

/// Words that put what follows them under runahead. It learns nothing, so that each run is a first
/// run, unless the options say otherwise or it `learns`.
pub fn under_runahead(
    runahead: &Path,
    stats: Option<&Path>,
    options: &[OsString],
    learns: bool,
) -> Vec<OsString> {
    let mut prefix: Vec<OsString> = vec![runahead.into(), "run".into()];
    let about_history = |option: &OsString| {
        let option = option.as_encoded_bytes();
        ["--record", "--replay", "--learn"].iter().any(|name| option.starts_with(name.as_bytes()))
    };
    if !learns && !options.iter().any(about_history) {
        prefix.push("--no-learn".into());
    }
    prefix.extend(stats.into_iter().flat_map(|file| option("--stats=json:", file)));
    prefix.extend_from_slice(options);
    prefix.push("--".into());
    prefix
}

/// Refuses names that `runahead run --without` does not know: every run would fail.
pub fn require_mechanisms(runahead: &Path, without: &[String]) -> Result<(), Error> {
    if without.is_empty() {
        return Ok(());
    }
    let prefix = under_runahead(runahead, None, &switches(without), false);
    let output = Command::new(&prefix[0]).args(&prefix[1..]).arg("true").output();
    let output = output.map_err(Error::system("run", runahead))?;
    if output.status.success() {
        return Ok(());
    }
    // The reason comes first, the usage after it.
    let text = String::from_utf8_lossy(&output.stderr);
    let message = text.lines().next().map_or_else(|| last_line(&output.stderr), str::to_owned);
    Err(Failure::NoMechanism { without: without.join(","), message }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switched_off_mechanisms_and_files_are_passed_on() {
        let words = |options: &[OsString], learns| {
            let stats = Path::new("/s");
            under_runahead(Path::new("r"), Some(stats), options, learns)
                .join(std::ffi::OsStr::new(" "))
                .into_string()
                .unwrap()
        };
        let off = switches(["guesses", "stale"]);
        assert_eq!(
            words(&off, false),
            "r run --no-learn --stats=json:/s --without guesses --without stale --"
        );
        assert_eq!(words(&[], true), "r run --stats=json:/s --");
        assert_eq!(
            words(&option("--replay=", Path::new("/h")), false),
            "r run --stats=json:/s --replay=/h --"
        );
    }

    #[test]
    fn a_mechanism_that_runahead_does_not_know_is_refused() {
        let without = ["x".to_owned()];
        assert!(require_mechanisms(Path::new("/bin/true"), &without).is_ok());
        let refused = require_mechanisms(Path::new("/bin/false"), &without).unwrap_err();
        assert!(refused.to_string().contains("--without x: no message"), "{refused}");
        assert!(require_mechanisms(Path::new("/none"), &[]).is_ok());
    }
}
