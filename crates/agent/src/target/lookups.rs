//! Names: open, stat, access, readlink, and the entries of directories.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::record::{DEMAND, NO_FOLLOW};
use runahead_abi::{HintKind, Identity, PATH_MAX};

use super::Target;
use super::access::{Likely, Outcome, Stall};
use super::names::{self, Kind};
use crate::arch::ticks;
use crate::hints::Hint;
use crate::paths;
use crate::plane::{self, Call};
use crate::session::Session;
use crate::shadow;
use crate::sys::{self, Errno, Fd, nr};

impl Target {
    pub(super) fn open(
        &self,
        session: &'static Session,
        call: &Call,
        dir: Fd,
        path: u64,
        flags: u32,
    ) -> Outcome {
        // What may create or truncate cannot be tried (RESOLVE_CACHED refuses it).
        if flags & (k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE) != 0 {
            let ret = self.timed(session, call, 0, |t| t.knows_path(session, dir, path));
            return self.opened(session, call, ret, dir, path);
        }
        if !self.probing(session) {
            let ret = self.hoped(session, call, dir, path, Likely::No);
            return self.opened(session, call, ret, dir, path);
        }
        // No mode: nothing is created, and openat2 refuses one then, which openat ignores.
        match sys::openat2(dir, path, flags, 0, k::RESOLVE_CACHED) {
            Ok(fd) => {
                self.pace.hit();
                self.opened(session, call, call.performed(fd.into()), dir, path)
            }
            Err(Errno(sys::EAGAIN)) => {
                let nofollow = if flags & k::O_NOFOLLOW != 0 { NO_FOLLOW } else { 0 };
                let kind =
                    if flags & k::O_DIRECTORY != 0 { HintKind::Listing } else { HintKind::Lookup };
                // SAFETY: the kernel has just read this path.
                match unsafe { self.unknown(session, call, (dir, path), kind, nofollow) } {
                    Some(ret) => self.opened(session, call, ret, dir, path),
                    None => Outcome::InShadow,
                }
            }
            // Answers that a walk through memory can give for good.
            Err(Errno(e @ (sys::ENOENT | sys::ENOTDIR | sys::ELOOP))) => {
                self.pace.hit();
                self.opened(session, call, sys::fail(e), dir, path)
            }
            // openat2 is stricter than openat about flags, and may be refused to us where openat is
            // not: the call itself has the last word.
            Err(_) => {
                let ret = self.timed(session, call, 0, |_| false);
                self.opened(session, call, ret, dir, path)
            }
        }
    }

    /// openat2 has its own resolve flags: made as it stands.
    pub(super) fn open_as_given(&self, session: &'static Session, call: &Call) -> Outcome {
        let ret = self.timed(session, call, 0, |_| false);
        self.opened(session, call, ret, call.fd(0), call.args[1])
    }

    fn opened(
        &self,
        session: &'static Session,
        call: &Call,
        ret: i64,
        dir: Fd,
        path: u64,
    ) -> Outcome {
        if !path_was_read(ret) {
            return Outcome::Answer(ret);
        }
        // SAFETY: the kernel has just resolved this path.
        let text = unsafe { paths::c_string(path) };
        self.tell_open(session, call, dir, text);
        let identity = self.identity(session, dir, text);
        self.count(session, call, || identity.into());
        if ret >= 0 {
            if session.is_joined() && !self.nobody_asks(session) {
                session.shared().parents.opened(self.names.at(dir), text);
            }
            self.names.opened(ret as Fd, identity);
        }
        Outcome::Answer(ret)
    }

    /// Makes a call whose name the kernel does not know. `None` in a shadow that was made of it.
    ///
    /// # Safety
    /// The kernel has read the path.
    unsafe fn unknown(
        &self,
        session: &'static Session,
        call: &Call,
        (dir, path): (Fd, u64),
        kind: HintKind,
        flags: u32,
    ) -> Option<i64> {
        // SAFETY: passed on to the caller.
        let text = unsafe { paths::c_string(path) };
        match self.place_of(session, dir, text) {
            Place::Memory => Some(call.perform()),
            Place::Quick => Some(self.hoped(session, call, dir, path, Likely::Yes)),
            Place::Slow => {
                self.stall(session, call, self.named(session, dir, text, kind, flags), 0)
            }
        }
    }

