//! The agent: code inside a process, be it a target or a shadow.
//!
//! It is built as a free-standing image (`image.rs`) that the supervisor copies into a program at
//! exec. The plane, a crate below, gets every system call of the process and decides nothing.
//! `targets/` and `shadow/` are policies on top of it, as are `speculation/` and `overlay/`.
//!
//! # Rules of this crate
//!
//! - The agent runs inside another program: no heap, no thread-local storage, no C library, and no
//!   panic on a path that the target can take. The program's memory is touched only where a system
//!   call has just shown that it may be.
//! - Any thread of a target may run agent code, each on a stack of the agent's that is its own
//!   (`plane::thread`); nested signal handlers are sent straight to the kernel. Data that threads
//!   share is atomic and may be torn where that costs a hint only, or is under a
//!   [`spin_lock::Lock`]. A shadow has one thread, and may use [`thread_owned::Owned`].
//! - No lock is held during a wait for storage or for another process.
//! - The image is compiled for baseline x86-64 only: it never touches the upper halves of vector
//!   registers, so the entry need save no more than the lower ones.
//! - Whatever fails here, the program's call is made as it stands (fail open) unless this process
//!   is a shadow, which then ends (fail closed).
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

/// Methods of a policy that follows children and execs, and counts costs, as a target's does.
macro_rules! as_a_target {
    () => {
        as_a_target!(children);
        as_a_target!(but for children);
    };
    (but for exec) => {
        as_a_target!(children);

        fn event(&self, event: $crate::plane::Event) {
            $crate::targets::POLICY.event(event);
        }
    };
    (children) => {
        fn before_child(&self) {
            $crate::targets::POLICY.before_child();
        }

        fn in_child(&self) {
            $crate::targets::POLICY.in_child();
        }
    };
    (but for children) => {
        fn before_exec(&self, call: &$crate::plane::Call) -> $crate::plane::Token {
            $crate::targets::POLICY.before_exec(call)
        }

        fn exec_failed(&self, token: $crate::plane::Token) {
            $crate::targets::POLICY.exec_failed(token);
        }

        fn event(&self, event: $crate::plane::Event) {
            $crate::targets::POLICY.event(event);
        }
    };
}

pub mod control_client;
mod descriptor_names;
#[cfg(feature = "fault-injection")]
pub mod fault_injection;
pub mod hint_sender;
pub mod overlay;
pub mod path_text;
mod process_maps;
mod read_extent;
pub mod session;
pub mod shadow;
pub mod speculation;
pub mod targets;
mod thread_timer;
mod time_stamp;
mod uninherited_memory;

use runahead_plane::{self as plane, address_space, arch, spin_lock, sys, thread_owned};
