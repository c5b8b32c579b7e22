//! Code common to all calls that can stall: counting, timing, and the handling of a stall.
//!
//! [`name_lookups`](super::name_lookups) and [`file_reads`](super::file_reads) try a call without
//! waiting; a call that would wait becomes a [`Stall`]. Of the decision whether a wait is worth a
//! fork, this file has the sequence: join, consult the hint log, start the I/O, ask for a sync.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::PANICS_IN_STALL;
use runahead_abi::hint_record::DEMAND;
use runahead_abi::{HintKind, HintState, PATH_MAX};
use runahead_estimators::{Micros, Piece, Ticks};

use super::call_outcome::{Stall, SyncSide};
use super::call_sampling::is_sampled;
use super::file_reads::is_absent;
use super::path_argument::{PathArgument, path_was_read};
use super::stall_probing::{SHORT_WAIT, SleepEvidence};
use super::target_state::Target;
use crate::control_client;
use crate::descriptor_names::{self, FileKind, NAMES};
use crate::hint_sender::{self, Hint};
use crate::path_text;
use crate::plane::thread::Thread;
use crate::plane::{self, Call, sample_counter, signal_block};
use crate::read_extent::FileRange;
use crate::session::Session;
use crate::sys::{self, Fd, nr};
use crate::time_stamp::ticks;

/// Wait from which joining can gain: it takes that long.
const JOIN_COST: Micros = Micros(2_000);

/// Device that a call reads from, if the call has a descriptor of it.
fn read_device(call: &Call) -> Option<u64> {
    const READS: [u64; 6] =
        [nr::READ, nr::PREAD64, nr::READV, nr::PREADV, nr::GETDENTS, nr::GETDENTS64];
    READS.contains(&call.nr).then(|| descriptor_names::device(call.fd(0)))?
}

/// Expectation whether a call waits. A likely wait is measured exactly, at the price of another
/// call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitLikely {
    No,
    Yes,
}

impl Target {
    /// Counts an access that a shadow makes too, and the unseen ones that it stands for. `piece` is
    /// its key in the hint log.
    pub(super) fn count_access(
        &self,
        session: &'static Session,
        call: &Call,
        piece: impl FnOnce() -> Piece,
    ) {
        self.count_piece(session, call, piece, false);
    }

    fn count_piece(
        &self,
        session: &'static Session,
        call: &Call,
        piece: impl FnOnce() -> Piece,
        is_data: bool,
    ) {
        let control = &session.shared().control;
        if self.is_shadowed(call.thread) {
            let sampled = is_sampled(call.nr);
            let unseen = if sampled { sample_counter::of_stack(call.stack).account() } else { 0 };
            let accesses = control.accesses.load(Relaxed) + 1 + unseen;
            control.accesses.store(accesses, Relaxed);
            assert!(accesses != session.panic_at(), "planted");
        }
        if control.hints_issued.load(Relaxed) != 0 {
            self.note_use(session, piece(), is_data);
        }
    }

    /// Marks `piece` as used if it was hinted.
    pub(super) fn note_use(
        &self,
        session: &'static Session,
        piece: impl Into<Piece>,
        is_data: bool,
    ) {
        if session.shared().touch(piece, is_data) {
            self.leave_sampling();
            self.stall_probing.note_use();
            self.review_shadow(session);
        }
    }

    /// True if the shadow, if there is one, is of this thread.
    fn is_shadowed(&self, thread: &Thread) -> bool {
        let shadowed = self.shadowed_thread.load(Relaxed);
        shadowed.is_null() || core::ptr::eq(shadowed, thread)
    }

    /// Records and counts the chunks of a read of `len` bytes from `source`.
    pub(super) fn count_read(
        &self,
        session: &'static Session,
        call: &Call,
        source: Fd,
        offset: u64,
        len: u64,
    ) {
        self.record_data(session, source, FileRange { offset, length: len }, 0);
        self.count_chunks(session, call, source, offset, len);
    }

