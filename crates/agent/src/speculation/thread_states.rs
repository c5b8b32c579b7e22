//! The threads of a process at its checkpoint.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::arch::{Context, KeptFrame};
use crate::plane::reported_call_state::Begun;
use crate::plane::thread_stop::{self, Stopped};
use crate::plane::{Call, thread};
use crate::sys::{self, Errno, nr};

/// Most threads of a process that speculates.
pub const THREADS: usize = 256;
/// Frames that are kept for all checkpoints together.
const FRAMES: usize = 1024;

/// A thread at a checkpoint.
struct SavedThread {
    number: u32,
    /// The call that it is in, if it is: its timeout goes on.
    begun: Option<Begun>,
    frame: KeptFrame,
}

/// All threads at all open checkpoints. All-zero is valid, and holds none.
pub struct Threads {
    saved: [SavedThread; FRAMES],
    /// Positions of the first frame that is still wanted and of the next, which only grow.
    first: u64,
    end: u64,
    /// Masks that threads had before the process speculated, by their numbers.
    masks: [(u32, u64); THREADS],
    masked: usize,
}

impl Threads {
    /// Where what is kept ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Keeps the frames of the calling thread and of all that are stopped. E2BIG: there are too many; EDEADLK: one is in
    /// a handler that has interrupted us.
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
            // Memory could not be put back with us at work in it.
            return Err(Errno(sys::EDEADLK));
        }
        let kept = &mut self.saved[self.end as usize % FRAMES];
        kept.number = number;
        kept.begun = thread_stop::begun(number);
        // SAFETY: the kernel's frame of a thread that is stopped, or that is at work here.
        unsafe { frame.keep(&raw mut kept.frame)? };
        self.end += 1;
        Ok(())
    }

    /// The thread goes on as at the checkpoint for which frames were kept from position `first` to `end`.
    pub fn restore(
        &self,
        (first, end): (u64, u64),
        number: u32,
        frame: &mut Context,
    ) -> sys::Result<()> {
        let mut kept = (first..end).map(|n| &self.saved[n as usize % FRAMES]);
        let kept = kept.find(|kept| kept.number == number).ok_or(Errno(sys::ESRCH))?;
        thread_stop::put_begun(number, kept.begun);
        // SAFETY: as in `keep_one`.
        unsafe { frame.take_back(&kept.frame) }
    }

    /// What was kept from `mark` on is not wanted any more.
    pub fn drop_from(&mut self, mark: u64) {
        self.end = mark;
    }

    /// What was kept before `mark` is not wanted any more.
    pub fn forget_until(&mut self, mark: u64) {
        self.first = mark;
    }

    /// From here on the process speculates, and its threads have this mask. E2BIG: there are too many.
    pub fn mask(&mut self, own: &mut Context, stopped: &Stopped, mask: u64) -> sys::Result<()> {
        let mut count = 1;
        stopped.each(|_, _| count += 1);
        if count > THREADS {
            return Err(Errno(sys::E2BIG));
        }
        self.masked = 0;
        let mut one = |number: u32, frame: &mut Context| {
            self.masks[self.masked] = (number, core::mem::replace(&mut frame.mask, mask));
            self.masked += 1;
        };
        one(sys::gettid(), own);
        stopped.each(one);
        Ok(())
    }

    /// The mask that the calling thread is to have once nothing is open.
    pub fn own_mask(&self) -> Option<u64> {
        let own = sys::gettid();
        self.masks[..self.masked].iter().find(|(of, _)| *of == own).map(|(_, mask)| *mask)
    }

    /// The calling thread, which is the only one, believes that this is its mask.
    pub fn set_believed_mask(&mut self, mask: u64) {
        if let Some(thread) = thread::current() {
            (self.masks[0], self.masked) = ((sys::gettid(), thread.believe_mask(mask)), 1);
        }
    }

    /// In a forked child, whose only thread was `before` in its parent.
    pub fn in_child(&mut self, before: u32) {
        let own = self.masks[..self.masked].iter().find(|(of, _)| *of == before);
        self.masks[0] = (sys::gettid(), own.map_or(0, |(_, mask)| *mask));
        (self.masked, self.first, self.end) = (1, 0, 0);
    }

    /// The thread has the mask again that it had before the process speculated.
    pub fn unmask(&self, number: u32, frame: &mut Context) {
        if let Some((_, mask)) = self.masks[..self.masked].iter().find(|(of, _)| *of == number) {
            frame.mask = *mask;
        }
    }
}

