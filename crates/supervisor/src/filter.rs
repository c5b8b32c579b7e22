//! Hints filtered by what became of those before them that came by the same route (Chang 5.1.4 and 5.2.3).
//!
//! A *route* is the path through the code by which a shadow came to a hint ([`Header::route`]). Whether
//! what it needed on the way was there or had to be made up mostly shows in it: the rows that a database
//! reads when its index said so are right or wrong together. Two counters per route tell how many of its
//! hints proved right and wrong of late.
//!
//! A hint is *withheld* when its route has mostly been wrong, beyond what the device makes up for: a right
//! hint gains a stall, a wrong one costs a stall divided by the requests that the device does at a time
//! (so the threshold falls with its width, Chang 5.1.4.2: on a wide disk, next to nothing is withheld).
//!
//! What is withheld is judged, too: right, if the target comes to wait for it; wrong, if it has passed by. So
//! a route can recover; and one hint in [`PROBE`] goes on all the same.
//!
//! Invariant: memory is bounded, whatever routes and keys a process makes up.
//!
//! [`Header::route`]: runahead_abi::record::Header::route

use std::collections::{HashMap, VecDeque};

use runahead_abi::Identity;

/// Hints by which a route is judged at least, and of which there are at most.
const EVIDENCE: u32 = 8;
const WINDOW: u32 = 128;
/// One in so many goes on although its route has been wrong.
const PROBE: u32 = 16;
/// Requests at a time beyond which one more is not thought to be cheaper.
const DEPTH: u32 = 32;
/// Routes, and withheld hints, that are remembered.
const ROUTES: usize = 1 << 12;
const WITHHELD: usize = 1 << 13;

#[derive(Clone, Copy, Debug, Default)]
struct History {
    right: u32,
    wrong: u32,
    /// Hints that would have been withheld.
    doubtful: u32,
}

impl History {
    fn note(&mut self, right: bool) {
        *(if right { &mut self.right } else { &mut self.wrong }) += 1;
        if self.right + self.wrong > WINDOW {
            self.right /= 2;
            self.wrong /= 2;
        }
    }

    /// As if one more had been right: that next to none is takes more to be seen than that half are not.
    fn is_wrong(&self, depth: u32) -> bool {
        self.right + self.wrong >= EVIDENCE && self.wrong > (self.right + 1) * depth.clamp(1, DEPTH)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    routes: HashMap<u64, History>,
    /// By log key, of what was withheld: the route, and the accesses by which it is due.
    withheld: HashMap<Identity, (u64, u64)>,
    /// Their keys, and when they are due: oldest first. Some may not be waited for any more.
    queue: VecDeque<(Identity, u64)>,
}

impl Filter {
    /// Whether a hint that came by `route` is to be withheld from a device that does `depth` requests at a
    /// time; that is asked for only of a route that would be wrong for the narrowest.
    pub(crate) fn withholds(&mut self, route: u64, depth: impl FnOnce() -> usize) -> bool {
        let Some(history) = self.routes.get_mut(&route) else { return false };
        if !(history.is_wrong(1) && history.is_wrong(depth().try_into().unwrap_or(DEPTH))) {
            return false;
        }
        history.doubtful = history.doubtful.wrapping_add(1);
        !history.doubtful.is_multiple_of(PROBE)
    }

    /// A hint of `route` for `key`, due by `position` accesses, was withheld: true if it is not
    /// waited for already.
    pub(crate) fn note_withheld(&mut self, route: u64, key: Identity, position: u64) -> bool {
        if self.withheld.contains_key(&key) {
            return false;
        }
        self.withheld.insert(key, (route, position));
        if self.queue.len() >= WITHHELD
            && let Some((oldest, _)) = self.queue.pop_front()
        {
            self.withheld.remove(&oldest);
        }
        self.queue.push_back((key, position));
        true
    }

    /// The target waits for `key`.
    pub(crate) fn note_demand(&mut self, key: Identity) {
        if let Some((route, _)) = self.withheld.remove(&key) {
            self.judge(route, true);
        }
    }

    /// The target has made so many accesses: what should have been used by then was wrong.
    pub(crate) fn note_accesses(&mut self, accesses: u64) {
        while let Some(&(key, position)) = self.queue.front()
            && position < accesses
        {
            self.queue.pop_front();
            if let Some(&(route, due)) = self.withheld.get(&key)
                && due == position
            {
                self.withheld.remove(&key);
                self.judge(route, false);
            }
        }
    }

    /// A hint that came by `route` has proved right or wrong.
    pub(crate) fn judge(&mut self, route: u64, right: bool) {
        if route == 0 {
            return;
        }
        if self.routes.len() >= ROUTES && !self.routes.contains_key(&route) {
            self.routes.clear();
        }
        self.routes.entry(route).or_default().note(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: u64 = 7;

    fn key(n: u64) -> Identity {
        Identity::from_raw(n + 1)
    }

    /// So many of `of` hints are withheld.
    fn withheld(filter: &mut Filter, route: u64, depth: usize, of: u64) -> usize {
        (0..of).filter(|_| filter.withholds(route, || depth)).count()
    }

    #[test]
    fn a_route_that_is_wrong_is_withheld_and_no_other() {
        let mut filter = Filter::default();
        (1..EVIDENCE).for_each(|_| filter.judge(ROUTE, false));
        assert_eq!(withheld(&mut filter, ROUTE, 1, 100), 0, "too little is known");
        filter.judge(ROUTE, false);
        assert_eq!(withheld(&mut filter, ROUTE, 1, 160), 150, "one in 16 goes on");
        assert_eq!(withheld(&mut filter, ROUTE + 1, 1, 100), 0);
        assert_eq!(withheld(&mut filter, 0, 1, 100), 0);
    }

    #[test]
    fn the_wider_the_device_the_less_is_withheld() {
        let mut filter = Filter::default();
        (0..60).for_each(|n| filter.judge(ROUTE, n % 5 == 0));
        assert!(withheld(&mut filter, ROUTE, 1, 16) > 0);
        assert_eq!(withheld(&mut filter, ROUTE, 4, 16), 0, "one in five is right");
        (0..1000).for_each(|_| filter.judge(ROUTE, false));
        assert!(withheld(&mut filter, ROUTE, 1000, 16) > 0, "nothing is right");
    }

    #[test]
    fn a_route_recovers_by_what_the_target_waits_for() {
        let mut filter = Filter::default();
        (0..WINDOW).for_each(|_| filter.judge(ROUTE, false));
        assert!(withheld(&mut filter, ROUTE, 2, 16) > 0);
        for n in 0..u64::from(WINDOW) {
            assert!(filter.note_withheld(ROUTE, key(n), n));
            assert!(!filter.note_withheld(ROUTE, key(n), n), "it is waited for");
            filter.note_demand(key(n));
            filter.note_demand(key(n));
        }
        assert_eq!(withheld(&mut filter, ROUTE, 2, 16), 0);
        for n in 0..u64::from(WINDOW) {
            filter.note_withheld(ROUTE, key(n), 1000 + n);
        }
        filter.note_accesses(1000);
        assert_eq!(withheld(&mut filter, ROUTE, 2, 16), 0, "not due yet");
        filter.note_accesses(2000);
        assert!(withheld(&mut filter, ROUTE, 2, 16) > 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = Filter::default();
        for n in 0..3 * WITHHELD as u64 {
            filter.judge(n, false);
            filter.note_withheld(n, key(n), n);
        }
        assert!(filter.routes.len() <= ROUTES);
        assert!(filter.withheld.len() <= WITHHELD && filter.queue.len() <= WITHHELD);
    }
}
