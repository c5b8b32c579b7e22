//! Protection keys (pkeys(7)): what a thread may do with memory of each key is in a register of its
//! own, PKRU, two bits a key.
//!
//! The kernel starts signal handlers with a value under which only memory of key 0 can be used, and
//! returning from them sets the value that lies in the frame. So a call of the program's that is
//! made in our handler would be refused what the program may do, and what it does to the register
//! (pkey_alloc(2)) would be lost. Hence the handler works with the program's value, and writes back
//! what calls have changed.
//!
//! Our own memory has key 0, which our handler is allowed. At a patched site we have the program's
//! rights as they are: one that makes calls while it denies itself memory of key 0, where its own
//! variables are, is stopped by a fault of ours.
//!
//! What we cannot mend: the kernel updates a thread's area for rseq(2) whenever it was preempted,
//! with the rights then in force. Where that area has another key than 0 (a thread whose whole
//! stack has, its control block included), that fails just before our handler's first instruction,
//! as before that of any other handler.
//!
//! `scripts/keys-in-a-vm` runs the twins of this on an emulated processor that has keys.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Context;

/// Offset of the register in a signal frame's vector state; 0 if there are no keys.
// SAFETY: nothing else defines a name that begins with RUNAHEAD_.
#[unsafe(no_mangle)]
static RUNAHEAD_PKRU_AT: AtomicU32 = AtomicU32::new(0);

/// Number of the register's part of that state (Intel's manual, volume 1, 13.1).
const PART: u32 = 9;
/// Bits of key 0.
const OURS: u32 = 3;

/// Offset in the legacy part of what software says of the rest (`struct _fpx_sw_bytes`,
/// asm/sigcontext.h).
const SOFTWARE: usize = 464;
const MAGIC: u32 = 0x4650_5853;
/// Behind that part: which parts are not in their initial state.
const PRESENT: usize = 512;

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    // Handler of SIGSYS. The stack may be of memory that the value handlers start with denies us,
    // so it is changed before anything touches that: all is allowed.
    ".globl runahead_on_signal",
    "runahead_on_signal:",
    "cmp dword ptr [rip + RUNAHEAD_PKRU_AT], 0",
    "je 2f",
    "mov r8, rdx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor eax, eax",
    "wrpkru",
    "mov rdx, r8",
    "2: jmp {on_signal}",
    ".popsection",
    on_signal = sym crate::sigsys::runahead_signal,
);

// SAFETY: defined above; only its address is taken.
unsafe extern "C" {
    fn runahead_on_signal();
}

/// Address of the handler of SIGSYS, which goes on to [`crate::sigsys::runahead_signal`].
pub fn on_signal() -> u64 {
    runahead_on_signal as *const () as u64
}

/// The register lies at `at` in the vector state; 0: there are no keys. Once, before the first
/// signal.
pub fn begin(at: u32) {
    RUNAHEAD_PKRU_AT.store(at, Relaxed);
}

fn offset() -> Option<usize> {
    Some(RUNAHEAD_PKRU_AT.load(Relaxed) as usize).filter(|at| *at != 0)
}

fn read() -> u32 {
    let value;
    // SAFETY: called only where there are keys; reads a register.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") value, out("edx") _, options(nomem, nostack)) };
    value
}

fn write(value: u32) {
    // SAFETY: called only where there are keys. Nothing that we use is denied by any of the values.
    unsafe { asm!("wrpkru", in("ecx") 0, in("eax") value, in("edx") 0, options(nostack)) };
}

/// The program's rights, with which a handler of ours works.
pub struct Rights(Option<u32>);

impl Rights {
    /// Takes on those of the program that was interrupted.
    ///
    /// # Safety
    /// A frame of the kernel's.
    pub unsafe fn of(context: &Context) -> Self {
        let Some(at) = offset() else { return Rights(None) };
        // SAFETY: passed on to the caller.
        let program = unsafe { VectorState::of(context.fpstate, at) }.map(|state| state.get());
        let taken = program.map(|value| value & !OURS);
        if let Some(value) = taken {
            write(value);
        }
        Rights(taken)
    }

    /// The program is to go on with what has become of them.
    ///
    /// # Safety
    /// `context` is the frame that these are [of](Self::of).
    pub unsafe fn leave(self, context: &mut Context) {
        let (Some(taken), Some(at)) = (self.0, offset()) else { return };
        let changed = taken ^ read();
        if changed == 0 {
            return;
        }
        // SAFETY: passed on to the caller.
        if let Some(mut state) = unsafe { VectorState::of(context.fpstate, at) } {
            state.set(state.get() ^ changed);
        }
    }
}

