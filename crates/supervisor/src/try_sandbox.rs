//! Sandbox of a try's command and its descendants: a call that gets past the agent fails, and
//! changes nothing.
//!
//! Landlock denies making, removing and writing files everywhere but below the directory of the try
//! and on a few devices that store nothing. It also denies signals to processes outside. It does
//! not deny changes of permissions, owners, times and attributes: a seccomp filter refuses those
//! that do not come from an agent (`abi/src/overlay/try_calls.rs`). The filter also refuses all
//! calls that have other effects on the system, or that are newer than the table. Of ioctl(2) it
//! allows the commands in [`crate::try_ioctls`]. Both survive fork
//! and exec, and exec grants no privileges (`PR_SET_NO_NEW_PRIVS`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use nix::errno::Errno;
use nix::libc;
use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_abi::overlay::nested_try::{
    ENTER, GET_DIRECTORY, LandlockRights, PRCTL, WRITABLE_DEVICES,
};
use runahead_abi::overlay::try_calls::{CALLS, Class};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::network_refusal::{give_up_administration, refused_sockets};
use crate::shadow_sandbox::landlock_version;
use crate::try_ioctls::ALLOWED;

/// Flags of clone(2) that make namespaces (linux/sched.h). The byte of `CLONE_NEWTIME` is that of a
/// signal there.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Requests of syslog(2) that take or clear the kernel's messages, or set the console's level.
const SYSLOG_CHANGES: [u64; 6] = [2, 4, 5, 6, 7, 8];

/// First version of Landlock that denies truncation (Linux 6.2); with older ones files could be
/// emptied.
const VERSION_NEEDED: i32 = 3;
/// First version that denies signals (Linux 6.12).
const VERSION_OF_SCOPES: i32 = 6;

/// Reason that a command cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Only the agent would keep the command from changing files.
    #[error(
        "this kernel cannot keep a command from changing files (Landlock {found}, version 3 of Linux 6.2 is needed); \
         with --unprotected the agent alone does"
    )]
    NoLandlock {
        /// Version of Landlock that was found.
        found: String,
    },
    /// Landlock's rules cannot be made.
    #[error("Landlock's rules cannot be made: {0}")]
    Ruleset(#[from] landlock::RulesetError),
    /// A directory does not exist, or cannot be opened.
    #[error("{path}: {error}", path = path.display())]
    Path {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the kernel.
        error: landlock::PathFdError,
    },
    /// The filter cannot be made.
    #[error("the filter of system calls cannot be made: {0}")]
    Filter(#[from] seccompiler::BackendError),
}

/// Effects that a command is allowed beside changes in the try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryPermissions {
    /// Sockets of networks, and of processes outside the try.
    pub network: bool,
    /// True if the command may run where Landlock is missing.
    pub unprotected: bool,
}

/// Sandbox of a try's command.
#[derive(Debug)]
pub struct Confinement {
    ruleset: Option<OwnedFd>,
    filters: Vec<BpfProgram>,
    /// True if networks are refused.
    refuses_network: bool,
    /// Directory of the try, if the agent of the outer try enforces it.
    nested_directory: Option<PathBuf>,
    /// Descriptions of what this kernel does not deny.
    pub not_denied: Vec<String>,
    /// Rights that are denied to commands of tries inside this one.
    pub nested_rights: LandlockRights,
}

impl Confinement {
    /// Makes the sandbox that allows changes below `overlay_directory` only. Agents pass `token`
    /// with their calls.
    pub fn new(
        overlay_directory: &Path,
        token: u64,
        allowed: TryPermissions,
    ) -> Result<Self, ConfineError> {
        let (mut missing, mut inside) = (Vec::new(), LandlockRights::NONE);
        let ruleset = match landlock_version() {
            Ok(version) if version >= VERSION_NEEDED => {
                if version < VERSION_OF_SCOPES {
                    missing.push("signals to processes outside are not denied".to_owned());
                }
                inside = rights(version);
                ruleset(overlay_directory)?
            }
            found if allowed.unprotected => {
                let found = found.map_or_else(|e| e.to_string(), |version| version.to_string());
                missing.push(format!(
                    "nothing but the agent keeps files from being changed ({found})"
                ));
                None
            }
            found => {
                let found = found.map_or_else(|e| e.to_string(), |v| format!("version {v}"));
                return Err(ConfineError::NoLandlock { found });
            }
        };
        let filters = filters(token, allowed.network)?;
        Ok(Confinement {
            ruleset,
            filters,
            refuses_network: !allowed.network,
            nested_directory: None,
            not_denied: missing,
            nested_rights: inside,
        })
    }

