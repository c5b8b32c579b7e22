//! Starts a program with the agent inside it.
//!
//! The child waits until it is traced, then stops at exec with its new image complete and not one
//! instruction of it executed. There the agent's image is copied in, relocated and run once
//! ([`image`], [`tracee`]); then the program gets its registers back and is let go ([`launch`]).
//! ptrace is used for this instant only.
//!
//! Invariant: if anything here fails, the program runs as it would have without us.

pub mod image;
pub mod launch;
pub mod tracee;

pub use image::Image;
pub use launch::{Command, LaunchError, Launched, NotInjected, launch};
