//! Names: open, stat, access, readlink, and directory entries.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::hint_record::{DEMAND, NO_FOLLOW};
use runahead_abi::{HintKind, PATH_MAX};
use runahead_estimators::Identity;

use super::call_outcome::{Outcome, Stall};
use super::path_argument::{PathArgument, is_not_a_link, path_was_read, reads_link};
use super::stall_handling::WaitLikely;
use super::target_state::Target;
use crate::descriptor_names::{self, FileKind, NAMES};
use crate::hint_sender::Hint;
use crate::path_text;
use crate::plane::{self, Call};
use crate::session::Session;
use crate::shadow;
use crate::sys::{self, Errno, Fd, nr};
use crate::time_stamp::ticks;

/// Most bytes of directory entries that are copied from one call: the size of a C library's buffer.
const ENTRIES_COPY_BYTES: usize = 32 << 10;

impl Target {
    pub(super) fn open(
        &self,
        session: &'static Session,
        call: &Call,
        at: (Fd, u64),
        flags: u32,
    ) -> Outcome {
        let mut room = MaybeUninit::uninit();
        let name = &self.path_argument(session, call, at, &mut room);
        // An open that may create or truncate cannot be tried: RESOLVE_CACHED refuses it.
        if flags & (k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE) != 0 {
            let ret = self.perform_timed(session, call, 0, |t| t.is_name_hinted(session, name));
            return self.note_opened(session, call, ret, name);
        }
        if !self.probing(session) || self.dcache_misses_are_fast(session) {
            let ret = self.perform_expecting_memory(session, call, name, WaitLikely::No);
            return self.note_opened(session, call, ret, name);
        }
        // No mode, as nothing is created: openat2 refuses a mode then, which openat ignores.
        let how = k::open_how { flags: flags.into(), mode: 0, resolve: k::RESOLVE_CACHED.into() };
        let how = (&raw const how as u64, size_of_val(&how) as u64);
        let args = [name.dir as u64, name.at, how.0, how.1, 0, 0];
        // SAFETY: what the program asked for, as openat2 has it; a FIFO may wait for its other end.
        match sys::check(unsafe { call.attempt(nr::OPENAT2, &args) }) {
            Ok(fd) => {
                self.stall_probing.note_hit();
                self.note_opened(session, call, call.performed(fd as i64), name)
            }
            Err(Errno(sys::ERESTARTNOINTR)) => Outcome::Answer(sys::RESTART),
            Err(Errno(sys::EAGAIN)) => {
                let nofollow = if flags & k::O_NOFOLLOW != 0 { NO_FOLLOW } else { 0 };
                let kind =
                    if flags & k::O_DIRECTORY != 0 { HintKind::Listing } else { HintKind::Lookup };
                // SAFETY: the kernel has just read this name.
                match unsafe { self.resolve_uncached(session, call, name, kind, nofollow) } {
                    Some(ret) => self.note_opened(session, call, ret, name),
                    None => Outcome::InShadow,
                }
            }
            // Errors that a walk through cached names can return for certain.
            Err(Errno(e @ (sys::ENOENT | sys::ENOTDIR | sys::ELOOP))) => {
                self.stall_probing.note_hit();
                self.note_opened(session, call, sys::fail(e), name)
            }
            // A FIFO waits for its other end.
            Err(Errno(sys::EINTR)) => {
                let ret = call.performed(sys::fail(sys::EINTR));
                self.note_opened(session, call, ret, name)
            }
            // openat2 is stricter than openat about flags, and may be refused where openat is not:
            // the call itself decides.
            Err(_) => {
                let ret = self.perform_timed(session, call, 0, |_| false);
                self.note_opened(session, call, ret, name)
            }
        }
    }

    /// openat2(2) has its own resolve flags, so it is made as it stands.
    pub(super) fn open_as_given(&self, session: &'static Session, call: &Call) -> Outcome {
        let mut room = MaybeUninit::uninit();
        let name = self.path_argument(session, call, (call.fd(0), call.args[1]), &mut room);
        let ret = self.perform_timed(session, call, 0, |_| false);
        self.note_opened(session, call, ret, &name)
    }

    fn note_opened(
        &self,
        session: &'static Session,
        call: &Call,
        ret: i64,
        name: &PathArgument<'_>,
    ) -> Outcome {
        if !path_was_read(ret) {
            return Outcome::Answer(ret);
        }
        let dir = name.dir;
        // SAFETY: the kernel has just resolved this name.
        let Some(text) = (unsafe { name.text() }) else {
            self.count_access(session, call, || Identity::UNSET.into());
            if ret >= 0 {
                NAMES.forget(ret as Fd);
            }
            return Outcome::Answer(ret);
        };
        self.record_open(session, call, dir, text);
        let identity = self.path_identity(session, dir, text);
        self.count_access(session, call, || identity.into());
        if ret >= 0 {
            if session.is_joined() && !self.names_are_unused(session) {
                session.shared().parents.opened(NAMES.at(dir), text);
            }
            NAMES.note_opened(ret as Fd, identity);
        }
        Outcome::Answer(ret)
    }

