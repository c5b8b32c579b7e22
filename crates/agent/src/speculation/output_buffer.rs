//! Output buffer: holds output until what it depends on is committed, and then releases it in the
//! order in which it was written (output commit).
//!
//! A held call is answered as if all its bytes had been written. Each is written later by a call of
//! its own, so that one message or one atomic write stays one.

use linux_raw_sys::general as k;
use runahead_abi::FileId;
use runahead_speculation::{Id, Pipe};

use super::mapped_files;
use super::socket_pairs::{self, SocketPipes};
use super::table_host::{self, HOST};
use super::write_capacity::{self, PendingOutput};
use crate::sys::{self, Errno, Fd, IoVec, nr};

/// Limit of calls that are held at once.
const CALLS: usize = 4096;
/// Limit of bytes that are held at once: 1 MiB.
const BYTES: usize = 1 << 20;
/// After this many calls a stream is asked again for its capacity, and if it still has a reader.
const RECHECK_CALLS: u64 = 16;
/// Limit of buffers in one call (writev(2)).
const BUFFERS: u64 = 64;

/// Position or form of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// The descriptor's offset (write(2)).
    Current,
    /// This offset (pwrite(2)).
    AtOffset(u64),
    /// A message with these flags (send(2)).
    Message(u32),
}

/// A call whose output is held.
#[derive(Clone, Copy)]
struct HeldCall {
    fd: Fd,
    how: WriteMode,
    /// Position of its first byte in the ring.
    at: u64,
    len: u64,
    to: Destination,
}

/// Destination of a held call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A regular file.
    File(FileId),
    /// A pipe, and the speculation by which readers in the session can read the data early
    /// (`runahead_speculation`). None: they wait, like all other readers.
    Pipe(Pipe, Option<Id>),
    /// A terminal, socket, or device.
    Other,
    /// No output: a child was forked here, which depends on what comes before.
    Child(Id),
    /// No output: the program has closed the descriptor, which stays open for the output before
    /// this entry.
    Closed,
}

/// Sorts of held output, by how their capacity is found.
const FILES: usize = 0;
const PIPES: usize = 1;
const OTHERS: usize = 2;

impl Destination {
    fn sort(self) -> Option<usize> {
        match self {
            Destination::File(_) => Some(FILES),
            Destination::Pipe(..) => Some(PIPES),
            Destination::Other => Some(OTHERS),
            Destination::Child(_) | Destination::Closed => None,
        }
    }

    /// True if another process of the session reads the tail of this pipe. It continues to read
    /// what this process writes.
    fn has_reader(self) -> bool {
        match (self, table_host::shared()) {
            (Destination::Pipe(pipe, Some(_)), Some(shared)) => {
                shared.tails.has_reader(pipe, &HOST)
            }
            _ => false,
        }
    }
}

/// Number of held calls and of their bytes.
#[derive(Clone, Copy, Default)]
struct OutputAmount {
    calls: u64,
    bytes: u64,
}

/// Ring of held output. Positions only grow; an entry lies at its position modulo the ring's size.
pub struct OutputBuffer {
    calls: [HeldCall; CALLS],
    first: u64,
    end: u64,
    bytes: [u8; BYTES],
    first_byte: u64,
    end_byte: u64,
    /// Output held for regular files, for pipes, and for other streams.
    totals: [OutputAmount; 3],
    /// Number of calls to pipes whose data readers in the session cannot have. Later data is not
    /// shared either.
    unshared_calls: u64,
    /// Descriptor asked last, and the output of its sort that it certainly accepts in all.
    capacity: (Fd, OutputAmount),
    /// Largest end of held output for files that has an explicit offset.
    positioned_end: u64,
}

impl OutputBuffer {
    /// Returns the position after the last call.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if no call is held.
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// True if a child depends on held output, or on what came before.
    #[cfg(feature = "fault-injection")]
    pub fn has_child(&self) -> bool {
        (self.first..self.end).any(|n| matches!(self.call(n).to, Destination::Child(_)))
    }

    /// True if output is held for descriptor `fd`.
    pub fn has(&self, fd: Fd) -> bool {
        (self.first..self.end).any(|n| self.call(n).fd == fd)
    }

    /// True if output is held for any regular file.
    pub fn has_files(&self) -> bool {
        self.totals[FILES].calls > 0
    }

