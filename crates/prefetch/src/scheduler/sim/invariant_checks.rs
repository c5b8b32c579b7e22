//! Checks of what must hold, from counts that are kept apart from the scheduler's.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use runahead_estimators::{ChunkIndex, Identity};
use runahead_predict::ClientId;

use super::guess_account::Account;
use super::{FILE_BYTES, File, Program};
use crate::concurrency_limit::START;
use crate::device_number::Home;
use crate::scheduler::Scheduler;

/// State of one file that was hinted and is not settled.
struct Open {
    /// The newest run that hinted it.
    run: u32,
    demand: bool,
}

#[derive(Default)]
pub(super) struct Checks {
    open: HashMap<File, Open>,
    keys: HashMap<(ClientId, u64), File>,
    /// Demands that no worker has begun to serve.
    urgent: HashSet<File>,
    /// First run that is not given up, by program.
    stale: HashMap<usize, u32>,
    position: HashMap<usize, u64>,
    /// Read, or being read, and not reached: with the run that wanted it.
    ahead: HashMap<usize, HashMap<File, u32>>,
    /// Devices and programs of which some file has been found.
    seen: HashSet<(usize, usize)>,
    in_flight: HashMap<usize, usize>,
    /// Jobs in flight that a device was asked for, and not just what others wait for, by device.
    asked: HashMap<usize, usize>,
    /// Jobs that were taken to be on another device, by device. (A path of a device that has not
    /// answered yet has that of the nearest directory that is known, if only the root.)
    mistaken: HashMap<usize, usize>,
    /// Jobs by file.
    under_way: HashMap<File, usize>,
    /// Jobs that have ended, by device.
    ended: HashMap<usize, u64>,
    /// Prefetches in flight for each server when a demand came to a device with a settled limit:
    /// sum and count.
    met: HashMap<usize, (f64, u64)>,
    pub begun_far: u64,
    pub begun_near: u64,
    pub demands: u64,
    pub longest_wait: u64,
    pub account: Account,
    /// Most of what guesses might cost that they have, at any time.
    pub account_most: f64,
    pub violations: BTreeSet<&'static str>,
}

/// Jobs after which a limit is taken to have settled.
const SETTLED: u64 = 150;
/// Requests that a demand may meet in flight for each server of a device with a settled limit, on
/// average of one world. This is no promise, but tells a limit that works from none: of 1,000
/// worlds one in a hundred was above 9 and none above 12, and without a limit one in seventeen is
/// above 16.
const MET_MOST: f64 = 16.0;
/// Demands to a device from where on they tell, and below which they may have met twice as much.
/// (Among 7,600 worlds there were two whose one spindle was asked 30 times in all, and met 18 and
/// 22: its limit was 11 and 23 in the end, which is too much for one.)
const MET_TELLING: u64 = 30;
const MET_FEW: u64 = 60;

impl Checks {
    fn must(&mut self, holds: bool, what: &'static str) {
        if !holds {
            self.violations.insert(what);
        }
    }

    pub fn is_open(&self, file: File) -> bool {
        self.open.contains_key(&file)
    }

    pub fn hinted(&mut self, client: ClientId, file: File, run: u32, demand: bool, key: Identity) {
        self.keys.insert((client, key.chunk(ChunkIndex(0)).raw()), file);
        let fresh = !self.open.contains_key(&file);
        let open = self.open.entry(file).or_insert(Open { run, demand });
        open.run = open.run.max(run);
        open.demand |= demand;
        // Where nothing of a directory has been seen yet, it may be taken for one of another
        // device.
        let seen = self.seen.contains(&(file.device, file.program));
        if demand && fresh && seen && !self.under_way.contains_key(&file) {
            self.urgent.insert(file);
        }
    }

    /// A file is over with when its data is.
    pub fn settled(&mut self, client: ClientId, key: Identity) {
        if let Some(file) = self.keys.get(&(client, key.raw())) {
            self.open.remove(file);
            self.urgent.remove(file);
        }
    }

    pub fn gave_up(&mut self, program: usize, before: u32) {
        self.stale.insert(program, before);
        self.ahead.entry(program).or_default().retain(|_, run| *run >= before);
    }

    pub fn reached(&mut self, program: usize, position: u64) {
        self.position.insert(program, position);
        self.ahead.entry(program).or_default().retain(|file, _| file.position > position);
    }

    /// A worker has been told to start on a file, or (`read`) to read it.
    pub fn begins(&mut self, file: File, read: bool, scheduler: &Scheduler<File>, all: &[Program]) {
        let program = &all[file.program];
        let Some(&Open { run, demand }) = self.open.get(&file) else {
            self.must(false, "something was begun that nobody wants");
            return;
        };
        let stale = self.stale.get(&file.program).is_some_and(|before| run < *before);
        self.must(demand || !stale, "a hint was begun that had been given up");
        self.urgent.remove(&file);
        let known = self.ended.get(&file.device).is_some_and(|ended| *ended > 0);
        let waits = self.urgent.iter().any(|urgent| urgent.device == file.device);
        self.must(demand || !waits || !known, "a hint was begun before a demand");
        let home = Some((8, file.device as u32));
        let there = scheduler.limits.in_flight_on(home);
        self.must(there <= scheduler.limits.current_on(home), "more is in flight than the limit");
        let compute = Duration::from_nanos(program.compute);
        let reach = program.position + scheduler.limits.speed(home).horizon(compute).accesses();
        if demand || file.position <= reach {
            self.begun_near += 1;
        } else {
            self.begun_far += 1;
            // Itself included. (Before the first answer from a directory the device may be
            // another.)
            let there = scheduler.limits.in_flight_on(home);
            let known = self.seen.contains(&(file.device, file.program));
            let before = there.saturating_sub(1);
            let half = (scheduler.limits.current_on(home) / 2).max(1);
            self.must(
                !known || before < half,
                "a hint beyond the horizon was begun on a busy device",
            );
        }
        if read {
            self.reads(file, all);
        }
    }

