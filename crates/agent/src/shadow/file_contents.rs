//! File data, directory entries and mappings, as far as they are in memory.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::without;
use runahead_abi::hint_record::{LENGTH_UNKNOWN, STEERS};
use runahead_abi::{HintKind, HintState, RunEnd, Shared};
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_estimators::exemplars::{FILE_BYTES, Kind};
use runahead_estimators::value_predictor::{Choice, Stale};
use runahead_estimators::{ChunkIndex, Entry, Identity};

use super::lazy_regions::FilePart;
use super::mapped_pages;
use super::return_hooks::{self, Callers, ReturnMode};
use super::runner::{CallAnswer, Runner, Stop};
use super::runner_faults;
use super::shadow_descriptors::{self, Backing, Descriptor};
use super::suppressed_calls::vector_bytes;
use crate::hint_sender::Hint;
use crate::plane::{AddressRange, Call};
use crate::read_extent::{self, FileRange};
use crate::sys::{self, Errno, Fd, IoVec, PAGE};

/// Size of the largest file that an exemplar can stand in for, in bytes.
const EXEMPLAR_BYTES_MAX: u64 = FILE_BYTES as u64;
/// Most bytes hinted for one read, mapping or advice.
const HINT_BYTES_MAX: u64 = 64 << 20;
/// Size up to which a read is expected to steer the program, in bytes.
const STEERING_READ_BYTES: u64 = 32 << 10;

/// Enters the entries of `directory` that getdents64(2) wrote to `filled`.
pub(crate) fn note_directory_entries(shared: &Shared, directory: Identity, filled: &[u8]) {
    let control = &shared.control;
    shadow_descriptors::each_entry(filled, |inode, name, kind| {
        if name == b"." || name == b".." {
            return;
        }
        let identity = directory.join(name);
        if shared.entries.insert(identity, Entry { inode, kind }) {
            control.names_told.fetch_add(1, Relaxed);
        }
        if u32::from(kind) == k::DT_DIR
            && shared.entries.insert(identity.listing(), Entry { inode, kind })
        {
            control.directories_told.fetch_add(1, Relaxed);
        }
    });
}

impl Runner {
    pub(super) fn read(&mut self, fd: Fd, buf: u64, len: u64, at: Option<u64>) -> CallAnswer {
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let (offset, buffer) = (at.unwrap_or(d.offset), IoVec { base: buf, len });
        let got = match d.backing {
            Backing::File(place) => {
                self.count_access()?;
                let real = self.open_for_reading(fd, &d, place)?;
                self.read_open(fd, &d, real, buffer, (offset, at.is_none()))?
            }
            Backing::ColdFile => {
                self.count_access()?;
                if let Some(got) = self.read_exemplar(fd, buffer, offset, at.is_none()) {
                    return Ok(self.advance(fd, at, offset, got));
                }
                // The size is a guess. A program that reads beyond it knows better.
                let beyond = at.is_some() && offset > d.size;
                let got = if beyond { len } else { len.min(d.size.saturating_sub(offset)) };
                if got > 0 {
                    self.hint_missing_data(fd, &d, offset, len, len <= STEERING_READ_BYTES);
                    self.fill_with_stale(buf, 0, got);
                }
                got as i64
            }
            Backing::Directory(_) | Backing::ColdDirectory => sys::fail(sys::EISDIR),
            Backing::Pipe => return self.read_pipe(),
            // The data of a terminal or a socket cannot be predicted.
            Backing::Sink | Backing::Free => return Err(Stop(RunEnd::Call)),
        };
        Ok(self.advance(fd, at, offset, got))
    }

    /// Advances the offset of `fd` after a read of `got` bytes from `offset`, unless the read had
    /// an explicit offset.
    fn advance(&mut self, fd: Fd, at: Option<u64>, offset: u64, got: i64) -> i64 {
        if at.is_none()
            && got > 0
            && let Some(d) = self.descriptors.get(fd)
        {
            d.offset = offset + got as u64;
        }
        got
    }

    /// Exemplar kind of the file `fd`, by its name.
    fn exemplar_kind(&mut self, fd: Fd) -> Option<Kind> {
        self.directory_path(fd).map(Kind::of)
    }

