//! Tests of pipe tails in one thread.

use std::boxed::Box;
use std::vec::Vec;

use super::{TestHost, owner, session};
use crate::{Host, Id, Pipe, Resolution, Session, TailFront, TailRead, TailUnavailable};

const PIPE: Pipe = Pipe::new(1, 2);
const OTHER: Pipe = Pipe::new(1, 3);

struct World {
    session: Box<Session>,
    writer: TestHost,
    reader: TestHost,
    held: core::cell::Cell<u64>,
}

fn world() -> World {
    let writer = TestHost::new(1);
    let reader = writer.beside(2);
    World { session: session(), writer, reader, held: 0.into() }
}

impl World {
    fn open(&self) -> Id {
        let id = self
            .session
            .table
            .open(self.writer.current_thread(), 0, |_| true)
            .expect("there is room");
        self.session.table.assign_order(id);
        id
    }

    /// Writes the next call of `len` bytes and returns its position.
    fn write(&self, pipe: Pipe, id: Id, len: usize) -> Result<u64, TailUnavailable> {
        let held = self.held.get();
        let bytes: Vec<u8> = (0..len).map(|n| (n as u64 + held) as u8).collect();
        let (one, other) = bytes.split_at(len / 3);
        self.session.tails.write(pipe, id, held, &[one, other], &self.writer)?;
        self.held.set(held + 1);
        Ok(held)
    }

    fn peek(&self, one: &TestHost) -> TailFront {
        self.session.tails.peek(PIPE, one, || true)
    }

    fn depend(&self, id: Id) -> bool {
        self.session.tails.depend(PIPE, id, &self.session.table, &self.reader)
    }

    fn read_into(&self, id: Id, room: u64, to: &mut Vec<u8>) -> TailRead {
        let give = |bytes: &[u8]| {
            to.extend_from_slice(bytes);
            true
        };
        let Session { table, tails, .. } = &*self.session;
        tails.read((PIPE, id, room), table, &self.reader, || true, give)
    }

    fn read(&self, id: Id, room: u64) -> TailRead {
        self.read_into(id, room, &mut Vec::new())
    }

    fn begin_release(&self, held: u64) -> u64 {
        self.session.tails.begin_release(PIPE, held, &self.writer)
    }

    fn read_output_is_released(&self, id: Id) -> bool {
        self.session.tails.read_output_is_released(id, &self.session.table, &self.reader)
    }
}

#[test]
fn a_tail_yields_the_bytes_that_were_written() {
    let world = world();
    let id = world.open();
    assert_eq!(world.peek(&world.reader), TailFront::Nothing);
    // More than once around the ring.
    for n in 0..40 {
        let (one, other) = (world.write(PIPE, id, 3000), world.write(PIPE, id, 5000));
        assert_eq!(world.peek(&world.reader), TailFront::DependsOn(id));
        assert!(n > 0 || world.depend(id));
        let mut bytes = Vec::new();
        assert_eq!(world.read_into(id, 9000, &mut bytes), TailRead::Bytes(8000));
        let held = one.expect("there is room");
        let right = (0..3000).map(|n| (n + held) as u8);
        let right = right.chain((0..5000).map(|n| (n + held + 1) as u8));
        assert!(bytes.into_iter().eq(right), "round {n}");
        for (held, len) in [(held, 3000), (other.expect("there is room"), 5000)] {
            assert_eq!(world.begin_release(held), len);
            world.session.tails.end_release(PIPE, held, &world.writer);
        }
    }
    assert!(world.session.tails.any_used(), "the reader still uses it");
    world.session.tails.stop_reading(&world.reader);
    assert!(!world.session.tails.any_used());
}

#[test]
fn a_small_call_is_read_whole_or_not_at_all() {
    let world = world();
    let id = world.open();
    let held = [100, 4096, 4097].map(|len| world.write(PIPE, id, len).expect("there is room"));
    assert_eq!(world.read(id, 99), TailRead::Retry);
    assert_eq!(world.read(id, 4195), TailRead::Bytes(100), "the second does not fit");
    assert_eq!(world.read(id, 4100), TailRead::Bytes(4100), "the third is read in part");
    assert_eq!(
        held.map(|held| world.begin_release(held)),
        [100, 0, 0],
        "only the first call was read"
    );
    world.session.tails.end_release(PIPE, held[0], &world.writer);
    assert_eq!(world.begin_release(held[1]), 4096);
    world.session.tails.end_release(PIPE, held[1], &world.writer);
    assert_eq!(world.begin_release(held[2]), 4);
    assert_eq!(world.read(id, 9000), TailRead::Retry, "the rest is being written");
}

