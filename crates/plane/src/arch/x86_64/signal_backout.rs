//! A signal that arrives in code of ours that works on the program's stack, or makes a call from
//! there as it stands, is taken to have arrived at the program's own instruction: the program, and
//! code that unwinds its stack, sees no more.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::call_sites::{COMPARED, STUB_BYTES};
use super::padding::RUN_MAX;
use super::{
    CLONE_SITE_BYTES, Context, PLAIN_SITES, RUNAHEAD_PLAIN_RETURN, SYSCALL, plain_site,
    runahead_entry, runahead_entry_call, runahead_entry_end, runahead_entry_look,
    runahead_entry_made, runahead_entry_made_end, runahead_entry_native, runahead_entry_sampled,
    runahead_entry_switched, runahead_entry_taken, runahead_released_before,
    runahead_released_behind,
};
use crate::sys;

/// Bytes that a stub leaves below the program's stack pointer: the red zone. Its call pushes a
/// return address below that.
const RED_ZONE: u64 = 128;
const BELOW: u64 = RED_ZONE + 8;
/// Flags of arithmetic: CF, PF, AF, ZF, SF, OF.
const ARITHMETIC: u64 = 0x8d5;
const BYTES: u64 = SYSCALL.len() as u64;
/// Index of r10 in the registers from r8 on.
const R10: usize = 2;

/// A stub, as [`super::call_sites::stub`] writes it: a copy, and where it lies.
struct Stub {
    start: u64,
    bytes: [u8; STUB_BYTES],
}

impl Stub {
    /// `lea rsp, [rsp - 128]`.
    const START: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
    const MOVE: u8 = 0xb8;
    const MOVE_BYTES: usize = 5;
    const CALL_BYTES: usize = 6;
    const LEAVE_BYTES: usize = 8;
    const JRCXZ_BYTES: usize = 2;
    const JUMP_BYTES: usize = 6;
    const POINTERS: usize = STUB_BYTES - 16;