    /// Reads from an exemplar, a whole file of the same kind, in place of `fd`, whose data is
    /// missing. Nothing of the file was read yet, or what was read was the exemplar's.
    ///
    /// Returns `None` if there is no exemplar. `in_order`: the read begins where the last one
    /// ended.
    fn read_exemplar(
        &mut self,
        fd: Fd,
        IoVec { base: buf, len }: IoVec,
        offset: u64,
        in_order: bool,
    ) -> Option<i64> {
        let d = *self.descriptors.get(fd)?;
        if (offset > 0 && !d.is_exemplar) || self.lacks_exemplars() {
            return None;
        }
        let kind = self.exemplar_kind(fd)?;
        let exemplars = &self.session.shared().exemplars;
        let size = exemplars.len_of(kind)?;
        // A page of a database does not make a file of that kind.
        let is_whole = in_order || len >= d.size;
        let is_known = d.backing != Backing::ColdFile;
        if !d.is_exemplar && is_known && (!is_whole || d.size > EXEMPLAR_BYTES_MAX) {
            return None;
        }
        if !d.is_exemplar {
            // The exemplar decides the course from here on: this run must not be learned from.
            self.hint_missing_data(fd, &d, 0, d.size.max(1), false);
            self.has_used_stale = true;
            return_hooks::finish_newest_read();
            return_hooks::stop_learning();
            let d = self.descriptors.get(fd)?;
            (d.is_exemplar, d.size) = (true, size);
        }
        // SAFETY: the program's buffer, in a process that may fault.
        let to = unsafe { core::slice::from_raw_parts_mut(buf as *mut u8, len as usize) };
        Some(exemplars.copy(kind, offset, to) as i64)
    }

    /// Keeps `got` bytes of a file, read from `offset`, as part of an exemplar.
    fn keep_exemplar(&mut self, fd: Fd, d: &Descriptor, buf: u64, offset: u64, got: u64) {
        if got > 0
            && d.size <= EXEMPLAR_BYTES_MAX
            && !self.lacks_exemplars()
            && let Some(kind) = self.exemplar_kind(fd)
        {
            // SAFETY: the kernel has just filled them.
            let piece = unsafe { core::slice::from_raw_parts(buf as *const u8, got as usize) };
            let ends = offset + got >= d.size;
            self.session.shared().exemplars.read(kind, offset, piece, ends);
        }
    }

    /// Returns a descriptor to read the file from. An inherited one is only an `O_PATH` descriptor
    /// and is reopened.
    fn open_for_reading(&mut self, fd: Fd, d: &Descriptor, place: Fd) -> Result<Fd, Stop> {
        if d.is_own {
            return Ok(place);
        }
        let own = shadow_descriptors::reopen_file(place, &self.session.shared().control)
            .map_err(|_| Stop(RunEnd::Call))?;
        if let Some(d) = self.descriptors.get(fd) {
            d.backing = Backing::File(own);
            d.is_own = true;
        }
        Ok(own)
    }

    /// Reads what is in memory. Stale data stands in for the rest, and the program is told that all
    /// of it was read (Fraser & Chang 4.1.2).
    fn read_open(
        &mut self,
        fd: Fd,
        d: &Descriptor,
        real: Fd,
        buffer: IoVec,
        (offset, in_order): (u64, bool),
    ) -> CallAnswer {
        let IoVec { base: buf, len } = buffer;
        if d.is_exemplar {
            return Ok(self.read_exemplar(fd, buffer, offset, in_order).unwrap_or(0));
        }
        let want = len.min(d.size.saturating_sub(offset));
        let there = self.resident_bytes(d, real, offset, want);
        let read = match if there < want { there } else { len } {
            0 if want > 0 => Err(Errno(sys::EAGAIN)),
            len => {
                // SAFETY: the buffer that the program's own read names.
                let read = || unsafe { sys::read_nowait(real, buf, len, Some(offset)) };
                match read() {
                    Err(Errno(sys::EFAULT)) => {
                        runner_faults::touch_buffer(buf, len);
                        read()
                    }
                    read => read,
                }
            }
        };
        let got = match read {
            Ok(got) => got,
            Err(Errno(sys::EAGAIN)) => 0,
            // No read was made yet. The size is believed if it is not 0, or if the file system
            // stores files.
            Err(Errno(sys::EOPNOTSUPP))
                if want == 0 && (d.size > 0 || shadow_descriptors::has_true_size(real)) =>
            {
                0
            }
            Err(Errno(sys::EOPNOTSUPP))
                if want == 0 && !shadow_descriptors::is_readable_by_all(real) =>
            {
                return Err(Stop(RunEnd::Call));
            }
            Err(Errno(sys::EOPNOTSUPP)) if self.is_believed_resident(d, real, offset, want) => {
                let args = [real as u64, buf, len, offset, 0, 0];
                runner_faults::touch_lazy_buffer(buf, len);
                // SAFETY: the program's buffer, checked by the kernel.
                let got = unsafe { sys::raw(sys::nr::PREAD64, args) };
                self.note_read(d, offset, buf, got.max(0) as u64);
                return Ok(got);
            }
            Err(Errno(sys::EOPNOTSUPP)) => 0,
            Err(Errno(e)) => return Ok(sys::fail(e)),
        };
        if got < want
            && got == 0
            && let Some(given) = self.read_exemplar(fd, buffer, offset, in_order)
        {
            return Ok(given);
        }
        if got < want {
            self.hint_missing_data(fd, d, offset + got, want - got, len <= STEERING_READ_BYTES);
            self.fill_with_stale(buf, got, want);
        } else {
            self.note_read(d, offset, buf, got);
            self.keep_exemplar(fd, d, buf, offset, got);
        }
        Ok(got.max(want) as i64)
    }

