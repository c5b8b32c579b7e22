//! Whether two runs gave the same, and what they gave if they did not.

use std::fs;
use std::path::Path;

use crate::data::job::{Digest, Outcome};
use crate::error::Error;

/// What differs, and both values of it.
pub fn difference(plain: &Outcome, other: &Outcome) -> Option<(&'static str, String, String)> {
    if plain.exit != other.exit {
        return Some(("exit status", plain.exit.clone(), other.exit.clone()));
    }
    let text = |d: &Digest| format!("{} bytes, sha256 {:.16}", d.bytes, d.sha256);
    let absent = Digest { bytes: 0, sha256: "absent".into() };
    let artefact = |o: &Outcome| o.artefact.clone().unwrap_or_else(|| absent.clone());
    [
        ("standard output", plain.stdout.clone(), other.stdout.clone()),
        ("standard error", plain.stderr.clone(), other.stderr.clone()),
        ("the file it writes", artefact(plain), artefact(other)),
    ]
    .into_iter()
    .find(|(_, plain, other)| plain != other)
    .map(|(what, plain, other)| (what, text(&plain), text(&other)))
}

/// Copies the outputs of both to `dir`.
///
/// # Errors
/// They cannot be copied.
pub fn keep(outcomes: [&Outcome; 2], dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::system("create", dir))?;
    for file in outcomes.iter().flat_map(|o| [&o.files.stdout, &o.files.stderr]) {
        let to = dir.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(Error::system("keep a copy at", &to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::job::{Job, Kind};
    use crate::measure::command_runner::Runner;
    use std::time::Duration;

    fn outcome(script: &str, dir: &Path) -> Outcome {
        let artefact = Some(dir.join("archive"));
        let job = Job { artefact, ..Job::new("sh", "dash", dir).args(["-c", script]) };
        let runner = Runner { out: dir.into(), limit: Duration::from_secs(60) };
        runner.run(&job, Kind::Plain, &[]).unwrap()
    }

    #[test]
    fn every_planted_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let same = "echo a; echo b >&2; echo c > archive; exit 1";
        let plain = outcome(same, dir.path());
        assert_eq!(difference(&plain, &outcome(same, dir.path())), None);
        for (script, what) in [
            ("echo a; echo b >&2; echo c > archive; exit 0", "exit status"),
            ("echo a; echo b >&2; echo c > archive; kill -9 $$", "exit status"),
            ("echo A; echo b >&2; echo c > archive; exit 1", "standard output"),
            ("echo a; echo B >&2; echo c > archive; exit 1", "standard error"),
            ("echo a; echo b >&2; echo C > archive; exit 1", "the file it writes"),
            ("echo a; echo b >&2; exit 1", "the file it writes"),
        ] {
            let found = difference(&plain, &outcome(script, dir.path()));
            assert_eq!(found.map(|(what, ..)| what), Some(what), "{script}");
        }
    }
}