    /// Makes the sandbox for a try inside the try of this process. The agent in this process has
    /// the kernel deny the command all changes but below `overlay_directory`, and shows it the
    /// inner try's view.
    pub fn nested(overlay_directory: &Path, network: bool) -> Result<Self, ConfineError> {
        let filters = if network { Vec::new() } else { vec![no_network_filter()?] };
        Ok(Confinement {
            filters,
            refuses_network: !network,
            nested_directory: Some(overlay_directory.to_owned()),
            ..Confinement::unconfined()
        })
    }

    /// True if this is the sandbox of a try inside a try: there is an agent already.
    pub(crate) fn is_nested(&self) -> bool {
        self.nested_directory.is_some()
    }

    /// Makes no sandbox at all.
    #[must_use]
    pub fn unconfined() -> Self {
        Confinement {
            ruleset: None,
            filters: Vec::new(),
            refuses_network: false,
            nested_directory: None,
            not_denied: Vec::new(),
            nested_rights: LandlockRights::NONE,
        }
    }

    /// Confines the calling thread and its descendants. Called between fork and exec, so it
    /// allocates nothing.
    pub fn enter(&self) -> Result<(), Errno> {
        if self.refuses_network {
            give_up_administration().map_err(|error| Errno::from_raw(error.raw_os_error()))?;
        }
        if let Some(overlay_directory) = &self.nested_directory {
            return enter_nested(overlay_directory, self.filters.first());
        }
        // SAFETY: sets a flag of this process.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        if let Some(ruleset) = &self.ruleset {
            let number = ruleset.as_raw_fd();
            // SAFETY: passes a descriptor and no flags.
            Errno::result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, number, 0) })?;
        }
        let filter = |filter: &BpfProgram| seccompiler::apply_filter(filter);
        // seccompiler's error wraps the kernel's number.
        self.filters.iter().try_for_each(filter).map_err(|_| Errno::last())
    }
}

/// Layout of `struct sock_fprog` (linux/filter.h).
#[repr(C)]
struct SockFprog {
    len: u16,
    filter: *const seccompiler::sock_filter,
}

/// Confines this process as [`Confinement::nested`] describes.
fn enter_nested(overlay_directory: &Path, filter: Option<&BpfProgram>) -> Result<(), Errno> {
    let path = overlay_directory.as_os_str().as_bytes();
    let program =
        filter.map(|filter| SockFprog { len: filter.len() as u16, filter: filter.as_ptr() });
    let program = program.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: passes a path, its length, and a filter that lives through the call to the agent; the
    // kernel does not know the call.
    let entered = unsafe { libc::prctl(PRCTL as i32, ENTER, path.as_ptr(), path.len(), program) };
    Errno::result(entered).map(drop)
}

