//! The program's alternate signal stack (sigaltstack(2)), which the kernel does not know of.
//!
//! The kernel's is a small one of ours, for each thread, so that the frame by which a call is
//! delivered never lies in memory of the program's. It is set with `SS_AUTODISARM`: while a frame
//! of the kernel's lies on it, the kernel has none, and what comes then goes below wherever the
//! thread is.

use linux_raw_sys::general as k;

use crate::arch::FramePlace;
use crate::sys::{self, Errno, nr};

/// `SS_DISABLE`, `SS_ONSTACK` and `SS_AUTODISARM` of sigaltstack(2).
const DISABLED: u32 = 2;
const ON_STACK: u32 = 1;
pub(super) const AUTODISARM: u32 = 1 << 31;

/// An alternate stack, as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Altstack {
    pub first: u64,
    pub flags: u32,
    pub bytes: u64,
}

impl Altstack {
    pub const NONE: Self = Altstack { first: 0, flags: DISABLED, bytes: 0 };

    /// From a `stack_t`, half a word of which is padding.
    pub fn from_words([first, flags, bytes]: [u64; 3]) -> Self {
        Altstack { first, flags: flags as u32, bytes }
    }

    pub fn words(self) -> [u64; 3] {
        [self.first, self.flags.into(), self.bytes]
    }

    pub fn end(self) -> u64 {
        self.first.wrapping_add(self.bytes)
    }

    /// The stack pointer `stack` is in this stack.
    pub fn holds(self, stack: u64) -> bool {
        stack > self.first && stack - self.first <= self.bytes
    }

    /// This stack holds `stack`, and the program has not asked to be able to leave it without
    /// saying so.
    fn is_used_at(self, stack: u64) -> bool {
        self.flags & AUTODISARM == 0 && self.holds(stack)
    }

    /// State that sigaltstack(2) reports.
    pub(super) fn state(self, stack: u64) -> u32 {
        match self.bytes {
            0 => DISABLED,
            _ if self.is_used_at(stack) => ON_STACK,
            _ => 0,
        }
    }

    /// Place that the kernel gives a frame with `state_bytes` of vector state, for a handler with
    /// `SA_ONSTACK` or without, when `stack` is below the program's red zone and `room` bytes more
    /// are wanted above it. `None` if the frame would overflow this stack.
    pub fn place(
        self,
        stack: u64,
        on_stack: bool,
        state_bytes: u64,
        room: u64,
    ) -> Option<FramePlace> {
        let inside = self.is_used_at(stack);
        let enters = on_stack && self.state(stack) == 0;
        let top = if enters { self.end() } else { stack };
        let place = FramePlace::below(top.wrapping_sub(room), state_bytes);
        (!(inside || enters) || self.holds(place.frame)).then_some(FramePlace { end: top, ..place })
    }

    /// Result of setting this stack, or the error that refuses it.
    pub(super) fn checked(self, now: Self, stack: u64) -> sys::Result<Self> {
        /// `MINSIGSTKSZ`, as the kernel has it.
        const SMALLEST: u64 = 2048;
        if now.is_used_at(stack) {
            return Err(Errno(sys::EPERM));
        }
        match self.flags & !AUTODISARM {
            _ if self == now => Ok(self),
            DISABLED => Ok(Altstack { first: 0, bytes: 0, ..self }),
            0 | ON_STACK if self.bytes < SMALLEST => Err(Errno(sys::ENOMEM)),
            0 | ON_STACK => Ok(self),
            _ => Err(Errno(sys::EINVAL)),
        }
    }
}

/// The kernel's alternate stack of this thread.
pub(super) fn of_kernel() -> Altstack {
    let mut stack = [0u64; 3];
    // SAFETY: writes a stack_t of three words.
    match unsafe { sys::raw(nr::SIGALTSTACK, [0, stack.as_mut_ptr() as u64, 0, 0, 0, 0]) } {
        0 => Altstack::from_words(stack),
        _ => Altstack::NONE,
    }
}

/// Sets it. (It fails for none of ours, nor for one that the kernel had accepted.)
pub(super) fn give_kernel(stack: Altstack) {
    let words = stack.words();
    // SAFETY: reads three words; frames go where the thread's owner wants them.
    let _ = unsafe { sys::raw(nr::SIGALTSTACK, [words.as_ptr() as u64, 0, 0, 0, 0, 0]) };
}

const _: () = assert!(k::SS_DISABLE == DISABLED && k::SS_ONSTACK == ON_STACK);

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAMS: Altstack = Altstack { first: 0x10_0000, flags: 0, bytes: 0x8000 };
    const TOP: u64 = 0x10_8000;

    #[test]
    fn frames_go_to_the_alternate_stack_once() {
        let outside = PROGRAMS.place(0x70_0000, true, 2696, 0).unwrap();
        assert!(PROGRAMS.holds(outside.frame) && outside.end == TOP);
        assert_eq!(PROGRAMS.place(0x70_0000, false, 2696, 0).unwrap().end, 0x70_0000);
        assert_eq!(PROGRAMS.place(TOP - 0x1000, true, 2696, 0).unwrap().end, TOP - 0x1000);
        let disarming = Altstack { flags: AUTODISARM, ..PROGRAMS };
        assert_eq!(disarming.place(TOP - 0x1000, true, 2696, 0).unwrap().end, TOP);
        assert_eq!(Altstack::NONE.place(0x70_0000, true, 2696, 0).unwrap().end, 0x70_0000);
    }

    #[test]
    fn what_overflows_it_has_no_place() {
        assert_eq!(PROGRAMS.place(0x10_0800, true, 2696, 0), None);
        assert_eq!(PROGRAMS.place(0x10_0800, false, 2696, 0), None);
        let small = Altstack { bytes: 2048, ..PROGRAMS };
        assert_eq!(small.place(0x70_0000, true, 2696, 0), None);
    }

    #[test]
    fn changes_are_refused_as_the_kernel_does() {
        let set = |given: Altstack, stack| given.checked(PROGRAMS, stack).map_err(|e| e.0);
        assert_eq!(set(Altstack::NONE, TOP), Err(sys::EPERM));
        assert_eq!(set(PROGRAMS, TOP), Err(sys::EPERM));
        assert_eq!(set(Altstack::NONE, TOP + 1), Ok(Altstack::NONE));
        assert_eq!(set(Altstack { bytes: 2047, ..PROGRAMS }, 1), Err(sys::ENOMEM));
        assert_eq!(set(Altstack { flags: 77, ..PROGRAMS }, 1), Err(sys::EINVAL));
        let disabling = Altstack { flags: DISABLED, ..PROGRAMS };
        assert_eq!(set(disabling, 1), Ok(Altstack::NONE));
    }
}
