//! Program memory at each checkpoint, where the kernel does not track dirty pages. Either
//! userfaultfd(2) is refused, as by Docker's default seccomp profile, or it has no asynchronous
//! protection, as before Linux 6.7.
//!
//! The first checkpoint makes all memory that the program can write read-only (mprotect(2)). A
//! store raises SIGSEGV. The handler copies the group of pages into the undo log ([`PageUndoLog`])
//! and makes it writable again: the group is *open*. A checkpoint closes all groups again, except a
//! few that are written all the time, which are copied at once. A rollback copies the log back, the
//! last entry first. When no checkpoint is left, all memory has the program's own rights.
//!
//! Writers that are not instructions of the program fail at closed groups: the kernel returns
//! EFAULT. So the agent opens the groups before it makes such a call ([`will_write`]). Unknown
//! calls wait, and memory that the kernel writes by itself (rseq(2)) is never closed. If a group
//! cannot be opened, for lack of log space or mappings, the store waits until no speculation is
//! open.
//!
//! A mapping of which no page was ever written has no `anon_vma`. If it were split by mprotect,
//! each part would get its own, and the parts could never merge again, which mremap(2) requires. So
//! one page of each mapping is written first.
//!
//! Invariant: while there is a checkpoint, a page of a [`Region`] is writable only if its group is
//! open. Its contents at the latest checkpoint were logged since, or equal the contents logged
//! last.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

use linux_raw_sys::general as k;

use super::page_undo_log::PageUndoLog;
use super::thread_states::{self, THREADS};
use super::writable_groups::{Group, WritableGroups};
use super::writable_regions::{self, REGIONS, Region};
use crate::address_space;
use crate::plane::AddressRange;
use crate::session::Session;
use crate::spin_lock::Lock;
use crate::sys::{self, Errno, PAGE, nr};

/// Bytes of a group, aligned to this size.
const GROUP: u64 = 4 * PAGE;
/// Limit of groups that one store opens: as many as are open just before it, because the program
/// writes sequentially.
const AHEAD: u64 = 16;
/// Limit of groups that stay open over a checkpoint because they are written all the time.
const HOT: usize = 64;
/// Limit of groups that must stay open: one for each thread, and the end of the stack.
const FORCED: usize = THREADS + 1;
/// Entries of `regions` reserved for splits.
const SPARE: usize = 128;
/// Pages of the undo log reserved for each checkpoint.
const RESERVE: u64 = (HOT + FORCED) as u64 * (GROUP / PAGE);

/// State of the write-fault tracking. All-zero is valid and empty.
struct State {
    /// Followed regions, in the order of addresses.
    regions: [Region; REGIONS],
    count: usize,
    opened: WritableGroups,
    /// Start addresses of groups that were open each time the last checkpoint ended. They are
    /// written soon after the next, which does not close them. `open_last` has those of the last
    /// time alone.
    hot: [u64; HOT],
    open_last: [u64; HOT],
    /// Number of times that the last checkpoint ended.
    ends: u32,
    undo: PageUndoLog,
    /// End of the undo log at the latest checkpoint.
    latest: u64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());
static IN_USE: Lock<()> = Lock::new(());
/// True while there is a checkpoint and memory is protected.
static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// Thread whose store was the last that found no room.
static LACKS_ROOM: AtomicU32 = AtomicU32::new(0);

/// Runs `work` on the state, if it is allocated. Signals must be blocked, or the process has one
/// thread. `work` does not touch protected memory.
fn with<T>(mut work: impl FnMut(&mut State) -> T) -> Option<T> {
    let at = STATE.load(Acquire);
    // SAFETY: zeroes are valid; the mapping stays; the lock makes this access exclusive.
    (!at.is_null()).then(|| IN_USE.with(|()| work(unsafe { &mut *at })))
}

/// True if memory is protected now.
pub fn is_protecting() -> bool {
    IS_ON.load(Acquire)
}

/// Opens the group of `at`, where a store has failed. Returns true if the store can be made now.
/// All signals are blocked.
pub fn open_for_fault(at: u64) -> bool {
    let open = |state: &mut State| match state.region(at) {
        Some(region) => state.open_for_store(region, at),
        None => false,
    };
    is_protecting() && with(open) == Some(true)
}

