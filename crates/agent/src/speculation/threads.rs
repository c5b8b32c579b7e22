//! The threads of a process at its checkpoint.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arch::{Context, KeptFrame};
use crate::plane::stop::Stopped;
use crate::sys::{self, Errno};

/// Most threads of a process that speculates.
const THREADS: usize = 256;

/// A thread at the checkpoint.
struct Kept {
    number: u32,
    frame: KeptFrame,
}

/// All threads at the checkpoint. All-zero is valid, and holds none.
pub struct Threads {
    kept: [Kept; THREADS],
    count: usize,
}

impl Threads {
    /// Keeps the frames of the calling thread and of all that are stopped.
    pub fn keep(&mut self, own: &Context, stopped: &Stopped) -> sys::Result<()> {
        self.count = 0;
        let mut result = self.keep_one(sys::gettid(), own);
        stopped.each(|number, frame| result = result.and_then(|()| self.keep_one(number, frame)));
        result
    }

    fn keep_one(&mut self, number: u32, frame: &Context) -> sys::Result<()> {
        let kept = self.kept.get_mut(self.count).ok_or(Errno(sys::E2BIG))?;
        kept.number = number;
        // SAFETY: the kernel's frame of a thread that is stopped, or that is at work here.
        unsafe { frame.keep(&raw mut kept.frame)? };
        self.count += 1;
        Ok(())
    }

    fn of(&self, number: u32) -> sys::Result<&KeptFrame> {
        let kept = self.kept[..self.count].iter().find(|kept| kept.number == number);
        kept.map(|kept| &kept.frame).ok_or(Errno(sys::ESRCH))
    }

    /// The thread goes on as at the checkpoint.
    pub fn take_back(&self, number: u32, frame: &mut Context) -> sys::Result<()> {
        // SAFETY: as in `keep_one`.
        unsafe { frame.take_back(self.of(number)?) }
    }

    /// The thread goes on from where it is, with the mask that it had at the checkpoint.
    pub fn unmask(&self, number: u32, frame: &mut Context) -> sys::Result<()> {
        frame.mask = self.of(number)?.mask();
        Ok(())
    }
}

/// Where the kernel notes for threads on which processor they are (rseq(2)), by their numbers.
struct Places([[AtomicU64; 2]; THREADS]);

static PLACES: Places = Places([const { [const { AtomicU64::new(0) }; 2] }; THREADS]);
/// Bytes of it that the kernel writes.
const PLACE_BYTES: usize = 32;

/// The thread has given the kernel such a place.
pub fn note_place(thread: u32, at: u64) {
    let same = PLACES.0.iter().find(|[number, _]| number.load(Relaxed) == thread.into());
    let free = || PLACES.0.iter().find(|[number, _]| number.load(Relaxed) == 0);
    if let Some([number, place]) = same.or_else(free) {
        place.store(at, Relaxed);
        number.store(thread.into(), Relaxed);
    }
}

/// The thread ends, or has no such place any more.
pub fn forget_place(thread: u32) {
    for [number, _] in PLACES.0.iter().filter(|[number, _]| number.load(Relaxed) == thread.into()) {
        number.store(0, Relaxed);
    }
}

/// In a forked child, whose only thread was `before` in its parent.
pub fn places_in_child(before: u32) {
    for [number, _] in &PLACES.0 {
        let is_own = number.load(Relaxed) == before.into();
        number.store(if is_own { sys::gettid().into() } else { 0 }, Relaxed);
    }
}

/// Does `work`, which puts memory back, and leaves what the kernel has written to these places as it is: a processor's number
/// of long ago would be wrong.
pub fn with_places_as_they_are<T>(work: impl FnOnce() -> T) -> T {
    let mut now = [[0u8; PLACE_BYTES]; THREADS];
    let places = || PLACES.0.iter().filter(|[number, _]| number.load(Relaxed) != 0);
    for ([_, at], now) in places().zip(&mut now) {
        let _ = sys::copy_bytes(at.load(Relaxed), now);
    }
    let result = work();
    for ([_, at], now) in places().zip(&now) {
        let (from, to) =
            ([[now.as_ptr() as u64, PLACE_BYTES as u64]], [[at.load(Relaxed), PLACE_BYTES as u64]]);
        // SAFETY: what the kernel itself has written there.
        let _ = unsafe { sys::copy_out(&from, &to) };
    }
    result
}
