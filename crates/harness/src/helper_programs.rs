//! Helper programs: found, run, and described when they fail.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::error::{Error, failed};

/// Returns the path of a program in PATH, or in the system directories that an ordinary user's PATH
/// may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// Returns the path of a helper program.
///
/// # Errors
/// [`Error::NoProgram`].
pub fn require_program(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    find_program(program).ok_or(Error::NoProgram { program, package })
}

/// Runs a helper to its end, without input unless `command` has some; both outputs are captured.
///
/// # Errors
/// [`Error::Helper`] if it fails, [`Error::System`] if it cannot be started.
pub fn run_helper(command: &mut Command) -> Result<Output, Error> {
    let output = command.output().map_err(failed("run", command.get_program()))?;
    if output.status.success() {
        return Ok(output);
    }
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<_> = words.take(SHOWN).map(|word| word.to_string_lossy()).collect();
    let (command, message) = (words.join(" "), last_line(&output.stderr));
    Err(Error::Helper { command, status: output.status, message })
}

/// Words of a failed command that are shown.
const SHOWN: usize = 12;

/// Returns what a helper prints, without white space around it.
///
/// # Errors
/// As of [`run_helper`].
pub fn helper_text(command: &mut Command) -> Result<String, Error> {
    let output = run_helper(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the last line that is not empty, where programs put the reason of a failure.
pub fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("no message").trim().to_owned()
}

/// Quotes a command line so that it can be pasted into a shell.
pub fn quoted(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let words = argv.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_helper_is_shown_with_its_end_and_last_line() {
        let shell = |script: &str| helper_text(Command::new("sh").args(["-c", script]));
        assert_eq!(shell("echo ' a '").unwrap(), "a");
        let error = shell("echo b >&2; exit 3").unwrap_err().to_string();
        assert!(error.starts_with("`sh -c ") && error.ends_with(" failed (exit 3): b"), "{error}");
        assert!(shell("kill -9 $$").unwrap_err().to_string().contains("(signal 9): no message"));
        assert!(matches!(run_helper(&mut Command::new("/none")), Err(Error::System(_))));
        assert!(find_program("sh").is_some() && require_program("no-such", "x").is_err());
    }

    #[test]
    fn a_shell_reads_what_was_quoted() {
        let words = ["a b", "it's", "$HOME", "", "plain-1", "new\nline"].map(str::to_owned);
        let script = format!("printf '%s|' {}", quoted(&words));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.map(|w| w + "|").concat());
    }
}
