//! Call sites: the shapes that can be patched, and the code that is written there.

use super::SYSCALL;
use super::movable_code::Run;
use super::padding::{Code, INT3, LONG_JUMP, RUN_MAX, Window};

/// Way to rewrite a call site; `plane::patch` says which is safe when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteShape {
    /// `mov eax, nr` (or `mov rax, nr`) before the call: the five bytes of a jump replace the
    /// front of it, `len` bytes ahead of the call, which itself stays.
    NumberBefore {
        /// Bytes from the start of the move to the call instruction.
        len: u8,
    },
    /// The call itself becomes a short jump, to padding that has room for a long one.
    ByPadding {
        /// Offset of the padding's first byte.
        from: u16,
        /// Offset of the first byte behind it.
        end: u16,
    },
    /// Instructions before the call that can stand elsewhere: a jump replaces the front of the
    /// first. The rest stays where it is, and so does the call; the stub has a copy.
    RunBefore {
        /// Bytes from the start of the first instruction to the call instruction.
        len: u8,
    },
    /// `cmp rax, -4095` (or -4096) behind the call: the jump replaces the call and the front of
    /// the comparison, which the stub makes instead.
    CompareAfter,
}

/// Bytes of the comparison behind a call.
const COMPARISON: usize = 6;
/// Bytes of a call and the comparison behind it.
pub(super) const COMPARED: usize = 2 + COMPARISON;

impl SiteShape {
    /// Ways to rewrite the call at the offset `site`, which was made with the number `nr`, in order
    /// of preference.
    pub fn of(code: &Code<'_>, site: usize, nr: u64) -> impl Iterator<Item = SiteShape> {
        let is_call = code.bytes[site..].starts_with(&SYSCALL) && !code.wants_flags(site);
        let shapes: [Shape; 4] = [number_before, by_padding, run_before, compare_after];
        shapes.into_iter().filter_map(move |shape| is_call.then(|| shape(code, site, nr))?)
    }
}

