//! The policy of a shadow: every call is answered at once, and nothing but reading is done.
//!
//! [`template`] turns a fork of the target into a harmless process, which makes runners. A runner
//! goes on in the program's code under [`policy`]. What is in memory is answered truly. The rest
//! becomes a hint and the most probable answer: a stand-in descriptor, attributes, full reads.
//!
//! Invariants: the kernel alone would stop any effect. The sandbox is up before the first
//! speculative instruction, so a mistake in this folder costs speed only. No answer waits for
//! storage unless the log says that the data has been read.

mod disclosure_calls;
pub mod file_attributes;
pub mod file_contents;
mod fork_calls;
mod guard_pages;
mod lazy_regions;
mod mapped_pages;
pub mod name_lookup;
mod open_allowlist;
mod path_pool;
#[cfg(feature = "fault-injection")]
mod planted_violations;
#[cfg(not(feature = "fault-injection"))]
#[path = "no_planted_violations.rs"]
mod planted_violations;
mod policy;
pub mod return_hooks;
pub mod runner;
pub(crate) mod runner_children;
mod runner_faults;
pub mod sandbox;
pub mod shadow_descriptors;
mod shadow_lifetime;
mod speculation_calls;
pub mod suppressed_calls;
mod swapped_pages;
mod target_mirror;
pub mod template;
pub mod unshared_memory;

pub use policy::answer_call;
pub use shadow_lifetime::is_shadow;
