//! Tests of handshakes between concurrent processes, as threads.
//!
//! The memory must be valid as zeroes, so its atomics cannot be those of a model checker. Many
//! rounds stand in for all orders, and a failure names its seed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use std::vec::Vec;

use super::{owner, session};
use crate::{Host, Id, Owner, Pipe, Resolution, Session, TailFront, TailRead};

const PIPE: Pipe = Pipe::new(3, 4);
const ROUNDS: u32 = 2000;

/// Processes that run: which have ended, and how often each was poked.
#[derive(Default)]
struct Processes {
    dead: [AtomicBool; 8],
    poked: [AtomicU32; 8],
    /// Processes that must not be poked any more.
    has_left: [AtomicBool; 8],
    late_pokes: AtomicU32,
}

struct Running<'a>(u32, &'a Processes);

impl Host for Running<'_> {
    fn current_thread(&self) -> Owner {
        owner(self.0)
    }

    fn is_alive(&self, owner: Owner) -> bool {
        !self.1.dead[owner.process as usize].load(SeqCst)
    }

    fn pause(&self) {
        thread::yield_now();
    }

    fn poke(&self, whom: Owner) {
        let whom = whom.process as usize;
        // A signal takes time to arrive.
        (0..300).for_each(|_| core::hint::spin_loop());
        self.1.late_pokes.fetch_add(self.1.has_left[whom].load(SeqCst).into(), SeqCst);
        self.1.poked[whom].fetch_add(1, SeqCst);
    }
}

/// True for rounds in which one thread waits for the other, so that both meet whatever the
/// scheduling.
fn is_lockstep(round: u32) -> bool {
    round.is_multiple_of(8)
}

/// Lets the other thread go first, by a random time.
fn spin_randomly(random: &mut fastrand::Rng) {
    let most = 1 << random.u32(..12);
    (0..random.u32(..most)).for_each(|_| core::hint::spin_loop());
}

/// Waits until `holds` is true. A lost poke makes this fail after 20 seconds.
fn until(what: &str, holds: impl Fn() -> bool) {
    const SPINS: u32 = 1000;
    let mut spins = 0;
    let began = Instant::now();
    while !holds() {
        spins += 1;
        if spins % SPINS == 0 {
            thread::yield_now();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        core::hint::spin_loop();
    }
}

/// Runs two functions concurrently, in many rounds.
fn run_both(
    one: impl Fn(u32, &mut fastrand::Rng) + Sync,
    other: impl Fn(u32, &mut fastrand::Rng) + Sync,
) {
    let (seed, there) = (runahead_harness::seed(), AtomicU32::new(0));
    let run = |work: &(dyn Fn(u32, &mut fastrand::Rng) + Sync), seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..ROUNDS {
            // A thread that yields would come only after the other has finished.
            there.fetch_add(1, SeqCst);
            until("the other thread does not come", || there.load(SeqCst) >= 2 * (round + 1));
            spin_randomly(&mut random);
            work(round, &mut random);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&one, seed));
        run(&other, !seed);
    });
}

/// A dependent is poked until it leaves. After that no poke arrives.
#[test]
fn no_poke_arrives_after_a_dependent_has_left() {
    let (session, all) = (session(), Processes::default());
    let (table, owns, depends) = (&session.table, Running(1, &all), Running(2, &all));
    let ids: Vec<Id> =
        (0..ROUNDS).map(|_| table.open(owner(1), 0, |_| true).expect("there is room")).collect();
    let id = |round: u32| ids[round as usize];
    let met = AtomicU32::new(0);
    let tells = |round, random: &mut fastrand::Rng| {
        if is_lockstep(round) {
            until("no process depends on it", || met.load(SeqCst) > round);
        }
        table.poke_dependents(id(round), &owns);
        spin_randomly(random);
        table.resolve(id(round), Resolution::Committed);
        table.poke_dependents(id(round), &owns);
        table.close(id(round));
    };
    let leaves = |round, random: &mut fastrand::Rng| {
        let before = all.poked[2].load(SeqCst);
        all.has_left[2].store(false, SeqCst);
        assert!(table.depend(id(round), owner(2)));
        met.store(round + 1, SeqCst);
        if is_lockstep(round) {
            until("the dependent is not poked", || all.poked[2].load(SeqCst) != before);
        }
        spin_randomly(random);
        table.leave(id(round), &depends);
        all.has_left[2].store(true, SeqCst);
        until("the slot is not free", || table.is_free(id(round)));
    };
    run_both(tells, leaves);
    assert_eq!(all.late_pokes.load(SeqCst), 0, "a poke arrived after the dependent had left");
    assert!(all.poked[2].load(SeqCst) > 0, "no poke was ever sent");
}

