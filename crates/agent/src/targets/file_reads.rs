//! File contents: reads of all kinds, transfers and mappings.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;
use runahead_abi::hint_record::MAPPED;
use runahead_abi::{HintKind, HintState};
use runahead_estimators::Piece;
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::call_outcome::{Outcome, Stall, SyncSide};
use super::target_state::Target;
use super::{mapped_usage, page_faults};
use crate::descriptor_names::{self, FileKind, NAMES};
use crate::plane::Call;
use crate::read_extent::{self, FileRange};
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// Most bytes that one demand asks for.
const DEMAND_BYTES: u64 = 8 << 20;
/// Size from which a mapping by the program itself is expected to be accessed at random, in bytes.
const LARGE_MAPPING_BYTES: u64 = 1 << 20;

impl Target {
    pub(super) fn read(
        &self,
        session: &'static Session,
        call: &Call,
        buf: u64,
        len: u64,
        at: Option<u64>,
    ) -> Outcome {
        let fd = call.fd(0);
        if at.is_some_and(|at| at > i64::MAX as u64) {
            return Outcome::Native;
        }
        let kind = self.file_kind(fd);
        if !matches!(kind, FileKind::Nowait | FileKind::Remote) {
            return self.read_from_children(session, call);
        }
        let offset = at.unwrap_or_else(|| self.read_offset(session, fd));
        let as_it_stands = || {
            self.perform_timed(session, call, len, |t| {
                t.is_hinted(session, t.read_piece(fd, offset, len))
            })
        };
        let ret = if !self.probing(session) {
            as_it_stands()
        } else if kind == FileKind::Nowait {
            match try_read(fd, buf, len, at) {
                Ok(Some(got)) => {
                    self.stall_probing.note_hit();
                    call.performed(got as i64)
                }
                Ok(None) => as_it_stands(),
                Err(Errno(sys::EAGAIN)) => match self.stall_on_read(session, call, fd, at, len) {
                    Some(ret) => ret,
                    None => return Outcome::InShadow,
                },
                Err(Errno(sys::EOPNOTSUPP)) => {
                    NAMES.note_without_nowait(fd);
                    return self.read(session, call, buf, len, at);
                }
                Err(_) => as_it_stands(),
            }
        } else {
            match self.read_remote(session, call, fd, at, len) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        };
        self.count_read(session, call, fd, offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            NAMES.seek(fd, offset + ret as u64);
        }
        Outcome::Answer(ret)
    }

    /// Log key of the start of `len` bytes of `fd` from `offset`.
    fn read_piece(&self, fd: Fd, offset: u64, len: u64) -> Piece {
        NAMES.identity(fd).first_piece(offset, len)
    }

    fn stall_on_read(
        &self,
        session: &'static Session,
        call: &Call,
        fd: Fd,
        at: Option<u64>,
        len: u64,
    ) -> Option<i64> {
        // The remembered offset may be wrong if the file description is shared.
        let offset = at.or_else(|| sys::lseek(fd, 0, k::SEEK_CUR).ok()).unwrap_or(0);
        let piece = self.read_piece(fd, offset, len);
        let most = len.min(DEMAND_BYTES);
        // Before joining nothing was hinted, and the log must not take memory.
        let wanted = match session.is_joined() {
            true => read_extent::around(session.shared(), NAMES.identity(fd), offset, most),
            false => read_extent::whole_chunks(offset, most),
        };
        let stall = Stall {
            wait_offset: offset,
            ..self.stall_of_fd(fd, piece, HintKind::Data, wanted.offset, wanted.length)
        };
        self.handle_stall(session, call, stall, len)
    }

    /// Reads from a file system without `RWF_NOWAIT`: residency is asked of cachestat(2), or
    /// assumed for what the prefetcher has read.
    fn read_remote(
        &self,
        session: &'static Session,
        call: &Call,
        fd: Fd,
        at: Option<u64>,
        len: u64,
    ) -> Option<i64> {
        let offset = at.unwrap_or_else(|| self.read_offset(session, fd));
        let piece = self.read_piece(fd, offset, len);
        let done = session.is_joined() && session.shared().log.state(piece) == HintState::Done;
        if done || is_resident(fd, offset, len) != Some(false) {
            return Some(self.perform_timed(session, call, len, |_| done));
        }
        self.stall_on_read(session, call, fd, at, len)
    }

