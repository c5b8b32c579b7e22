//! What the supervisor tells the agent when it injects it.

use core::mem::size_of;

/// Instructions in the largest seccomp program passed (a classic BPF program of 8 bytes each).
pub const FILTER_MAX: usize = 512;

/// Copied into the target beside the agent's image; read once, by the agent's start.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentConfig {
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Descriptor of the memory file in the target; the agent maps and closes it.
    pub shared_fd: i32,
    /// First address of the agent's image in the target.
    pub image: u64,
    /// Bytes of the image.
    pub image_len: u64,
    /// First address and bytes of its executable part: the range that dispatch lets through.
    pub text: u64,
    /// See `text`.
    pub text_len: u64,
    /// Process of the supervisor, as the target sees it.
    pub supervisor_pid: u32,
    /// Not 0 when the processor and kernel allow `rdfsbase`.
    pub has_fsgsbase: u32,
    /// Time-stamp ticks in a microsecond.
    pub ticks_per_us: u64,
    /// Landlock's file-system rights to deny (landlock(7)).
    pub landlock_fs: u64,
    /// Landlock's network rights to deny.
    pub landlock_net: u64,
    /// Landlock's scopes to set.
    pub landlock_scoped: u64,
    /// Bytes of the ruleset structure that this kernel knows.
    pub landlock_size: u64,
    /// For tests: not 0 makes runners really try what they would only pretend to do.
    pub plant: u64,
    /// For tests: the agent panics at this access of the target (0: never).
    pub panic_at: u64,
    /// Instructions in `filter`.
    pub filter_len: u32,
    /// Instructions in `runner_filter`.
    pub runner_filter_len: u32,
    /// The seccomp program of a template (and, with `runner_filter`, of its runners).
    pub filter: [u64; FILTER_MAX],
    /// What a runner puts on top: no further processes.
    pub runner_filter: [u64; 16],
}

const _: () = assert!(size_of::<AgentConfig>() == 112 + 8 * (FILTER_MAX + 16));
