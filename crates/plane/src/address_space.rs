//! Reserves address space for the agent's memory in the program's process.
//!
//! A program knows addresses that it has unmapped to be free: it may map there again without asking
//! what lies there now. So the agent maps nothing where the kernel might have put a mapping of the
//! program. It uses two stretches:
//! - the *near* stretch is reserved before the program's first instruction, so that the kernel
//!   never hands it out. It holds what every process needs. It is small, as it counts where address
//!   space is limited, and within reach of the libraries, for stubs.
//! - the *far* stretch, for the stacks of many threads, is mapped as it is needed. It lies so far
//!   below where the kernel puts mappings that they reach it only in a program that has used some
//!   hundred gibibytes.
//!
//! A program that maps over these addresses all the same can know them only from a list of
//! mappings. We give way where we can ([`make_way`]).
//!
//! Invariant: a used unit is mapped by no other code, and a lost unit is never used again.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::address_range::AddressRange;
use crate::arch::STACK_BYTES;
use crate::sys::{self, Errno, PAGE, Place};

/// Bytes of the near stretch: the first thread's stack, [`POLICY_BYTES`] for the policy, and
/// [`REST_BYTES`] for some more stacks and pages.
const NEAR_BYTES: u64 = 24 << 20;
const REST_BYTES: u64 = 4 << 20;
/// Bytes that a policy can map in any process, for what it shares with other processes.
pub const POLICY_BYTES: u64 = NEAR_BYTES - REST_BYTES - STACK_BYTES as u64;
const NEAR_UNIT: u64 = 64 << 10;
/// Bytes of the far stretch: more stacks than there are places for threads.
const FAR_BYTES: u64 = 1 << 30;
const FAR_UNIT: u64 = 1 << 20;
/// Distances below the agent's image at which the near stretch is tried, in bytes. The kernel has
/// just put the image beside the libraries to come; a jump reaches twice as far.
const NEAR_DISTANCES: [u64; 4] = [1 << 30, 5 << 28, 3 << 28, 1 << 29];
/// Distance of the far stretch below the agent's image, in bytes. Sanitizers know which addresses
/// libraries have: the top 2 TiB.
const FAR_DISTANCE: u64 = 256 << 30;

/// Distance from the near stretch within which [`is_busy`] is true.
const BUSY_BYTES: u64 = 8 << 40;

const FREE: u8 = 0;
const USED: u8 = 1;
/// State of a unit where the program has, or had, a mapping.
const LOST: u8 = 2;

/// Maps that many bytes at a place, and returns the address.
type Map<'a> = dyn FnMut(Place, u64) -> sys::Result<u64> + 'a;

/// Consecutive units of address space. The states are atomics, so that a fork finds them whole.
struct Stretch<const N: usize> {
    /// First address; 0: not reserved.
    start: AtomicU64,
    unit: u64,
    /// True if units that are neither used nor lost are mapped without access.
    reserved: bool,
    units: [AtomicU8; N],
}

static NEAR: Stretch<{ (NEAR_BYTES / NEAR_UNIT) as usize }> = Stretch::new(NEAR_UNIT, true);
static FAR: Stretch<{ (FAR_BYTES / FAR_UNIT) as usize }> = Stretch::new(FAR_UNIT, false);

impl<const N: usize> Stretch<N> {
    const fn new(unit: u64, reserved: bool) -> Self {
        let units = [const { AtomicU8::new(FREE) }; N];
        Stretch { start: AtomicU64::new(0), unit, reserved, units }
    }

    fn bytes(&self) -> u64 {
        N as u64 * self.unit
    }

    /// Takes `count` units from the number `first` on, or says which of them is not free.
    fn claim(&self, first: usize, count: usize) -> Result<(), usize> {
        for n in first..first + count {
            if self.units[n].compare_exchange(FREE, USED, Relaxed, Relaxed).is_err() {
                self.mark(first, n, FREE);
                return Err(n);
            }
        }
        Ok(())
    }

    fn mark(&self, first: usize, end: usize, state: u8) {
        self.units[first..end].iter().for_each(|unit| unit.store(state, Relaxed));
    }

    /// Takes `len` bytes, which `map` maps. A stretch that is not reserved gives whole units: the
    /// kernel could give the rest of a unit to the program, which could not unmap it then.
    fn take(&self, len: u64, map: &mut Map<'_>) -> sys::Result<u64> {
        let (start, count) = (self.start.load(Relaxed), len.div_ceil(self.unit) as usize);
        let len = if self.reserved { len } else { count as u64 * self.unit };
        let mut first = 0;
        while start != 0 && first + count <= N {
            if let Err(taken) = self.claim(first, count) {
                first = taken + 1;
                continue;
            }
            let at = start + first as u64 * self.unit;
            match map(if self.reserved { Place::Over(at) } else { Place::IfFree(at) }, len) {
                Ok(mapped) => return Ok(mapped),
                Err(Errno(sys::EEXIST)) => self.mark(first, first + count, LOST),
                Err(errno) => {
                    self.mark(first, first + count, FREE);
                    return Err(errno);
                }
            }
        }
        Err(Errno(sys::ENOMEM))
    }

