//! The policy of a target: makes its calls unchanged, and a sync where a call would stall
//! unforeseen.
//!
//! While nothing stalls, a call is made as it stands and only timed. After a stall, calls are first
//! tried without waiting ([`stall_handling`]). A call that would wait consults the hint log and has
//! its own I/O started by the prefetcher. If no shadow foresaw the wait, it makes a shadow
//! ([`shadow_sync`]). Then the call is made as it stands.
//!
//! Invariant: every result that the program sees is the kernel's answer to the call that the
//! program made, or to the same call with a flag that makes it fail rather than wait.

mod access_recording;
mod busy_files;
mod call_outcome;
mod call_sampling;
mod child_stalls;
mod child_waits;
mod concurrency;
mod dcache_miss_cost;
mod demand_readahead;
mod demand_reads;
mod disclosure_calls;
mod disclosure_state;
mod dontfork_regions;
mod exec;
mod fault_watch;
mod file_reads;
mod flush_on_close;
mod large_mappings;
mod leases;
mod mapped_usage;
mod mapping_conflicts;
mod membarrier;
mod name_lookups;
mod page_faults;
mod page_residency;
mod path_argument;
mod policy_end;
mod privilege_changes;
mod ring_room;
mod run_queue_delay;
mod run_requests;
pub mod shadow_sync;
mod shadow_visibility;
pub mod stall_handling;
pub mod stall_probing;
mod sync_budget;
mod sync_history;
mod target_state;
mod traced_processes;

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_abi::agent_config::{tell, without};
use runahead_estimators::Identity;

use crate::arch::{CALLS, Context};
use crate::descriptor_names::NAMES;
use crate::plane::policy::ProcessEvents;
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
pub(crate) use policy_end::{has_ended, set_consulted_by_other_policy};
pub use privilege_changes::retire_if_needed;
use privilege_changes::{
    CREDENTIAL_CALLS, installs_filter, keeps_credentials, retire_plane, stop_policy,
};
use target_state::{TARGET, Target};
pub use traced_processes::{give_up, prepare_trace};

/// Calls that the policy of a target always sees, besides [`CREDENTIAL_CALLS`]: they change the
/// meaning of descriptors, may bring files into memory, or need special treatment.
const OTHER_INTEREST: &[u64] = &[
    nr::OPEN,
    nr::OPENAT,
    nr::OPENAT2,
    nr::CREAT,
    nr::TRUNCATE,
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
    nr::CAPSET,
    nr::LANDLOCK_RESTRICT_SELF,
];

/// Calls that the policy of a target sees each time.
const INTEREST: &[u64] = &{
    let (mut all, mut n) = ([0; CREDENTIAL_CALLS.len() + OTHER_INTEREST.len()], 0);
    while n < all.len() {
        all[n] = match n < CREDENTIAL_CALLS.len() {
            true => CREDENTIAL_CALLS[n],
            false => OTHER_INTEREST[n - CREDENTIAL_CALLS.len()],
        };
        n += 1;
    }
    all
};

/// True if this policy needs to see calls of that number, called by the plane or by another policy.
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

/// True if calls of that number only produce hints: missing one costs no more than a hint.
pub(crate) fn is_hint_only(number: u64) -> bool {
    may_be_sampled(number)
        || matches!(number, nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CHDIR | nr::FCHDIR)
        || matches!(number, nr::SENDFILE | nr::COPY_FILE_RANGE | nr::SPLICE)
}

/// Makes this process a target. The plane has started.
pub fn start() {
    let Some(session) = session::get() else { return };
    TARGET.reset_for_process(session);
    NAMES.set_cwd(start_directory());
    // This policy prepares nothing, so setting it cannot fail.
    let _ = plane::set_policy(&INSTALLED);
}

/// Identity of the working directory by its absolute name. Names that begin there then agree with
/// names that begin at the root.
fn start_directory() -> Identity {
    let mut text = [0u8; PATH_MAX];
    match sys::getcwd(&mut text) {
        // The kernel reports a directory outside the root without a leading slash.
        Ok(len @ 2..) if text[0] == b'/' => Identity::ROOT.join(&text[..len - 1]),
        _ => Identity::START_CWD,
    }
}

