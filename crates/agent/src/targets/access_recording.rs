//! Reports to the supervisor what this process reads, each object once, for the records of earlier
//! runs.
//!
//! It is active only where the session asks for it (`abi::agent_config::tell`). Each object costs a
//! message when it is read first, and the process joins the session for it before it has stalled.
//! The hint log remembers what has been reported, under separate keys. An evicted entry costs one
//! more message, which the supervisor recognizes as known.
//!
//! Invariant: the target waits only where everything is to be reported, and only for a supervisor
//! that takes reports ([`super::ring_room`]). Otherwise it goes on and counts what it could not
//! report. It does not wait again before there is room.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{NO_FOLLOW, RECORDED};
use runahead_abi::{HintKind, HintState, PATH_MAX};
use runahead_estimators::Identity;
use runahead_estimators::access_identity::BLOCK_BYTES;

use super::path_argument::reads_link;
use super::ring_room::RoomWait;
use super::target_state::Target;
use crate::descriptor_names::NAMES;
use crate::hint_sender::{self, Hint};
use crate::path_text;
use crate::plane::{self, Call, signal_block};
use crate::read_extent::FileRange;
use crate::session::Session;
use crate::sys::{self, Fd, nr};
use crate::time_stamp::ticks;

/// Accesses before a process joins in order to record them, where not everything is to be reported.
/// Most processes are short, and joining costs some tenths of a millisecond.
const ACCESSES_BEFORE_JOIN: u32 = 64;
/// Range of an access to no data.
const NO_BYTES: FileRange = FileRange { offset: 0, length: 0 };

impl Target {
    /// True if the session wants accesses recorded now.
    pub(super) fn records_accesses(&self, session: &Session) -> bool {
        match session.config.tell {
            tell::NOTHING => false,
            tell::WHILE_SLOW => session.slow_devices().is_any_slow(ticks),
            _ => true,
        }
    }

    /// Joins the session if that is worth it. Returns false if the access need not, or cannot, be
    /// recorded.
    fn may_record(&self, session: &'static Session) -> bool {
        if !self.records_accesses(session) {
            return false;
        }
        if !session.is_joined()
            && (session.config.tell == tell::ALL
                || !self.stall_probing.waits_are_short()
                    && self.accesses_before_join.fetch_add(1, Relaxed) >= ACCESSES_BEFORE_JOIN
                    && !plane::has_threads())
        {
            self.join(session);
            if session.config.tell == tell::ALL {
                self.join_attempt.wait();
            }
        }
        session.is_joined()
    }

    /// Records an open of `path`, which the kernel has read.
    pub(super) fn record_open(&self, session: &'static Session, call: &Call, dir: Fd, path: &[u8]) {
        let flags = match call.nr {
            nr::OPEN => call.args[1],
            nr::OPENAT => call.args[2],
            _ => 0,
        };
        let nofollow = if flags as u32 & k::O_NOFOLLOW != 0 { NO_FOLLOW } else { 0 };
        self.record_name(session, (dir, path), HintKind::Lookup, nofollow);
    }

    /// Records a lookup or readlink whose path the kernel has read.
    pub(super) fn record_lookup(
        &self,
        session: &'static Session,
        call: &Call,
        named: (Fd, &[u8]),
        follow: bool,
    ) {
        let (kind, flags) = match (reads_link(call), follow) {
            (false, true) => (HintKind::Lookup, 0),
            (false, false) => (HintKind::Lookup, NO_FOLLOW),
            (true, _) => (HintKind::Link, NO_FOLLOW),
        };
        self.record_name(session, named, kind, flags);
    }

    /// Records the exec of a program. A vfork child (`lent`) cannot join: it is another process
    /// that uses its parent's memory.
    pub(super) fn record_exec(&self, session: &'static Session, dir: Fd, path: &[u8], lent: bool) {
        if !lent || session.is_joined() {
            self.record_name(session, (dir, path), HintKind::Program, 0);
        }
    }

    fn record_name(
        &self,
        session: &'static Session,
        (dir, path): (Fd, &[u8]),
        kind: HintKind,
        flags: u32,
    ) {
        if path.is_empty() || path_text::is_made_up(path) || !self.may_record(session) {
            return;
        }
        let object = self.path_identity(session, dir, path);
        if !mark_recorded(session, object.told(kind as u32 | flags << 8)) {
            return;
        }
        let mut text = [0u8; PATH_MAX + 1];
        let whole = match path.first() {
            Some(b'/') => path_text::append(&mut text, 0, path),
            _ => path_text::directory(dir, &mut text)
                .and_then(|len| path_text::append(&mut text, len, path)),
        };
        self.record_access(session, whole.map(|len| &text[..len]), (kind, object, flags), NO_BYTES);
    }