    /// Makes a call with a name that is hoped to need no more than memory.
    fn hoped(
        &self,
        session: &'static Session,
        call: &Call,
        dir: Fd,
        path: u64,
        wait: Likely,
    ) -> i64 {
        let is_whole = leaves_its_name(call);
        let known = |t: &Self| is_whole && t.knows_path(session, dir, path);
        let (ret, waited) = self.made_and_timed(session, call, 0, wait, known);
        if let Some(ticks) = waited
            && is_whole
            && path_was_read(ret)
            // SAFETY: the kernel has just resolved this path.
            && let Some(device) = device_of(dir, unsafe { paths::c_string(path) })
        {
            self.has_waited(session, device, ticks);
        }
        ret
    }

    /// Where the answer for a name lies that the kernel does not know.
    pub(super) fn place_of(&self, session: &Session, dir: Fd, path: &[u8]) -> Place {
        if paths::is_made_up(path) {
            return Place::Memory;
        }
        let (memory, remote) = (&session.config.memory_devices, &session.config.remote_devices);
        let slow = session.slow_devices();
        let quick = match device_of(dir, path) {
            Some(device) if memory.contains(&device) => return Place::Memory,
            Some(device) => !remote.contains(&device) && !slow.is_slow(device, ticks()),
            None => plane::has_threads() && slow.latest() <= ticks(),
        };
        if quick && !self.pace.stalling() { Place::Quick } else { Place::Slow }
    }

    fn named<'a>(
        &self,
        session: &Session,
        dir: Fd,
        path: &'a [u8],
        kind: HintKind,
        flags: u32,
    ) -> Stall<'a> {
        let object = self.identity(session, dir, path);
        let hint = Hint::whole(kind, object, flags | DEMAND, b"");
        Stall { piece: object.into(), hint, at: 0, dir, path }
    }

    pub(super) fn look_up_at(
        &self,
        session: &'static Session,
        call: &Call,
        at: (Fd, u64),
        flags: u32,
    ) -> Outcome {
        if flags & k::AT_EMPTY_PATH != 0 {
            return Outcome::Native;
        }
        self.look_up(session, call, at, flags & k::AT_SYMLINK_NOFOLLOW == 0)
    }

    /// What the link at an address that nobody has checked is called.
    fn link(&self, session: &'static Session, dir: Fd, path: u64) -> Option<Identity> {
        let mut text = [0u8; PATH_MAX];
        let len = sys::copy_string(path, &mut text).ok()?;
        Some(self.identity(session, dir, &text[..len]))
    }

    /// A call that needs only the name's inode: stat, access, readlink.
    pub(super) fn look_up(
        &self,
        session: &'static Session,
        call: &Call,
        (dir, path): (Fd, u64),
        follow: bool,
    ) -> Outcome {
        let unknown = self.probing(session)
            && match plane::has_threads() {
                // The place takes a descriptor for a moment, which another thread could notice.
                true => self.expects_to_wait(session, dir, path),
                false => is_unknown(dir, path, follow),
            };
        // What it answers may be put where the name is.
        let link = match leaves_its_name(call) || self.nobody_asks(session) {
            true => None,
            false => self.link(session, dir, path),
        };
        let ret = if unknown {
            let flags = if follow { 0 } else { NO_FOLLOW };
            let kind = HintKind::Lookup;
            // SAFETY: the kernel has just read this path.
            match unsafe { self.unknown(session, call, (dir, path), kind, flags) } {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.hoped(session, call, dir, path, Likely::No)
        };
        if path_was_read(ret) {
            self.tell_look(session, call, (dir, path), follow);
        }
        if self.nobody_asks(session) {
            self.count(session, call, || Identity::UNSET.into());
        } else if path_was_read(ret) && leaves_its_name(call) {
            // SAFETY: as above, by the call itself.
            let identity = self.identity(session, dir, unsafe { paths::c_string(path) });
            self.count(session, call, || identity.into());
        } else {
            self.count(session, call, || link.unwrap_or(Identity::UNSET).into());
            if let Some(link) = link {
                self.touch(session, link.link());
            }
        }
        Outcome::Answer(ret)
    }

    /// Whether a name that cannot be tried will have to be waited for, as far as can be told: something
    /// has waited just now, and this was not foreseen. (To join would take a descriptor, too.)
    fn expects_to_wait(&self, session: &'static Session, dir: Fd, path: u64) -> bool {
        session.is_joined()
            && self.expects_stalls(session)
            && self.link(session, dir, path).is_some_and(|name| !self.knows(session, name))
    }

    /// What cannot be tried without waiting is taken to wait.
    fn expects_stalls(&self, session: &'static Session) -> bool {
        self.pace.stalling() || session.shared().control.want_sync.load(Relaxed) != 0
    }

    /// Reading a directory cannot be tried without waiting: it waits unless it was read before.
    pub(super) fn list(&self, session: &'static Session, call: &Call) -> Outcome {
        let fd = call.fd(0);
        if self.kind(fd) != Kind::Directory {
            return Outcome::Native;
        }
        let listing = self.names.identity(fd).listing();
        let ret = if self.expects_stalls(session) && !self.knows(session, listing) {
            match self.stall(session, call, self.of_fd(fd, listing, HintKind::Listing, 0, 0), 0) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.timed(session, call, 0, |t| t.knows(session, listing))
        };
        self.tell_listing(session, fd);
        self.count(session, call, || listing.into());
        if ret == 0 && session.is_joined() && !self.nobody_asks(session) {
            session.shared().log.done_by_target(listing);
        }
        if ret > 0 && call.nr == nr::GETDENTS64 && session.is_joined() && self.probing(session) {
            // SAFETY: the kernel has just filled that many bytes there.
            let filled =
                unsafe { core::slice::from_raw_parts(call.args[1] as *const u8, ret as usize) };
            shadow::data::tell(session.shared(), self.names.identity(fd), filled);
        }
        Outcome::Answer(ret)
    }
}

