//! The calls that can stall: tried without waiting, and what happens when they would wait.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::identity::CHUNK_BYTES;
use runahead_abi::record::{DEMAND, NO_FOLLOW};
use runahead_abi::{ChunkIndex, HintKind, HintState, Identity, PATH_MAX};

use super::Target;
use super::names::Kind;
use super::sync::Side;
use crate::arch::ticks;
use crate::hints::{self, Hint};
use crate::paths;
use crate::plane::{Call, performed};
use crate::session::Session;
use crate::shadow;
use crate::sys::{self, Errno, Fd, nr};

/// What became of a call.
pub(super) enum Outcome {
    /// It is to be made as it stands.
    Native,
    /// Its result.
    Answer(i64),
    /// This is the shadow, and the call is still to be answered.
    InShadow,
}

/// A wait for something that the log may know.
struct Stall<'a> {
    /// What the log calls it.
    key: Identity,
    hint: Hint<'a>,
    /// The object's name is `path` seen from `dir`; empty: the object is `dir` itself.
    dir: Fd,
    path: &'a [u8],
}

/// Bytes of a mapped file that a demand asks for at most.
const MAP_BYTES: u64 = 8 << 20;

impl Target {
    /// One more access that a shadow makes, too; `key` is what the log calls it.
    fn count(&mut self, session: &'static Session, key: Identity) {
        let control = &session.shared.control;
        let accesses = control.accesses.load(Relaxed) + 1;
        control.accesses.store(accesses, Relaxed);
        assert!(accesses != session.config.panic_at, "planted");
        if control.hints_issued.load(Relaxed) != 0 && session.shared.log.touch(key) {
            control.hints_used.store(control.hints_used.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Counts the chunks of a read of `len` bytes.
    fn count_read(&mut self, session: &'static Session, file: Identity, offset: u64, len: u64) {
        let last = offset + len.max(1) - 1;
        self.count(session, file.chunk(ChunkIndex::of(offset)));
        let control = &session.shared.control;
        if control.hints_issued.load(Relaxed) == 0 {
            return;
        }
        for chunk in ChunkIndex::of(offset).0 + 1..=ChunkIndex::of(last).0 {
            if session.shared.log.touch(file.chunk(ChunkIndex(chunk))) {
                control.hints_used.store(control.hints_used.load(Relaxed) + 1, Relaxed);
            }
        }
    }

    /// Nothing has stalled and nothing was hinted: names need not be kept exactly.
    fn at_rest(&self, session: &'static Session) -> bool {
        !self.probing(session) && session.shared.control.hints_issued.load(Relaxed) == 0
    }

    fn probing(&self, session: &'static Session) -> bool {
        self.pace.probing() || session.shared.control.want_sync.load(Relaxed) != 0
    }

    /// Makes the call as it stands, with a look at the clock.
    fn timed(
        &mut self, session: &'static Session, call: &Call, bytes: u64, known: impl FnOnce(&Self) -> bool,
    ) -> i64 {
        let start = ticks();
        let ret = call.perform();
        let took = ticks() - start;
        let sleeps = &mut self.sleeps;
        let slept = || {
            let before = sleeps.replace(sys::voluntary_switches());
            before.is_some() && *sleeps != before
        };
        self.stalled = self.pace.took(took, bytes, session.config.ticks_per_us, slept);
        if self.stalled {
            let control = &session.shared.control;
            let (count, time) = match known(self) {
                true => (&control.stalls_foreseen, &control.stall_ticks_foreseen),
                false => (&control.stalls_unforeseen, &control.stall_ticks_unforeseen),
            };
            count.fetch_add(1, Relaxed);
            time.fetch_add(took, Relaxed);
        }
        ret
    }

    fn knows(&self, session: &'static Session, key: Identity) -> bool {
        session.shared.log.state(key) != HintState::Absent
    }

    /// Called only after a stall in a call that the kernel has resolved `path` for.
    fn knows_path(&self, session: &'static Session, dir: Fd, path: u64) -> bool {
        // SAFETY: the kernel read the path during the call, which waited for what it names.
        self.knows(session, self.identity(session, dir, unsafe { paths::c_string(path) }))
    }

    fn knows_data(&self, session: &'static Session, fd: Fd, offset: u64) -> bool {
        self.knows(session, self.names.identity(fd).chunk(ChunkIndex::of(offset)))
    }

    /// The call would wait: see that its data is on the way and that a shadow runs ahead, then
    /// wait. `None` in the shadow.
    fn stall(&mut self, session: &'static Session, call: &Call, stall: Stall<'_>, bytes: u64) -> Option<i64> {
        let shared = session.shared;
        let foreseen = shared.log.state(stall.key) != HintState::Absent;
        if !foreseen {
            demand(session, &stall);
        }
        let wanted = shared.control.want_sync.load(Relaxed) != 0;
        if (!foreseen || wanted) && self.syncs.at_stall(session) == Side::Shadow {
            return None;
        }
        self.sleeps = Some(sys::voluntary_switches());
        let ret = self.timed(session, call, bytes, |_| foreseen);
        if !self.stalled {
            self.pace.cleared();
        }
        Some(ret)
    }

    pub(super) fn open(
        &mut self, session: &'static Session, call: &Call, dir: Fd, path: u64, flags: u32,
    ) -> Outcome {
        // What may create or truncate cannot be tried (RESOLVE_CACHED refuses it).
        let plain = flags & (k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE) == 0;
        if !plain || !self.probing(session) {
            let ret = self.timed(session, call, 0, |t| t.knows_path(session, dir, path));
            return self.opened(session, ret, dir, path);
        }
        // No mode: nothing is created, and openat2 refuses one then, which openat ignores.
        match sys::openat2(dir, path, flags, 0, k::RESOLVE_CACHED) {
            Ok(fd) => {
                self.pace.hit();
                self.opened(session, performed(fd.into()), dir, path)
            }
            // SAFETY: the kernel has just read this path.
            Err(Errno(sys::EAGAIN)) if paths::is_made_up(unsafe { paths::c_string(path) }) => {
                let ret = call.perform();
                self.opened(session, ret, dir, path)
            }
            Err(Errno(sys::EAGAIN)) => {
                // SAFETY: the kernel has just resolved this path.
                let text = unsafe { paths::c_string(path) };
                let nofollow = if flags & k::O_NOFOLLOW != 0 { NO_FOLLOW } else { 0 };
                let kind = if flags & k::O_DIRECTORY != 0 { HintKind::Listing } else { HintKind::Lookup };
                match self.stall(session, call, self.named(session, dir, text, kind, nofollow), 0) {
                    Some(ret) => self.opened(session, ret, dir, path),
                    None => Outcome::InShadow,
                }
            }
            // openat2 is stricter than openat about flags; the call itself has the last word.
            Err(Errno(sys::EINVAL | sys::ENOSYS | sys::E2BIG)) => {
                let ret = self.timed(session, call, 0, |_| false);
                self.opened(session, ret, dir, path)
            }
            Err(Errno(e)) => {
                self.pace.hit();
                self.opened(session, sys::fail(e), dir, path)
            }
        }
    }

    /// openat2 has its own resolve flags: made as it stands.
    pub(super) fn open_as_given(&mut self, session: &'static Session, call: &Call) -> Outcome {
        let ret = self.timed(session, call, 0, |_| false);
        self.opened(session, ret, call.fd(0), call.args[1])
    }

    fn opened(&mut self, session: &'static Session, ret: i64, dir: Fd, path: u64) -> Outcome {
        if ret == sys::fail(sys::EFAULT) {
            return Outcome::Answer(ret);
        }
        // SAFETY: the kernel has just resolved this path.
        let text = unsafe { paths::c_string(path) };
        let identity = self.identity(session, dir, text);
        self.count(session, identity);
        if ret >= 0 {
            if !self.at_rest(session) {
                session.shared.parents.opened(self.names.at(dir), text);
            }
            self.names.opened(ret as Fd, identity);
        }
        Outcome::Answer(ret)
    }

    fn named<'a>(
        &self, session: &Session, dir: Fd, path: &'a [u8], kind: HintKind, flags: u32,
    ) -> Stall<'a> {
        let object = self.identity(session, dir, path);
        let hint = Hint { kind, object, offset: 0, length: 0, flags: flags | DEMAND, path: b"" };
        Stall { key: object, hint, dir, path }
    }

    pub(super) fn look_up_at(
        &mut self, session: &'static Session, call: &Call, at: (Fd, u64), flags: u32,
    ) -> Outcome {
        if flags & k::AT_EMPTY_PATH != 0 {
            return Outcome::Native;
        }
        self.look_up(session, call, at, flags & k::AT_SYMLINK_NOFOLLOW == 0)
    }

    /// A call that needs only the name's inode: stat, access, readlink.
    pub(super) fn look_up(
        &mut self, session: &'static Session, call: &Call, (dir, path): (Fd, u64), follow: bool,
    ) -> Outcome {
        let mut would_wait = false;
        if self.probing(session) {
            let nofollow = if follow { 0 } else { k::O_NOFOLLOW };
            match sys::openat2(dir, path, k::O_PATH | k::O_CLOEXEC | nofollow, 0, k::RESOLVE_CACHED) {
                Ok(fd) => {
                    let _ = sys::close(fd);
                }
                Err(Errno(e)) => {
                    // SAFETY: after EAGAIN, the kernel has just read this path.
                    would_wait = e == sys::EAGAIN
                        && !paths::is_made_up(unsafe { paths::c_string(path) });
                }
            }
        }
        let ret = if would_wait {
            // SAFETY: the kernel has just resolved this path.
            let text = unsafe { paths::c_string(path) };
            let flags = if follow { 0 } else { NO_FOLLOW };
            match self.stall(session, call, self.named(session, dir, text, HintKind::Lookup, flags), 0) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.timed(session, call, 0, |t| t.knows_path(session, dir, path))
        };
        if self.at_rest(session) {
            self.count(session, Identity::UNSET);
        } else if ret != sys::fail(sys::EFAULT) {
            // SAFETY: as above, by the call itself.
            let identity = self.identity(session, dir, unsafe { paths::c_string(path) });
            self.count(session, identity);
        }
        Outcome::Answer(ret)
    }

    /// Reading a directory cannot be tried without waiting: it waits unless it was read before.
    pub(super) fn list(&mut self, session: &'static Session, call: &Call) -> Outcome {
        let fd = call.fd(0);
        if self.kind(fd) != Kind::Directory {
            return Outcome::Native;
        }
        let listing = self.names.identity(fd).listing();
        let expected = self.pace.stalling() || session.shared.control.want_sync.load(Relaxed) != 0;
        let ret = if expected && !self.knows(session, listing) {
            match self.stall(session, call, self.of_fd(fd, listing, HintKind::Listing, 0, 0), 0) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.timed(session, call, 0, |t| t.knows(session, listing))
        };
        self.count(session, listing);
        if ret == 0 && !self.at_rest(session) {
            session.shared.log.done_by_target(listing);
        }
        if ret > 0 && call.nr == nr::GETDENTS64 && self.probing(session) {
            // SAFETY: the kernel has just filled that many bytes there.
            let filled =
                unsafe { core::slice::from_raw_parts(call.args[1] as *const u8, ret as usize) };
            shadow::data::tell(session.shared, self.names.identity(fd), filled);
        }
        Outcome::Answer(ret)
    }

    fn of_fd(&self, fd: Fd, key: Identity, kind: HintKind, offset: u64, length: u64) -> Stall<'static> {
        let object = self.names.identity(fd);
        let hint = Hint { kind, object, offset, length, flags: DEMAND, path: b"" };
        Stall { key, hint, dir: fd, path: b"" }
    }

