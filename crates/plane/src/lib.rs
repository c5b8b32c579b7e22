//! The plane: gets every system call of the process, and decides nothing.
//!
//! Syscall User Dispatch delivers each call as a signal; a call site that proves hot is then
//! patched to jump here. The [`Policy`] decides on each call: [`policy`] has the contract. The
//! plane itself looks only at the calls that could take interception away from it, or that must not
//! be made from within a signal handler: masks and handlers (`signal_masks`, `signal_handlers`,
//! `alternate_stack`), children, threads and exec (`clone`, `exec`), the return from a signal
//! (`sigsys`). `thread` keeps what belongs to one thread.
//!
//! Invariant: a process whose plane is lost or retired runs natively; nothing of the program's
//! depends on being intercepted.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod address_range;
pub mod address_space;
mod alternate_stack;
pub mod arch;
mod call_dispatch;
mod call_reporting;
mod call_restart;
mod call_routing;
mod clone;
mod dispatch_signal;
mod exec;
mod intercepted_call;
mod interception_end;
mod interception_start;
mod interception_state;
mod kernel_signals;
mod native_calls;
pub mod patch;
mod plane_calls;
pub mod policy;
pub mod program_faults;
pub mod reported_call_state;
pub mod sample_counter;
pub mod sent_signals;
mod sigaltstack_call;
mod signal_actions;
pub mod signal_block;
mod signal_handlers;
mod signal_masks;
mod sigsys;
mod sigsys_forwarding;
pub mod spin_lock;
pub mod sys;
mod temporary_masks;
pub mod thread;
pub mod thread_owned;
pub mod thread_stop;
mod trampolines;

pub use address_range::AddressRange;
pub use call_restart::is_partly_made;
pub use call_routing::{
    CallRoute, is_sampled, report_all, see_all_of, set_policy, set_routes, take_interest,
};
pub use clone::note_forking;
pub use intercepted_call::Call;
pub use interception_end::{fail_open, retire, retire_all_threads, stand_down};
pub use interception_start::{remember_process, start, start_in_shadow};
pub use patch::has_threads;
pub use policy::{AnyPolicy, Event, Interest, Next, Policy, ReportingPolicy, Token, Verdict};
pub use signal_actions::has_handlers;
