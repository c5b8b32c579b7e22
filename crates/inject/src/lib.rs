//! Starts a program with the agent inside it.
//!
//! A process is traced when it is about to exec, and stops there with its new image complete and
//! not one instruction of it executed. Then it maps the agent's file ([`image`]), runs the agent's
//! start once ([`insert`], [`tracee`]), gets its registers back and is let go. [`launch`] does this
//! for the first program of a session, [`follow`] for every later one. ptrace is used for this
//! instant only.
//!
//! Invariant: if anything here fails, the program runs as it would have without us.

pub mod follow;
pub mod image;
pub mod insert;
pub mod launch;
pub mod not_injected;
mod privilege;
pub mod status;
pub mod tracee;

pub use follow::{Followed, Follower};
pub use image::{AgentFile, Layout, PAGE};
pub use launch::{Command, Confine, LaunchError, Launched, Start, exec_instead, find, launch};
pub use not_injected::NotInjected;
pub use status::{Ended, Status, wait};