    /// Makes a call whose name is not in the dentry cache. Returns `None` in a shadow that was made
    /// there.
    ///
    /// # Safety
    /// In this call of the program's, the kernel has read the name.
    unsafe fn resolve_uncached(
        &self,
        session: &'static Session,
        call: &Call,
        name: &PathArgument<'_>,
        kind: HintKind,
        flags: u32,
    ) -> Option<i64> {
        // SAFETY: passed on to the caller.
        let Some(text) = (unsafe { name.text() }) else { return Some(call.perform()) };
        match self.locate_name(session, name.dir, text) {
            NameLocation::Memory => Some(call.perform()),
            NameLocation::Fast => {
                Some(self.perform_expecting_memory(session, call, name, WaitLikely::Yes))
            }
            NameLocation::Slow => self.handle_stall(
                session,
                call,
                self.stall_of_name(session, name.dir, text, kind, flags),
                0,
            ),
        }
    }

    /// Makes a call whose name is expected to be answered from memory.
    fn perform_expecting_memory(
        &self,
        session: &'static Session,
        call: &Call,
        name: &PathArgument<'_>,
        wait: WaitLikely,
    ) -> i64 {
        let known = |t: &Self| t.is_name_hinted(session, name);
        let (ret, waited) = self.perform_measured(session, call, 0, wait, known);
        if let Some(time) = waited
            && path_was_read(ret)
            // SAFETY: the kernel has just resolved this name.
            && let Some(text) = unsafe { name.text() }
            && let Some(device) = nearest_device(name.dir, text)
        {
            self.note_unexpected_wait(session, device, time);
            if self.dcache_misses_are_fast(session) {
                self.dcache_misses.note(time.to_micros(session.tick_rate()));
                // The prefetcher may learn from it.
                let stall =
                    self.stall_of_name(session, name.dir, text, HintKind::Lookup, NO_FOLLOW);
                self.send_demand(session, &stall);
            }
        }
        ret
    }

    /// True if lookups that miss the dentry cache are mostly answered from memory here, so that
    /// none is probed.
    fn dcache_misses_are_fast(&self, session: &'static Session) -> bool {
        session.is_joined()
            && self.dcache_misses.are_fast()
            && session.shared().control.want_sync.load(Relaxed) == 0
    }

    /// Location of the answer for a name that is not in the dentry cache.
    pub(super) fn locate_name(&self, session: &Session, dir: Fd, path: &[u8]) -> NameLocation {
        if path_text::is_made_up(path) {
            return NameLocation::Memory;
        }
        let (memory, remote) = (&session.config.memory_devices, &session.config.remote_devices);
        let slow = session.slow_devices();
        let quick = match nearest_device(dir, path) {
            Some(device) if memory.contains(&device) => return NameLocation::Memory,
            Some(device) => !remote.contains(&device) && !slow.is_slow(device, ticks()),
            None => plane::has_threads() && !slow.is_any_slow(ticks),
        };
        if quick && !self.stall_probing.has_stalled_lately() {
            NameLocation::Fast
        } else {
            NameLocation::Slow
        }
    }

