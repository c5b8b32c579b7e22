//! Calls of a shell: fork, exec and wait.
//!
//! A runner that comes to a fork really forks, in its sandbox. The child goes on in its copy of the
//! program's memory until it executes a program or ends, and the parent waits for that. So one of
//! them runs at a time, as the ring requires, which has one writer. An exec hints the program and
//! the files that its arguments name, and ends the process that makes it. The parent then goes on
//! as if the child had succeeded. The data that the child would have written to a pipe is unknown:
//! its reader finds the end of the file.
//!
//! Children that the target had when the shadow was made
//! ([`super::runner_children::TARGET_CHILDREN`]) also count as ended with success.

use linux_raw_sys::general as k;
use runahead_abi::agent_config::FORK_MARK;
use runahead_abi::hint_record::LENGTH_UNKNOWN;
use runahead_abi::{HintKind, PATH_MAX, RunEnd};
use runahead_estimators::{ChunkIndex, Identity};

use super::name_lookup::{LookupName, LookupResult};
use super::runner::{CallAnswer, Runner, Stop};
use super::shadow_descriptors::{Backing, Descriptor};
use super::shadow_lifetime;
use crate::hint_sender::Hint;
use crate::plane::{self, Call};
use crate::sys::{self, AT_FDCWD, nr};

/// Deepest nesting of children.
const DEPTH_MAX: u32 = 8;
/// Most children of one run.
const FORKS_MAX: u32 = 4096;
/// Most accesses of a child before it executes a program.
const ACCESSES_MAX: u64 = 4096;
/// Most arguments of a program that are taken to be files that it reads, and bytes hinted of each.
const ARGUMENTS: u64 = 32;
const ARGUMENT_BYTES: u64 = 128 << 10;

/// Stack of the new child, 0 for its parent's; `None` if the call does not make an ordinary
/// process.
fn stack_of_child(call: &Call) -> Option<u64> {
    const PLAIN: u64 = (k::CLONE_VM
        | k::CLONE_VFORK
        | k::CLONE_CHILD_SETTID
        | k::CLONE_CHILD_CLEARTID
        | k::CLONE_PARENT_SETTID
        | k::CSIGNAL) as u64
        | k::CLONE_CLEAR_SIGHAND;
    let is_process = |flags: u64| {
        let shares = flags & u64::from(k::CLONE_VM) != 0;
        flags & !PLAIN == 0 && (!shares || flags & u64::from(k::CLONE_VFORK) != 0)
    };
    match call.nr {
        nr::FORK | nr::VFORK => Some(0),
        nr::CLONE => is_process(call.args[0]).then_some(call.args[1]),
        _ => {
            // SAFETY: struct clone_args: flags first, stack and its bytes as sixth and seventh word
            // (clone(2)); a bad address ends the runner.
            let [flags, .., stack, bytes] = unsafe { *(call.args[0] as *const [u64; 7]) };
            is_process(flags).then_some(if stack == 0 { 0 } else { stack + bytes })
        }
    }
}

impl Runner {
    /// fork, vfork, and those uses of clone and clone3 that make a process.
    pub(super) fn fork(&mut self, call: &Call) -> CallAnswer {
        let stack = stack_of_child(call).ok_or(Stop(RunEnd::Call))?;
        if self.children.depth >= DEPTH_MAX || self.children.forks >= FORKS_MAX {
            return Err(Stop(RunEnd::Call));
        }
        let parent = sys::getpid();
        self.children.forks += 1;
        match sys::fork_marked(FORK_MARK) {
            Ok(None) => {
                self.children.depth += 1;
                self.children.len = 0;
                self.children.accesses_left = ACCESSES_MAX;
                let alive = shadow_lifetime::die_with_parent(parent).is_ok()
                    && plane::start_in_shadow().is_ok();
                if !alive {
                    sys::exit(1);
                }
                call.thread.go_on_at(stack);
                Ok(0)
            }
            Ok(Some(child)) => {
                let _ = sys::collect(child);
                let pid = self.children.next_pid;
                self.children.next_pid += 1;
                self.children.add(pid);
                Ok(pid.into())
            }
            Err(_) => Err(Stop(RunEnd::Call)),
        }
    }

    /// wait4(2): reports a child as ended with success.
    pub(super) fn wait4(&mut self, which: i32, status: u64, usage: u64) -> CallAnswer {
        let which = u32::try_from(which).ok().filter(|&pid| pid > 0);
        let Some(pid) = self.children.take(which, false) else { return Ok(sys::fail(sys::ECHILD)) };
        // SAFETY: the program's own memory, in a process that may fault; struct rusage has 144
        // bytes.
        unsafe {
            if status != 0 {
                (status as *mut u32).write_unaligned(0);
            }
            if usage != 0 {
                core::ptr::write_bytes(usage as *mut u8, 0, 144);
            }
        }
        Ok(pid.into())
    }

