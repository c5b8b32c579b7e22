//! Syscall User Dispatch, thread by thread (prctl(2)).

use core::sync::atomic::{AtomicU32, Ordering::*};

use super::thread_state::Thread;
use crate::alternate_stack;
use crate::sys;

/// Threads with dispatch armed.
static ARMED: AtomicU32 = AtomicU32::new(0);

impl Thread {
    /// Arms dispatch for this thread, which is the one that runs.
    pub(crate) fn arm(&self) -> sys::Result<()> {
        arm_dispatch()?;
        if !self.armed.replace(true) {
            ARMED.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// This thread's calls are the kernel's again, but for those from patched sites. True if no
    /// other thread is armed.
    pub(crate) fn disarm(&self) -> bool {
        disarm_dispatch();
        let was = self.armed.replace(false);
        if was {
            alternate_stack::give_kernel(self.alternate.get());
        }
        was && ARMED.fetch_sub(1, Relaxed) == 1
    }
}

/// Resets the count of armed threads in a forked child.
pub(super) fn expect_none_armed() {
    ARMED.store(0, Relaxed);
}

/// Threads with dispatch armed.
pub(crate) fn armed() -> u32 {
    ARMED.load(Relaxed)
}

/// Switches dispatch on for the calling thread.
pub(crate) fn arm_dispatch() -> sys::Result<()> {
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON};
    let text = crate::interception_state::text();
    let range = [PR_SYS_DISPATCH_ON.into(), text.start, text.bytes(), 0];
    // SAFETY: the range holds every call instruction of the agent, the signal's restorer included;
    // without a selector byte there is nothing that the program could overwrite.
    unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, range) }.map(|_| ())
}

/// Switches it off.
pub(crate) fn disarm_dispatch() {
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF};
    // SAFETY: switching dispatch off leaves native calls.
    let _ =
        unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, [PR_SYS_DISPATCH_OFF.into(), 0, 0, 0]) };
}
