//! Threads run through sites while these are patched, and back, and patched again.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use linux_raw_sys::general as k;

use super::super::super::kernel_signals;
use super::super::{PAGE, State, another_thread, code_writer, patch};
use super::std;
use super::{ChildReport, in_child, shared};
use crate::arch;
use crate::sys::{self, nr};
use std::time::{Duration, Instant};
use std::vec::Vec;
use std::{boxed::Box, eprintln, thread};

/// `fn(nr, a, b, c) -> result`, like the C library's syscall(3), on a page of its own.
type Caller = extern "C" fn(u64, u64, u64, u64) -> i64;
/// `mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; nop; syscall; cmp rax, -4095; jae +0;
/// ret`
const BY_PADDING: &[u8] = &[
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x90, 0x0f, 0x05, 0x48,
    0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x00, 0xc3,
];
/// `mov rdi, rsi; nop; mov eax, 39; syscall; ret`
const NUMBER_BEFORE: &[u8] = &[0x48, 0x89, 0xf7, 0x90, 0x90, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];

/// `mov rax, rdi; push rsi; pop rsi; mov r10d, 7; mov rdi, rsi; syscall; ret`
const RUN_BEFORE: &[u8] =
    &[0x48, 0x89, 0xf8, 0x56, 0x5e, 0x41, 0xba, 7, 0, 0, 0, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3];

/// Number of the call at a toggled site: getpid(2), which both shapes can make.
const NUMBER: u64 = nr::GETPID;

static BY_STUB: AtomicU64 = AtomicU64::new(0);
static INTERRUPTIONS: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".pushsection .text.runahead_guest, \"ax\", @progbits",
    ".globl runahead_thread_entry",
    "runahead_thread_entry:",
    "lock inc qword ptr [rip + {count}]",
    "syscall",
    "mov rcx, 0x1badbad1",
    "mov r11, 0x2badbad2",
    "ret",
    ".popsection",
    count = sym BY_STUB,
);

// SAFETY: defined above; only its address is taken.
unsafe extern "C" {
    fn runahead_thread_entry();
}

fn entry() -> u64 {
    runahead_thread_entry as *const () as u64
}

/// A page of calls, with `function` at an aligned place, and `behind` it.
fn caller(function: &[u8], behind: &[u8]) -> (Caller, u64) {
    const AT: usize = 512;
    let page = sys::map_anywhere(PAGE as usize).unwrap();
    let mut bytes = [0x90; PAGE as usize];
    bytes[AT..AT + function.len()].copy_from_slice(function);
    let end = AT + function.len();
    bytes[end..end + behind.len()].copy_from_slice(behind);
    // SAFETY: a new page, then made executable; what is at AT follows the calling convention.
    unsafe {
        (page as *mut [u8; PAGE as usize]).write(bytes);
        sys::protect(page, PAGE, k::PROT_READ | k::PROT_EXEC).unwrap();
        let at = page + AT as u64;
        let site = function.windows(2).position(|b| b == [0x0f, 0x05]).unwrap();
        (core::mem::transmute::<u64, Caller>(at), at + site as u64)
    }
}

/// Eight bytes, which end at an aligned address behind [`BY_PADDING`].
const PADDING: &[u8] = &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

extern "C" fn interrupted(_: i32) {
    INTERRUPTIONS.fetch_add(1, Relaxed);
}

/// Interrupts the running thread a thousand times a second of processor time.
fn interrupt() {
    let flags = u64::from(k::SA_RESTORER | k::SA_RESTART);
    let handler = interrupted as extern "C" fn(i32) as usize as u64;
    let action = kernel_signals::Action { handler, flags, restorer: arch::restorer(), mask: 0 };
    kernel_signals::set_action(k::SIGPROF as i32, Some(&action)).unwrap();
    let timer = [0u64, 1000, 0, 1000];
    let args = [k::ITIMER_PROF.into(), timer.as_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: reads a struct itimerval.
    sys::check(unsafe { sys::raw(nr::SETITIMER, args) }).unwrap();
}

/// Three threads call `function` while `toggle` is called with true and false in turn.
fn under_threads(report: &ChildReport, function: Caller, mut toggle: impl FnMut(bool)) {
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    interrupt();
    let process = i64::from(sys::getpid());
    let mut toggled = 0;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    for _ in 0..1000 {
                        let got = function(NUMBER, 1, 2, 3);
                        if got != process {
                            report.differs(1, [got as u64, process as u64, 0, 0]);
                        }
                    }
                    calls.fetch_add(1000, Relaxed);
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) || calls.load(Relaxed) < 2_000_000 {
            toggled += 1;
            toggle(toggled % 2 == 1);
        }
        stop.store(true, Relaxed);
    });
    report.case.store(toggled, SeqCst);
    report.calls_by_stub.store(BY_STUB.load(Relaxed), SeqCst);
    report.calls_by_trap.store(calls.load(Relaxed) - BY_STUB.load(Relaxed), SeqCst);
    report.shapes[0].store(INTERRUPTIONS.load(Relaxed), SeqCst);
}

