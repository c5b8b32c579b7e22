//! The policy of a target: its calls, unchanged, and a sync when one would stall unforeseen.
//!
//! While nothing stalls, a call is made as it stands and only timed. Once something has stalled,
//! calls are first tried without waiting ([`stall_handling`]); one that would wait looks at the hint log,
//! has its own I/O started by the prefetcher, makes a shadow if none foresaw it ([`shadow_sync`]), and is
//! then made as it stands.
//!
//! Invariant: every result that the program sees is the kernel's answer to the call that the
//! program made, or to the same call with a flag that makes it fail rather than wait.

mod access_recording;
mod call_outcome;
mod call_sampling;
pub(crate) mod child_stalls;
mod concurrency;
mod dcache_miss_cost;
mod demand_readahead;
mod disclosure_calls;
mod dontfork_regions;
mod exec;
mod file_reads;
mod flush_on_close;
mod leases;
mod mapped_usage;
mod mapping_conflicts;
mod membarrier;
mod name_lookups;
mod page_faults;
mod page_residency;
mod path_argument;
mod privilege_changes;
mod run_queue_delay;
pub mod shadow_sync;
mod shadow_visibility;
pub mod stall_handling;
pub mod stall_probing;
mod sync_budget;

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::agent_config::{tell, without};
use runahead_abi::{Identity, PATH_MAX};

use crate::arch::{CALLS, Context, ticks};
use crate::descriptor_names::{FileKind, NAMES};
use crate::lock::Lock;
use crate::plane::policy::ProcessEvents;
use crate::plane::thread::Thread;
use crate::plane::{
    self, AnyPolicy, Call, Event, Interest, Policy, Token, Verdict, sample_counter,
};
use crate::session::{self, Session};
use crate::shadow;
use crate::sys::{self, AT_FDCWD, nr};
use call_outcome::Outcome;
use call_sampling::SAMPLED_CALLS;
pub(crate) use call_sampling::{may_be_sampled, skip_unsampled};
pub use exec::prepare_strictly;
use path_argument::PathArgument;
pub use privilege_changes::retire_if_needed;
use privilege_changes::{
    CREDENTIAL_CALLS, installs_filter, keeps_credentials, retire_plane, stop_policy,
};
use stall_probing::StallProbing;

/// All that a target remembers, for all of its threads. Its shadows and children inherit a copy.
///
/// What is written often comes first, in few pages: each costs a fault and a copy after a fork, in the parent as
/// in the child.
#[repr(C)]
pub struct Target {
    pub(crate) stall_probing: StallProbing,
    dcache_misses: dcache_miss_cost::DcacheMissCost,
    run_queue: run_queue_delay::RunQueueDelay,
    pub(crate) syncs: Lock<shadow_sync::SyncHistory>,
    /// The thread of which there is a shadow; null while that may be any.
    pub(crate) shadowed_thread: AtomicPtr<Thread>,
    /// Whether the supervisor has been asked to let this process join.
    tried_to_join: AtomicBool,
    /// What this process has waited without having joined, in time-stamp ticks.
    waited_ticks: AtomicU64,
    /// Held by the thread that writes the target's ring.
    ring_lock: Lock<()>,
    disclosures: disclosure_calls::DisclosureState,
    /// Accesses that this process did not join for.
    accesses_before_join: AtomicU32,
    /// An access could not be told.
    recording_falls_behind: AtomicBool,
    demand_readahead: demand_readahead::DemandReadahead,
    dontfork: dontfork_regions::DontforkRegions,
    child_stalls: child_stalls::ChildStalls,
    flush_on_close: flush_on_close::FlushOnClose,
    mapped_usage: mapped_usage::MappedUsage,
    fault_watch: page_faults::FaultWatch,
    /// There is memory of which no copy is to be made.
    shadows_forbidden: AtomicBool,
    /// Threads wait for children of all kinds.
    waits_for_clones: AtomicBool,
}

