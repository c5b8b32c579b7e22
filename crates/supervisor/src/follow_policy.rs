//! Programs that are not followed for a while (`estimators::follow_filter`): those that were
//! started often lately, and were followed for nothing each time.
//!
//! A start is worth following if it gains more than that costs ([`FOLLOW_COST`]), or waits so long
//! that a later run may gain. A process that never joins has not waited, and is judged when it is
//! found to have ended. One that joins is judged by its shared memory in the end
//! ([`was_worth_following`]). While one start of a program is joined, the others are followed.
//!
//! A program that starts no others is known by its file. One that starts others (a shell, `git`)
//! behaves like many programs. So it is known by its file and its command ([`ProgramKey::called`]).
//!
//! Evidence is never older than [`RECENT`], and counts for [`SKIP_TIME`]; then one start is
//! followed again. So a program that is started now and then (at a shell's prompt, say) is followed
//! each time. A loop whose programs come to data that is not in memory is noticed after a second at
//! most.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runahead_abi::{Control, device_number};
use runahead_admission::slow_devices::DeviceWaits;
use runahead_estimators::follow_filter::ProgramKey;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Starts of a program that must have been followed for nothing, each within [`RECENT`] of the one
/// before.
const USELESS_STARTS_MIN: u32 = 3;
/// Age after which evidence no longer counts. Longer than [`SKIP_TIME`]'s maximum, else no second
/// skip would follow.
const RECENT: Duration = Duration::from_secs(2);
/// Shortest and longest time for which a program is not followed. It doubles with each start that
/// is followed in vain in between.
const SKIP_TIME: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// A process alive for this long is long-running, and may stall yet.
const LONG_LIVED_AFTER: Duration = Duration::from_millis(100);
/// Processor time of following a start and of its joining (docs/decisions, 28).
const FOLLOW_COST: Duration = Duration::from_micros(2_500);
/// Multiple of [`FOLLOW_COST`]: a start that waits for longer may gain when it is run again.
const LONG_WAIT_FACTOR: u32 = 8;
/// Most starts of a program that are not judged yet.
const UNJUDGED_MAX: usize = 32;
/// Most programs that are remembered.
const PROGRAMS_MAX: usize = 1024;

/// Evidence about one program.
struct ProgramState {
    /// True if the program starts others; which ones is not known when it starts.
    starts_others: bool,
    /// Number of starts that were followed for nothing. A start that was worth it, or a pause
    /// longer than [`RECENT`], resets it.
    useless_starts: u32,
    /// Processes that have neither joined nor been judged yet.
    unjudged: Vec<(Pid, Instant)>,
    /// Processes that have joined, and not ended.
    joined: u32,
    newest: Option<Instant>,
    /// Time for which the program is not followed next.
    skip_time: Duration,
}

impl ProgramState {
    fn new() -> Self {
        let (open, spell) = (Vec::new(), SKIP_TIME.0);
        ProgramState {
            starts_others: false,
            useless_starts: 0,
            unjudged: open,
            joined: 0,
            newest: None,
            skip_time: spell,
        }
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.newest.is_some_and(|since| now.duration_since(since) <= RECENT)
    }

    /// Counts a start of the program by `process`. Returns the time for which further starts need
    /// not be followed.
    fn count_start(&mut self, process: Pid, now: Instant) -> Option<Duration> {
        let mut worth = !self.is_recent(now);
        self.newest = Some(now);
        let mut idle = 0;
        self.unjudged.retain(|&(one, since)| {
            let is_over = one == process || test_kill_process(one) == Err(Errno::SRCH);
            let lasts = !is_over && now.duration_since(since) > LONG_LIVED_AFTER;
            idle += u32::from(is_over);
            worth |= lasts;
            !is_over && !lasts
        });
        if self.unjudged.len() < UNJUDGED_MAX {
            self.unjudged.push((process, now));
        }
        self.judge(worth, idle);
        if self.useless_starts < USELESS_STARTS_MIN || self.joined > 0 {
            return None;
        }
        let spell = self.skip_time;
        self.skip_time = SKIP_TIME.1.min(2 * spell);
        Some(spell)
    }

