//! A signal that arrives while code of ours makes a call from the program's stack, as it stands, is taken to
//! have arrived at the program's own instruction: the program, and whoever unwinds its stack, sees no more.

use core::sync::atomic::Ordering::Relaxed;

use super::sites::{COMPARED, STUB_BYTES};
use super::{
    CLONE_SITE_BYTES, Context, PLAIN_SITES, RUNAHEAD_PLAIN_RETURN, SYSCALL, plain_site,
    runahead_entry_call, runahead_entry_sampled,
};

/// What the stub has put below the program's stack pointer: the red zone, and an address to return to.
const BELOW: u64 = 128 + 8;
/// From that address to the operand of the stub's `jrcxz`.
const TO_DISTANCE: u64 = 8 + 1;
/// That operand where a comparison was displaced.
const DISTANCE_WITH_COMPARISON: u8 = 12;
/// From that operand to what the displaced comparison compares with.
const TO_OPERAND: u64 = 1 + 2;
/// Flags of arithmetic: CF, PF, AF, ZF, SF, OF.
const ARITHMETIC: u64 = 0x8d5;
const BYTES: u64 = SYSCALL.len() as u64;

/// Moves what was interrupted from our call instruction, or from just behind it, to the program's.
///
/// # Safety
/// A frame of the kernel's for a thread that executed what it says.
pub unsafe fn to_the_program(context: &mut Context) {
    let first = plain_site(0);
    let trampolines = first..plain_site(PLAIN_SITES);
    if trampolines.contains(&context.rip) {
        let at = context.rip - first;
        let back = RUNAHEAD_PLAIN_RETURN[(at / CLONE_SITE_BYTES) as usize].load(Relaxed);
        return match at % CLONE_SITE_BYTES {
            0 => context.rip = back - BYTES,
            _ => go_on(context, back),
        };
    }
    for call in [runahead_entry_call, runahead_entry_sampled] {
        let call = call as *const () as u64;
        let made = match context.rip.wrapping_sub(call) {
            0 => false,
            BYTES => true,
            _ => continue,
        };
        // SAFETY: a stub has called the entry, and so it stands on the stack where it goes on.
        let (back, compared) = unsafe {
            let stub = *(context.rsp as *const u64);
            let distance = (stub + TO_DISTANCE) as *const u8;
            let pointers = (stub & !(STUB_BYTES as u64 - 1)) + STUB_BYTES as u64 - 8;
            let operand = distance.add(TO_OPERAND as usize).cast::<i32>();
            let compares = *distance == DISTANCE_WITH_COMPARISON;
            (*(pointers as *const u64), compares.then(|| operand.read_unaligned()))
        };
        context.rsp += BELOW;
        match (made, compared) {
            (false, Some(_)) => context.rip = back - COMPARED as u64,
            (false, None) => context.rip = back - BYTES,
            (true, Some(with)) => {
                let flags = flags_of_comparison(context.rax, i64::from(with) as u64);
                context.eflags = context.eflags & !ARITHMETIC | flags;
                go_on(context, back);
            }
            (true, None) => go_on(context, back),
        }
        return;
    }
}

/// The flags that `cmp` leaves.
fn flags_of_comparison(a: u64, b: u64) -> u64 {
    let (difference, carry) = a.overflowing_sub(b);
    let overflow = (a as i64).overflowing_sub(b as i64).1;
    let parity = (difference as u8).count_ones().is_multiple_of(2);
    u64::from(carry)
        | u64::from(parity) << 2
        | u64::from(a & 15 < b & 15) << 4
        | u64::from(difference == 0) << 6
        | difference >> 63 << 7
        | u64::from(overflow) << 11
}

fn go_on(context: &mut Context, back: u64) {
    context.rip = back;
    context.rcx = back;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_processor() {
        let values = [0, 1, 15, 16, 0x7fff_ffff_ffff_ffff, 1 << 63, -1i64 as u64, -4095i64 as u64];
        for a in values {
            for b in values {
                let flags: u64;
                // SAFETY: compares two registers.
                unsafe {
                    core::arch::asm!("cmp {}, {}", "pushfq", "pop {}", in(reg) a, in(reg) b, out(reg) flags);
                }
                assert_eq!(flags_of_comparison(a, b), flags & ARITHMETIC, "{a:x} {b:x}");
            }
        }
    }
}