    /// A file is going to be read.
    pub fn reads(&mut self, file: File, all: &[Program]) {
        let Some(&Open { run, demand }) = self.open.get(&file) else { return };
        let position = self.position.get(&file.program).copied().unwrap_or(0);
        if demand || file.position <= position {
            return;
        }
        let ahead = self.ahead.entry(file.program).or_default();
        ahead.insert(file, run);
        let bytes = ahead.len() as u64 * FILE_BYTES;
        self.must(bytes <= all[file.program].budget, "more was read ahead than the budget");
    }

    /// A job begins, as one of those on `home`.
    pub fn started(&mut self, file: File, home: Home) {
        let device = file.device;
        *self.under_way.entry(file).or_default() += 1;
        let there = self.in_flight.entry(device).or_default();
        *there += 1;
        let (there, ended) = (*there, self.ended.get(&device).copied().unwrap_or(0));
        let mistaken = self.mistaken.entry(device).or_default();
        *mistaken += usize::from(home.is_some_and(|(_, home)| home as usize != device));
        // A path whose device is not known is counted for none: twice.
        let few = there.saturating_sub(*mistaken) <= 2 * START;
        self.must(ended > 0 || few, "too much was in flight before the first answer");
    }

    /// A job has a request of its own at `device`.
    pub fn asks(&mut self, device: usize) {
        *self.asked.entry(device).or_default() += 1;
    }

    /// A job's own request at `device` has been answered.
    pub fn is_answered(&mut self, device: usize) {
        *self.asked.entry(device).or_default() -= 1;
    }

    /// A lookup has shown where the file, and so its directory, is.
    pub fn saw(&mut self, file: File) {
        self.seen.insert((file.device, file.program));
    }

    pub fn ended(&mut self, file: File) {
        let device = file.device;
        if let Some(jobs) = self.under_way.get_mut(&file) {
            *jobs -= 1;
            if *jobs == 0 {
                self.under_way.remove(&file);
            }
        }
        *self.in_flight.entry(device).or_default() -= 1;
        *self.ended.entry(device).or_default() += 1;
    }

    /// A worker has been told to start on a guess on `device`, as one of those on `home`.
    pub fn guess_begins(&mut self, device: usize, home: Home, scheduler: &Scheduler<File>) {
        let there = scheduler.limits.in_flight_on(home);
        self.must(there <= scheduler.limits.current_on(home), "more is in flight than the limit");
        let known = home == Some((8, device as u32));
        let waits = self.urgent.iter().any(|urgent| urgent.device == device);
        self.must(!waits || !known, "a guess was begun before a demand");
        *self.in_flight.entry(device).or_default() += 1;
        self.account.begins();
    }

    /// A guess is over.
    pub fn guess_ends(&mut self, device: usize, bytes: u64, (processor, contention): (u64, f64)) {
        *self.in_flight.entry(device).or_default() -= 1;
        *self.ended.entry(device).or_default() += 1;
        self.account.ends(bytes, processor, contention);
        let part = self.account.part();
        self.account_most = self.account_most.max(part);
        self.must(part <= 1.0, "guesses have cost more than they may");
    }

    /// A target waits for something that it reads itself.
    pub fn demanded(&mut self, device: usize, servers: usize, wait: u64) {
        self.demands += 1;
        self.longest_wait = self.longest_wait.max(wait);
        if self.ended.get(&device).is_some_and(|ended| *ended >= SETTLED) {
            let there = self.asked.get(&device).copied().unwrap_or(0);
            let met = self.met.entry(device).or_default();
            *met = (met.0 + there as f64 / servers as f64, met.1 + 1);
        }
    }

    /// Returns the requests that all demands met at devices that seek, or at others: sum and count.
    pub fn met_in_all(&self) -> (f64, u64) {
        let sum = |(sum, count), (more, further)| (sum + more, count + further);
        self.met.values().copied().fold((0.0, 0), sum)
    }

    /// Returns the mean number of requests that demands met, at worst of all devices where enough
    /// of them came.
    pub fn met(&self) -> f64 {
        self.means_met().map(|(mean, _)| mean).fold(0.0, f64::max)
    }

    /// Returns the mean number of requests that demands met on each device where enough of them
    /// came, and the number of these.
    fn means_met(&self) -> impl Iterator<Item = (f64, u64)> {
        let enough = self.met.values().filter(|(_, count)| *count >= MET_TELLING);
        enough.map(|&(sum, count)| (sum / count as f64, count))
    }

    /// Checks the end: all programs have ended, and their clients have gone.
    pub fn over(&mut self, scheduler: &Scheduler<File>) {
        let most = |count| if count < MET_FEW { 2.0 * MET_MOST } else { MET_MOST };
        let met = self.means_met().all(|(mean, count)| mean <= most(count));
        self.must(met, "demands met too many prefetches");
        self.must(self.open.is_empty(), "a hint was neither done nor forgotten");
        let empty = scheduler.queue.len() == 0 && scheduler.queue.ready() == 0;
        self.must(empty && scheduler.startable() == 0, "something is left in the queue");
        self.must(scheduler.limits.in_flight() == 0, "something is left in flight");
        self.must(self.in_flight.values().all(|there| *there == 0), "a job has not ended");
    }
}
