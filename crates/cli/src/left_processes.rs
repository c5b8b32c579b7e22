//! Processes that the command of a try has left: waited for, or ended.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use runahead_changeset::Try;
use runahead_changeset::running_processes::list_processes;
use runahead_supervisor::remaining_processes::RemainingProcesses;

use crate::command_end::say;

/// Time after which a wait is reported.
const QUIET: Duration = Duration::from_secs(2);
/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Interval between two searches for processes to end.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// Processes of a try after its command has ended.
#[derive(Debug)]
pub struct LeftProcesses {
    tried: Try,
    is_quiet: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Start of the wait.
    since: Instant,
    is_reported: bool,
    /// Start of their end, if they are to be ended.
    ending: Option<Instant>,
    searched: Option<Instant>,
    /// Processes that got SIGTERM.
    asked: BTreeSet<i32>,
}

impl LeftProcesses {
    /// `ends` has them ended instead of waited for.
    pub fn new(tried: Try, is_quiet: bool, ends: bool) -> Self {
        let now = Instant::now();
        let state = State {
            since: now,
            is_reported: false,
            ending: ends.then_some(now),
            searched: None,
            asked: BTreeSet::new(),
        };
        LeftProcesses { tried, is_quiet, state: Mutex::new(state) }
    }

    /// Sends SIGTERM to processes that have not got it, and later SIGKILL to all.
    fn signal_all(&self, asked: &mut BTreeSet<i32>, is_late: bool) {
        for process in self.tried.processes() {
            if is_late {
                self.tried.kill(&process);
            } else if asked.insert(process.pid) {
                self.tried.terminate(&process);
            }
        }
    }

    fn report(&self) {
        let processes = self.tried.processes();
        if !processes.is_empty() {
            say!(
                "waiting for processes that the command has left: {} (--end ends them)",
                list_processes(&processes)
            );
        }
    }
}

impl RemainingProcesses for LeftProcesses {
    fn begin(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.since = now;
        state.ending = state.ending.map(|_| now);
    }

    fn have_ended(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // What cannot be examined is not waited for: a commit examines it again.
        if self.tried.have_processes_ended(state.since).unwrap_or(true) {
            return true;
        }
        if let Some(ending) = state.ending {
            if state.searched.is_none_or(|last| last.elapsed() >= SEARCH_INTERVAL) {
                self.signal_all(&mut state.asked, ending.elapsed() >= GRACE);
                state.searched = Some(Instant::now());
            }
        } else if !self.is_quiet && !state.is_reported && state.since.elapsed() >= QUIET {
            state.is_reported = true;
            self.report();
        }
        false
    }

    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ending.get_or_insert_with(Instant::now);
    }
}