    pub(super) fn read(
        &mut self, session: &'static Session, call: &Call, buf: u64, len: u64, at: Option<u64>,
    ) -> Outcome {
        let fd = call.fd(0);
        let kind = self.kind(fd);
        if !matches!(kind, Kind::Nowait | Kind::Remote) {
            return Outcome::Native;
        }
        let offset = at.unwrap_or_else(|| self.names.offset(fd));
        let ret = if !self.probing(session) {
            self.timed(session, call, len, |t| t.knows_data(session, fd, offset))
        } else if kind == Kind::Nowait {
            match sys::read_nowait(fd, buf, len, at) {
                Ok(got) => {
                    performed(got as i64);
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
        self.count_read(session, self.names.identity(fd), offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            self.names.seek(fd, offset + ret as u64);
        }
        Outcome::Answer(ret)
    }

    /// Completes a read of which the first `got` bytes were in memory.
    fn read_rest(
        &mut self, session: &'static Session, call: &Call, given: (u64, u64, Option<u64>), offset: u64, got: u64,
    ) -> Option<i64> {
        let (buf, len, at) = given;
        let mut rest = *call;
        rest.args[1] = buf + got;
        rest.args[2] = len - got;
        if let Some(at) = at {
            rest.args[3] = at + got;
        }
        let fd = call.fd(0);
        let key = self.names.identity(fd).chunk(ChunkIndex::of(offset + got));
        let known = session.shared.log.state(key) != HintState::Absent;
        // No more is the end, or an error that the kernel, too, reports only at the next call.
        let more = self.timed(session, &rest, len - got, |_| known).max(0);
        Some(performed(got as i64 + more))
    }

    fn read_stall(
        &mut self, session: &'static Session, call: &Call, fd: Fd, at: Option<u64>, len: u64,
    ) -> Option<i64> {
        // The offset that we remember may be wrong when the description is shared.
        let offset = at.or_else(|| sys::lseek(fd, 0, k::SEEK_CUR).ok()).unwrap_or(0);
        let key = self.names.identity(fd).chunk(ChunkIndex::of(offset));
        self.stall(session, call, self.of_fd(fd, key, HintKind::Data, offset, len), len)
    }

    /// On a file system that cannot say EAGAIN, residency is asked for (cachestat), or believed of
    /// what the prefetcher has read.
    fn read_remote(
        &mut self, session: &'static Session, call: &Call, fd: Fd, at: Option<u64>, len: u64,
    ) -> Option<i64> {
        let offset = at.unwrap_or_else(|| self.names.offset(fd));
        let key = self.names.identity(fd).chunk(ChunkIndex::of(offset));
        let done = session.shared.log.state(key) == HintState::Done;
        if done || is_resident(fd, offset, len) != Some(false) {
            return Some(self.timed(session, call, len, |_| done));
        }
        self.read_stall(session, call, fd, at, len)
    }

    /// readv and preadv: tried whole; made as they stand when anything is missing.
    pub(super) fn read_vector(&mut self, session: &'static Session, call: &Call, at: Option<u64>) -> Outcome {
        let fd = call.fd(0);
        if self.kind(fd) != Kind::Nowait {
            return Outcome::Native;
        }
        let offset = at.unwrap_or_else(|| self.names.offset(fd));
        let ret = if self.probing(session) && !first_byte_is_resident(fd, offset) {
            match self.read_stall(session, call, fd, at, CHUNK_BYTES) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.timed(session, call, CHUNK_BYTES, |_| false)
        };
        self.count_read(session, self.names.identity(fd), offset, ret.max(0) as u64);
        if at.is_none() && ret > 0 {
            self.names.seek(fd, offset + ret as u64);
        }
        Outcome::Answer(ret)
    }

    /// sendfile, copy_file_range, splice: `offset_at` points to the source's offset, or is null.
    pub(super) fn transfer(
        &mut self, session: &'static Session, call: &Call, source: Fd, offset_at: u64, len: u64,
    ) -> Outcome {
        if self.kind(source) != Kind::Nowait || offset_at != 0 || !self.probing(session) {
            return Outcome::Native;
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
        self.count_read(session, self.names.identity(source), offset, ret.max(0) as u64);
        Outcome::Answer(ret)
    }

    /// A mapping stalls later, in page faults that we do not see: its file is asked for now.
    pub(super) fn map(&mut self, session: &'static Session, call: &Call) -> Outcome {
        let [_, len, _, flags, _, offset] = call.args;
        let fd = call.fd(4);
        if flags as u32 & k::MAP_ANONYMOUS != 0 || !matches!(self.kind(fd), Kind::Nowait | Kind::Remote) {
            return Outcome::Native;
        }
        let len = len.min(MAP_BYTES);
        let key = self.names.identity(fd).chunk(ChunkIndex::of(offset));
        let known = session.shared.log.state(key) != HintState::Absent;
        let absent = self.probing(session) && !known && is_mostly_absent(fd, offset, len);
        if absent {
            let stall = self.of_fd(fd, key, HintKind::Data, offset, len);
            if self.stall(session, &PROBE_ONLY, stall, len).is_none() {
                return Outcome::InShadow;
            }
        }
        self.count_read(session, self.names.identity(fd), offset, len);
        Outcome::Native
    }
}

/// A call without effect, for a stall that is not in the call at hand.
const PROBE_ONLY: Call = Call { nr: nr::GETPID, args: [0; 6], stack: 0 };

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

/// Has the prefetcher start on what the target is about to wait for, so that the I/O is under way
/// while the shadow is made.
fn demand(session: &'static Session, stall: &Stall<'_>) {
    let mut text = [0u8; PATH_MAX + 1];
    let whole = match stall.path.first() {
        Some(b'/') => paths::append(&mut text, 0, stall.path),
        _ => paths::directory(stall.dir, &mut text)
            .and_then(|len| paths::append(&mut text, len, stall.path)),
    };
    let Some(len) = whole else { return };
    let hint = Hint { path: &text[..len], ..stall.hint };
    let position = session.shared.control.accesses.load(Relaxed);
    hints::send(session.shared, 0, position, &hint);
}