    /// Counts the chunks of an access that is recorded elsewhere, or not at all.
    pub(super) fn count_chunks(
        &self,
        session: &'static Session,
        call: &Call,
        source: Fd,
        offset: u64,
        len: u64,
    ) {
        let file = NAMES.identity(source);
        self.count_piece(session, call, || file.first_piece(offset, len), true);
        let control = &session.shared().control;
        if control.hints_issued.load(Relaxed) == 0 {
            return;
        }
        for piece in file.pieces(offset, len).skip(1) {
            self.note_use(session, piece, true);
        }
    }

    /// Offset of the next read of `fd`. The kernel is asked once calls have gone by unseen, unless
    /// the offset is not needed.
    pub(super) fn read_offset(&self, session: &'static Session, fd: Fd) -> u64 {
        let known = || NAMES.offset(fd);
        if self.stall_probing.has_sampled() && !self.names_are_unused(session) {
            return sys::lseek(fd, 0, k::SEEK_CUR).unwrap_or_else(|_| known());
        }
        known()
    }

    /// True if nothing has stalled and nothing was hinted: names need not be exact.
    pub(super) fn names_are_unused(&self, session: &'static Session) -> bool {
        !self.probing(session) && session.shared().control.hints_issued.load(Relaxed) == 0
    }

    /// Prepares for the end of call sampling.
    pub(super) fn leave_sampling(&self) {
        if self.stall_probing.is_sampling() {
            NAMES.forget_kinds();
        }
    }

    /// False if the descriptor that this call has read is, say, a pipe that has the number of a
    /// file that was closed unseen.
    fn is_still_storage(&self, call: &Call) -> bool {
        if !self.stall_probing.has_sampled()
            || !matches!(call.nr, nr::READ | nr::PREAD64 | nr::READV | nr::PREADV)
        {
            return true;
        }
        NAMES.forget_kind(call.fd(0));
        matches!(self.file_kind(call.fd(0)), FileKind::Nowait | FileKind::Remote)
    }

    pub(super) fn probing(&self, session: &'static Session) -> bool {
        self.stall_probing.hear_of_stalls(session.slow_devices().latest(), ticks);
        self.stall_probing.probing() || session.shared().control.want_sync.load(Relaxed) != 0
    }

    /// Makes the call as it stands and measures its time.
    pub(super) fn perform_timed(
        &self,
        session: &'static Session,
        call: &Call,
        bytes: u64,
        known: impl FnOnce(&Self) -> bool,
    ) -> i64 {
        self.perform_measured(session, call, bytes, WaitLikely::No, known).0
    }

    /// Makes the call. The second value is its time, if it was a stall.
    pub(super) fn perform_measured(
        &self,
        session: &'static Session,
        call: &Call,
        bytes: u64,
        wait: WaitLikely,
        known: impl FnOnce(&Self) -> bool,
    ) -> (i64, Option<Ticks>) {
        let switches = &call.thread.switches;
        let exact = wait == WaitLikely::Yes
            || self.stall_probing.needs_exact_timing()
            || switches.get().is_none();
        if exact {
            switches.set(Some(sys::switches()));
        }
        let start = ticks();
        let ret = call.perform();
        let took = ticks().wrapping_sub(start);
        let slept = || {
            let now = sys::switches();
            let Some(before) = switches.replace(Some(now)) else { return SleepEvidence::Never };
            let times = now.voluntary.wrapping_sub(before.voluntary);
            // The sleep may have been in an earlier call. If the thread was also preempted, that
            // may have been here, and may alone have taken long.
            if times == 0 || !exact && before.forced != now.forced || !self.is_still_storage(call) {
                return SleepEvidence::Never;
            }
            match exact {
                _ if session.is_joined() && !unforeseen_waits_are_short(session) => {
                    SleepEvidence::Helped
                }
                true => SleepEvidence::Times(times),
                false => SleepEvidence::AtMost(times),
            }
        };
        let rested = self.stall_probing.is_sampling();
        let stalled =
            self.stall_probing
                .note_duration(took, bytes, session.tick_rate(), slept, || self.run_queue.waited());
        if stalled {
            if rested {
                NAMES.forget_kinds();
            }
            let control = &session.shared().control;
            // The log is consulted with the name in the call, which only then was surely read.
            let (count, time) = match path_was_read(ret) && known(self) {
                true => (&control.stalls_foreseen, &control.stall_ticks_foreseen),
                false => (&control.stalls_unforeseen, &control.stall_ticks_unforeseen),
            };
            count.fetch_add(1, Relaxed);
            time.fetch_add(took.0, Relaxed);
            if wait == WaitLikely::No
                && let Some(device) = read_device(call)
            {
                self.note_unexpected_wait(session, device, took);
            }
        }
        (ret, stalled.then_some(took))
    }

