//! Signal frames as the kernel lays them out (`struct rt_sigframe`, arch/x86/kernel/signal_64.c).
//!
//! From below: the address to return to, the context, the siginfo; then, aligned, the vector state.

use core::mem::{offset_of, size_of};

use super::Context;
use crate::sys::{self, IoVec};

/// Bytes below its stack pointer that a program uses (the ABI's red zone).
pub const RED_ZONE: u64 = 128;
/// The vector state is aligned to this.
const STATE_ALIGNED: u64 = 64;
/// Offset in the legacy state of what software says of the rest (`struct _fpx_sw_bytes`,
/// asm/sigcontext.h).
const SOFTWARE: u64 = 464;
const MAGIC: u32 = 0x4650_5853;
const LEGACY_BYTES: u64 = 512;
/// Flags that a handler starts without: TF, DF and RF.
const FLAGS_CLEARED: u64 = 1 << 8 | 1 << 10 | 1 << 16;

/// A frame without its vector state.
#[repr(C)]
struct Frame {
    restorer: u64,
    context: Context,
    info: [u64; 16],
}

const FRAME_BYTES: u64 = size_of::<Frame>() as u64;
const _: () = assert!(FRAME_BYTES == 440 && offset_of!(Frame, context) == 8);

/// Addresses of a frame and its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePlace {
    /// First address, to which the stack pointer is set.
    pub frame: u64,
    /// Address of the vector state.
    pub state: u64,
    /// First address behind it.
    pub end: u64,
}

impl FramePlace {
    /// Below `top`, with that many bytes of vector state.
    pub fn below(top: u64, state_bytes: u64) -> Self {
        let state = match state_bytes {
            0 => top,
            bytes => top.wrapping_sub(bytes) & !(STATE_ALIGNED - 1),
        };
        let frame = (state.wrapping_sub(FRAME_BYTES) & !15).wrapping_sub(8);
        FramePlace { frame, state, end: top }
    }

    /// Address of the frame's context.
    pub fn context(&self) -> *mut Context {
        (self.frame + offset_of!(Frame, context) as u64) as *mut Context
    }
}

impl Context {
    /// First address of the frame that this is part of.
    pub fn frame(&self) -> u64 {
        core::ptr::from_ref(self) as u64 - offset_of!(Frame, context) as u64
    }

    /// Stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.rsp
    }

    /// Bytes of the vector state.
    ///
    /// # Safety
    /// A frame of the kernel's, as it left it.
    pub unsafe fn state_bytes(&self) -> u64 {
        if self.fpstate == 0 {
            return 0;
        }
        // SAFETY: the legacy part is always there.
        let word = |at| unsafe { ((self.fpstate + SOFTWARE + at) as *const u32).read_unaligned() };
        if word(0) == MAGIC { word(4).into() } else { LEGACY_BYTES }
    }

    /// A copy of the frame that this is part of, as it is to be at `place`.
    ///
    /// # Safety
    /// A frame of the kernel's.
    pub unsafe fn moved(&self, place: FramePlace) -> MovedFrame {
        // SAFETY: passed on to the caller: what is around this is the rest of the frame.
        let mut frame = unsafe { core::ptr::read(self.frame() as *const Frame) };
        if self.fpstate != 0 {
            frame.context.fpstate = place.state;
        }
        MovedFrame { frame, state: self.fpstate, place }
    }

    /// Makes of this what returning from it starts a handler with, whose frame is at `place`, as
    /// the kernel does: all vector registers are in their initial state.
    pub fn enter(&mut self, handler: u64, signal: i32, place: FramePlace, mask: u64) {
        let context = place.context() as u64;
        self.rip = handler;
        self.rsp = place.frame;
        self.rdi = signal as u64;
        self.rsi = context + size_of::<Context>() as u64;
        self.rdx = context;
        self.rax = 0;
        self.eflags &= !FLAGS_CLEARED;
        self.fpstate = 0;
        self.mask = mask;
    }

    /// Has the handler return to `restorer`.
    ///
    /// # Safety
    /// Part of a frame of the kernel's.
    pub unsafe fn return_to(&mut self, restorer: u64) {
        // SAFETY: passed on to the caller.
        unsafe { *(self.frame() as *mut u64) = restorer };
    }

    /// Index of the word with our mark, which the kernel leaves alone.
    const MARK: usize = 7;

    fn mark_value(at: u64) -> u64 {
        at ^ 0x7261_6864_6672_616d
    }

    /// Marks this, which is or will be at `at`, or takes the mark away.
    pub fn set_mark(&mut self, at: u64, marked: bool) {
        self.reserved[Self::MARK] = if marked { Self::mark_value(at) } else { 0 };
    }

    /// True if this frame was marked when it was at `at`.
    pub fn is_marked(&self, at: u64) -> bool {
        self.reserved[Self::MARK] == Self::mark_value(at)
    }

    /// The program's registers, for code that looks for addresses in them.
    pub fn registers(&self) -> [u64; REGISTERS] {
        let mut all = [0; REGISTERS];
        all[..8].copy_from_slice(&self.r8_to_r15);
        all[8..].copy_from_slice(&[
            self.rdi, self.rsi, self.rbp, self.rbx, self.rdx, self.rax, self.rcx, self.rsp,
        ]);
        all
    }
}

/// A frame on its way.
pub struct MovedFrame {
    frame: Frame,
    state: u64,
    place: FramePlace,
}

impl MovedFrame {
    /// Context of the frame, to be changed.
    pub fn context(&mut self) -> &mut Context {
        &mut self.frame.context
    }

    /// Has the handler return to `restorer`.
    pub fn return_to(&mut self, restorer: u64) {
        self.frame.restorer = restorer;
    }

    /// Writes it, with its vector state of that many bytes, and `above` at the end of the place.
    /// Fails where there is no memory to write to.
    pub fn write<const N: usize>(
        &self,
        state_bytes: u64,
        above: Option<&[u64; N]>,
    ) -> sys::Result<()> {
        let at = (self.place.end - size_of::<[u64; N]>() as u64) & !7;
        let (above, bytes) = match above {
            Some(above) => (above.as_ptr() as u64, size_of::<[u64; N]>() as u64),
            None => (0, 0),
        };
        let own = core::ptr::from_ref(&self.frame) as u64;
        let piece = |base, len| IoVec { base, len };
        let from = [piece(own, FRAME_BYTES), piece(self.state, state_bytes), piece(above, bytes)];
        let FramePlace { frame, state, .. } = self.place;
        let to = [piece(frame, FRAME_BYTES), piece(state, state_bytes), piece(at, bytes)];
        // SAFETY: the kernel reads what is ours, and writes where it would have put the frame.
        unsafe { sys::scatter(&from, &to) }
    }
}

/// Number of the registers in [`Context::registers`].
pub const REGISTERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lie_as_the_kernel_puts_them() {
        let place = FramePlace::below(0x7fff_0000_1234, 2696);
        assert_eq!(place.state % 64, 0);
        assert!(place.state + 2696 <= 0x7fff_0000_1234);
        assert_eq!(place.frame % 16, 8);
        assert!(place.frame + FRAME_BYTES <= place.state);
        assert!(place.state - place.frame < FRAME_BYTES + 24);
        let bare = FramePlace::below(0x1000_0000, 0);
        assert_eq!((bare.state, bare.frame), (0x1000_0000, 0x1000_0000 - 440 - 8 - 8));
    }
}