/// Between the two calls the writer wrote to another pipe, which may wait for the reader.
#[test]
fn one_read_does_not_span_other_output_of_the_writer() {
    let world = world();
    let id = world.open();
    world.write(PIPE, id, 10).expect("there is room");
    world.write(OTHER, id, 10).expect("there is room");
    world.write(PIPE, id, 20).expect("there is room");
    world.write(PIPE, id, 30).expect("there is room");
    assert_eq!([100; 2].map(|room| world.read(id, room)), [10, 50].map(TailRead::Bytes));
}

#[test]
fn the_pipe_is_read_before_its_tail() {
    let world = world();
    let id = world.open();
    world.write(PIPE, id, 10).expect("there is room");
    let Session { table, tails, .. } = &*world.session;
    assert_eq!(tails.peek(PIPE, &world.reader, || false), TailFront::Nothing);
    let taken = tails.read((PIPE, id, 10), table, &world.reader, || false, |_| true);
    assert_eq!(taken, TailRead::Retry);
}

#[test]
fn data_that_cannot_be_copied_is_not_consumed() {
    let world = world();
    let id = world.open();
    world.write(PIPE, id, 10).expect("there is room");
    world.write(PIPE, id, 10).expect("there is room");
    let Session { table, tails, .. } = &*world.session;
    let mut room = 0;
    let mut take = |more: usize| {
        room += more;
        let give = |bytes: &[u8]| bytes.len() <= core::mem::take(&mut room);
        tails.read((PIPE, id, 20), table, &world.reader, || true, give)
    };
    assert_eq!(take(0), TailRead::Fault);
    assert_eq!(take(10), TailRead::Bytes(10), "not the second call");
    assert_eq!(world.read(id, 20), TailRead::Bytes(10));
}

#[test]
fn a_tail_has_one_writer_and_one_reader_at_a_time() {
    let world = world();
    let id = world.open();
    let [other, third] = [3, 4].map(|process| world.writer.beside(process));
    let held = world.write(PIPE, id, 10).expect("there is room");
    let tails = &world.session.tails;
    assert_eq!(tails.write(PIPE, Id(99), 0, &[b"x"], &other), Err(TailUnavailable));
    assert_eq!(world.read(id, 10), TailRead::Bytes(10));
    world.write(PIPE, id, 10).expect("there is room");
    assert_eq!(
        (world.peek(&third), world.peek(&world.reader)),
        (TailFront::Nothing, TailFront::DependsOn(id))
    );
    tails.roll_back(PIPE, held, &other);
    assert_eq!(
        world.peek(&world.reader),
        TailFront::DependsOn(id),
        "only the writer rolls it back"
    );
    tails.stop_reading(&world.reader);
    assert_eq!(world.peek(&third), TailFront::DependsOn(id));
    tails.roll_back(PIPE, 0, &world.writer);
    assert_eq!(tails.write(PIPE, Id(99), 0, &[b"x"], &other), Ok(()));
}

#[test]
fn writes_beyond_the_limits_are_refused() {
    let world = world();
    let id = world.open();
    assert_eq!(world.write(PIPE, id, 0), Err(TailUnavailable));
    assert_eq!(world.write(PIPE, id, (64 << 10) + 1), Err(TailUnavailable));
    assert!(world.write(PIPE, id, 64 << 10).is_ok());
    assert_eq!(world.write(PIPE, id, 1), Err(TailUnavailable));
    world.session.tails.roll_back(PIPE, 0, &world.writer);
    let calls = (0..1000).take_while(|_| world.write(PIPE, id, 1).is_ok()).count();
    assert_eq!(calls, 512);
    let tails = |n| world.write(Pipe::new(7, n), id, 1).is_ok();
    assert_eq!((0..1000).take_while(|n| tails(*n)).count(), 63, "63 tails besides the first");
}

#[test]
fn rolled_back_data_disappears() {
    let world = world();
    let [below, above] = [world.open(), world.open()];
    world.write(PIPE, below, 10).expect("there is room");
    let held = world.write(PIPE, above, 20).expect("there is room");
    assert!(world.depend(below) && !world.depend(above), "the second is not next");
    assert_eq!(world.read(below, 100), TailRead::Bytes(10), "none of the next call");
    assert_eq!(
        (world.read(below, 100), world.peek(&world.reader)),
        (TailRead::Retry, TailFront::DependsOn(above))
    );
    world.session.table.resolve(above, Resolution::RolledBack);
    assert!(!world.depend(above), "it is resolved");
    assert_eq!(world.read(above, 100), TailRead::Retry);
    world.session.tails.roll_back(PIPE, held, &world.writer);
    assert_eq!(world.peek(&world.reader), TailFront::Nothing);
    assert_eq!(world.begin_release(0), 10, "data below is unchanged");
}

