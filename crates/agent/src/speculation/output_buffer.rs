//! Output that is held until what it depends on is committed, and then released in the order in which it was written.
//!
//! A call is answered as if all of it had been written. It is written later, by a call of its own, so that what is one message
//! or one atomic write stays one.

use linux_raw_sys::general as k;
use runahead_speculation::{Id, Pipe};

use super::socket_pairs::{self, SocketPipes};
use super::table_host::{self, HOST};
use super::{file_capacity, write_capacity};
use crate::sys::{self, Errno, Fd, nr};

/// Calls that are held at once.
const CALLS: usize = 4096;
/// Bytes of them.
const BYTES: usize = 1 << 20;
/// After so many calls a stream is asked again what it takes, and whether anybody still reads it.
const RECHECK_CALLS: u64 = 16;
/// Buffers of one call that are looked at (writev(2)).
const BUFFERS: u64 = 64;

/// How something is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// Where the descriptor is (write(2)).
    Current,
    /// At an offset (pwrite(2)).
    AtOffset(u64),
    /// As a message with these flags (send(2)).
    Message(u32),
}

/// A call that is held.
#[derive(Clone, Copy)]
struct HeldCall {
    fd: Fd,
    how: WriteMode,
    /// Position of its first byte.
    at: u64,
    len: u64,
    to: Destination,
}

/// What a held call is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A regular file.
    File(File),
    /// A pipe; and on which speculation it depends that readers in the session can have it (`runahead_speculation`). None: they
    /// wait, as everybody does.
    Pipe(Pipe, Option<Id>),
    /// A terminal, socket, or device.
    Other,
    /// Nothing: here a child was made, which depends on what is before.
    Child(Id),
    /// Nothing: the program has closed what is open as this for what is before.
    Closed,
}

/// Sorts of what is held, by what surely takes it.
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

    /// Another process of the session has read there what this one may yet take back: it goes on reading what that writes.
    fn has_reader(self) -> bool {
        match (self, table_host::shared()) {
            (Destination::Pipe(pipe, Some(_)), Some(shared)) => {
                shared.tails.has_reader(pipe, &HOST)
            }
            _ => false,
        }
    }
}

/// A file, among all of this machine: its device, and its own number.
pub type File = (u64, u64);

/// See the module's text. Positions only grow; what lies at one is in its place in the ring.
pub struct OutputBuffer {
    calls: [HeldCall; CALLS],
    first: u64,
    end: u64,
    bytes: [u8; BYTES],
    first_byte: u64,
    end_byte: u64,
    /// Calls, and bytes of them, that are about regular files, about pipes, and about other streams.
    totals: [[u64; 2]; 3],
    /// Calls to pipes that readers in the session cannot have: nor then what is written after them.
    unshared_calls: u64,
    /// The stream or file that was asked last, and how many calls, and bytes of them, of its sort it surely takes in all.
    capacity: (Fd, [u64; 2]),
    /// Where that ends of what is held for files which has a place of its own.
    positioned_end: u64,
}

impl OutputBuffer {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Whether a child depends on what is held, or on what came before.
    #[cfg(feature = "fault-injection")]
    pub fn has_child(&self) -> bool {
        (self.first..self.end).any(|n| matches!(self.call(n).to, Destination::Child(_)))
    }

    /// Whether something is held for this descriptor.
    pub fn has(&self, fd: Fd) -> bool {
        (self.first..self.end).any(|n| self.call(n).fd == fd)
    }

    /// Whether something is held for any regular file.
    pub fn has_files(&self) -> bool {
        self.totals[FILES][0] > 0
    }

    /// Whether something is held for that file.
    pub fn has_file(&self, file: File) -> bool {
        self.has_files()
            && (self.first..self.end).any(|n| self.call(n).to == Destination::File(file))
    }

    fn call(&self, position: u64) -> &HeldCall {
        &self.calls[position as usize % CALLS]
    }