/// Works with all memory allowed, as what is written is not the program's doing.
pub fn with_all_rights<T>(work: impl FnOnce() -> T) -> T {
    if offset().is_none() {
        return work();
    }
    let before = read();
    write(0);
    let result = work();
    write(before);
    result
}

/// The vector state of a signal frame.
struct VectorState {
    area: *mut u8,
    at: usize,
}

impl VectorState {
    /// The one at `area`, in which the register is at `at`; `None` if it does not hold it.
    ///
    /// # Safety
    /// 0, or the state of a frame that lives as long as this.
    unsafe fn of(area: u64, at: usize) -> Option<Self> {
        if area == 0 {
            return None;
        }
        let state = VectorState { area: area as *mut u8, at };
        // Magic number, bytes of all, parts that there are (64 bits), bytes of the state.
        let [magic, _, parts, _, bytes] = [0, 4, 8, 12, 16].map(|n| state.word(SOFTWARE + n));
        let holds = magic == MAGIC && parts & 1 << PART != 0 && bytes as usize >= at + 4;
        holds.then_some(state)
    }

    fn word(&self, at: usize) -> u32 {
        // SAFETY: within the legacy part, its header, or what was seen to be there.
        unsafe { self.area.add(at).cast::<u32>().read_unaligned() }
    }

    fn put(&mut self, at: usize, value: u32) {
        // SAFETY: as above; the frame is the handler's to change.
        unsafe { self.area.add(at).cast::<u32>().write_unaligned(value) };
    }

    /// Value of the register, which is 0 in its initial state.
    fn get(&self) -> u32 {
        if self.word(PRESENT) & 1 << PART == 0 { 0 } else { self.word(self.at) }
    }

    fn set(&mut self, value: u32) {
        self.put(self.at, value);
        self.put(PRESENT, self.word(PRESENT) | 1 << PART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 2688;

    /// A frame's state with or without the register, as the kernel writes it.
    fn state(parts: u32, present: u32, value: u32, bytes: u32) -> [u8; 2700] {
        let mut area = [0xee; 2700];
        let words = [
            (SOFTWARE, MAGIC),
            (SOFTWARE + 4, bytes + 4),
            (SOFTWARE + 8, parts),
            (SOFTWARE + 12, 0),
            (SOFTWARE + 16, bytes),
            (PRESENT, present),
            (AT, value),
        ];
        for (at, word) in words {
            area[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        area
    }

    fn value(area: &[u8]) -> Option<u32> {
        // SAFETY: a state as asked for, that lives.
        unsafe { VectorState::of(area.as_ptr() as u64, AT) }.map(|state| state.get())
    }

    #[test]
    fn the_register_is_found_and_changed() {
        let mut area = state(0x2e7, 0x203, 0x5555_5550, 2696);
        assert_eq!(value(&area), Some(0x5555_5550));
        // SAFETY: as in `value`.
        unsafe { VectorState::of(area.as_mut_ptr() as u64, AT) }.unwrap().set(0x5555_5540);
        assert_eq!(value(&area), Some(0x5555_5540));
        assert_eq!(area[AT + 4..AT + 12], [0xee; 8]);
    }

    #[test]
    fn what_is_in_its_initial_state_is_0_and_can_be_set() {
        let mut area = state(0x2e7, 0x3, 0x5555_5554, 2696);
        assert_eq!(value(&area), Some(0));
        // SAFETY: as in `value`.
        unsafe { VectorState::of(area.as_mut_ptr() as u64, AT) }.unwrap().set(0xc);
        assert_eq!((value(&area), area[PRESENT]), (Some(0xc), 3));
        assert_eq!(area[PRESENT + 1], 2);
    }

    #[test]
    fn a_state_without_it_is_left_alone() {
        for area in [state(0xe7, 0x3, 1, 2696), state(0x2e7, 0x203, 1, 832)] {
            assert_eq!(value(&area), None);
        }
        let mut area = state(0x2e7, 0x203, 1, 2696);
        area[SOFTWARE] = 0;
        assert_eq!(value(&area), None);
        // SAFETY: no state.
        assert!(unsafe { VectorState::of(0, AT) }.is_none());
    }
}
