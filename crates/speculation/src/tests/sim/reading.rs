//! Reads from pipes, and dependencies on the data in their tails.

use super::process::{Doing, Sleep};
use super::program::Operation;
use super::world::{Plant, World, pipe};
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
    fn asks_for(&mut self, p: usize, input: usize) -> usize {
        let state = &self.processes[p].state;
        match state.next(&self.network.programs[p]) {
            Operation::Read(_, len) if self.is_exact || self.random.bool() => {
                len - state.inbox[input].len()
            }
            _ => self.random.usize(1..9000),
        }
    }

    fn ahead(&self, p: usize, number: usize) -> TailFront {
        let seat = &self.processes[p].seat;
        let is_empty = || self.is_empty(number) || self.has(Plant::ReadsFromBehind);
        self.session.tails.peek(pipe(number), seat, is_empty)
    }

    /// Like [`World::peek`]; if there is no data, registers for a poke.
    fn ahead_or_told(&self, p: usize, number: usize) -> TailFront {
        let seat = &self.processes[p].seat;
        self.session.tails.remove_waiter(seat);
        let found = self.ahead(p, number);
        if found != TailFront::Nothing || !self.is_empty(number) {
            return found;
        }
        self.session.tails.add_waiter(pipe(number), seat);
        self.ahead(p, number)
    }

    /// Handles a read of a process that does not speculate.
    pub fn comes_to_read(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let found = self.ahead_or_told(p, number);
        self.processes[p].doing = match found {
            TailFront::Nothing => Doing::Reads(input),
            TailFront::DependsOn(id) => Doing::Depends(input, id),
        };
    }

    /// Reads from the pipe, or waits for data in it.
    pub fn reads_itself(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let asks = self.asks_for(p, input);
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
    pub fn reads(&mut self, p: usize, input: usize) {
        let number = self.pipe_of(p, input);
        let TailFront::DependsOn(id) = self.ahead_or_told(p, number) else { return self.waits(p) };
        self.session.tails.remove_waiter(&self.processes[p].seat);
        let table = &self.session.table;
        let writer = table.owner(id);
        let open = &self.processes[p].open;
        let is_of_writer = |other| table.owner(other) == writer;
        let is_alone = open.iter().all(|open| open.depends_on.is_some_and(is_of_writer));
        let is_alone = is_alone || self.has(Plant::TakesWithOthers);
        // Data below what the process has read stays when that is rolled back, and so would the
        // process.
        let takes_any = self.has(Plant::TakesFromBelow);
        let depends = open.iter().any(|open| open.depends_on == Some(id));
        let last = open.last().and_then(|open| open.depends_on);
        let is_on_top = takes_any || last == Some(id);
        let is_above = takes_any || last.is_none_or(|last| table.is_above(id, last));
        match depends {
            true if is_alone && is_on_top => self.takes(p, input, id),
            false if is_alone && is_above => self.processes[p].doing = Doing::Depends(input, id),
            _ => self.waits(p),
        }
    }

    /// Takes a checkpoint, from which on the process depends on `id`.
    pub fn depends(&mut self, p: usize, input: usize, id: Id) {
        let number = self.pipe_of(p, input);
        let is_speculative = !self.processes[p].open.is_empty();
        if self.has(Plant::DependsOnNothing) {
            return self.takes(p, input, id);
        }
        let Some(own) = self.opens(p) else { return };
        let (table, tails) = (&self.session.table, &self.session.tails);
        if tails.depend(pipe(number), id, table, &self.processes[p].seat) {
            self.session.tails.remove_waiter(&self.processes[p].seat);
            self.counts.depended += 1;
            return self.pushes(p, own, 0, Some(id));
        }
        table.close(own);
        self.counts.refused += 1;
        match is_speculative {
            true => self.waits(p),
            false => self.processes[p].doing = Doing::Reads(input),
        }
    }

    fn takes(&mut self, p: usize, input: usize, id: Id) {
        let number = self.pipe_of(p, input);
        let room = self.asks_for(p, input) as u64;
        let mut bytes = std::vec::Vec::new();
        let seat = &self.processes[p].seat;
        let is_empty = || self.is_empty(number) || self.has(Plant::ReadsFromBehind);
        let give = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            true
        };
        let (table, tails) = (&self.session.table, &self.session.tails);
        let taken = tails.read((pipe(number), id, room), table, seat, is_empty, give);
        match taken {
            TailRead::Bytes(count) => {
                self.must(bytes.len() as u64 == count, "other bytes were given than were taken");
                self.counts.taken += 1;
                self.counts.taken_in_part += u64::from(count == room);
                self.processes[p].state.inbox[input].extend(bytes);
            }
            TailRead::Retry => self.waits(p),
            TailRead::Fault => self.must(false, "it was refused what was given"),
        }
    }
}
