//! What a process needs to become again what it was at each of its checkpoints, and what commit and rollback do with it.
//!
//! Memory, frames, private changes and held output are rings, in which an open speculation is a position each: what is before that of the
//! oldest is forgotten, what is behind that of one that fails is taken back.

use runahead_abi::agent_config::plant;
use runahead_speculation::{ANSWER_MAX, Id, Resolution, Status, Table};

use super::memory_checkpoints::Memory;
use super::output_buffer::{Destination, OutputBuffer, WriteMode};
use super::table_host::{self, HOST};
use super::thread_states::{self, Threads};
use super::undo_journal::Journal;
use crate::arch::{Context, RED_ZONE};
use crate::plane::{program_faults, thread_stop};
use crate::session::{self, Session};
use crate::sys::{self, Fd};

/// Speculations that a process can have open at once.
pub const OPEN_MAX: usize = 512;
/// Answers that are kept for the program to ask for.
const ANSWERS: usize = 8;

/// One that is open, and where what belongs to it begins.
#[derive(Clone, Copy)]
pub struct OpenSpeculation {
    /// Which.
    pub id: Id,
    /// What whoever opened it wants to remember of it.
    pub tag: u32,
    /// Another's, which it is about: it comes to the same end.
    pub depends_on: Option<Id>,
    /// The process was made by one that speculated: there is nothing to go back to.
    pub is_birth: bool,
    undo: u64,
    /// Its frames: the first, and behind the last.
    frames: (u64, u64),
    journal: u64,
    output: u64,
}

/// What was said of a prediction that was wrong.
pub struct Answer {
    /// Of which; 0: of none.
    pub id: u64,
    /// Bytes of it.
    pub len: usize,
    pub bytes: [u8; ANSWER_MAX],
}

/// What a process needs to become again what it was at each of its checkpoints. All-zero is valid, and has none.
pub struct Process {
    pub memory: Memory,
    pub threads: Threads,
    pub journal: Journal,
    pub output: OutputBuffer,
    open: [Option<OpenSpeculation>; OPEN_MAX],
    /// Positions in it of the first that is open and of the next; they only grow.
    pub first: u64,
    pub end: u64,
    /// Of those before this position the owner is to be poked.
    pub pokes_requested: u64,
    pub answers: [Answer; ANSWERS],
    answered: usize,
}

impl Process {
    /// Holds what is written; readers of a pipe in the session may have it, if it `is_shown`. See [`Held::hold`].
    pub fn hold(
        &mut self,
        fd: Fd,
        how: WriteMode,
        buffers: &[[u64; 2]],
        to: Destination,
        is_shown: bool,
    ) -> sys::Result<u64> {
        let last = self.end.checked_sub(1).and_then(|n| self.open[n as usize % OPEN_MAX]);
        let to = match (to, last) {
            (Destination::Pipe(pipe, _), Some(last)) if is_shown => {
                Destination::Pipe(pipe, Some(last.id))
            }
            _ => to,
        };
        let Process { output: held, memory, .. } = self;
        held.hold(fd, how, buffers, to, |at, to| memory.read(at, to))
    }

    /// Nothing is open, and nothing is kept of what was.
    pub fn begin(&mut self) {
        self.threads.forget_until(self.threads.end());
        self.memory.forget_until(self.memory.mark());
    }

    /// Keeps memory and threads as they are: where the frames lie.
    pub fn save(
        &mut self,
        session: &Session,
        frame: &Context,
        stopped: &thread_stop::Stopped,
        is_another: bool,
    ) -> sys::Result<(u64, u64)> {
        let Process { memory, threads, .. } = self;
        let mut reach = |frame: &Context| {
            if !memory.covers(frame.stack_pointer() - RED_ZONE) {
                memory.invalidate_regions();
            }
        };
        reach(frame);
        stopped.each(|_, frame| reach(frame));
        let first = threads.end();
        threads.save(frame, stopped)?;
        match memory.save(session, is_another) {
            Ok(()) => Ok((first, threads.end())),
            Err(errno) => {
                threads.drop_from(first);
                Err(errno)
            }
        }
    }

