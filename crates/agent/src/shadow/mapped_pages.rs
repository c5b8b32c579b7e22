//! Pages of mapped files in a runner: no fault of a runner waits for storage.
//!
//! Mappings of files have no contents in a shadow ([`lazy_regions`](super::lazy_regions)). The
//! first touch of a chunk that is in memory maps the whole chunk. Elsewhere a page that is in
//! memory is copied, and one that is not counts as a read that misses its data: it is hinted. In
//! its place the program sees what reads from the same call site have brought
//! ([`return_hooks`](super::return_hooks)).
//!
//! *Programs and libraries* stay as they are: nothing can stand in for code, and what a loader maps
//! is prefetched whole. A fault in one waits for a page that is on its way.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::{HintState, PATH_MAX};
use runahead_estimators::access_identity::{BLOCK_BYTES, CHUNK_BYTES};
use runahead_estimators::{ChunkIndex, Identity, filesystem_table};

use super::guard_pages;
use super::lazy_regions::{self, ContentSource, FilePart, LazyRegion};
use super::runner::{RUNNER, Runner};
use super::shadow_descriptors::{self, Backing, Descriptor};
use crate::hint_sender::Hint;
use crate::path_text;
use crate::plane::AddressRange;
use crate::process_maps::Mapping;
use crate::sys::{self, AT_FDCWD, Errno, Fd, PAGE, nr};

/// Size from which private read-only mappings become lazy, in bytes: the kernel maps smaller ones
/// in a touch or two.
const PRIVATE_BYTES_MIN: u64 = CHUNK_BYTES;

/// Bytes of copies that a run may always have.
const OWN_BYTES_MIN: u64 = 2 << 20;

/// Touch of a page that has not been brought.
#[derive(Clone, Copy)]
pub(super) struct PageFault {
    pub at: u64,
    /// True if nothing of the chunk has been touched since it became lazy.
    pub is_first: bool,
    /// Stack pointer of the program.
    pub stack: u64,
}

/// True while a runner answers a call and uses its state.
pub(super) static IS_ANSWERING: AtomicBool = AtomicBool::new(false);

/// Makes the mapping from `at` to `end` lazy.
///
/// # Safety
/// Memory of the program's, in a shadow, or unused.
pub(super) unsafe fn make_lazy(at: u64, end: u64, part: FilePart) -> sys::Result<()> {
    // SAFETY: the one thread of a shadow; nothing of it is touched meanwhile.
    let regions = unsafe { lazy_regions::of_this_shadow() };
    if !regions.has_room() {
        return Err(Errno(sys::ENOMEM));
    }
    // SAFETY: passed on to the caller.
    unsafe { sys::map_nothing(sys::Place::Over(at), end - at)? };
    regions.forget(&(at..end));
    regions.add(LazyRegion { at, end, source: ContentSource::File(part) })
}

/// Makes an inherited mapping of a file lazy; the name was stored. Returns false, and leaves it as
/// it is, if the file cannot be opened or is a different one now.
pub(super) fn make_inherited_lazy(mapping: &Mapping, name: (u32, u32)) -> bool {
    let Mapping { start, end, offset, inode, .. } = *mapping;
    let mut path = [0; PATH_MAX + 1];
    // SAFETY: the one thread of a new process.
    let text = unsafe { lazy_regions::of_this_shadow() }.name(name);
    let Some(to) = path.get_mut(..text.len()) else { return false };
    to.copy_from_slice(text);
    let identity = Identity::ROOT.join(to);
    let is_below_shm = path_text::is_below_shm(to);
    let Ok((fd, size)) = open_cached(path.as_ptr() as u64, inode, is_below_shm) else {
        return false;
    };
    let part = FilePart { fd, offset, size, identity, name, writable: mapping.writable };
    // SAFETY: the program's memory in this process's copy, of which we hold nothing.
    let laid_out = unsafe { make_lazy(start, end, part) }.is_ok();
    if !laid_out {
        let _ = sys::close(fd);
    }
    laid_out
}

fn is_in_memory(fd: Fd) -> bool {
    sys::filesystem_type(fd).is_ok_and(|kind| filesystem_table::by_number(kind).is_in_memory())
}

