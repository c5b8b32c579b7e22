//! Facts about the machine on which results depend.

use std::fs;

use serde::{Deserialize, Serialize};

/// Facts for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that the benchmark may use.
    pub cores: usize,
    /// Model of the processors.
    pub processor: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub system: String,
}

impl Machine {
    /// The machine that this runs on.
    pub fn this() -> Self {
        let kib =
            field("/proc/meminfo", "MemTotal", ':').and_then(|v| v.split(' ').next()?.parse().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            processor: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(unknown),
            memory_mib: kib.unwrap_or(0u64) >> 10,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(unknown),
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The value of the first line that starts with `name`.
fn field(file: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
}

/// Returns the date, `YYYY-MM-DD`, of a number of seconds since 1970, UTC.
pub fn date(unix: u64) -> String {
    // Howard Hinnant's days_to_civil, for days after 1970: eras of 400 years that begin in March.
    let days = unix / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (m, d) = (if month < 10 { month + 3 } else { month - 9 }, day - (153 * month + 2) / 5 + 1);
    format!("{:04}-{m:02}-{d:02}", year + era * 400 + u64::from(m <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_767_225_599), "2025-12-31");
        assert_eq!(date(1_767_225_600), "2026-01-01");
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::this();
        assert!(machine.cores >= 1 && machine.memory_mib > 0 && !machine.kernel.is_empty());
    }
}