    /// A checkpoint has just been taken, for this.
    pub fn push(&mut self, id: Id, tag: u32, depends_on: Option<Id>, frames: (u64, u64)) {
        if let Some(shared) = table_host::shared() {
            shared.table.assign_order(id);
        }
        let (undo, journal, held) = (self.memory.mark(), self.journal.end(), self.output.end());
        self.open[self.end as usize % OPEN_MAX] = Some(OpenSpeculation {
            id,
            tag,
            depends_on,
            is_birth: false,
            undo,
            frames,
            journal,
            output: held,
        });
        self.end += 1;
        self.journal.begin_interval();
    }

    /// All that are open, the oldest first, with their positions.
    pub fn open(&self) -> impl Iterator<Item = (u64, &OpenSpeculation)> {
        (self.first..self.end).filter_map(|n| Some((n, self.open[n as usize % OPEN_MAX].as_ref()?)))
    }

    /// How many of the oldest are committed, and the oldest of all that has failed.
    pub fn outcomes(&self, table: &Table) -> (u64, Option<u64>) {
        let status = |open: &OpenSpeculation| match open
            .depends_on
            .map(|other| (other, table.resolution(other)))
        {
            None => table.status(open.id),
            Some((_, Resolution::Committed)) => Status::Committed,
            // Its owner has written all that this process can know of.
            Some((other, Resolution::Committing))
                if seen_output_is_released(table, open, other) =>
            {
                Status::Committed
            }
            Some((_, Resolution::Pending | Resolution::Committing)) => Status::Open,
            Some((_, Resolution::RolledBack)) => Status::Failed,
        };
        let is_committed = |(_, open): &(u64, &OpenSpeculation)| status(open) == Status::Committed;
        let committed = self.open().take_while(is_committed).count();
        // (Gone: somebody else has written to the table.)
        let has_failed = |(_, open): &(u64, &OpenSpeculation)| {
            matches!(status(open), Status::Failed | Status::Gone)
        };
        (committed as u64, self.open().find(has_failed).map(|(position, _)| position))
    }

    /// The `count` oldest are done: what belongs to them alone is made for good.
    pub fn commit(&mut self, table: &Table, count: u64) {
        let done = self.first..self.first + count;
        for position in done.clone() {
            self.resolve(table, position, Resolution::Committing);
        }
        self.first += count;
        let next = self.open().next().map(|(_, open)| *open);
        let (undo, frames) = next
            .map_or((self.memory.mark(), self.threads.end()), |next| (next.undo, next.frames.0));
        let (journal, held) = next
            .map_or((self.journal.end(), self.output.end()), |next| (next.journal, next.output));
        self.memory.forget_until(undo);
        self.threads.forget_until(frames);
        // (Before others go on, who would find files open that were closed when they were told of them.)
        self.journal.commit_until(journal, &mut self.memory);
        // Who has read nothing of it that is not written yet need not wait for what is, which may wait for him.
        let open = &self.open;
        self.output.release_until(held, || {
            let ids =
                done.clone().filter_map(|position| open[position as usize % OPEN_MAX].as_ref());
            ids.for_each(|open| table.poke_dependents(open.id, &HOST));
        });
        for position in done {
            self.resolve(table, position, Resolution::Committed);
            self.close(table, position);
        }
        self.stop_reading_if_done();
    }

    /// What has come of the one at `position`.
    fn resolve(&self, table: &Table, position: u64, came: Resolution) {
        if let Some(open) = &self.open[position as usize % OPEN_MAX] {
            table.resolve(open.id, came);
        }
    }

    /// The one at `position` is not open any more, and what has come of it was said.
    fn close(&mut self, table: &Table, position: u64) {
        if let Some(open) = self.open[position as usize % OPEN_MAX].take() {
            table.poke_dependents(open.id, &HOST);
            table.close(open.id);
            if let Some(other) = open.depends_on {
                table.leave(other, &HOST);
            }
        }
    }

    fn stop_reading_if_done(&self) {
        if let Some(shared) = table_host::shared()
            && self.first == self.end
        {
            shared.tails.stop_reading(&HOST);
        }
    }