    /// Range of the units that the bytes from `at` to `end` lie in.
    fn span(&self, at: u64, end: u64) -> (usize, usize) {
        let start = self.start.load(Relaxed);
        if start == 0 || end <= start || at >= start + self.bytes() {
            return (0, 0);
        }
        let first = at.saturating_sub(start) / self.unit;
        let end = (end - start).div_ceil(self.unit).min(N as u64);
        (first as usize, end as usize)
    }

    /// Frees memory that was taken from this stretch. Returns false if it was not.
    ///
    /// # Safety
    /// No byte of `at..at + len` is used any more.
    unsafe fn give_back(&self, at: u64, len: u64) -> bool {
        let (first, end) = self.span(at, at + len);
        if first == end {
            return false;
        }
        let from = self.start.load(Relaxed) + first as u64 * self.unit;
        let len = (end - first) as u64 * self.unit;
        // SAFETY: passed on to the caller.
        let freed = unsafe {
            match self.reserved {
                true => sys::map_nothing(Place::Over(from), len),
                false => sys::unmap(from, len),
            }
        };
        self.mark(first, end, if freed.is_ok() { FREE } else { LOST });
        true
    }

    /// Frees the reserved units from `at` to `end` for the program. Returns false if the agent uses
    /// some.
    fn make_way(&self, at: u64, end: u64) -> bool {
        let (first, end) = self.span(at, end);
        let start = self.start.load(Relaxed);
        (first..end).all(|n| {
            match self.units[n].compare_exchange(FREE, LOST, Relaxed, Relaxed) {
                // SAFETY: nothing is there but the reservation.
                Ok(_) if self.reserved => unsafe {
                    sys::unmap(start + n as u64 * self.unit, self.unit).is_ok()
                },
                Ok(_) | Err(LOST) => true,
                Err(_) => false,
            }
        })
    }

    /// Range of the first used unit at or behind `at`.
    fn used_from(&self, at: u64, end: u64) -> Option<AddressRange> {
        let (first, end) = self.span(at, end);
        let used = |n: &usize| self.units[*n].load(Relaxed) == USED;
        let first = (first..end).find(used)?;
        let start = self.start.load(Relaxed) + first as u64 * self.unit;
        Some(AddressRange::of_bytes(start, self.unit))
    }
}

