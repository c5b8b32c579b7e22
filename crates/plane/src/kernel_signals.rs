//! Actions and masks of signals as the kernel has them (sigaction(2), sigprocmask(2)), and signals
//! that we send.

use linux_raw_sys::general as k;

use crate::sys::{self, nr};

/// `struct kernel_sigaction` (asm/signal.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

// SAFETY: four integers, and no padding.
unsafe impl sys::PlainData for Action {}

/// Handlers that are none.
pub(super) const SIG_DFL: u64 = 0;

pub(super) const SIG_IGN: u64 = 1;

pub(super) const SYS_BIT: u64 = 1 << (k::SIGSYS - 1);

pub(super) const MASK_BYTES: u64 = 8;

/// Signals that there are (`_NSIG`).
pub(super) const SIGNALS: usize = 64;

/// `si_code` of tkill(2) (asm-generic/siginfo.h).
pub(super) const SI_TKILL: i32 = -6;

/// Signals that only the running instruction can raise, at its own address.
pub(super) const SYNCHRONOUS: [u32; 5] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP];

pub(super) fn set_action(signal: i32, action: Option<&Action>) -> sys::Result<Action> {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = action.map_or(core::ptr::null(), core::ptr::from_ref);
    let args = [signal as u64, new as u64, &raw mut old as u64, MASK_BYTES, 0, 0];
    // SAFETY: both point to live actions, or null; handlers are the program's or ours.
    sys::check(unsafe { sys::raw(nr::RT_SIGACTION, args) })?;
    Ok(old)
}

pub(super) fn bit_of(signal: u32) -> u64 {
    1u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0)
}

/// Adds to the mask in force.
pub(super) fn block(mask: u64) {
    let args = [k::SIG_BLOCK.into(), &raw const mask as u64, 0, MASK_BYTES, 0, 0];
    // SAFETY: reads the eight bytes of `mask`.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
}

/// SIGSYS is in `mask`.
pub(super) fn has_sigsys(mask: u64) -> bool {
    mask & SYS_BIT != 0
}

/// `mask` as the kernel may have it.
pub(super) fn without_sigsys(mask: u64) -> u64 {
    mask & !SYS_BIT
}

/// `si_code` of a signal sent by rt_tgsigqueueinfo(2).
pub(super) const SI_QUEUE: i32 = -1;
/// `si_code` of a signal that a timer has sent (timer_create(2)).
pub(super) const SI_TIMER: i32 = -2;

/// Sends this process a SIGSYS that is not a dispatched call.
pub(super) fn raise_sigsys() {
    // SAFETY: kill(2) of this process with a signal that it was sent before.
    unsafe { sys::raw(nr::KILL, [sys::getpid().into(), k::SIGSYS.into(), 0, 0, 0, 0]) };
}

/// Sends this process the signal once more that `info` is of; it must be blocked.
pub(super) fn send_again(code: i32, info: u64) {
    let (process, signal) = (u64::from(sys::getpid()), u64::from(k::SIGSYS));
    let (call, args) = if code == SI_TKILL {
        (nr::RT_TGSIGQUEUEINFO, [process, sys::gettid().into(), signal, info, 0, 0])
    } else {
        (nr::RT_SIGQUEUEINFO, [process, signal, info, 0, 0, 0])
    };
    // SAFETY: reads the siginfo_t that the kernel has just given us.
    unsafe { sys::raw(call, args) };
}

/// Sends this thread the signal once more that `info` is of; false if that cannot be.
pub(super) fn send_to_itself(signal: i32, info: u64) -> bool {
    let args = [sys::getpid().into(), sys::gettid().into(), signal as u64, info, 0, 0];
    // SAFETY: reads the siginfo_t that the kernel has just given us.
    unsafe { sys::raw(nr::RT_TGSIGQUEUEINFO, args) == 0 }
}

/// The running instruction may have raised the signal.
pub(super) fn may_be_raised_here(signal: i32) -> bool {
    SYNCHRONOUS.contains(&(signal as u32))
}

/// Signals that wait for this thread or the process (sigpending(2)).
pub(super) fn waiting() -> u64 {
    let mut waiting = 0u64;
    let args = [&raw mut waiting as u64, MASK_BYTES, 0, 0, 0, 0];
    // SAFETY: the kernel writes eight bytes of ours.
    unsafe { sys::raw(nr::RT_SIGPENDING, args) };
    waiting
}

/// A SIGSYS of a timer that carries `value`, and waits for this thread, is dropped. (Of a number
/// there is one signal of the program's, and one by a timer.)
pub(super) fn drop_timers(value: u64) {
    /// Index of the value in siginfo_t, in words. The code is the third half word.
    const VALUE: usize = 3;
    let is_poke = |info: &[u64; 16]| info[1] as u32 as i32 == SI_TIMER && info[VALUE] == value;
    if waiting() & bit_of(k::SIGSYS) == 0 {
        return;
    }
    let (mut taken, mut count) = ([[0u64; 16]; 2], 0);
    while count < taken.len() && take(k::SIGSYS, &mut taken[count]) {
        count += 1;
    }
    for info in taken[..count].iter().filter(|info| !is_poke(info)) {
        send_to_itself(k::SIGSYS as i32, info.as_ptr() as u64);
    }
}

/// Takes signals that wait for the process and are not in `mask`: from here on they wait for this
/// thread. All are blocked.
pub(super) fn take_for_the_process(mask: u64) {
    let Ok([own, shared]) = sys::signals_waiting() else { return };
    for signal in (1..=SIGNALS as u32).filter(|signal| shared & !own & !mask & bit_of(*signal) != 0)
    {
        // Of the thread's own there are none of that number, so that these are the process's, in
        // their order. How many there were is known first: what is sent to the thread would be
        // taken again.
        let mut taken = [[0u64; 16]; QUEUED];
        let most = if signal < k::SIGRTMIN { 1 } else { QUEUED };
        let mut count = 0;
        while count < most && take(signal, &mut taken[count]) {
            count += 1;
        }
        for info in &taken[..count] {
            send_to_itself(signal as i32, info.as_ptr() as u64);
        }
    }
}

/// Most signals of one number that are taken at once.
const QUEUED: usize = 16;

/// Takes one that waits (sigtimedwait(2)); false: there is none.
fn take(signal: u32, info: &mut [u64; 16]) -> bool {
    let (set, at_once) = (bit_of(signal), [0u64; 2]);
    let args = [
        &raw const set as u64,
        info.as_mut_ptr() as u64,
        at_once.as_ptr() as u64,
        MASK_BYTES,
        0,
        0,
    ];
    // SAFETY: reads a mask and a timespec, and writes a siginfo_t of 128 bytes.
    unsafe { sys::raw(nr::RT_SIGTIMEDWAIT, args) > 0 }
}

/// A second signal of that number waits: one that is sent now would come after it, or not at all.
pub(super) fn is_another_waiting(signal: i32) -> bool {
    waiting() & bit_of(signal as u32) != 0
}

/// Does `work` while no handler can run: between two calls of ours SIGSYS may then be blocked.
pub(super) fn undisturbed<T>(work: impl FnOnce(u64) -> (T, u64)) -> T {
    let mask = sys::set_mask(!0);
    let (result, mask) = work(mask);
    sys::set_mask(mask);
    result
}

/// The mask in force, as the kernel has it.
pub(super) fn current_mask() -> u64 {
    let mut mask = 0u64;
    let args = [k::SIG_BLOCK.into(), 0, &raw mut mask as u64, MASK_BYTES, 0, 0];
    // SAFETY: only reads the mask, into eight bytes of ours.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
    mask
}