/// The policy of a target: decides when to make a shadow, and otherwise leaves calls as they are.
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

    fn asked_to_end(&self) {
        give_up();
    }

    fn thread_ends(&self) {
        page_faults::thread_ends();
    }

    fn before_child(&self) {
        TARGET.child_stalls.expect_child();
        // A parent learns of its children's stalls when it reads from a pipe (`child_stalls`).
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

/// Resets the state in a forked child: it keeps the names of descriptors and has no shadow.
fn start_in_child() {
    let Some(session) = session::get() else { return };
    session.start_in_child();
    TARGET.leave_sampling();
    TARGET.start_in_child(session);
    plane::see_all_of(nr::READ, false);
    sample_counter::none();
}

fn decide_call(call: &Call) -> Verdict {
    let Some(session) = session::get() else { return Verdict::NATIVE };
    TARGET.fault_watch.watch_faults(call.thread);
    let verdict = match TARGET.decide(session, call) {
        Outcome::Native => Verdict::NATIVE,
        Outcome::Answer(ret) => Verdict::answer(ret),
        // This process is the shadow now, at the call where the target stalls.
        Outcome::InShadow => {
            // A shadow gets no signals, not even those that were held for its target.
            call.thread.drop_held_signals();
            return shadow::answer_call(call);
        }
    };
    if session.config.tell != tell::ALL && !session.is_without(without::SAMPLING) {
        TARGET.schedule_next_sample(call);
    }
    verdict
}

impl Target {
    fn decide(&self, session: &'static Session, call: &Call) -> Outcome {
        let a = &call.args;
        let at_path = |i: usize| (call.fd(i), a[i + 1]);
        let retried = |made| busy_files::retry_if_busy(session, call, made);
        match call.nr {
            nr::READ => self.read(session, call, a[1], a[2], None),
            nr::PREAD64 => self.read(session, call, a[1], a[2], Some(a[3])),
            nr::READV => self.read_vector(session, call, None),
            nr::PREADV => self.read_vector(session, call, Some(a[3])),
            nr::OPEN => retried(self.open(session, call, (AT_FDCWD, a[0]), a[1] as u32)),
            nr::OPENAT => retried(self.open(session, call, at_path(0), a[2] as u32)),
            nr::OPENAT2 => retried(self.open_as_given(session, call)),
            nr::CREAT | nr::TRUNCATE => busy_files::perform(session, call),
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
            // Through userfaultfd(2) the program would see forks, and pages that a shadow fetches.
            nr::MLOCK | nr::MLOCK2 | nr::MLOCKALL | nr::MEMFD_SECRET | nr::USERFAULTFD => {
                self.forbid_shadows(session);
                Outcome::Native
            }
            nr::MADVISE => self.dontfork.track_advice(call),
            nr::FADVISE64 => self.disclose(session, call),
            nr::MUNMAP => {
                self.record_unmapped(session, a[0], a[1]);
                self.munmap(session, call)
            }
            nr::BRK => {
                self.fault_watch.note_brk(session, a[0]);
                Outcome::Native
            }
            nr::MREMAP => note_shared(call, self.mremap(session, call)),
            nr::SHMAT => self.shmat(session, call),
            nr::MEMBARRIER => membarrier::membarrier(call),
            nr::SENDFILE => self.transfer(session, call, call.fd(1), a[2], a[3]),
            nr::COPY_FILE_RANGE => self.transfer(session, call, call.fd(0), a[1], a[4]),
            nr::SPLICE => self.transfer(session, call, call.fd(0), a[1], a[4]),
            nr::UNLINK | nr::UNLINKAT | nr::RMDIR => {
                // A shadow may be the last holder of the removed file.
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
            // The program's own filter would judge our calls.
            nr::SECCOMP if installs_filter(call) => retire_plane(session),
            nr::SECCOMP => Outcome::Native,
            nr::PRCTL => self.prctl(session, call),
            // The process asks to be traced: the tracer must not see our signals.
            nr::PTRACE if a[0] == 0 => retire_plane(session),
            nr::PTRACE => {
                prepare_trace(session, call);
                Outcome::Native
            }
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

    /// Makes a call that changes the meaning of descriptors, and updates their names.
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
                // A name that could not be copied has been changed since, and may lead anywhere.
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
}

/// Excludes memory that the program maps as shared from patching.
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
