//! Speculative data written to pipes: a *tail* behind the contents of the pipe, visible only to
//! processes of the session.
//!
//! The pipe holds committed data, which any process can read. Other data lies here, one [`Segment`]
//! for each call, with the speculation that its writer depends on. A reader of the session that
//! finds the pipe empty reads from the tail, and depends on that speculation from then on. When it
//! is committed, the writer writes to the pipe what was not read from the tail. When it is rolled
//! back, the data disappears, and its readers are rolled back, too.
//!
//! A tail has one writer and one reader at a time. Other processes wait, or find the pipe empty. A
//! call of at most `PIPE_BUF` bytes is read as a whole or not at all: other writers to the pipe may
//! interleave with larger calls, but not with these (pipe(7)).
//!
//! Invariant: a process that is killed while it has a tail locked leaves it consistent. Data is
//! written before the position that publishes it.

mod pipe_waiters;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::{Host, Id, Owner, Resolution, Table};

/// Limit of tails in a session.
const TAILS: usize = 64;
/// Limit of calls in a tail.
const SEGMENTS: usize = 512;
/// Limit of bytes in a tail: the default capacity of a pipe (pipe(7)).
const BYTES: usize = 64 << 10;
/// Limit of threads that wait for data.
const WAITERS: usize = 128;
/// Largest write that is atomic (pipe(7)).
const PIPE_BUF: u64 = 4096;

/// A pipe or FIFO of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipe(u64);

impl Pipe {
    /// Names the pipe by the device of its file system and its inode.
    pub const fn new(device: u64, inode: u64) -> Self {
        Pipe(hash_numbers(device, inode) | 1)
    }
}

/// Hashes two numbers; different pairs most likely differ (the finisher of SplitMix64).
pub(crate) const fn hash_numbers(a: u64, b: u64) -> u64 {
    let z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Data of one call. It has a cache line of its own: one process writes the next while another
/// reads this.
#[derive(Default)]
#[repr(C, align(64))]
struct Segment {
    /// Speculation that its writer depends on.
    id: AtomicU64,
    /// Position of the call in the writer's output buffer.
    output_position: AtomicU64,
    /// Position of its first byte.
    start: AtomicU64,
    len: AtomicU64,
    /// Bytes that were read from the tail.
    read: AtomicU64,
    /// Flag: the unread rest is being written to the pipe.
    is_releasing: AtomicU32,
    _pad: u32,
}

#[repr(C)]
struct Tail {
    /// Process that has locked it; 0 if none.
    locked: AtomicU32,
    writer: AtomicU32,
    reader: AtomicU32,
    _pad: u32,
    /// Positions of the first segment, of the first that is not fully read, and after the last.
    /// They only grow, except on rollback.
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

/// Tails of all pipes. All-zero is valid and empty.
#[repr(C)]
pub struct PipeTails {
    /// Number of tails in use.
    used: AtomicU32,
    waiting: AtomicU32,
    waiters: [Waiter; WAITERS],
    /// Pipe of each tail; 0 if unused. Adjacent in memory, since each call scans them.
    pipes: [AtomicU64; TAILS],
    tails: [Tail; TAILS],
}

// SAFETY: atomics, and bytes. Bytes are written before the position that publishes them, and then
// read under the lock.
unsafe impl Sync for PipeTails {}

/// Error: the data has no place in a tail, and waits until it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailUnavailable;

/// Data that a reader would find next, behind the contents of the pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailFront {
    /// No data that it may read now.
    Nothing,
    /// Data that depends on this speculation.
    DependsOn(Id),
}

/// Result of a read from a tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailRead {
    /// Number of bytes read.
    Bytes(u64),
    /// The data is gone; the reader must look again.
    Retry,
    /// The reader's buffer cannot be written.
    Fault,
}

impl PipeTails {
    /// True if any tail may be in use.
    pub fn any_used(&self) -> bool {
        self.used.load(SeqCst) > 0
    }

    /// Returns the index of this pipe's tail.
    fn index_of(&self, pipe: Pipe) -> Option<usize> {
        if !self.any_used() {
            return None;
        }
        self.pipes.iter().position(|of| of.load(SeqCst) == pipe.0)
    }

    /// Returns this pipe's tail, locked.
    fn find(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        let place = self.index_of(pipe)?;
        let locked = lock_tail(self, place, host)?;
        (self.pipes[place].load(SeqCst) == pipe.0).then_some(locked)
    }

    /// Like [`PipeTails::find`], for a process that has written there: waits for the lock without
    /// limit. To continue without it would write data twice that was read, or leave data that was
    /// rolled back.
    fn find_as_writer(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        loop {
            let found = self.find(pipe, host);
            if found.is_some() || self.index_of(pipe).is_none() {
                return found;
            }
        }
    }

