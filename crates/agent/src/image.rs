//! The injected image: entry point, and the C functions that rustc expects everywhere.
//!
//! The supervisor copies this program into a target that is stopped at exec, relocates it, and
//! runs `_start` with the address of an [`AgentConfig`] in `rdi`. `_start` ends at a breakpoint,
//! with 0 or a negative errno in `rax`; the supervisor then gives the target back its registers.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;
use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::{ABI_VERSION, AgentConfig, Shared};
use runahead_agent::session::{self, Session};
use runahead_agent::{plane, shadow, sys, target};

global_asm!(
    ".pushsection .text.runahead_start, \"ax\", @progbits",
    ".globl _start",
    "_start:",
    "and rsp, -16",
    "call {start}",
    "int3",
    ".popsection",
    start = sym start,
);

extern "C" fn start(config: *const AgentConfig) -> i64 {
    // SAFETY: the supervisor has just written it, and this is the only thread.
    match init(unsafe { &*config }) {
        Ok(()) => 0,
        Err(errno) => sys::fail(errno.0),
    }
}

fn init(config: &AgentConfig) -> sys::Result<()> {
    if config.version != ABI_VERSION {
        return Err(sys::Errno(sys::EPROTO));
    }
    protect(config)?;
    let shared = sys::map_shared(config.shared_fd, size_of::<Shared>())?;
    sys::close(config.shared_fd)?;
    // SAFETY: a fresh mapping of a file of this size, never unmapped; all of it is atomics.
    let shared = unsafe { &*(shared as *const Shared) };
    if shared.control.version.load(Relaxed) != ABI_VERSION {
        return Err(sys::Errno(sys::EPROTO));
    }
    let session = Session { shared, config: *config, target_pid: sys::getpid() };
    // SAFETY: the program has not started; nothing has called `get` yet.
    unsafe { session::set(session) };
    plane::wipe_on_fork()?;
    if config.has_fsgsbase != 0 {
        plane::patch::enable();
    }
    target::start();
    plane::arm(config.text, config.text_len)
}

/// Makes our text read-only, and everything else not executable.
fn protect(config: &AgentConfig) -> sys::Result<()> {
    use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
    let text_end = config.text + config.text_len;
    let image_end = config.image + config.image_len;
    // SAFETY: our own image, with the rights that its linker meant for it.
    unsafe {
        sys::protect(config.text, config.text_len, PROT_READ | PROT_EXEC)?;
        sys::protect(text_end, image_end - text_end, PROT_READ | PROT_WRITE)?;
        if config.text > config.image {
            sys::protect(config.image, config.text - config.image, PROT_READ | PROT_WRITE)?;
        }
    }
    Ok(())
}

/// A bug of ours: a shadow ends, a target goes on without us.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    if shadow::is_shadow() {
        sys::exit(1);
    }
    // SAFETY: after the start, agent code runs only inside dispatches; a bug before them shows at
    // injection, where the supervisor sees it.
    unsafe { plane::fail_open() }
}

/// memcpy(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's ranges, which do not overlap.
    unsafe {
        asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len => _)
    };
    to
}

/// memmove(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: copying upwards reads every byte before it is overwritten.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller's ranges, downwards; the direction flag is put back.
    unsafe {
        asm!(
            "std", "rep movsb", "cld",
            inout("rdi") to.add(len).wrapping_sub(1) => _,
            inout("rsi") from.add(len).wrapping_sub(1) => _,
            inout("rcx") len => _,
        );
    }
    to
}

/// memset(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller's range.
    unsafe { asm!("rep stosb", inout("rdi") to => _, in("al") byte as u8, inout("rcx") len => _) };
    to
}

/// memcmp(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: within the caller's ranges.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// bcmp(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's ranges.
    unsafe { memcmp(a, b, len) }
}

/// Named by the unwind tables of the precompiled core library; nothing here unwinds.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
