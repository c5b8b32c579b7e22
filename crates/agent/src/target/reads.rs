//! Contents: reads of all kinds, transfers and mappings.

use linux_raw_sys::general as k;
use runahead_abi::identity::CHUNK_BYTES;
use runahead_abi::{HintKind, HintState, Piece};

use super::Target;
use super::access::Outcome;
use super::names::{self, Kind};
use crate::extent;
use crate::plane::Call;
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// Bytes that a demand asks for at most.
const DEMAND_BYTES: u64 = 8 << 20;

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
        let kind = self.kind(fd);
        if !matches!(kind, Kind::Nowait | Kind::Remote) {
            return self.read_from_children(session, call);
        }
        let offset = at.unwrap_or_else(|| self.offset(session, fd));
        let ret = if !self.probing(session) {
            self.timed(session, call, len, |t| t.knows(session, t.piece(fd, offset, len)))
        } else if kind == Kind::Nowait {
            match sys::read_nowait(fd, buf, len, at) {
                Ok(got) => {
                    call.performed(got as i64);
                    self.pace.hit();
                    // Short may mean the end of the file, or that the rest is not in memory; the
                    // call on the rest tells, and is what the kernel would have done next.
                    if got > 0 && got < len {
                        match self.read_rest(session, call, (buf, len, at), offset, got) {
                            Some(ret) => ret,
                            None => return Outcome::InShadow,
                        }
                    } else {
                        got as i64
                    }
                }
                Err(Errno(sys::EAGAIN)) => match self.read_stall(session, call, fd, at, len) {
                    Some(ret) => ret,
                    None => return Outcome::InShadow,
                },
                Err(Errno(sys::EOPNOTSUPP)) => {
                    self.names.no_nowait(fd);
                    return self.read(session, call, buf, len, at);
                }
                Err(_) => self.timed(session, call, len, |_| false),
            }
        } else {
            match self.read_remote(session, call, fd, at, len) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        };
        self.count_read(session, call, fd, offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            self.names.seek(fd, offset + ret as u64);
        }
        Outcome::Answer(ret)
    }

    /// Completes a read of which the first `got` bytes were in memory.
    fn read_rest(
        &self,
        session: &'static Session,
        call: &Call,
        given: (u64, u64, Option<u64>),
        offset: u64,
        got: u64,
    ) -> Option<i64> {
        let (buf, len, at) = given;
        if !names::is_regular(call.fd(0)) {
            // Another thread, or a handler, has put something else there, which may make us wait.
            return Some(call.performed(got as i64));
        }
        let mut rest = *call;
        rest.args[1] = buf + got;
        rest.args[2] = len - got;
        if let Some(at) = at {
            rest.args[3] = at + got;
        }
        let fd = call.fd(0);
        let known = self.knows(session, self.piece(fd, offset + got, len - got));
        // No more is the end, or an error that the kernel, too, reports only at the next call.
        let more = self.timed(session, &rest, len - got, |_| known).max(0);
        Some(call.performed(got as i64 + more))
    }

    /// What the log calls the start of `len` bytes of `fd` from `offset`.
    fn piece(&self, fd: Fd, offset: u64, len: u64) -> Piece {
        self.names.identity(fd).first_piece(offset, len)
    }

    fn read_stall(
        &self,
        session: &'static Session,
        call: &Call,
        fd: Fd,
        at: Option<u64>,
        len: u64,
    ) -> Option<i64> {
        // The offset that we remember may be wrong when the description is shared.
        let offset = at.or_else(|| sys::lseek(fd, 0, k::SEEK_CUR).ok()).unwrap_or(0);
        let piece = self.piece(fd, offset, len);
        let most = len.min(DEMAND_BYTES);
        // Before it has joined, nothing was hinted, and the log is not to take memory for that.
        let (start, wanted) = match session.is_joined() {
            true => extent::around(session.shared(), self.names.identity(fd), offset, most),
            false => extent::whole(offset, most),
        };
        self.stall(session, call, self.of_fd(fd, piece, HintKind::Data, start, wanted), len)
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
        let offset = at.unwrap_or_else(|| self.offset(session, fd));
        let piece = self.piece(fd, offset, len);
        let done = session.is_joined() && session.shared().log.state(piece) == HintState::Done;
        if done || is_resident(fd, offset, len) != Some(false) {
            return Some(self.timed(session, call, len, |_| done));
        }
        self.read_stall(session, call, fd, at, len)
    }

    /// readv and preadv: tried whole; made as they stand when anything is missing.
    pub(super) fn read_vector(
        &self,
        session: &'static Session,
        call: &Call,
        at: Option<u64>,
    ) -> Outcome {
        let fd = call.fd(0);
        if self.kind(fd) != Kind::Nowait || at.is_some_and(|at| at > i64::MAX as u64) {
            self.tell_vector(session, call, at);
            return Outcome::Native;
        }
        let offset = at.unwrap_or_else(|| self.offset(session, fd));
        let ret = if self.probing(session) && !first_byte_is_resident(fd, offset) {
            match self.read_stall(session, call, fd, at, CHUNK_BYTES) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.timed(session, call, CHUNK_BYTES, |_| false)
        };
        self.count_read(session, call, fd, offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            self.names.seek(fd, offset + ret as u64);
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
        if self.kind(source) != Kind::Nowait || offset_at != 0 {
            self.tell_transfer(session, source, offset_at, len);
            return Outcome::Native;
        }
        if !self.probing(session) && !self.tells(session) {
            return Outcome::Answer(self.timed(session, call, len, |_| false));
        }
        let Ok(offset) = sys::lseek(source, 0, k::SEEK_CUR) else { return Outcome::Native };
        let ret = if first_byte_is_resident(source, offset) {
            self.timed(session, call, len, |_| false)
        } else {
            match self.read_stall(session, call, source, Some(offset), len) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        };
        self.count_read(session, call, source, offset, ret.max(0) as u64);
        Outcome::Answer(ret)
    }

    /// A mapping stalls later, in page faults that we do not see: its file is asked for now.
    pub(super) fn map(&self, session: &'static Session, call: &Call) -> Outcome {
        let [_, len, _, flags, _, offset] = call.args;
        let fd = call.fd(4);
        if flags as u32 & k::MAP_ANONYMOUS != 0
            // Nobody will ask what was mapped.
            || !session.is_joined() && !self.probing(session) && !self.tells(session)
            || !matches!(self.kind(fd), Kind::Nowait | Kind::Remote)
        {
            return self.map_anything(call);
        }
        let len = len.min(DEMAND_BYTES);
        let piece = self.piece(fd, offset, len);
        let known = self.knows(session, piece);
        let absent = self.probing(session) && !known && is_mostly_absent(fd, offset, len);
        if absent {
            let stall = self.of_fd(fd, piece, HintKind::Data, offset, len);
            if self.stall(session, &probe_only(call), stall, len).is_none() {
                return Outcome::InShadow;
            }
        }
        self.count_read(session, call, fd, offset, len);
        self.map_anything(call)
    }
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

/// Whether reading a mapping of this range would mostly stall. Parts of a mapped file may never be
/// touched, and so are not in memory although nothing is slow.
fn is_mostly_absent(fd: Fd, offset: u64, len: u64) -> bool {
    residency(fd, offset, len).is_some_and(|(cached, pages)| cached * 4 < pages)
}

/// Pages of a range that are in memory, and all of its pages.
fn residency(fd: Fd, offset: u64, len: u64) -> Option<(u64, u64)> {
    const PAGE: u64 = 4096;
    let size = sys::statx_fd(fd, k::STATX_SIZE).ok()?.stx_size;
    let end = size.min(offset.saturating_add(len));
    if offset >= end {
        return Some((0, 0));
    }
    let pages = end.div_ceil(PAGE) - offset / PAGE;
    sys::cached_pages(fd, offset, end - offset).ok().map(|cached| (cached, pages))
}

fn first_byte_is_resident(fd: Fd, offset: u64) -> bool {
    let mut byte = 0u8;
    sys::read_nowait(fd, &raw mut byte as u64, 1, Some(offset)) != Err(Errno(sys::EAGAIN))
}