    /// Holds what lies in these buffers of the program's (address, bytes), as one call; `read` copies it. How many bytes. ENOBUFS:
    /// there is no room for it, here or surely where it goes; EFAULT: it cannot be read.
    pub fn hold(
        &mut self,
        fd: Fd,
        how: WriteMode,
        buffers: &[[u64; 2]],
        to: Destination,
        read: impl Fn(u64, &mut [u8]) -> sys::Result<()>,
    ) -> sys::Result<u64> {
        let total = buffers.iter().try_fold(0u64, |sum, [_, len]| sum.checked_add(*len));
        let room = BYTES as u64 - (self.end_byte - self.first_byte);
        if self.end - self.first == CALLS as u64 || total.is_none_or(|total| total > room) {
            return Err(Errno(sys::ENOBUFS));
        }
        // (Two descriptors may be of one stream or file. What another process of the session reads makes room.)
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
        for [from, len] in buffers {
            let (mut from, mut left) = (*from, *len);
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
        Ok(len)
    }

    /// Whether a stream or file surely takes another call of so many bytes, besides all of its sort that are held.
    fn has_capacity(&mut self, fd: Fd, how: WriteMode, sort: usize, new: u64) -> bool {
        let [calls, held] = self.totals[sort];
        let (calls, bytes) = (calls + 1, held + new);
        let is_sure = |(of, [most_calls, most]): (Fd, [u64; 2])| {
            of == fd && calls <= most_calls && bytes <= most
        };
        // (What it takes here it does not take at any place of a file, nor as a message.)
        if how != WriteMode::Current {
            self.capacity = Default::default();
        }
        for calls in [calls + RECHECK_CALLS, calls] {
            if !is_sure(self.capacity) {
                let surely = match (sort, how) {
                    (FILES, WriteMode::AtOffset(at)) => {
                        held + file_capacity::capacity(fd, Some(at), [held, self.positioned_end])
                    }
                    (FILES, _) => {
                        held + file_capacity::capacity(fd, None, [held, self.positioned_end])
                    }
                    _ => write_capacity::capacity(fd, how != WriteMode::Current, calls),
                };
                // (What takes nothing may refuse even that.)
                self.capacity = (fd, [if surely > 0 { calls } else { 0 }, surely]);
            }
        }
        let is_sure = is_sure(self.capacity);
        // (The end of the file may be elsewhere from here on.)
        if let WriteMode::AtOffset(at) = how {
            (self.capacity, self.positioned_end) =
                (Default::default(), self.positioned_end.max(at + new));
        }
        is_sure
    }

    /// Whether readers in the session can have these bytes, the next call's.
    fn share_with_readers(&self, pipe: Pipe, id: Id, (at, len): (u64, u64)) -> bool {
        let slot = at as usize % BYTES;
        let piece = (len as usize).min(BYTES - slot);
        let pieces = [&self.bytes[slot..][..piece], &self.bytes[..len as usize - piece]];
        table_host::shared()
            .is_some_and(|shared| shared.tails.write(pipe, id, self.end, &pieces, &HOST).is_ok())
    }

    /// Counts the call at `position` in, or out.
    fn count(&mut self, position: u64, change: fn(u64, u64) -> u64) {
        let HeldCall { to, len, .. } = *self.call(position);
        let Some(sort) = to.sort() else { return };
        let [calls, bytes] = &mut self.totals[sort];
        (*calls, *bytes) = (change(*calls, 1), change(*bytes, len));
        if !self.has_files() {
            self.positioned_end = 0;
        }
        match (to, table_host::shared()) {
            (Destination::File((device, inode)), Some(shared)) if change(0, 1) == 1 => {
                shared.files.hold(device, inode);
            }
            (Destination::File((device, inode)), Some(shared)) => {
                shared.files.release(device, inode)
            }
            (Destination::Pipe(_, None), _) => self.unshared_calls = change(self.unshared_calls, 1),
            _ => {}
        }
    }

    /// A child is made here, whose this is. ENOBUFS: there is no room for that.
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

    /// A descriptor may stand for another stream from here on.
    pub fn forget_capacity(&mut self) {
        self.capacity = Default::default();
    }

    /// The program closes `fd`, for which something is held: that is written to `kept`, and closed then. ENOBUFS: there is no room.
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

    /// In a forked child: all that is held is its parent's.
    pub fn in_child(&mut self) {
        for call in (self.first..self.end).map(|n| self.call(n)) {
            if call.to == Destination::Closed {
                let _ = sys::close(call.fd);
            }
        }
        (self.first, self.end, self.first_byte, self.end_byte) = (0, 0, 0, 0);
        (self.totals, self.unshared_calls, self.capacity) = ([[0; 2]; 3], 0, Default::default());
        self.positioned_end = 0;
    }

    /// What was held from `mark` on was never written.
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

    /// Writes what is held before `mark`; calls `before_any` before the first of it is, which may take long. An error that comes only now
    /// cannot be told to the program any more: what could not be written is lost, as it is when storage is full only after write(2) has
    /// returned.
    pub fn release_until(&mut self, mark: u64, before_any: impl FnOnce()) {
        self.capacity = Default::default();
        // Who has read what is passed here need not wait for what comes then, which may wait for him.
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
                    (len, count) = self.mergeable(mark.min(self.end));
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

    /// Bytes, and number, of the calls that can be written as one, from the first on: a file has no calls in it. (How much a pipe takes
    /// depends on how its bytes came.)
    fn mergeable(&self, mark: u64) -> (u64, u64) {
        const MOST: u64 = 64 << 10;
        let first = self.call(self.first);
        let most = if matches!(first.to, Destination::File(_)) { MOST } else { 0 };
        let (mut len, mut count) = (first.len, 1);
        while self.first + count < mark {
            let next = self.call(self.first + count);
            let is_like = next.fd == first.fd && next.to == first.to;
            let is_here = (next.how, first.how) == (WriteMode::Current, WriteMode::Current);
            if !is_like || !is_here || len + next.len > most {
                break;
            }
            (len, count) = (len + next.len, count + 1);
        }
        (len, count)
    }

    /// Writes what is behind the first `done` bytes.
    fn write(&self, call: &HeldCall, mut done: u64) -> sys::Result<()> {
        loop {
            let (at, left) = ((call.at + done) as usize % BYTES, (call.len - done) as usize);
            let pieces = [left.min(BYTES - at), left - left.min(BYTES - at)];
            let bytes = self.bytes.as_ptr() as u64;
            let vectors = [[bytes + at as u64, pieces[0] as u64], [bytes, pieces[1] as u64]];
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

fn write_once(call: &HeldCall, vectors: &[[u64; 2]; 2], count: u64, done: u64) -> sys::Result<u64> {
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
    // SAFETY: the calls read our own bytes; the program has asked for this to be written.
    sys::check(unsafe { sys::raw(number, args) })
}

/// The buffers of a call that writes several (writev(2)). None: there are more than are looked at, or they cannot be read.
pub fn buffers_of(
    vectors: u64,
    count: u64,
    to: &mut [[u64; 2]; BUFFERS as usize],
) -> Option<&[[u64; 2]]> {
    let to = to.get_mut(..usize::try_from(count).ok()?)?;
    for (n, vector) in to.iter_mut().enumerate() {
        *vector = sys::copy_in(vectors + 16 * n as u64).ok()?;
    }
    Some(to)
}

/// Room for [`buffers_of`].
pub const NO_BUFFERS: [[u64; 2]; BUFFERS as usize] = [[0; 2]; BUFFERS as usize];

/// What a descriptor, or a name, stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescriptorKind {
    /// A regular file.
    File(File),
    /// A directory.
    Directory,
    /// A pipe or FIFO.
    Pipe(Pipe),
    /// A local stream socket, and its two directions if it is known to what it is connected.
    Local(Option<SocketPipes>),
    /// A terminal, another socket, or a device.
    Stream,
}

/// A device that nobody notices to be opened (`Documentation/admin-guide/devices.txt` of the kernel).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HarmlessDevice {
    /// /dev/null and those like it: who reads from it takes from nobody.
    Memory,
    /// The process's own terminal.
    Terminal,
}

/// Whether a path, which is an address in the program's memory, names such a device.
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

/// What `fd` is; None: it is not open. Signals must be blocked.
pub fn kind(fd: Fd) -> Option<DescriptorKind> {
    let told = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_INO).ok()?;
    if u32::from(told.stx_mode) & k::S_IFMT == k::S_IFSOCK && socket_pairs::is_local_stream(fd) {
        return Some(DescriptorKind::Local(socket_pairs::pipes_of_socket(told.stx_ino)));
    }
    Some(kind_of(&told))
}

/// Whether `fd` is a pipe or FIFO.
pub fn is_pipe(fd: Fd) -> bool {
    sys::statx_fd(fd, k::STATX_TYPE)
        .is_ok_and(|told| u32::from(told.stx_mode) & k::S_IFMT == k::S_IFIFO)
}

/// What is at a path, which is an address in the program's memory.
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
    // SAFETY: zeroed, and filled.
    Ok(unsafe { told.assume_init() })
}

fn kind_of(told: &k::statx) -> DescriptorKind {
    let device = runahead_abi::device_number(told.stx_dev_major, told.stx_dev_minor);
    match u32::from(told.stx_mode) & k::S_IFMT {
        k::S_IFREG => DescriptorKind::File((device, told.stx_ino)),
        k::S_IFIFO => DescriptorKind::Pipe(Pipe::new(device, told.stx_ino)),
        k::S_IFDIR => DescriptorKind::Directory,
        _ => DescriptorKind::Stream,
    }
}
