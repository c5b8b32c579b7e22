//! Contents: file data, directory entries and mappings, as far as they are in memory.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::access_identity::CHUNK_BYTES;
use runahead_abi::agent_config::without;
use runahead_abi::exemplars::{FILE_BYTES, Kind};
use runahead_abi::hint_record::{LENGTH_UNKNOWN, STEERS};
use runahead_abi::value_predictor::{Choice, Stale};
use runahead_abi::{ChunkIndex, Entry, HintKind, HintState, Identity, RunEnd, Shared};

use super::lazy_regions::FilePart;
use super::mapped_pages;
use super::return_hooks::{self, Callers, Way};
use super::runner::{Answer, Runner, Stop};
use super::runner_faults;
use super::shadow_descriptors::{self, Behind, Descriptor};
use super::suppressed_calls::vector_bytes;
use crate::hint_sender::Hint;
use crate::plane::Call;
use crate::read_extent;
use crate::sys::{self, Errno, Fd, PAGE};

/// Bytes of the largest file that another is taken for.
const EXEMPLARY_BYTES: u64 = FILE_BYTES as u64;
/// Bytes of one read, mapping or advice that are hinted at most.
const HINT_BYTES: u64 = 64 << 20;
/// A read of at most so many bytes is taken to be of something that tells the program where to go on.
const SMALL_BYTES: u64 = 32 << 10;