    /// True if output is held for `file`.
    pub fn has_file(&self, file: FileId) -> bool {
        self.has_files()
            && (self.first..self.end).any(|n| self.call(n).to == Destination::File(file))
    }

    fn call(&self, position: u64) -> &HeldCall {
        &self.calls[position as usize % CALLS]
    }

    /// Holds the program's `buffers` as one call, copied by `read`, and returns
    /// the number of bytes. ENOBUFS: no room here, or not certainly enough at the destination; or a
    /// process has mapped the file.
    /// EFAULT: a buffer cannot be read.
    pub fn hold(
        &mut self,
        fd: Fd,
        how: WriteMode,
        buffers: &[IoVec],
        to: Destination,
        read: impl Fn(u64, &mut [u8]) -> sys::Result<()>,
    ) -> sys::Result<u64> {
        let total = buffers.iter().try_fold(0u64, |sum, buffer| sum.checked_add(buffer.len));
        let room = BYTES as u64 - (self.end_byte - self.first_byte);
        if self.end - self.first == CALLS as u64 || total.is_none_or(|total| total > room) {
            return Err(Errno(sys::ENOBUFS));
        }
        // Two descriptors may name one stream or file. Data that another process of the session
        // reads makes room.
        if let Some(sort) = to.sort() {
            let is_taken = match to.has_reader() {
                true => !self.end.is_multiple_of(RECHECK_CALLS) || write_capacity::has_reader(fd),
                false => self.has_capacity(fd, how, sort, total.unwrap_or(0)),
            };
            if !is_taken {
                return Err(Errno(sys::ENOBUFS));
            }
        }
        let at = self.end_byte;
        let mut next = at;
        for buffer in buffers {
            let (mut from, mut left) = (buffer.base, buffer.len);
            while left > 0 {
                let slot = next as usize % BYTES;
                let piece = (left as usize).min(BYTES - slot);
                read(from, &mut self.bytes[slot..][..piece])?;
                (from, left, next) =
                    (from + piece as u64, left - piece as u64, next + piece as u64);
            }
        }
        let (mut to, len) = (to, next - at);
        if let Destination::Pipe(pipe, Some(id)) = to
            && (self.unshared_calls > 0 || !self.share_with_readers(pipe, id, (at, len)))
        {
            to = Destination::Pipe(pipe, None);
        }
        self.calls[self.end as usize % CALLS] = HeldCall { fd, how, at, len, to };
        self.end_byte = next;
        self.end += 1;
        self.count(self.end - 1, u64::wrapping_add);
        // Only now: a process that maps the file later finds the write held.
        if matches!(to, Destination::File(file) if mapped_files::may_be_mapped(file)) {
            self.drop_from(self.end - 1);
            return Err(Errno(sys::ENOBUFS));
        }
        Ok(len)
    }

    /// True if the stream or file certainly accepts another call of `new` bytes, besides all of its
    /// sort that are held.
    fn has_capacity(&mut self, fd: Fd, how: WriteMode, sort: usize, new: u64) -> bool {
        let OutputAmount { calls, bytes: held } = self.totals[sort];
        let (calls, bytes) = (calls + 1, held + new);
        let is_sure =
            |(of, most): (Fd, OutputAmount)| of == fd && calls <= most.calls && bytes <= most.bytes;
        let pending = PendingOutput { bytes: held, end: self.positioned_end };
        // The capacity at the current offset does not hold at another offset, nor for a message.
        if how != WriteMode::Current {
            self.capacity = Default::default();
        }
        for calls in [calls + RECHECK_CALLS, calls] {
            if !is_sure(self.capacity) {
                let surely = match (sort, how) {
                    (FILES, WriteMode::AtOffset(at)) => {
                        held + write_capacity::file_capacity(fd, Some(at), pending)
                    }
                    (FILES, _) => held + write_capacity::file_capacity(fd, None, pending),
                    _ => write_capacity::stream_capacity(fd, how != WriteMode::Current, calls),
                };
                // A stream without capacity may refuse even an empty call.
                let calls = if surely > 0 { calls } else { 0 };
                self.capacity = (fd, OutputAmount { calls, bytes: surely });
            }
        }
        let is_sure = is_sure(self.capacity);
        // The end of the file may be elsewhere from here on.
        if let WriteMode::AtOffset(at) = how {
            (self.capacity, self.positioned_end) =
                (Default::default(), self.positioned_end.max(at + new));
        }
        is_sure
    }

