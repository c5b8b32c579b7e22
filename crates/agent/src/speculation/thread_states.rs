//! Threads of a process at its checkpoints.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::arch::{Context, SavedFrame};
use crate::plane::reported_call_state::CallProgress;
use crate::plane::thread_stop::{self, Stopped};
use crate::plane::{Call, thread};
use crate::sys::{self, Errno, nr};

/// Limit of threads in a process that speculates.
pub const THREADS: usize = 256;
/// Frames saved for all checkpoints together.
const FRAMES: usize = 1024;

/// A thread at a checkpoint.
struct SavedThread {
    number: u32,
    /// Call that the thread is blocked in, if any. Its timeout continues.
    call_progress: Option<CallProgress>,
    frame: SavedFrame,
}

/// Saved threads of all open checkpoints. All-zero is valid and empty.
pub struct Threads {
    saved: [SavedThread; FRAMES],
    /// Positions of the oldest saved frame and of the next; they only grow.
    first: u64,
    end: u64,
    /// Signal masks of the threads before the process speculated, by thread id.
    masks: [(u32, u64); THREADS],
    masked: usize,
}

/// Positions of saved frames.
#[derive(Clone, Copy, Default)]
pub struct FrameRange {
    /// First position.
    pub first: u64,
    /// Position after the last frame.
    pub end: u64,
}

impl Threads {
    /// Returns the position after the last saved frame.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Saves the frames of the calling thread and of all stopped ones. E2BIG: too many. EDEADLK:
    /// one is in a handler that has interrupted the agent.
    pub fn save(&mut self, own: &Context, stopped: &Stopped) -> sys::Result<()> {
        let mark = self.end;
        let mut result = self.save_thread(sys::gettid(), own);
        stopped
            .each(|number, frame| result = result.and_then(|()| self.save_thread(number, frame)));
        if result.is_err() {
            self.end = mark;
        }
        result
    }

    fn save_thread(&mut self, number: u32, frame: &Context) -> sys::Result<()> {
        if self.end - self.first == FRAMES as u64 {
            return Err(Errno(sys::E2BIG));
        }
        if frame.is_on_programs_stack() {
            // Memory cannot be restored while the agent runs on the program's stack.
            return Err(Errno(sys::EDEADLK));
        }
        let saved = &mut self.saved[self.end as usize % FRAMES];
        saved.number = number;
        saved.call_progress = thread_stop::call_progress(number);
        // SAFETY: the kernel's frame of a thread that is stopped or that runs here.
        unsafe { frame.save(&raw mut saved.frame)? };
        self.end += 1;
        Ok(())
    }

    /// Restores the thread's frame from the checkpoint with these frames.
    pub fn restore(&self, frames: FrameRange, number: u32, frame: &mut Context) -> sys::Result<()> {
        let mut saved = (frames.first..frames.end).map(|n| &self.saved[n as usize % FRAMES]);
        let saved = saved.find(|saved| saved.number == number).ok_or(Errno(sys::ESRCH))?;
        thread_stop::set_call_progress(number, saved.call_progress);
        // SAFETY: as in `save_thread`.
        unsafe { frame.restore(&saved.frame) }
    }

    /// Drops the frames from `mark` on.
    pub fn drop_from(&mut self, mark: u64) {
        self.end = mark;
    }

    /// Drops the frames before `mark`.
    pub fn forget_until(&mut self, mark: u64) {
        self.first = mark;
    }

    /// Sets the mask that `meanwhile` gives for its own one, in all threads of the process, which
    /// speculates from here on. E2BIG: too many threads.
    pub fn mask(
        &mut self,
        own: &mut Context,
        stopped: &Stopped,
        meanwhile: impl Fn(u64) -> u64,
    ) -> sys::Result<()> {
        let mut count = 1;
        stopped.each(|_, _| count += 1);
        if count > THREADS {
            return Err(Errno(sys::E2BIG));
        }
        self.masked = 0;
        let mut one = |number: u32, frame: &mut Context| {
            self.masks[self.masked] = (number, frame.mask);
            frame.mask = meanwhile(frame.mask);
            self.masked += 1;
        };
        one(sys::gettid(), own);
        stopped.each(one);
        Ok(())
    }

