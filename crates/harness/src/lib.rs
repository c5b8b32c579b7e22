//! What `runahead-bench` and `runahead-suites` have in common: they bring slow storage up, run
//! programs on it, and take everything down again, whatever happens meanwhile.
//!
//! | module | what it does |
//! |---|---|
//! | [`interrupt`] | Ctrl-C, SIGTERM and SIGHUP, as an error that takes the ordinary way out |
//! | `output` | lines for people: [`say!`] and [`note!`] |
//! | `error` | what the kernel refused, as an error that names it |

#![forbid(unsafe_code)]

mod error;
pub mod interrupt;
mod output;

pub use error::{System, system};
pub use interrupt::Interrupted;