/// Opens the regular file of that name for reading, and returns its size. Fails if its inode is not
/// `inode`, or if it lies below `/dev/shm` and in memory.
fn open_cached(path: u64, inode: u64, is_below_shm: bool) -> sys::Result<(Fd, u64)> {
    const CACHED: u32 = k::RESOLVE_CACHED;
    let place = sys::openat2(AT_FDCWD, path, k::O_PATH | k::O_CLOEXEC, 0, CACHED)?;
    let opened =
        sys::statx_fd(place, k::STATX_TYPE | k::STATX_INO | k::STATX_SIZE).and_then(|stat| {
            if u32::from(stat.stx_mode) & k::S_IFMT != k::S_IFREG || stat.stx_ino != inode {
                return Err(Errno(sys::ENOENT));
            }
            if is_below_shm && is_in_memory(place) {
                return Err(Errno(sys::ENOENT));
            }
            Ok((shadow_descriptors::reopen(place, false)?, stat.stx_size))
        });
    let _ = sys::close(place);
    opened
}

/// Opens another descriptor of the file `real` and stores its name, for a mapping that outlives
/// both.
pub(super) fn open_for_mapping(real: Fd, name: &[u8]) -> sys::Result<(Fd, (u32, u32))> {
    // SAFETY: the one thread of a runner.
    let name =
        unsafe { lazy_regions::of_this_shadow() }.store_name(name).ok_or(Errno(sys::ENOMEM))?;
    Ok((shadow_descriptors::reopen(real, false)?, name))
}

/// Forgets that `len` bytes from `at` are lazy.
pub(super) fn forget(at: u64, len: u64) {
    // SAFETY: the one thread of a runner.
    unsafe { lazy_regions::of_this_shadow() }.forget(&range(at, len));
}

/// True if some of the `len` bytes from `at` is lazy.
pub(super) fn overlap(at: u64, len: u64) -> bool {
    // SAFETY: as above.
    unsafe { lazy_regions::of_this_shadow() }.overlap(&range(at, len))
}

/// Lets the program store to `len` bytes from `at`.
pub(super) fn allow_stores(at: u64, len: u64) {
    // SAFETY: as above.
    unsafe { lazy_regions::of_this_shadow() }.allow_stores(&range(at, len));
}

fn range(at: u64, len: u64) -> core::ops::Range<u64> {
    at..at.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// True if a mapping of a lasting file should become lazy: it is readable and not code. Writable
/// private memory stays, as it may have been written.
pub(super) fn is_worth_making_lazy(mapping: &Mapping, name: &[u8]) -> bool {
    mapping.inode != 0
        && mapping.readable
        && !mapping.executable
        && path_text::is_lasting(name)
        && (mapping.shared || !mapping.writable && mapping.end - mapping.start >= PRIVATE_BYTES_MIN)
}

/// Brings the page of `fault`, and perhaps more. Returns `None` if there is nothing to bring.
pub(super) fn bring(region: &LazyRegion, part: FilePart, fault: PageFault) -> Option<()> {
    let page = fault.at - fault.at % PAGE;
    let offset = part.offset + (page - region.at);
    if offset >= part.size {
        return None;
    }
    let piece = FilePage { region, part, page, offset };
    if IS_ANSWERING.load(Relaxed) {
        // The call at hand needs the place, or its present contents: it does not wait for a hint.
        piece.open_chunk(fault.is_first)?;
        piece.open(PAGE)?;
        // SAFETY: a page of this mapping, which nothing refers to before it is filled.
        let _ = unsafe { sys::read_nowait(part.fd, page, PAGE, Some(offset)) };
        return Some(());
    }
    // SAFETY: the one thread of a runner, outside of any call.
    let runner = unsafe { RUNNER.get() }.as_mut()?;
    runner.stack = fault.stack;
    runner.bring(&piece, fault.is_first)
}

/// Page of a file that is being brought.
struct FilePage<'a> {
    region: &'a LazyRegion,
    part: FilePart,
    /// Address of the page.
    page: u64,
    /// File offset of the page.
    offset: u64,
}

