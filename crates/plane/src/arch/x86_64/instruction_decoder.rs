//! Decoder of an instruction's length, of where it may go, and of its effect on the flags.
//!
//! It knows what compilers put around system calls. What it does not know it says that it does not
//! know; what no 64-bit program can execute it calls impossible.

/// Decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    pub len: usize,
    pub flow: Flow,
    pub flags: Flags,
    /// The instruction does nothing, or stops the program: what stands between functions and before
    /// loops.
    pub is_filler: bool,
}

/// Next place of execution. Distances count from the instruction's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// Behind the instruction.
    On,
    /// At this distance, and perhaps behind the instruction: a condition, or a call.
    Perhaps(i32),
    /// At this distance.
    Jump(i32),
    /// Never continues behind the instruction.
    Leaves,
}

/// Effect on the arithmetic flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flags {
    /// The flags stay, or some do.
    Unchanged,
    /// The flags' old value matters.
    Read,
    /// Sets every flag anew.
    New,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Undecoded {
    /// Cannot be executed, so it is no instruction of a program that works.
    Impossible,
    /// Perhaps an instruction; perhaps more bytes than there are here.
    Unknown,
}

use Undecoded::{Impossible, Unknown};

/// Bytes that an instruction can have.
pub(super) const LONGEST: usize = 15;

/// Operands behind an opcode.
#[derive(Clone, Copy)]
enum Tail {
    Nothing,
    /// A ModRM byte and what belongs to it.
    Operand,
    /// A ModRM byte, what belongs to it, and so many bytes.
    OperandAnd(usize),
    /// Immediate of that many bytes.
    Bytes(usize),
}

struct Prefixes {
    /// Operands of 16 bits.
    short: bool,
    wide: bool,
    repeat: bool,
}

/// Decodes the instruction at the front of `code`.
pub(super) fn decode(code: &[u8]) -> Result<Instruction, Undecoded> {
    let byte = |at: usize| code.get(at).copied().ok_or(Unknown);
    let mut prefixes = Prefixes { short: false, wide: false, repeat: false };
    let mut at = 0;
    loop {
        match byte(at)? {
            0x66 => prefixes.short = true,
            0xf2 | 0xf3 => prefixes.repeat = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
            _ => break,
        }
        at += 1;
    }
    if let rex @ 0x40..=0x4f = byte(at)? {
        prefixes.wide = rex & 8 != 0;
        at += 1;
    }
    let opcode = byte(at)?;
    at += 1;
    let (tail, flow, flags, is_filler) = if opcode == 0x0f {
        let opcode = byte(at)?;
        at += 1;
        two_bytes(opcode, &prefixes, code.get(at).copied())?
    } else {
        one_byte(opcode, &prefixes, code.get(at).copied())?
    };
    let len = at
        + match tail {
            Tail::Nothing => 0,
            Tail::Bytes(bytes) => bytes,
            Tail::Operand => operand(code, at)?,
            Tail::OperandAnd(bytes) => operand(code, at)? + bytes,
        };
    if len > LONGEST {
        return Err(Impossible);
    }
    let Some(whole) = code.get(..len) else { return Err(Unknown) };
    let flow = match (flow, tail) {
        (Flow::On | Flow::Leaves, _) => flow,
        // A near jump of 16-bit operands: processors differ.
        _ if prefixes.short => return Err(Unknown),
        (_, Tail::Bytes(1)) => moved(flow, (whole[len - 1] as i8).into()),
        _ => moved(
            flow,
            i32::from_le_bytes([code[len - 4], code[len - 3], code[len - 2], code[len - 1]]),
        ),
    };
    Ok(Instruction { len, flow, flags, is_filler })
}

fn moved(flow: Flow, distance: i32) -> Flow {
    if matches!(flow, Flow::Jump(_)) { Flow::Jump(distance) } else { Flow::Perhaps(distance) }
}

/// Bytes of the ModRM byte at `at`, and of what belongs to it.
fn operand(code: &[u8], at: usize) -> Result<usize, Undecoded> {
    let modrm = *code.get(at).ok_or(Unknown)?;
    let (mode, base) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Ok(1);
    }
    let (index, base) =
        if base == 4 { (1, code.get(at + 1).ok_or(Unknown)? & 7) } else { (0, base) };
    let distance = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (0, _) => 0,
        _ => 1,
    };
    Ok(1 + index + distance)
}

type Decoded = Result<(Tail, Flow, Flags, bool), Undecoded>;

fn plain(tail: Tail) -> Decoded {
    Ok((tail, Flow::On, Flags::Unchanged, false))
}

fn flags(tail: Tail, flags: Flags) -> Decoded {
    Ok((tail, Flow::On, flags, false))
}

/// The eight operations that share an encoding: add, or, adc, sbb, and, sub, xor, cmp.
fn arithmetic(operation: u8) -> Flags {
    if matches!(operation & 7, 2 | 3) { Flags::Read } else { Flags::New }
}

