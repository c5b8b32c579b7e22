//! Dispatch of calls. Calls that name no file are not seen.

use linux_raw_sys::general as k;
use runahead_abi::overlay::flag;
use runahead_abi::overlay::nested_try::PRCTL;
use runahead_abi::overlay::try_calls::SEEN_CALLS;

use super::call_results::{self, Call, CallResult, answer_call, path_buffer, read_path};
use super::kernel_calls::syscall;
use super::layer::{self, Layer};
use super::lower_layer::{self, CallHandler};
use super::namespace_calls::NewEntry;
use super::open_calls::{self, OpenRequest};
use super::path_walk::{self, ENTRY_NAME, FOLLOW, NO_FOLLOW};
use super::stat_calls::{self, PathArgument};
use super::view_entry::{Resolved, ViewEntry};
use super::{
    attribute_calls, change_filter, clock_calls, copy_up, exec_calls, kernel_calls,
    namespace_calls, nested_try, permission_checks, readdir, recorded_calls, socket_calls,
};
use crate::plane::policy::{Exec, NO_TOKEN, ProcessEvents};
use crate::plane::{self, AnyPolicy, Interest, Policy, Token, Verdict};
use crate::session::{self, Session};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};
use crate::targets;

/// The policy of processes in a try.
struct OverlayPolicy;

static POLICY: AnyPolicy = AnyPolicy::Plain(&OverlayPolicy);

impl Policy for OverlayPolicy {
    fn interest(&self) -> Interest {
        Interest::Only { all_of: &SEEN_CALLS, commands_of: &[], samples_of: &[] }
    }

    fn before(&self, call: &plane::Call) -> Verdict {
        let call = Call::of_program(call);
        lower_layer::ask_layers(Some(Layer::top()), &call).map_or(Verdict::NATIVE, Verdict::answer)
    }
}

impl ProcessEvents for OverlayPolicy {
    fn redirect_exec(&self, call: &plane::Call) -> Exec {
        if session::get().is_some_and(supervisor_has_ended) {
            self.lost();
        }
        let call = Call::of_program(call);
        recorded_calls::record_exec(Layer::top(), &call);
        exec_calls::redirect(Layer::top(), &call)
    }

    fn sees_borrowers(&self) -> bool {
        true
    }

    /// Ends the process: without the agent it would no longer see what it has made.
    fn lost(&self) {
        const TEXT: &[u8] =
            b"runahead: ended a process of a try: without the agent its changes cannot be kept apart\n";
        let _ = kernel_calls::write_all(2, TEXT);
        sys::exit(125);
    }

    fn before_exec(&self, call: &plane::Call) -> Token {
        let token = targets::POLICY.before_exec(call);
        change_filter::filter(Layer::top()).begin_exec(token != NO_TOKEN);
        token
    }

    fn exec_failed(&self, token: Token) {
        targets::POLICY.exec_failed(token);
        if token != NO_TOKEN {
            change_filter::filter(Layer::top()).end_exec();
        }
    }

    as_a_target!(but for exec);
}

/// Installs this policy in place of the target's, if this process belongs to a try.
pub fn start(session: &Session) -> Result<()> {
    if session.config.overlay.flags & flag::ON == 0 {
        return Ok(());
    }
    static DECIDE: CallHandler = CallHandler(handle_call);
    layer::start(session, session::nested_try())?;
    let mut layer = Some(Layer::top());
    while let Some(one) = layer {
        change_filter::start(one)?;
        layer = one.below();
    }
    lower_layer::set_handler(&DECIDE);
    recorded_calls::record_own_program(Layer::top());
    plane::remember_process()?;
    plane::set_policy(&POLICY)
}

/// True if the supervisor has ended. Then the next program gets no agent and would see the lower
/// tree.
fn supervisor_has_ended(session: &Session) -> bool {
    // Signals to a live supervisor are denied in a try, with another error.
    syscall!(nr::KILL, session.config.supervisor_pid, 0) == Err(Errno(sys::ESRCH))
}

/// Resolves the path at address `at`, relative to `dir`.
fn resolve_argument(
    layer: Layer,
    dir: Fd,
    at: u64,
    look: path_walk::WalkOptions,
) -> Result<Resolved> {
    let mut room = path_buffer();
    let text = read_path(at, &mut room)?;
    path_walk::resolve(layer, dir, text, look)
}