    /// Reports a call that was expected to need only memory and has waited. The session hears of
    /// it, and the next such call is treated as a stall.
    pub(super) fn note_unexpected_wait(&self, session: &'static Session, device: u64, time: Ticks) {
        self.waited_ticks.fetch_add(time.0, Relaxed);
        // Joining takes a descriptor for a moment, which another thread could notice.
        if !plane::has_threads() && self.may_gain_from_join(session) {
            self.join(session);
        }
        if session.is_joined() {
            let control = &session.shared().control;
            control.waited_device.store(device, Relaxed);
            control.waited_ticks.store(time.0, Relaxed);
            hint_sender::ring_bell(session.shared());
        }
    }

    /// True if `piece` was hinted. Before the process has joined nothing was, and the log must not
    /// take memory.
    pub(super) fn is_hinted(&self, session: &'static Session, piece: impl Into<Piece>) -> bool {
        session.is_joined() && session.shared().log.state(piece) != HintState::Absent
    }

    /// True if `name` was hinted. Called only after a stall in a call for which the kernel has
    /// resolved it.
    pub(super) fn is_name_hinted(
        &self,
        session: &'static Session,
        name: &PathArgument<'_>,
    ) -> bool {
        // SAFETY: the kernel read the name during the call, which waited for what it names.
        let text = unsafe { name.text() };
        text.is_some_and(|text| {
            self.is_hinted(session, self.path_identity(session, name.dir, text))
        })
    }

    /// Handles a call that would wait: makes sure that its data is on the way and that a shadow
    /// runs ahead, then waits. Returns `None` in the shadow.
    pub(super) fn handle_stall(
        &self,
        session: &'static Session,
        call: &Call,
        stall: Stall<'_>,
        bytes: u64,
    ) -> Option<i64> {
        // A handler that jumps out of the call must do so after all this.
        let mask = signal_block::begin();
        if !session.is_joined() && !self.may_gain_from_join(session) {
            signal_block::end(mask);
            let (ret, took) =
                self.perform_measured(session, call, bytes, WaitLikely::Yes, |_| false);
            // A mapping waits later, unseen.
            let waited = took.unwrap_or(Ticks(0)).max(session.slow_devices().usual());
            self.waited_ticks.fetch_add(waited.0, Relaxed);
            return Some(ret);
        }
        self.join(session);
        assert!(session.panic_at() != PANICS_IN_STALL, "planted");
        let shared = session.shared();
        let state = shared.log.state(stall.piece);
        if shared.control.single_server.load(Relaxed) != 0 || unforeseen_waits_are_short(session) {
            signal_block::end(mask);
            let foreseen = state != HintState::Absent;
            let known = |_: &Self| foreseen;
            let (ret, took) = self.perform_measured(session, call, bytes, WaitLikely::Yes, known);
            // Keeps the device slow, so that reads go on being recorded.
            if let Some(took) = took
                && session.slow_devices().latest() < ticks()
                && let Some(device) =
                    read_device(call).or_else(|| descriptor_names::device(stall.dir))
            {
                self.note_unexpected_wait(session, device, took);
            }
            return Some(ret);
        }
        let lost =
            shared.log.holds(stall.piece) && was_evicted(&stall) && shared.log.lose(stall.piece);
        if lost {
            shared.control.hints_lost.fetch_add(1, Relaxed);
        }
        let foreseen = state != HintState::Absent && !lost;
        let started = if foreseen { None } else { self.start_demand_read(session, &stall) };
        if !foreseen {
            let run = shared.control.run_request.load(Relaxed);
            let Hint { offset, length, .. } = stall.hint;
            let range = started.unwrap_or(FileRange { offset, length });
            shared.log.demand(stall.demanded_piece(range), run);
            if started.is_none() {
                self.send_demand(session, &stall);
            }
        }
        let wanted = shared.control.want_sync.load(Relaxed) != 0;
        if (!foreseen || wanted) && self.sync(session, call) == SyncSide::Shadow {
            return None;
        }
        signal_block::end(mask);
        let known = |_: &Self| foreseen;
        let (ret, stalled) = self.perform_measured(session, call, bytes, WaitLikely::Yes, known);
        if let Some(range) = started {
            self.finish_demand_read(session, &stall, range, stalled);
        }
        if stalled.is_none() {
            self.stall_probing.clear_suspicion();
        }
        if !foreseen && !stall.path.is_empty() {
            let waited = stalled.unwrap_or(Ticks(0)).to_micros(session.tick_rate());
            self.dcache_misses.note(waited);
        }
        Some(ret)
    }

