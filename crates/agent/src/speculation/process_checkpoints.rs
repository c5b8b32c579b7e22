//! Saved state of a process at each of its checkpoints, with commit and rollback.
//!
//! Memory, frames, journal and output are rings, and an open speculation is a position in each.
//! Entries before the oldest open speculation are dropped. Entries after one that fails are rolled
//! back.

use runahead_abi::agent_config::plant;
use runahead_speculation::{ANSWER_MAX, Id, Resolution, Status, Table};

use super::memory_checkpoints::Memory;
use super::output_buffer::{Destination, OutputBuffer, WriteMode};
use super::table_host::{self, HOST};
use super::thread_states::{self, FrameRange, Threads};
use super::undo_journal::Journal;
use crate::arch::{Context, RED_ZONE};
use crate::plane::{program_faults, thread_stop};
use crate::session::{self, Session};
use crate::sys::{self, Fd, IoVec};

/// Limit of open speculations in a process.
pub const OPEN_MAX: usize = 512;
/// Answers of failed predictions that are stored for the program.
const ANSWERS: usize = 8;

/// An open speculation, and the ring positions at which its entries begin.
#[derive(Clone, Copy)]
pub struct OpenSpeculation {
    /// Its id in the session's table.
    pub id: Id,
    /// Opaque tag of the caller.
    pub tag: u32,
    /// The foreign speculation whose outcome this one shares.
    pub depends_on: Option<Id>,
    /// True if a speculative process forked this one: there is no checkpoint to return to.
    pub is_birth: bool,
    undo: u64,
    frames: FrameRange,
    journal: u64,
    output: u64,
}

/// Answer that came with the failure of a prediction.
pub struct Answer {
    /// Id of the speculation; 0 if unused.
    pub id: u64,
    /// Length in bytes.
    pub len: usize,
    pub bytes: [u8; ANSWER_MAX],
}

/// Checkpoints of a process. All-zero is valid and has none.
pub struct Process {
    pub memory: Memory,
    pub threads: Threads,
    pub journal: Journal,
    pub output: OutputBuffer,
    open: [Option<OpenSpeculation>; OPEN_MAX],
    /// Positions in `open` of the oldest open speculation and of the next free entry; they only
    /// grow.
    pub first: u64,
    pub end: u64,
    /// Position up to which pokes have been requested.
    pub pokes_requested: u64,
    pub answers: [Answer; ANSWERS],
    answered: usize,
}

impl Process {
    /// Holds the bytes of a write. If `is_shown`, readers of the pipe in the session may read them.
    /// See [`OutputBuffer::hold`].
    pub fn hold(
        &mut self,
        fd: Fd,
        how: WriteMode,
        buffers: &[IoVec],
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

    /// Drops everything saved for earlier speculations. None is open.
    pub fn begin(&mut self) {
        self.threads.forget_until(self.threads.end());
        self.memory.forget_until(self.memory.mark());
    }

    /// Saves memory and threads, and returns the positions of the frames.
    pub fn save(
        &mut self,
        session: &Session,
        frame: &Context,
        stopped: &thread_stop::Stopped,
        is_another: bool,
    ) -> sys::Result<FrameRange> {
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
            Ok(()) => Ok(FrameRange { first, end: threads.end() }),
            Err(errno) => {
                threads.drop_from(first);
                Err(errno)
            }
        }
    }

