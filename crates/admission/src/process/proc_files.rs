//! Parsers of the kernel's text files.

use std::fmt::Display;
use std::fs;

/// The fields of proc_pid_stat(5) behind the name, which may itself hold spaces and parentheses.
pub fn stat(process: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Returns the number behind `name` in a file of such lines, as `/proc/vmstat` and a control
/// group's `memory.stat` are.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Text of proc_pid_status(5).
pub fn status(process: impl Display) -> Option<String> {
    fs::read_to_string(format!("/proc/{process}/status")).ok()
}

/// Returns the number behind `name`, which ends in a colon, in proc_pid_status(5) or
/// proc_meminfo(5); the unit of memory there is the kibibyte.
pub fn quantity(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let text = "workingset_refault_anon 1\nworkingset_refault_file 22\n";
        assert_eq!(number(text, "workingset_refault_file"), Some(22));
        assert_eq!(number(text, "refault_file"), None);
    }

    #[test]
    fn a_process_has_a_state_and_a_parent() {
        let fields = stat(std::process::id() as i32).expect("it lives");
        assert_eq!(fields[1].parse(), Ok(std::os::unix::process::parent_id()));
        assert_eq!(stat(i32::MAX), None);
    }
}
