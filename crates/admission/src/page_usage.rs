//! Pages that a process uses of mapped files and of swapped memory. It makes no call for these, so
//! its page tables are looked at.
//!
//! A page is used once the process has it, which the kernel tells
//! ([`page_presence`](crate::process::page_presence)). The process also has those around a page
//! that it has touched, up to 64 KiB, if they were in memory. So some hints are taken for used that
//! only lay beside such a page.
//!
//! Pages that are fetched of swapped memory the process has from then on, used or not. Some pages
//! are not fetched, as samples ([`is_sample_page`]). Once the process has a sample, it
//! has come to what was hinted between the sample before and this one.
//!
//! Invariant: looking takes at most a part in [`SHARE`] of the time.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::process::page_presence::{Present, mapped_parts};
use runahead_abi::hint_record::Header;
use runahead_abi::swapped_memory::PAGE_BYTES;
use runahead_abi::{Shared, swapped_memory};
use runahead_estimators::Identity;
use runahead_estimators::access_identity::BLOCK_BYTES;
use runahead_prefetch::is_sample_page;
use rustix::time::{ClockId, clock_gettime};

/// Looks take at most one part in this many of the time.
const SHARE: u32 = 32;
/// Between two looks, at least.
const PAUSE: Duration = Duration::from_millis(5);
/// Smaller mappings are not looked at: their files are asked for as a whole.
const LEAST_BYTES: u64 = 128 << 10;

/// Samples that are waited for at most, and hints between two of them.
const MOST_SAMPLES: usize = 1024;
const MOST_OPEN: usize = 64 << 10;

/// Uses of one process.
pub(crate) struct PageUses {
    process: i32,
    next: Instant,
    samples: Samples,
}

/// Hints of swapped memory, of which is not known whether they have been used.
#[derive(Default)]
struct Samples {
    /// Since the newest sample: offsets in the log, and lengths.
    open: Vec<(u64, u64)>,
    waiting: VecDeque<Sample>,
}

struct Sample {
    /// Address of the page that was left to the process.
    page: u64,
    /// The hints that it stands for.
    hints: Vec<(u64, u64)>,
}

impl PageUses {
    pub(crate) fn new(process: i32) -> Self {
        PageUses { process, next: Instant::now(), samples: Samples::default() }
    }

    /// Swapped memory of the process is hinted.
    pub(crate) fn expect(&mut self, header: &Header) {
        let Header { offset, length, .. } = *header;
        let pages = swapped_memory::addresses(&(offset..offset.saturating_add(length)));
        self.samples.open.push((offset, length));
        let sample = pages.step_by(PAGE_BYTES as usize).find(|&page| is_sample_page(page));
        if let Some(page) = sample
            && Present::of(self.process).is_ok_and(|present| !is_there(&present, page))
        {
            let hints = std::mem::take(&mut self.samples.open);
            self.samples.waiting.push_back(Sample { page, hints });
        }
        if self.samples.waiting.len() > MOST_SAMPLES {
            self.samples.waiting.pop_front();
        }
        if self.samples.open.len() > MOST_OPEN {
            self.samples.open.clear();
        }
    }

    /// Counts what has been used, if it is time to; how long until the next look.
    pub(crate) fn look(&mut self, shared: &Shared) -> Option<Duration> {
        let control = &shared.control;
        let is_all_used = || control.hints_issued.load(Relaxed) <= control.hints_used.load(Relaxed);
        if control.mapped_cold.load(Relaxed) == 0 || is_all_used() {
            return None;
        }
        let now = Instant::now();
        if now < self.next {
            return Some(self.next - now);
        }
        let before = processor_time();
        // A process that has ended is not looked at again: its dispatcher ends.
        let _ = self.count(shared);
        let pause = (processor_time().saturating_sub(before) * SHARE).max(PAUSE);
        self.next = Instant::now() + pause;
        Some(pause)
    }

    /// There is a new shadow, where the process is now: what was fetched of swapped memory before,
    /// and not used, is not what it has come to, or was swapped out again. It may be hinted once
    /// more.
    pub(crate) fn start_over(&mut self, shared: &Shared) {
        let _ = Present::of(self.process).map(|present| self.samples.count(&present, shared));
        let Samples { open, waiting } = std::mem::take(&mut self.samples);
        for (offset, length) in waiting.into_iter().flat_map(|sample| sample.hints).chain(open) {
            swapped_memory::MEMORY
                .pieces(offset, length)
                .for_each(|piece| shared.log.take_back(piece));
        }
    }

    fn count(&mut self, shared: &Shared) -> std::io::Result<()> {
        let present = Present::of(self.process)?;
        for part in mapped_parts(self.process, LEAST_BYTES)? {
            let file = Identity::ROOT.join(&part.path);
            present.each(&part.at, |range| {
                let first = part.offset + (range.start - part.at.start);
                let end = part.offset + (range.end - part.at.start);
                let first = first - first % BLOCK_BYTES;
                for piece in file.pieces(first, end - first) {
                    shared.touch(piece, true);
                }
            })?;
        }
        self.samples.count(&present, shared);
        Ok(())
    }
}