    /// Number of bytes, of `len` from `offset`, that can be read without making the kernel read
    /// others. The kernel reads ahead even for a read that does not wait, beyond the concurrency
    /// limit and unknown to the prefetcher.
    ///
    /// Returns `len` where it cannot be told: cachestat(2) needs Linux 6.5 and ownership of the
    /// file.
    pub(super) fn resident_bytes(
        &mut self,
        d: &Descriptor,
        real: Fd,
        offset: u64,
        len: u64,
    ) -> u64 {
        if len == 0 {
            return 0;
        }
        let chunk = d.identity.chunk(ChunkIndex::of(offset));
        let start = offset - offset % CHUNK_BYTES;
        let end = (start + CHUNK_BYTES).min(d.size);
        let is_within = offset + len <= end;
        if is_within && self.resident_chunk == chunk {
            return len;
        }
        let is_there = |offset, len| sys::is_cached(real, offset, len).unwrap_or(true);
        if is_within && is_there(start, end - start) {
            self.resident_chunk = chunk;
            return len;
        }
        let mut there = len;
        while there > 0 && !is_there(offset, there) {
            there = if there > PAGE { there / 2 } else { 0 };
        }
        there
    }

    /// Notes that a read found its data in memory.
    pub(super) fn note_read(&mut self, d: &Descriptor, offset: u64, buf: u64, got: u64) {
        self.note_met(d.identity.chunk(ChunkIndex::of(offset)));
        self.learn_values(buf, got);
    }

    /// Learns from a read of `len` bytes: its data, and what the program's functions return, are
    /// expected again where data is missing.
    fn learn_values(&self, buf: u64, len: u64) {
        if len == 0 || len > STEERING_READ_BYTES || self.is_without_stale() {
            return;
        }
        return_hooks::finish_newest_read();
        let callers = Callers::above(self.stack);
        let sites = &self.session.shared().sites;
        if self.has_used_stale {
            if let Some(number) = sites.find(callers.list()) {
                callers.hook(number, ReturnMode::Follow);
            }
            return;
        }
        let number = sites.claim(callers.list());
        // SAFETY: the kernel has just filled them.
        sites
            .get(number)
            .keep(unsafe { core::slice::from_raw_parts(buf as *const u8, len as usize) });
        callers.hook(number, ReturnMode::Learn);
    }

    /// Stops learning in this run: data is missing, and what follows depends on a guess.
    pub(super) fn stop_learning(&mut self) {
        return_hooks::finish_newest_read();
        return_hooks::stop_learning();
        self.has_used_stale = true;
    }

