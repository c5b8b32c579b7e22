//! Command lines for people.

use std::ffi::OsStr;
use std::path::Path;

use crate::data::job::Job;

/// Words that are shown of a longer command.
const SHOWN: usize = 6;
/// Words of a command that is shown whole.
const FEW: usize = 12;
/// Characters that are shown of a script: of its first line.
const LONGEST: usize = 80;

/// Describes the command as a person would write it: most of many names left out, scripts cut
/// short, and without `places`, the directories in which it was measured.
pub fn describe(job: &Job, places: &[&Path]) -> String {
    let artefact = job.artefact.as_ref().map(|path| path.as_os_str());
    let word = |word: &OsStr| match artefact {
        Some(artefact) if artefact == word => "ARCHIVE".to_owned(),
        _ => shown(&without(word, places)),
    };
    let count = if job.args.len() <= FEW { FEW } else { SHOWN };
    let program = word(job.program.as_os_str());
    let args = job.args.iter().take(count).map(|arg| word(arg));
    let words: Vec<_> = [program].into_iter().chain(args).collect();
    let rest = match job.args.len().saturating_sub(count) {
        0 => String::new(),
        n => format!(" ... ({n} more names)"),
    };
    words.join(" ") + &rest
}

fn without(word: &OsStr, places: &[&Path]) -> String {
    let text = word.to_string_lossy().into_owned();
    places.iter().fold(text, |text, place| text.replace(&format!("{}/", place.display()), ""))
}

fn shown(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(LONGEST).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,@%".contains(c);
    match (line == text, !text.is_empty() && text.chars().all(plain)) {
        (true, true) => line,
        (true, false) => format!("'{line}'"),
        (false, _) => format!("'{line}...'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_short_and_without_places() {
        let place = Path::new("/scratch/x");
        let job = Job::new("/scratch/x/bin/sh", "dash", place);
        let text = |args: &[&str]| describe(&job.clone().args(args), &[place]);
        assert_eq!(text(&["-c", "a b", ""]), "bin/sh -c 'a b' ''");
        assert_eq!(text(&["-c", "one\ntwo"]), "bin/sh -c 'one...'");
        let many: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(text(&many), "bin/sh f0 f1 f2 f3 f4 f5 ... (14 more names)");
        let tar = Job { artefact: Some("/scratch/t".into()), ..Job::new("tar", "tar", place) };
        assert_eq!(describe(&tar.args(["cf", "/scratch/t"]), &[place]), "tar cf ARCHIVE");
    }
}