/// Opens `len` bytes at `at` for a write by the kernel or the agent, not by an instruction of the
/// program. Returns false if the write must wait until no speculation is open.
pub fn will_write(at: u64, len: u64) -> bool {
    if !is_protecting() || len == 0 {
        return true;
    }
    with(|state| state.open_all(at, at.saturating_add(len))) != Some(false)
}

/// True if the last store that found no room was the calling thread's.
pub fn lacks_room() -> bool {
    LACKS_ROOM.compare_exchange(sys::gettid(), 0, Relaxed, Relaxed).is_ok()
}

/// True if there is room for another store.
pub fn has_room() -> bool {
    with(|state| state.has_room(AHEAD)) == Some(true)
}

/// Saves memory for a checkpoint, as [`super::memory_checkpoints::Memory::save`]. `is_settled`: the
/// known regions are current.
pub fn save(session: &Session, is_settled: bool) -> sys::Result<()> {
    // Memory that the kernel writes by itself must not be protected.
    if IS_GIVEN_UP.load(Relaxed) || !thread_states::rseq_areas_are_known() {
        return Err(Errno(sys::EOPNOTSUPP));
    }
    if STATE.load(Acquire).is_null() {
        STATE.store(address_space::map_private(size_of::<State>() as u64)? as *mut State, Release);
    }
    with(|state| match is_protecting() {
        true => state.next_checkpoint(session, is_settled),
        false => state.first_checkpoint(session, is_settled),
    })
    .unwrap_or(Err(Errno(sys::ENOMEM)))
}

/// Restores memory, as [`super::memory_checkpoints::Memory::restore`].
pub fn restore(mark: u64) -> sys::Result<()> {
    with(|state| state.restore(mark)).unwrap_or(Ok(()))
}

/// Closes all groups again, as [`super::memory_checkpoints::Memory::reprotect`].
pub fn reprotect() -> sys::Result<()> {
    with(|state| state.close_groups(|_| true)).unwrap_or(Ok(()))
}

/// Ends the protection, as [`super::memory_checkpoints::Memory::end`].
pub fn end() -> sys::Result<()> {
    with(State::end).unwrap_or(Ok(()))
}

/// Returns the log position of the latest checkpoint, as
/// [`super::memory_checkpoints::Memory::mark`].
pub fn mark() -> u64 {
    with(|state| state.latest).unwrap_or(0)
}

/// Drops log entries before `mark`, as [`super::memory_checkpoints::Memory::forget_until`].
pub fn forget_until(mark: u64) {
    with(|state| state.undo.forget_until(mark));
}

/// Drops log entries of unmapped pages, as [`super::memory_checkpoints::Memory::forget_pages`].
pub fn forget_pages(at: u64, len: u64) {
    with(|state| state.undo.forget_pages(at, len));
}

/// Returns the region that holds `at`.
pub fn region(at: u64) -> Option<Region> {
    with(|state| state.region(at)).flatten()
}

/// Stops to follow this range, which was unmapped, emptied, or mapped anew.
pub fn note_discarded(at: u64, len: u64) {
    with(|state| state.remove_range(at, at.saturating_add(len)));
}

/// Disables this mechanism: the program uses userfaultfd(2), and the agent might wait for it where
/// it reads its memory.
pub fn disable() {
    IS_GIVEN_UP.store(true, Relaxed);
}

/// Resets the state in a forked child. Its memory has the program's rights: no process forks while
/// memory is protected.
pub fn in_child() {
    IN_USE.break_open();
    IS_ON.store(false, Release);
    with(|state| {
        state.count = 0;
        state.opened.clear();
        state.undo.in_child();
    });
}

impl State {
    fn regions(&self) -> &[Region] {
        &self.regions[..self.count]
    }

    /// Returns the region that holds `at`.
    fn region(&self, at: u64) -> Option<Region> {
        let n = self.regions().partition_point(|region| region.end <= at);
        self.regions().get(n).copied().filter(|region| region.holds(at))
    }

    fn open_for_store(&mut self, region: Region, at: u64) -> bool {
        let AddressRange { start, end } = group(&region, at);
        if self.opened.has(start) {
            // Another thread was faster.
            return protect(start, end, region.rights).is_ok();
        }
        // A sequential writer faults less often this way.
        let (mut before, mut count) = (start, 0);
        while count < AHEAD
            && before > region.start
            && self.opened.has(group(&region, before - 1).start)
        {
            (before, count) = (group(&region, before - 1).start, count + 1);
        }
        let mut far = end;
        for _ in 1..count {
            if far == region.end || self.opened.has(far) {
                break;
            }
            far = group(&region, far).end;
        }
        self.open(&region, start, far) || far != end && self.open(&region, start, end)
    }