/// A waiter that finds no data is poked when there is some.
#[test]
fn a_waiter_is_poked_when_data_is_written() {
    let (session, all) = (session(), Processes::default());
    let (writes, waits, tails) = (Running(1, &all), Running(2, &all), &session.tails);
    let id = session.table.open(owner(1), 0, |_| true).expect("there is room");
    let written = |round, _: &mut fastrand::Rng| {
        assert_eq!(tails.write(PIPE, id, round, &[b"some"], &writes), Ok(()));
    };
    let waited = |_, random: &mut fastrand::Rng| {
        let before = all.poked[2].load(SeqCst);
        assert!(tails.add_waiter(PIPE, &waits));
        spin_randomly(random);
        if tails.peek(PIPE, &waits, || true) == TailFront::Nothing {
            until("no waiter was poked", || all.poked[2].load(SeqCst) != before);
        }
        until("the data does not appear", || {
            tails.peek(PIPE, &waits, || true) == TailFront::DependsOn(id)
        });
        assert_eq!(tails.remove_waiter(&waits), 1);
        all.has_left[2].store(true, SeqCst);
        spin_randomly(random);
        all.has_left[2].store(false, SeqCst);
        until("the tail is not rolled back", || {
            tails.roll_back(PIPE, 0, &writes);
            !tails.any_used()
        });
    };
    run_both(|round, random| written(round.into(), random), waited);
    assert_eq!(all.late_pokes.load(SeqCst), 0, "a poke arrived after the waiter had left");
    assert!(!tails.has_waiters());
}

/// Data that one thread writes, rolls back and commits while another reads is read exactly once.
#[test]
fn concurrent_reads_releases_and_rollbacks_lose_and_duplicate_nothing() {
    let (session, all) = (session(), Processes::default());
    let Session { table, tails, .. } = &*session;
    let (writes, reads) = (Running(1, &all), Running(2, &all));
    let (came, gone, met) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let writer = |round: u32, random: &mut fastrand::Rng| {
        let id = table.open(owner(1), 0, |_| true).expect("there is room");
        table.assign_order(id);
        let held = u64::from(round);
        assert_eq!(tails.write(PIPE, id, held, &[&[round as u8; 100]], &writes), Ok(()));
        if is_lockstep(round) {
            until("no process reads it", || met.load(SeqCst) > round);
        }
        spin_randomly(random);
        let is_right = random.bool();
        table.resolve(id, if is_right { Resolution::Committing } else { Resolution::RolledBack });
        if is_right {
            let read = tails.begin_release(PIPE, held, &writes);
            assert!(read == 0 || read == 100, "a small call was torn");
            came.fetch_add((read > 0).into(), SeqCst);
            tails.end_release(PIPE, held, &writes);
            table.resolve(id, Resolution::Committed);
        } else {
            tails.roll_back(PIPE, held, &writes);
        }
        table.poke_dependents(id, &writes);
        table.close(id);
    };
    let reader = |round: u32, random: &mut fastrand::Rng| {
        let ahead = || tails.peek(PIPE, &reads, || true);
        if is_lockstep(round) {
            until("nothing is written", || ahead() != TailFront::Nothing);
        }
        let TailFront::DependsOn(id) = ahead() else { return };
        spin_randomly(random);
        if !tails.depend(PIPE, id, table, &reads) {
            return;
        }
        let mut bytes = Vec::new();
        let give = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            true
        };
        let taken = tails.read((PIPE, id, 200), table, &reads, || true, give);
        met.store(round + 1, SeqCst);
        let is_all = taken == TailRead::Bytes(100) && bytes == [round as u8; 100];
        assert!(is_all || taken == TailRead::Retry, "{taken:?} in round {round}");
        until("the owner does not resolve it", || {
            matches!(table.resolution(id), Resolution::Committed | Resolution::RolledBack)
        });
        let is_read = is_all && table.resolution(id) == Resolution::Committed;
        gone.fetch_add(is_read.into(), SeqCst);
        table.leave(id, &reads);
        tails.stop_reading(&reads);
    };
    run_both(writer, reader);
    assert_eq!(
        came.load(SeqCst),
        gone.load(SeqCst),
        "writer and reader disagree on the bytes read"
    );
    assert!(gone.load(SeqCst) > 0, "nothing was ever read");
    tails.stop_reading(&reads);
    assert!(!tails.any_used());
}