    /// True if this process, which has not joined, has waited so long, including the wait ahead,
    /// that similar waits may be worth the cost of joining.
    fn may_gain_from_join(&self, session: &Session) -> bool {
        if self.stall_probing.waits_are_short() {
            return false;
        }
        let waited = Ticks(self.waited_ticks.load(Relaxed)) + session.slow_devices().usual();
        waited >= JOIN_COST.to_ticks(session.tick_rate())
    }

    /// Makes this process known to the supervisor, once. A refusal is final.
    pub(super) fn join(&self, session: &'static Session) {
        if session.is_joined() {
            return;
        }
        // A handler that never returns would leave the attempt under way for ever.
        let mask = signal_block::begin();
        self.join_attempt.make(|| _ = control_client::join(session));
        signal_block::end(mask);
    }

    /// Has the prefetcher start the I/O that the target is about to wait for, while the shadow is
    /// made.
    pub(super) fn send_demand(&self, session: &'static Session, stall: &Stall<'_>) {
        let mut text = [0u8; PATH_MAX + 1];
        let whole = match stall.path.first() {
            Some(b'/') => path_text::append(&mut text, 0, stall.path),
            _ => path_text::directory(stall.dir, &mut text)
                .and_then(|len| path_text::append(&mut text, len, stall.path)),
        };
        let Some(len) = whole else { return };
        let hint = Hint { path: &text[..len], ..stall.hint };
        let position = session.shared().control.accesses.load(Relaxed);
        // A ring has one writer. If another thread holds it, the demand is dropped: this thread's
        // own read starts at once.
        self.ring_lock.try_with(|()| hint_sender::send(session.shared(), 0, position, &hint));
    }

    pub(super) fn stall_of_fd(
        &self,
        fd: Fd,
        piece: impl Into<Piece>,
        kind: HintKind,
        offset: u64,
        length: u64,
    ) -> Stall<'static> {
        let object = NAMES.identity(fd);
        let hint = Hint { kind, object, offset, length, flags: DEMAND, path: b"" };
        Stall { piece: piece.into(), hint, wait_offset: offset, dir: fd, path: b"" }
    }
}

/// True if the unforeseen waits of this process are mostly so short that waking the prefetcher, and
/// a processor for a shadow, takes as long.
fn unforeseen_waits_are_short(session: &Session) -> bool {
    /// Waits on which the mean is based.
    const ENOUGH: u64 = 8;
    let control = &session.shared().control;
    let stalls = control.stalls_unforeseen.load(Relaxed);
    let waited = Ticks(control.stall_ticks_unforeseen.load(Relaxed));
    stalls >= ENOUGH && waited / stalls < SHORT_WAIT.to_ticks(session.tick_rate())
}

/// True if data that the log has as read is not in memory. It may have been on its way when the
/// call was tried. For names this cannot be told: a server's names can miss at each lookup.
fn was_evicted(stall: &Stall<'_>) -> bool {
    stall.hint.kind == HintKind::Data && is_absent(stall.dir, stall.wait_offset)
}
