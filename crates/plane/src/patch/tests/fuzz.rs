//! Random functions run as they are and patched, and have to do the same.

use core::sync::atomic::Ordering::*;

use super::super::{PAGE, State, another_thread, patch};
use super::generate::{self, Generated, NUMBERS};
use super::guest_code::{self, Registers};
use super::std;
use super::{ChildReport, Random, in_child, seed, shared};
use crate::arch::planted_mistakes;
use crate::sys::{self, nr};
use linux_raw_sys::general as k;
use std::prelude::rust_2024::{String, Vec};
use std::{boxed::Box, eprintln};

/// Code of two pages between two that are not there, then data and stack.
const CODE: u64 = 0x2000_1000;
const CODE_BYTES: u64 = 2 * PAGE;
const DATA: u64 = 0x2001_0000;
const STACK_TOP: u64 = DATA + 2 * PAGE;
const CASES: u64 = 300;
const INPUTS: usize = 4;

fn map(at: u64, len: u64, protection: u32) {
    let flags = k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_FIXED;
    // SAFETY: addresses that nothing else of a test process has.
    let got =
        unsafe { sys::raw(nr::MMAP, [at, len, protection.into(), flags.into(), u64::MAX, 0]) };
    assert_eq!(got, at as i64);
}

fn memory<'a>(at: u64, len: u64) -> &'a mut [u8] {
    // SAFETY: mapped by this process, in which nothing runs beside us.
    unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len as usize) }
}

fn place(random: &mut Random) -> u64 {
    map(CODE, CODE_BYTES, k::PROT_READ | k::PROT_WRITE);
    let room = CODE_BYTES as usize - 1200;
    let start = match random.below(4) {
        0 => 0,
        1 => PAGE as usize - random.below(400),
        _ => random.below(room),
    };
    let Generated { code, entry } = generate::function(random, start);
    // At the end of the last page there is nothing behind it.
    let start = if start + 1200 > room && random.one_in(2) {
        (CODE_BYTES as usize - code.len()) & !63 | start & 63
    } else {
        start
    };
    let start = if start + code.len() > CODE_BYTES as usize { start & 63 } else { start };
    memory(CODE, CODE_BYTES)[start..start + code.len()].copy_from_slice(&code);
    // SAFETY: pages of our own.
    unsafe { sys::protect(CODE, CODE_BYTES, k::PROT_READ | k::PROT_EXEC) }.unwrap();
    CODE + (start + entry) as u64
}

struct Outcome {
    registers: Registers,
    data: Vec<u8>,
    calls: Vec<[u64; 7]>,
}

fn run(input: Registers, data: &[u8], code: u64) -> Outcome {
    memory(DATA, 2 * PAGE).fill(0x5a);
    memory(DATA, PAGE).copy_from_slice(data);
    let mut registers = input;
    guest_code::log().made = 0;
    // SAFETY: generated code returns and keeps to its memory.
    unsafe { guest_code::run(&mut registers, code) };
    let log = guest_code::log();
    // Below the red zone, handlers and stubs may write.
    let data = memory(DATA, PAGE + (registers.rsp.clamp(DATA + PAGE, STACK_TOP) - DATA - PAGE));
    let keep = data.len().saturating_sub(128);
    let mut data_kept = data[..PAGE as usize].to_vec();
    data_kept.extend_from_slice(&data[keep.max(PAGE as usize)..]);
    Outcome {
        registers: registers.comparable(),
        data: data_kept,
        calls: log.calls[..log.made].to_vec(),
    }
}

fn inputs(random: &mut Random) -> [(Registers, Vec<u8>); INPUTS] {
    [0; INPUTS].map(|_| {
        let mut registers = Registers::default();
        let all: &mut [u64; 7] = &mut [0; 7];
        all.iter_mut().for_each(|r| *r = random.next() >> random.below(64));
        [
            registers.rax,
            registers.rbx,
            registers.rcx,
            registers.rdx,
            registers.rsi,
            registers.rdi,
        ] = [all[0], all[1], all[2], all[3], all[4], all[5]];
        registers.rbp = all[6];
        registers.high = [0; 8].map(|_| random.next());
        registers.set_number(random.pick(&NUMBERS).into());
        registers.set_data(DATA);
        registers.rsp = STACK_TOP - 64;
        registers.flags = 2 | random.next() & 0x8d5;
        let data = (0..PAGE).map(|_| random.next() as u8).collect();
        (registers, data)
    })
}