/// Data that is appended during a read is complete as soon as it is visible, and in order.
#[test]
fn concurrent_appends_are_read_whole_and_in_order() {
    const CALLS: u64 = 40;
    let (session, all) = (session(), Processes::default());
    let Session { table, tails, .. } = &*session;
    let (writes, reads) = (Running(1, &all), Running(2, &all));
    let done = AtomicU32::new(0);
    // Bytes of a call: the length and the value depend on its number.
    let call = |round: u32, n: u64| std::vec![round as u8 ^ n as u8; 1 + (n as usize * 37) % 700];
    let writer = |round: u32, random: &mut fastrand::Rng| {
        let id = table.open(owner(1), 0, |_| true).expect("there is room");
        table.assign_order(id);
        for n in 0..CALLS {
            assert_eq!(tails.write(PIPE, id, n, &[&call(round, n)], &writes), Ok(()));
            (0..random.u32(..200)).for_each(|_| core::hint::spin_loop());
        }
        until("not all of it is read", || done.load(SeqCst) > round);
        table.resolve(id, Resolution::Committing);
        for n in 0..CALLS {
            assert_eq!(tails.begin_release(PIPE, n, &writes), call(round, n).len() as u64);
            tails.end_release(PIPE, n, &writes);
        }
        table.resolve(id, Resolution::Committed);
        table.poke_dependents(id, &writes);
        table.close(id);
    };
    let reader = |round: u32, _: &mut fastrand::Rng| {
        let ahead = || tails.peek(PIPE, &reads, || true);
        until("nothing is written", || ahead() != TailFront::Nothing);
        let TailFront::DependsOn(id) = ahead() else { panic!("the data is gone") };
        assert!(tails.depend(PIPE, id, table, &reads));
        let (mut bytes, whole) = (Vec::new(), (0..CALLS).flat_map(|n| call(round, n)));
        let whole: Vec<u8> = whole.collect();
        let began = Instant::now();
        while bytes.len() < whole.len() {
            let give = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                true
            };
            tails.read((PIPE, id, 1 << 16), table, &reads, || true, give);
            assert!(bytes == whole[..bytes.len()], "other bytes were read in round {round}");
            assert!(began.elapsed() < Duration::from_secs(20), "the data is incomplete");
        }
        done.store(round + 1, SeqCst);
        until("it is not committed", || table.resolution(id) == Resolution::Committed);
        table.leave(id, &reads);
        tails.stop_reading(&reads);
        until("the tail is still in use", || !tails.any_used());
    };
    run_both(writer, reader);
}

/// At most one of two concurrent first writers succeeds.
#[test]
fn a_pipe_has_one_tail() {
    let (session, all) = (session(), Processes::default());
    let (tails, done) = (&session.tails, AtomicU32::new(0));
    let heard = AtomicU32::new(0);
    let work = |process: u32, round: u32| {
        let host = Running(process, &all);
        let is_heard = tails.write(PIPE, Id(1), 0, &[b"some"], &host).is_ok();
        heard.fetch_add(is_heard.into(), SeqCst);
        done.fetch_add(1, SeqCst);
        until("the other does not write", || done.load(SeqCst) >= 2 * (round + 1));
        tails.roll_back(PIPE, 0, &host);
        done.fetch_add(1, SeqCst);
    };
    let both_done = |round: u32| {
        until("the other does not end", || done.load(SeqCst) == 4 * (round + 1));
        assert!(heard.load(SeqCst) <= round + 1, "both writes succeeded");
        assert!(!tails.any_used(), "one tail was not rolled back");
    };
    run_both(
        |round, _| {
            work(1, 2 * round);
            both_done(round);
        },
        |round, _| {
            work(3, 2 * round);
            both_done(round);
        },
    );
}

/// A process that is killed while it has a tail locked does not keep the lock.
#[test]
fn the_lock_of_a_dead_process_is_broken() {
    let (session, all) = (session(), Processes::default());
    let Session { table, tails, .. } = &*session;
    let (writes, reads, other) = (Running(1, &all), Running(2, &all), Running(3, &all));
    let id = table.open(owner(1), 0, |_| true).expect("there is room");
    assert_eq!(tails.write(PIPE, id, 0, &[b"some"], &writes), Ok(()));
    let (has_it, is_locked) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let reads = &reads;
        scope.spawn(move || {
            let give = |_: &[u8]| {
                has_it.send(()).expect("the other thread waits");
                // It stays locked, as by a dead process.
                ends.recv().is_ok()
            };
            tails.read((PIPE, id, 10), table, reads, || true, give)
        });
        is_locked.recv().expect("the reader has the lock");
        assert_eq!(
            tails.peek(PIPE, &other, || true),
            TailFront::Nothing,
            "another process has the lock"
        );
        all.dead[2].store(true, SeqCst);
        assert_eq!(tails.peek(PIPE, &other, || true), TailFront::DependsOn(id));
        drop(end);
    });
}
