//! Call sites whose calls the program makes itself, each from a trampoline of the agent's (`arch`)
//! with its own registers and stack.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::arch::{self, CLONE_SITES, Context, PLAIN_SITES};
use crate::spin_lock::Lock;

/// Call sites that have a trampoline, by index.
static SITES: Sites<CLONE_SITES> = Sites::new();

/// Call sites that have a plain trampoline, by index.
static PLAIN: Sites<PLAIN_SITES> = Sites::new();

/// Frees, in a forked child, the lock that another thread held.
pub(super) fn in_new_process() {
    SITES.filling.break_open();
    PLAIN.filling.break_open();
}

/// The number of the trampoline for clones from `site`; `None`: there are too many sites. Signals
/// are blocked.
pub(super) fn of_clones(site: u64) -> Option<usize> {
    SITES.trampoline(site, &arch::RUNAHEAD_CLONE_RETURN)
}

/// Has the program make a call from a trampoline, with nothing to be done after it; signals are
/// blocked. False if there are too many sites.
pub(super) fn plainly_from_the_program(site: u64, context: &mut Context) -> bool {
    let index = PLAIN.trampoline(site, &arch::RUNAHEAD_PLAIN_RETURN);
    if let Some(index) = index {
        context.resume_at(arch::plain_site(index));
    }
    index.is_some()
}

/// Addresses of call sites; 0 from the first free place on.
struct Sites<const N: usize> {
    known: [AtomicU64; N],
    filling: Lock<()>,
}

impl<const N: usize> Sites<N> {
    const fn new() -> Self {
        Sites { known: [const { AtomicU64::new(0) }; N], filling: Lock::new(()) }
    }

    fn find(&self, site: u64) -> Option<usize> {
        let known = self.known.iter().map(|known| known.load(Acquire));
        known.take_while(|&known| known != 0).position(|known| known == site)
    }

    /// The number of the site's trampoline, which goes on behind it by `returns`. With signals
    /// blocked: a handler that came to the site now would wait for us.
    fn trampoline(&self, site: u64, returns: &[AtomicU64; N]) -> Option<usize> {
        if let Some(index) = self.find(site) {
            return Some(index);
        }
        self.filling.with(|()| {
            self.find(site).or_else(|| {
                let index = self.known.iter().position(|known| known.load(Relaxed) == 0)?;
                returns[index].store(site + 2, Relaxed);
                self.known[index].store(site, Release);
                Some(index)
            })
        })
    }
}