/// Whether the kernel has to ask the storage for a name.
fn is_unknown(dir: Fd, path: u64, follow: bool) -> bool {
    let flags = k::O_PATH | k::O_CLOEXEC | if follow { 0 } else { k::O_NOFOLLOW };
    match sys::openat2(dir, path, flags, 0, k::RESOLVE_CACHED) {
        Ok(fd) => {
            let _ = sys::close(fd);
            false
        }
        Err(Errno(e)) => e == sys::EAGAIN,
    }
}

/// Where the answer for a name lies that the kernel does not know.
pub(super) enum Place {
    /// In memory, for sure.
    Memory,
    /// Where nobody has waited of late: in memory, most likely.
    Quick,
    /// It would wait, as far as anybody can tell.
    Slow,
}

/// The device of `path`, which the kernel does not know: that of the nearest directory that it knows.
/// Takes a descriptor for a moment, which another thread could notice: none for those.
fn device_of(dir: Fd, path: &[u8]) -> Option<u64> {
    const ABOVE: usize = 8;
    if plane::has_threads() {
        return None;
    }
    let mut text = [0u8; PATH_MAX + 1];
    let mut end = paths::append(&mut text, 0, path)?;
    for _ in 0..ABOVE {
        let name = text[..end].iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        end = text[..name].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        if end == 0 {
            text[0] = b'.';
        }
        text[end.max(1)] = 0;
        let how = k::O_PATH | k::O_CLOEXEC;
        match sys::openat2(dir, text.as_ptr() as u64, how, 0, k::RESOLVE_CACHED) {
            Ok(place) => {
                let device = names::device(place);
                let _ = sys::close(place);
                return device;
            }
            Err(Errno(sys::EAGAIN)) if end > 1 => {}
            Err(_) => return None,
        }
    }
    None
}

/// What was the call's path still ends somewhere when it has been made. The text of a link, which may
/// have been written over its name, need not. (Attributes have zeros.)
fn leaves_its_name(call: &Call) -> bool {
    !matches!(call.nr, nr::READLINK | nr::READLINKAT)
}

/// After a call with this result the kernel has certainly read the path that it was given, so that
/// we may. (Some errors come before that, and hide a bad address.)
pub(super) fn path_was_read(ret: i64) -> bool {
    const AFTER: [u32; 8] = [
        sys::ENOENT,
        sys::ENOTDIR,
        sys::EACCES,
        sys::ELOOP,
        sys::EEXIST,
        sys::EISDIR,
        sys::EROFS,
        sys::ENXIO,
    ];
    ret >= 0 || AFTER.iter().any(|&e| ret == sys::fail(e))
}