#[test]
fn a_settler_does_not_depend_on_what_it_settles() {
    let world = world();
    let this = world.writer.current_thread();
    let settler = world.reader.current_thread().process;
    let id = world.session.table.open(this, settler, |_| true).expect("there is room");
    world.write(PIPE, id, 10).expect("there is room");
    assert!(!world.depend(id));
}

/// Released means that the writer has written everything before the data that was read.
#[test]
fn read_output_is_released_once_its_writer_has_written_it() {
    let world = world();
    let [below, above] = [world.open(), world.open()];
    let held = [(below, 10), (below, 5000), (above, 10)]
        .map(|(id, len)| world.write(PIPE, id, len).expect("there is room"));
    assert!(world.read_output_is_released(below), "nothing was read");
    assert_eq!(world.read(below, 5000), TailRead::Bytes(5000));
    assert_eq!(world.begin_release(held[0]), 10);
    world.session.tails.end_release(PIPE, held[0], &world.writer);
    assert!(
        !world.read_output_is_released(below),
        "output before the read part may not be written"
    );
    assert_eq!(world.read(below, 5000), TailRead::Bytes(10));
    assert_eq!(world.read(above, 5000), TailRead::Bytes(10));
    assert_eq!(world.begin_release(held[1]), 5000);
    assert!(!world.read_output_is_released(below));
    world.session.tails.end_release(PIPE, held[1], &world.writer);
    assert!(world.read_output_is_released(below) && !world.read_output_is_released(above));
}

#[test]
fn a_partly_read_call_is_released_once_its_rest_is_being_written() {
    let world = world();
    let id = world.open();
    let held = world.write(PIPE, id, 5000).expect("there is room");
    assert_eq!(world.read(id, 100), TailRead::Bytes(100));
    assert!(!world.read_output_is_released(id));
    assert_eq!(world.begin_release(held), 100);
    assert!(world.read_output_is_released(id));
}

#[test]
fn data_of_a_dead_writer_is_dropped() {
    let world = world();
    let id = world.open();
    world.write(PIPE, id, 10).expect("there is room");
    world.writer.kill();
    assert_eq!((world.depend(id), world.peek(&world.reader)), (false, TailFront::Nothing));
    assert!(!world.session.tails.any_used());
}

#[test]
fn a_dead_reader_makes_way_for_others() {
    let world = world();
    let id = world.open();
    let held = world.write(PIPE, id, 10).expect("there is room");
    world.write(PIPE, id, 10).expect("there is room");
    assert_eq!(world.read(id, 10), TailRead::Bytes(10));
    let other = world.writer.beside(3);
    assert_eq!(world.peek(&other), TailFront::Nothing);
    world.reader.kill();
    assert_eq!(world.peek(&other), TailFront::DependsOn(id));
    assert_eq!(world.begin_release(held), 10, "data read by a dead process counts as read");
}

#[test]
fn a_waiter_is_poked_for_its_pipe_until_removed() {
    let world = world();
    let id = world.open();
    let tails = &world.session.tails;
    assert!(tails.add_waiter(PIPE, &world.reader));
    world.write(OTHER, id, 1).expect("there is room");
    assert_eq!(world.writer.take_poked(), []);
    world.write(PIPE, id, 1).expect("there is room");
    assert_eq!(world.writer.take_poked(), [owner(2)]);
    assert_eq!((tails.remove_waiter(&world.reader), tails.remove_waiter(&world.reader)), (1, 0));
    world.write(PIPE, id, 1).expect("there is room");
    assert_eq!((world.writer.take_poked(), tails.has_waiters()), (std::vec![], false));
}

#[test]
fn a_dead_waiter_frees_its_entry() {
    let world = world();
    let tails = &world.session.tails;
    let others: Vec<TestHost> = (100..300).map(|process| world.writer.beside(process)).collect();
    let waiting = others.iter().take_while(|other| tails.add_waiter(PIPE, *other)).count();
    assert_eq!(waiting, 128);
    others[5].kill();
    assert!(tails.add_waiter(PIPE, &world.reader) && !tails.add_waiter(PIPE, &others[150]));
    others[..waiting].iter().for_each(|other| _ = tails.remove_waiter(other));
    assert_eq!(tails.remove_waiter(&world.reader), 1);
    assert!(!tails.has_waiters());
}
