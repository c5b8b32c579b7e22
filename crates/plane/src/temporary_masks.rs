//! Masks that calls have for their own duration.

use crate::intercepted_call::Call;
use crate::kernel_signals::{has_sigsys, without_sigsys};
use crate::sys::{self, copy_in, nr};

/// Calls that set a mask for their own duration. A handler that interrupts them still has it.
pub(super) const MASK_CALLS: [u64; 5] =
    [nr::RT_SIGSUSPEND, nr::PPOLL, nr::PSELECT6, nr::EPOLL_PWAIT, nr::EPOLL_PWAIT2];

/// The number of the argument that is the mask of one of [`MASK_CALLS`], where that is, and its
/// bytes if the call says so there.
fn mask_argument(call: &Call) -> sys::Result<(usize, u64, u64)> {
    let args = call.args;
    Ok(match call.nr {
        nr::RT_SIGSUSPEND => (0, args[0], 0),
        nr::PPOLL => (3, args[3], 0),
        nr::PSELECT6 if args[5] == 0 => (5, 0, 0),
        // The sixth argument points to {mask, bytes of it} (select(2)).
        nr::PSELECT6 => copy_in::<[u64; 2]>(args[5]).map(|[at, size]| (5, at, size))?,
        _ => (4, args[4], 0),
    })
}

/// True if this one of [`MASK_CALLS`] means the same to the kernel as to the program.
pub(super) fn has_plain_mask(call: &Call) -> bool {
    match mask_argument(call) {
        Ok((_, 0, _)) => true,
        Ok((_, at, _)) => copy_in::<u64>(at).is_ok_and(|mask| !has_sigsys(mask)),
        Err(_) => false,
    }
}

/// Index of the mask argument, the mask to use and its bytes, for one of [`MASK_CALLS`] with SIGSYS
/// in its mask.
pub(super) fn mask_to_replace(call: &Call) -> Option<(usize, u64, u64)> {
    if !MASK_CALLS.contains(&call.nr) {
        return None;
    }
    let (slot, at, size) = mask_argument(call).ok().filter(|(_, at, _)| *at != 0)?;
    let mask = copy_in::<u64>(at).ok().filter(|mask| has_sigsys(*mask))?;
    Some((slot, without_sigsys(mask), size))
}

/// Makes one of [`MASK_CALLS`] with SIGSYS taken out of its mask.
pub(super) fn with_temporary_mask(call: &Call) -> i64 {
    let mut args = call.args;
    let (slot, mask_at, size) = match mask_argument(call) {
        Ok(argument) => argument,
        Err(errno) => return refused(call, errno),
    };
    if mask_at == 0 {
        return call.perform();
    }
    let mask = match copy_in::<u64>(mask_at) {
        Ok(mask) => mask,
        Err(errno) => return refused(call, errno),
    };
    let mask = without_sigsys(mask);
    let pair = [&raw const mask as u64, size];
    args[slot] = if call.nr == nr::PSELECT6 { &raw const pair as u64 } else { pair[0] };
    // SAFETY: the program's call, its mask replaced by a copy that lives until the call returns.
    unsafe { sys::raw(call.nr, args) }
}

/// The mask could not be copied. A bad address is the program's; if we may not copy at all (a
/// filter around us) the call is made as it stands.
pub(super) fn refused(call: &Call, errno: sys::Errno) -> i64 {
    if errno.0 == sys::EFAULT { sys::fail(errno.0) } else { call.perform() }
}
