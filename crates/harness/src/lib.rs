//! Shared by `runahead-bench` and `runahead-suites`, which bring slow storage up, run programs on
//! it, compare, and take everything down again after any end. The tests in `tests/` write their
//! programs with it.
//!
//! | module | what it does |
//! |---|---|
//! | `error` | errors that both have in common |
//! | `exit_status` | exit statuses, for people |
//! | `files` | cache, reports, scratch space, the program under test |
//! | `helper_programs` | helper programs: found, run, described when they fail |
//! | [`interrupt`] | Ctrl-C, SIGTERM and SIGHUP, as an error that takes the ordinary way out |
//! | [`markdown`] | tables and lines of documents |
//! | `output_lines` | lines for people: [`say!`] and [`note!`] |
//! | `program` | files that are about to be executed |
//! | `seed` | the seed of what is random in tests |
//! | `system_error` | failed system calls |

#![forbid(unsafe_code)]

mod error;
mod exit_status;
mod files;
mod helper_programs;
pub mod interrupt;
pub mod markdown;
mod output_lines;
mod program;
mod seed;
mod system_error;

pub use error::{Error, failed};
pub use exit_status::describe;
pub use files::{
    cache_dir, fill_at_once, read_json, remove, require_space, subject, write_at_once, write_json,
};
pub use helper_programs::{
    find_program, helper_text, last_line, quoted, require_program, run_helper,
};
pub use interrupt::Interrupted;
pub use program::write_program;
pub use seed::seed;
pub use system_error::{System, system};