fn one_byte(opcode: u8, prefixes: &Prefixes, next: Option<u8>) -> Decoded {
    use Tail::*;
    let number = if prefixes.short { 2 } else { 4 };
    let group = |next: Option<u8>| next.map(|b| b >> 3 & 7).ok_or(Unknown);
    let of_register = next.is_some_and(|b| b >= 0xc0);
    match opcode {
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f => {
            Err(Impossible)
        }
        0x60 | 0x61 | 0x82 | 0x9a | 0xce | 0xd6 | 0xea => Err(Impossible),
        // A prefix behind REX, which then means nothing: no compiler puts it there.
        0x26 | 0x2e | 0x36 | 0x3e => Err(Unknown),
        0x00..=0x3f => match opcode & 7 {
            0..=3 => flags(Operand, arithmetic(opcode >> 3)),
            4 => flags(Bytes(1), arithmetic(opcode >> 3)),
            _ => flags(Bytes(number), arithmetic(opcode >> 3)),
        },
        0x50..=0x5f => plain(Nothing),
        0x63 => plain(Operand),
        0x68 => plain(Bytes(number)),
        0x69 => plain(OperandAnd(number)),
        0x6a => plain(Bytes(1)),
        0x6b => plain(OperandAnd(1)),
        0x70..=0x7f => Ok((Bytes(1), Flow::Perhaps(0), Flags::Read, false)),
        0x80 | 0x83 => flags(OperandAnd(1), arithmetic(group(next)?)),
        0x81 => flags(OperandAnd(number), arithmetic(group(next)?)),
        0x84 | 0x85 => flags(Operand, Flags::New),
        0x86..=0x8b => plain(Operand),
        0x8d if of_register => Err(Impossible),
        0x8d => plain(Operand),
        0x8f if group(next)? == 0 => plain(Operand),
        0x90 => Ok((Nothing, Flow::On, Flags::Unchanged, !prefixes.repeat && !prefixes.wide)),
        0x91..=0x99 => plain(Nothing),
        0x9c | 0x9f => flags(Nothing, Flags::Read),
        0xa4 | 0xa5 | 0xaa | 0xab => plain(Nothing),
        0xa8 => flags(Bytes(1), Flags::New),
        0xa9 => flags(Bytes(number), Flags::New),
        0xb0..=0xb7 => plain(Bytes(1)),
        0xb8..=0xbf if prefixes.wide => plain(Bytes(8)),
        0xb8..=0xbf => plain(Bytes(number)),
        0xc0 | 0xc1 | 0xd0..=0xd3 => {
            let tail = if opcode < 0xd0 { OperandAnd(1) } else { Operand };
            flags(tail, if matches!(group(next)?, 2 | 3) { Flags::Read } else { Flags::Unchanged })
        }
        0xc2 => Ok((Bytes(2), Flow::Leaves, Flags::Unchanged, false)),
        0xc3 => Ok((Nothing, Flow::Leaves, Flags::Unchanged, false)),
        // With other bits they start transactions, or are nothing.
        0xc6 | 0xc7 if group(next)? != 0 => Err(if of_register { Unknown } else { Impossible }),
        0xc6 => plain(OperandAnd(1)),
        0xc7 => plain(OperandAnd(number)),
        0xc9 => plain(Nothing),
        // A handler of its signal may go on behind it; so with hlt and ud2.
        0xcc => Ok((Nothing, Flow::On, Flags::Unchanged, true)),
        0xe0..=0xe3 => Ok((Bytes(1), Flow::Perhaps(0), Flags::Read, false)),
        0xe8 => Ok((Bytes(4), Flow::Perhaps(0), Flags::Unchanged, false)),
        0xe9 => Ok((Bytes(4), Flow::Jump(0), Flags::Unchanged, false)),
        0xeb => Ok((Bytes(1), Flow::Jump(0), Flags::Unchanged, false)),
        0xf4 => plain(Nothing),
        0xf6 | 0xf7 => match (group(next)?, opcode) {
            (0 | 1, 0xf6) => flags(OperandAnd(1), Flags::New),
            (0 | 1, _) => flags(OperandAnd(number), Flags::New),
            (3, _) => flags(Operand, Flags::New),
            _ => plain(Operand),
        },
        0xfe if group(next)? > 1 => Err(Impossible),
        0xfe => plain(Operand),
        0xff => match group(next)? {
            4 => Ok((Operand, Flow::Leaves, Flags::Unchanged, false)),
            0 | 1 | 2 | 6 => plain(Operand),
            7 => Err(Impossible),
            _ => Err(Unknown),
        },
        _ => Err(Unknown),
    }
}

fn two_bytes(opcode: u8, prefixes: &Prefixes, next: Option<u8>) -> Decoded {
    use Tail::*;
    match opcode {
        0x05 | 0x0b | 0xa2 | 0x31 => plain(Nothing),
        // Hints, among them the landing pads of indirect jumps.
        0x0d | 0x18..=0x1e => plain(Operand),
        0x1f => Ok((Operand, Flow::On, Flags::Unchanged, true)),
        0x2e | 0x2f => flags(Operand, Flags::New),
        0x10..=0x17 | 0x28..=0x2d | 0x51..=0x6f | 0x74..=0x76 | 0x7e | 0x7f => plain(Operand),
        0x40..=0x4f | 0x90..=0x9f => flags(Operand, Flags::Read),
        0x70..=0x73 => plain(OperandAnd(1)),
        0x80..=0x8f => Ok((Bytes(4), Flow::Perhaps(0), Flags::Read, false)),
        0xa3 | 0xa5 | 0xab | 0xad | 0xb3 | 0xbb => plain(Operand),
        0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => plain(OperandAnd(1)),
        0xaf | 0xb0 | 0xb1 | 0xb6 | 0xb7 | 0xbc..=0xc1 => plain(Operand),
        0xae if next.is_some_and(|b| b >= 0xe8) => plain(Operand),
        0xb8 if prefixes.repeat => plain(Operand),
        0xc7 if next.is_some_and(|b| b >> 3 & 7 == 1 && b < 0xc0) => plain(Operand),
        0xc8..=0xcf => plain(Nothing),
        0xd1..=0xfe => plain(Operand),
        _ => Err(Unknown),
    }
}

#[cfg(test)]
#[path = "instruction_decoder_tests.rs"]
mod tests;