fn assert_lively(report: &ChildReport) {
    let [changes, stub, native, signals] =
        [&report.case, &report.calls_by_stub, &report.calls_by_trap, &report.shapes[0]]
            .map(|n| n.load(SeqCst));
    eprintln!("{changes} changes; {stub} calls by the stub, {native} not; {signals} signals");
    assert!(changes > 100 && stub > 100_000 && native > 100_000 && signals > 100);
}

fn bytes_at(at: u64) -> [u8; 5] {
    // SAFETY: code of a test's.
    unsafe { (at as *const [u8; 5]).read_volatile() }
}

#[test]
fn threads_run_through_a_site_while_its_call_changes() {
    let report = shared();
    in_child(report, 60, |report| {
        let (function, site) = caller(BY_PADDING, PADDING);
        let mut state = Box::new(State::new(entry));
        another_thread();
        let mut short = [0; 2];
        under_threads(report, function, |on| match (on, short) {
            (true, [0, 0]) => {
                assert_eq!(patch(&mut state, site, NUMBER), Some(site));
                short.copy_from_slice(&bytes_at(site)[..2]);
                assert_eq!(short[0], 0xeb);
            }
            // The long jump is written again as it is: a thread may stand on it at any time.
            (true, _) => {
                let padding = site + 2 + short[1] as u64;
                let jump = bytes_at(padding);
                let padding = padding..padding.next_multiple_of(16);
                code_writer::write_by_padding(site, short, padding, &jump, true).unwrap();
            }
            (false, _) => {
                code_writer::write(site, |at| code_writer::replace_two(at, [0x0f, 0x05])).unwrap();
                code_writer::synchronise();
            }
        });
    })
    .unwrap();
    assert_lively(report);
}

/// Puts `bytes` back in the steps in which they were replaced.
fn replace_back(at: *mut u8, bytes: &[u8; 5]) {
    code_writer::replace_in_steps(at, bytes);
}

#[test]
fn threads_run_through_a_site_while_its_number_changes() {
    let report = shared();
    in_child(report, 60, |report| {
        let (function, site) = caller(NUMBER_BEFORE, &[]);
        let mut state = Box::new(State::new(entry));
        another_thread();
        let (from, old) = (site - 5, bytes_at(site - 5));
        let mut jump = None;
        under_threads(report, function, |on| match (on, jump) {
            (true, None) => {
                assert_eq!(patch(&mut state, site, NUMBER), Some(from));
                jump = Some(bytes_at(from));
            }
            (true, Some(jump)) => {
                code_writer::write(from, |at| code_writer::replace_in_steps(at, &jump)).unwrap();
            }
            (false, _) => code_writer::write(from, |at| replace_back(at, &old)).unwrap(),
        });
    })
    .unwrap();
    assert_lively(report);
}

#[test]
fn threads_run_through_a_site_while_its_run_changes() {
    let report = shared();
    in_child(report, 60, |report| {
        let (function, site) = caller(RUN_BEFORE, &[]);
        let mut state = Box::new(State::new(entry));
        another_thread();
        let (from, old) = (site - 9, bytes_at(site - 9));
        let mut jump = None;
        under_threads(report, function, |on| match (on, jump) {
            (true, None) => {
                assert_eq!(patch(&mut state, site, NUMBER), Some(site));
                jump = Some(bytes_at(from));
                assert_eq!(jump.unwrap()[0], 0xe9);
            }
            (true, Some(jump)) => {
                code_writer::write(from, |at| code_writer::replace_in_steps(at, &jump)).unwrap();
            }
            (false, _) => code_writer::write(from, |at| replace_back(at, &old)).unwrap(),
        });
    })
    .unwrap();
    assert_lively(report);
}

