//! Counts of traps by call site.

/// Traps after which a site is worth patching.
pub(super) const HOT: u32 = 8;
const SETS: usize = 64;
const WAYS: usize = 4;

#[derive(Clone, Copy)]
struct SiteCount {
    at: u64,
    traps: u32,
}

/// Counts by site. Where there are too many, the least used gives way and leaves what it has to its
/// successor: sites that take turns in one place become hot all the same, and, being patched, make
/// room. (Space-saving counters: Metwally and others, 2005.)
pub(super) struct TrapCounts([[SiteCount; WAYS]; SETS]);

impl TrapCounts {
    pub const fn new() -> Self {
        TrapCounts([[SiteCount { at: 0, traps: 0 }; WAYS]; SETS])
    }

    fn set(&mut self, at: u64) -> &mut [SiteCount; WAYS] {
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &mut self.0[hash as usize % SETS]
    }

    /// Counts a trap at this site. Returns true when it is time to patch it: first when it is hot,
    /// then, if that failed, each time that it has trapped twice as often.
    pub fn note(&mut self, at: u64) -> bool {
        let set = self.set(at);
        let known = set.iter().position(|site| site.at == at);
        let index = known.unwrap_or_else(|| {
            let least = (0..WAYS).min_by_key(|&i| set[i].traps).unwrap_or(0);
            set[least] = SiteCount { at, traps: set[least].traps.min(HOT - 1) };
            least
        });
        let site = &mut set[index];
        site.traps = site.traps.saturating_add(1);
        site.traps >= HOT && (site.traps / HOT).is_power_of_two() && site.traps.is_multiple_of(HOT)
    }

    /// The site at `at` will not trap any more.
    pub fn forget(&mut self, at: u64) {
        if let Some(site) = self.set(at).iter_mut().find(|site| site.at == at) {
            *site = SiteCount { at: 0, traps: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_hot_once_and_again_when_it_has_trapped_twice_as_often() {
        let mut seen = TrapCounts::new();
        let mut times = (1..=70).filter(|_| seen.note(0x1000));
        assert_eq!([(); 5].map(|()| times.next()), [Some(8), Some(16), Some(32), Some(64), None]);
        seen.forget(0x1000);
        assert_eq!((1..).find(|_| seen.note(0x1000)), Some(8));
    }

    #[test]
    fn more_sites_than_there_are_places_become_hot() {
        let sites = 2 * (SETS * WAYS) as u64;
        let mut seen = TrapCounts::new();
        let mut is_hot = [false; 2 * SETS * WAYS];
        for _ in 0..10 * HOT {
            for site in 0..sites {
                is_hot[site as usize] |= seen.note(0x1000 + 2 * site);
            }
        }
        assert_eq!(is_hot.iter().filter(|hot| !**hot).count(), 0);
    }

    #[test]
    fn a_busy_site_stays_known_among_many_others() {
        let mut seen = TrapCounts::new();
        let hot = (1..100u64).find(|n| {
            (0..64).for_each(|i| _ = seen.note(0x10_0000 + 64 * n + i));
            seen.note(0x1000)
        });
        assert!(hot.is_some_and(|n| n <= u64::from(HOT)));
    }
}