    /// Opens all closed groups in `start..end`.
    fn open_all(&mut self, start: u64, end: u64) -> bool {
        let first = self.regions().partition_point(|region| region.end <= start);
        for n in first..self.count {
            let region = self.regions[n];
            if region.start >= end {
                break;
            }
            let (mut at, end) =
                (group(&region, start.max(region.start)).start, end.min(region.end));
            while at < end {
                let from = at;
                while at < end && !self.opened.has(at) {
                    at = group(&region, at).end;
                }
                if at > from && !self.open(&region, from, at) {
                    return false;
                }
                while at < end && self.opened.has(at) {
                    at = group(&region, at).end;
                }
            }
        }
        true
    }

    /// True if `groups` more groups can be opened.
    fn has_room(&self, groups: u64) -> bool {
        let pages = groups * (GROUP / PAGE) + RESERVE;
        self.opened.room() as u64 >= groups && self.undo.room() >= pages
    }

    /// Opens the groups in `start..end` of one region, all of which are closed.
    fn open(&mut self, region: &Region, start: u64, end: u64) -> bool {
        // The first and the last group may be partial.
        if !self.has_room((end - start) / GROUP + 2) {
            LACKS_ROOM.store(sys::gettid(), Relaxed);
            return false;
        }
        let mark = self.undo.end();
        let opened = self.undo.save_memory(start, end);
        if opened.and_then(|()| protect(start, end, region.rights)).is_err() {
            self.undo.drop_from(mark);
            return false;
        }
        self.add(region, start, end);
        true
    }