#[test]
fn a_jump_written_byte_by_byte_under_threads_is_found() {
    let report = shared();
    let error = in_child(report, 60, |report| {
        let (function, site) = caller(NUMBER_BEFORE, &[]);
        let mut state = Box::new(State::new(entry));
        // `patch` does not know that there are threads.
        let (from, old) = (site - 5, bytes_at(site - 5));
        assert_eq!(patch(&mut state, site, NUMBER), Some(from));
        let jump = bytes_at(from);
        under_threads(report, function, |on| {
            let bytes = if on { &old } else { &jump };
            code_writer::write(from, |at| {
                // As it comes when the writer is interrupted.
                code_writer::put(at, &bytes[..1]);
                thread::sleep(Duration::from_micros(50));
                code_writer::put(at, bytes);
            })
            .unwrap();
        });
    });
    eprintln!("found: {}", error.expect_err("nothing went wrong"));
}

/// Threads that wait in the kernel come back to a site that has been patched meanwhile.
fn come_back(
    report: &'static ChildReport,
    behind: &'static [u8],
    knows: bool,
) -> Result<(), std::string::String> {
    in_child(report, 20, move |report| {
        let (function, site) = caller(BY_PADDING, behind);
        let mut state = Box::new(State::new(entry));
        let mut pipe = [0i32; 2];
        // SAFETY: writes two descriptors.
        sys::check(unsafe { sys::raw(nr::PIPE, [pipe.as_mut_ptr() as u64, 0, 0, 0, 0, 0]) })
            .unwrap();
        if knows {
            another_thread();
        }
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut byte = 0u8;
                        function(nr::READ, pipe[0] as u64, &raw mut byte as u64, 1)
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(100));
            assert_eq!(patch(&mut state, site, nr::READ), Some(site));
            assert_eq!(function(nr::WRITE, pipe[1] as u64, site, 4), 4);
            for thread in waiting {
                let got = thread.join().unwrap();
                if got != 1 {
                    report.differs(1, [got as u64, 1, 0, 0]);
                }
            }
        });
        report.calls_by_stub.store(BY_STUB.load(Relaxed), SeqCst);
    })
}

#[test]
fn threads_come_back_from_the_kernel_to_a_patched_site() {
    let report = shared();
    come_back(report, PADDING, true).unwrap();
    assert_eq!(
        report.calls_by_stub.load(SeqCst),
        1,
        "the write, and nothing else, went by the stub"
    );
}

#[test]
fn a_jump_over_the_comparison_under_threads_is_found() {
    // Without padding, and without the knowledge that there are threads, it takes the unsafe shape.
    let error = come_back(shared(), &[], false);
    eprintln!("found: {}", error.expect_err("nothing went wrong"));
}

#[test]
fn what_is_not_stored_at_once_is_left_alone_under_threads() {
    let report = shared();
    in_child(report, 20, |_| {
        another_thread();
        let mut moved = [0x90; 64];
        let mut state = Box::new(State::new(entry));
        // All that leave room for a jump behind them.
        for shift in 9..=19usize {
            moved[shift..shift + BY_PADDING.len()].copy_from_slice(BY_PADDING);
            let len = (shift + BY_PADDING.len()).next_multiple_of(16);
            moved[shift + BY_PADDING.len()..].fill(0xcc);
            let (_, site) = caller(&moved[..len], &[]);
            let patched = patch(&mut state, site, NUMBER);
            assert_eq!(patched.is_some(), site % 16 != 15, "site at {site:x}");
        }
    })
    .unwrap();
}

#[test]
fn code_that_the_program_may_write_to_is_left_alone() {
    in_child(shared(), 20, |_| {
        let (_, site) = caller(BY_PADDING, PADDING);
        let all = k::PROT_READ | k::PROT_WRITE | k::PROT_EXEC;
        let mut state = Box::new(State::new(entry));
        // SAFETY: a page of the test's.
        unsafe { sys::protect(site & !(PAGE - 1), PAGE, all) }.unwrap();
        assert_eq!(patch(&mut state, site, NUMBER), None);
        // SAFETY: as above.
        unsafe { sys::protect(site & !(PAGE - 1), PAGE, k::PROT_READ | k::PROT_EXEC) }.unwrap();
        assert_eq!(patch(&mut state, site, NUMBER), Some(site));
    })
    .unwrap();
}
