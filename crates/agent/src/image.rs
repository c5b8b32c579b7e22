//! The injected image: entry point, and the C functions that rustc expects everywhere.
//!
//! The supervisor makes a target that is stopped at exec map a private copy of the image
//! (`abi::agent_config`) and run `_start`, with the copy's address in `rdi` and a message for the
//! agent at the top of the stack. `_start` relocates the image and ends at a breakpoint, with 0 or
//! a negative errno in `rax`. The supervisor then restores the target's registers.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::panic::PanicInfo;

use runahead_abi::{ABI_VERSION, AgentConfig};
#[cfg(feature = "fault-injection")]
use runahead_agent::fault_injection::{call_counting, scripted_policy};
use runahead_agent::session::{self, Session};
use runahead_agent::{overlay, shadow, speculation, targets};
use runahead_plane::{self as plane, address_space, sys};

global_asm!(
    ".pushsection .text.runahead_start, \"ax\", @progbits",
    ".globl _start",
    "_start:",
    // The message beside the image: its address, and its length in the upper half of rbp.
    "mov r12, rsp",
    "mov r13, rbp",
    "shr r13, 32",
    "and rsp, -16",
    // Address of the image; its relocations, and how many are left.
    "mov edx, [rdi + {image_at}]",
    "add rdx, rdi",
    "mov esi, [rdi + {relocations_at}]",
    "add rsi, rdi",
    "mov ecx, [rdi + {relocations}]",
    "2: test ecx, ecx",
    "jz 3f",
    "mov eax, [rsi]",
    "mov r8d, [rsi + 4]",
    "add r8, rdx",
    "mov [rdx + rax], r8",
    "add rsi, 8",
    "dec ecx",
    "jmp 2b",
    "3: mov rsi, r12",
    "mov rdx, r13",
    "call {start}",
    "int3",
    ".popsection",
    image_at = const offset_of!(AgentConfig, image_at),
    relocations_at = const offset_of!(AgentConfig, relocations_at),
    relocations = const offset_of!(AgentConfig, relocations),
    start = sym start,
);

extern "C" fn start(config: *const AgentConfig, told: *const u8, len: usize) -> i64 {
    // SAFETY: the supervisor has put so many bytes there.
    let told = unsafe { core::slice::from_raw_parts(told, len) };
    // SAFETY: the supervisor has had it mapped, and this is the only thread.
    match init(unsafe { &*config }, told) {
        Ok(()) => 0,
        Err(errno) => sys::fail(errno.0),
    }
}

fn init(config: &AgentConfig, told: &[u8]) -> sys::Result<()> {
    if config.version != ABI_VERSION {
        return Err(sys::Errno(sys::EPROTO));
    }
    let base = core::ptr::from_ref(config) as u64;
    // Program memory is read by process_vm_readv(2), which some containers forbid. Without it the
    // program's signal masks would be misread.
    sys::copy_in::<u8>(base)?;
    let text =
        plane::AddressRange::of_bytes(base + u64::from(config.text_at), config.text_len.into());
    protect(base, text, config.total_len.into())?;
    address_space::reserve(base)?;
    let session =
        Session::new(*config, plane::AddressRange::of_bytes(base, config.total_len.into()));
    // SAFETY: the program has not started; nothing has called `get` yet.
    unsafe { session::set(session) };
    let fast = config.has_fsgsbase != 0;
    plane::patch::enable(fast);
    let believed = match session::get() {
        Some(session) if speculation::may_speculate(session) => {
            speculation::inherit(session, told)?
        }
        _ => {
            session::enter_nested_try(told);
            None
        }
    };
    plane::start(text, fast, config.pkru_at as u32, believed)?;
    targets::start();
    match session::get() {
        Some(session) => inject_faults(session)
            .and_then(|()| speculation::start(session))
            .and_then(|()| overlay::start(session)),
        None => Ok(()),
    }
}

/// Installs the policies that tests ask for.
#[cfg(feature = "fault-injection")]
fn inject_faults(session: &Session) -> sys::Result<()> {
    call_counting::start(session).and_then(|()| scripted_policy::start(session))
}

/// Does nothing: an installed `runahead` has no policies of tests.
#[cfg(not(feature = "fault-injection"))]
fn inject_faults(_: &Session) -> sys::Result<()> {
    Ok(())
}

/// Makes the text and the constants in front of it read-only, and everything else not executable.
/// Constants share a mapping with the text, as every mapping is copied at a fork.
fn protect(base: u64, text: plane::AddressRange, total: u64) -> sys::Result<()> {
    use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
    let text_end = text.end;
    // SAFETY: our own image, whose linker meant nothing more to be written.
    unsafe {
        sys::protect(base, text_end - base, PROT_READ | PROT_EXEC)?;
        sys::protect(text_end, base + total - text_end, PROT_READ | PROT_WRITE)?;
    }
    Ok(())
}

/// Handles a bug of the agent: a shadow ends, a target goes on natively.
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
// SAFETY: the image is linked without a C library, so that this is the only memcpy; it copies
// the `len` bytes and touches nothing else, as rustc expects.
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
// SAFETY: the only memmove of the image; it copies in the direction in which no byte is overwritten
// before it is read, as rustc expects of it.
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
// SAFETY: the only memset of the image; it sets the bytes and nothing else, as rustc expects.
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
// SAFETY: the only memcmp of the image; bytes are compared without sign, and the first
// difference decides, as rustc expects. (Plain reads might be compiled into a call of itself.)
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
// SAFETY: the only bcmp of the image; rustc asks only whether it is zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's ranges.
    unsafe { memcmp(a, b, len) }
}

/// Named by the unwind tables of the precompiled core library; nothing here unwinds.
// SAFETY: nothing else in the image defines it, and it is never called: panics do not unwind.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
