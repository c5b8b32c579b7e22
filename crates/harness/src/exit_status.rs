//! Exit statuses, for people.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Describes an exit status: `exit 1`, `signal 11`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