    /// Like [`PipeTails::find`]; creates the tail if there is none.
    fn find_or_create(&self, pipe: Pipe, host: &impl Host) -> Option<LockedTail<'_>> {
        if let Some(locked) = self.find(pipe, host) {
            return Some(locked);
        }
        let made =
            self.tails.iter().zip(&self.pipes).enumerate().find_map(|(place, (tail, of))| {
                // A tail whose reader has died becomes free by this.
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
                // A process that created another tail for this pipe meanwhile sees this one, or is
                // seen here. With two tails, calls would be looked for in the wrong one.
                let is_alone =
                    self.pipes.iter().filter(|of| of.load(SeqCst) == pipe.0).count() == 1;
                Some(is_alone.then_some(locked))
            });
        made.flatten()
    }

    /// Adds data that the calling process has written to the pipe, depending on `id`. `held` is the
    /// call's position in its output buffer. Threads of the process call this one after the other,
    /// and none commits or rolls back meanwhile.
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
        // While the tail has data of this process, no other process writes there and it stays this
        // pipe's tail, so it need not be locked. Emptiness is tested first: the writer is recorded
        // before its data.
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

    /// Returns the data that the calling process would read behind the contents of the pipe.
    /// `is_empty` tells if the pipe itself is empty.
    pub fn peek(&self, pipe: Pipe, host: &impl Host, is_empty: impl FnOnce() -> bool) -> TailFront {
        let Some(locked) = self.find(pipe, host) else { return TailFront::Nothing };
        match locked.tail.front(host) {
            Some(segment) if is_empty() => TailFront::DependsOn(Id(segment.id.load(Relaxed))),
            _ => TailFront::Nothing,
        }
    }

    /// Makes the calling process depend on `id`, if that is the next data it would read and is not
    /// resolved yet.
    pub fn depend(&self, pipe: Pipe, id: Id, table: &Table, host: &impl Host) -> bool {
        let Some(locked) = self.find(pipe, host) else { return false };
        locked.drop_dead_owners(host);
        let is_next =
            locked.tail.front(host).is_some_and(|segment| segment.id.load(Relaxed) == id.0);
        // A process that settles a speculation cannot depend on it.
        let is_next = is_next && table.settler(id) != host.current_thread().process;
        if !is_next || !table.depend(id, host.current_thread()) {
            return false;
        }
        // Its owner records the resolution first, and then pokes its dependents.
        let is_open = table.resolution(id) == Resolution::Pending;
        if !is_open {
            table.leave(id, host);
        }
        is_open
    }

    /// Passes the calling process, which depends on `id`, up to `room` bytes that depend on it, by
    /// way of `give`.
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
            // What the writer did between two calls may wait for the reader, which has asked for
            // the first alone.
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

    /// Begins to write the committed call at `held` of the calling process to the pipe. Returns how
    /// many of its bytes were read here. [`PipeTails::end_release`] ends it.
    pub fn begin_release(&self, pipe: Pipe, held: u64, host: &impl Host) -> u64 {
        let Some(locked) = self.find_as_writer(pipe, host) else { return 0 };
        let Some(segment) = locked.tail.first_if_at(held, host) else { return 0 };
        segment.is_releasing.store(1, SeqCst);
        segment.read.load(Relaxed)
    }

    /// Ends the release of the call at `held`, which is written.
    pub fn end_release(&self, pipe: Pipe, held: u64, host: &impl Host) {
        let Some(locked) = self.find_as_writer(pipe, host) else { return };
        if locked.tail.first_if_at(held, host).is_some() {
            locked.tail.first.fetch_add(1, SeqCst);
        }
    }

    /// Drops the calls of the calling process from `held` on, which were rolled back.
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

    /// True if another process reads this tail. One that has died does not read the pipe either.
    pub fn has_reader(&self, pipe: Pipe, host: &impl Host) -> bool {
        let tail = self.index_of(pipe).map(|place| &self.tails[place]);
        let reader = tail.map_or(0, |tail| tail.reader.load(SeqCst));
        reader != 0 && reader != host.current_thread().process
    }

    /// True if no data is left here that the calling process has read and that depends on `id` or
    /// on anything below it. The writer, which writes its calls in order, has then written
    /// everything before that data, too.
    pub fn read_output_is_released(&self, id: Id, table: &Table, host: &impl Host) -> bool {
        let (process, writer) = (host.current_thread().process, table.owner(id));
        self.tails.iter().all(|tail| {
            let is_ours = tail.reader.load(SeqCst) == process && tail.writer.load(SeqCst) == writer;
            if !is_ours || tail.is_empty() {
                return true;
            }
            let (first, next) = (tail.first.load(SeqCst), tail.next.load(SeqCst));
            let segment = tail.segment(first);
            // If a segment is read in part, output before it may not be written until its rest is
            // being written.
            let is_in_part =
                segment.read.load(SeqCst) > 0 && segment.is_releasing.load(SeqCst) == 0;
            let is_passed = first >= next && !is_in_part;
            is_passed || table.is_above(Id(segment.id.load(SeqCst)), id)
        })
    }

    /// Stops reading all tails: the calling process depends on no other any more, and other
    /// processes may read.
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

    /// Returns the position of the first segment that is not fully read.
    fn next(&self) -> u64 {
        self.next.load(Relaxed).max(self.first.load(Relaxed))
    }

    /// Returns the segment that the calling process would read next, if it may. It has the lock.
    fn front(&self, host: &impl Host) -> Option<&Segment> {
        let next = self.next();
        let reader = self.reader.load(Relaxed);
        let is_ours =
            [0, host.current_thread().process].contains(&reader) || !is_alive(reader, host);
        let segment = (next < self.end.load(SeqCst)).then(|| self.segment(next))?;
        (is_ours && segment.is_releasing.load(Relaxed) == 0).then_some(segment)
    }

    /// Returns the first segment, if it is the calling process's call at `held`.
    fn first_if_at(&self, held: u64, host: &impl Host) -> Option<&Segment> {
        let first = self.first.load(Relaxed);
        let is_there = first < self.end.load(Relaxed)
            && self.writer.load(Relaxed) == host.current_thread().process
            && self.segment(first).output_position.load(Relaxed) == held;
        is_there.then(|| self.segment(first))
    }

    /// Passes the bytes of a range to `each`, in at most two pieces, until `each` returns false.
    /// The caller has the lock.
    fn each_piece(&self, at: u64, len: u64, mut each: impl FnMut(&[u8]) -> bool) -> bool {
        let (at, len) = (at as usize % BYTES, (len as usize).min(BYTES));
        let piece = len.min(BYTES - at);
        // SAFETY: within the array; the writer writes to other bytes.
        let (one, other) = unsafe {
            let bytes = self.bytes.get().cast::<u8>();
            (
                core::slice::from_raw_parts(bytes.add(at), piece),
                core::slice::from_raw_parts(bytes, len - piece),
            )
        };
        each(one) && (other.is_empty() || each(other))
    }

    /// Appends a call and finds its position. The caller is the writer, and no other process
    /// removes its data.
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
        // No reader looks at the segment before this.
        self.end.store(end + 1, SeqCst);
        Ok(())
    }

    /// Writes bytes to a free part of the ring. The caller is the writer.
    fn write_bytes(&self, at: u64, from: &[u8]) {
        let at = at as usize % BYTES;
        let piece = from.len().min(BYTES - at);
        // SAFETY: within the array, since no more bytes are used than it has; readers read others.
        unsafe {
            let bytes = self.bytes.get().cast::<u8>();
            core::ptr::copy_nonoverlapping(from.as_ptr(), bytes.add(at), piece);
            core::ptr::copy_nonoverlapping(from[piece..].as_ptr(), bytes, from.len() - piece);
        }
    }
}