    /// The process becomes what it was at the checkpoint at `position`. All its other threads are stopped.
    pub fn roll_back(
        &mut self,
        table: &Table,
        position: u64,
        frame: &mut Context,
        stopped: &thread_stop::Stopped,
    ) -> sys::Result<()> {
        let Some(to) = self.open[position as usize % OPEN_MAX] else {
            return Err(sys::Errno(sys::ESRCH));
        };
        // (Before anything is taken back that others may look at.)
        for position in position..self.end {
            self.resolve(table, position, Resolution::RolledBack);
        }
        if to.is_birth {
            self.output.drop_from(to.output);
            for position in position..self.end {
                self.close(table, position);
            }
            sys::exit(0);
        }
        let answer = &mut self.answers[self.answered % ANSWERS];
        self.answered += 1;
        (answer.id, answer.len) = (to.id.0, table.answer(to.id, &mut answer.bytes));
        let memory = &mut self.memory;
        if !leaves_memory() {
            thread_states::preserving_rseq_areas(|| memory.restore(to.undo))?;
        }
        self.output.drop_from(to.output);
        self.journal.roll_back(to.journal, &mut self.memory, &mut self.threads);
        let mut result = self.threads.restore(to.frames, sys::gettid(), frame);
        stopped.each(|number, frame| {
            result = result.and_then(|()| self.threads.restore(to.frames, number, frame));
        });
        self.threads.drop_from(to.frames.0);
        for position in position..self.end {
            self.close(table, position);
        }
        self.end = position;
        self.pokes_requested = self.pokes_requested.min(position);
        self.stop_reading_if_done();
        if self.first < self.end {
            self.memory.reprotect()?;
        }
        result
    }

    /// In a forked child, which has nothing of it; `before` was its thread's number in its parent.
    pub fn in_child(&mut self, before: u32, birth: Option<(Id, Id)>) {
        self.memory.in_child();
        self.journal.in_child();
        self.output.in_child();
        self.threads.in_child(before);
        (self.first, self.end, self.pokes_requested) = (0, 0, 0);
        self.open = [None; OPEN_MAX];
        if let Some((id, on)) = birth {
            self.push(id, 0, Some(on), (0, 0));
            self.open[0].iter_mut().for_each(|open| open.is_birth = true);
        }
    }

    /// It has been told something by another process that speculates, or is its child.
    pub fn depends_on_other(&self) -> bool {
        self.open().any(|(_, open)| open.depends_on.is_some())
    }

    /// In a new program, whose process depended on `on` before, by its birth, and is to have this mask in the end.
    pub fn begin_after_exec(&mut self, (id, on): (Id, Id), mask: u64) {
        self.threads.set_believed_mask(mask);
        self.push(id, 0, Some(on), (0, 0));
        self.open[0].iter_mut().for_each(|open| open.is_birth = true);
    }

    /// The process's birth, and on what that depends, if nothing else is open.
    pub fn only_birth(&self) -> Option<(Id, Id)> {
        let mut open = self.open();
        let (_, first) = open.next().filter(|(_, open)| open.is_birth)?;
        Some((first.id, first.depends_on?)).filter(|_| open.next().is_none())
    }

    /// There is something to go back to.
    pub fn has_checkpoint(&self) -> bool {
        self.open().any(|(_, open)| !open.is_birth)
    }

    /// Nothing is open any more.
    pub fn end(
        &mut self,
        table: &Table,
        frame: &mut Context,
        stopped: &thread_stop::Stopped,
    ) -> sys::Result<()> {
        // What threads have added that were still at work when the last was committed.
        self.commit(table, 0);
        self.threads.unmask(sys::gettid(), frame);
        stopped.each(|number, frame| self.threads.unmask(number, frame));
        let ended = self.memory.end();
        program_faults::give_back();
        ended
    }
}

/// Whether the owner of `other`, who writes what he has held, has come to what this process has not seen yet of it: to the fork that
/// made it, or to what it has not read.
fn seen_output_is_released(table: &Table, open: &OpenSpeculation, other: Id) -> bool {
    if open.is_birth {
        return table.parent_output_is_written(open.id);
    }
    table_host::shared()
        .is_some_and(|shared| shared.tails.read_output_is_released(other, table, &HOST))
}

/// A violation that a test plants: a rollback leaves memory as it is.
fn leaves_memory() -> bool {
    session::get().is_some_and(|session| session.plant() == plant::SPECULATED_WRONGLY)
}