impl Samples {
    /// Counts what they say has been used.
    fn count(&mut self, present: &Present, shared: &Shared) {
        self.waiting.retain(|sample| {
            let is_used = is_there(present, sample.page);
            if is_used {
                let hints = sample.hints.iter();
                let pieces =
                    hints.flat_map(|&(at, length)| swapped_memory::MEMORY.pieces(at, length));
                pieces.for_each(|piece| _ = shared.touch(piece, true));
            }
            !is_used
        });
    }
}

/// Returns the processor time of this thread. A look may wait for the process's memory, which costs
/// no other thread anything.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// The process has the page at that address.
fn is_there(present: &Present, page: u64) -> bool {
    let mut is_there = false;
    let told = present.each(&(page..page + PAGE_BYTES), |_| is_there = true);
    told.is_ok() && is_there
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ptr::null_mut;

    use crate::process::shared_memory::Mapping;
    use runahead_abi::HintState;
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn a_hint_is_used_when_its_page_is_touched() {
        const LEN: usize = 4 << 20;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&vec![1; LEN]).expect("written");
        let name = file.path().to_str().expect("a plain name").as_bytes();
        let identity = Identity::ROOT.join(name);
        let (shared, _memory) = Mapping::new().expect("memory to share");
        let far = LEN as u64 / 2;
        for offset in [0, far] {
            let _ = shared.log.hint(identity.first_piece(offset, 1), 1);
            shared.control.hints_issued.fetch_add(1, Relaxed);
        }
        let mut uses = PageUses::new(std::process::id() as i32);
        assert_eq!(uses.look(&shared), None, "nothing cold was mapped");
        shared.control.mapped_cold.store(1, Relaxed);
        // SAFETY: a fresh mapping, which no other code knows.
        let at = unsafe { mmap(null_mut(), LEN, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let at = at.expect("memory");
        assert!(uses.look(&shared).is_some());
        assert_eq!(shared.control.hints_used.load(Relaxed), 0);
        // SAFETY: a byte of it.
        let _ = unsafe { at.cast::<u8>().add(LEN / 2).read_volatile() };
        uses.next = Instant::now();
        assert!(uses.look(&shared).is_some());
        assert_eq!(shared.control.hints_used.load(Relaxed), 1);
        assert_eq!(shared.control.shadow_data_used.load(Relaxed), 1);
        uses.next = Instant::now();
        let _ = uses.look(&shared);
        assert_eq!(shared.control.hints_used.load(Relaxed), 1, "it is counted once");
        // SAFETY: the mapping above.
        unsafe { munmap(at, LEN) }.expect("it was mapped");
    }

    #[test]
    fn a_sample_tells_of_the_hints_before_it() {
        const LEN: usize = 8 << 20;
        let (shared, _memory) = Mapping::new().expect("memory to share");
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping, which no other code knows.
        let at = unsafe { mmap_anonymous(null_mut(), LEN, rights, MapFlags::PRIVATE) };
        let at = at.expect("memory");
        let pages = (at as u64..at as u64 + LEN as u64).step_by(PAGE_BYTES as usize);
        let samples: Vec<_> =
            pages.clone().enumerate().filter(|(_, page)| is_sample_page(*page)).collect();
        let mut uses = PageUses::new(std::process::id() as i32);
        for page in pages {
            let offset = swapped_memory::offset_of(page);
            let _ = shared.log.hint(swapped_memory::MEMORY.first_piece(offset, BLOCK_BYTES), 1);
            shared.control.hints_issued.fetch_add(1, Relaxed);
            uses.expect(&Header { offset, length: BLOCK_BYTES, ..NONE });
        }
        shared.control.mapped_cold.store(1, Relaxed);
        let mut used = |touched: Option<u64>| {
            // SAFETY: a byte of the mapping.
            let _ = touched.map(|page| unsafe { (page as *mut u8).write_volatile(1) });
            uses.next = Instant::now();
            let _ = uses.look(&shared);
            shared.control.hints_used.load(Relaxed)
        };
        // The first use of a chunk counts.
        let chunk = |n: usize| (at as u64 / PAGE_BYTES + samples[n].0 as u64) / 8;
        assert_eq!(used(None), 0);
        assert_eq!(used(Some(samples[2].1 - PAGE_BYTES)), 0, "it may have been fetched");
        let between = used(Some(samples[2].1));
        let expected = chunk(2) - chunk(1);
        assert!((expected..=expected + 1).contains(&between), "{between} {expected}");
        assert!(used(Some(samples[0].1)) > between);
        // SAFETY: the mapping above.
        unsafe { munmap(at.cast(), LEN) }.expect("it was mapped");
        uses.start_over(&shared);
        let left = swapped_memory::MEMORY
            .first_piece(swapped_memory::offset_of(samples[1].1), BLOCK_BYTES);
        assert_eq!(shared.log.state(left), HintState::Absent, "it may be hinted once more");
    }

    const NONE: Header = Header {
        kind: 0,
        run: 1,
        position: 0,
        key: 0,
        offset: 0,
        length: 0,
        flags: 0,
        path_len: 0,
    };
}