    fn stall_of_name<'a>(
        &self,
        session: &Session,
        dir: Fd,
        path: &'a [u8],
        kind: HintKind,
        flags: u32,
    ) -> Stall<'a> {
        let object = self.path_identity(session, dir, path);
        let hint = Hint::whole(kind, object, flags | DEMAND, b"");
        Stall { piece: object.into(), hint, wait_offset: 0, dir, path }
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

    /// Handles a call that needs only the name's inode: stat, access, readlink.
    pub(super) fn look_up(
        &self,
        session: &'static Session,
        call: &Call,
        at: (Fd, u64),
        follow: bool,
    ) -> Outcome {
        let mut room = MaybeUninit::uninit();
        let name = &self.path_argument(session, call, at, &mut room);
        let unknown = self.probing(session)
            && !self.dcache_misses_are_fast(session)
            && match plane::has_threads() {
                // Probing takes a descriptor for a moment, which another thread could notice.
                true => self.expects_to_wait(session, name),
                false => is_dcache_miss(name, follow),
            };
        let ret = if unknown {
            let flags = if follow { 0 } else { NO_FOLLOW };
            let kind = HintKind::Lookup;
            // SAFETY: it has been copied, or the kernel has just read it.
            match unsafe { self.resolve_uncached(session, call, name, kind, flags) } {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.perform_expecting_memory(session, call, name, WaitLikely::No)
        };
        let is_wanted = !self.names_are_unused(session) || self.records_accesses(session);
        let text = match is_wanted && (path_was_read(ret) || is_not_a_link(call, ret)) {
            // SAFETY: the kernel has just resolved this name.
            true => unsafe { name.text() },
            false => None,
        };
        if let Some(text) = text.filter(|_| path_was_read(ret)) {
            self.record_lookup(session, call, (name.dir, text), follow);
        }
        let known = text.filter(|_| !self.names_are_unused(session));
        let identity =
            known.map_or(Identity::UNSET, |text| self.path_identity(session, name.dir, text));
        self.count_access(session, call, || identity.into());
        if known.is_some() && reads_link(call) {
            self.note_use(session, identity.link(), false);
        }
        Outcome::Answer(ret)
    }

    /// True if a lookup that cannot be probed is expected to wait: a call has waited recently, and
    /// this name was not foreseen. Only in a joined process, as joining would take a descriptor
    /// too.
    fn expects_to_wait(&self, session: &'static Session, name: &PathArgument<'_>) -> bool {
        session.is_joined()
            && self.expects_stalls(session)
            && name.copy().is_some_and(|text| {
                !self.is_hinted(session, self.path_identity(session, name.dir, text))
            })
    }

    /// True if calls that cannot be tried without waiting are expected to wait.
    fn expects_stalls(&self, session: &'static Session) -> bool {
        self.stall_probing.has_stalled_lately()
            || session.shared().control.want_sync.load(Relaxed) != 0
    }

    /// Reads a directory, which cannot be tried without waiting: it waits unless the directory was
    /// read before.
    pub(super) fn list_directory(&self, session: &'static Session, call: &Call) -> Outcome {
        let fd = call.fd(0);
        if self.file_kind(fd) != FileKind::Directory {
            return Outcome::Native;
        }
        let listing = NAMES.identity(fd).listing();
        let ret = if self.expects_stalls(session) && !self.is_hinted(session, listing) {
            match self.handle_stall(
                session,
                call,
                self.stall_of_fd(fd, listing, HintKind::Listing, 0, 0),
                0,
            ) {
                Some(ret) => ret,
                None => return Outcome::InShadow,
            }
        } else {
            self.perform_timed(session, call, 0, |t| t.is_hinted(session, listing))
        };
        self.record_listing(session, fd);
        self.count_access(session, call, || listing.into());
        if ret == 0 && session.is_joined() && !self.names_are_unused(session) {
            session.shared().log.done_by_target(listing);
        }
        if ret > 0 && call.nr == nr::GETDENTS64 && session.is_joined() && self.probing(session) {
            self.note_entries(session, fd, call.args[1], ret as usize);
        }
        Outcome::Answer(ret)
    }

    /// Enters directory entries of `fd` that the kernel has just written: `len` bytes at `at`.
    /// Another thread may already have changed them, or unmapped their memory.
    fn note_entries(&self, session: &'static Session, fd: Fd, at: u64, len: usize) {
        let directory = NAMES.identity(fd);
        if plane::has_threads() {
            return note_copied_entries(session, directory, at, len);
        }
        // SAFETY: they are there, and there is no other thread.
        let filled = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
        shadow::file_contents::note_directory_entries(session.shared(), directory, filled);
    }
}

/// Enters the entries of a directory from a copy. Not inlined: the policy's stack frame is touched
/// at every call and costs memory in each process.
#[inline(never)]
fn note_copied_entries(session: &'static Session, directory: Identity, at: u64, len: usize) {
    let mut copy = [0u8; ENTRIES_COPY_BYTES];
    let copy = &mut copy[..len.min(ENTRIES_COPY_BYTES)];
    if sys::copy_bytes(at, copy).is_ok() {
        shadow::file_contents::note_directory_entries(session.shared(), directory, copy);
    }
}

/// True if the name is not in the dentry cache, so that the kernel must ask the storage.
fn is_dcache_miss(name: &PathArgument<'_>, follow: bool) -> bool {
    let flags = k::O_PATH | k::O_CLOEXEC | if follow { 0 } else { k::O_NOFOLLOW };
    match sys::openat2(name.dir, name.at, flags, 0, k::RESOLVE_CACHED) {
        Ok(fd) => {
            let _ = sys::close(fd);
            false
        }
        Err(Errno(e)) => e == sys::EAGAIN,
    }
}

/// Location of the answer for a name that is not in the dentry cache.
pub(super) enum NameLocation {
    /// The answer is certainly in memory.
    Memory,
    /// The answer is on a device where no process has waited lately, and most likely in memory.
    Fast,
    /// The answer is on a device where a lookup is expected to wait.
    Slow,
}

/// Device of `path`, which is not in the dentry cache: that of its nearest cached ancestor. `None`
/// in a process with threads, which could notice the descriptor that this takes.
fn nearest_device(dir: Fd, path: &[u8]) -> Option<u64> {
    const ABOVE: usize = 8;
    if plane::has_threads() {
        return None;
    }
    let mut text = [0u8; PATH_MAX + 1];
    let mut end = path_text::append(&mut text, 0, path)?;
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
                let device = descriptor_names::device(place);
                let _ = sys::close(place);
                return device;
            }
            Err(Errno(sys::EAGAIN)) if end > 1 => {}
            Err(_) => return None,
        }
    }
    None
}
