//! Programs run twice, with and without runahead, and compared.
//!
//! [`Fixture`] is a slow disk with a known tree. [`Case`] is one command that is run on it both
//! ways. [`programs`] compiles the C programs of `programs/`, each of which prints what it
//! observes. A case demands that the agent is in the program (`--require`), so that none passes
//! natively.
//!
//! Timing decides nothing here: results, orders of events and counts do.

pub mod bindings;
pub mod call_counts;
mod call_names;
mod command_run;
mod compared_runs;
mod control_group;
mod exit_tasks;
mod fixture;
pub mod kernel_facilities;
pub mod prediction_counts;
pub mod processes;
pub mod programs;
mod seed;
mod stats;
pub mod swap;
mod tested_command;
pub mod tree;

pub use call_names::names_of_calls;
pub use command_run::{End, LEARNING, Outcome, Run, drain};
pub use compared_runs::{Case, Pair};
pub use control_group::Group;
pub use exit_tasks::scratch;
pub use fixture::{Fixture, apart, fixture};
pub use programs::Link;
pub use seed::Seed;
pub use stats::{number, with_stats};
pub use tested_command::{runahead, runahead_faulty, runahead_for};

/// True if all cases are run, not a sample: `RUNAHEAD_FULL` is set, and not 0.
pub fn full() -> bool {
    std::env::var_os("RUNAHEAD_FULL").is_some_and(|value| value != "0")
}

/// Returns the probed value, or `None` after printing why the test is skipped. With
/// `RUNAHEAD_SKIP_NONE` a skip is a failure.
pub fn available<T>(probed: Result<T, String>) -> Option<T> {
    let missing = match probed {
        Ok(it) => return Some(it),
        Err(missing) => missing,
    };
    assert!(std::env::var_os("RUNAHEAD_SKIP_NONE").is_none(), "would be skipped: {missing}");
    eprintln!("skipped: {missing}");
    None
}

/// Probes for `program` in `PATH`; the error is the reason to skip.
pub fn installed(program: &str) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
        true => Ok(()),
        false => Err(format!("{program} is not installed")),
    }
}

/// Probes for root; the error is the reason to skip.
pub fn root() -> Result<(), String> {
    // SAFETY: asks for a number.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        user => Err(format!("needs root, and this is user {user}")),
    }
}

/// The words that run `tests` of this test binary, by their full names.
///
/// # Panics
/// There is no such test: the binary would run none, and succeed.
pub fn same_binary(tests: &[&str]) -> Vec<std::ffi::OsString> {
    let exe = std::env::current_exe().expect("tests know their own path");
    let list = std::process::Command::new(&exe).args(["--list", "--format", "terse"]).output();
    let list = String::from_utf8(list.expect("a test binary starts").stdout).expect("UTF-8");
    for test in tests {
        let line = format!("{test}: test");
        assert!(list.lines().any(|l| l == line), "no test {test}");
    }
    let words = tests.iter().copied().chain(["--exact", "--nocapture"]);
    std::iter::once(exe.into()).chain(words.map(Into::into)).collect()
}