/// Reserves the near stretch, in a process whose agent is mapped at `image`. Called before the
/// program's first instruction.
pub fn reserve(image: u64) -> sys::Result<()> {
    let mut last = Errno(sys::ENOMEM);
    for start in NEAR_DISTANCES.iter().filter_map(|distance| image.checked_sub(*distance)) {
        // SAFETY: replaces nothing.
        match unsafe { sys::map_nothing(Place::IfFree(start), NEAR_BYTES) } {
            Ok(_) => {
                NEAR.start.store(start, Relaxed);
                let far = image.saturating_sub(FAR_DISTANCE) & !(FAR_UNIT - 1);
                FAR.start.store(far, Relaxed);
                return Ok(());
            }
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// Takes `len` bytes, which `map` maps, and returns the address.
fn take(len: u64, map: &mut Map<'_>) -> sys::Result<u64> {
    if NEAR.start.load(Relaxed) == 0 {
        // Only a unit test has no near stretch.
        return map(Place::Anywhere, len);
    }
    match NEAR.take(len, map) {
        Err(Errno(sys::ENOMEM)) => FAR.take(len, map),
        taken => taken,
    }
}

/// Maps private memory for a stack of `len` bytes, of which the first page is left without access.
pub fn map_stack(len: u64) -> sys::Result<u64> {
    take(len, &mut |place, len| {
        // SAFETY: the room is ours.
        let at = unsafe { sys::map_private(place.after(PAGE), len - PAGE)? };
        Ok(if matches!(place, Place::Anywhere) { at } else { at - PAGE })
    })
}

/// Maps private memory.
pub fn map_private(len: u64) -> sys::Result<u64> {
    // SAFETY: the room is ours.
    take(len, &mut |place, len| unsafe { sys::map_private(place, len) })
}

/// Maps memory that children share.
pub fn map_family(len: u64) -> sys::Result<u64> {
    // SAFETY: the room is ours.
    take(len, &mut |place, len| unsafe { sys::map_family(place, len) })
}

/// Maps a file, shared and writable.
pub fn map_shared(fd: sys::Fd, len: u64) -> sys::Result<u64> {
    // SAFETY: the room is ours.
    take(len, &mut |place, len| unsafe { sys::map_shared(place, fd, len) })
}

/// Maps a file as [`map_shared`] does, but outside of the near stretch if possible, which is left
/// to later mappings.
pub fn map_shared_far(fd: sys::Fd, len: u64) -> sys::Result<u64> {
    // SAFETY: the room is ours.
    FAR.take(len, &mut |place, len| unsafe { sys::map_shared(place, fd, len) })
        .or_else(|_| map_shared(fd, len))
}

/// Maps a file, shared and read-only.
pub fn map_shared_to_read(fd: sys::Fd, len: u64) -> sys::Result<u64> {
    // SAFETY: the room is ours.
    take(len, &mut |place, len| unsafe { sys::map_shared_to_read(place, fd, len) })
}

/// True if `at` is in the terabytes into which the kernel puts libraries and other mappings.
pub fn is_busy(at: u64) -> bool {
    let near = NEAR.start.load(Relaxed);
    near != 0 && at.abs_diff(near) < BUSY_BYTES
}

/// First address of the near stretch.
pub fn near() -> u64 {
    NEAR.start.load(Relaxed)
}

/// Maps a page of private memory in the near stretch. It is never freed.
pub fn map_near_page() -> sys::Result<u64> {
    // SAFETY: the room is ours.
    NEAR.take(PAGE, &mut |place, _| unsafe { sys::map_private(place, PAGE) })
}

/// Unmaps memory that a function of this module has mapped.
///
/// # Safety
/// The memory is not used any more.
pub unsafe fn give_back(at: u64, len: u64) {
    // SAFETY: passed on to the caller.
    unsafe {
        if !NEAR.give_back(at, len) && !FAR.give_back(at, len) {
            let _ = sys::unmap(at, len);
        }
    }
}

/// Makes room for a mapping that the program is about to put between `at` and `end`. Returns false
/// if the agent uses memory there.
pub fn make_way(at: u64, end: u64) -> bool {
    NEAR.make_way(at, end) & FAR.make_way(at, end)
}

/// Range of the agent's first used unit at or behind `at`.
pub fn used_from(at: u64, end: u64) -> Option<AddressRange> {
    FAR.used_from(at, end).or_else(|| NEAR.used_from(at, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 1 << 16;

    fn stretch(reserved: bool) -> Stretch<8> {
        let stretch = Stretch::new(UNIT, reserved);
        // SAFETY: new memory.
        let start = unsafe { sys::map_nothing(Place::Anywhere, 8 * UNIT) }.unwrap();
        if !reserved {
            // SAFETY: new memory that is not used. Another test's thread may map there, which then
            // counts as lost.
            unsafe { sys::unmap(start, 8 * UNIT) }.unwrap();
        }
        stretch.start.store(start, Relaxed);
        stretch
    }

    fn page(place: Place) -> sys::Result<u64> {
        // SAFETY: room of the test's.
        unsafe { sys::map_private(place, PAGE) }
    }

    #[test]
    fn a_unit_in_use_is_not_taken_again_until_it_is_freed() {
        let room = stretch(true);
        let start = room.start.load(Relaxed);
        let take =
            |len: u64| room.take(len, &mut |place, _| page(place)).map(|at| (at - start) / UNIT);
        assert_eq!([take(UNIT), take(2 * UNIT + 1), take(1)], [Ok(0), Ok(1), Ok(4)]);
        // SAFETY: it is not used.
        assert!(unsafe { room.give_back(start + UNIT, 2 * UNIT + 1) });
        assert_eq!(
            [take(4 * UNIT), take(2 * UNIT), take(UNIT)],
            [Err(Errno(sys::ENOMEM)), Ok(1), Ok(3)]
        );
        assert_eq!(
            room.used_from(start + UNIT + 5, start + 8 * UNIT),
            Some(AddressRange::of_bytes(start + UNIT, UNIT))
        );
        assert_eq!(room.used_from(start + 5 * UNIT, start + 80 * UNIT), None);
        // SAFETY: it was never taken.
        assert!(!unsafe { room.give_back(start - UNIT, UNIT) });
    }

    #[test]
    fn what_the_program_covers_is_lost_and_what_is_used_stays() {
        let room = stretch(true);
        let start = room.start.load(Relaxed);
        let used = room.take(UNIT, &mut |place, _| page(place)).unwrap();
        assert!(room.make_way(start + 2 * UNIT, start + 4 * UNIT));
        assert!(!room.make_way(start - UNIT, start + 1), "it is used");
        assert!(
            room.make_way(start - UNIT, start) && room.make_way(start + 8 * UNIT, start + 9 * UNIT)
        );
        // SAFETY: what was just given up.
        let own = unsafe { sys::map_nothing(Place::IfFree(start + 2 * UNIT), 2 * UNIT) };
        assert_eq!(own, Ok(start + 2 * UNIT), "the reservation has gone");
        // SAFETY: the page was mapped readable and is still there.
        assert_eq!(unsafe { *(used as *const u8) }, 0);
        let next = |_| room.take(UNIT, &mut |place, _| page(place)).map(|at| (at - start) / UNIT);
        assert_eq!([0; 3].map(next), [Ok(1), Ok(4), Ok(5)]);
    }

    #[test]
    fn a_unit_with_a_foreign_mapping_is_not_taken() {
        let room = stretch(false);
        let start = room.start.load(Relaxed);
        // SAFETY: replaces nothing.
        let _ = unsafe { sys::map_nothing(Place::IfFree(start), UNIT) };
        let at = room.take(UNIT, &mut |place, _| page(place)).unwrap();
        assert!(at > start && room.units[0].load(Relaxed) == LOST);
    }
}
