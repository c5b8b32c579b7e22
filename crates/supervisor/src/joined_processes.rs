//! Processes that have joined: each has stalled once, and has a dispatcher of its own while it
//! lives.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runahead_abi::ABI_VERSION;
use runahead_abi::control_protocol::LET_GO_MS;
use runahead_admission::dispatcher::Dispatcher;
use runahead_admission::memory_budget::{self, ProcessMemory};
use runahead_admission::process::doorbell::{ring, supersede};
use runahead_admission::process::read_rights::RightsCheck;
use runahead_admission::process::shared_memory::Mapping;
use runahead_admission::session_admission::TaskRoom as _;
use runahead_estimators::follow_filter::ProgramKey;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::follow_policy;
use crate::inherited_descriptors::beyond_standard;
use crate::session_context::SessionContext;
use crate::session_stats::Totals;
use runahead_admission::mount_table;

/// Most joined processes at one time; further processes run without shadows.
const JOINED_MAX: usize = 256;
/// Longest wait until the shadows of a session have given up their descriptors. The supervisor
/// waits when nothing may stay open, and at the end of the session; the bound is for machines that
/// leave shadows no processor.
pub const LET_GO_TIMEOUT: Duration = Duration::from_millis(LET_GO_MS as u64);
const STOP_TIMEOUT: Duration = Duration::from_millis(300);
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Epoll key of the I/O process's eventfd; no process has this number.
const BELL_KEY: u64 = u64::MAX;
/// Stack of a dispatcher, which holds its buffer of one record.
const STACK_BYTES: usize = 256 * 1024;

struct JoinedProcess {
    pidfd: OwnedFd,
    shared: Arc<Mapping>,
    stop: Arc<AtomicBool>,
    /// Program that the process executed, if known.
    program: Option<ProgramKey>,
}

/// Processes of a session that have joined.
pub struct JoinedProcesses {
    pub(crate) common: Arc<SessionContext>,
    list: Mutex<HashMap<u64, JoinedProcess>>,
    next: AtomicU64,
    exit_epoll: OwnedFd,
    totals: Mutex<Totals>,
    /// Shared memory of ended processes whose shadows may still be running.
    departed: Mutex<Vec<Arc<Mapping>>>,
    /// True once [`JoinedProcesses::stop`] was called.
    stopped: AtomicBool,
}

fn has_no_shadows(shared: &Mapping) -> bool {
    shared.control.shadows_alive() <= 0
}

impl JoinedProcesses {
    /// Makes an empty list.
    pub fn new(common: Arc<SessionContext>) -> Result<Self, Errno> {
        let ended = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(JoinedProcesses {
            common,
            list: Mutex::new(HashMap::new()),
            next: AtomicU64::new(0),
            exit_epoll: beyond_standard(ended).map_err(|_| Errno::MFILE)?,
            totals: Mutex::new(Totals::default()),
            departed: Mutex::new(Vec::new()),
            stopped: AtomicBool::new(false),
        })
    }

    /// Epoll descriptor, the only one that is open from the start.
    pub fn descriptor(&self) -> i32 {
        self.exit_epoll.as_raw_fd()
    }

