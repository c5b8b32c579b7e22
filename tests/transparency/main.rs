//! Programs see no difference: output, results, signals, children, files and exit statuses are
//! native.

/// Tests that each run a program of `programs/` both ways, as [`same`] does: rows
/// `name: "program" [arguments] => [marks];`.
macro_rules! same {
    ($($(#[$doc:meta])* $name:ident: $program:literal $args:expr => $marks:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            crate::same($program, &$args, &$marks);
        }
    )*};
}

/// Tests as of [`same!`] in which a shadow must run.
macro_rules! same_with_shadow {
    ($($(#[$doc:meta])* $name:ident: $program:literal $args:expr => $marks:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            crate::same_with_shadow($program, &$args, &$marks);
        }
    )*};
}

mod close_errors;
mod closed_descriptors;
mod everyday_commands;
mod exec_privileges;
mod file_calls;
mod processes;
mod reported_calls;
mod shell_scripts;
mod signal_forwarding;
mod signals;
mod twins;

use runahead_tests::{Case, available, fixture};

/// Runs program `name` with `args` both ways, dynamic and static; its output must contain `marks`.
fn same(name: &str, args: &[&str], marks: &[&str]) {
    same_with(name, args, marks, |case| case);
}

/// Runs a program as [`same`] does, and demands that a shadow runs.
fn same_with_shadow(name: &str, args: &[&str], marks: &[&str]) {
    same_with(name, args, marks, |case| case.with_shadow());
}

fn same_with(name: &str, args: &[&str], marks: &[&str], change: fn(Case<'_>) -> Case<'_>) {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with(name, args, change);
    let text = pair.outcome.text();
    for mark in marks {
        assert!(text.contains(mark), "{name} {args:?} no longer shows {mark:?}:\n{text}");
    }
}
