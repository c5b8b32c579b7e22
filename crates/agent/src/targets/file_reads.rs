//! Contents: reads of all kinds, transfers and mappings.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;
use runahead_abi::access_identity::CHUNK_BYTES;
use runahead_abi::hint_record::MAPPED;
use runahead_abi::{HintKind, HintState, Piece};

use super::Target;
use super::call_outcome::{Outcome, Stall, SyncSide};
use super::{mapped_usage, page_faults};
use crate::descriptor_names::{self, FileKind, NAMES};
use crate::plane::Call;
use crate::read_extent;
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// Bytes that a demand asks for at most.
const DEMAND_BYTES: u64 = 8 << 20;
/// From so many bytes on, a mapping of the program's own is taken to be used here and there.
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

    /// What the log calls the start of `len` bytes of `fd` from `read_offset`.
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
        // The offset that we remember may be wrong when the description is shared.
        let offset = at.or_else(|| sys::lseek(fd, 0, k::SEEK_CUR).ok()).unwrap_or(0);
        let piece = self.read_piece(fd, offset, len);
        let most = len.min(DEMAND_BYTES);
        // Before it has joined, nothing was hinted, and the log is not to take memory for that.
        let (start, wanted) = match session.is_joined() {
            true => read_extent::around(session.shared(), NAMES.identity(fd), offset, most),
            false => read_extent::whole_chunks(offset, most),
        };
        let stall = Stall {
            wait_offset: offset,
            ..self.stall_of_fd(fd, piece, HintKind::Data, start, wanted)
        };
        self.handle_stall(session, call, stall, len)
    }

    /// On a file system that cannot say EAGAIN, residency is asked for (cachestat), or believed of
    /// what the prefetcher has read.
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

    /// readv and preadv: tried whole; made as they stand when anything is missing.
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

    /// A mapping stalls later, in page faults that we do not see: its file is asked for now.
    pub(super) fn map(&self, session: &'static Session, call: &Call) -> Outcome {
        let [_, len, prot, flags, _, offset] = call.args;
        if let Some(outcome) = self.map_fixed(session, call) {
            return outcome;
        }
        let fd = call.fd(4);
        let is_writable = prot as u32 & k::PROT_WRITE != 0;
        if flags as u32 & (k::MAP_ANONYMOUS | k::MAP_STACK) == k::MAP_ANONYMOUS && is_writable {
            self.note_growth(session, len);
        }
        if flags as u32 & k::MAP_ANONYMOUS != 0
            // Nobody will ask what was mapped.
            || !mapped_usage::may_be_recorded(session, len)
                && !session.is_joined()
                && !self.probing(session)
                && !self.records_accesses(session)
                && !is_large_mapping(call)
            || !matches!(self.file_kind(fd), FileKind::Nowait | FileKind::Remote)
        {
            return self.map_native(call);
        }
        // (What turns is best left to the kernel, which reads ahead of faults as it does of reads: pages asked for side by side have
        // its heads moved for each.)
        let is_watched = is_large_mapping(call) && !is_rotational(session, fd);
        let is_cold = is_watched && is_mapping_cold(fd, offset);
        if is_watched {
            self.expect_faults(call.thread, is_cold);
        }
        if is_cold {
            // Its pages will be waited for in faults, of which nobody tells.
            self.join(session);
            page_faults::report_cold_mapping(session);
            if self.sync(session, call) == SyncSide::Shadow {
                return Outcome::InShadow;
            }
        }
        let len = len.min(DEMAND_BYTES);
        let piece = self.read_piece(fd, offset, len);
        let known = self.is_hinted(session, piece);
        // (What is used of a large one a shadow tells better.)
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
        self.record_data(session, fd, (offset, len), MAPPED);
        self.count_chunks(session, call, fd, offset, len);
        let outcome = self.map_native(call);
        let ret = match outcome {
            Outcome::Native => call.perform(),
            Outcome::Answer(ret) => ret,
            Outcome::InShadow => return outcome,
        };
        if ret > 0 && mapped_usage::may_be_recorded(session, call.args[1]) {
            self.mapped_usage.note(ret as u64, fd, offset);
        }
        Outcome::Answer(ret)
    }
}

/// A mapping of much of a file, by the program and not by a loader: it is mostly used here and there.
fn is_large_mapping(call: &Call) -> bool {
    let [_, len, prot, flags, ..] = call.args;
    const LOADED: u32 = k::MAP_DENYWRITE | k::MAP_ANONYMOUS;
    len >= LARGE_MAPPING_BYTES && prot as u32 & k::PROT_EXEC == 0 && flags as u32 & LOADED == 0
}