impl FilePage<'_> {
    /// Addresses of the part of the region in the same chunk.
    fn chunk(&self) -> AddressRange {
        let before = self.offset % CHUNK_BYTES;
        let start = self.page.saturating_sub(before).max(self.region.at);
        AddressRange::new(start, (self.page - before + CHUNK_BYTES).min(self.region.end))
    }

    fn offset_of(&self, at: u64) -> u64 {
        self.part.offset + (at - self.region.at)
    }

    /// Maps the chunk from the file if all of it is in memory. Returns false if not.
    fn map_chunk(&self) -> bool {
        let chunk = self.chunk();
        let offset = self.offset_of(chunk.start);
        let len = chunk.bytes().min(self.part.size - offset);
        if sys::is_cached(self.part.fd, offset, len) != Ok(true) {
            return false;
        }
        let prot = k::PROT_READ | k::PROT_WRITE;
        let flags = k::MAP_PRIVATE | k::MAP_FIXED | k::MAP_NORESERVE;
        let (prot, flags) = (prot.into(), flags.into());
        let args = [chunk.start, chunk.bytes(), prot, flags, self.part.fd as u64, offset];
        // SAFETY: memory of the program's that has no contents yet.
        sys::check(unsafe { sys::raw(nr::MMAP, args) }).is_ok()
    }

    fn open_chunk(&self, is_first: bool) -> Option<()> {
        let chunk = self.chunk();
        if is_first { guard_pages::guard(chunk.start, chunk.bytes()) } else { Some(()) }
    }

    fn open(&self, len: u64) -> Option<()> {
        guard_pages::unguard(self.page, len)
    }

    /// Number of bytes to bring at once: the rest of the block, or a page if the program may have
    /// stored there.
    fn bytes_to_bring(&self) -> u64 {
        if self.part.writable {
            return PAGE;
        }
        (BLOCK_BYTES - self.offset % BLOCK_BYTES).min(self.chunk().end - self.page)
    }
}

impl Runner {
    /// Limits this run's copies of mapped files and swapped memory to what may be read ahead of the
    /// program: where memory is limited, copies displace what the program works on.
    ///
    /// Beyond that all copies are dropped. What is touched again is brought again, without the
    /// run's stores.
    pub(super) fn limit_copies(&mut self) -> Option<()> {
        let control = &self.session.shared().control;
        let most = || control.bytes_budget.load(Relaxed).max(OWN_BYTES_MIN);
        if !shadow_descriptors::is_memory_scarce(control) || self.copied_bytes <= most() {
            return Some(());
        }
        self.copied_bytes = 0;
        // SAFETY: the one thread of a runner.
        let mut parts = unsafe { lazy_regions::of_this_shadow() }.droppable();
        parts.try_for_each(|part| {
            // SAFETY: a place in memory of the program's, which is filled as it is touched.
            unsafe { sys::map_nothing(sys::Place::Over(part.start), part.bytes()) }.ok().map(|_| ())
        })
    }

    /// Notes that `offset` of a file is not in memory. If the target has used it before, its
    /// neighbourhood was evicted too and is wanted again: the program works on more data than there
    /// is memory.
    pub(super) fn note_evicted(&self, file: Identity, offset: u64) {
        let log = &self.session.shared().log;
        let here = file.first_piece(offset, 1);
        if log.state(here) == HintState::Done && !log.holds(here) {
            file.pieces(offset - offset % CHUNK_BYTES, CHUNK_BYTES)
                .for_each(|all| log.note_evicted(all));
        }
    }

    fn bring(&mut self, piece: &FilePage<'_>, is_first: bool) -> Option<()> {
        self.limit_copies()?;
        let FilePart { fd, size, identity, .. } = piece.part;
        let d = Descriptor { size, ..Descriptor::new(Backing::File(fd), identity) };
        // Without guards each touch looks like a first one, and stores may be lost.
        let may_map = is_first && (guard_pages::are_supported() || !piece.part.writable);
        if may_map && piece.map_chunk() {
            if piece.part.writable {
                // An upper bound: only what the run stores to is copied.
                self.copied_bytes += piece.chunk().bytes();
            }
            self.note_met(identity.chunk(ChunkIndex::of(piece.offset)));
            return Some(());
        }
        piece.open_chunk(is_first)?;
        let want = piece.bytes_to_bring().min(size - piece.offset);
        let there = self.resident_bytes(&d, fd, piece.offset, want);
        if there > 0 {
            piece.open(there.next_multiple_of(PAGE))?;
            self.copied_bytes += there;
            // SAFETY: pages of this mapping, opened just now, which nothing refers to before they
            // are filled.
            let read = unsafe { sys::read_nowait(fd, piece.page, there, Some(piece.offset)) };
            let got = read.unwrap_or(0);
            if got > 0 {
                // Less than a moment ago: the rest counts as read.
                self.note_read(&d, piece.offset, piece.page, got.min(PAGE));
                return Some(());
            }
        }
        piece.open(PAGE)?;
        self.copied_bytes += PAGE;
        let len = PAGE.min(size - piece.offset);
        self.note_evicted(identity, piece.offset);
        if let Some(hint) = self.log_data_hint(&d, piece.offset, len, true) {
            // SAFETY: the one thread of a runner; the name is not changed.
            let path = unsafe { lazy_regions::of_this_shadow() }.name(piece.part.name);
            self.send_data_hint(&Hint { path, ..hint });
            self.wait_for_hint_room().ok()?;
        }
        self.fill_with_stale(piece.page, 0, len);
        Some(())
    }
}
