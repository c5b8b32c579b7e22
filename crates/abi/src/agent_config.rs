//! Configuration of the agent by the supervisor: the front of the file that is mapped into every
//! program.
//!
//! The file holds an [`AgentConfig`], the relocations, and the agent's image; behind its end lies
//! memory for what the image has not initialised. The same file serves all programs of a session,
//! each of which has a private copy of what it changes.

use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;

use runahead_estimators::TickRate;
use runahead_estimators::follow_filter::{FollowFilter, PROGRAMS_MAX};
use runahead_estimators::slow_devices::{SLOW_DEVICES_MAX, SlowDevices};

use crate::overlay::Overlay;

/// Instructions in the largest seccomp program passed (a classic BPF program of 8 bytes each).
pub const FILTER_MAX: usize = 640;

/// Instructions in the largest program that runners put on top.
pub const RUNNER_FILTER_MAX: usize = 64;
/// Fifth argument, without meaning to the kernel, of the only clone(2) that a runner may make:
/// calls of the program's that got past the agent do not have it.
pub const FORK_MARK: u64 = u64::from_le_bytes(*b"run fork");

/// First address for the arguments of openat2(2) in a shadow, if they may lie nowhere else
/// (`shadow/open_allowlist.rs`): the lowest at which an ordinary user may have memory.
pub const OPENINGS_START: u64 = 0x1_0000;
/// First address behind the arguments of openat2(2).
pub const OPENINGS_END: u64 = 0x1_1000;
/// Bytes of each entry from [`OPENINGS_START`], which is also their alignment.
pub const OPENING_BYTES: u64 = 32;

/// Bytes of the supervisor's address (`sun_path` of unix(7)), the leading NUL included.
pub const SOCKET_BYTES: usize = 40;

/// Bytes of [`AgentConfig::token`].
pub const TOKEN_BYTES: usize = 16;

/// File systems in [`AgentConfig::memory_devices`].
pub const MEMORY_DEVICES_MAX: usize = 16;

/// File systems in [`AgentConfig::remote_devices`].
pub const REMOTE_DEVICES_MAX: usize = 16;

/// File systems in [`AgentConfig::rotational_devices`].
pub const ROTATIONAL_DEVICES_MAX: usize = 16;

/// Stands in a filter for the first address of the shared memory, which only the agent knows; it
/// puts in the real one. Neither half occurs otherwise.
pub const SHARED_START: u64 = 0x5ba5_e001_5ba5_e002;
/// Stands in a filter for the first address behind the shared memory.
pub const SHARED_END: u64 = 0x5ba5_e003_5ba5_e004;

/// Values of [`AgentConfig::plant`], which only tests set.
pub mod plant {
    /// Runners also try the effects that they pretend.
    pub const EFFECTS: u64 = 1;
    /// Runners make the calls that the program marks as they stand, and answer what comes of it.
    pub const MARKED: u64 = 2;
    /// Runners hint nothing that the program will read.
    pub const RUBBISH: u64 = 3;
    /// Processes have no shadows, and count every call and what came of it.
    pub const LOGGED: u64 = 4;
    /// Processes have no shadows; calls wait, are made again and stop threads as the program asks
    /// for it.
    pub const TRIED: u64 = 5;
    /// After calls that a generator picks, whose seed is [`AgentConfig::seed`], processes
    /// speculate.
    pub const SPECULATED: u64 = 6;
    /// Processes speculate as with `SPECULATED`, but a rollback leaves the program's memory as it
    /// is.
    pub const SPECULATED_WRONGLY: u64 = 7;
    /// Calls that must wait are made at once, in processes that speculate by themselves.
    pub const LETS_OUT: u64 = 8;
    /// Runners behave as with `MARKED`, in a shadow that keeps all that the target has and gets no
    /// sandbox: a test must be able to see the effects then. No flipped bit gives this value.
    pub const UNGUARDED: u64 = 0x756e_6775_6172_6465;
}

/// Calls that are counted one by one by [`plant::LOGGED`]: numbers below this.
pub const CALLS_COUNTED: usize = 512;

/// Errnos that [`plant::SPECULATED`] counts refusals by: numbers below this.
pub const ERRNOS: usize = 134;
/// Numbers of calls that a test counts.
pub const CALLS: usize = 512;
/// Buckets that [`plant::SPECULATED`] counts times in, by size.
pub const BUCKETS: usize = 256;

/// Value of [`AgentConfig::panic_at`] for a panic at the first stall, while signals wait.
pub const PANICS_IN_STALL: u64 = u64::MAX;

