//! Reading without effects.
//!
//! A path is opened with `O_PATH` first, which reaches no driver, wakes no FIFO's writer and does
//! not mount an automount point that it ends in. Only what then is seen to be a regular file or a
//! directory is opened for reading, by way of `/proc/self/fd`: the object that was looked at and
//! not whatever bears its name by then.
//!
//! Nor are access times changed where that can be avoided: `O_NOATIME` is for the owner of a file
//! (or `CAP_FOWNER`). To others' files `posix_fadvise(WILLNEED)` is applied, which starts the I/O
//! without counting as an access; when it ends cannot be told, so it is taken to be done at once.
//! Directories have no such call and are read all the same; so are the first bytes of programs and
//! what they say of their libraries ([`Reader::bytes`]).
//!
//! Invariant: nothing is ever opened but directories and regular files of file systems that store
//! files, and the page map of a process whose memory is swapped out (`memory`). In what else the
//! kernel makes up (`/proc`, `/sys`, ...) a read can have any effect.
//!
//! What remains visible, as with any reader: opens and reads can be watched (inotify, fanotify), a
//! lease that a stranger has on the file is broken, and walking a path follows symbolic links,
//! which sets their access times, and mounts automount points in the *middle* of it.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use runahead_abi::swapped_memory::PAGE_BYTES;
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_predict::{Batch, Name, StepFailure, Used};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{
    Advice, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, fadvise, openat,
    readlinkat, readlinkat_raw, statx,
};
use rustix::io::{Errno, Result, pread};

use crate::concurrency_limit::{Kind, Sample};
use crate::device_number::DeviceNumber;
use crate::request_queue::Class;

mod device_filesystems;
mod path_node;
mod seek_order;
mod swapped_memory;

pub(crate) use path_node::Node;
use path_node::{Open, What};
use swapped_memory::Memory;
pub use swapped_memory::{is_sample_page, memory_path};

pub(crate) use device_filesystems::{Device, Devices};
pub(crate) use seek_order::{SeekLine, SeekTurn};

/// Bytes of a worker's scratch memory for data of file systems that ask a server: it is read to be
/// in the page cache and then ignored.
const SCRATCH_BYTES: usize = CHUNK_BYTES as usize;

/// Bytes of a worker's scratch memory for entries of directories: what C libraries ask for at a
/// time.
const LISTING_BYTES: usize = 32 << 10;

/// Times what may block; the limit is derived from it.
pub(crate) struct Clock {
    origin: Instant,
    /// Samples not yet reported.
    pub samples: Vec<Sample>,
    /// Operations that had a request of their own, not yet reported.
    requests: u64,
    /// Time of a processor that this thread had taken when it was last reported.
    processor: Duration,
}

impl Clock {
    /// A clock that counts from `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Clock { origin, samples: Vec::new(), requests: 0, processor: Duration::ZERO }
    }

    /// Returns the resources that this thread has used since the last call, including its work
    /// between operations.
    pub(crate) fn take_used(&mut self) -> Used {
        let now = Usage::now().processor;
        let before = std::mem::replace(&mut self.processor, now);
        Used { requests: std::mem::take(&mut self.requests), processor: now.saturating_sub(before) }
    }

    /// Times `work` on `device`.
    fn time<T>(&mut self, kind: Kind, device: DeviceNumber, work: impl FnOnce() -> T) -> T {
        self.time_on(kind, (0, 0..0), work, |_| Some(device))
    }

    /// Times `work`, which reads this range of `node`.
    fn time_read<T>(
        &mut self,
        kind: Kind,
        (node, range): (&Node, &Range<u64>),
        work: impl FnOnce() -> T,
    ) -> T {
        self.time_on(kind, (node.inode, range.clone()), work, |_| Some(node.device))
    }

    /// Times `work` where only the result tells the device; if it does not, nothing is learned.
    fn time_on<T>(
        &mut self,
        kind: Kind,
        part: (u64, Range<u64>),
        work: impl FnOnce() -> T,
        device: impl FnOnce(&T) -> Option<DeviceNumber>,
    ) -> T {
        let before = Usage::now();
        let began = self.origin.elapsed();
        let result = work();
        let latency = self.origin.elapsed().saturating_sub(began);
        let after = Usage::now();
        let device = if after.sleeps == before.sleeps { None } else { device(&result) };
        // Of file systems without a block device no blocks are counted.
        let is_counted = device.is_none_or(|(major, _)| major != 0);
        let has_asked = !is_counted || after.blocks != before.blocks;
        self.requests += u64::from(has_asked);
        // What took long without sleeping waited for a processor, and would pass for fast storage;
        // so would what waited for the rest of another's request.
        if has_asked && let Some(device) = device {
            self.samples.push(Sample { kind, device, part, began, latency });
        }
        result
    }
}