    /// Fills the missing part of a read of `len` bytes, of which `got` are present, with stale
    /// values.
    pub(super) fn fill_with_stale(&mut self, buf: u64, got: u64, len: u64) {
        if self.is_without_stale() {
            return;
        }
        self.stop_learning();
        if len > STEERING_READ_BYTES {
            return;
        }
        let callers = Callers::above(self.stack);
        let sites = &self.session.shared().sites;
        let Some(number) = sites.find(callers.list()) else { return };
        let site = sites.get(number);
        // A run makes one choice for each site.
        let mut choice = self.status().choice(number).unwrap_or_else(|| {
            let choice = Choice { site: number, stale: site.choose(), given: 0 };
            self.status().note_choice(choice);
            choice
        });
        let rest = (buf + got) as *mut u8;
        // SAFETY: the program's buffer, in a process that may fault.
        let rest = unsafe { core::slice::from_raw_parts_mut(rest, (len - got) as usize) };
        let way = match choice.stale {
            Stale::Results => ReturnMode::ExpectAll,
            Stale::Returns => ReturnMode::Expect,
            Stale::Usual | Stale::Left | Stale::Cleared => ReturnMode::Follow,
        };
        match choice.stale {
            Stale::Results | Stale::Returns | Stale::Usual => {
                let given = site.recall(return_hooks::kind_before(number), got as usize, rest);
                if let Some((value, _)) = given.filter(|(value, _)| choice.given & 1 << value == 0)
                {
                    site.gave(value);
                    choice.given |= 1 << value;
                    self.status().note_choice(choice);
                }
            }
            Stale::Left => {}
            Stale::Cleared => rest.fill(0),
        }
        callers.hook(number, way);
    }

    /// True if nothing stands in for missing data (an ablation).
    fn is_without_stale(&self) -> bool {
        self.session.is_without(without::STALE)
    }

    /// True if no other file stands in for a file that is missing.
    fn lacks_exemplars(&self) -> bool {
        self.session.is_without(without::STALE | without::EXEMPLARS)
    }

    fn is_believed_resident(&self, d: &Descriptor, real: Fd, offset: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        match sys::is_cached(real, offset, len) {
            Ok(cached) => cached,
            Err(_) => d
                .identity
                .pieces(offset, len)
                .all(|piece| self.session.shared().log.state(piece) == HintState::Done),
        }
    }

    /// Hints `len` bytes of `fd` from `offset`, and the readahead around them, if any of that is
    /// new. `steers`: the program is expected to go on as the data says.
    fn hint_missing_data(&mut self, fd: Fd, d: &Descriptor, offset: u64, len: u64, steers: bool) {
        if let Some(hint) = self.log_data_hint(d, offset, len, steers)
            && let Some(path) = self.directory_path(fd)
        {
            self.send_data_hint(&Hint { path, ..hint });
        }
    }