/// Bits of [`AgentConfig::without`]: mechanisms that are switched off, to measure what each is
/// worth.
pub mod without {
    /// Missing data has no substitute: buffers are left as they are, and returns are not watched.
    pub const STALE: u64 = 1 << 0;
    /// Targets do not ask for another run of the shadow that there is.
    pub const AGAIN: u64 = 1 << 1;
    /// Shadows get their memory by a fork alone, however large the target is.
    pub const MIRRORS: u64 = 1 << 2;
    /// The target's large memory is never copied by a fork, however small the target is.
    pub const COPIES: u64 = 1 << 3;
    /// Targets see every call, also while nothing stalls.
    pub const SAMPLING: u64 = 1 << 4;
    /// Memory with `MADV_DONTFORK` is missing in shadows.
    pub const DONTFORK: u64 = 1 << 5;
    /// Memory blocks that runs touch are not noted for the next run.
    pub const TOUCHED: u64 = 1 << 6;
    /// No file of the same kind stands in for a file that is missing.
    pub const EXEMPLARS: u64 = 1 << 7;
    /// Targets weigh syncs as if no two threads waited at a time.
    pub const CONCURRENCY: u64 = 1 << 8;
}

/// Values of [`AgentConfig::tell`].
pub mod tell {
    /// Targets say nothing of what they find in memory.
    pub const NOTHING: u64 = 0;
    /// Targets that have stalled, or made more than a few accesses, tell each access once
    /// (`record::RECORDED`), as far as they see it and there is room.
    pub const SOME: u64 = 1;
    /// Targets tell all accesses, leave no call unseen, and wait a bounded while for room.
    pub const ALL: u64 = 2;
    /// Targets tell as with [`SOME`], while some device is slow
    /// ([`runahead_estimators::slow_devices`]): a session that finds everything in memory pays
    /// nothing.
    pub const WHILE_SLOW: u64 = 3;
}

/// First in the file, and in each program's mapping of it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentConfig {
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Nonzero if the processor and kernel allow `rdfsbase`.
    pub has_fsgsbase: u32,
    /// Offset of the relocations: pairs of (offset in the image, offset in the image whose address
    /// belongs there).
    pub relocations_at: u32,
    /// Number of the relocations.
    pub relocations: u32,
    /// Offset of the image.
    pub image_at: u32,
    /// Offset of its executable part, which dispatch lets through; whole pages.
    pub text_at: u32,
    /// Bytes of the executable part.
    pub text_len: u32,
    /// Bytes of the whole mapping.
    pub total_len: u32,
    /// Process of the supervisor.
    pub supervisor_pid: u32,
    /// Bytes of `socket`.
    pub socket_len: u32,
    /// Address of the supervisor's control socket ([`crate::control_protocol`]): an abstract
    /// unix(7) address.
    pub socket: [u8; SOCKET_BYTES],
    /// Secret that a request must contain: an address can be found out, this cannot.
    pub token: [u8; TOKEN_BYTES],
    /// Time-stamp ticks in a microsecond, read by [`AgentConfig::tick_rate`].
    pub ticks_per_us: u64,
    /// Offset of the register of protection keys in the vector state of a signal frame (Intel's
    /// manual, volume 1, 13.1); 0 where there are no keys. To ask the processor costs tens of
    /// microseconds in a virtual machine, so it is asked once a session.
    pub pkru_at: u64,
    /// PID of the I/O process, which has the supervisor's threads that may wait for storage. 0:
    /// they are in the supervisor itself, or it has not started yet (see
    /// [`AgentConfig::io_process_pid`]).
    pub io_process_pid: u64,
    /// Landlock's file-system rights to deny (landlock(7)).
    pub landlock_fs: u64,
    /// Landlock's network rights to deny.
    pub landlock_net: u64,
    /// Landlock's scopes to set.
    pub landlock_scoped: u64,
    /// Bytes of the ruleset structure that this kernel knows.
    pub landlock_size: u64,
    /// Nonzero if Landlock cannot deny truncation (before Linux 6.2): shadows open what is in
    /// [`OPENINGS_START`] only.
    pub openings: u64,
    /// The file systems that lie in memory, and remember no name that is not there:
    /// [`device_number`](crate::device_number)s; 0: no more.
    pub memory_devices: [u64; MEMORY_DEVICES_MAX],
    /// The file systems that ask a server for each name that the kernel does not know:
    /// [`device_number`](crate::device_number)s; 0: no more.
    pub remote_devices: [u64; REMOTE_DEVICES_MAX],
    /// The file systems on rotational disks: [`device_number`](crate::device_number)s; 0: no more.
    pub rotational_devices: [u64; ROTATIONAL_DEVICES_MAX],
    /// A [`SlowDevices`] table, read by [`AgentConfig::slow_devices`]. This, the next and
    /// `io_process_pid` are all that changes later.
    pub slow_devices: [u64; 2 + 2 * SLOW_DEVICES_MAX],
    /// A [`FollowFilter`] table, read by [`AgentConfig::follow_filter`].
    pub follow_filter: [u64; 2 * PROGRAMS_MAX],
    /// Fault that a test plants ([`plant`]); 0: none.
    pub plant: u64,
    /// Access of a target at which the agent panics, in tests; 0: never.
    pub panic_at: u64,
    /// Seed of predictions that a test plants.
    pub seed: u64,
    /// Instructions in `filter`.
    pub filter_len: u32,
    /// Instructions in `runner_filter`.
    pub runner_filter_len: u32,
    /// The seccomp program of a template (and, with `runner_filter`, of its runners).
    pub filter: [u64; FILTER_MAX],
    /// Seccomp program that a runner puts on top: no further processes.
    pub runner_filter: [u64; RUNNER_FILTER_MAX],
    /// Accesses that targets tell; see [`tell`].
    pub tell: u64,
    /// Mechanisms that are switched off; see [`without`].
    pub without: u64,
    /// Nonzero if processes may speculate by themselves (`runahead_client::prediction`).
    pub speculates: u64,
    /// Nonzero if memory may be swapped out to a device that is waited for.
    pub swaps: u64,
    /// The try that the processes belong to.
    pub overlay: Overlay,
}