    fn list(&self) -> MutexGuard<'_, HashMap<u64, JoinedProcess>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a process join. Returns the file that the process must map.
    pub fn join(&self, pid: Pid) -> Result<OwnedFd, Errno> {
        if self.is_stopped() || self.list().len() >= JOINED_MAX {
            return Err(Errno::AGAIN);
        }
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // An error without errno: the process has ended meanwhile.
        let rights =
            RightsCheck::new(pid).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::SRCH))?;
        if !rights.includes_ours().unwrap_or(false) {
            return Err(Errno::PERM);
        }
        let process = pid.as_raw_pid() as u32;
        let own = ProcessMemory::of(process);
        let most = memory_budget::pages_most(process, own.pages);
        if most.is_some_and(|most| most < own.pages) && !own.has_room_for_mirrors(process) {
            return Err(Errno::NOMEM);
        }
        if !self.common.task_limits.allows_one_more() {
            return Err(Errno::AGAIN);
        }
        let (shared, file) = Mapping::new()?;
        let shared = Arc::new(shared);
        let control = &shared.control;
        let single_server = self.common.admission.single_spindle.is_single_spindle();
        control.single_server.store(single_server.into(), Relaxed);
        let horizon = if single_server { 0 } else { self.common.admission.horizon() };
        control.horizon.store(horizon, Relaxed);
        control.bytes_budget.store(self.common.admission.ledger.budget.bytes(), Relaxed);
        own.tell(control);
        control.tell_most(most);
        control.version.store(ABI_VERSION, Release);
        let stop = Arc::new(AtomicBool::new(false));
        let dispatcher = Dispatcher::new(
            shared.clone(),
            self.common.admission.clone(),
            stop.clone(),
            pid,
            rights,
        );
        let number = self.next.fetch_add(1, Relaxed);
        self.watch_fd(&pidfd, number)?;
        let present =
            self.common.history.as_ref().map(|history| history.process_joined(shared.clone()));
        let program = self.common.follow_policy.process_joined(pid);
        self.list().insert(number, JoinedProcess { pidfd, shared: shared.clone(), stop, program });
        // A concurrent `stop` may not have found this process in the list.
        shared.control.stopped.fetch_or(self.is_stopped().into(), SeqCst);
        self.common.task_limits.add_process();
        let started = self.common.io_process.spawn("dispatcher", STACK_BYTES, move || {
            dispatcher.run();
            drop(present);
        });
        if started.is_err() {
            self.remove(number);
            return Err(Errno::AGAIN);
        }
        Ok(file)
    }

    /// Prefetches the program at `place` (`O_PATH`), which `process` is about to execute and which
    /// is not cached, with all that it needs. Does nothing if the process has not all the rights of
    /// the supervisor.
    pub(crate) fn prefetch_program(&self, place: &OwnedFd, process: Pid) {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()));
        let may_read = RightsCheck::new(process).and_then(|rights| rights.includes_ours());
        if let (Ok(path), Some(device), Ok(true)) = (path, mount_table::device_of(place), may_read)
        {
            let common = self.common.clone();
            let bring_in = move || {
                common.program_prefetch.prefetch(&common.admission.prefetcher, &path, device)
            };
            let _ = self.common.io_process.call(bring_in);
        }
    }

    /// Waits for ends of joined processes, and checks the limit of tasks, for good. In the I/O
    /// process it also runs the other jobs.
    pub fn watch(&self) {
        let mut events = [MaybeUninit::uninit(); 16];
        if let Some(bell) = self.common.io_process.bell() {
            let _ = self.watch_fd(bell, BELL_KEY);
        }
        loop {
            self.common.io_process.run_jobs();
            let patience = self.common.task_limits.apply(&self.common.admission.prefetcher);
            if self.common.task_limits.is_tight() {
                self.list().values().for_each(|member| ring(&member.shared));
            }
            let patience = patience.and_then(|time| Timespec::try_from(time).ok());
            match epoll::wait(&self.exit_epoll, &mut events, patience.as_ref()) {
                Ok((events, _)) => events.iter().for_each(|event| self.remove(event.data.u64())),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Has [`JoinedProcesses::watch`] see `number` when `place` becomes readable.
    fn watch_fd(&self, place: impl AsFd, number: u64) -> Result<(), Errno> {
        epoll::add(
            &self.exit_epoll,
            place,
            epoll::EventData::new_u64(number),
            epoll::EventFlags::IN,
        )
    }

    fn remove(&self, number: u64) {
        // The lock is held, so that each process is either in the list or in the account.
        let mut list = self.list();
        let Some(member) = list.remove(&number) else { return };
        self.common.task_limits.remove_process();
        let _ = epoll::delete(&self.exit_epoll, &member.pidfd);
        member.stop.store(true, SeqCst);
        supersede(&member.shared.control);
        ring(&member.shared);
        self.common.admission.waits.take_reported(&member.shared.control);
        self.totals().add(&member.shared.control);
        self.common.admission.degraded.count_of(&member.shared);
        if let Some(program) = member.program {
            let service = self.common.admission.prefetcher.stats().service;
            let control = &member.shared.control;
            let is_worth = follow_policy::was_worth_following(
                control,
                self.common.admission.waits.time_waited(control),
                service,
            );
            self.common.follow_policy.process_ended(program, is_worth);
        }
        // Keep the list short: shadows of a process that ended long ago have ended, too.
        let mut leaving = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|shared| !has_no_shadows(shared));
        leaving.push(member.shared);
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every shadow give up its descriptors, and waits at most `patience` for that.
    pub fn let_go(&self, patience: Duration) {
        let mut waiting: Vec<_> = self.list().values().map(|m| m.shared.clone()).collect();
        waiting.iter().filter(|s| !has_no_shadows(s)).for_each(|s| _ = supersede(&s.control));
        let leaving = self.departed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waiting.extend(leaving);
        let until = Instant::now() + patience;
        while !waiting.iter().all(|shared| has_no_shadows(shared)) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        waiting.iter().for_each(|shared| shared.control.waits_no_longer());
    }

    /// Ends all prefetching and all shadows of the session for good. Waits a moment until the files
    /// that they had open are closed.
    pub fn stop(&self) {
        if !self.stopped.swap(true, SeqCst) {
            self.common.admission.degraded.count("a program answers for what is opened (a lease, permission events): nothing was read ahead from then on");
        }
        for member in self.list().values() {
            member.shared.control.stopped.store(1, SeqCst);
            ring(&member.shared);
        }
        self.common.admission.prefetcher.close();
        self.let_go(STOP_TIMEOUT);
    }

    /// True if [`JoinedProcesses::stop`] was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Ends every shadow. Returns the sums over all processes, those that ended before included.
    pub fn end(&self) -> Totals {
        self.let_go(END_TIMEOUT);
        let numbers: Vec<_> = self.list().keys().copied().collect();
        numbers.into_iter().for_each(|number| self.remove(number));
        let mut totals = self.totals().clone();
        totals.add_ledger(&self.common.admission.ledger);
        totals
    }
}