fn one_case(random: &mut Random, state: &mut State, report: &'static ChildReport, case: u64) {
    report.case.store(case, SeqCst);
    let code = place(random);
    let inputs = inputs(random);
    guest_code::log().trapped = 0;
    let natively = inputs.each_ref().map(|(registers, data)| run(*registers, data, code));
    let trapped = guest_code::log().trapped.min(64);
    let mut sites = guest_code::log().traps[..trapped].to_vec();
    sites.sort_unstable();
    sites.dedup_by_key(|site| site.0);
    if random.one_in(2) {
        sites.reverse();
    }
    for (site, number) in sites {
        let entered = patch(state, site, number);
        let index = match entered {
            None => 3,
            Some(at) if at < site => 0,
            Some(_) => match memory(site, 1)[0] {
                0x0f => 4,
                0xe9 => 2,
                _ => 1,
            },
        };
        report.shapes[index].fetch_add(1, SeqCst);
    }
    for (i, (registers, data)) in inputs.iter().enumerate() {
        guest_code::log().trapped = 0;
        let patched = run(*registers, data, code);
        let (by_trap, made) = (guest_code::log().trapped as u64, patched.calls.len() as u64);
        report.calls_by_trap.fetch_add(by_trap, SeqCst);
        report.calls_by_stub.fetch_add(made - by_trap, SeqCst);
        let native = &natively[i];
        if patched.calls != native.calls {
            let n = (0..).find(|&n| patched.calls.get(n) != native.calls.get(n)).unwrap_or(0);
            report.differs(1, [code, i as u64, n as u64, made]);
        }
        if patched.registers != native.registers {
            report.differs(2, [code, i as u64, patched.registers.flags, native.registers.flags]);
        }
        if let Some(at) = (0..patched.data.len()).find(|&at| patched.data[at] != native.data[at]) {
            report.differs(3, [code, i as u64, at as u64, patched.data[at].into()]);
        }
    }
}

/// A batch of cases in a child.
fn batch(seed: u64, report: &'static ChildReport, prepare: impl Fn()) -> Result<(), String> {
    in_child(report, 10, |report| {
        prepare();
        map(DATA, 2 * PAGE, k::PROT_READ | k::PROT_WRITE);
        let mut random = Random(seed);
        if random.one_in(2) {
            another_thread();
        }
        let mut state = Box::new(State::new(guest_code::entry));
        guest_code::trap_calls_below(CODE + CODE_BYTES);
        for case in 0..CASES {
            one_case(&mut random, &mut state, report, case);
        }
    })
}

#[test]
fn patched_code_does_what_it_did() {
    let (seed, report) = (seed(), shared());
    for n in 0..40 {
        if let Err(error) = batch(seed.wrapping_add(n), report, || ()) {
            panic!("batch {n}: {error}; repeat with RUNAHEAD_SEED={seed}");
        }
    }
    let [number, padding, compare, not, run] = report.shapes.each_ref().map(|n| n.load(SeqCst));
    let (stub, trap) = (report.calls_by_stub.load(SeqCst), report.calls_by_trap.load(SeqCst));
    eprintln!(
        "patched: {number} number before, {padding} by padding, {compare} compare after, {run} run before; {not} not. \
         Calls: {stub} by stubs, {trap} by traps"
    );
    assert!(number > 500 && padding > 500 && compare > 50 && not > 500, "shapes are missing");
    assert!(run > 500, "shapes are missing");
    assert!(stub > 1000 && trap > 1000, "calls are missing");
}

/// Asserts that cases go wrong with a mistake planted in the patcher.
fn is_found(mistake: u8) {
    let (seed, report) = (seed(), shared());
    let found = (0..40).find_map(|n| {
        batch(seed.wrapping_add(n), report, || planted_mistakes::plant(mistake))
            .err()
            .map(|e| (n, e))
    });
    let Some((n, error)) = found else { panic!("mistake {mistake} was not found") };
    eprintln!("found in batch {n}: {error}");
}

#[test]
fn a_decoder_that_sees_returns_in_operands_is_found() {
    is_found(planted_mistakes::RETURN_IN_OPERAND);
}

#[test]
fn padding_that_others_jump_to_is_found() {
    is_found(planted_mistakes::NOBODY_JUMPS);
}

#[test]
fn a_number_that_is_stored_is_found() {
    is_found(planted_mistakes::ANY_NUMBER);
}

#[test]
fn flags_that_are_lost_are_found() {
    is_found(planted_mistakes::FLAGS_ARE_FREE);
}