    /// Adds speculation `id`, for which a checkpoint was just taken.
    pub fn push(&mut self, id: Id, tag: u32, depends_on: Option<Id>, frames: FrameRange) {
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

    /// Iterates over the open speculations with their positions, the oldest first.
    pub fn open(&self) -> impl Iterator<Item = (u64, &OpenSpeculation)> {
        (self.first..self.end).filter_map(|n| Some((n, self.open[n as usize % OPEN_MAX].as_ref()?)))
    }

    /// Returns how many of the oldest are committed, and the position of the oldest that failed.
    pub fn outcomes(&self, table: &Table) -> (u64, Option<u64>) {
        let status = |open: &OpenSpeculation| match open
            .depends_on
            .map(|other| (other, table.resolution(other)))
        {
            None => table.status(open.id),
            Some((_, Resolution::Committed)) => Status::Committed,
            // The owner has written everything that this process can know of.
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
        // Gone: another process has corrupted the table.
        let has_failed = |(_, open): &(u64, &OpenSpeculation)| {
            matches!(status(open), Status::Failed | Status::Gone)
        };
        (committed as u64, self.open().find(has_failed).map(|(position, _)| position))
    }

    /// Commits the `count` oldest speculations: makes their changes permanent and releases their
    /// output.
    pub fn commit(&mut self, table: &Table, count: u64) {
        let done = self.first..self.first + count;
        for position in done.clone() {
            self.resolve(table, position, Resolution::Committing);
        }
        self.first += count;
        let next = self.open().next().map(|(_, open)| *open);
        let (undo, frames) = next.map_or((self.memory.mark(), self.threads.end()), |next| {
            (next.undo, next.frames.first)
        });
        let (journal, held) = next
            .map_or((self.journal.end(), self.output.end()), |next| (next.journal, next.output));
        self.memory.forget_until(undo);
        self.threads.forget_until(frames);
        // Before other processes continue: they would still find files open that they know to be
        // closed.
        self.journal.commit_until(journal, &mut self.memory);
        // A process that has read only output that is already written need not wait for the rest.
        // The rest may wait for that process.
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

    /// Records the resolution of the speculation at `position` in the table.
    fn resolve(&self, table: &Table, position: u64, came: Resolution) {
        if let Some(open) = &self.open[position as usize % OPEN_MAX] {
            table.resolve(open.id, came);
        }
    }

    /// Closes the speculation at `position`, whose resolution is recorded.
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

    /// Rolls the process back to the checkpoint at `position`. All its other threads are stopped.
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
        // Before anything is rolled back that other processes may look at.
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
        self.threads.drop_from(to.frames.first);
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

    /// Resets everything in a forked child; `before` was its thread's id in its parent.
    pub fn in_child(&mut self, before: u32, birth: Option<(Id, Id)>) {
        self.memory.in_child();
        self.journal.in_child();
        self.output.in_child();
        self.threads.in_child(before);
        (self.first, self.end, self.pokes_requested) = (0, 0, 0);
        self.open = [None; OPEN_MAX];
        if let Some((id, on)) = birth {
            self.push(id, 0, Some(on), FrameRange::default());
            self.open[0].iter_mut().for_each(|open| open.is_birth = true);
        }
    }

    /// True if the process depends on another speculative process, by data it read or as its child.
    pub fn depends_on_other(&self) -> bool {
        self.open().any(|(_, open)| open.depends_on.is_some())
    }

    /// Begins a new program in a process whose birth depended on `on`. `mask` is the signal mask
    /// that it gets in the end.
    pub fn begin_after_exec(&mut self, (id, on): (Id, Id), mask: u64) {
        self.threads.set_believed_mask(mask);
        self.push(id, 0, Some(on), FrameRange::default());
        self.open[0].iter_mut().for_each(|open| open.is_birth = true);
    }

    /// Returns the process's birth and the speculation that it depends on, if nothing else is open.
    pub fn only_birth(&self) -> Option<(Id, Id)> {
        let mut open = self.open();
        let (_, first) = open.next().filter(|(_, open)| open.is_birth)?;
        Some((first.id, first.depends_on?)).filter(|_| open.next().is_none())
    }

    /// True if there is a checkpoint to return to.
    pub fn has_checkpoint(&self) -> bool {
        self.open().any(|(_, open)| !open.is_birth)
    }

    /// Ends speculation: no speculation is open any more.
    pub fn end(
        &mut self,
        table: &Table,
        frame: &mut Context,
        stopped: &thread_stop::Stopped,
    ) -> sys::Result<()> {
        // Entries that threads added while the last commit was still in progress.
        self.commit(table, 0);
        self.threads.unmask(sys::gettid(), frame);
        stopped.each(|number, frame| self.threads.unmask(number, frame));
        let ended = self.memory.end();
        program_faults::give_back();
        ended
    }
}

/// True if the owner of `other`, which is writing its held output, has written all that this
/// process has seen. That is all before the fork that made this process, or all before what it has
/// read.
fn seen_output_is_released(table: &Table, open: &OpenSpeculation, other: Id) -> bool {
    if open.is_birth {
        return table.parent_output_is_written(open.id);
    }
    table_host::shared()
        .is_some_and(|shared| shared.tails.read_output_is_released(other, table, &HOST))
}

/// Planted violation of a test: a rollback leaves memory unchanged.
fn leaves_memory() -> bool {
    session::get().is_some_and(|session| session.plant() == plant::SPECULATED_WRONGLY)
}