    /// Enters a hint of data into the log. Returns it without the file's path if it is new and must
    /// be sent.
    pub(super) fn log_data_hint(
        &mut self,
        d: &Descriptor,
        offset: u64,
        len: u64,
        steers: bool,
    ) -> Option<Hint<'static>> {
        let (shared, len) = (self.session.shared(), len.clamp(1, HINT_BYTES_MAX));
        let FileRange { offset, length } = read_extent::around(shared, d.identity, offset, len);
        let mut new = false;
        for piece in d.identity.pieces(offset, length) {
            new |= self.log_hint(piece);
        }
        if !new {
            return None;
        }
        let mut flags = if d.backing == Backing::ColdFile { LENGTH_UNKNOWN } else { 0 };
        if steers {
            flags |= STEERS;
        }
        let (kind, object) = (HintKind::Data, d.identity);
        Some(Hint { kind, object, offset, length, flags, path: b"" })
    }

    /// Sends a hint of data and counts it for the choices of stale values in this run.
    pub(super) fn send_data_hint(&self, hint: &Hint<'_>) {
        self.send_hint(hint);
        let sites = &self.session.shared().sites;
        self.status().choices().for_each(|choice| sites.get(choice.site).hinted(choice));
    }

    pub(super) fn read_vector(
        &mut self,
        fd: Fd,
        at: u64,
        count: u64,
        offset: Option<u64>,
    ) -> CallAnswer {
        let total = vector_bytes(at, count).max(0) as u64;
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let mut position = offset.unwrap_or(d.offset);
        let mut sum = 0;
        for n in 0..count.min(k::UIO_MAXIOV.into()) {
            // SAFETY: the program's vector, in a process that may fault.
            let IoVec { base, len } = unsafe { ((at + n * 16) as *const IoVec).read_unaligned() };
            match self.read(fd, base, len, Some(position))? {
                error if error < 0 => return Ok(if sum > 0 { sum } else { error }),
                got => {
                    sum += got;
                    position += got as u64;
                    if (got as u64) < len {
                        break;
                    }
                }
            }
        }
        if offset.is_none()
            && total > 0
            && let Some(d) = self.descriptors.get(fd)
        {
            d.offset = position;
        }
        Ok(sum)
    }

    pub(super) fn seek(&mut self, fd: Fd, offset: i64, whence: u32) -> CallAnswer {
        let Some(d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let base = match (d.backing, whence) {
            (Backing::Sink | Backing::Pipe, _) => return Ok(sys::fail(sys::ESPIPE)),
            (_, k::SEEK_SET) => 0,
            (_, k::SEEK_CUR) => d.offset as i64,
            (_, k::SEEK_END) => d.size as i64,
            // A file without known holes: data here, a hole at its end.
            (_, k::SEEK_DATA) if offset < d.size as i64 => 0,
            (_, k::SEEK_HOLE) if offset < d.size as i64 => d.size as i64 - offset,
            (_, k::SEEK_DATA | k::SEEK_HOLE) => return Ok(sys::fail(sys::ENXIO)),
            _ => return Ok(sys::fail(sys::EINVAL)),
        };
        let to = base.saturating_add(offset);
        if to < 0 {
            return Ok(sys::fail(sys::EINVAL));
        }
        if !matches!(whence, k::SEEK_DATA | k::SEEK_HOLE) || to != d.offset as i64 {
            d.offset = to as u64;
            d.listed = false;
        }
        Ok(to)
    }

    /// getdents64(2): the entries if the directory has been read, otherwise none, so that the
    /// shadow goes on to what comes after the directory.
    pub(super) fn list_directory(&mut self, fd: Fd, buf: u64, len: u64) -> CallAnswer {
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let real = match d.backing {
            Backing::Directory(real) => Some(real),
            Backing::ColdDirectory => None,
            _ => return Ok(sys::fail(sys::ENOTDIR)),
        };
        self.count_access()?;
        let listing = d.identity.listing();
        let shared = self.session.shared();
        if !d.listed {
            self.count_directory_use(&d);
        }
        self.note_met(listing);
        let read = self.session.shared().log.state(listing) == HintState::Done;
        let Some(real) = real.filter(|_| read) else {
            if self.log_hint(listing) {
                let (object, flags) = (d.identity, STEERS | self.expansion());
                if let Some(path) = self.directory_path(fd) {
                    self.send_hint(&Hint::whole(HintKind::Listing, object, flags, path));
                }
            }
            self.note_steering();
            return Ok(0);
        };
        let real = if d.listed { real } else { self.open_listing(fd, &d, real)? };
        runner_faults::touch_lazy_buffer(buf, len);
        // SAFETY: the program's buffer, checked by the kernel.
        let got = unsafe { sys::raw(sys::nr::GETDENTS64, [real as u64, buf, len, 0, 0, 0]) };
        if got > 0 {
            // SAFETY: the kernel has just filled that many bytes.
            let filled = unsafe { core::slice::from_raw_parts(buf as *const u8, got as usize) };
            note_directory_entries(shared, d.identity, filled);
        }
        Ok(got)
    }

    /// Counts reads of directories that listings of others contained.
    fn count_directory_use(&self, d: &Descriptor) {
        let shared = self.session.shared();
        // A separate key, so that looking up a directory and reading it count separately.
        if shared.entries.first_use(d.identity.listing()).is_some() {
            shared.control.directories_used.fetch_add(1, Relaxed);
        }
    }

    /// Opens a description of this runner's own, at the offset of the program's.
    fn open_listing(&mut self, fd: Fd, d: &Descriptor, real: Fd) -> Result<Fd, Stop> {
        let stop = |_| Stop(RunEnd::Call);
        let own = shadow_descriptors::reopen(real, true).map_err(stop)?;
        if d.offset > 0 {
            sys::lseek(own, d.offset as i64, k::SEEK_SET).map_err(stop)?;
        }
        if let Some(d) = self.descriptors.get(fd) {
            d.backing = Backing::Directory(own);
            d.listed = true;
            d.is_own = true;
        }
        Ok(own)
    }

    /// mmap(2): maps memory private, and hints a file's pages.
    pub(super) fn map(&mut self, call: &Call) -> CallAnswer {
        let [at, len, prot, flags, _, offset] = call.args;
        let flags = flags as u32;
        if flags & k::MAP_FIXED != 0 {
            if self.session.owns_any(at, len) {
                return Err(Stop(RunEnd::Call));
            }
            mapped_pages::forget(at, len);
        }
        let private = flags
            & !(k::MAP_SHARED | k::MAP_SHARED_VALIDATE | k::MAP_LOCKED | k::MAP_POPULATE)
            | k::MAP_PRIVATE;
        let anonymous = |flags: u32| {
            let flags = u64::from(flags | k::MAP_ANONYMOUS);
            let args = [at, len, prot, flags, u64::MAX, 0];
            // SAFETY: the program's own request for memory, made private.
            unsafe { sys::raw(sys::nr::MMAP, args) }
        };
        if flags & k::MAP_ANONYMOUS != 0 {
            return Ok(anonymous(private));
        }
        let fd = call.fd(4);
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let real = match d.backing {
            Backing::File(place) => self.open_for_reading(fd, &d, place)?,
            Backing::ColdFile => {
                self.count_access()?;
                self.hint_missing_data(fd, &d, offset, len.min(d.size), false);
                return Ok(anonymous(private));
            }
            _ => return Ok(sys::fail(sys::ENODEV)),
        };
        self.count_access()?;
        let want = len.min(d.size.saturating_sub(offset));
        let is_cold = want > 0 && !self.is_believed_resident(&d, real, offset, want);
        let is_loaded = prot & u64::from(k::PROT_EXEC) != 0 || flags & k::MAP_DENYWRITE != 0;
        if is_cold && is_loaded {
            // The page faults to come wait for these reads.
            self.hint_missing_data(fd, &d, offset, want, false);
        }
        let args = [at, len, prot, private.into(), real as u64, offset];
        // SAFETY: the program's own request, of a read-only descriptor, made private.
        let mapped = unsafe { sys::raw(sys::nr::MMAP, args) };
        if is_cold && !is_loaded && mapped > 0 {
            let writable = prot & u64::from(k::PROT_WRITE) != 0;
            let memory = AddressRange::of_bytes(mapped as u64, len);
            self.make_mapping_lazy(fd, &d, memory, (offset, writable));
        }
        Ok(mapped)
    }

    /// Makes a new mapping of `fd` lazy, if there is room for it; otherwise hints all of it.
    fn make_mapping_lazy(
        &mut self,
        fd: Fd,
        d: &Descriptor,
        memory: AddressRange,
        (offset, writable): (u64, bool),
    ) {
        let (Backing::File(real), at) = (d.backing, memory.start) else { return };
        let name = self.directory_path(fd).unwrap_or(b"");
        // The mapping needs its own descriptor, as the program closes the other.
        let own = mapped_pages::open_for_mapping(real, name).and_then(|(fd, name)| {
            let part = FilePart { fd, offset, size: d.size, identity: d.identity, name, writable };
            // SAFETY: what the program has just mapped, and not used yet.
            unsafe { mapped_pages::make_lazy(at, at + memory.bytes().next_multiple_of(PAGE), part) }
        });
        if own.is_err() {
            let len = memory.bytes().min(d.size.saturating_sub(offset));
            self.hint_missing_data(fd, d, offset, len, false);
        }
    }

    pub(super) fn advise(&mut self, fd: Fd, offset: u64, len: u64, advice: u32) -> CallAnswer {
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        if advice == k::POSIX_FADV_WILLNEED
            && matches!(d.backing, Backing::File(_) | Backing::ColdFile)
        {
            let rest = d.size.saturating_sub(offset);
            let len = if len == 0 { rest } else { len.min(rest) };
            self.hint_missing_data(fd, &d, offset, len, false);
        }
        Ok(0)
    }

    /// The reading half of sendfile, copy_file_range and splice, with their `offset_at`.
    pub(super) fn transfer(&mut self, fd: Fd, offset_at: u64, len: u64) -> CallAnswer {
        let Some(&mut d) = self.descriptors.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        if !matches!(d.backing, Backing::File(_) | Backing::ColdFile) {
            return Err(Stop(RunEnd::Call));
        }
        self.count_access()?;
        let own_offset = offset_at == 0;
        // SAFETY: the program's variable, in a process that may fault.
        let offset = if own_offset { d.offset } else { unsafe { *(offset_at as *const u64) } };
        let len = len.min(d.size.saturating_sub(offset)).min(0x7fff_f000);
        for start in (offset..offset + len).step_by(CHUNK_BYTES as usize) {
            self.hint_missing_data(fd, &d, start, CHUNK_BYTES.min(offset + len - start), false);
        }
        if own_offset {
            if let Some(d) = self.descriptors.get(fd) {
                d.offset += len;
            }
        } else {
            // SAFETY: as above.
            unsafe { *(offset_at as *mut u64) = offset + len };
        }
        Ok(len as i64)
    }
}