fn handle_call(layer: Layer, call: &Call) -> CallResult {
    let a = call.args;
    let here = AT_FDCWD;
    let look = |dir, argument, follow| PathArgument { dir, argument, follow };
    let follows = |flags: u64| flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0;
    let open = |dir, at, flags: u64, mode: u64| OpenRequest {
        dir,
        at,
        flags: flags as u32,
        mode: mode as u32,
        resolve: 0,
    };
    match call.nr {
        nr::OPEN => open_calls::open(layer, call, open(here, a[0], a[1], a[2])),
        nr::OPENAT => open_calls::open(layer, call, open(call.fd(0), a[1], a[2], a[3])),
        nr::CREAT => {
            let flags = k::O_CREAT | k::O_WRONLY | k::O_TRUNC;
            open_calls::open(layer, call, open(here, a[0], flags.into(), a[1]))
        }
        nr::OPENAT2 => {
            if a[3] < size_of::<k::open_how>() as u64 {
                return Err(Errno(sys::EINVAL));
            }
            let k::open_how { flags, mode, resolve } = sys::copy_in(a[2])?;
            let how = open(call.fd(0), a[1], flags, mode);
            open_calls::open(layer, call, OpenRequest { resolve: resolve as u32, ..how })
        }
        nr::STAT | nr::FSTAT | nr::LSTAT | nr::NEWFSTATAT | nr::STATX => {
            stat_calls::stat(layer, call)
        }
        nr::ACCESS => stat_calls::access(layer, call, look(here, 0, true)),
        nr::FACCESSAT => stat_calls::access(layer, call, look(call.fd(0), 1, true)),
        nr::FACCESSAT2 => stat_calls::access(layer, call, look(call.fd(0), 1, follows(a[3]))),
        nr::READLINK => stat_calls::read_link(layer, call, look(here, 0, false)),
        nr::READLINKAT => stat_calls::read_link(layer, call, look(call.fd(0), 1, false)),
        nr::CHDIR => stat_calls::change_directory(layer, call, look(here, 0, true)),
        nr::STATFS | nr::GETXATTR | nr::LISTXATTR => {
            stat_calls::redirect(layer, call, look(here, 0, true))
        }
        nr::LGETXATTR | nr::LLISTXATTR => stat_calls::redirect(layer, call, look(here, 0, false)),
        nr::INOTIFY_ADD_WATCH => {
            let follow = a[2] as u32 & k::IN_DONT_FOLLOW == 0;
            stat_calls::redirect(layer, call, look(here, 1, follow))
        }
        nr::GETCWD => stat_calls::getcwd(layer, call),
        nr::GETDENTS | nr::GETDENTS64 => readdir::list(layer, call),
        nr::BIND => socket_calls::bind(layer, call),
        nr::CONNECT | nr::SENDTO | nr::SENDMSG => socket_calls::connect(layer, call),
        nr::PRCTL if call.args[0] as u32 == PRCTL => {
            answer_call(call, nested_try::answer_prctl(layer, call))
        }
        nr::SECCOMP | nr::PRCTL => Ok(answer_seccomp(call)),
        nr::ADJTIMEX => answer_call(call, clock_calls::adjust(layer, call, 0)),
        nr::CLOCK_ADJTIME => answer_call(call, clock_calls::adjust(layer, call, 1)),
        nr::TRUNCATE => answer_call(call, truncate(layer, a[0], a[1])),
        nr::MKDIR
        | nr::MKDIRAT
        | nr::RMDIR
        | nr::UNLINK
        | nr::UNLINKAT
        | nr::RENAME
        | nr::RENAMEAT
        | nr::RENAMEAT2
        | nr::LINK
        | nr::LINKAT
        | nr::SYMLINK
        | nr::SYMLINKAT
        | nr::MKNOD
        | nr::MKNODAT => answer_call(call, change_namespace(layer, call)),
        _ => attribute_calls::change(layer, call),
    }
}

/// Handles calls that create, remove and rename names.
fn change_namespace(layer: Layer, call: &Call) -> Result<u64> {
    let a = call.args;
    let here = AT_FDCWD;
    let at = |dir, at| resolve_argument(layer, dir, at, ENTRY_NAME);
    match call.nr {
        nr::MKDIR => namespace_calls::make_directory(layer, &mut at(here, a[0])?, a[1] as u32),
        nr::MKDIRAT => {
            namespace_calls::make_directory(layer, &mut at(call.fd(0), a[1])?, a[2] as u32)
        }
        nr::MKNOD => namespace_calls::make_node(layer, &mut at(here, a[0])?, a[1] as u32),
        nr::MKNODAT => namespace_calls::make_node(layer, &mut at(call.fd(0), a[1])?, a[2] as u32),
        nr::RMDIR => namespace_calls::remove(layer, &mut at(here, a[0])?, true),
        nr::UNLINK => namespace_calls::remove(layer, &mut at(here, a[0])?, false),
        nr::UNLINKAT => {
            let is_directory = a[2] as u32 & k::AT_REMOVEDIR != 0;
            namespace_calls::remove(layer, &mut at(call.fd(0), a[1])?, is_directory)
        }
        nr::RENAME => namespace_calls::rename(layer, &mut at(here, a[0])?, &mut at(here, a[1])?, 0),
        nr::RENAMEAT | nr::RENAMEAT2 => {
            let flags = if call.nr == nr::RENAMEAT2 { a[4] as u32 } else { 0 };
            let (mut from, mut to) = (at(call.fd(0), a[1])?, at(call.fd(2), a[3])?);
            namespace_calls::rename(layer, &mut from, &mut to, flags)
        }
        nr::LINK => {
            let mut from = require_present(resolve_argument(layer, here, a[0], NO_FOLLOW)?)?;
            namespace_calls::link(layer, &mut from, &mut at(here, a[1])?)
        }
        nr::LINKAT => link_at(layer, call),
        nr::SYMLINK | nr::SYMLINKAT => {
            let mut text = path_buffer();
            read_path(a[0], &mut text)?;
            let mut new = match call.nr {
                nr::SYMLINK => at(here, a[1])?,
                _ => at(call.fd(1), a[2])?,
            };
            namespace_calls::make_symlink(layer, &mut new, text.as_ptr() as u64)
        }
        _ => Err(Errno(sys::ENOSYS)),
    }
}

