//! The decoder beside iced-x86, over the code of the programs and libraries that are on the
//! machine.

extern crate std;

use std::collections::BTreeSet;
use std::prelude::rust_2024::{String, Vec};
use std::{env, eprintln, format, fs, path, time};

use iced_x86::{Decoder, DecoderOptions, FlowControl, RflagsBits};

use super::*;

/// Flags that a patched site must keep where code reads them.
const ARITHMETIC: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;
/// Bytes of code that are looked at, unless `RUNAHEAD_FULL` is set.
const SAMPLE_BYTES: usize = 256 << 20;
/// Differences that are shown.
const SHOWN: usize = 20;

/// Instruction at the front of `code` by the other decoder; None if there is none.
fn other(code: &[u8]) -> Option<iced_x86::Instruction> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

fn flow(of: &iced_x86::Instruction) -> Flow {
    let is_direct = of.is_jmp_short_or_near()
        || of.is_jcc_short_or_near()
        || of.is_call_near()
        || of.is_loop()
        || of.is_loopcc()
        || of.is_jcx_short();
    let distance = (of.near_branch_target() as i64 - of.next_ip() as i64) as i32;
    match of.flow_control() {
        FlowControl::UnconditionalBranch if is_direct => Flow::Jump(distance),
        FlowControl::ConditionalBranch | FlowControl::Call if is_direct => Flow::Perhaps(distance),
        FlowControl::IndirectBranch | FlowControl::Return | FlowControl::UnconditionalBranch => {
            Flow::Leaves
        }
        _ => Flow::On,
    }
}

/// Difference between our result and the other decoder's.
fn difference(ours: Result<Instruction, Undecoded>, code: &[u8]) -> Option<String> {
    let theirs = other(code);
    let (ours, theirs) = match (ours, theirs) {
        (Err(Impossible), Some(theirs)) => return Some(format!("possible: {:?}", theirs.code())),
        // What is none for the other is not come to.
        (Err(_), _) | (Ok(_), None) => return None,
        (Ok(ours), Some(theirs)) => (ours, theirs),
    };
    // A system call keeps the flags in r11, where no code looks for them.
    let is_call = theirs.code() == iced_x86::Code::Syscall;
    let reads = !is_call && theirs.rflags_read() & ARITHMETIC != 0;
    let sets = theirs.rflags_modified() & ARITHMETIC == ARITHMETIC;
    let flags_agree = match ours.flags {
        Flags::Read => true,
        Flags::Unchanged => !reads,
        Flags::New => !reads && sets,
    };
    let agree = ours.len == theirs.len() && ours.flow == flow(&theirs) && flags_agree;
    (!agree).then(|| format!("{ours:?}, but {:?} of {} bytes", theirs.code(), theirs.len()))
}

/// The sections of an ELF file for this processor that are code.
fn code(file: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| {
        file.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b)) as usize
    };
    let half = |at: usize| word(at) & 0xffff;
    if !file.starts_with(b"\x7fELF\x02\x01") || half(18) != 62 {
        return Vec::new();
    }
    let (headers, size, count) = (word(40), half(58), half(60));
    const PROGRAM_BITS: usize = 1;
    const EXECUTABLE: usize = 4;
    let headers = (0..count).map(|n| headers + n * size);
    let is_code = |&at: &usize| word(at) >> 32 == PROGRAM_BITS && word(at + 8) & EXECUTABLE != 0;
    let bytes = |at: usize| file.get(word(at + 24)..word(at + 24) + word(at + 32));
    headers.filter(is_code).filter_map(bytes).collect()
}

fn files(below: &path::Path, found: &mut BTreeSet<path::PathBuf>) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => _ = found.insert(entry.path()),
            _ => {}
        }
    }
}

#[test]
fn another_decoder_agrees_about_all_code_on_the_machine() {
    let given = env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
    let now = time::SystemTime::now().duration_since(time::UNIX_EPOCH);
    let seed: u64 = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("repeat with RUNAHEAD_SEED={seed}");
    let mut found = BTreeSet::new();
    for place in ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt"] {
        files(path::Path::new(place), &mut found);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    // splitmix64, as an order.
    found.sort_by_key(|path| {
        path.as_os_str().as_encoded_bytes().iter().fold(seed, |x, &b| {
            let x = (x ^ u64::from(b)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x ^ (x >> 29)
        })
    });
    let full = env::var_os("RUNAHEAD_FULL").is_some();
    let (mut bytes, mut known, mut all, mut differences) = (0, 0u64, 0u64, Vec::new());
    for path in found {
        let Ok(file) = fs::read(&path) else { continue };
        for section in code(&file) {
            let mut at = 0;
            while at < section.len() {
                let rest = &section[at..section.len().min(at + LONGEST)];
                let ours = decode(rest);
                known += u64::from(ours.is_ok());
                all += 1;
                if let Some(what) = difference(ours, rest) {
                    differences.push(format!("{path:?}: {rest:02x?}: {what}"));
                }
                at += other(rest).map_or(1, |it| it.len());
            }
            bytes += section.len();
        }
        if !full && bytes >= SAMPLE_BYTES {
            break;
        }
    }
    eprintln!("{bytes} bytes, {all} instructions, of which we know {known}");
    let shown = &differences[..differences.len().min(SHOWN)];
    assert!(shown.is_empty(), "{} differences:\n{}", differences.len(), shown.join("\n"));
    assert!(known * 10 > all * 8, "of {all} instructions we know {known}");
}

/// The test above would see a length, a flow and flags that are wrong.
#[test]
fn planted_differences_are_found() {
    let cases: [(&[u8], Instruction); 4] = [
        (&[0x89, 0xc8], Instruction { len: 3, ..on(Flags::Unchanged) }),
        (&[0xeb, 0x10], Instruction { len: 2, flow: Flow::Jump(0x11), ..on(Flags::Unchanged) }),
        (&[0x11, 0xc8], Instruction { len: 2, ..on(Flags::New) }),
        (&[0xff, 0xc0], Instruction { len: 2, ..on(Flags::New) }),
    ];
    for (code, wrong) in cases {
        assert!(difference(Ok(wrong), code).is_some(), "{code:02x?}");
        assert_eq!(difference(decode(code), code), None);
    }
    assert!(difference(Err(Impossible), &[0x90]).is_some());
}

fn on(flags: Flags) -> Instruction {
    Instruction { len: 1, flow: Flow::On, flags, is_filler: false }
}
