//! Instructions that do the same at another place, and with another stack pointer.
//!
//! It knows what compilers put before system calls: moves, arithmetic of registers, and what is
//! addressed from the instruction pointer, of which only the distance changes. No access that may
//! fault is among them, but to the program's own variables.

use super::instruction_decoder::{Flow, decode};
use super::padding::{LONG_JUMP, RUN_MAX};

/// Use that an instruction makes of its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlaceUse {
    /// It does not depend on its place.
    Nowhere,
    /// Its last four bytes are a distance from its end.
    Distance,
}

/// Instructions of at most [`RUN_MAX`] bytes, of which the first has room for a long jump.
#[derive(Clone, Copy)]
pub(super) struct Run<'a>(&'a [u8]);

impl<'a> Run<'a> {
    /// `code`, if it is such instructions and nothing else.
    pub fn new(code: &'a [u8]) -> Option<Self> {
        let run = Run(code);
        let (first, _) = run.instructions().next()?;
        let len: usize = run.instructions().map(|(instruction, _)| instruction.len()).sum();
        (code.len() <= RUN_MAX && first.len() >= LONG_JUMP && len == code.len()).then_some(run)
    }

    /// Instructions up to the first that cannot be moved.
    fn instructions(self) -> impl Iterator<Item = (&'a [u8], PlaceUse)> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let decoded = decode(rest).ok().filter(|next| next.flow == Flow::On)?;
            let (instruction, behind) = rest.split_at_checked(decoded.len)?;
            rest = behind;
            Some((instruction, place_use(instruction)?))
        })
    }

    /// Writes the instructions to the front of `to`, so that they do at the address `new` what
    /// they did at `old`. `None` if a distance is too long from there.
    pub fn moved(self, old: u64, new: u64, to: &mut [u8; RUN_MAX]) -> Option<&[u8]> {
        let mut end = 0;
        for (instruction, use_) in self.instructions() {
            let from = end;
            end += instruction.len();
            to[from..end].copy_from_slice(instruction);
            if use_ == PlaceUse::Distance {
                let distance = to[end - 4..end].first_chunk_mut::<4>()?;
                let moved = i64::from(i32::from_le_bytes(*distance));
                let moved = moved.checked_add(old.wrapping_sub(new) as i64)?;
                *distance = i32::try_from(moved).ok()?.to_le_bytes();
            }
        }
        Some(&to[..end])
    }
}

/// `None` if the instruction may need its place, the stack, or more than is known here.
fn place_use(instruction: &[u8]) -> Option<PlaceUse> {
    let (rex, rest) = match instruction {
        [rex @ 0x40..=0x4f, rest @ ..] => (*rex, rest),
        _ => (0, instruction),
    };
    let is_stack = |register: u8, extension: u8| register & 7 == 4 && rex & extension == 0;
    let stays = |modrm: &u8| modrm >= &0xc0 && !is_stack(*modrm, 1);
    let sets = |modrm: &u8| !is_stack(modrm >> 3, 4);
    let is_relative = |modrm: &u8| modrm & 0xc7 == 5 && sets(modrm);
    let nowhere = |fits: bool| fits.then_some(PlaceUse::Nowhere);
    match rest {
        // mov register, number
        [opcode @ 0xb8..=0xbf, ..] => nowhere(!is_stack(*opcode, 1)),
        [0xc7, modrm, ..] | [0x83, modrm, ..] => nowhere(stays(modrm)),
        [0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x39 | 0x85 | 0x89, modrm] => {
            nowhere(stays(modrm) && sets(modrm))
        }
        // mov, movslq, lea; movzx and movsx
        [0x8b | 0x63 | 0x8d, modrm, ..] | [0x0f, 0xb6 | 0xb7 | 0xbe | 0xbf, modrm, ..]
            if is_relative(modrm) =>
        {
            Some(PlaceUse::Distance)
        }
        [0x8b | 0x63, modrm] | [0x0f, 0xb6 | 0xb7 | 0xbe | 0xbf, modrm] => {
            nowhere(stays(modrm) && sets(modrm))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mov eax, [rip + 0x1234]`
    const LOAD: [u8; 6] = [0x8b, 0x05, 0x34, 0x12, 0, 0];

    #[test]
    fn runs_begin_with_room_for_a_jump_and_end_at_the_call() {
        let fits = |code: &[u8]| Run::new(code).is_some();
        assert!(fits(&LOAD));
        assert!(fits(&[&LOAD[..], &[0x48, 0x89, 0xf7]].concat()), "mov rdi, rsi");
        assert!(fits(&[0xbf, 1, 0, 0, 0, 0x31, 0xf6]), "mov edi, 1; xor esi, esi");
        assert!(fits(&[0x48, 0x8d, 0x35, 1, 0, 0, 0]), "lea rsi, [rip + 1]");
        assert!(!fits(&[0x48, 0x89, 0xf7, 0x48, 0x89, 0xf7]), "no room");
        assert!(!fits(&LOAD[..5]), "half an instruction");
        assert!(!fits(&[&LOAD[..], &[0x57]].concat()), "push rdi");
        assert!(!fits(&[0xe8, 0, 0, 0, 0]), "a call");
        assert!(!fits(&[0x0f, 0x1f, 0x44, 0, 0]), "a nop, which may be a function's front");
    }

    #[test]
    fn what_needs_the_stack_or_may_fault_is_not_moved() {
        let fits = |code: &[u8]| Run::new(&[&LOAD[..], code].concat()).is_some();
        assert!(!fits(&[0x48, 0x89, 0xe7]), "mov rdi, rsp");
        assert!(!fits(&[0x48, 0x89, 0xfc]), "mov rsp, rdi");
        assert!(!fits(&[0x48, 0x8b, 0x7c, 0x24, 8]), "mov rdi, [rsp + 8]");
        assert!(!fits(&[0x8b, 0x3e]), "mov edi, [rsi]");
        assert!(!fits(&[0x64, 0x8b, 0x3d, 0, 0, 0, 0]), "mov edi, fs:[rip]");
        assert!(fits(&[0x49, 0x89, 0xfc]), "mov r12, rdi");
        assert!(fits(&[0x4c, 0x89, 0xe7]), "mov rdi, r12");
    }

    #[test]
    fn distances_are_from_the_new_place() {
        let code = [&LOAD[..], &[0x48, 0x8d, 0x3d, 0xff, 0xff, 0xff, 0xff]].concat();
        let run = Run::new(&code).expect("a load and an address");
        let mut room = [0; RUN_MAX];
        let moved = run.moved(0x10_0000, 0x20_0000, &mut room).expect("near");
        assert_eq!(moved[..6], [0x8b, 0x05, 0x34, 0x12, 0xf0, 0xff]);
        assert_eq!(moved[6..], [0x48, 0x8d, 0x3d, 0xff, 0xff, 0xef, 0xff]);
        assert!(run.moved(0, 1 << 33, &mut room).is_none());
    }
}