    /// Records that the entries of the directory `fd` were read.
    pub(super) fn record_listing(&self, session: &'static Session, fd: Fd) {
        if !self.may_record(session) {
            return;
        }
        let object = NAMES.identity(fd);
        if mark_recorded(session, object.told(HintKind::Listing as u32)) {
            self.record_fd(session, fd, (HintKind::Listing, object, 0), NO_BYTES);
        }
    }

    /// Records that `range` of `fd` was read, or mapped if the `flags` say so.
    pub(super) fn record_data(
        &self,
        session: &'static Session,
        fd: Fd,
        FileRange { offset, length }: FileRange,
        flags: u32,
    ) {
        if length == 0 || !self.may_record(session) {
            return;
        }
        let object = NAMES.identity(fd);
        let (first, last) = (offset / BLOCK_BYTES, offset.saturating_add(length - 1) / BLOCK_BYTES);
        let mut news = false;
        for block in first..=last {
            news |= mark_recorded(session, object.told_block(block));
        }
        if news {
            let length = (last - first + 1) * BLOCK_BYTES;
            let range = FileRange { offset: first * BLOCK_BYTES, length };
            self.record_fd(session, fd, (HintKind::Data, object, flags), range);
        }
    }

    /// Records a transfer that is made as it stands. `offset_at` points to its offset, or is null.
    pub(super) fn record_transfer(
        &self,
        session: &'static Session,
        source: Fd,
        offset_at: u64,
        len: u64,
    ) {
        const BYTES: u64 = 8 << 20;
        if self.records_accesses(session)
            && offset_at != 0
            && let Ok(offset) = sys::copy_in::<u64>(offset_at)
            && offset <= i64::MAX as u64
            && crate::descriptor_names::is_regular(source)
        {
            let range = FileRange { offset, length: len.min(BYTES) };
            self.record_data(session, source, range, 0);
        }
    }

    /// Records a vectored read that is made as it stands, as one block: its length is not
    /// determined.
    pub(super) fn record_vector_read(
        &self,
        session: &'static Session,
        call: &Call,
        at: Option<u64>,
    ) {
        let fd = call.fd(0);
        if self.records_accesses(session) && crate::descriptor_names::is_regular(fd) {
            let offset = at.or_else(|| sys::lseek(fd, 0, k::SEEK_CUR).ok());
            let offset = offset.filter(|&offset| offset <= i64::MAX as u64);
            let block = |offset| FileRange { offset, length: BLOCK_BYTES };
            offset.into_iter().for_each(|at| self.record_data(session, fd, block(at), 0));
        }
    }

    fn record_fd(
        &self,
        session: &'static Session,
        fd: Fd,
        what: (HintKind, Identity, u32),
        range: FileRange,
    ) {
        let mut text = [0u8; PATH_MAX + 1];
        let len = path_text::directory(fd, &mut text);
        self.record_access(session, len.map(|len| &text[..len]), what, range);
    }

    /// Sends the record of an access. An object without a name that can be opened again is skipped.
    fn record_access(
        &self,
        session: &'static Session,
        path: Option<&[u8]>,
        (kind, object, flags): (HintKind, Identity, u32),
        FileRange { offset, length }: FileRange,
    ) {
        let Some(path) = path.filter(|path| !path_text::is_made_up(path)) else { return };
        let flags = flags | RECORDED;
        let hint = Hint { kind, object, offset, length, flags, path };
        let shared = session.shared();
        let position = shared.control.accesses.load(Relaxed);
        // A signal handler that runs while the ring is held and never returns would keep it locked
        // for ever.
        let mask = signal_block::begin();
        let put = || {
            self.ring_lock.try_with(|()| hint_sender::send(shared, 0, position, &hint))
                == Some(true)
        };
        let mut sent = put();
        if session.config.tell == tell::ALL {
            let mut room = RoomWait::new(shared);
            while !sent
                && !self.recording_falls_behind.load(Relaxed)
                && room.pause(shared, session.tick_rate())
            {
                sent = put();
            }
            if sent == self.recording_falls_behind.load(Relaxed) {
                self.recording_falls_behind.store(!sent, Relaxed);
            }
            if !sent {
                shared.control.untold.fetch_add(1, Relaxed);
            }
        }
        signal_block::end(mask);
    }
}

/// Marks `key` as recorded. Returns true if it was not yet.
fn mark_recorded(session: &Session, key: Identity) -> bool {
    let log = &session.shared().log;
    let news = log.state(key) == HintState::Absent;
    if news {
        // Entries that are done are the first to be evicted.
        log.done_by_target(key);
    }
    news
}