    fn add(&mut self, region: &Region, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let AddressRange { start, end } = group(region, at);
            self.opened.add(start, end);
            at = end;
        }
    }

    /// Collects the start addresses of groups that must stay open into `to`, in the order of
    /// addresses.
    fn forced<'a>(&self, to: &'a mut [u64; FORCED]) -> &'a [u64] {
        let mut count = 0;
        let mut at = |at: u64| {
            if let Some(region) = self.region(at) {
                to[count] = group(&region, at).start;
                count = (count + 1).min(FORCED - 1);
            }
        };
        thread_states::each_rseq_area(&mut at);
        // The kernel extends the stack with the rights of its lowest page.
        self.regions().iter().filter(|region| region.is_stack).for_each(|region| at(region.start));
        let forced = &mut to[..count];
        forced.sort_unstable();
        forced
    }

    /// Takes the first checkpoint.
    fn first_checkpoint(&mut self, session: &Session, is_settled: bool) -> sys::Result<()> {
        if is_data_limited() {
            // Read-only memory does not count towards the limit, and might not become writable
            // again.
            return Err(Errno(sys::EPERM));
        }
        if !is_settled {
            self.count = 0;
            let State { regions, count, .. } = self;
            writable_regions::each(
                session,
                |_| false,
                |region| {
                    *regions[..REGIONS - SPARE].get_mut(*count).ok_or(Errno(sys::E2BIG))? = region;
                    *count += 1;
                    Ok(())
                },
            )?;
            self.regions().iter().for_each(populate_page);
        }
        self.begin().inspect_err(|_| _ = self.end())?;
        IS_ON.store(true, Release);
        Ok(())
    }

    /// Closes all regions, except some groups.
    fn begin(&mut self) -> sys::Result<()> {
        self.undo.forget_until(self.undo.end());
        self.latest = self.undo.end();
        self.opened.clear();
        let mut open = [0u64; HOT + FORCED];
        let mut opens = 0;
        let mut add = |at: u64| {
            open[opens] = at;
            opens = (opens + 1).min(HOT + FORCED - 1);
        };
        self.forced(&mut [0; FORCED]).iter().for_each(|at| add(*at));
        for hot in self.hot.iter().filter(|hot| **hot != 0) {
            if let Some(region) = self.region(*hot) {
                add(group(&region, *hot).start);
            }
        }
        let open = &mut open[..opens];
        open.sort_unstable();
        (0..self.count).try_for_each(|n| self.close_region(n, open))
    }

    /// Closes a region, except the groups that begin at one of `open`, which are sorted. A region
    /// no larger than a group is copied and stays open, which is faster.
    fn close_region(&mut self, n: usize, open: &[u64]) -> sys::Result<()> {
        let region = self.regions[n];
        let has_room = self.opened.room() > FORCED && self.undo.room() > RESERVE;
        if is_small(&region) && has_room {
            self.undo.save_memory(region.start, region.end)?;
            self.add(&region, region.start, region.end);
            return Ok(());
        }
        let mut at = region.start;
        let inside = open.partition_point(|open| *open < region.start);
        for open in open[inside..].iter().copied().take_while(|open| *open < region.end) {
            if open < at {
                // Duplicate entry.
                continue;
            }
            close(&region, at, open)?;
            let end = group(&region, open).end;
            self.undo.save_memory(open, end)?;
            self.add(&region, open, end);
            at = end;
        }
        close(&region, at, region.end)
    }

    /// Takes another checkpoint.
    fn next_checkpoint(&mut self, session: &Session, is_settled: bool) -> sys::Result<()> {
        if self.undo.room() < RESERVE {
            return Err(Errno(sys::ENOSPC));
        }
        if !is_settled {
            self.follow_new_regions(session)?;
        }
        self.save_changed()
    }

    /// Takes another checkpoint where all regions are known: drops log entries of unchanged pages,
    /// and closes groups.
    fn save_changed(&mut self) -> sys::Result<()> {
        let State { undo, opened, latest, regions, count, .. } = self;
        let regions = &regions[..*count];
        undo.retain_from(*latest, |page, was| {
            let n = regions.partition_point(|region| region.end <= page);
            let Some(region) = regions.get(n).filter(|region| region.holds(page)) else {
                return true;
            };
            let is_changed = !is_same(region, page, was);
            if is_changed {
                opened.note_changed(group(region, page).start);
            }
            is_changed
        });
        self.close_groups(|group| group.is_changed)
    }

    /// Follows memory that was mapped since. It was never closed.
    fn follow_new_regions(&mut self, session: &Session) -> sys::Result<()> {
        let mut new = [Region::default(); 64];
        loop {
            let mut count = 0;
            let found = writable_regions::each(
                session,
                |_| false,
                |region| {
                    let mut at = region.start;
                    while at < region.end {
                        let n = self.regions().partition_point(|other| other.end <= at);
                        let next = self.regions().get(n).filter(|other| other.start < region.end);
                        let end = next.map_or(region.end, |next| next.start);
                        if end > at {
                            // EAGAIN: there are more.
                            let new = new.get_mut(count).ok_or(Errno(sys::EAGAIN))?;
                            *new = Region { start: at, end, ..region };
                            count += 1;
                        }
                        at = next.map_or(region.end, |next| next.end);
                    }
                    Ok(())
                },
            );
            for region in &new[..count] {
                self.insert(*region)?;
            }
            match found {
                Err(Errno(sys::EAGAIN)) => {}
                found => return found,
            }
        }
    }

    /// Adds a new region and closes all of it.
    fn insert(&mut self, region: Region) -> sys::Result<()> {
        if self.count >= REGIONS - SPARE {
            return Err(Errno(sys::E2BIG));
        }
        populate_page(&region);
        let n = self.regions().partition_point(|other| other.end <= region.start);
        self.regions.copy_within(n..self.count, n + 1);
        self.regions[n] = region;
        self.count += 1;
        let mut forced = [0; FORCED];
        let forced = self.forced(&mut forced);
        self.close_region(n, forced).inspect_err(|_| {
            let _ = protect(region.start, region.end, region.rights);
            self.remove_range(region.start, region.end);
        })
    }

    /// Closes all groups, except those that must stay open and some that are `hot`, which are
    /// logged.
    fn close_groups(&mut self, hot: impl Fn(&Group) -> bool) -> sys::Result<()> {
        self.latest = self.undo.end();
        let mut forced = [0; FORCED];
        let forced = self.forced(&mut forced);
        let State { regions, count, opened, undo, .. } = self;
        let regions = &regions[..*count];
        let (mut result, mut hots) = (Ok(()), 0);
        // Adjacent groups that are to be closed in one call.
        let (mut from, mut to, mut of) = (0, 0, Region::default());
        let mut close_all = |from: u64, to: u64, of: &Region| {
            if from < to && result.is_ok() {
                result = close(of, from, to);
            }
        };
        let mut noted = Ok(());
        opened.retain(|group| {
            let is_hot = hot(group) && hots < HOT && undo.room() > 2 * RESERVE;
            if is_hot || forced.binary_search(&group.start).is_ok() {
                hots += usize::from(is_hot);
                noted = noted.and_then(|()| undo.save_memory(group.start, group.end));
                return true;
            }
            if group.start != to || !of.holds(group.start) {
                close_all(from, to, &of);
                let n = regions.partition_point(|region| region.end <= group.start);
                (from, of) = (group.start, regions.get(n).copied().unwrap_or_default());
            }
            to = group.end;
            false
        });
        close_all(from, to, &of);
        noted.and(result)
    }

    /// Copies log entries from `mark` on back to memory, the last first.
    fn restore(&mut self, mark: u64) -> sys::Result<()> {
        let State { regions, count, opened, undo, .. } = self;
        let regions = &regions[..*count];
        let mut result = Ok(());
        self.latest = self.latest.min(mark);
        undo.unwind(mark, |page, was| {
            let n = regions.partition_point(|region| region.end <= page);
            let Some(region) = regions.get(n).filter(|region| region.holds(page)) else { return };
            let AddressRange { start, end } = group(region, page);
            if !opened.has(start) {
                if opened.room() == 0 {
                    opened.retain(|group| {
                        let n = regions.partition_point(|region| region.end <= group.start);
                        let closed = close(&regions[n], group.start, group.end);
                        result = result.and(closed);
                        false
                    });
                }
                let is_open = protect(start, end, region.rights);
                result = result.and(is_open);
                if is_open.is_err() {
                    return;
                }
                opened.add(start, end);
            }
            // SAFETY: the page exists, as it was logged, and is writable now; the program must find
            // its old contents there.
            unsafe {
                core::ptr::copy_nonoverlapping(was as *const u8, page as *mut u8, PAGE as usize);
            }
        });
        result
    }

    /// Ends the protection: no checkpoint is left, and all memory gets the program's rights.
    fn end(&mut self) -> sys::Result<()> {
        let mut result = Ok(());
        for region in self.regions() {
            // The region was never closed, or has been opened.
            let is_open = is_small(region) && self.opened.has(region.start);
            if !is_open {
                result = result.and(protect(region.start, region.end, region.rights));
            }
        }
        self.note_hot();
        self.opened.clear();
        self.undo.forget_until(self.undo.end());
        IS_ON.store(false, Release);
        result
    }

    /// Records the open groups as candidates for the next checkpoint.
    fn note_hot(&mut self) {
        /// Number of ends after which groups have to qualify anew.
        const OFTEN: u32 = 32;
        self.ends += 1;
        if self.ends.is_multiple_of(OFTEN) {
            (self.hot, self.open_last) = ([0; HOT], [0; HOT]);
        }
        let mut open = [0; HOT];
        let large = |group: &&Group| self.region(group.start).is_some_and(|all| !is_small(&all));
        let groups = self.opened.groups().iter().filter(large);
        open.iter_mut().zip(groups).for_each(|(open, group)| *open = group.start);
        let before = core::mem::replace(&mut self.open_last, open);
        self.hot = open.map(|start| if before.contains(&start) { start } else { 0 });
    }

    /// Removes the range `at..end`, which was unmapped, from the regions and groups.
    fn remove_range(&mut self, at: u64, end: u64) {
        let (at, end) = (at & !(PAGE - 1), end.next_multiple_of(PAGE));
        let mut n = 0;
        while n < self.count {
            let region = self.regions[n];
            if region.end <= at || end <= region.start {
                n += 1;
                continue;
            }
            let (below, above) = (Region { end: at, ..region }, Region { start: end, ..region });
            match (region.start < at, end < region.end) {
                (true, true) if self.count < REGIONS => {
                    self.regions.copy_within(n..self.count, n + 1);
                    (self.regions[n], self.regions[n + 1]) = (below, above);
                    self.count += 1;
                    n += 2;
                }
                (true, true) => sys::exit(super::FAILED),
                (true, false) => {
                    self.regions[n] = below;
                    n += 1;
                }
                (false, true) => {
                    self.regions[n] = above;
                    n += 1;
                }
                (false, false) => {
                    self.regions.copy_within(n + 1..self.count, n);
                    self.count -= 1;
                }
            }
        }
        let is_there = |start: u64, other_end: u64| other_end <= at || end <= start;
        let State { hot, open_last, .. } = self;
        let noted = hot.iter_mut().chain(open_last);
        noted.filter(|start| !is_there(**start, **start + GROUP)).for_each(|start| *start = 0);
        if self.opened.groups().iter().all(|group| is_there(group.start, group.end)) {
            return;
        }
        // At most two groups are cut.
        let (mut parts, mut count) = ([(0, 0); 2], 0);
        self.opened.retain(|group| {
            for part in [(group.start, at.min(group.end)), (group.start.max(end), group.end)] {
                if !is_there(group.start, group.end) && part.0 < part.1 {
                    parts[count % 2] = part;
                    count += 1;
                }
            }
            is_there(group.start, group.end)
        });
        for (start, end) in parts.into_iter().take(count) {
            let Some(region) = self.region(start) else { continue };
            if self.opened.room() > 0 {
                self.opened.add(start, end);
            } else if close(&region, start, end).is_err() {
                sys::exit(super::FAILED);
            }
        }
    }
}