    /// Counts `idle` ended starts that were followed for nothing; `worth` is true if another was
    /// worth it.
    fn judge(&mut self, worth: bool, idle: u32) {
        self.useless_starts = self.useless_starts.saturating_add(idle);
        if worth {
            (self.useless_starts, self.skip_time) = (0, SKIP_TIME.0);
        }
    }
}

/// True if following a process was worth its cost. The process has joined, ended, and `waited` for
/// so long; a request of the storage takes `service`.
pub(crate) fn was_worth_following(
    control: &Control,
    waited: Duration,
    service: Option<Duration>,
) -> bool {
    let part = |count: u64, own: u32| if own == 0 { count } else { count * u64::from(own) / 1024 };
    // Bounded, since the process may write anything.
    let used = control.hints_used.load(Relaxed).min(u32::MAX.into());
    let data = control.shadow_data_used.load(Relaxed).min(used);
    let own = [&control.own_requests, &control.own_reads].map(|own| own.load(Relaxed).min(1024));
    let spared = part(used - data, own[0]) + part(data, own[1]);
    let gained = service.unwrap_or_default().saturating_mul(spared as u32);
    gained >= FOLLOW_COST || waited >= LONG_WAIT_FACTOR * FOLLOW_COST
}

/// Evidence about all programs of the session.
pub struct FollowPolicy {
    waits: Arc<DeviceWaits>,
    /// `None`: everything is followed.
    programs: Option<Mutex<HashMap<ProgramKey, ProgramState>>>,
}

impl FollowPolicy {
    /// Starts without evidence; with `follow_all` every program is followed for good.
    pub fn new(waits: Arc<DeviceWaits>, follow_all: bool) -> Self {
        FollowPolicy { waits, programs: (!follow_all).then(Mutex::default) }
    }

    /// Notes that `process` is about to execute the program at `place` (`O_PATH`), and is followed.
    /// `called` is the key of its command.
    pub fn exec_followed(&self, process: Pid, place: &OwnedFd, called: Option<ProgramKey>) {
        if self.programs.is_none() {
            return;
        }
        if let Some(parent) = program_key(&format!("/proc/{process}/exe")) {
            self.update(parent, |known| known.starts_others = true);
        }
        let Some(program) = program_key(&format!("/proc/self/fd/{}", place.as_raw_fd())) else {
            return;
        };
        let now = Instant::now();
        let starts_others = self.update(program, |known| known.starts_others) == Some(true);
        let told_by = if starts_others { called } else { Some(program) };
        let Some(told_by) = told_by else { return };
        if let Some(spell) = self.update(told_by, |known| known.count_start(process, now)).flatten()
        {
            self.waits.skip_program(told_by, spell);
        }
    }

    /// Notes that `process` joins. Returns the program that it executes, if known;
    /// [`process_ended`](Self::process_ended) expects it.
    pub(crate) fn process_joined(&self, process: Pid) -> Option<ProgramKey> {
        let mut all = self.programs.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().find_map(|(program, known)| {
            let place = known.unjudged.iter().position(|(one, _)| *one == process)?;
            known.unjudged.swap_remove(place);
            known.joined += 1;
            Some(*program)
        })
    }

    /// Notes the end of a process that had joined; `is_worth`: following it was worth its cost.
    pub(crate) fn process_ended(&self, program: ProgramKey, is_worth: bool) {
        self.update(program, |known| {
            known.joined = known.joined.saturating_sub(1);
            known.judge(is_worth, u32::from(!is_worth));
        });
    }