    /// readv(2) and preadv(2): tried whole, and made as they stand if anything is missing.
    pub(super) fn read_vector(
        &self,
        session: &'static Session,
        call: &Call,
        at: Option<u64>,
    ) -> Outcome {
        let fd = call.fd(0);
        if self.file_kind(fd) != FileKind::Nowait || at.is_some_and(|at| at > i64::MAX as u64) {
            self.record_vector_read(session, call, at);
            return Outcome::Native;
        }
        let offset = at.unwrap_or_else(|| self.read_offset(session, fd));
        let ret = if self.probing(session) && would_wait(fd, at, CHUNK_BYTES) == Ok(true) {
            match self.stall_on_read(session, call, fd, at, CHUNK_BYTES) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.perform_timed(session, call, CHUNK_BYTES, |_| false)
        };
        self.count_read(session, call, fd, offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            NAMES.seek(fd, offset + ret as u64);
        }
        Outcome::Answer(ret)
    }

    /// sendfile, copy_file_range, splice: `offset_at` points to the source's offset, or is null.
    pub(super) fn transfer(
        &self,
        session: &'static Session,
        call: &Call,
        source: Fd,
        offset_at: u64,
        len: u64,
    ) -> Outcome {
        if self.file_kind(source) != FileKind::Nowait || offset_at != 0 {
            self.record_transfer(session, source, offset_at, len);
            return Outcome::Native;
        }
        if !self.probing(session) && !self.records_accesses(session) {
            return Outcome::Answer(self.perform_timed(session, call, len, |_| false));
        }
        let Ok(offset) = sys::lseek(source, 0, k::SEEK_CUR) else { return Outcome::Native };
        let ret = if would_wait(source, Some(offset), len) == Ok(true) {
            match self.stall_on_read(session, call, source, Some(offset), len) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.perform_timed(session, call, len, |_| false)
        };
        self.count_read(session, call, source, offset, ret.max(0) as u64);
        Outcome::Answer(ret)
    }

    /// mmap(2) of a file: its data is demanded now, as the later page faults are not seen.
    pub(super) fn map(&self, session: &'static Session, call: &Call) -> Outcome {
        let [_, len, prot, flags, _, offset] = call.args;
        if let Some(outcome) = self.map_fixed(session, call) {
            return outcome;
        }
        let fd = call.fd(4);
        let is_writable = prot as u32 & k::PROT_WRITE != 0;
        if flags as u32 & (k::MAP_ANONYMOUS | k::MAP_STACK) == k::MAP_ANONYMOUS && is_writable {
            self.fault_watch.note_growth(session, len);
        }
        if flags as u32 & k::MAP_ANONYMOUS != 0
            // Without these conditions the mapping is neither recorded nor hinted.
            || !mapped_usage::may_be_recorded(session, len)
                && !session.is_joined()
                && !self.probing(session)
                && !self.records_accesses(session)
                && !is_large_mapping(call)
            || !matches!(self.file_kind(fd), FileKind::Nowait | FileKind::Remote)
        {
            return self.dontfork.map_native(call);
        }
        // Rotational disks are left to the kernel, which reads ahead of faults as it does of reads.
        // Requests for neighbouring pages side by side would move the heads for each.
        let is_watched = is_large_mapping(call) && !is_rotational(session, fd);
        let is_cold = is_watched && is_mapping_cold(fd, offset);
        if is_watched {
            self.fault_watch.expect_faults(call.thread, is_cold);
        }
        if is_cold {
            // The program will wait for its pages in faults, which no call shows.
            self.join(session);
            page_faults::report_cold_mapping(session);
            if self.sync(session, call) == SyncSide::Shadow {
                return Outcome::InShadow;
            }
        }
        let len = len.min(DEMAND_BYTES);
        let piece = self.read_piece(fd, offset, len);
        let known = self.is_hinted(session, piece);
        // A shadow predicts better which part of a large mapping is used.
        let absent = self.probing(session)
            && !known
            && !is_large_mapping(call)
            && is_mostly_absent(fd, offset, len);
        if absent {
            let stall = self.stall_of_fd(fd, piece, HintKind::Data, offset, len);
            if self.handle_stall(session, &probe_only(call), stall, len).is_none() {
                return Outcome::InShadow;
            }
        }
        self.record_data(session, fd, FileRange { offset, length: len }, MAPPED);
        self.count_chunks(session, call, fd, offset, len);
        let outcome = self.dontfork.map_native(call);
        let ret = match outcome {
            Outcome::Native => call.perform(),
            Outcome::Answer(ret) => ret,
            Outcome::InShadow => return outcome,
        };
        if ret > 0 && mapped_usage::may_be_recorded(session, call.args[1]) {
            self.large_mappings.note(ret as u64, fd, offset);
        }
        Outcome::Answer(ret)
    }
}

/// True for a large mapping of a file by the program, not by a loader: it is mostly accessed at
/// random.
fn is_large_mapping(call: &Call) -> bool {
    let [_, len, prot, flags, ..] = call.args;
    const LOADED: u32 = k::MAP_DENYWRITE | k::MAP_ANONYMOUS;
    len >= LARGE_MAPPING_BYTES && prot as u32 & k::PROT_EXEC == 0 && flags as u32 & LOADED == 0
}