    /// The stub that `address` is in, if it is in one. (A program may have jumped to where nothing
    /// is, or what is not to be read.)
    fn around(address: u64) -> Option<Self> {
        let start = address & !(STUB_BYTES as u64 - 1);
        let stub = Stub { start, bytes: sys::copy_in(start).ok()? };
        let is_one = stub.bytes.starts_with(&Self::START)
            && stub.word(Self::POINTERS) == runahead_entry as *const () as u64;
        is_one.then_some(stub)
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.bytes[at..].first_chunk().copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    /// The number of the call, where the stub sets it.
    fn number(&self) -> Option<u64> {
        let moves = self.run() == Self::MOVE_BYTES && self.bytes[Self::START.len()] == Self::MOVE;
        moves.then(|| self.word(Self::START.len() + 1) & u64::from(u32::MAX))
    }

    /// Bytes of the instructions that it makes in front of its call: copies of the program's, or
    /// the move of the number.
    fn run(&self) -> usize {
        self.call() - Self::START.len()
    }

    /// Offset of its call.
    fn call(&self) -> usize {
        let is_call = |at: &usize| {
            let distance = (Self::POINTERS - at - Self::CALL_BYTES) as u32;
            let (opcode, rest) = self.bytes[*at..at + Self::CALL_BYTES].split_at(2);
            opcode == [0xff, 0x15] && rest == distance.to_le_bytes()
        };
        let first = Self::START.len();
        (first..=first + RUN_MAX).find(is_call).unwrap_or(first)
    }

    /// Offset of its `jrcxz`, where the stack pointer is the program's again.
    fn left(&self) -> usize {
        self.call() + Self::CALL_BYTES + Self::LEAVE_BYTES
    }

    /// Offset of the call that the stub makes itself.
    fn own_call(&self) -> usize {
        self.left() + Self::JRCXZ_BYTES + usize::from(self.bytes[self.left() + 1])
    }

    /// Operand of the comparison that the stub makes in place of a displaced one; None: it makes
    /// none.
    fn compares_with(&self) -> Option<u64> {
        let at = self.left() + Self::JRCXZ_BYTES;
        let compares = self.own_call() - at > Self::JUMP_BYTES;
        compares.then(|| i64::from(self.word(at + 2) as i32) as u64)
    }

    /// Address of the program's call.
    fn site(&self) -> u64 {
        let bytes = if self.compares_with().is_some() { COMPARED as u64 } else { BYTES };
        self.word(Self::POINTERS + 8) - bytes
    }

    /// Moves to the program's instruction, or to the one behind it if the call was `made`.
    fn go(&self, context: &mut Context, made: bool) {
        let back = self.word(Self::POINTERS + 8);
        let with = self.compares_with();
        if !made {
            context.rip = self.site();
            return;
        }
        if let Some(with) = with {
            let flags = flags_of_comparison(context.rax, with);
            context.eflags = context.eflags & !ARITHMETIC | flags;
        }
        go_on(context, back);
    }

    /// Moves to the program's instruction, or behind it, from where the stub itself was
    /// interrupted.
    fn go_from(&self, context: &mut Context) {
        let at = (context.rip - self.start) as usize;
        let is_inside = 0 < at && at < self.left();
        if is_inside {
            context.rsp += RED_ZONE;
        }
        if at <= self.call()
            && let Some(number) = self.number()
        {
            context.rax = number;
        }
        let made = match at {
            _ if at <= self.call() => false,
            _ if at <= self.left() => context.rcx != 0,
            _ => at != self.own_call(),
        };
        self.go(context, made);
        if at < self.call() && self.number().is_none() {
            // In front of the copy, or in it: the program's own instructions are as long.
            let left = self.run() - at.saturating_sub(Self::START.len()).min(self.run());
            context.rip -= left as u64;
        }
    }
}

/// Address of the call that is made at `site`, which may be in the call's stub.
pub fn program_site(site: u64) -> u64 {
    Stub::around(site).map_or(site, |stub| stub.site())
}

/// State of the entry code when it was interrupted on the program's stack.
enum Entry {
    /// The call has not been made.
    Before,
    /// The call has been made, and the result is in rax.
    Behind,
}

fn entry(context: &mut Context) -> Option<Entry> {
    let at = |label: unsafe extern "C" fn()| label as *const () as u64;
    let within = |range: Range<u64>| range.contains(&context.rip);
    let [call, sampled] = [runahead_entry_call, runahead_entry_sampled].map(at);
    if [call, sampled].contains(&context.rip)
        || within(at(runahead_entry)..sampled)
        || within(at(runahead_entry_look)..at(runahead_entry_switched))
        || within(at(runahead_entry_native)..call)
        || within(at(runahead_entry_made_end)..at(runahead_entry_end))
    {
        return Some(Entry::Before);
    }
    if [call + BYTES, sampled + BYTES].contains(&context.rip)
        || within(at(runahead_entry_made)..at(runahead_entry_made_end))
    {
        return Some(Entry::Behind);
    }
    let [before, behind] = [runahead_released_before, runahead_released_behind].map(at);
    let found = match context.rip {
        rip if rip == before => Entry::Before,
        rip if rip == behind => Entry::Behind,
        _ => return None,
    };
    // SAFETY: the entry has pushed these, to let signals come.
    let kept = unsafe { *(context.rsp as *const [u64; 6]) };
    [context.r8_to_r15[R10], context.rdx, context.rsi, context.rdi, context.rax, context.rcx] =
        kept;
    context.rsp += size_of_val(&kept) as u64;
    Some(found)
}

/// Moves what was interrupted in code of ours on the program's stack to the program's own. True if
/// it was the thread's work that it was on its way to or from: that is over.
///
/// # Safety
/// A frame of the kernel's for a thread that executed what it says.
pub unsafe fn to_the_program(context: &mut Context) -> bool {
    let first = plain_site(0);
    let trampolines = first..plain_site(PLAIN_SITES);
    if trampolines.contains(&context.rip) {
        let at = context.rip - first;
        let back = RUNAHEAD_PLAIN_RETURN[(at / CLONE_SITE_BYTES) as usize].load(Relaxed);
        match at % CLONE_SITE_BYTES {
            0 => context.rip = back - BYTES,
            _ => go_on(context, back),
        };
        return false;
    }
    let rip = context.rip;
    if let Some(found) = entry(context) {
        // SAFETY: a stub has called the entry, and so it stands on the stack where it goes on.
        let Some(stub) = Stub::around(unsafe { *(context.rsp as *const u64) }) else {
            return false;
        };
        context.rsp += BELOW;
        stub.go(context, matches!(found, Entry::Behind));
        let [taken, switched, native, call, made, end] = [
            runahead_entry_taken,
            runahead_entry_switched,
            runahead_entry_native,
            runahead_entry_call,
            runahead_entry_made,
            runahead_entry_made_end,
        ]
        .map(|label| label as *const () as u64);
        return [taken..switched, native..call, made..end].iter().any(|at| at.contains(&rip));
    }
    if let Some(stub) = Stub::around(rip) {
        stub.go_from(context);
    }
    false
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
    use super::super::padding::Window;
    use super::*;

    #[repr(align(64))]
    struct Slot([u8; STUB_BYTES]);

    #[test]
    fn a_signal_in_a_copied_run_is_one_in_the_program_s_run() {
        use super::super::call_sites::{SiteShape, stub};
        // mov eax, [rip + n]; mov rdi, rsi; syscall; ret
        let run = [0x8b, 0x05, 0, 1, 0, 0, 0x48, 0x89, 0xf7];
        let (mut window, from) = ([0x90; size_of::<Window>()], 2000);
        window[from..from + run.len()].copy_from_slice(&run);
        let site = from + run.len();
        window[site..site + 3].copy_from_slice(&[0x0f, 0x05, 0xc3]);
        let shape = SiteShape::RunBefore { len: run.len() as u8 };
        let mut slot = Slot([0; STUB_BYTES]);
        let at = slot.0.as_ptr() as u64;
        // The program lies a little above its stub.
        let program = at + 0x10_0000;
        let entry = runahead_entry as *const () as u64;
        core::hint::black_box(&mut slot).0 =
            stub(shape, 39, (program, site), &window, (at, entry)).expect("near");
        let first = Stub::START.len();
        for (offset, to) in [(0, 0), (first, 0), (first + 6, 6), (first + 9, 9)] {
            // SAFETY: numbers alone.
            let mut context: Context = unsafe { core::mem::zeroed() };
            (context.rip, context.rsp) = (at + offset as u64, 0x5000);
            // SAFETY: the frame of a thread that stands in a stub.
            unsafe { to_the_program(&mut context) };
            assert_eq!(context.rip, program + (from + to) as u64, "offset {offset}");
            assert_eq!(context.rsp, if offset == 0 { 0x5000 } else { 0x5000 + RED_ZONE });
        }
    }

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
