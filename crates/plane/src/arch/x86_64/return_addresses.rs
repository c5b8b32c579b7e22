//! Return addresses: how to tell one on a stack, and what to put in its place to be asked on the
//! way.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    // In place of a return address: `ret` has just come here. Asks where the way leads and with
    // what value, everything else as it is but for the flags, which no caller expects to be kept.
    ".globl runahead_returned",
    "runahead_returned:",
    "lea rsp, [rsp - 8]",
    "push rbp",
    "mov rbp, rsp",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "lea rdi, [rbp - 8]",
    "lea rsi, [rbp + 8]",
    "sub rsp, 256",
    "and rsp, -16",
    save_vectors!(),
    "cld",
    "call qword ptr [rip + {returned}]",
    restore_vectors!(),
    "lea rsp, [rbp - 72]",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "pop rbp",
    "ret",
    ".popsection",
    returned = sym RETURNED_TO,
);

// SAFETY: defined above; only its address is taken.
unsafe extern "C" {
    fn runahead_returned();
}

/// Function that decides where a replaced return address leads. It may change the value returned,
/// and writes the address over the word that was replaced. Called on the program's stack, outside
/// of any dispatch.
pub type AfterReturn = extern "C" fn(value: &mut u64, at: &mut u64);

extern "C" fn no_callback(_: &mut u64, _: &mut u64) {
    crate::sys::exit(1)
}

static RETURNED_TO: AtomicPtr<()> = AtomicPtr::new(no_callback as *mut ());

/// From here on `watch` is asked.
pub fn ask_after_returns(watch: AfterReturn) {
    RETURNED_TO.store(watch as *mut (), Relaxed);
}

/// Address that replaces a return address, to have [`AfterReturn`] called.
pub fn return_watch() -> u64 {
    runahead_returned as *const () as u64
}

/// Bytes in front of a return address that tell whether it is one.
pub const CALL_BYTES: usize = 7;

/// True if `before`, which ends at an address, ends in a call instruction: `call rel32` (e8), or ff
/// /2 with any operand (Intel's manual, volume 2, CALL and table 2-2).
pub fn ends_in_call(before: &[u8; CALL_BYTES]) -> bool {
    let is_call = |modrm: u8| modrm >> 3 & 7 == 2;
    let tail = |len: usize| &before[CALL_BYTES - len..];
    let has_sib = |modrm: u8| modrm & 7 == 4;
    if before[2] == 0xe8 {
        return true;
    }
    // By length: the opcode, ModRM, perhaps SIB and displacement. A prefix changes nothing.
    (2..=7).any(|len| {
        let [0xff, modrm, ..] = *tail(len) else { return false };
        let displacement = match modrm >> 6 {
            0 if modrm & 7 == 5 => 4,
            // No base and a displacement.
            0 if has_sib(modrm) && len >= 3 && tail(len)[2] & 7 == 5 => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        let sib = usize::from(modrm >> 6 != 3 && has_sib(modrm));
        is_call(modrm) && len == 2 + sib + displacement
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembled by hand from the manual.
    #[test]
    fn every_form_of_a_call_is_known_and_nothing_else() {
        let ends = |code: &[u8]| {
            let mut before = [0x90; CALL_BYTES];
            before[CALL_BYTES - code.len()..].copy_from_slice(code);
            ends_in_call(&before)
        };
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x10],
            &[0xff, 0x50, 0x18],
            &[0xff, 0x90, 0, 1, 0, 0],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc8],
            &[0xff, 0x14, 0x25, 1, 2, 3, 4],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x94, 0x24, 8, 1, 0, 0],
        ] {
            assert!(ends(call), "{call:02x?}");
        }
        for other in [
            &[0x90, 0x90][..],
            &[0xe9, 1, 2, 3, 4],
            &[0xff, 0xe0],
            &[0xff, 0x20],
            &[0xff, 0x74, 0x24, 8],
            &[0xff, 0x54, 0x24],
            &[0xff, 0x15, 1, 2],
        ] {
            assert!(!ends(other), "{other:02x?}");
        }
    }
}