/// Resources that a thread has used (getrusage(2)).
#[derive(Default)]
struct Usage {
    /// Times that the thread has given up its processor to wait.
    sleeps: i64,
    /// Blocks of 512 bytes that were read from block devices for the thread.
    blocks: i64,
    processor: Duration,
}

impl Usage {
    fn now() -> Self {
        let time = |time: TimeVal| Duration::from_micros(time.num_microseconds().max(0) as u64);
        let usage = getrusage(UsageWho::RUSAGE_THREAD);
        usage.map_or_else(
            |_| Usage::default(),
            |usage| Usage {
                sleeps: usage.voluntary_context_switches(),
                blocks: usage.block_reads(),
                processor: time(usage.user_time()) + time(usage.system_time()),
            },
        )
    }
}

/// Buffers and clock of one worker.
pub(crate) struct Reader {
    pub clock: Clock,
    /// Always empty; its capacity is the buffer.
    scratch: Vec<u8>,
}

/// Tells an answer from a shortage of our own.
pub(crate) fn trouble(error: Errno) -> StepFailure {
    match error {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => {
            StepFailure::Ours
        }
        _ => StepFailure::Answer,
    }
}

impl Node {
    /// Opens the object for reading; `flags` says what kind it must still be.
    fn open(&self, devices: &Devices) -> Result<&Open> {
        let opened = self.open.get_or_init(|| {
            if devices.device(self)? == Device::Unstored {
                return Err(Errno::OPNOTSUPP);
            }
            let kind = if self.directory { OFlags::DIRECTORY } else { OFlags::empty() };
            // A regular file cannot block or become a terminal, yet it costs nothing to say so.
            let flags = kind
                | OFlags::RDONLY
                | OFlags::CLOEXEC
                | OFlags::NONBLOCK
                | OFlags::NOCTTY
                | OFlags::NOATIME;
            let path = format!("/proc/self/fd/{}", self.object()?.as_raw_fd());
            let again = |flags| openat(CWD, path.as_str(), flags, Mode::empty());
            let (fd, quiet) = match again(flags) {
                Err(Errno::PERM) => (again(flags - OFlags::NOATIME)?, false),
                other => (other?, true),
            };
            if !self.directory {
                // No readahead beyond what is asked. It is advice: refused, all is the same.
                let _ = fadvise(&fd, 0, None, Advice::Random);
            }
            Ok(Open { fd, advise_only: !quiet && !self.directory })
        });
        opened.as_ref().map_err(|error| *error)
    }
}

impl Reader {
    pub(crate) fn new(clock: Clock) -> Self {
        Reader { clock, scratch: Vec::new() }
    }