    fn update<T>(
        &self,
        program: ProgramKey,
        change: impl FnOnce(&mut ProgramState) -> T,
    ) -> Option<T> {
        let mut all = self.programs.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROGRAMS_MAX && !all.contains_key(&program) {
            let now = Instant::now();
            all.retain(|_, known| known.starts_others || known.joined > 0 || known.is_recent(now));
            if all.len() >= PROGRAMS_MAX {
                all.clear();
            }
        }
        Some(change(all.entry(program).or_insert_with(ProgramState::new)))
    }
}

/// Key of the file at `path`, if it can be found without asking a server, which may not answer.
fn program_key(path: &str) -> Option<ProgramKey> {
    let it = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(ProgramKey::new(device_number(it.stx_dev_major, it.stx_dev_minor), it.stx_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use runahead_abi::AgentConfig;
    use runahead_admission::process::shared_memory;
    use runahead_estimators::TickRate;
    use rustix::fs::OFlags;
    use rustix::process::{getpid, getppid};

    use super::*;

    fn new_policy(follow_all: bool) -> FollowPolicy {
        let file = shared_memory::agent_file().expect("memory for a file");
        let front =
            shared_memory::fill(&file, &[0; AgentConfig::CHANGES_IN], &[]).expect("room in it");
        FollowPolicy::new(Arc::new(DeviceWaits::new(front, TickRate::new(1000))), follow_all)
    }

    /// A program, which this process starts.
    struct Starts(OwnedFd, ProgramKey);

    impl Starts {
        fn of(path: &str) -> Self {
            let place = OFlags::PATH.bits() as i32;
            let file = OpenOptions::new().read(true).custom_flags(place).open(path);
            Starts(file.expect("it is there").into(), program_key(path).expect("it is there"))
        }

        fn called(&self, first: &[u8]) -> ProgramKey {
            self.1.called(first, b"")
        }

        /// Starts the program often with this command. Returns true if the program or the command
        /// is then not followed.
        fn often(&self, policy: &FollowPolicy, first: &[u8]) -> bool {
            let called = self.called(first);
            (0..=USELESS_STARTS_MIN)
                .for_each(|_| policy.exec_followed(getpid(), &self.0, Some(called)));
            [self.1, called].into_iter().any(|key| policy.waits.is_skipped(key))
        }
    }

    #[test]
    fn program_started_often_without_stalls_is_not_followed() {
        let (all, shell) = (new_policy(false), Starts::of("/bin/sh"));
        assert!(!shell.often(&new_policy(true), b""), "all are to be followed");
        all.exec_followed(getpid(), &shell.0, None);
        assert!(!all.waits.is_skipped(shell.1), "once is not often");
        assert!(shell.often(&all, b""));
    }

    #[test]
    fn joined_process_is_judged_when_it_ends() {
        for is_worth in [true, false] {
            let (all, shell) = (new_policy(false), Starts::of("/bin/sh"));
            assert_eq!(all.process_joined(getpid()), None, "its program is not known");
            for _ in 0..USELESS_STARTS_MIN {
                all.exec_followed(getpid(), &shell.0, None);
                assert_eq!(all.process_joined(getpid()), Some(shell.1));
                assert_eq!(all.process_joined(getpid()), None, "once");
                assert!(!all.waits.is_skipped(shell.1));
                all.process_ended(shell.1, is_worth);
            }
            all.exec_followed(getpid(), &shell.0, None);
            assert_eq!(all.waits.is_skipped(shell.1), !is_worth);
        }
        let (all, shell) = (new_policy(false), Starts::of("/bin/sh"));
        all.exec_followed(getpid(), &shell.0, None);
        assert_eq!(all.process_joined(getpid()), Some(shell.1));
        assert!(!shell.often(&all, b""), "one is at work");
    }

    #[test]
    fn start_is_worth_following_if_it_gains_more_than_it_costs_or_stalls_long() {
        let (shared, _file) = shared_memory::Mapping::new().expect("memory to share");
        let control = &shared.control;
        let (service, ticks) = (Some(FOLLOW_COST / 4), |count: u32| {
            new_policy(false).waits.time_waited(control) / count
        });
        let is_worth = |service| was_worth_following(control, ticks(1), service);
        assert!(!is_worth(service));
        control.hints_used.store(4, Relaxed);
        assert!(is_worth(service) && !is_worth(None));
        control.own_requests.store(1023, Relaxed);
        assert!(!is_worth(service), "not all of them had to be asked for");
        // 1,000 ticks to the microsecond.
        let long = 1000 * (LONG_WAIT_FACTOR * FOLLOW_COST).as_micros() as u64;
        control.stall_ticks_unforeseen.store(long / 2, Relaxed);
        control.stall_ticks_foreseen.store(long / 2 - 1, Relaxed);
        assert!(!is_worth(service));
        control.stall_ticks_foreseen.store(long / 2, Relaxed);
        assert!(is_worth(service) && !super::was_worth_following(control, ticks(2), service));
        // The process may write any value.
        control.hints_used.store(u64::MAX, Relaxed);
        control.own_reads.store(u32::MAX, Relaxed);
        control.stall_ticks_foreseen.store(u64::MAX, Relaxed);
        assert!(is_worth(Some(Duration::MAX)));
    }

    #[test]
    fn program_that_starts_others_is_known_by_its_command() {
        let (all, ourselves) = (new_policy(false), Starts::of("/proc/self/exe"));
        // The test starts the program itself.
        assert!(ourselves.often(&all, b"status"));
        assert!(!all.waits.is_skipped(ourselves.1));
        assert!(all.waits.is_skipped(ourselves.called(b"status")));
        assert!(!all.waits.is_skipped(ourselves.called(b"clone")));
        (0..=USELESS_STARTS_MIN).for_each(|_| all.exec_followed(getpid(), &ourselves.0, None));
        assert!(!all.waits.is_skipped(ourselves.1), "nobody says how");
    }

    #[test]
    fn long_lived_or_rarely_started_program_is_followed() {
        let (mut known, begin) = (ProgramState::new(), Instant::now());
        let mut after = |process: fn(u32) -> Pid, pause: Duration, starts: u32| {
            let told = (1..=starts).map(|n| known.count_start(process(n), begin + n * pause));
            told.last().flatten()
        };
        let gone = |_| Pid::from_raw(i32::MAX).expect("not 0");
        let there = |n| if n % 2 == 0 { getpid() } else { getppid().expect("it has one") };
        let long = RECENT + LONG_LIVED_AFTER;
        assert_eq!(after(gone, 2 * LONG_LIVED_AFTER, USELESS_STARTS_MIN), None);
        let grown = after(gone, 2 * LONG_LIVED_AFTER, USELESS_STARTS_MIN + 2);
        assert!(grown > Some(SKIP_TIME.0) && grown <= Some(SKIP_TIME.1), "{grown:?}");
        assert_eq!(
            after(gone, 2 * LONG_LIVED_AFTER, 100),
            Some(SKIP_TIME.1),
            "but not without end"
        );
        assert_eq!(after(gone, long, 100), None, "now and then");
        assert_eq!(after(there, 2 * LONG_LIVED_AFTER, 100), None, "it is still there");
    }

    #[test]
    fn programs_that_start_others_survive_many_commands() {
        let (all, ourselves) = (new_policy(false), Starts::of("/proc/self/exe"));
        for n in 0..3 * PROGRAMS_MAX as u64 {
            let called = ourselves.called(&n.to_le_bytes());
            all.exec_followed(getpid(), &ourselves.0, Some(called));
        }
        let known = all.programs.as_ref().map(|known| known.lock().map(|known| known.len()));
        assert!(known.is_some_and(|len| len.is_ok_and(|len| len <= PROGRAMS_MAX)));
        assert!(ourselves.often(&all, b"status"));
    }
}