static TARGET: Target = Target {
    stall_probing: StallProbing::new(),
    dcache_misses: dcache_miss_cost::DcacheMissCost::new(),
    run_queue: run_queue_delay::RunQueueDelay::new(),
    syncs: Lock::new(shadow_sync::SyncHistory::new()),
    shadowed_thread: AtomicPtr::new(core::ptr::null_mut()),
    tried_to_join: AtomicBool::new(false),
    waited_ticks: AtomicU64::new(0),
    ring_lock: Lock::new(()),
    disclosures: disclosure_calls::DisclosureState::new(),
    accesses_before_join: AtomicU32::new(0),
    recording_falls_behind: AtomicBool::new(false),
    demand_readahead: demand_readahead::DemandReadahead::new(),
    dontfork: dontfork_regions::DontforkRegions::new(),
    child_stalls: child_stalls::ChildStalls::new(),
    flush_on_close: flush_on_close::FlushOnClose::new(),
    mapped_usage: mapped_usage::MappedUsage::new(),
    fault_watch: page_faults::FaultWatch::new(),
    shadows_forbidden: AtomicBool::new(false),
    waits_for_clones: AtomicBool::new(false),
};

/// Calls that a target's policy looks at, always: they change what descriptors mean, may bring files
/// into memory, or are to be met with care.
const INTEREST: &[u64] = &[
    nr::OPEN,
    nr::OPENAT,
    nr::OPENAT2,
    nr::CLOSE_RANGE,
    nr::CHDIR,
    nr::FCHDIR,
    nr::MMAP,
    nr::BRK,
    nr::MUNMAP,
    nr::MREMAP,
    nr::SHMAT,
    nr::SHMCTL,
    nr::SHMGET,
    nr::MEMBARRIER,
    nr::MADVISE,
    nr::MLOCK,
    nr::MLOCK2,
    nr::MLOCKALL,
    nr::MEMFD_SECRET,
    nr::USERFAULTFD,
    nr::FADVISE64,
    nr::FANOTIFY_INIT,
    nr::SENDFILE,
    nr::COPY_FILE_RANGE,
    nr::SPLICE,
    nr::UNLINK,
    nr::UNLINKAT,
    nr::RMDIR,
    nr::UMOUNT2,
    nr::EXIT_GROUP,
    nr::WAIT4,
    nr::WAITID,
    nr::SECCOMP,
    nr::PRCTL,
    nr::PTRACE,
    nr::CHROOT,
    nr::PIVOT_ROOT,
    nr::UNSHARE,
    nr::SETNS,
    nr::SETUID,
    nr::SETGID,
    nr::SETREUID,
    nr::SETREGID,
    nr::SETRESUID,
    nr::SETRESGID,
    nr::SETFSUID,
    nr::SETFSGID,
    nr::SETGROUPS,
    nr::CAPSET,
    nr::LANDLOCK_RESTRICT_SELF,
];

/// Whether this policy looks at calls of that number, wherever it is asked from.
pub(crate) fn intercepts(number: u64) -> bool {
    const SEES: [bool; CALLS] = {
        let (mut table, mut n) = ([false; CALLS], 0);
        while n < INTEREST.len() {
            table[INTEREST[n] as usize] = true;
            n += 1;
        }
        n = 0;
        while n < SAMPLED_CALLS.len() {
            table[SAMPLED_CALLS[n] as usize] = true;
            n += 1;
        }
        table[nr::FCNTL as usize] = true;
        table
    };
    SEES.get(number as usize).is_some_and(|&sees| sees)
}

/// Calls of that number are looked at for hints alone: to miss one costs no more than that.
pub(crate) fn is_hint_only(number: u64) -> bool {
    may_be_sampled(number)
        || matches!(number, nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CHDIR | nr::FCHDIR)
        || matches!(number, nr::SENDFILE | nr::COPY_FILE_RANGE | nr::SPLICE)
}

/// How this policy ends, where another asks it ([`set_consulted_by_other_policy`]).
static IS_CONSULTED: AtomicBool = AtomicBool::new(false);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// From here on it is another policy that the plane asks, and that asks this one of calls that it lets go on. This one can end without
/// that one: see [`has_ended`].
pub(crate) fn set_consulted_by_other_policy() {
    IS_CONSULTED.store(true, Relaxed);
}

/// See there.
fn is_consulted_by_other_policy() -> bool {
    IS_CONSULTED.load(Relaxed)
}

/// This policy is not to be asked any more, nor in children.
pub(crate) fn has_ended() -> bool {
    HAS_ENDED.load(Relaxed)
}

