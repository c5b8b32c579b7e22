//! The policy of a shadow: every call answered at once, and nothing but reading done.
//!
//! [`template`] turns a fork of the target into a harmless process, which makes runners; a runner
//! goes on in the program's code under [`policy`]. What is in memory is answered truly; what is
//! not becomes a hint and the most probable answer: a stand-in descriptor, attributes, full reads.
//!
//! Invariants: the kernel alone would stop any effect (the sandbox is up before the first
//! speculative instruction, so a mistake in this folder costs speed); no answer waits for storage
//! unless the log says that the data has been read.

pub mod attributes;
pub(crate) mod children;
pub mod data;
mod disclose;
mod faults;
pub mod files;
mod forks;
mod guards;
mod life;
pub mod lookup;
pub mod memory;
mod mirror;
mod openings;
mod pages;
mod planted;
mod policy;
mod predicts;
pub mod quiet;
mod regions;
pub mod returns;
pub mod runner;
pub mod sandbox;
mod swapped;
pub mod template;
mod texts;

pub use policy::policy;

/// True in templates and runners.
pub fn is_shadow() -> bool {
    life::is_shadow()
}