/// `fd` lies on a disk that turns.
fn is_rotational(session: &Session, fd: Fd) -> bool {
    let turning = &session.config.turning_devices;
    turning[0] != 0 && descriptor_names::device(fd).is_some_and(|device| turning.contains(&device))
}

/// Most of what lies behind `read_offset` in a file is not in memory; where the kernel does not tell (cachestat(2) is for a
/// file's owner), the first byte of it.
fn is_mapping_cold(fd: Fd, offset: u64) -> bool {
    residency(fd, offset, DEMAND_BYTES)
        .map_or_else(|| is_absent(fd, offset), |(cached, pages)| cached * 4 < pages)
}

/// A call without effect, for a stall that is not in the call at hand.
fn probe_only(call: &Call) -> Call {
    Call { nr: nr::GETPID, args: [0; 6], ..*call }
}

/// Whether all pages of a range are in memory; `None` if this process may not ask (cachestat needs
/// ownership or write access) or the kernel cannot tell.
fn is_resident(fd: Fd, offset: u64, len: u64) -> Option<bool> {
    residency(fd, offset, len).map(|(cached, pages)| cached >= pages)
}

/// Whether a byte of `fd` is certainly not in memory.
pub(super) fn is_absent(fd: Fd, at: u64) -> bool {
    would_wait(fd, Some(at), 1).unwrap_or_else(|_| is_resident(fd, at, 1) == Some(false))
}

/// Whether reading a mapping of this range would mostly stall. Parts of a mapped file may never be
/// touched, and so are not in memory although nothing is slow.
fn is_mostly_absent(fd: Fd, offset: u64, len: u64) -> bool {
    residency(fd, offset, len).is_some_and(|(cached, pages)| cached * 4 < pages)
}

/// Pages of a range that are in memory, and all of its pages.
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

/// Tries a read without waiting: what it gave if that is all, `None` if it is to be made as it stands.
///
/// A read takes its bytes and moves the offset in one go, whoever else reads from the same description or
/// writes to the same file; so what was read without waiting is an answer only if nothing is missing. Where the
/// call says from where, one that lacks the rest is made once more, whole. A read from the description's own
/// offset could not be taken back, so that it is only asked how it would go.
fn try_read(fd: Fd, buf: u64, len: u64, at: Option<u64>) -> sys::Result<Option<u64>> {
    let Some(at) = at else {
        return match would_wait(fd, None, len)? {
            true => Err(Errno(sys::EAGAIN)),
            false => Ok(None),
        };
    };
    // SAFETY: the buffer that the program's own read names.
    let got = unsafe { sys::read_nowait(fd, buf, len, Some(at)) }?;
    // Short may mean the end of the file, or that the rest is not in memory.
    let is_all = got == 0 || got >= len || {
        let mut byte = 0u8;
        // SAFETY: a byte of this frame.
        unsafe { sys::read_nowait(fd, &raw mut byte as u64, 1, Some(at + got)) == Ok(0) }
    };
    Ok(is_all.then_some(got))
}

/// Whether a read of `len` bytes, from the description's own offset if not from `at`, would find nothing
/// in memory; if so, the kernel has started to read. Nothing is taken, and the offset stays.
///
/// The kernel looks for the data before it looks where to put it: by a place that cannot be written to it
/// tells without a copy what it found, and reads ahead as for the call itself.
fn would_wait(fd: Fd, at: Option<u64>, len: u64) -> sys::Result<bool> {
    /// To copy so much is cheaper than a fault.
    const SMALL_BYTES: u64 = 4096;
    let at = match at {
        Some(at) => at,
        None => sys::lseek(fd, 0, k::SEEK_CUR)?,
    };
    let mut small = MaybeUninit::<[u8; SMALL_BYTES as usize]>::uninit();
    let to = match len <= SMALL_BYTES {
        true => small.as_mut_ptr() as u64,
        // Our text, which is read-only.
        false => would_wait as *const () as u64 & !0xfff,
    };
    // SAFETY: a buffer of this frame that is large enough, or a page that cannot be written to.
    match unsafe { sys::read_nowait(fd, to, len.min(DEMAND_BYTES), Some(at)) } {
        Err(Errno(sys::EAGAIN)) => Ok(true),
        Ok(_) | Err(Errno(sys::EFAULT)) => Ok(false),
        Err(errno) => Err(errno),
    }
}