/// Notes what the entries in `filled` (as getdents64(2) wrote them) tell of the names in `directory`.
pub(crate) fn tell(shared: &Shared, directory: Identity, filled: &[u8]) {
    let control = &shared.control;
    shadow_descriptors::entries(filled, |inode, name, kind| {
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
    pub(super) fn read(&mut self, fd: Fd, buf: u64, len: u64, at: Option<u64>) -> Answer {
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let offset = at.unwrap_or(d.offset);
        let got = match d.behind {
            Behind::File(place) => {
                self.access()?;
                let real = self.readable(fd, &d, place)?;
                self.read_open(fd, &d, real, (buf, len), (offset, at.is_none()))?
            }
            Behind::ColdFile => {
                self.access()?;
                if let Some(got) = self.read_exemplar(fd, (buf, len), offset, at.is_none()) {
                    return Ok(self.advance(fd, at, offset, got));
                }
                // Its size is a guess: who asks for something beyond it has been told better.
                let beyond = at.is_some() && offset > d.size;
                let got = if beyond { len } else { len.min(d.size.saturating_sub(offset)) };
                if got > 0 {
                    self.miss_data(fd, &d, offset, len, len <= SMALL_BYTES);
                    self.stand_in(buf, 0, got);
                }
                got as i64
            }
            Behind::Directory(_) | Behind::ColdDirectory => sys::fail(sys::EISDIR),
            Behind::Pipe => return self.read_pipe(),
            // What a terminal or a socket will say is not to be known.
            Behind::Sink | Behind::Nothing => return Err(Stop(RunEnd::Call)),
        };
        Ok(self.advance(fd, at, offset, got))
    }

    /// A read of `fd` gave `got` bytes from `offset`; from where the description stood, if `at` does not say.
    fn advance(&mut self, fd: Fd, at: Option<u64>, offset: u64, got: i64) -> i64 {
        if at.is_none()
            && got > 0
            && let Some(d) = self.files.get(fd)
        {
            d.offset = offset + got as u64;
        }
        got
    }

    /// The kind of the file `fd`, by its name.
    fn kind(&mut self, fd: Fd) -> Option<Kind> {
        self.directory_text(fd).map(Kind::of)
    }

    /// Data of `fd` is missing, and nothing of it was read yet, or what was read was another file's: gives the contents of
    /// a whole file of its kind, if there is one. `None`: there is none.
    /// `in_order`: it is read from where the last read ended.
    fn read_exemplar(
        &mut self,
        fd: Fd,
        (buf, len): (u64, u64),
        offset: u64,
        in_order: bool,
    ) -> Option<i64> {
        let d = *self.files.get(fd)?;
        if (offset > 0 && !d.stood_in) || self.lacks_exemplars() {
            return None;
        }
        let kind = self.kind(fd)?;
        let exemplars = &self.session.shared().exemplars;
        let size = exemplars.len_of(kind)?;
        // A database, of which this is a page, is no file of that kind.
        let is_whole = in_order || len >= d.size;
        let is_known = d.behind != Behind::ColdFile;
        if !d.stood_in && is_known && (!is_whole || d.size > EXEMPLARY_BYTES) {
            return None;
        }
        if !d.stood_in {
            // Its course is that of the others: nothing is to be learned by a run that has it.
            self.miss_data(fd, &d, 0, d.size.max(1), false);
            self.stood_in = true;
            return_hooks::settle();
            return_hooks::stop_learning();
            let d = self.files.get(fd)?;
            (d.stood_in, d.size) = (true, size);
        }
        // SAFETY: the program's buffer, in a process that may fault.
        let to = unsafe { core::slice::from_raw_parts_mut(buf as *mut u8, len as usize) };
        Some(exemplars.copy(kind, offset, to) as i64)
    }

    /// The read at hand has brought `got` bytes of a file, from `offset`.
    fn keep_exemplar(&mut self, fd: Fd, d: &Descriptor, buf: u64, offset: u64, got: u64) {
        if got > 0
            && d.size <= EXEMPLARY_BYTES
            && !self.lacks_exemplars()
            && let Some(kind) = self.kind(fd)
        {
            // SAFETY: the kernel has just filled them.
            let piece = unsafe { core::slice::from_raw_parts(buf as *const u8, got as usize) };
            let ends = offset + got >= d.size;
            self.session.shared().exemplars.read(kind, offset, piece, ends);
        }
    }

    /// The descriptor to read a file from: what was inherited is only a place.
    fn readable(&mut self, fd: Fd, d: &Descriptor, place: Fd) -> Result<Fd, Stop> {
        if d.own {
            return Ok(place);
        }
        let own = shadow_descriptors::open_data(place, &self.session.shared().control)
            .map_err(|_| Stop(RunEnd::Call))?;
        if let Some(d) = self.files.get(fd) {
            d.behind = Behind::File(own);
            d.own = true;
        }
        Ok(own)
    }

    /// Reads what is in memory; something stands in for the rest, and the program is told that all of it
    /// was read (Fraser & Chang 4.1.2).
    fn read_open(
        &mut self,
        fd: Fd,
        d: &Descriptor,
        real: Fd,
        (buf, len): (u64, u64),
        (offset, in_order): (u64, bool),
    ) -> Answer {
        if d.stood_in {
            return Ok(self.read_exemplar(fd, (buf, len), offset, in_order).unwrap_or(0));
        }
        let want = len.min(d.size.saturating_sub(offset));
        let there = self.resident(d, real, offset, want);
        let read = match if there < want { there } else { len } {
            0 if want > 0 => Err(Errno(sys::EAGAIN)),
            len => {
                // SAFETY: the buffer that the program's own read names.
                let read = || unsafe { sys::read_nowait(real, buf, len, Some(offset)) };
                match read() {
                    Err(Errno(sys::EFAULT)) => {
                        runner_faults::touch(buf, len);
                        read()
                    }
                    read => read,
                }
            }
        };
        let got = match read {
            Ok(got) => got,
            Err(Errno(sys::EAGAIN)) => 0,
            // No read was made yet. The size is believed of what has one, or is stored.
            Err(Errno(sys::EOPNOTSUPP))
                if want == 0 && (d.size > 0 || shadow_descriptors::is_stored(real)) =>
            {
                0
            }
            Err(Errno(sys::EOPNOTSUPP))
                if want == 0 && !shadow_descriptors::is_for_everybody(real) =>
            {
                return Err(Stop(RunEnd::Call));
            }
            Err(Errno(sys::EOPNOTSUPP)) if self.is_believed_resident(d, real, offset, want) => {
                let args = [real as u64, buf, len, offset, 0, 0];
                runner_faults::touch_absent(buf, len);
                // SAFETY: the program's buffer, checked by the kernel.
                let got = unsafe { sys::raw(sys::nr::PREAD64, args) };
                self.found(d, offset, buf, got.max(0) as u64);
                return Ok(got);
            }
            Err(Errno(sys::EOPNOTSUPP)) => 0,
            Err(Errno(e)) => return Ok(sys::fail(e)),
        };
        if got < want
            && got == 0
            && let Some(given) = self.read_exemplar(fd, (buf, len), offset, in_order)
        {
            return Ok(given);
        }
        if got < want {
            self.miss_data(fd, d, offset + got, want - got, len <= SMALL_BYTES);
            self.stand_in(buf, got, want);
        } else {
            self.found(d, offset, buf, got);
            self.keep_exemplar(fd, d, buf, offset, got);
        }
        Ok(got.max(want) as i64)
    }

    /// How many of `len` bytes of a file from `offset` may be read without the kernel beginning to read others: it does
    /// so for a read that does not wait as well, and past the limit of what the storage can serve, with nobody to tell
    /// the prefetcher. `len` where that cannot be told: cachestat(2) is of Linux 6.5, and for a file's owner.
    pub(super) fn resident(&mut self, d: &Descriptor, real: Fd, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let chunk = d.identity.chunk(ChunkIndex::of(offset));
        let start = offset - offset % CHUNK_BYTES;
        let end = (start + CHUNK_BYTES).min(d.size);
        let is_within = offset + len <= end;
        if is_within && self.resident == chunk {
            return len;
        }
        let is_there = |offset, len| sys::is_cached(real, offset, len).unwrap_or(true);
        if is_within && is_there(start, end - start) {
            self.resident = chunk;
            return len;
        }
        let mut there = len;
        while there > 0 && !is_there(offset, there) {
            there = if there > PAGE { there / 2 } else { 0 };
        }
        there
    }

    /// The read at hand found its data in memory.
    pub(super) fn found(&mut self, d: &Descriptor, offset: u64, buf: u64, got: u64) {
        self.meets(d.identity.chunk(ChunkIndex::of(offset)));
        self.learn(buf, got);
    }

    /// The read at hand has brought `len` bytes: what it brought, and what the program's functions return,
    /// is what they will be taken for where data is missing.
    fn learn(&self, buf: u64, len: u64) {
        if len == 0 || len > SMALL_BYTES || self.leaves_stale() {
            return;
        }
        return_hooks::settle();
        let callers = Callers::above(self.stack);
        let sites = &self.session.shared().sites;
        if self.stood_in {
            if let Some(number) = sites.find(callers.list()) {
                callers.watch(number, Way::Follow);
            }
            return;
        }
        let number = sites.claim(callers.list());
        // SAFETY: the kernel has just filled them.
        sites
            .get(number)
            .keep(unsafe { core::slice::from_raw_parts(buf as *const u8, len as usize) });
        callers.watch(number, Way::Learn);
    }

    /// Something is missing: what follows is not to be learned from.
    pub(super) fn learn_no_more(&mut self) {
        return_hooks::settle();
        return_hooks::stop_learning();
        self.stood_in = true;
    }

    /// The read at hand would have brought `len` bytes, of which `got` are there.
    pub(super) fn stand_in(&mut self, buf: u64, got: u64, len: u64) {
        if self.leaves_stale() {
            return;
        }
        self.learn_no_more();
        if len > SMALL_BYTES {
            return;
        }
        let callers = Callers::above(self.stack);
        let sites = &self.session.shared().sites;
        let Some(number) = sites.find(callers.list()) else { return };
        let site = sites.get(number);
        // One run goes one way at one site.
        let mut choice = self.status().choice(number).unwrap_or_else(|| {
            let choice = Choice { site: number, stale: site.choose(), given: 0 };
            self.status().note_choice(choice);
            choice
        });
        let rest = (buf + got) as *mut u8;
        // SAFETY: the program's buffer, in a process that may fault.
        let rest = unsafe { core::slice::from_raw_parts_mut(rest, (len - got) as usize) };
        let way = match choice.stale {
            Stale::Results => Way::ExpectAll,
            Stale::Returns => Way::Expect,
            Stale::Usual | Stale::Left | Stale::Cleared => Way::Follow,
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
        callers.watch(number, way);
    }

    /// Nothing is to stand in for what is missing.
    fn leaves_stale(&self) -> bool {
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

    /// Hints `len` bytes of `fd` from `offset`, and what is worth reading with them, if any of that is not known yet.
    /// `steers`: the program is taken to go on as the data says.
    fn miss_data(&mut self, fd: Fd, d: &Descriptor, offset: u64, len: u64, steers: bool) {
        if let Some(hint) = self.foresee_data(d, offset, len, steers)
            && let Some(path) = self.directory_text(fd)
        {
            self.send_data(&Hint { path, ..hint });
        }
    }

    /// As [`Runner::miss_data`]: what is to be sent, with the file's name, if that is new.
    pub(super) fn foresee_data(
        &mut self,
        d: &Descriptor,
        offset: u64,
        len: u64,
        steers: bool,
    ) -> Option<Hint<'static>> {
        let (shared, len) = (self.session.shared(), len.clamp(1, HINT_BYTES));
        let (offset, length) = read_extent::around(shared, d.identity, offset, len);
        let mut new = false;
        for piece in d.identity.pieces(offset, length) {
            new |= self.foresee(piece);
        }
        if !new {
            return None;
        }
        let mut flags = if d.behind == Behind::ColdFile { LENGTH_UNKNOWN } else { 0 };
        if steers {
            flags |= STEERS;
        }
        let (kind, object) = (HintKind::Data, d.identity);
        Some(Hint { kind, object, offset, length, flags, path: b"" })
    }

    /// Sends a hint of data.
    pub(super) fn send_data(&self, hint: &Hint<'_>) {
        self.send(hint);
        let sites = &self.session.shared().sites;
        self.status().choices().for_each(|choice| sites.get(choice.site).hinted(choice));
    }

    pub(super) fn read_vector(
        &mut self,
        fd: Fd,
        at: u64,
        count: u64,
        offset: Option<u64>,
    ) -> Answer {
        let total = vector_bytes(at, count).max(0) as u64;
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let mut position = offset.unwrap_or(d.offset);
        let mut sum = 0;
        for n in 0..count.min(k::UIO_MAXIOV.into()) {
            // SAFETY: the program's vector, in a process that may fault.
            let [buf, len] = unsafe { ((at + n * 16) as *const [u64; 2]).read_unaligned() };
            match self.read(fd, buf, len, Some(position))? {
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
            && let Some(d) = self.files.get(fd)
        {
            d.offset = position;
        }
        Ok(sum)
    }

    pub(super) fn seek(&mut self, fd: Fd, offset: i64, whence: u32) -> Answer {
        let Some(d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let base = match (d.behind, whence) {
            (Behind::Sink | Behind::Pipe, _) => return Ok(sys::fail(sys::ESPIPE)),
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

    /// getdents64: the entries, if the directory has been read; none otherwise, so that the
    /// shadow goes on to what comes after the directory.
    pub(super) fn list(&mut self, fd: Fd, buf: u64, len: u64) -> Answer {
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let real = match d.behind {
            Behind::Directory(real) => Some(real),
            Behind::ColdDirectory => None,
            _ => return Ok(sys::fail(sys::ENOTDIR)),
        };
        self.access()?;
        let listing = d.identity.listing();
        let shared = self.session.shared();
        if !d.listed {
            self.uses_directory(&d);
        }
        self.meets(listing);
        let read = self.session.shared().log.state(listing) == HintState::Done;
        let Some(real) = real.filter(|_| read) else {
            if self.foresee(listing) {
                let (object, flags) = (d.identity, STEERS | self.expansion());
                if let Some(path) = self.directory_text(fd) {
                    self.send(&Hint::whole(HintKind::Listing, object, flags, path));
                }
            }
            self.steered();
            return Ok(0);
        };
        let real = if d.listed { real } else { self.open_listing(fd, &d, real)? };
        runner_faults::touch_absent(buf, len);
        // SAFETY: the program's buffer, checked by the kernel.
        let got = unsafe { sys::raw(sys::nr::GETDENTS64, [real as u64, buf, len, 0, 0, 0]) };
        if got > 0 {
            // SAFETY: the kernel has just filled that many bytes.
            let filled = unsafe { core::slice::from_raw_parts(buf as *const u8, got as usize) };
            tell(shared, d.identity, filled);
        }
        Ok(got)
    }

    /// Counts which of the directories that others told are read.
    fn uses_directory(&self, d: &Descriptor) {
        let shared = self.session.shared();
        // A name of its own, so that looking a directory up is one thing and reading it another.
        if shared.entries.first_use(d.identity.listing()).is_some() {
            shared.control.directories_used.fetch_add(1, Relaxed);
        }
    }

    /// A description of this runner's own, standing where the program's does.
    fn open_listing(&mut self, fd: Fd, d: &Descriptor, real: Fd) -> Result<Fd, Stop> {
        let stop = |_| Stop(RunEnd::Call);
        let own = shadow_descriptors::open_again(real, true).map_err(stop)?;
        if d.offset > 0 {
            sys::lseek(own, d.offset as i64, k::SEEK_SET).map_err(stop)?;
        }
        if let Some(d) = self.files.get(fd) {
            d.behind = Behind::Directory(own);
            d.listed = true;
            d.own = true;
        }
        Ok(own)
    }

    /// mmap: the program's memory, private; a file's pages are hinted.
    pub(super) fn map(&mut self, call: &Call) -> Answer {
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
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        let real = match d.behind {
            Behind::File(place) => self.readable(fd, &d, place)?,
            Behind::ColdFile => {
                self.access()?;
                self.miss_data(fd, &d, offset, len.min(d.size), false);
                return Ok(anonymous(private));
            }
            _ => return Ok(sys::fail(sys::ENODEV)),
        };
        self.access()?;
        let want = len.min(d.size.saturating_sub(offset));
        let is_cold = want > 0 && !self.is_believed_resident(&d, real, offset, want);
        let is_loaded = prot & u64::from(k::PROT_EXEC) != 0 || flags & k::MAP_DENYWRITE != 0;
        if is_cold && is_loaded {
            // The page faults to come wait for these reads.
            self.miss_data(fd, &d, offset, want, false);
        }
        let args = [at, len, prot, private.into(), real as u64, offset];
        // SAFETY: the program's own request, of a read-only descriptor, made private.
        let mapped = unsafe { sys::raw(sys::nr::MMAP, args) };
        if is_cold && !is_loaded && mapped > 0 {
            let writable = prot & u64::from(k::PROT_WRITE) != 0;
            self.lay_out(fd, &d, (mapped as u64, len), (offset, writable));
        }
        Ok(mapped)
    }

    /// What was mapped of `fd` comes as it is touched, where there is room for that; else it is asked for whole.
    fn lay_out(
        &mut self,
        fd: Fd,
        d: &Descriptor,
        (at, len): (u64, u64),
        (offset, writable): (u64, bool),
    ) {
        let Behind::File(real) = d.behind else { return };
        let name = self.directory_text(fd).unwrap_or(b"");
        // Of its own, as the program closes its descriptor.
        let own = mapped_pages::keep_open(real, name).and_then(|(fd, name)| {
            let part = FilePart { fd, offset, size: d.size, identity: d.identity, name, writable };
            // SAFETY: what the program has just mapped, and not used yet.
            unsafe { mapped_pages::lay_out(at, at + len.next_multiple_of(PAGE), part) }
        });
        if own.is_err() {
            self.miss_data(fd, d, offset, len.min(d.size.saturating_sub(offset)), false);
        }
    }

    pub(super) fn advise(&mut self, fd: Fd, offset: u64, len: u64, advice: u32) -> Answer {
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        if advice == k::POSIX_FADV_WILLNEED
            && matches!(d.behind, Behind::File(_) | Behind::ColdFile)
        {
            let rest = d.size.saturating_sub(offset);
            let len = if len == 0 { rest } else { len.min(rest) };
            self.miss_data(fd, &d, offset, len, false);
        }
        Ok(0)
    }

    /// The reading half of sendfile, copy_file_range and splice; `offset_at` as they have it.
    pub(super) fn transfer(&mut self, fd: Fd, offset_at: u64, len: u64) -> Answer {
        let Some(&mut d) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        if !matches!(d.behind, Behind::File(_) | Behind::ColdFile) {
            return Err(Stop(RunEnd::Call));
        }
        self.access()?;
        let own_offset = offset_at == 0;
        // SAFETY: the program's variable, in a process that may fault.
        let offset = if own_offset { d.offset } else { unsafe { *(offset_at as *const u64) } };
        let len = len.min(d.size.saturating_sub(offset)).min(0x7fff_f000);
        for start in (offset..offset + len).step_by(CHUNK_BYTES as usize) {
            self.miss_data(fd, &d, start, CHUNK_BYTES.min(offset + len - start), false);
        }
        if own_offset {
            if let Some(d) = self.files.get(fd) {
                d.offset += len;
            }
        } else {
            // SAFETY: as above.
            unsafe { *(offset_at as *mut u64) = offset + len };
        }
        Ok(len as i64)
    }
}