/// True if `fd` lies on a rotational disk.
fn is_rotational(session: &Session, fd: Fd) -> bool {
    let devices = &session.config.rotational_devices;
    devices[0] != 0 && descriptor_names::device(fd).is_some_and(|device| devices.contains(&device))
}

/// True if most of the file's data from `offset` is not in memory. Where the kernel does not tell
/// (cachestat(2) requires ownership), only the first byte counts.
fn is_mapping_cold(fd: Fd, offset: u64) -> bool {
    residency(fd, offset, DEMAND_BYTES)
        .map_or_else(|| is_absent(fd, offset), |(cached, pages)| cached * 4 < pages)
}

/// A call without effect, for a stall that is not in the call at hand.
fn probe_only(call: &Call) -> Call {
    Call { nr: nr::GETPID, args: [0; 6], ..*call }
}

/// True if all pages of a range are in memory. `None` if this process may not ask (cachestat(2)
/// needs ownership or write access) or the kernel cannot tell.
fn is_resident(fd: Fd, offset: u64, len: u64) -> Option<bool> {
    residency(fd, offset, len).map(|(cached, pages)| cached >= pages)
}

/// True if a byte of `fd` is certainly not in memory.
pub(super) fn is_absent(fd: Fd, at: u64) -> bool {
    would_wait(fd, Some(at), 1).unwrap_or_else(|_| is_resident(fd, at, 1) == Some(false))
}

/// True if reading a mapping of this range would mostly stall. Untouched parts of a mapped file may
/// be absent although nothing is slow.
fn is_mostly_absent(fd: Fd, offset: u64, len: u64) -> bool {
    residency(fd, offset, len).is_some_and(|(cached, pages)| cached * 4 < pages)
}

/// Cached pages and all pages of a range.
fn residency(fd: Fd, offset: u64, len: u64) -> Option<(u64, u64)> {
    use crate::sys::PAGE;
    let size = sys::statx_fd(fd, k::STATX_SIZE).ok()?.stx_size;
    let end = size.min(offset.saturating_add(len));
    if offset >= end {
        return Some((0, 0));
    }
    let pages = end.div_ceil(PAGE) - offset / PAGE;
    sys::cached_pages(fd, offset, end - offset).ok().map(|cached| (cached, pages))
}

/// Tries a read without waiting. Returns what it read if that is complete, `None` if the call is to
/// be made as it stands.
///
/// A read takes its bytes and moves the offset atomically, whatever other threads do with the same
/// description or file. So a read without waiting is an answer only if nothing is missing. A read
/// with an explicit offset that lacks a part is made once more, whole. A read from the
/// description's own offset could not be undone, so it is only probed.
fn try_read(fd: Fd, buf: u64, len: u64, at: Option<u64>) -> sys::Result<Option<u64>> {
    let Some(at) = at else {
        return match would_wait(fd, None, len)? {
            true => Err(Errno(sys::EAGAIN)),
            false => Ok(None),
        };
    };
    // SAFETY: the buffer that the program's own read names.
    let got = unsafe { sys::read_nowait(fd, buf, len, Some(at)) }?;
    // A short read means the end of the file, or that the rest is not in memory.
    let is_all = got == 0 || got >= len || {
        let mut byte = 0u8;
        // SAFETY: a byte of this frame.
        unsafe { sys::read_nowait(fd, &raw mut byte as u64, 1, Some(at + got)) == Ok(0) }
    };
    Ok(is_all.then_some(got))
}

/// Probes a read of `len` bytes from `at`, or from the description's own offset. True if nothing
/// would be found in memory; the kernel has then started to read. No data is taken and the offset
/// stays.
///
/// The kernel looks for the data before it looks at the destination. With a destination that cannot
/// be written it reports without a copy what it found, and reads ahead as for the call itself.
fn would_wait(fd: Fd, at: Option<u64>, len: u64) -> sys::Result<bool> {
    /// Largest read for which a copy is cheaper than a fault.
    const SMALL_BYTES: u64 = 4096;
    let at = match at {
        Some(at) => at,
        None => sys::lseek(fd, 0, k::SEEK_CUR)?,
    };
    let mut small = MaybeUninit::<[u8; SMALL_BYTES as usize]>::uninit();
    let to = match len <= SMALL_BYTES {
        true => small.as_mut_ptr() as u64,
        // The agent's text, which is read-only.
        false => would_wait as *const () as u64 & !0xfff,
    };
    // SAFETY: a buffer of this frame that is large enough, or a page that cannot be written to.
    match unsafe { sys::read_nowait(fd, to, len.min(DEMAND_BYTES), Some(at)) } {
        Err(Errno(sys::EAGAIN)) => Ok(true),
        Ok(_) | Err(Errno(sys::EFAULT)) => Ok(false),
        Err(errno) => Err(errno),
    }
}