fn link_at(layer: Layer, call: &Call) -> Result<u64> {
    let [_, old, _, new, flags, _] = call.args;
    let flags = flags as u32;
    let mut text = path_buffer();
    let text = read_path(old, &mut text)?;
    let to = || resolve_argument(layer, call.fd(2), new, ENTRY_NAME);
    if text.is_empty() && flags & k::AT_EMPTY_PATH != 0 {
        // The file of a descriptor. The kernel denies linking a file of the lower tree into the
        // upper tree.
        let fd = call.fd(0);
        let empty = c"".as_ptr() as u64;
        return namespace_calls::create_at(layer, &mut to()?, NewEntry::Other, |path| {
            syscall!(nr::LINKAT, fd, empty, AT_FDCWD, path, k::AT_EMPTY_PATH)
        });
    }
    let look = if flags & k::AT_SYMLINK_FOLLOW != 0 { FOLLOW } else { NO_FOLLOW };
    let mut from = require_present(path_walk::resolve(layer, call.fd(0), text, look)?)?;
    namespace_calls::link(layer, &mut from, &mut to()?)
}

/// Fails with ENOENT if the entry is absent, before another name is resolved.
fn require_present(found: Resolved) -> Result<Resolved> {
    match found.entry {
        ViewEntry::Absent => Err(Errno(sys::ENOENT)),
        _ => Ok(found),
    }
}

fn truncate(layer: Layer, at: u64, len: u64) -> Result<u64> {
    let mut found = resolve_argument(layer, AT_FDCWD, at, FOLLOW)?;
    match found.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        ViewEntry::Outside => return Err(Errno(sys::EPERM)),
        _ if Resolved::directory(&found).is_ok() => return Err(Errno(sys::EISDIR)),
        ViewEntry::Lower(_) | ViewEntry::Indexed(_) => {
            check_regular(&found)?;
            permission_checks::may_truncate(layer, &found)?;
            copy_up::copy_up_file(layer, &mut found, len != 0)?;
        }
        ViewEntry::Upper(_) if change_filter::filter(layer).has_copies_without_rights() => {
            permission_checks::may_truncate(layer, &found)?;
        }
        _ => {}
    }
    syscall!(nr::TRUNCATE, found.path.upper_address(), len)
}

/// Fails with EINVAL if the entry is no regular file.
fn check_regular(found: &Resolved) -> Result<()> {
    match found.stat() {
        Some(stat) if stat.kind() != k::S_IFREG => Err(Errno(sys::EINVAL)),
        _ => Ok(()),
    }
}

/// Answers requests for seccomp. A filter of the program would judge the agent's calls, so the
/// program is answered that it has one and continues under the try's.
fn answer_seccomp(call: &Call) -> Verdict {
    const SET_MODE_FILTER: u64 = 1;
    /// `SECCOMP_FILTER_FLAG_NEW_LISTENER` (linux/seccomp.h).
    const NEW_LISTENER: u64 = 1 << 3;
    let [first, second, ..] = call.args;
    match call.nr {
        nr::SECCOMP if first <= SET_MODE_FILTER => {
            let listens = second & NEW_LISTENER != 0;
            Verdict::answer(if listens { sys::fail(sys::EINVAL) } else { 0 })
        }
        nr::PRCTL if first as u32 == linux_raw_sys::prctl::PR_SET_SECCOMP => Verdict::answer(0),
        _ => Verdict::NATIVE,
    }
}

const _: () = assert!(size_of::<call_results::PathBuffer>() == runahead_abi::PATH_MAX);