/// Returns the group that holds `at`, clipped to the region.
fn group(region: &Region, at: u64) -> AddressRange {
    let start = at & !(GROUP - 1);
    AddressRange::new(start.max(region.start), (start + GROUP).min(region.end))
}

/// True if one group covers the region.
fn is_small(region: &Region) -> bool {
    group(region, region.start).end == region.end
}

fn protect(start: u64, end: u64, rights: u32) -> sys::Result<()> {
    // SAFETY: at most the rights that the program has given this memory; fewer are restored before
    // the program can notice.
    unsafe { sys::protect(start, end - start, rights) }.map(drop)
}

fn close(region: &Region, start: u64, end: u64) -> sys::Result<()> {
    if start >= end {
        return Ok(());
    }
    protect(start, end, region.rights & !k::PROT_WRITE | k::PROT_READ)
}

/// True if `page` equals its logged contents at `was`.
fn is_same(region: &Region, page: u64, was: u64) -> bool {
    const WORDS: usize = PAGE as usize / 8;
    /// Words that are compared at once.
    const AT_ONCE: usize = 32;
    let mut copy = [0u8; PAGE as usize];
    let now = match region.is_file {
        // The file may have become shorter meanwhile.
        true if sys::copy_bytes(page, &mut copy).is_err() => return true,
        true => copy.as_ptr() as u64,
        false => page,
    };
    // SAFETY: `now` is a page that was readable when it was logged, or a copy of it; `was` is one
    // of ours. No other thread writes to them.
    let (now, was) =
        unsafe { (&*(now as *const [[u8; 8]; WORDS]), &*(was as *const [[u8; 8]; WORDS])) };
    now.chunks(AT_ONCE).zip(was.chunks(AT_ONCE)).all(|(now, was)| {
        let differs = |all, (now, was): (&[u8; 8], &[u8; 8])| {
            all | u64::from_ne_bytes(*now) ^ u64::from_ne_bytes(*was)
        };
        now.iter().zip(was).fold(0, differs) == 0
    })
}

/// Writes its own first byte to one page of the mapping, so that the mapping has an `anon_vma`
/// before it is split. No other thread writes meanwhile.
fn populate_page(region: &Region) {
    let page = if region.is_stack { region.end - PAGE } else { region.start };
    // SAFETY: does not change the contents.
    if unsafe { sys::advise(page, PAGE, k::MADV_POPULATE_WRITE) }.is_ok() {
        return;
    }
    // Before Linux 5.14; or the page is past the end of a file.
    if let Ok(byte) = sys::copy_in::<u8>(page) {
        // SAFETY: a page of the program, whose contents stay the same.
        let _ = unsafe { sys::copy_out(&[byte], page) };
    }
}

/// True if the memory that the program can write is limited (RLIMIT_DATA).
fn is_data_limited() -> bool {
    let mut limit = [0u64; 2];
    let args = [k::RLIMIT_DATA.into(), limit.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: writes two words.
    let result = unsafe { sys::raw(nr::GETRLIMIT, args) };
    result != 0 || limit[0] != u64::MAX
}

#[cfg(test)]
mod tests;
