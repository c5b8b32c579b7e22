//! The plane: gets every system call of the process, and decides nothing.
//!
//! Syscall User Dispatch delivers each call as a signal; a call site that proves hot is then
//! patched to jump here. The [`Policy`] decides on each call: [`policy`] has the contract. The
//! plane itself looks only at the calls that could take interception away from it, or that must not
//! be made from within a signal handler.
//!
//! Invariant: a process whose plane is lost or retired runs natively; nothing of the program's
//! depends on being intercepted.
//!
//! Modules, the highest first. Each uses modules below its own row, or beside it; only the assembly
//! of `arch` jumps up, to functions named `runahead_*`.
//!
//! | module | what it does |
//! |---|---|
//! | `sigsys`, `call_dispatch` | take a call that has trapped, or that comes from a patched site |
//! | `interception_start` | starts interception in a process, and again in a shadow |
//! | `sigsys_forwarding` | hands a SIGSYS that is no call to the program |
//! | `clone`, `exec` | follow children, threads and execs |
//! | `interception_end` | ends the policy, or interception in all threads |
//! | `signal_masks` | makes calls about masks and actions as the program means them |
//! | `sigaltstack_call` | makes sigaltstack(2) as the program means it |
//! | `signal_handlers` | starts the program's signal handlers |
//! | `call_routing` | sets which calls reach the policy, and how |
//! | `call_reporting`, `call_restart` | make calls whose results the policy sees |
//! | `waiting_calls` | tells whether a call would wait |
//! | `program_faults` | shows faults of the program to the policy |
//! | `thread_stop` | stops all other threads |
//! | `native_calls`, `trampolines` | let the program make a call itself |
//! | `patch` | patches hot call sites |
//! | `plane_calls`, `temporary_masks` | calls that the plane makes itself; those with a mask |
//! | `policy` | the contract with the policy, and the policy in force |
//! | `intercepted_call` | a call of the program |
//! | `signal_actions`, `signal_block` | actions that the program gave; stretches without signals |
//! | `thread`, `reported_call_state` | what belongs to one thread |
//! | `dispatch_signal`, `sent_signals` | signals that deliver calls; those that the plane sends |
//! | `interception_state` | whether calls are seen, reported, or intercepted at all |
//! | `kernel_signals`, `alternate_stack` | signal calls as the kernel has them |
//! | `address_space`, `address_range` | map memory for the agent; ranges of addresses |
//! | `spin_lock`, `thread_owned` | state that threads share, and state that one thread has |
//! | `sample_counter` | calls that pass before the policy sees the next sample |
//! | `arch`, `sys` | everything that depends on the processor; system calls of the agent |

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
mod waiting_calls;

pub use address_range::AddressRange;
pub use call_restart::is_partly_made;
pub use call_routing::{
    CallRoute, is_sampled, report_all, see_all_of, set_policy, set_routes, take_interest,
};
pub use clone::note_forking;
pub use intercepted_call::Call;
pub use interception_end::{fail_open, retire, retire_all_threads, stand_down};
pub use interception_start::{remember_process, start, start_in_shadow};
pub use policy::{AnyPolicy, Event, Interest, Next, Policy, ReportingPolicy, Token, Verdict};
pub use signal_actions::{handled_signals, has_handlers};
pub use sys::has_threads;