/// Directory of the try that this process runs in, if it runs in one.
pub fn enclosing_try() -> Option<PathBuf> {
    let mut path = [0u8; DIRECTORY_MAX];
    // SAFETY: passes a buffer and its length to the agent; the kernel does not know the call.
    let len = unsafe { libc::prctl(PRCTL as i32, GET_DIRECTORY, path.as_mut_ptr(), path.len(), 0) };
    let path = path.get(..usize::try_from(len).ok().filter(|&len| len > 0)?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Rights that change files, and those of them that devices may have, as far as this version of
/// Landlock knows them.
fn changing(version: ABI) -> (BitFlags<AccessFs>, BitFlags<AccessFs>) {
    let reading = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let of_devices = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let all = AccessFs::from_all(version);
    (all & !reading, all & of_devices)
}

/// Rights that Landlock denies to commands of tries inside this one.
fn rights(version: i32) -> LandlockRights {
    let known = match version {
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    };
    let (changing, writing) = changing(known);
    let scoped =
        if version >= VERSION_OF_SCOPES { BitFlags::from(Scope::Signal).bits() } else { 0 };
    let size = 8 * (1 + u64::from(version >= 4) + u64::from(version >= VERSION_OF_SCOPES));
    LandlockRights { size, changing: changing.bits(), writing: writing.bits(), scoped }
}

fn ruleset(overlay_directory: &Path) -> Result<Option<OwnedFd>, ConfineError> {
    let (changing, of_files) = changing(ABI::V6);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(changing)?
        .scope(Scope::Signal)?
        .create()?;
    let open = |path: &Path| {
        PathFd::new(path).map_err(|error| ConfineError::Path { path: path.to_owned(), error })
    };
    ruleset = ruleset.add_rule(PathBeneath::new(open(overlay_directory)?, changing))?;
    for device in WRITABLE_DEVICES {
        if let Ok(device) = open(Path::new(device)) {
            ruleset = ruleset.add_rule(PathBeneath::new(device, of_files))?;
        }
    }
    Ok(ruleset.into())
}

fn condition(argument: u8, len: Len, op: Op, value: u64) -> Result<SeccompRule, ConfineError> {
    Ok(SeccompRule::new(vec![SeccompCondition::new(argument, len, op, value)?])?)
}

fn compile_filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, ConfineError> {
    Ok(SeccompFilter::new(rules, otherwise, listed, TargetArch::x86_64)?.try_into()?)
}

/// Builds the filters, each of which refuses with another errno.
fn filters(token: u64, network: bool) -> Result<Vec<BpfProgram>, ConfineError> {
    let refused = |errno: i32| SeccompAction::Errno(errno as u32);
    let of_class = |wanted: fn(Class) -> bool| {
        let calls = CALLS.iter().filter(move |call| wanted(call.2));
        calls.map(|call| (i64::from(call.0), Vec::new())).collect::<BTreeMap<_, _>>()
    };
    // Calls that the table knows and does not refuse with ENOSYS.
    let mut known = of_class(|class| class != Class::Refused(libc::ENOSYS as u16));
    for (number, ..) in CALLS.iter().filter(|call| call.2 == Class::AgentOnly) {
        known.insert((*number).into(), vec![condition(5, Len::Qword, Op::Eq, token)?]);
    }
    let mut effects = of_class(|class| class == Class::Refused(libc::EPERM as u16));
    for (number, _, class) in CALLS {
        if *class == Class::WithToken {
            effects.insert((*number).into(), vec![condition(5, Len::Qword, Op::Ne, token)?]);
        }
    }
    let equal = |value: &u64| condition(0, Len::Dword, Op::Eq, *value);
    let of_syslog: Result<Vec<_>, _> = SYSLOG_CHANGES.iter().map(equal).collect();
    effects.insert(libc::SYS_syslog, of_syslog?);
    let has = |flag: &i32| {
        let flag = u64::from(*flag as u32);
        condition(0, Len::Qword, Op::MaskedEq(flag), flag)
    };
    let of_clone: Result<Vec<_>, _> = NAMESPACES.iter().map(has).collect();
    effects.insert(libc::SYS_clone, of_clone?);
    let differs = |command: &u32| SeccompCondition::new(1, Len::Dword, Op::Ne, (*command).into());
    let of_ioctl: Result<Vec<_>, _> = ALLOWED.iter().map(differs).collect();
    let unknown = [(libc::SYS_ioctl, vec![SeccompRule::new(of_ioctl?)?])].into();
    let elsewhere = of_class(|class| class == Class::Refused(libc::EOPNOTSUPP as u16));
    let allow = SeccompAction::Allow;
    let mut all = vec![
        compile_filter(known, refused(libc::ENOSYS), allow.clone())?,
        compile_filter(effects, allow.clone(), refused(libc::EPERM))?,
        compile_filter(elsewhere, allow.clone(), refused(libc::EOPNOTSUPP))?,
        compile_filter(unknown, allow, refused(libc::ENOTTY))?,
    ];
    if !network {
        all.push(no_network_filter()?);
    }
    Ok(all)
}

/// Builds the filter that refuses sockets of networks.
pub fn no_network_filter() -> Result<BpfProgram, ConfineError> {
    let rules = [(libc::SYS_socket, refused_sockets()?)].into();
    compile_filter(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EACCES as u32))
}