    /// Walks to `path` and reads the attributes of what it names, so that both are in memory.
    pub(crate) fn look(&mut self, path: &[u8], follow: bool) -> Result<(Node, Class)> {
        if let Some(process) = Memory::process(path) {
            return Ok((Node::of_memory(process)?, Class::File { size: u64::MAX }));
        }
        let how = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let work = || {
            let path_fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | how, Mode::empty())?;
            let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
            let stat = statx(&path_fd, c"", flags, StatxFlags::BASIC_STATS)?;
            let class = match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::RegularFile => Class::File { size: stat.stx_size },
                FileType::Directory => Class::Directory,
                FileType::Symlink => Class::Link,
                _ => Class::Other,
            };
            let node = Node {
                what: What::Object(path_fd),
                device: (stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                directory: class == Class::Directory,
                open: OnceLock::new(),
            };
            Ok((node, class))
        };
        let device =
            |found: &Result<(Node, Class)>| found.as_ref().ok().map(|(node, _)| node.device);
        self.clock.time_on(Kind::Lookup, (0, 0..0), work, device)
    }

    /// Reads a range of the regular file `node`; the bytes that are there. With a `turn` it begins
    /// then.
    pub(crate) fn read(
        &mut self,
        node: &Node,
        range: &Range<u64>,
        devices: &Devices,
        turn: Option<SeekTurn>,
    ) -> Result<u64> {
        let length = range.end - range.start;
        if let What::Memory(memory) = &node.what {
            // Page by page: the kernel has read ahead of some of them.
            let clock = &mut self.clock;
            memory.swapped(range, |page| {
                clock.time_read(Kind::Read, (node, range), || memory.fetch(page))
            })?;
            return Ok(length);
        }
        let open = self.clock.time(Kind::Lookup, node.device, || node.open(devices))?;
        if open.advise_only {
            // The call waits for nothing, so nothing is learned of the device.
            self.clock.time_read(Kind::Read, (node, range), || advise(open, range));
            return Ok(length);
        }
        let remote = devices.device(node) == Ok(Device::Remote);
        let kind = if length > CHUNK_BYTES { Kind::LongRead } else { Kind::Read };
        let scratch = &mut self.scratch;
        // A server has no order. It is asked by reading, and no other worker may wait meanwhile.
        let turn = turn.filter(|_| !remote);
        let _ = turn.as_ref().map(SeekTurn::wait);
        self.clock.time_read(kind, (node, range), || {
            if !remote {
                if length > PAGE_BYTES || turn.is_some() {
                    advise(open, range);
                }
                drop(turn);
                return await_ends(open, range);
            }
            if kind == Kind::LongRead {
                // All requests are sent before the first is waited for.
                advise(open, range);
            }
            let there = read_all(open, range, scratch)?;
            // Reading makes the attributes stale (FUSE: the access time); they are asked for
            // again here, rather than by the target when it calls fstat.
            let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
            let _ = statx(&open.fd, c"", flags, StatxFlags::BASIC_STATS);
            Ok(there)
        })
    }

    /// The bytes of a range of the regular file `node`, as many of them as there are.
    ///
    /// It is read even where that sets the access time, which nothing but the file's owner can
    /// avoid: what a program needs cannot be known otherwise, and executing it sets the time, too.
    pub(crate) fn bytes(
        &mut self,
        node: &Node,
        range: &Range<u64>,
        devices: &Devices,
    ) -> Result<Vec<u8>> {
        let open = self.clock.time(Kind::Lookup, node.device, || node.open(devices))?;
        let length = (range.end - range.start) as usize;
        let kind = if length > SCRATCH_BYTES { Kind::LongRead } else { Kind::Read };
        let mut bytes = Vec::with_capacity(length);
        self.clock.time_read(kind, (node, range), || {
            while bytes.len() < length {
                let at = range.start + bytes.len() as u64;
                match pread(&open.fd, spare_capacity(&mut bytes), at) {
                    Ok(0) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The path of `node` without symbolic links, as the kernel knows it.
    pub(crate) fn real_path(&mut self, node: &Node) -> Option<Vec<u8>> {
        let path = format!("/proc/self/fd/{}", node.object().ok()?.as_raw_fd());
        let path = readlinkat(CWD, path, Vec::new()).ok()?.into_bytes();
        path.starts_with(b"/").then_some(path)
    }

    /// Reads all entries of the directory `node`, into `names` if they are wanted, and then so
    /// many at most.
    pub(crate) fn list(
        &mut self,
        node: &Node,
        devices: &Devices,
        mut names: Option<(&mut Vec<Name>, usize)>,
    ) -> Result<u64> {
        let open = self.clock.time(Kind::Lookup, node.device, || node.open(devices))?;
        self.scratch.clear();
        self.scratch.reserve_exact(LISTING_BYTES);
        let mut entries = RawDir::new(open.fd.as_fd(), self.scratch.spare_capacity_mut());
        loop {
            let entry = if entries.is_buffer_empty() {
                self.clock.time(Kind::Listing, node.device, || entries.next())
            } else {
                entries.next()
            };
            match entry {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if let (Some((names, max)), false) = (&mut names, matches!(name, b"." | b".."))
                    {
                        if names.len() >= *max {
                            return Ok(0);
                        }
                        let directory = entry.file_type() == FileType::Directory;
                        names.push(Name { name: name.into(), inode: entry.ino(), directory });
                    }
                }
                Some(Err(Errno::INTR)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(0),
            }
        }
    }

    /// Looks up the names of a batch, from their directory; errors are answers, too. After `each`
    /// it is asked whether to go on; false if the rest was left.
    pub(crate) fn look_at_all(
        &mut self,
        batch: &Batch,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = openat(CWD, &**batch.directory(), how, Mode::empty());
        for name in batch.names() {
            if let Ok(directory) = &directory {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                let work = || statx(directory, &**name, flags, StatxFlags::BASIC_STATS);
                let device = |stat: &Result<Statx>| {
                    stat.as_ref().ok().map(|stat| (stat.stx_dev_major, stat.stx_dev_minor))
                };
                let _ = self.clock.time_on(Kind::Lookup, (0, 0..0), work, device);
            }
            if !each(name) {
                return false;
            }
        }
        true
    }

    /// Reads the text of the symbolic link `path`. Nothing else can happen: readlink(2) of
    /// anything but a link is an error.
    pub(crate) fn read_link(&mut self, path: &[u8]) -> Result<u64> {
        let mut text = [MaybeUninit::<u8>::uninit(); 256];
        readlinkat_raw(CWD, path, &mut text).map(|_| 0)
    }
}

/// Starts reading `range`. In steps of a chunk, as the kernel cuts a larger request to the
/// device's readahead window and ignores the rest.
fn advise(open: &Open, range: &Range<u64>) {
    for piece in pieces(range) {
        let length = std::num::NonZeroU64::new(piece.end - piece.start);
        // Only advice; a file system that does not take it has no other way either.
        let _ = fadvise(&open.fd, piece.start, length, Advice::WillNeed);
    }
}

/// `range` in pieces of a chunk, from its start.
fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let starts = range.clone().step_by(CHUNK_BYTES as usize);
    starts.map(move |start| start..end.min(start.saturating_add(CHUNK_BYTES)))
}

/// Waits until `range` is in memory, whose reading has been started; the bytes that are there.
///
/// Touches as little as it can, the ends of each chunk: the kernel takes a page that has been read
/// twice, here and by the target, for one in use, and would keep it at the cost of others'
/// (docs/design/prefetching-memory.md). Nor is anything copied, for which each worker would need a
/// buffer. Where the start was refused or cut short, what is between is left to the target.
fn await_ends(open: &Open, range: &Range<u64>) -> Result<u64> {
    let mut byte = [0u8; 1];
    let mut there = |at| loop {
        match pread(&open.fd, &mut byte, at) {
            Err(Errno::INTR) => {}
            result => break result.map(|read| read != 0),
        }
    };
    for Range { start, end } in pieces(range) {
        let last = end - 1;
        let one_page = start / PAGE_BYTES == last / PAGE_BYTES;
        if !((one_page || there(start)?) && there(last)?) {
            let size = statx(&open.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE)?.stx_size;
            let end = size.clamp(range.start, range.end);
            if end > start {
                there(end - 1)?;
            }
            return Ok(end - range.start);
        }
    }
    Ok(range.end - range.start)
}

/// Reads `range` into `scratch`; the bytes that are there.
fn read_all(open: &Open, range: &Range<u64>, scratch: &mut Vec<u8>) -> Result<u64> {
    scratch.clear();
    scratch.reserve_exact(SCRATCH_BYTES);
    let mut at = range.start;
    while at < range.end {
        let asked = (range.end - at).min(SCRATCH_BYTES as u64) as usize;
        let (buffer, _) = scratch.spare_capacity_mut().split_at_mut(asked);
        match pread(&open.fd, &mut *buffer, at) {
            // Shorter than it was: what is gone need not be read.
            Ok(([], _)) => break,
            Ok((bytes, _)) => at += bytes.len() as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at - range.start)
}
