//! What speculative processes have written to pipes: a *tail* behind what is in the pipe itself, which only processes of the
//! session look at.
//!
//! The pipe has what is committed, and anybody reads that. What is not lies here, call by call ([`Segment`]), with the
//! speculation on which its writer depends. A reader of the session that finds the pipe empty takes it from here, and depends on that
//! speculation from then on. When the writer's speculation is committed it writes to the pipe what nobody has taken; when it is taken
//! back, what it wrote is not here any more, and who took it is taken back, too.
//!
//! At any time a tail has one writer and one reader. Others wait, or find the pipe empty. A call of no more than `PIPE_BUF` bytes is
//! taken whole or not at all, as others that write to the pipe itself may come in between two that are longer, and not into one (pipe(7)).
//!
//! Invariant: whoever is killed while he has a tail locked leaves it whole: what is added is there before the position that
//! says so.

mod pipe_waiters;
mod tail_locks;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::{Host, Id, Resolution, Table};
use tail_locks::{LockedTail, is_alive, lock_tail};

/// Tails in a session.
const TAILS: usize = 64;
/// Calls in a tail.
const SEGMENTS: usize = 512;
/// Bytes in a tail: as many as a pipe has by default (pipe(7)).
const BYTES: usize = 64 << 10;
/// Threads that wait for something to be read.
const WAITERS: usize = 128;
/// What is written at once is not torn (pipe(7)).
const PIPE_BUF: u64 = 4096;

/// A pipe or FIFO of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipe(u64);

impl Pipe {
    /// The one that has these numbers: its file system's device, and its own.
    pub const fn new(device: u64, inode: u64) -> Self {
        Pipe(hash_numbers(device, inode) | 1)
    }
}

/// Two numbers as one that is different for different ones, most likely (the finisher of SplitMix64).
pub(crate) const fn hash_numbers(a: u64, b: u64) -> u64 {
    let z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What one call has written. (In a cache line of its own: one process writes the next while another reads this.)
#[derive(Default)]
#[repr(C, align(64))]
struct Segment {
    /// What its writer depended on.
    id: AtomicU64,
    /// Which of the calls that the writer holds it is.
    output_position: AtomicU64,
    /// Its first byte's position.
    start: AtomicU64,
    len: AtomicU64,
    /// Bytes that were read.
    read: AtomicU64,
    /// Not 0: what nobody has read is on its way into the pipe.
    is_releasing: AtomicU32,
    _pad: u32,
}

#[repr(C)]
struct Tail {
    /// The process that has it locked; 0: none.
    locked: AtomicU32,
    writer: AtomicU32,
    reader: AtomicU32,
    _pad: u32,
    /// Positions of the first segment, of the first that is not read to its end, and behind the last; they only grow, but for what
    /// is taken back.
    first: AtomicU64,
    next: AtomicU64,
    end: AtomicU64,
    segments: [Segment; SEGMENTS],
    bytes: UnsafeCell<[u8; BYTES]>,
}

#[repr(C)]
struct Waiter {
    pipe: AtomicU64,
    thread: AtomicU64,
}

/// See the module's text. All-zero is valid, and has none.
#[repr(C)]
pub struct PipeTails {
    /// How many there are.
    used: AtomicU32,
    waiting: AtomicU32,
    waiters: [Waiter; WAITERS],
    /// Of which pipe each is; 0: of none. (Side by side, as they are looked through at each call.)
    pipes: [AtomicU64; TAILS],
    tails: [Tail; TAILS],
}

// SAFETY: atomics, and bytes that are written before the position says so, and then read by who has the lock, until he has them.
unsafe impl Sync for PipeTails {}

/// It has to wait until it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailUnavailable;

/// What a reader would come to behind what is in the pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailFront {
    /// Nothing that it may take, now.
    Nothing,
    /// Something that depends on this.
    DependsOn(Id),
}

/// What a reader was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailRead {
    /// So many bytes.
    Bytes(u64),
    /// It is to look again: what was there is not.
    Retry,
    /// There is no room for it where the reader wants it.
    Fault,
}

impl PipeTails {
    /// Whether there may be any.
    pub fn any_used(&self) -> bool {
        self.used.load(SeqCst) > 0
    }

    /// Where the one of this pipe is.
    fn index_of(&self, pipe: Pipe) -> Option<usize> {
        if !self.any_used() {
            return None;
        }
        self.pipes.iter().position(|of| of.load(SeqCst) == pipe.0)
    }

    /// The one of this pipe, locked.
    fn find(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        let place = self.index_of(pipe)?;
        let locked = lock_tail(self, place, host)?;
        (self.pipes[place].load(SeqCst) == pipe.0).then_some(locked)
    }

