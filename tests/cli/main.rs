//! The command line: bad input, exit statuses, statistics, programs that cannot be helped.

mod exit_statuses;
mod native_programs;
mod statistics;
mod usage_errors;

use runahead_tests::{Outcome, Run, runahead};

/// Runs runahead with `args`.
fn ours(args: &[&str]) -> Outcome {
    let program = runahead().to_str().expect("a plain path");
    Run::new([&[program], args].concat()).run()
}
