//! Reads from pipes, and dependencies on the data in their tails.

use super::process::{Activity, Sleep};
use super::program::Operation;
use super::simulated_world::{Plant, World, pipe};
use crate::{Id, TailFront, TailRead};

impl World {
    fn is_empty(&self, number: usize) -> bool {
        self.channels[number].bytes.is_empty()
    }

    fn pipe_of(&self, p: usize, input: usize) -> usize {
        self.network.programs[p].inputs[input]
    }

    /// Returns the number of bytes that a call asks for: as many as are needed, or any other
    /// number.
    fn read_size(&mut self, p: usize, input: usize) -> usize {
        let state = &self.processes[p].state;
        match state.next(&self.network.programs[p]) {
            Operation::Read(_, len) if self.is_exact || self.random.bool() => {
                len - state.inbox[input].len()
            }
            _ => self.random.usize(1..9000),
        }
    }

    fn peek(&self, p: usize, number: usize) -> TailFront {
        let seat = &self.processes[p].seat;
        let is_empty = || self.is_empty(number) || self.has(Plant::ReadsTailBeforePipe);
        self.session.tails.peek(pipe(number), seat, is_empty)
    }

    /// Like [`World::peek`]; if there is no data, registers for a poke.
    fn peek_or_wait(&self, p: usize, number: usize) -> TailFront {
        let seat = &self.processes[p].seat;
        self.session.tails.remove_waiter(seat);
        let found = self.peek(p, number);
        if found != TailFront::Nothing || !self.is_empty(number) {
            return found;
        }
        self.session.tails.add_waiter(pipe(number), seat);
        self.peek(p, number)
    }

    /// Handles a read of a process that does not speculate.
    pub fn before_read(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let found = self.peek_or_wait(p, number);
        self.processes[p].doing = match found {
            TailFront::Nothing => Activity::Reads(input),
            TailFront::DependsOn(id) => Activity::Depends(input, id),
        };
    }

    /// Reads from the pipe, or waits for data in it.
    pub fn read_pipe(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let asks = self.read_size(p, input);
        let channel = &mut self.channels[number];
        let room = asks.min(channel.bytes.len());
        let state = &mut self.processes[p].state;
        state.inbox[input].extend(channel.bytes.drain(..room));
        if room == 0 && channel.is_closed {
            state.ended[input] = true;
        } else if room == 0 {
            // A poked process makes the call anew.
            self.processes[p].sleep = Sleep::UntilFilled(number);
            return;
        }
        self.session.tails.remove_waiter(&self.processes[p].seat);
    }

    /// Handles a read of a speculative process.
    pub fn read_speculative(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let TailFront::DependsOn(id) = self.peek_or_wait(p, number) else {
            return self.wait_until_none_open(p);
        };
        self.session.tails.remove_waiter(&self.processes[p].seat);
        let table = &self.session.table;
        let writer = table.owner(id);
        let open = &self.processes[p].open;
        let is_of_writer = |other| table.owner(other) == writer;
        let is_alone = open.iter().all(|open| open.depends_on.is_some_and(is_of_writer));
        let is_alone = is_alone || self.has(Plant::ReadsWithOtherDependencies);
        // Data below what the process has read stays when that is rolled back, and so would the
        // process.
        let takes_any = self.has(Plant::ReadsFromBelow);
        let depends = open.iter().any(|open| open.depends_on == Some(id));
        let last = open.last().and_then(|open| open.depends_on);
        let is_on_top = takes_any || last == Some(id);
        let is_above = takes_any || last.is_none_or(|last| table.is_above(id, last));
        match depends {
            true if is_alone && is_on_top => self.read_tail(p, input, id),
            false if is_alone && is_above => self.processes[p].doing = Activity::Depends(input, id),
            _ => self.wait_until_none_open(p),
        }
    }

    /// Takes a checkpoint, from which on the process depends on `id`.
    pub fn depend(&mut self, p: usize, input: usize, id: Id) {
        let number = self.pipe_of(p, input);
        let is_speculative = !self.processes[p].open.is_empty();
        if self.has(Plant::DoesNotDepend) {
            return self.read_tail(p, input, id);
        }
        let Some(own) = self.open_speculation(p) else { return };
        let (table, tails) = (&self.session.table, &self.session.tails);
        if tails.depend(pipe(number), id, table, &self.processes[p].seat) {
            self.session.tails.remove_waiter(&self.processes[p].seat);
            self.counts.depended += 1;
            return self.push_checkpoint(p, own, 0, Some(id));
        }
        table.close(own);
        self.counts.refused += 1;
        match is_speculative {
            true => self.wait_until_none_open(p),
            false => self.processes[p].doing = Activity::Reads(input),
        }
    }

    fn read_tail(&mut self, p: usize, input: usize, id: Id) {
        let number = self.pipe_of(p, input);
        let room = self.read_size(p, input) as u64;
        let mut bytes = std::vec::Vec::new();
        let seat = &self.processes[p].seat;
        let is_empty = || self.is_empty(number) || self.has(Plant::ReadsTailBeforePipe);
        let give = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            true
        };
        let (table, tails) = (&self.session.table, &self.session.tails);
        let taken = tails.read((pipe(number), id, room), table, seat, is_empty, give);
        match taken {
            TailRead::Bytes(count) => {
                self.must(
                    bytes.len() as u64 == count,
                    "fewer or more bytes were copied than reported",
                );
                self.counts.reads += 1;
                self.counts.partial_reads += u64::from(count == room);
                self.processes[p].state.inbox[input].extend(bytes);
            }
            TailRead::Retry => self.wait_until_none_open(p),
            TailRead::Fault => self.must(false, "a read of valid memory failed"),
        }
    }
}