    /// As [`Tails::find`], by one who has written there: whoever has it locked is waited for. (To go on without would write once more
    /// what was read, or leave what was taken back.)
    fn find_as_writer(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        loop {
            let found = self.find(pipe, host);
            if found.is_some() || self.index_of(pipe).is_none() {
                return found;
            }
        }
    }

    /// As [`Tails::find`]; if there is none it is made.
    fn find_or_create(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        if let Some(locked) = self.find(pipe, host) {
            return Some(locked);
        }
        let made =
            self.tails.iter().zip(&self.pipes).enumerate().find_map(|(place, (tail, of))| {
                // (One that a reader has left that has died is free once it is tidy.)
                let reader = tail.reader.load(Relaxed);
                let is_read = of.load(SeqCst) != 0 && tail.is_empty() && reader != 0;
                if is_read && !is_alive(reader, host) {
                    lock_tail(self, place, host)?.drop_dead_owners(host);
                }
                if of.load(SeqCst) != 0 {
                    return None;
                }
                let locked = lock_tail(self, place, host)?;
                of.compare_exchange(0, pipe.0, SeqCst, Relaxed).ok()?;
                self.used.fetch_add(1, SeqCst);
                // (Who has made another meanwhile sees this one, or is seen here. With two of them, calls would be looked for in the wrong one.)
                let is_alone =
                    self.pipes.iter().filter(|of| of.load(SeqCst) == pipe.0).count() == 1;
                Some(is_alone.then_some(locked))
            });
        made.flatten()
    }

    /// The calling process has written this to the pipe, depending on `id`; it is the call that it holds as `held`. (Its threads do
    /// so one after the other, and none commits or takes back meanwhile.)
    pub fn write(
        &self,
        pipe: Pipe,
        id: Id,
        held: u64,
        pieces: &[&[u8]],
        host: &impl Host,
    ) -> Result<(), TailUnavailable> {
        let process = host.current_thread().process;
        let call = Segment {
            id: id.0.into(),
            output_position: held.into(),
            len: pieces.iter().map(|piece| piece.len() as u64).sum::<u64>().into(),
            ..Segment::default()
        };
        // (While something of the process's is there nobody else may write, and the tail stays this pipe's: so it need not be locked.
        // That something is there is asked first: its writer is noted before it comes.)
        let tail = self.index_of(pipe).map(|place| &self.tails[place]);
        let tail = tail.filter(|tail| !tail.is_empty() && tail.writer.load(SeqCst) == process);
        match tail {
            Some(tail) => tail.append(call, pieces)?,
            None => {
                let locked = self.find_or_create(pipe, host).ok_or(TailUnavailable)?;
                if locked.tail.writer.load(Relaxed) != process {
                    locked.drop_dead_owners(host);
                }
                if locked.tail.is_empty() {
                    locked.tail.writer.store(process, SeqCst);
                }
                if locked.tail.writer.load(Relaxed) != process {
                    return Err(TailUnavailable);
                }
                locked.tail.append(call, pieces)?;
            }
        }
        self.wake_waiters(pipe, host);
        Ok(())
    }

    /// What there is for the calling process behind what is in the pipe; `is_empty` says whether nothing is in that.
    pub fn peek(&self, pipe: Pipe, host: &impl Host, is_empty: impl FnOnce() -> bool) -> TailFront {
        let Some(locked) = self.find(pipe, host) else { return TailFront::Nothing };
        match locked.tail.front(host) {
            Some(segment) if is_empty() => TailFront::DependsOn(Id(segment.id.load(Relaxed))),
            _ => TailFront::Nothing,
        }
    }

    /// Notes that the calling process depends on `id` from here on, if that is what it would read next, and nothing has come of it
    /// yet.
    pub fn depend(&self, pipe: Pipe, id: Id, table: &Table, host: &impl Host) -> bool {
        let Some(locked) = self.find(pipe, host) else { return false };
        locked.drop_dead_owners(host);
        let is_next =
            locked.tail.front(host).is_some_and(|segment| segment.id.load(Relaxed) == id.0);
        // (Who is to say what is right cannot depend on it.)
        let is_next = is_next && table.settler(id) != host.current_thread().process;
        if !is_next || !table.depend(id, host.current_thread()) {
            return false;
        }
        // (Its owner says what has come of it, and then looks who is to be told.)
        let is_open = table.resolution(id) == Resolution::Pending;
        if !is_open {
            table.leave(id, host);
        }
        is_open
    }

