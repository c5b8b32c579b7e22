//! The threads of a process that the plane knows, each with a stack for the agent to work on.
//!
//! A patched call site finds its thread by the thread pointer (fs base), which differs between
//! threads of every library in use; the entry code in `arch` has the search written out. A thread
//! that is not known runs natively until it meets the entry code with a spare place at hand.
//!
//! Invariant: once a [`Thread`] is in the table, only the thread that it belongs to touches it, its
//! signal handlers and vfork child included. Exceptions are its TID, and the atomics by which it is
//! stopped.
//!
//! | module | what it has |
//! |---|---|
//! | `thread_state` | the state of one thread, and its stacks |
//! | `dispatch_switch` | Syscall User Dispatch of a thread, on and off |
//! | `thread_table` | the table by which a thread finds its state |
//! | `spare_places` | places for threads to come |

mod dispatch_switch;
mod spare_places;
mod thread_state;
mod thread_table;

pub(super) use dispatch_switch::{arm_dispatch, armed, disarm_dispatch};
pub(super) use spare_places::{expect_thread, expected_came, prepare_spare, take_spares};
pub use thread_state::{Faults, Thread};
pub(super) use thread_table::others;
pub use thread_table::{current, pointer};

/// Resets the count of armed threads and the table in a forked child, whose only thread is
/// `thread`.
pub(super) fn forget_others(thread: &Thread) {
    // Timers are not inherited.
    thread.faults.set(None);
    dispatch_switch::expect_none_armed();
    spare_places::expect_none();
    thread.armed.set(false);
}