/// The program has changed the rules under which it runs, and this policy ends.
fn end_policy() {
    match is_consulted_by_other_policy() {
        true => HAS_ENDED.store(true, Relaxed),
        false => plane::stand_down(),
    }
}

/// Makes this process a target, in which the plane has started.
pub fn start() {
    let Some(session) = session::get() else { return };
    TARGET.reset_for_process(session);
    NAMES.set_cwd(start_directory());
    // (Nothing is prepared for this policy, so that nothing can fail.)
    let _ = plane::set_policy(&INSTALLED);
}

/// The working directory by its absolute name, so that names that begin there and names that begin at the root
/// agree.
fn start_directory() -> Identity {
    let mut text = [0u8; PATH_MAX];
    match sys::getcwd(&mut text) {
        // One that cannot be reached from the root is told without a slash.
        Ok(len @ 2..) if text[0] == b'/' => Identity::ROOT.join(&text[..len - 1]),
        _ => Identity::START_CWD,
    }
}

/// The policy of a target: it decides when to make a shadow, and otherwise leaves calls as they are.
struct TargetPolicy;

pub(crate) static POLICY: &dyn Policy = &TargetPolicy;

static INSTALLED: AnyPolicy = AnyPolicy::Plain(&TargetPolicy);

impl Policy for TargetPolicy {
    fn interest(&self) -> Interest {
        Interest::Only { all_of: INTEREST, commands_of: &[nr::FCNTL], samples_of: SAMPLED_CALLS }
    }

    fn before(&self, call: &Call) -> Verdict {
        decide_call(call)
    }
}

impl ProcessEvents for TargetPolicy {
    fn poked(&self, frame: &mut Context) {
        TARGET.check_faults(frame);
    }

    fn poke_missed(&self) {
        page_faults::rearm_timer();
    }

    fn thread_ends(&self) {
        page_faults::thread_ends();
    }

    fn before_child(&self) {
        TARGET.child_stalls.expect_child();
        // A parent hears of its children when it reads from a pipe (`child_stalls`).
        plane::see_all_of(nr::READ, true);
    }

    fn in_child(&self) {
        start_in_child();
    }

    fn before_exec(&self, call: &Call) -> Token {
        exec::before_exec(call)
    }

    fn exec_failed(&self, token: Token) {
        exec::exec_failed(token);
    }

