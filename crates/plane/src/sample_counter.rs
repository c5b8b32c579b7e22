//! Calls that go by unseen: of those of which a policy wants samples only, how many are next.
//!
//! The entry code counts them down, before it looks for the thread or saves anything. Nothing
//! depends on the counts being exact, so they are kept by where the stack is rather than by thread:
//! that is at hand, and threads whose stacks are apart write to different lines of the cache. A
//! signal handler, or another thread of the same place, that comes between load and store makes a
//! few more calls unseen, or fewer.
//!
//! Invariant: where a policy wants every call, as that of a shadow does, the entry code does not
//! look here; so counts that a shadow, or any fork, has inherited let nothing by.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places; the entry code knows them.
pub(crate) const PLACES: usize = 64;

/// Calls made from stacks of one place.
#[repr(C, align(64))]
pub struct Unseen {
    /// Calls that go straight to the kernel before the next sample.
    left: AtomicU64,
    /// Calls that went by, or will, and that no sample has stood for yet.
    unaccounted: AtomicU64,
    /// State of [`Unseen::chance`].
    random: AtomicU64,
}

impl Unseen {
    const fn new() -> Self {
        Unseen {
            left: AtomicU64::new(0),
            unaccounted: AtomicU64::new(0),
            random: AtomicU64::new(0),
        }
    }
}

// SAFETY: nothing else defines a name that begins with RUNAHEAD_.
#[unsafe(no_mangle)]
// SAFETY: zeroes, like all of it. (At its end, so that the small ones share pages.)
#[unsafe(link_section = ".bss.large")]
pub(crate) static RUNAHEAD_UNSEEN: [Unseen; PLACES] = [const { Unseen::new() }; PLACES];

/// Counter of calls from `stack`.
pub fn of_stack(stack: u64) -> &'static Unseen {
    // The entry code has the same written out. Stacks are often 8 MiB apart, and some pages; small
    // ones less. One of them seldom changes its place as it grows.
    &RUNAHEAD_UNSEEN[((stack >> 17) ^ (stack >> 23)) as usize % PLACES]
}

/// No call goes by unseen any more.
pub fn none() {
    let used = RUNAHEAD_UNSEEN.iter().filter(|place| place.left.load(Relaxed) != 0);
    for place in used {
        let left = place.left.swap(0, Relaxed);
        let all = place.unaccounted.load(Relaxed);
        place.unaccounted.store(all.saturating_sub(left), Relaxed);
    }
}

impl Unseen {
    /// Calls that are to go by.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Lets as many calls go by.
    pub fn allow(&self, calls: u64) {
        self.left.store(calls, Relaxed);
        self.unaccounted.store(calls, Relaxed);
    }

    /// A number in no step with what the program does (Knuth's generator, its better half): the
    /// clock takes longer to read.
    pub fn chance(&self) -> u64 {
        let next = self.random.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005);
        let next = next.wrapping_add(1_442_695_040_888_963_407);
        self.random.store(next, Relaxed);
        next >> 32
    }

    /// Counts one call less to go by: one was seen because it trapped.
    pub fn one_less(&self) {
        self.left.store(self.left().saturating_sub(1), Relaxed);
    }

    /// Number of calls that the sample at hand stands for beside itself; 0 if it is none.
    pub fn account(&self) -> u64 {
        if self.left() == 0 { self.unaccounted.swap(0, Relaxed) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::arch::{self, RUNAHEAD_INTEREST, SAMPLED, SEEN};
    use crate::sys::{self, nr};

    /// Makes getppid as a patched site does, without arguments; how many calls are left to go by
    /// unseen then, at the place of the stack that the entry code sees.
    fn call_by_entry(left: u64, interest: u8) -> u64 {
        RUNAHEAD_INTEREST[nr::GETPPID as usize].store(interest, Relaxed);
        let (ret, stack): (u64, u64);
        // SAFETY: the entry code keeps every register but these and makes one call without effect;
        // as no thread is known in this process, nothing else is run.
        unsafe {
            core::arch::asm!(
                "lea r12, [rsp - 8]",
                "mov r13, rsp",
                "and rsp, -16",
                "mov rdi, r12",
                "call {allow}",
                "mov rsp, r13",
                "mov eax, {number}",
                "call r14",
                allow = sym allow,
                number = const nr::GETPPID,
                in("rsi") left,
                in("r14") arch::entry(),
                out("r12") stack,
                out("r13") _,
                out("rax") ret,
                clobber_abi("C"),
            );
        }
        assert_eq!(ret, u64::from(sys::getppid()), "the call is made all the same");
        of_stack(stack).left()
    }

    extern "C" fn allow(stack: u64, calls: u64) {
        of_stack(stack).allow(calls);
    }

    #[test]
    fn the_entry_code_counts_down_what_is_sampled_and_nothing_else() {
        assert_eq!(call_by_entry(3, SAMPLED), 2);
        assert_eq!(call_by_entry(1, SAMPLED), 0);
        assert_eq!(call_by_entry(0, SAMPLED), 0);
        // A shadow sees every call, whatever it has inherited.
        assert_eq!(call_by_entry(3, SEEN), 3);
        assert_eq!(call_by_entry(3, 0), 3);
        RUNAHEAD_INTEREST[nr::GETPPID as usize].store(0, Relaxed);
    }

    #[test]
    fn a_sample_stands_for_those_that_went_by() {
        let here = Unseen::new();
        here.allow(3);
        assert_eq!(here.account(), 0, "none has gone by that was not to");
        (0..3).for_each(|_| here.one_less());
        assert_eq!((here.left(), here.account(), here.account()), (0, 3, 0));
    }

    #[test]
    fn threads_have_places_of_their_own() {
        for apart in [(8 << 20) + 4096, (1 << 20) + 4096, 256 << 10] {
            let places: Vec<_> = (0..8)
                .map(|n| core::ptr::from_ref(of_stack(0x7fff_f7a0_0000 - n * apart)))
                .collect();
            let others = |n: usize| places[..n].iter().filter(|&&place| place == places[n]).count();
            assert!((0..8).map(others).sum::<usize>() <= 1, "{apart:#x}: {places:?}");
        }
    }
}