    /// Gives the calling process, which depends on `id`, up to `room` bytes of what depends on that, by way of `give`.
    pub fn read(
        &self,
        (pipe, id, room): (Pipe, Id, u64),
        table: &Table,
        host: &impl Host,
        is_empty: impl FnOnce() -> bool,
        mut give: impl FnMut(&[u8]) -> bool,
    ) -> TailRead {
        let Some(locked) = self.find(pipe, host) else { return TailRead::Retry };
        let tail = locked.tail;
        let is_there = tail.front(host).is_some() && is_empty();
        let (mut given, mut last) = (0, None);
        while is_there && table.resolution(id) != Resolution::RolledBack {
            let Some(segment) = tail.front(host) else { break };
            let (len, taken) = (segment.len.load(Relaxed), segment.read.load(Relaxed));
            let piece = len.saturating_sub(taken).min(room - given);
            let is_torn = len <= PIPE_BUF && piece < len;
            // (What the writer has done between two calls may wait for the reader, who has asked for the first alone.)
            let held = segment.output_position.load(Relaxed);
            let is_next = last.is_none_or(|last: u64| held == last + 1);
            if segment.id.load(Relaxed) != id.0 || piece == 0 || is_torn || !is_next {
                break;
            }
            let is_given =
                tail.each_piece(segment.start.load(Relaxed) + taken, piece, |bytes| give(bytes));
            if !is_given && given == 0 {
                return TailRead::Fault;
            }
            if !is_given {
                break;
            }
            last = Some(held);
            tail.reader.store(host.current_thread().process, Relaxed);
            segment.read.store(taken + piece, Relaxed);
            given += piece;
            if taken + piece == len {
                tail.next.store(tail.next() + 1, Relaxed);
            }
        }
        if given == 0 { TailRead::Retry } else { TailRead::Bytes(given) }
    }

    /// The call that the calling process holds as `held` is committed, and about to be written to the pipe: how many of its bytes
    /// were read here. The process says when it is ([`Tails::written`]).
    pub fn begin_release(&self, pipe: Pipe, held: u64, host: &impl Host) -> u64 {
        let Some(locked) = self.find_as_writer(pipe, host) else { return 0 };
        let Some(segment) = locked.tail.first_if_at(held, host) else { return 0 };
        segment.is_releasing.store(1, SeqCst);
        segment.read.load(Relaxed)
    }

    /// It is written.
    pub fn end_release(&self, pipe: Pipe, held: u64, host: &impl Host) {
        let Some(locked) = self.find_as_writer(pipe, host) else { return };
        if locked.tail.first_if_at(held, host).is_some() {
            locked.tail.first.fetch_add(1, SeqCst);
        }
    }

    /// The calls that the calling process holds from `held` on were never made.
    pub fn roll_back(&self, pipe: Pipe, held: u64, host: &impl Host) {
        let Some(locked) = self.find_as_writer(pipe, host) else { return };
        let tail = locked.tail;
        if tail.writer.load(Relaxed) != host.current_thread().process {
            return;
        }
        let (first, mut end) = (tail.first.load(Relaxed), tail.end.load(Relaxed));
        while end > first && tail.segment(end - 1).output_position.load(Relaxed) >= held {
            end -= 1;
        }
        tail.next.fetch_min(end, Relaxed);
        tail.end.store(end, SeqCst);
    }

    /// Whether another process reads what is written here. (One that has died is no reader of the pipe either.)
    pub fn has_reader(&self, pipe: Pipe, host: &impl Host) -> bool {
        let tail = self.index_of(pipe).map(|place| &self.tails[place]);
        let reader = tail.map_or(0, |tail| tail.reader.load(SeqCst));
        reader != 0 && reader != host.current_thread().process
    }

    /// Whether nothing is left here that the calling process has read and that depends on `id`, or on what lies below that. (Then what the
    /// writer has done before is written, too: it goes from one call to the next.)
    pub fn read_output_is_released(&self, id: Id, table: &Table, host: &impl Host) -> bool {
        let (process, writer) = (host.current_thread().process, table.owner(id));
        self.tails.iter().all(|tail| {
            let is_ours = tail.reader.load(SeqCst) == process && tail.writer.load(SeqCst) == writer;
            if !is_ours || tail.is_empty() {
                return true;
            }
            let (first, next) = (tail.first.load(SeqCst), tail.next.load(SeqCst));
            let segment = tail.segment(first);
            // (Of one that is read in part what was held before it may not be written, until the rest is on its way.)
            let is_in_part =
                segment.read.load(SeqCst) > 0 && segment.is_releasing.load(SeqCst) == 0;
            let is_passed = first >= next && !is_in_part;
            is_passed || table.is_above(Id(segment.id.load(SeqCst)), id)
        })
    }