/// Test for one way to rewrite a call.
type Shape = fn(&Code<'_>, usize, u64) -> Option<SiteShape>;

fn number_before(code: &Code<'_>, site: usize, nr: u64) -> Option<SiteShape> {
    let number = u32::try_from(nr).ok()?.to_le_bytes();
    let before = |len: usize| site.checked_sub(len).map(|from| &code.bytes[from..site]);
    let is = |opcode: &[u8]| {
        let len = opcode.len() + number.len();
        before(len).is_some_and(|b| b.starts_with(opcode) && b.ends_with(&number))
    };
    let prefixed = before(6).is_some_and(|b| (0x40..=0x4f).contains(&b[0]));
    let len = if is(&[0xb8]) && !prefixed {
        5
    } else if is(&[0x48, 0xc7, 0xc0]) {
        7
    } else {
        return None;
    };
    // The same bytes may be the end of a longer instruction, that stores the number somewhere.
    code.is_boundary(site - len).then_some(SiteShape::NumberBefore { len: len as u8 })
}

fn by_padding(code: &Code<'_>, site: usize, _nr: u64) -> Option<SiteShape> {
    let padding = code.padding(site)?;
    Some(SiteShape::ByPadding { from: padding.start as u16, end: padding.end as u16 })
}

fn run_before(code: &Code<'_>, site: usize, _nr: u64) -> Option<SiteShape> {
    let is_run = |len: &usize| {
        site.checked_sub(*len).is_some_and(|from| {
            Run::new(&code.bytes[from..site]).is_some() && code.is_boundary(from)
        })
    };
    let len = (LONG_JUMP..=RUN_MAX).find(is_run)?;
    Some(SiteShape::RunBefore { len: len as u8 })
}

fn compare_after(code: &Code<'_>, site: usize, _nr: u64) -> Option<SiteShape> {
    let compares = |low| code.bytes[site + 2..].starts_with(&[0x48, 0x3d, low, 0xf0, 0xff, 0xff]);
    (compares(0x00) || compares(0x01)).then_some(SiteShape::CompareAfter)
}

/// Bytes of one stub.
pub const STUB_BYTES: usize = 64;

/// The stub for the site at the offset `site` in the window at `window`: make room below the red
/// zone, call `entry`, do what the jump displaced, and go on behind the site. The number is `nr`
/// only where the jump replaces what sets it; to the call itself others may come with any in rax.
/// Where `entry` leaves 0 in rcx, as no call does, it wants the call to trap: the stub makes it
/// itself. `None` if what it displaces cannot stand at `slot`.
pub fn stub(
    shape: SiteShape,
    nr: u64,
    (window, site): (u64, usize),
    code: &Window,
    (slot, entry): (u64, u64),
) -> Option<[u8; STUB_BYTES]> {
    const POINTERS: usize = STUB_BYTES - 16;
    let mut room = [0; RUN_MAX];
    let mut stub = [INT3; STUB_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        stub[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
        at
    };
    let mut end = put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    if let SiteShape::NumberBefore { .. } = shape {
        put(&[0xb8]); // mov eax, nr
        end = put(&(nr as u32).to_le_bytes());
    }
    if let SiteShape::RunBefore { len } = shape {
        let from = site - usize::from(len);
        let run = Run::new(&code[from..site])?;
        end = put(run.moved(window + from as u64, slot + end as u64, &mut room)?);
    }
    put(&[0xff, 0x15]); // call [rip + to the first pointer]
    put(&((POINTERS - end - 6) as u32).to_le_bytes());
    put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    let mut back = site + 2;
    let mut displaced: &[u8] = &[];
    if shape == SiteShape::CompareAfter {
        // It does not depend on where it stands.
        back = site + COMPARED;
        displaced = &code[site + 2..back];
    }
    const JUMP: usize = 6;
    put(&[0xe3, (displaced.len() + JUMP) as u8]); // jrcxz, to the call
    end = put(displaced);
    put(&[0xff, 0x25]); // jmp [rip + to the second]
    put(&((POINTERS + 8 - end - JUMP) as u32).to_le_bytes());
    let to_displaced = -((2 + 2 + JUMP + displaced.len()) as i8);
    put(&[0x0f, 0x05, 0xeb, to_displaced as u8]); // syscall; jmp
    stub[POINTERS..POINTERS + 8].copy_from_slice(&entry.to_le_bytes());
    stub[POINTERS + 8..].copy_from_slice(&(window + back as u64).to_le_bytes());
    Some(stub)
}

/// A jump of two bytes to its own first.
pub const JUMP_TO_ITSELF: [u8; 2] = [0xeb, 0xfe];

/// A jump of two bytes at the offset `from` to the offset `to`, which it reaches.
pub fn short_jump(from: usize, to: usize) -> Option<[u8; 2]> {
    let distance = i8::try_from(to as isize - (from as isize + 2)).ok()?;
    Some([0xeb, distance as u8])
}

/// `jmp` to `stub` for the place `from`; `None` when it is further than a jump can reach.
pub fn jump(from: u64, stub: u64) -> Option<[u8; LONG_JUMP]> {
    let distance = (stub as i64).wrapping_sub(from as i64 + 5);
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

#[cfg(test)]
mod tests {
    use super::super::padding::END;
    use super::*;

    /// A page of calls with `before` and `after` around its first, which is at [`SITE`].
    fn page(before: &[u8], after: &[u8]) -> Window {
        let mut bytes = [0x90; END];
        bytes[SITE - before.len()..SITE].copy_from_slice(before);
        bytes[SITE..SITE + after.len()].copy_from_slice(after);
        bytes
    }

    const SITE: usize = 2000;

    fn shape(bytes: &Window, nr: u64) -> Option<SiteShape> {
        SiteShape::of(&Code::new(bytes, &|_, _| None), SITE, nr).next()
    }

    #[test]
    fn shapes_that_libraries_have_are_recognised() {
        let glibc_openat = page(&[0xb8, 1, 1, 0, 0], &[0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff]);
        assert_eq!(shape(&glibc_openat, 257), Some(SiteShape::NumberBefore { len: 5 }));
        let glibc_read = page(&[0x31, 0xc0], &[0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff]);
        assert_eq!(shape(&glibc_read, 0), Some(SiteShape::CompareAfter));
        let wide = page(&[0x48, 0xc7, 0xc0, 39, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&wide, 39), Some(SiteShape::NumberBefore { len: 7 }));
    }

    #[test]
    fn lookalikes_are_left_alone() {
        let into_r8 = page(&[0x41, 0xb8, 39, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&into_r8, 39), Some(SiteShape::RunBefore { len: 6 }));
        let other_number = page(&[0xb8, 40, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&other_number, 39), Some(SiteShape::RunBefore { len: 5 }));
        let no_call = page(&[0xb8, 39, 0, 0, 0], &[0x0f, 0x0b, 0xc3]);
        assert_eq!(shape(&no_call, 39), None);
        // mov dword ptr [rsp - 72], 39
        let stores_it = page(&[0xc7, 0x44, 0x24, 0xb8, 39, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&stores_it, 39), None);
    }

    #[test]
    fn a_call_whose_flags_are_read_later_is_left_alone() {
        // jz +0
        let read = page(&[0xb8, 39, 0, 0, 0], &[0x0f, 5, 0x89, 0xc3, 0x74, 0, 0xc3]);
        assert_eq!(shape(&read, 39), None);
        // test eax, eax; jz +0
        let new = page(&[0xb8, 39, 0, 0, 0], &[0x0f, 5, 0x85, 0xc0, 0x74, 0, 0xc3]);
        assert_eq!(shape(&new, 39), Some(SiteShape::NumberBefore { len: 5 }));
    }

    /// Instructions that the jump of another site has displaced cannot be looked at.
    #[test]
    fn a_call_in_front_of_what_was_displaced_is_left_alone() {
        // A jump for two instructions of seven bytes, of which two bytes are left; syscall.
        let call =
            page(&[0xb8, 39, 0, 0, 0], &[0x0f, 5, 0xe9, 1, 2, 3, 4, 0x11, 0xf6, 0x0f, 5, 0xc3]);
        let is_stub = |end, _| (end == SITE + 7).then_some(SITE + 11);
        let found = |code: &Code<'_>| SiteShape::of(code, SITE, 39).next();
        assert_eq!(found(&Code::new(&call, &is_stub)), None);
        // A jump for the call and the comparison behind it, which sets all flags.
        let compared = page(
            &[0xb8, 39, 0, 0, 0],
            &[0x0f, 5, 0xe9, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0x72, 0, 0xc3],
        );
        let is_stub = |end, _| (end == SITE + 7).then_some(SITE + 10);
        let number = Some(SiteShape::NumberBefore { len: 5 });
        assert_eq!(found(&Code::new(&compared, &is_stub)), number);
    }

    #[test]
    fn a_number_that_is_loaded_before_the_call_is_moved_with_its_load() {
        // mov eax, [rip + n]; syscall; ret
        let load = page(&[0x8b, 0x05, 0, 1, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&load, 39), Some(SiteShape::RunBefore { len: 6 }));
        // And mov rdi, rsi between them.
        let code = [0x8b, 0x05, 0, 1, 0, 0, 0x48, 0x89, 0xf7];
        let argument = page(&code, &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&argument, 39), Some(SiteShape::RunBefore { len: 9 }));
        // jmp [rip + n] does not lead here.
        let jump = page(&[0xff, 0x25, 0, 1, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(shape(&jump, 39), None);
    }

    #[test]
    fn a_jump_reaches_two_gigabytes_and_no_further() {
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x0ffb), Some([0xe9, 0xf6, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0, 1 << 32), None);
    }

    #[test]
    fn a_short_jump_reaches_as_far_as_a_byte_does() {
        assert_eq!(short_jump(200, 202 + 127), Some([0xeb, 0x7f]));
        assert_eq!(short_jump(200, 202 - 128), Some([0xeb, 0x80]));
        assert_eq!(short_jump(200, 202 + 128), None);
    }
}
