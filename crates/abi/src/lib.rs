//! Every record and layout that two processes share.
//!
//! The supervisor, the target's agent and the shadows map one memory file ([`Shared`]). This crate
//! says what lies in it, who may write each part, and how records are read when a writer may have
//! been killed at any instruction. It computes nothing: what estimates, and the tables that it
//! needs, are types of `runahead-estimators` that are embedded here.
//!
//! Invariant: nothing in [`Shared`] can make the target compute a different result. The target
//! reads it only to decide *when to synchronise* and *what to count*; a torn, stale or hostile
//! value costs speed and nothing else. The supervisor validates every record it takes out.
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod agent_config;
pub mod control_protocol;
pub mod hint_log;
pub mod hint_record;
pub mod overlay;
pub mod record_ring;
pub mod shared_memory;
pub mod swapped_memory;

pub use agent_config::AgentConfig;
pub use hint_log::{HintLog, HintState};
pub use hint_record::{HintKind, PATH_MAX, Record, RecordError};
pub use record_ring::Ring;
pub use shared_memory::{Control, RunEnd, RunStatus, Shared};

/// Bumped when any layout in this crate or in `runahead-estimators` changes; checked when the agent
/// starts.
pub const ABI_VERSION: u32 = 16;

/// Environment string with which a program, and what it starts, run natively.
pub const OPT_OUT: &str = "RUNAHEAD=0";

/// Identity of a file on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// [`device_number`] of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// A device as one number: that of a file system, as everything here has it.
pub const fn device_number(major: u32, minor: u32) -> u64 {
    (major as u64) << 32 | minor as u64
}
