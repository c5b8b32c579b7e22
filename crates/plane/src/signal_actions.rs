//! The actions that the program gave, as far as the kernel has others.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::kernel_signals::{Action, SIG_DFL, SIGNALS, SYS_BIT, bit_of};
use super::thread::Thread;
use crate::arch::Context;
use crate::interception_state::is_retired;

/// Signals whose `sa_mask` the program gave with SIGSYS in it.
pub(super) static IN_MASK_OF: AtomicU64 = AtomicU64::new(0);

/// Signals for which the kernel has [`crate::signal_handlers::address`] in place of the program's
/// handler.
pub(super) static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Signals in [`HANDLED`] whose handler asked for the alternate stack.
pub(super) static ON_STACK: AtomicU64 = AtomicU64::new(0);

/// The program has installed a handler that can run between any two instructions.
pub(super) static HANDLERS: AtomicBool = AtomicBool::new(false);

/// The program has installed a handler.
pub(super) static ANY_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Handlers in whose place [`crate::signal_handlers::address`] is, by signal number.
pub(super) static PROGRAMS: [AtomicU64; SIGNALS + 1] = [const { AtomicU64::new(0) }; SIGNALS + 1];

/// True once a signal handler may interrupt the program anywhere.
pub(super) fn has_async_handlers() -> bool {
    HANDLERS.load(Relaxed)
}

/// True if the program has, or has had, handlers of its own. While false, none can have changed a
/// thread's mask.
pub fn has_handlers() -> bool {
    ANY_HANDLERS.load(Relaxed)
}

/// Signals for which the program has a handler, or has had one that was reset when it began.
pub fn handled_signals() -> u64 {
    HANDLED.load(Relaxed)
}

/// Signals whose actions the kernel has otherwise than the program gave them.
pub(super) fn changed() -> u64 {
    IN_MASK_OF.load(Relaxed) | HANDLED.load(Relaxed)
}

pub(super) const ASKS_FOR_STACK: u64 = k::SA_ONSTACK as u64;

/// Parts of an action that the kernel does not know.
#[derive(Clone, Copy)]
pub(super) struct GivenAction {
    pub handler: u64,
    in_mask: bool,
    handled: bool,
    pub on_stack: bool,
}

impl GivenAction {
    pub fn of(signal: u32) -> Self {
        let has = |of: &AtomicU64| of.load(Relaxed) & bit_of(signal) != 0;
        let handler = PROGRAMS.get(signal as usize).map_or(SIG_DFL, |own| own.load(Relaxed));
        let [in_mask, handled, on_stack] = [&IN_MASK_OF, &HANDLED, &ON_STACK].map(has);
        GivenAction { handler, in_mask, handled, on_stack }
    }

    /// The kernel's action, as the program gave it; `ours` is what the kernel has in place of
    /// handlers.
    pub fn restore(self, mut action: Action, ours: u64) -> Action {
        if self.in_mask {
            action.mask |= SYS_BIT;
        }
        if self.handled {
            let asked = if self.on_stack { ASKS_FOR_STACK } else { 0 };
            action.flags = action.flags & !ASKS_FOR_STACK | asked;
        }
        // One with SA_RESETHAND is gone once it was called.
        if action.handler == ours {
            action.handler = self.handler;
        }
        action
    }
}

/// A signal has arrived for a handler of the program's, which is returned.
pub(super) fn begin_handler(
    thread: Option<&Thread>,
    signal: i32,
    context: &mut Context,
) -> GivenAction {
    let bit = bit_of(signal as u32);
    if let Some(thread) = thread.filter(|_| !is_retired())
        && IN_MASK_OF.load(Relaxed) & bit != 0
    {
        context.note_believed(thread.blocked.replace(true), SYS_BIT);
    }
    GivenAction::of(signal as u32)
}
