//! Hands a recorded run to the prefetcher, in its order.
//!
//! A thread of its own goes through the record, ahead of where the command is ([`Follower`]) by no more than
//! [`WINDOW`] accesses (fewer, where it has yet to prove right) and the bytes that memory allows ([`crate::budget`]). It starts before the command
//! has been executed. What the command has done already is left out.
//!
//! A file's data is asked for when its name has arrived, and the attributes that came with it are those of
//! the record: a file that has changed is looked up and no more. Where memory does not tell them (a server
//! has to be asked again), it is read all the same.
//!
//! Invariants: the thread never waits for storage; all that is asked for is a hint like any other, so
//! that it only reads; when the replay is given up, what waits is cancelled and nothing more comes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runahead_abi::record::Header;
use runahead_abi::{Identity, Record};
use runahead_history::{Follower, Run, What};
use runahead_prefetch::{Client, Completion, Prefetcher, Sink};

use super::{Followed, History, lock, places};
use crate::{budget, signals};

/// Accesses that a replay may be ahead of the command.
const WINDOW: usize = 4096;
/// The same at first where the record is of another command line. It grows by one with each access that
/// is found in it: programs begin much alike.
const WINDOW_ON_TRIAL: usize = 64;
/// So many of its accesses have to be found in the record, or so much it has to come forward, before the
/// replay looks again.
const STEPS: (u64, usize) = (16, 64);
/// Between two looks while something waits in the prefetcher, and when nothing does.
const NAPS: (Duration, Duration) = (Duration::from_micros(300), Duration::from_millis(50));
/// Names of places as log keys; nothing that the prefetcher derives from one is likely to be another.
const FIRST_KEY: u64 = 1 << 40;
const STACK_BYTES: usize = 256 * 1024;

/// What the replay is woken for.
pub(super) enum Event {
    /// The command has come forward.
    Moved,
    /// A place has been looked up.
    Looked(u32),
    /// It was not to be.
    Refused(u32),
    /// It is over.
    GiveUp,
}

/// By which the replay is reached, and what it says of itself.
pub(super) struct Listener {
    sender: Sender<Event>,
    receiver: Mutex<Option<Receiver<Event>>>,
    /// Accesses that were asked for.
    pub(super) asked: AtomicU64,
    /// Files that are other ones now.
    pub(super) changed: AtomicU64,
}

impl Listener {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        let (asked, changed) = (AtomicU64::new(0), AtomicU64::new(0));
        Listener { sender, receiver: Mutex::new(Some(receiver)), asked, changed }
    }

    pub(super) fn tell(&self, event: Event) {
        // Nobody listens when the replay is over.
        let _ = self.sender.send(event);
    }
}

/// Whether the replay is to hear of it that the command, which was there, is where `follower` says.
pub(super) fn moves_on((place, matched): (usize, u64), follower: &Follower) -> bool {
    follower.place() / STEPS.1 != place / STEPS.1
        || follower.matched() / STEPS.0 != matched / STEPS.0
}

/// Told by the prefetcher.
struct Ear {
    sender: Sender<Event>,
    places: u64,
}

impl Ear {
    fn place(&self, key: Identity) -> Option<u32> {
        let number = key.raw().checked_sub(FIRST_KEY)?;
        (number < self.places).then_some(number as u32)
    }
}

impl Sink for Ear {
    fn done(&self, key: Identity) {
        self.place(key).into_iter().for_each(|place| _ = self.sender.send(Event::Looked(place)));
    }

    fn forget(&self, key: Identity, _: u32) {
        self.place(key).into_iter().for_each(|place| _ = self.sender.send(Event::Refused(place)));
    }

    fn expect(&self, _: Identity, _: u32) -> bool {
        false
    }

    fn completed(&self, _: &Completion) {}
}

/// What is known of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Not,
    UnderWay,
    Same,
    Other,
}

struct Replay {
    history: Arc<History>,
    run: Arc<Run>,
    client: Client,
    looks: Vec<Look>,
    /// Whether data of a place is in the record.
    has_data: Vec<bool>,
    /// Accesses that wait for their place to be looked up.
    waiting: HashMap<u32, Vec<usize>>,
    next: usize,
    /// Bytes of all accesses before each.
    bytes_before: Vec<u64>,
    budget: u64,
}

/// Starts the thread. Without it nothing is replayed.
pub(super) fn start(history: Arc<History>, prefetcher: Arc<Prefetcher>) {
    let work = move || {
        signals::block_all();
        let Some(followed) = &history.followed else { return };
        let Some(events) = lock(&followed.listener.receiver).take() else { return };
        let sender = followed.listener.sender.clone();
        let places = followed.run.places.len() as u64;
        let client = prefetcher.client(Arc::new(Ear { sender, places }));
        Replay::new(history.clone(), followed.run.clone(), client).work(&prefetcher, &events);
    };
    let thread = std::thread::Builder::new().name("replay".into()).stack_size(STACK_BYTES);
    let _ = thread.spawn(work);
}