    /// Returns the mask that the calling thread gets once no speculation is open.
    pub fn own_mask(&self) -> Option<u64> {
        let own = sys::gettid();
        self.masks[..self.masked].iter().find(|(of, _)| *of == own).map(|(_, mask)| *mask)
    }

    /// Sets the mask that the calling thread, the only one, believes to have.
    pub fn set_believed_mask(&mut self, mask: u64) {
        if let Some(thread) = thread::current() {
            (self.masks[0], self.masked) = ((sys::gettid(), thread.believe_mask(mask)), 1);
        }
    }

    /// Resets the state in a forked child, whose only thread was `before` in its parent.
    pub fn in_child(&mut self, before: u32) {
        let own = self.masks[..self.masked].iter().find(|(of, _)| *of == before);
        self.masks[0] = (sys::gettid(), own.map_or(0, |(_, mask)| *mask));
        (self.masked, self.first, self.end) = (1, 0, 0);
    }

    /// Restores the mask that the thread had before the process speculated.
    pub fn unmask(&self, number: u32, frame: &mut Context) {
        if let Some((_, mask)) = self.masks[..self.masked].iter().find(|(of, _)| *of == number) {
            frame.mask = *mask;
        }
    }
}

/// rseq(2) areas, in which the kernel records each thread's processor, by thread id.
struct RseqAreas([[AtomicU64; 2]; THREADS]);

static RSEQ_AREAS: RseqAreas = RseqAreas([const { [const { AtomicU64::new(0) }; 2] }; THREADS]);
/// Bytes of an area that the kernel writes.
const RSEQ_BYTES: usize = 32;

/// Records or removes the calling thread's area after rseq(2) has returned.
pub fn note_call(call: &Call, result: i64) {
    match call.nr {
        nr::RSEQ if result == 0 && call.args[2] == 0 => note_rseq_area(sys::gettid(), call.args[0]),
        nr::RSEQ if result == 0 => forget_rseq_area(sys::gettid()),
        _ => {}
    }
}

/// Records the area of `thread`. Two threads may come here at once. No area is read meanwhile.
fn note_rseq_area(thread: u32, at: u64) {
    let thread = u64::from(thread);
    let same = RSEQ_AREAS.0.iter().find(|[number, _]| number.load(Relaxed) == thread);
    let take = |number: &AtomicU64| number.compare_exchange(0, thread, Relaxed, Relaxed).is_ok();
    match same.or_else(|| RSEQ_AREAS.0.iter().find(|[number, _]| take(number))) {
        Some([_, place]) => place.store(at, Relaxed),
        None => SOME_UNKNOWN.store(true, Relaxed),
    }
}

/// True if some thread's area found no free entry.
static SOME_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// True if the areas of all threads are recorded.
pub fn rseq_areas_are_known() -> bool {
    !SOME_UNKNOWN.load(Relaxed)
}

/// Removes the area of `thread`, which ends or has unregistered it.
pub fn forget_rseq_area(thread: u32) {
    for [number, _] in
        RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) == thread.into())
    {
        number.store(0, Relaxed);
    }
}

/// Calls `each` with the address of each area.
pub fn each_rseq_area(mut each: impl FnMut(u64)) {
    let used = RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) != 0);
    used.for_each(|[_, place]| each(place.load(Relaxed)));
}

/// Keeps only the calling thread's area in a forked child, whose thread was `before` in its parent.
pub fn rseq_areas_in_child(before: u32) {
    for [number, _] in &RSEQ_AREAS.0 {
        let is_own = number.load(Relaxed) == before.into();
        number.store(if is_own { sys::gettid().into() } else { 0 }, Relaxed);
    }
}

/// Runs `work`, which restores memory, and leaves the areas as the kernel last wrote them: an old
/// processor number would be wrong.
pub fn preserving_rseq_areas<T>(work: impl FnOnce() -> T) -> T {
    let mut now = [[0u8; RSEQ_BYTES]; THREADS];
    let places = || RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) != 0);
    for ([_, at], now) in places().zip(&mut now) {
        let _ = sys::copy_bytes(at.load(Relaxed), now);
    }
    let result = work();
    for ([_, at], now) in places().zip(&now) {
        // SAFETY: bytes that the kernel itself wrote there.
        let _ = unsafe { sys::copy_out(now, at.load(Relaxed)) };
    }
    result
}