    /// Offers the next call's bytes to readers in the session. Returns false if there is no room
    /// for them.
    fn share_with_readers(&self, pipe: Pipe, id: Id, (at, len): (u64, u64)) -> bool {
        let slot = at as usize % BYTES;
        let piece = (len as usize).min(BYTES - slot);
        let pieces = [&self.bytes[slot..][..piece], &self.bytes[..len as usize - piece]];
        table_host::shared()
            .is_some_and(|shared| shared.tails.write(pipe, id, self.end, &pieces, &HOST).is_ok())
    }

    /// Adds the call at `position` to the totals, or subtracts it.
    fn count(&mut self, position: u64, change: fn(u64, u64) -> u64) {
        let HeldCall { to, len, .. } = *self.call(position);
        let Some(sort) = to.sort() else { return };
        let OutputAmount { calls, bytes } = &mut self.totals[sort];
        (*calls, *bytes) = (change(*calls, 1), change(*bytes, len));
        if !self.has_files() {
            self.positioned_end = 0;
        }
        match (to, table_host::shared()) {
            (Destination::File(file), Some(shared)) if change(0, 1) == 1 => {
                shared.files.hold(file.device, file.inode);
            }
            (Destination::File(file), Some(shared)) => {
                shared.files.release(file.device, file.inode)
            }
            (Destination::Pipe(_, None), _) => self.unshared_calls = change(self.unshared_calls, 1),
            _ => {}
        }
    }

    /// Adds an entry for the fork of `child`. ENOBUFS: the ring is full.
    pub fn note_child(&mut self, child: Id) -> sys::Result<()> {
        if self.end - self.first == CALLS as u64 {
            return Err(Errno(sys::ENOBUFS));
        }
        let (at, to) = (self.end_byte, Destination::Child(child));
        self.calls[self.end as usize % CALLS] =
            HeldCall { fd: -1, how: WriteMode::Current, at, len: 0, to };
        self.end += 1;
        Ok(())
    }

    /// Drops the cached capacity: a descriptor may name another stream from here on.
    pub fn forget_capacity(&mut self) {
        self.capacity = Default::default();
    }

    /// Redirects held output of `fd`, which the program closes, to `kept`, and closes that
    /// afterwards. ENOBUFS: the ring is full.
    pub fn note_closed(&mut self, fd: Fd, kept: Fd) -> sys::Result<()> {
        if self.end - self.first == CALLS as u64 {
            return Err(Errno(sys::ENOBUFS));
        }
        for position in self.first..self.end {
            let call = &mut self.calls[position as usize % CALLS];
            call.fd = if call.fd == fd { kept } else { call.fd };
        }
        let at = self.end_byte;
        self.calls[self.end as usize % CALLS] =
            HeldCall { fd: kept, how: WriteMode::Current, at, len: 0, to: Destination::Closed };
        self.end += 1;
        Ok(())
    }

    /// Empties the buffer in a forked child: all held output is its parent's.
    pub fn in_child(&mut self) {
        for call in (self.first..self.end).map(|n| self.call(n)) {
            if call.to == Destination::Closed {
                let _ = sys::close(call.fd);
            }
        }
        (self.first, self.end, self.first_byte, self.end_byte) = (0, 0, 0, 0);
        (self.totals, self.unshared_calls, self.capacity) = Default::default();
        self.positioned_end = 0;
    }

    /// Drops the output held from `mark` on, which was never written.
    pub fn drop_from(&mut self, mark: u64) {
        self.capacity = Default::default();
        while self.end > mark {
            self.end -= 1;
            let call = *self.call(self.end);
            self.end_byte = call.at;
            self.count(self.end, u64::wrapping_sub);
            if let (Destination::Pipe(pipe, Some(_)), Some(shared)) =
                (call.to, table_host::shared())
            {
                shared.tails.roll_back(pipe, self.end, &HOST);
            }
        }
    }