impl AgentConfig {
    /// Bytes at the front of the file that hold all that changes.
    pub const CHANGES_IN: usize = 4096;

    /// Rate of the time-stamp counter.
    pub const fn tick_rate(&self) -> TickRate {
        TickRate::new(self.ticks_per_us)
    }

    /// The table of slow devices, in the mapping whose front is `this`.
    ///
    /// # Safety
    /// The first [`AgentConfig::CHANGES_IN`] bytes of the file are mapped at `this`, and stay so
    /// throughout `'a`.
    pub unsafe fn slow_devices<'a>(this: *const u8) -> &'a SlowDevices {
        // SAFETY: within that, aligned as the file's front is; atomics of the same layout.
        unsafe { &*this.add(offset_of!(AgentConfig, slow_devices)).cast() }
    }

    /// Current PID of the I/O process, in the mapping whose front is `this`. It is set before any
    /// process has joined.
    ///
    /// # Safety
    /// As for [`AgentConfig::slow_devices`].
    pub unsafe fn io_process_pid<'a>(this: *const u8) -> &'a AtomicU64 {
        // SAFETY: within that, aligned as the file's front is; atomics of the same layout.
        unsafe { &*this.add(offset_of!(AgentConfig, io_process_pid)).cast() }
    }

    /// The table of programs that need not be followed, in the mapping whose front is `this`.
    ///
    /// # Safety
    /// As for [`AgentConfig::slow_devices`].
    pub unsafe fn follow_filter<'a>(this: *const u8) -> &'a FollowFilter {
        // SAFETY: within that, aligned as the file's front is; atomics of the same layout.
        unsafe { &*this.add(offset_of!(AgentConfig, follow_filter)).cast() }
    }
}

const _: () = assert!(
    size_of::<AgentConfig>()
        == 208
            + TOKEN_BYTES
            + size_of::<SlowDevices>()
            + size_of::<FollowFilter>()
            + size_of::<Overlay>()
            + 8 * (MEMORY_DEVICES_MAX
                + REMOTE_DEVICES_MAX
                + ROTATIONAL_DEVICES_MAX
                + FILTER_MAX
                + RUNNER_FILTER_MAX)
);
const _: () = assert!(
    offset_of!(AgentConfig, follow_filter) + size_of::<FollowFilter>() <= AgentConfig::CHANGES_IN
        && offset_of!(AgentConfig, io_process_pid).is_multiple_of(align_of::<AtomicU64>())
        && offset_of!(AgentConfig, slow_devices).is_multiple_of(align_of::<SlowDevices>())
        && offset_of!(AgentConfig, follow_filter).is_multiple_of(align_of::<FollowFilter>())
);
