//! The sandbox: Landlock for what a path can reach, seccomp for everything else.
//!
//! The supervisor builds both programs (its `shadow_sandbox`), where libraries can be used. They
//! are only installed here, and cannot be removed.

use linux_raw_sys::general as k;
use linux_raw_sys::ptrace::SECCOMP_SET_MODE_FILTER;
use runahead_abi::agent_config::{FILTER_MAX, SHARED_END, SHARED_START};
use runahead_abi::{AgentConfig, Shared};

use crate::sys::{self, Errno, nr};

/// `struct landlock_ruleset_attr` (landlock(7)).
#[repr(C)]
struct LandlockRuleset {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// `struct sock_fprog` (seccomp(2)).
#[repr(C)]
struct FilterProgram {
    len: u16,
    filter: *const u64,
}

/// Denies this process every effect. The caller has set `no_new_privs`.
pub(super) fn restrict(config: &AgentConfig) -> sys::Result<()> {
    let rules = LandlockRuleset {
        fs: config.landlock_fs,
        net: config.landlock_net,
        scoped: config.landlock_scoped,
    };
    let args = [&raw const rules as u64, config.landlock_size, 0, 0, 0, 0];
    // SAFETY: landlock_create_ruleset(2) reads `landlock_size` bytes, at most those of `rules`,
    // as the supervisor asserted.
    let ruleset = sys::check(unsafe { sys::raw(nr::LANDLOCK_CREATE_RULESET, args) })?;
    // SAFETY: restricts this process only.
    sys::check(unsafe { sys::raw(nr::LANDLOCK_RESTRICT_SELF, [ruleset, 0, 0, 0, 0, 0]) })?;
    sys::close(ruleset as sys::Fd)?;
    install_filter(&config.filter, config.filter_len)
}

/// Denies a runner the calls that only its template may make.
pub(super) fn restrict_runner(config: &AgentConfig) -> sys::Result<()> {
    install_filter(&config.runner_filter, config.runner_filter_len)
}

fn install_filter(filter: &[u64], len: u32) -> sys::Result<()> {
    if len == 0 || len as usize > filter.len() {
        return Err(Errno(sys::EINVAL));
    }
    let filter = with_shared_addresses(filter)?;
    let program = FilterProgram { len: len as u16, filter: filter.as_ptr() };
    let args = [SECCOMP_SET_MODE_FILTER.into(), 0, &raw const program as u64, 0, 0, 0];
    // SAFETY: seccomp(2) reads `len` instructions, which are there.
    sys::check(unsafe { sys::raw(nr::SECCOMP, args) }).map(|_| ())
}

/// Returns the filter with the addresses of the shared memory in place of their placeholders.
fn with_shared_addresses(filter: &[u64]) -> sys::Result<[u64; FILTER_MAX]> {
    let shared = crate::session::get().ok_or(Errno(sys::EINVAL))?.shared();
    let start = core::ptr::from_ref(shared) as u64;
    let end = start + size_of::<Shared>() as u64;
    let mut program = [0; FILTER_MAX];
    for (slot, &instruction) in program.iter_mut().zip(filter) {
        // struct sock_filter: the value is the last four of its eight bytes.
        let value = (instruction >> 32) as u32;
        let real =
            [(SHARED_START, start), (SHARED_END, end)].into_iter().find_map(
                |(name, at)| match value {
                    v if v == (name >> 32) as u32 => Some((at >> 32) as u32),
                    v if v == name as u32 => Some(at as u32),
                    _ => None,
                },
            );
        *slot = u64::from(real.unwrap_or(value)) << 32 | u64::from(instruction as u32);
    }
    Ok(program)
}

const _: () = assert!(size_of::<FilterProgram>() == 16 && k::SIGSYS == 31);