impl Replay {
    fn new(history: Arc<History>, run: Arc<Run>, client: Client) -> Self {
        let mut sum = 0u64;
        let before = run.accesses.iter().map(|access| {
            let before = sum;
            sum += access.what.bytes();
            before
        });
        let mut has_data = vec![false; run.places.len()];
        let data = run.accesses.iter().filter(|access| access.what.bytes() > 0);
        data.for_each(|access| has_data[access.place as usize] = true);
        Replay {
            has_data,
            bytes_before: before.collect(),
            looks: vec![Look::Not; run.places.len()],
            waiting: HashMap::new(),
            next: 0,
            budget: budget::bytes(),
            history,
            run,
            client,
        }
    }

    fn work(mut self, prefetcher: &Prefetcher, events: &Receiver<Event>) {
        let history = self.history.clone();
        let Some(followed) = &history.followed else { return };
        self.go_on(followed);
        loop {
            let idle = !prefetcher.kick();
            let mut event = match events.recv_timeout(if idle { NAPS.1 } else { NAPS.0 }) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => {
                    // What is under way after so long is not worth an entry in every log.
                    if idle {
                        followed.settled.store(self.next, Relaxed);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(one) = event {
                match one {
                    Event::Moved => {}
                    Event::Looked(place) => self.looked(followed, place),
                    Event::Refused(place) => self.refused(place),
                    Event::GiveUp => return self.give_up(followed),
                }
                event = events.try_recv().ok();
            }
            self.go_on(followed);
        }
    }

    /// Asks for all that the window allows.
    fn go_on(&mut self, followed: &Followed) {
        let (place, matched) = {
            let follower = lock(&followed.follower);
            (follower.place(), follower.matched())
        };
        let window = match self.history.plan.is_own {
            true => WINDOW,
            false => WINDOW.min(WINDOW_ON_TRIAL + matched as usize),
        };
        let end = place + window;
        self.next = self.next.max(place);
        let first = self.bytes_before.get(place).copied().unwrap_or(0);
        while self.next < end.min(self.run.accesses.len()) {
            let ahead = self.bytes_before[self.next] - first;
            if ahead > self.budget {
                break;
            }
            self.reach(followed, self.next);
            self.next += 1;
            followed.reached.store(self.next, Relaxed);
        }
    }

    /// Comes to an access.
    fn reach(&mut self, followed: &Followed, number: usize) {
        let access = self.run.accesses[number];
        if lock(&followed.follower).is_passed(number) {
            return;
        }
        let is_data = matches!(access.what, What::Data { .. });
        if is_data && self.run.place(&access).attributes.is_some() {
            match self.looks[access.place as usize] {
                Look::Same => {}
                Look::Other => return,
                look => {
                    self.waiting.entry(access.place).or_default().push(number);
                    if look == Look::Not {
                        self.submit(number, What::Look);
                    }
                    return;
                }
            }
        }
        self.ask(followed, number);
    }

    fn ask(&mut self, followed: &Followed, number: usize) {
        lock(&followed.follower).has_sent(number);
        self.history.expect_everywhere(followed, number);
        followed.listener.asked.fetch_add(1, Relaxed);
        self.submit(number, self.run.accesses[number].what);
    }

    fn submit(&mut self, number: usize, what: What) {
        let access = self.run.accesses[number];
        let look = &mut self.looks[access.place as usize];
        if what == What::Look && *look == Look::Not {
            *look = Look::UnderWay;
        }
        let (kind, flags) = what.hint();
        let (offset, length) = match what {
            What::Data { offset, length } => (offset, length),
            _ => (0, 0),
        };
        let path = &self.run.place(&access).path[..];
        let header = Header {
            kind: kind as u32,
            run: 0,
            position: number as u64,
            key: FIRST_KEY + u64::from(access.place),
            offset,
            length,
            flags,
            route: 0,
            path_len: path.len() as u32,
        };
        self.client.submit(&Record { kind, header, path });
    }

    fn looked(&mut self, followed: &Followed, place: u32) {
        let look = &mut self.looks[place as usize];
        if !matches!(look, Look::Not | Look::UnderWay) {
            return;
        }
        let place_of = &self.run.places[place as usize];
        let known = place_of.attributes.as_ref().filter(|_| self.has_data[place as usize]);
        let same = known.is_none_or(|known| places::is_same(&place_of.path, known) != Some(false));
        *look = if same { Look::Same } else { Look::Other };
        let waiting = self.waiting.remove(&place).unwrap_or_default();
        if !same {
            followed.listener.changed.fetch_add(1, Relaxed);
            lock(&followed.follower).has_changed(place);
            return;
        }
        for number in waiting {
            if !lock(&followed.follower).is_passed(number) {
                self.ask(followed, number);
            }
        }
    }

    /// Too much waits: what depends on it is left to the command.
    fn refused(&mut self, place: u32) {
        self.looks[place as usize] = Look::Not;
        self.waiting.remove(&place);
    }

    fn give_up(self, followed: &Followed) {
        self.client.drop_queued_before(u32::MAX);
        let pending: Vec<usize> = {
            let follower = lock(&followed.follower);
            (0..self.next).filter(|&number| follower.is_pending(number)).collect()
        };
        pending.iter().for_each(|&number| self.history.forget_everywhere(followed, number));
    }
}