fn is_alive(process: u32, host: &impl Host) -> bool {
    host.is_alive(Owner { process, thread: 0 })
}

/// A tail that the calling process has locked.
struct LockedTail<'a> {
    tail: &'a Tail,
    /// The pipe that it belongs to.
    pipe: &'a AtomicU64,
    all: &'a PipeTails,
}

/// Locks the tail at `place`. None: another process, which may be stopped, has held it for too
/// long.
fn lock_tail<'a>(all: &'a PipeTails, place: usize, host: &impl Host) -> Option<LockedTail<'a>> {
    /// Number of attempts, and the number after which the lock's owner is checked for death.
    const TRIES: u32 = 20_000;
    const ASKED_EVERY: u32 = 1000;
    let (tail, of) = (&all.tails[place], &all.pipes[place]);
    let process = host.current_thread().process;
    for n in 1..=TRIES {
        match tail.locked.compare_exchange(0, process, SeqCst, Relaxed) {
            Ok(_) => return Some(LockedTail { tail, pipe: of, all }),
            Err(other) if n % ASKED_EVERY == 0 && !is_alive(other, host) => {
                let _ = tail.locked.compare_exchange(other, 0, SeqCst, Relaxed);
            }
            Err(_) => host.pause(),
        }
    }
    None
}

impl LockedTail<'_> {
    /// Drops the data of a dead writer, and the claim of a dead reader. The check for death costs
    /// more than all else here, so only new readers and writers call this.
    fn drop_dead_owners(&self, host: &impl Host) {
        let (writer, end) = (self.tail.writer.load(Relaxed), self.tail.end.load(Relaxed));
        let reader = self.tail.reader.load(Relaxed);
        if reader != 0 && reader != host.current_thread().process && !is_alive(reader, host) {
            self.tail.reader.store(0, Relaxed);
        }
        if !self.tail.is_empty()
            && writer != host.current_thread().process
            && !is_alive(writer, host)
        {
            self.tail.next.store(end, Relaxed);
            self.tail.first.store(end, SeqCst);
        }
    }
}

impl Drop for LockedTail<'_> {
    fn drop(&mut self) {
        let tail = self.tail;
        if tail.is_empty() && tail.reader.load(Relaxed) == 0 && self.pipe.swap(0, SeqCst) != 0 {
            self.all.used.fetch_sub(1, SeqCst);
        }
        tail.locked.store(0, SeqCst);
    }
}