    /// The calling process depends on nobody any more, and others may read what it has read.
    pub fn stop_reading(&self, host: &impl Host) {
        if !self.any_used() {
            return;
        }
        let process = host.current_thread().process;
        for (place, tail) in self.tails.iter().enumerate() {
            if tail.reader.load(Relaxed) == process
                && let Some(_locked) = lock_tail(self, place, host)
            {
                let _ = tail.reader.compare_exchange(process, 0, SeqCst, Relaxed);
            }
        }
    }
}

impl Segment {
    fn end(&self) -> u64 {
        self.start.load(Relaxed).wrapping_add(self.len.load(Relaxed))
    }
}

impl Tail {
    fn is_empty(&self) -> bool {
        self.first.load(SeqCst) == self.end.load(SeqCst)
    }

    fn segment(&self, position: u64) -> &Segment {
        &self.segments[position as usize % SEGMENTS]
    }

    /// Position of the first segment that is not read to its end.
    fn next(&self) -> u64 {
        self.next.load(Relaxed).max(self.first.load(Relaxed))
    }

    /// What the calling process would read next, if it may. It has the lock.
    fn front(&self, host: &impl Host) -> Option<&Segment> {
        let next = self.next();
        let reader = self.reader.load(Relaxed);
        let is_ours =
            [0, host.current_thread().process].contains(&reader) || !is_alive(reader, host);
        let segment = (next < self.end.load(SeqCst)).then(|| self.segment(next))?;
        (is_ours && segment.is_releasing.load(Relaxed) == 0).then_some(segment)
    }

    /// The first segment, if it is the one that the calling process holds as `held`.
    fn first_if_at(&self, held: u64, host: &impl Host) -> Option<&Segment> {
        let first = self.first.load(Relaxed);
        let is_there = first < self.end.load(Relaxed)
            && self.writer.load(Relaxed) == host.current_thread().process
            && self.segment(first).output_position.load(Relaxed) == held;
        is_there.then(|| self.segment(first))
    }

    /// The bytes at these positions, in at most two pieces; false once `each` says so. Who calls has the lock.
    fn each_piece(&self, at: u64, len: u64, mut each: impl FnMut(&[u8]) -> bool) -> bool {
        let (at, len) = (at as usize % BYTES, (len as usize).min(BYTES));
        let piece = len.min(BYTES - at);
        // SAFETY: within the array; who writes, writes to others.
        let (one, other) = unsafe {
            let bytes = self.bytes.get().cast::<u8>();
            (
                core::slice::from_raw_parts(bytes.add(at), piece),
                core::slice::from_raw_parts(bytes, len - piece),
            )
        };
        each(one) && (other.is_empty() || each(other))
    }

    /// Adds a call, of which the position is found here. Who calls is the writer, and nobody else takes anything of it away.
    fn append(&self, call: Segment, pieces: &[&[u8]]) -> Result<(), TailUnavailable> {
        let (first, end) = (self.first.load(Relaxed), self.end.load(Relaxed));
        let (at, used) = match first == end {
            true => (0, 0),
            false => {
                let at = self.segment(end.wrapping_sub(1)).end();
                (at, at.wrapping_sub(self.segment(first).start.load(Relaxed)))
            }
        };
        let len = call.len.load(Relaxed);
        let is_full = end.wrapping_sub(first) >= SEGMENTS as u64
            || used > BYTES as u64
            || len > BYTES as u64 - used;
        if is_full || len == 0 {
            return Err(TailUnavailable);
        }
        let mut to = at;
        for piece in pieces {
            self.write_bytes(to, piece);
            to += piece.len() as u64;
        }
        let segment = self.segment(end);
        segment.id.store(call.id.into_inner(), Relaxed);
        segment.output_position.store(call.output_position.into_inner(), Relaxed);
        segment.start.store(at, Relaxed);
        segment.len.store(len, Relaxed);
        segment.read.store(0, Relaxed);
        segment.is_releasing.store(0, Relaxed);
        // (Before this nobody looks at it.)
        self.end.store(end + 1, SeqCst);
        Ok(())
    }

    /// Puts bytes where nobody has any. Who calls is the writer.
    fn write_bytes(&self, at: u64, from: &[u8]) {
        let at = at as usize % BYTES;
        let piece = from.len().min(BYTES - at);
        // SAFETY: within the array, as no more bytes are in it than it has; readers look at others.
        unsafe {
            let bytes = self.bytes.get().cast::<u8>();
            core::ptr::copy_nonoverlapping(from.as_ptr(), bytes.add(at), piece);
            core::ptr::copy_nonoverlapping(from[piece..].as_ptr(), bytes, from.len() - piece);
        }
    }
}