    /// waitid(2): reports a child as ended with success.
    pub(super) fn waitid(&mut self, call: &Call) -> CallAnswer {
        const CLD_EXITED: u32 = 1;
        let [kind, id, info, options, usage, _] = call.args;
        let which = match kind as u32 {
            k::P_PID => Some(id as u32),
            k::P_ALL | k::P_PGID => None,
            _ => return Err(Stop(RunEnd::Call)),
        };
        let keep = options as u32 & k::WNOWAIT != 0;
        let Some(pid) = self.children.take(which, keep) else { return Ok(sys::fail(sys::ECHILD)) };
        // SAFETY: as in `wait4`; siginfo_t has its number, error and code, then the child's number,
        // user and status from the fifth word of four bytes (sigaction(2)).
        unsafe {
            if info != 0 {
                let words: [u32; 7] = [k::SIGCHLD, 0, CLD_EXITED, 0, pid, 0, 0];
                (info as *mut [u32; 7]).write_unaligned(words);
            }
            if usage != 0 {
                core::ptr::write_bytes(usage as *mut u8, 0, 144);
            }
        }
        Ok(0)
    }

    /// pipe(2): the write end discards everything, the read end is empty.
    pub(super) fn pipe(&mut self, to: u64) -> CallAnswer {
        let reader = Descriptor::new(Backing::Pipe, Identity::ROOT);
        let Some(reader) = self.descriptors.open(0, reader) else {
            return Ok(sys::fail(sys::EMFILE));
        };
        let writer = self.open_sink();
        if writer < 0 {
            self.descriptors.close(reader);
            return Ok(writer);
        }
        // SAFETY: the program's own memory, in a process that may fault.
        unsafe { (to as *mut [i32; 2]).write_unaligned([reader, writer as i32]) };
        Ok(0)
    }

    /// Reads from a pipe: the end of the file, if this process has or had children that were its
    /// writers.
    pub(super) fn read_pipe(&self) -> CallAnswer {
        if self.children.has_had_children() { Ok(0) } else { Err(Stop(RunEnd::Call)) }
    }

    /// execve(2) and execveat(2): hints what the program needs, and ends this process.
    pub(super) fn exec(&mut self, call: &Call) -> CallAnswer {
        let (dir, path, arguments) = match call.nr {
            nr::EXECVE => (AT_FDCWD, call.args[0], call.args[1]),
            _ => (call.fd(0), call.args[1], call.args[2]),
        };
        let name = match self.name(dir, path) {
            Ok(name) => name,
            Err(e) => return Ok(e),
        };
        self.count_access()?;
        match self.look_up(&name, HintKind::Lookup, true) {
            LookupResult::Found(fd, stat) => {
                let _ = sys::close(fd);
                if u32::from(stat.stx_mode) & k::S_IFMT != k::S_IFREG {
                    return Ok(sys::fail(sys::EACCES));
                }
            }
            // A search along a path goes on after this error. The first place is the likeliest.
            LookupResult::Cold if self.children.is_child() => {
                if !core::mem::replace(&mut self.children.has_tried_exec, true) {
                    self.hint_program(&name);
                    self.hint_arguments(arguments)?;
                }
                return Ok(sys::fail(sys::ENOENT));
            }
            LookupResult::Cold => {}
            LookupResult::Error(e) => return Ok(e),
        }
        self.hint_program(&name);
        self.hint_arguments(arguments)?;
        Err(Stop(RunEnd::Exit))
    }

    fn hint_program(&mut self, name: &LookupName) {
        let object = name.identity.chunk(ChunkIndex(u64::MAX));
        self.hint_by_name(name, object, (HintKind::Program, 0, 0));
    }

    fn hint_by_name(
        &mut self,
        name: &LookupName,
        key: Identity,
        (kind, length, flags): (HintKind, u64, u32),
    ) {
        let mut text = [0u8; PATH_MAX + 1];
        if self.log_hint(key)
            && let Some(len) = self.absolute_path(name, &mut text)
        {
            let object = if kind == HintKind::Data { name.identity } else { key };
            self.send_hint(&Hint { kind, object, offset: 0, length, flags, path: &text[..len] });
        }
    }

    /// Hints the arguments that name files: mostly the program reads them.
    fn hint_arguments(&mut self, arguments: u64) -> Result<(), Stop> {
        for n in 1..=ARGUMENTS {
            // SAFETY: argv, in a process that may fault.
            let at = unsafe { ((arguments + 8 * n) as *const u64).read_unaligned() };
            if at == 0 {
                break;
            }
            let Ok(name) = self.name(AT_FDCWD, at) else { continue };
            if !name.looks_like_a_file() {
                continue;
            }
            let (length, flags) = match self.look_up(&name, HintKind::Lookup, true) {
                LookupResult::Found(fd, stat) => {
                    let _ = sys::close(fd);
                    let regular = u32::from(stat.stx_mode) & k::S_IFMT == k::S_IFREG;
                    (if regular { stat.stx_size.min(ARGUMENT_BYTES) } else { 0 }, 0)
                }
                LookupResult::Cold => (ARGUMENT_BYTES, LENGTH_UNKNOWN),
                LookupResult::Error(_) => continue,
            };
            if length > 0 {
                let key = name.identity.chunk(ChunkIndex(0));
                self.hint_by_name(&name, key, (HintKind::Data, length, flags));
            }
        }
        Ok(())
    }
}
