//! What `runahead-bench` and `runahead-suites` have in common: they bring slow storage up, run
//! programs on it, and take everything down again, whatever happens meanwhile. The tests of the
//! whole write their programs by it.
//!
//! | module | what it does |
//! |---|---|
//! | [`interrupt`] | Ctrl-C, SIGTERM and SIGHUP, as an error that takes the ordinary way out |
//! | `output` | lines for people: [`say!`] and [`note!`] |
//! | `program` | files that are about to be executed |
//! | `seed` | the seed of what is random in tests |
//! | `error` | what the kernel refused, as an error that names it |

#![forbid(unsafe_code)]

mod error;
pub mod interrupt;
mod output;
mod program;
mod seed;

pub use error::{System, system};
pub use interrupt::Interrupted;
pub use program::write_program;
pub use seed::seed;
