//! Entry into a nested try, requested by `runahead` where it runs as a command of a try
//! (`runahead_abi::overlay::nested_try`).

use linux_raw_sys::general as k;
use linux_raw_sys::ptrace::SECCOMP_SET_MODE_FILTER;
use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_abi::overlay::nested_try::{ENTER, GET_DIRECTORY, WRITABLE_DEVICES};

use super::call_results::{Call, copy_to_program};
use super::change_filter;
use super::kernel_calls::{OpenFile, syscall};
use super::layer::{self, Layer, nested_prefix_len};
use crate::session;
use crate::sys::{self, Errno, Result, nr};

/// Answers a request of [`runahead_abi::overlay::nested_try::PRCTL`]; `layer` is the top one.
pub(super) fn answer_prctl(layer: Layer, call: &Call) -> Result<u64> {
    let [_, what, at, len, filter, _] = call.args;
    match what {
        GET_DIRECTORY => {
            let directory = layer.directory();
            if (len as usize) < directory.len() {
                return Err(Errno(sys::ERANGE));
            }
            copy_to_program(directory, at)?;
            Ok(directory.len() as u64)
        }
        ENTER => {
            let mut path = [0u8; DIRECTORY_MAX];
            let path = path.get_mut(..len as usize).ok_or(Errno(sys::ENAMETOOLONG))?;
            sys::copy_bytes(at, path)?;
            enter(layer, path, filter).map(|()| 0)
        }
        _ => Err(Errno(sys::EINVAL)),
    }
}

/// Moves this process, and all that it starts, into the try whose directory is `path`.
fn enter(layer: Layer, path: &[u8], filter: u64) -> Result<()> {
    let suffix = path
        .strip_prefix(layer.directory())
        .filter(|suffix| nested_prefix_len(suffix) == Some(suffix.len()));
    let new = layer::push(suffix.ok_or(Errno(sys::EINVAL))?)?;
    // The kernel's restrictions last: they cannot be undone.
    let entered = change_filter::start(new)
        .and_then(|()| confine(new))
        .and_then(|()| refuse_network(new, filter));
    match entered {
        Ok(()) => session::enter_nested_try(&path[Layer::LOWEST.directory().len()..]),
        Err(_) => layer::pop(),
    }
    entered
}

/// `struct landlock_ruleset_attr` and `struct landlock_path_beneath_attr` (landlock(7)).
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    directory: i32,
}

const RULE_PATH_BENEATH: u32 = 1;

/// Makes the kernel deny changes of files outside the layer's directory. Until now it denied them
/// outside the directory of the layer below.
fn confine(layer: Layer) -> Result<()> {
    let rights = &session::get().ok_or(Errno(sys::ESRCH))?.config.overlay.rights;
    let token = layer.token();
    // Without Landlock nothing would keep the nested try from changing the outer one.
    if rights.size == 0 || rights.size > size_of::<Ruleset>() as u64 {
        return Err(Errno(sys::EOPNOTSUPP));
    }
    let ruleset = Ruleset { files: rights.changing, network: 0, scoped: rights.scoped };
    let ruleset =
        syscall!(nr::LANDLOCK_CREATE_RULESET, &raw const ruleset, rights.size, 0, 0, 0, token)?;
    let ruleset = OpenFile(ruleset as sys::Fd);
    let allow = |path: u64, allowed: u64| {
        let place = OpenFile::at(path, k::O_PATH, 0)?;
        let rule = PathBeneath { allowed, directory: place.0 };
        let rule = &raw const rule;
        syscall!(nr::LANDLOCK_ADD_RULE, ruleset.0, RULE_PATH_BENEATH, rule, 0, 0, token)
    };
    let mut path = [0u8; DIRECTORY_MAX + 1];
    let directory = layer.directory();
    path[..directory.len()].copy_from_slice(directory);
    allow(path.as_ptr() as u64, rights.changing)?;
    for device in WRITABLE_DEVICES {
        let mut path = [0u8; 32];
        path[..device.len()].copy_from_slice(device.as_bytes());
        match allow(path.as_ptr() as u64, rights.writing) {
            Ok(_) | Err(Errno(sys::ENOENT)) => {}
            Err(errno) => return Err(errno),
        }
    }
    syscall!(nr::LANDLOCK_RESTRICT_SELF, ruleset.0, 0, 0, 0, 0, token).map(drop)
}

/// Installs the seccomp filter at an address (`struct sock_fprog`), which denies the layer the
/// network; 0: none.
fn refuse_network(layer: Layer, filter: u64) -> Result<()> {
    if filter == 0 {
        return Ok(());
    }
    change_filter::filter(layer).refuse_network();
    syscall!(nr::SECCOMP, SECCOMP_SET_MODE_FILTER, 0, filter).map(drop)
}