    /// Writes the output held before `mark`. Calls `before_any` before the first write, which may
    /// take long.
    ///
    /// An error at this point cannot be reported to the program any more. The data is lost, as when
    /// storage becomes full only after write(2) has returned.
    pub fn release_until(&mut self, mark: u64, before_any: impl FnOnce()) {
        self.capacity = Default::default();
        // A process that has read only data released by now need not wait for later writes. Those
        // may wait for that process.
        let (mut passed, mut before_any) = (None, Some(before_any));
        let mut tell = |passed: &mut Option<Id>, is_written: bool| {
            if let (Some(id), Some(shared)) = (passed.take(), table_host::shared()) {
                shared.table.poke_dependents(id, &HOST);
            }
            if is_written && let Some(before_any) = before_any.take() {
                before_any();
            }
        };
        while self.first < mark.min(self.end) {
            let call = *self.call(self.first);
            let (mut len, mut count) = (call.len, 1);
            match (call.to, table_host::shared()) {
                (Destination::Pipe(pipe, Some(id)), Some(shared)) => {
                    let read = shared.tails.begin_release(pipe, self.first, &HOST);
                    if read > 0 && passed != Some(id) {
                        tell(&mut passed, false);
                        passed = Some(id);
                    }
                    if read < call.len {
                        tell(&mut passed, true);
                        let _ = self.write(&call, read);
                    }
                    shared.tails.end_release(pipe, self.first, &HOST);
                }
                (Destination::Child(child), Some(shared)) => {
                    shared.table.note_parent_output_written(child, &HOST)
                }
                (Destination::Closed, _) => drop(sys::close(call.fd)),
                _ => {
                    tell(&mut passed, true);
                    let OutputAmount { calls, bytes } = self.mergeable(mark.min(self.end));
                    (len, count) = (bytes, calls);
                    let _ = self.write(&HeldCall { len, ..call }, 0);
                }
            }
            for _ in 0..count {
                self.count(self.first, u64::wrapping_sub);
                self.first += 1;
            }
            self.first_byte = call.at + len;
        }
    }

    /// Returns the amount of the oldest calls that can be written as one: a file does not
    /// record call boundaries. The capacity of a pipe depends on them.
    fn mergeable(&self, mark: u64) -> OutputAmount {
        const MOST: u64 = 64 << 10;
        let first = self.call(self.first);
        let most = if matches!(first.to, Destination::File(_)) { MOST } else { 0 };
        let mut whole = OutputAmount { calls: 1, bytes: first.len };
        while self.first + whole.calls < mark {
            let next = self.call(self.first + whole.calls);
            let is_like = next.fd == first.fd && next.to == first.to;
            let is_here = (next.how, first.how) == (WriteMode::Current, WriteMode::Current);
            if !is_like || !is_here || whole.bytes + next.len > most {
                break;
            }
            whole = OutputAmount { calls: whole.calls + 1, bytes: whole.bytes + next.len };
        }
        whole
    }