    fn event(&self, event: Event) {
        let control = session::counters();
        let count = match event {
            Event::Trapped => &control.traps,
            Event::Patched => &control.sites_patched,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// A forked child begins a life of its own: it keeps the names of descriptors, and has no shadow.
fn start_in_child() {
    let Some(session) = session::get() else { return };
    session.start_in_child();
    TARGET.leave_sampling();
    TARGET.fault_watch.start_in_child();
    TARGET.reset_for_process(session);
    plane::see_all_of(nr::READ, false);
    sample_counter::none();
    TARGET.syncs.break_open();
    TARGET.syncs.try_with(|syncs| *syncs = shadow_sync::SyncHistory::new());
    TARGET.ring_lock.break_open();
    TARGET.mapped_usage.start_in_child();
    TARGET.disclosures.start_in_child();
    TARGET.dontfork.start_in_child();
    TARGET.child_stalls.start_in_child();
    TARGET.run_queue.start_in_child();
    TARGET.shadowed_thread.store(core::ptr::null_mut(), Relaxed);
    TARGET.tried_to_join.store(false, Relaxed);
    TARGET.waited_ticks.store(0, Relaxed);
    TARGET.accesses_before_join.store(0, Relaxed);
    TARGET.waits_for_clones.store(false, Relaxed);
    TARGET.recording_falls_behind.store(false, Relaxed);
}

fn decide_call(call: &Call) -> Verdict {
    let Some(session) = session::get() else { return Verdict::NATIVE };
    TARGET.watch_faults(call.thread);
    let verdict = match TARGET.decide(session, call) {
        Outcome::Native => Verdict::NATIVE,
        Outcome::Answer(ret) => Verdict::answer(ret),
        // We are the shadow now, at the call where the target stalls.
        Outcome::InShadow => {
            // It gets no signals, those that were held for its target neither.
            call.thread.forget_held();
            return shadow::answer_call(call);
        }
    };
    if session.config.tell != tell::ALL && !session.is_without(without::SAMPLING) {
        TARGET.schedule_next_sample(call);
    }
    verdict
}

impl Target {
    /// A process begins.
    fn reset_for_process(&self, session: &Session) {
        self.stall_probing.reset();
        self.mapped_usage.start(ticks());
        self.stall_probing.hear_of_stalls(session.slow_devices().latest(), ticks);
        // A child's thread counts anew; and to be stopped, as at an exec, counts.
        if let Some(thread) = plane::thread::current() {
            thread.switches.set(None);
        }
    }

    fn decide(&self, session: &'static Session, call: &Call) -> Outcome {
        let a = &call.args;
        let at_path = |i: usize| (call.fd(i), a[i + 1]);
        match call.nr {
            nr::READ => self.read(session, call, a[1], a[2], None),
            nr::PREAD64 => self.read(session, call, a[1], a[2], Some(a[3])),
            nr::READV => self.read_vector(session, call, None),
            nr::PREADV => self.read_vector(session, call, Some(a[3])),
            nr::OPEN => self.open(session, call, (AT_FDCWD, a[0]), a[1] as u32),
            nr::OPENAT => self.open(session, call, at_path(0), a[2] as u32),
            nr::OPENAT2 => self.open_as_given(session, call),
            nr::STAT | nr::ACCESS => self.look_up(session, call, (AT_FDCWD, a[0]), true),
            nr::LSTAT => self.look_up(session, call, (AT_FDCWD, a[0]), false),
            nr::NEWFSTATAT => self.look_up_at(session, call, at_path(0), a[3] as u32),
            nr::STATX => self.look_up_at(session, call, at_path(0), a[2] as u32),
            nr::FACCESSAT => self.look_up(session, call, at_path(0), true),
            nr::FACCESSAT2 => self.look_up_at(session, call, at_path(0), a[3] as u32),
            nr::READLINK => self.look_up(session, call, (AT_FDCWD, a[0]), false),
            nr::READLINKAT => self.look_up(session, call, at_path(0), false),
            nr::GETDENTS | nr::GETDENTS64 => self.list_directory(session, call),
            nr::MMAP if a[3] as u32 & k::MAP_LOCKED != 0 => {
                self.forbid_shadows(session);
                note_shared(call, self.map(session, call))
            }
            nr::MMAP => {
                if shadow_visibility::counts_shadows(call) {
                    shadow_visibility::outlive_session_shadows(session);
                }
                note_shared(call, self.map(session, call))
            }
            // (With userfaultfd(2) the program hears of forks, and of pages that a shadow would fetch.)
            nr::MLOCK | nr::MLOCK2 | nr::MLOCKALL | nr::MEMFD_SECRET | nr::USERFAULTFD => {
                self.forbid_shadows(session);
                Outcome::Native
            }
            nr::MADVISE => self.advise(call),
            nr::FADVISE64 => self.disclose(session, call),
            nr::MUNMAP => {
                self.record_unmapped(session, a[0], a[1]);
                self.munmap(session, call)
            }
            nr::BRK => {
                self.note_brk(session, a[0]);
                Outcome::Native
            }
            nr::MREMAP => note_shared(call, self.mremap(session, call)),
            nr::SHMAT => self.shmat(session, call),
            nr::MEMBARRIER => membarrier::membarrier(call),
            nr::SENDFILE => self.transfer(session, call, call.fd(1), a[2], a[3]),
            nr::COPY_FILE_RANGE => self.transfer(session, call, call.fd(0), a[1], a[4]),
            nr::SPLICE => self.transfer(session, call, call.fd(0), a[1], a[4]),
            nr::UNLINK | nr::UNLINKAT | nr::RMDIR => {
                // A shadow may be the last to hold what is removed.
                self.end_shadows(session);
                Outcome::Native
            }
            nr::UMOUNT2 => {
                exec::end_session_shadows(session);
                Outcome::Native
            }
            nr::FCNTL | nr::SHMCTL | nr::SHMGET if shadow_visibility::counts_shadows(call) => {
                shadow_visibility::outlive_session_shadows(session);
                Outcome::Native
            }
            nr::SHMCTL | nr::SHMGET => Outcome::Native,
            nr::FCNTL | nr::FANOTIFY_INIT if leases::answers_opens(call) => {
                self.stop_reading_ahead(session)
            }
            nr::EXIT_GROUP => {
                self.count_last_faults(session, call.thread);
                self.record_all_mapped(session);
                self.outlive_shadows(session);
                Outcome::Native
            }
            nr::WAIT4 | nr::WAITID => {
                self.hide_helpers(call);
                self.wait_for_children(session, call)
            }
            // A filter of the program's own: our calls would be judged by it.
            nr::SECCOMP if installs_filter(call) => retire_plane(session),
            nr::SECCOMP => Outcome::Native,
            nr::PRCTL => self.prctl(session, call),
            // It asks to be traced: whoever does that is not to see our signals.
            nr::PTRACE if a[0] == 0 => retire_plane(session),
            nr::PTRACE => Outcome::Native,
            nr::CHROOT
            | nr::PIVOT_ROOT
            | nr::UNSHARE
            | nr::SETNS
            | nr::CAPSET
            | nr::LANDLOCK_RESTRICT_SELF => stop_policy(session),
            n if CREDENTIAL_CALLS.contains(&n) && !keeps_credentials(call) => stop_policy(session),
            _ => self.track_descriptors(session, call),
        }
    }

    /// Calls that change what descriptors mean.
    fn track_descriptors(&self, session: &'static Session, call: &Call) -> Outcome {
        match call.nr {
            nr::CLOSE => {
                NAMES.forget(call.fd(0));
                return Outcome::Native;
            }
            nr::CLOSE_RANGE => {
                NAMES.forget_range(call.args[0], call.args[1]);
                return Outcome::Native;
            }
            nr::FCNTL if !matches!(call.args[1] as u32, k::F_DUPFD | k::F_DUPFD_CLOEXEC) => {
                return Outcome::Native;
            }
            _ => {}
        }
        let mut room = MaybeUninit::uninit();
        let directory = match call.nr {
            nr::CHDIR => Some(PathArgument::copied(AT_FDCWD, call.args[0], &mut room)),
            _ => None,
        };
        let ret = call.perform();
        match call.nr {
            _ if ret < 0 => {}
            nr::LSEEK => NAMES.seek(call.fd(0), ret as u64),
            nr::CHDIR => {
                // One that could not be copied has been changed since, and leads anywhere.
                let path = directory.as_ref().and_then(PathArgument::copy).unwrap_or(b"?");
                if session.is_joined() {
                    session.shared().parents.opened(NAMES.cwd(), path);
                }
                NAMES.set_cwd(session.shared().parents.walk(NAMES.cwd(), path));
            }
            nr::FCHDIR => NAMES.set_cwd(NAMES.identity(call.fd(0))),
            nr::DUP | nr::DUP2 | nr::DUP3 | nr::FCNTL => {
                NAMES.note_duplicate(call.fd(0), ret as sys::Fd)
            }
            _ => {}
        }
        Outcome::Answer(ret)
    }

    /// The program says that some of its memory is not to be seen, or not to reach a disk: what a shadow
    /// copies would be ordinary memory. It has none from here on, nor have its children.
    fn forbid_shadows(&self, session: &'static Session) {
        if !self.shadows_forbidden.swap(true, Relaxed) {
            self.end_shadows(session);
        }
    }

    /// The name of what `path` leads to from `dir`.
    fn path_identity(&self, session: &Session, dir: sys::Fd, path: &[u8]) -> Identity {
        session.shared().parents.walk(NAMES.at(dir), path)
    }

    /// What kind of file `fd` is, asked once for each open.
    fn file_kind(&self, fd: sys::Fd) -> FileKind {
        NAMES.kind(fd)
    }
}

/// What the program maps to share with others is not to be patched.
fn note_shared(call: &Call, outcome: Outcome) -> Outcome {
    let [at, old, new, flags, ..] = call.args;
    let len = match call.nr {
        nr::MMAP if flags as u32 & k::MAP_SHARED != 0 => old,
        nr::MREMAP if plane::patch::is_any_shared(at, old.max(1)) => new,
        _ => return outcome,
    };
    let ret = match outcome {
        Outcome::Native => call.perform(),
        Outcome::Answer(ret) => ret,
        Outcome::InShadow => return outcome,
    };
    if ret > 0 {
        plane::patch::note_shared(ret as u64, len);
    }
    Outcome::Answer(ret)
}
