//! Starts a program with the agent inside it.
//!
//! A process is traced when it is about to exec, and stops there with its new image complete and
//! not one instruction of it executed. Then it maps the agent's file ([`image`]), runs the agent's
//! start once ([`insert_agent`], [`tracee`]), gets its registers back and is let go.
//! [`launch_command`] does this for the first program of a session, [`follow_exec`] for every later
//! one. ptrace is used for this instant only, and when a process is to give interception up
//! ([`interception_end`]).
//!
//! Invariant: if anything here fails, the program runs as it would have without us.

pub mod follow_exec;
pub mod image;
pub mod insert_agent;
pub mod interception_end;
pub mod launch_command;
pub mod not_injected;
mod privilege_check;
pub mod status;
pub mod tracee;

pub use follow_exec::{Followed, Follower};
pub use image::{AgentFile, Layout};
pub use interception_end::{ask_to_end, wait_until_outside};
pub use launch_command::{
    Command, Confine, LaunchError, Launched, StartOptions, exec_instead, find_in_path, launch,
};
pub use not_injected::NotInjected;
pub use status::{Ended, Status, wait};