    /// Writes the bytes of `call` after the first `done`.
    fn write(&self, call: &HeldCall, mut done: u64) -> sys::Result<()> {
        loop {
            let (at, left) = ((call.at + done) as usize % BYTES, (call.len - done) as usize);
            let pieces = [left.min(BYTES - at), left - left.min(BYTES - at)];
            let bytes = self.bytes.as_ptr() as u64;
            let vectors = [
                IoVec { base: bytes + at as u64, len: pieces[0] as u64 },
                IoVec { base: bytes, len: pieces[1] as u64 },
            ];
            let count = 1 + u64::from(pieces[1] > 0);
            match write_once(call, &vectors, count, done) {
                Ok(written) if written + done >= call.len => return Ok(()),
                Ok(0) => return Err(Errno(sys::EIO)),
                Ok(written) => done += written,
                Err(Errno(sys::EINTR)) => {}
                Err(Errno(sys::EAGAIN)) => drop(write_capacity::poll(call.fd, u64::MAX)?),
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn write_once(call: &HeldCall, vectors: &[IoVec; 2], count: u64, done: u64) -> sys::Result<u64> {
    let fd = call.fd as u32 as u64;
    let at = vectors.as_ptr() as u64;
    let message = [0, 0, at, count, 0, 0, 0u64];
    let (number, args) = match call.how {
        WriteMode::Current => (nr::WRITEV, [fd, at, count, 0, 0, 0]),
        WriteMode::AtOffset(offset) => (nr::PWRITEV, [fd, at, count, offset + done, 0, 0]),
        WriteMode::Message(flags) => {
            (nr::SENDMSG, [fd, message.as_ptr() as u64, flags.into(), 0, 0, 0])
        }
    };
    // SAFETY: the calls read our own bytes, which the program asked to write.
    sys::check(unsafe { sys::raw(number, args) })
}

/// Reads the buffers of writev(2) or readv(2). None: too many, or unreadable.
pub fn buffers_of(
    vectors: u64,
    count: u64,
    to: &mut [IoVec; BUFFERS as usize],
) -> Option<&[IoVec]> {
    let to = to.get_mut(..usize::try_from(count).ok()?)?;
    for (n, vector) in to.iter_mut().enumerate() {
        *vector = sys::copy_in(vectors + 16 * n as u64).ok()?;
    }
    Some(to)
}

/// Storage for [`buffers_of`].
pub const NO_BUFFERS: [IoVec; BUFFERS as usize] = [IoVec { base: 0, len: 0 }; BUFFERS as usize];

/// Kind of object that a descriptor or a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescriptorKind {
    /// A regular file.
    File(FileId),
    /// A directory.
    Directory,
    /// A pipe or FIFO.
    Pipe(Pipe),
    /// A local stream socket, and its two directions if its peer is known.
    Local(Option<SocketPipes>),
    /// A terminal, another socket, or a device.
    Stream,
}

/// Device whose opening no other process can observe (`Documentation/admin-guide/devices.txt` of
/// the kernel).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HarmlessDevice {
    /// /dev/null, /dev/zero, /dev/full or /dev/urandom: a read takes data from no other process.
    Memory,
    /// The process's controlling terminal.
    Terminal,
}

/// Returns the harmless device at a path, if it is one. `path` is an address in the program's
/// memory.
pub fn harmless_device(dir: Fd, path: u64, follows: bool) -> Option<HarmlessDevice> {
    const NULL: (u32, u32) = (1, 3);
    const ZERO: (u32, u32) = (1, 5);
    const FULL: (u32, u32) = (1, 7);
    const URANDOM: (u32, u32) = (1, 9);
    const TTY: (u32, u32) = (5, 0);
    let told = statx_at(dir, path, follows).ok()?;
    let is_device = u32::from(told.stx_mode) & k::S_IFMT == k::S_IFCHR;
    match (told.stx_rdev_major, told.stx_rdev_minor) {
        _ if !is_device => None,
        NULL | ZERO | FULL | URANDOM => Some(HarmlessDevice::Memory),
        TTY => Some(HarmlessDevice::Terminal),
        _ => None,
    }
}

/// Returns the kind of `fd`; None if it is not open. Signals must be blocked.
pub fn kind(fd: Fd) -> Option<DescriptorKind> {
    let told = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_INO).ok()?;
    if u32::from(told.stx_mode) & k::S_IFMT == k::S_IFSOCK && socket_pairs::is_local_stream(fd) {
        return Some(DescriptorKind::Local(socket_pairs::pipes_of_socket(told.stx_ino)));
    }
    Some(kind_of(&told))
}

/// True if `fd` is a pipe or FIFO.
pub fn is_pipe(fd: Fd) -> bool {
    sys::statx_fd(fd, k::STATX_TYPE)
        .is_ok_and(|told| u32::from(told.stx_mode) & k::S_IFMT == k::S_IFIFO)
}

/// Returns the kind of the object at a path, which is an address in the program's memory.
pub fn kind_at(dir: Fd, path: u64, follows: bool) -> sys::Result<DescriptorKind> {
    statx_at(dir, path, follows).map(|told| kind_of(&told))
}

fn statx_at(dir: Fd, path: u64, follows: bool) -> sys::Result<k::statx> {
    let mut told = core::mem::MaybeUninit::<k::statx>::zeroed();
    let flags = if follows { 0 } else { k::AT_SYMLINK_NOFOLLOW };
    let mask = k::STATX_TYPE | k::STATX_INO;
    let args = [dir as u64, path, flags.into(), mask.into(), told.as_mut_ptr() as u64, 0];
    // SAFETY: writes a statx; a bad path is an error.
    sys::check(unsafe { sys::raw(nr::STATX, args) })?;
    // SAFETY: zeroed, then filled by the kernel.
    Ok(unsafe { told.assume_init() })
}

fn kind_of(told: &k::statx) -> DescriptorKind {
    let device = runahead_abi::device_number(told.stx_dev_major, told.stx_dev_minor);
    match u32::from(told.stx_mode) & k::S_IFMT {
        k::S_IFREG => DescriptorKind::File(FileId { device, inode: told.stx_ino }),
        k::S_IFIFO => DescriptorKind::Pipe(Pipe::new(device, told.stx_ino)),
        k::S_IFDIR => DescriptorKind::Directory,
        _ => DescriptorKind::Stream,
    }
}