/// Where the kernel notes for threads on which processor they are (rseq(2)), by their numbers.
struct RseqAreas([[AtomicU64; 2]; THREADS]);

static RSEQ_AREAS: RseqAreas = RseqAreas([const { [const { AtomicU64::new(0) }; 2] }; THREADS]);
/// Bytes of it that the kernel writes.
const RSEQ_BYTES: usize = 32;

/// A call has returned: it may have been about such a place.
pub fn note_call(call: &Call, result: i64) {
    match call.nr {
        nr::RSEQ if result == 0 && call.args[2] == 0 => note_rseq_area(sys::gettid(), call.args[0]),
        nr::RSEQ if result == 0 => forget_rseq_area(sys::gettid()),
        _ => {}
    }
}

/// The thread has given the kernel such a place. (Two may begin at once. Nobody looks at places while one is at work here.)
fn note_rseq_area(thread: u32, at: u64) {
    let thread = u64::from(thread);
    let same = RSEQ_AREAS.0.iter().find(|[number, _]| number.load(Relaxed) == thread);
    let take = |number: &AtomicU64| number.compare_exchange(0, thread, Relaxed, Relaxed).is_ok();
    match same.or_else(|| RSEQ_AREAS.0.iter().find(|[number, _]| take(number))) {
        Some([_, place]) => place.store(at, Relaxed),
        None => SOME_UNKNOWN.store(true, Relaxed),
    }
}

/// There was no room for the place of some thread.
static SOME_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Whether all such places are known.
pub fn rseq_areas_are_known() -> bool {
    !SOME_UNKNOWN.load(Relaxed)
}

/// The thread ends, or has no such place any more.
pub fn forget_rseq_area(thread: u32) {
    for [number, _] in
        RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) == thread.into())
    {
        number.store(0, Relaxed);
    }
}

/// Calls `each` with the address of each such place.
pub fn each_rseq_area(mut each: impl FnMut(u64)) {
    let used = RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) != 0);
    used.for_each(|[_, place]| each(place.load(Relaxed)));
}

/// In a forked child, whose only thread was `before` in its parent.
pub fn rseq_areas_in_child(before: u32) {
    for [number, _] in &RSEQ_AREAS.0 {
        let is_own = number.load(Relaxed) == before.into();
        number.store(if is_own { sys::gettid().into() } else { 0 }, Relaxed);
    }
}

/// Does `work`, which puts memory back, and leaves what the kernel has written to these places as it is: a processor's number
/// of long ago would be wrong.
pub fn preserving_rseq_areas<T>(work: impl FnOnce() -> T) -> T {
    let mut now = [[0u8; RSEQ_BYTES]; THREADS];
    let places = || RSEQ_AREAS.0.iter().filter(|[number, _]| number.load(Relaxed) != 0);
    for ([_, at], now) in places().zip(&mut now) {
        let _ = sys::copy_bytes(at.load(Relaxed), now);
    }
    let result = work();
    for ([_, at], now) in places().zip(&now) {
        let (from, to) =
            ([[now.as_ptr() as u64, RSEQ_BYTES as u64]], [[at.load(Relaxed), RSEQ_BYTES as u64]]);
        // SAFETY: what the kernel itself has written there.
        let _ = unsafe { sys::copy_out(&from, &to) };
    }
    result
}
