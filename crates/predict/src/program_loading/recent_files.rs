//! Files that were brought into memory a short while ago.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::hint_order::EntryId;

/// Time for which an expanded program is taken to be in memory.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// Files that are remembered.
const REMEMBERED: usize = 4096;

struct Mark {
    since: Duration,
    /// The expansion that is at it.
    by: Option<EntryId>,
}

/// A table of paths, of which the oldest fall out. As all have the same time to live, the order in
/// which they came is that in which they go.
#[derive(Default)]
pub struct RecentFiles {
    marks: HashMap<Arc<[u8]>, Mark>,
    /// Paths with the time of their marks. A mark with another time has been renewed.
    order: VecDeque<(Arc<[u8]>, Duration)>,
}

impl RecentFiles {
    /// If `path` is fresh, the expansion that is at it, if there still is one.
    pub fn get(&self, path: &[u8], now: Duration) -> Option<Option<EntryId>> {
        let mark = self.marks.get(path)?;
        let fresh = mark.by.is_some() || now.saturating_sub(mark.since) < FRESH;
        fresh.then_some(mark.by)
    }

    /// `path` is fresh from now on.
    pub fn put(&mut self, path: Arc<[u8]>, now: Duration, by: Option<EntryId>) {
        self.order.push_back((path.clone(), now));
        self.marks.insert(path, Mark { since: now, by });
        while self.order.len() > REMEMBERED {
            let Some((path, since)) = self.order.pop_front() else { break };
            if self.marks.get(&path).is_some_and(|mark| mark.since == since) {
                self.marks.remove(&path);
            }
        }
    }

    /// `path` is not fresh any more.
    pub fn remove(&mut self, path: &[u8]) {
        self.marks.remove(path);
    }

    /// Expansion `id` is over.
    pub fn forget_id(&mut self, path: &[u8], id: EntryId) {
        if let Some(mark) = self.marks.get_mut(path)
            && mark.by == Some(id)
        {
            mark.by = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_brought_in_is_fresh_for_a_while() {
        let mut fresh = RecentFiles::default();
        let path: Arc<[u8]> = b"/bin/sh"[..].into();
        assert_eq!(fresh.get(&path, FRESH), None);
        fresh.put(path.clone(), FRESH, Some(7));
        assert_eq!(fresh.get(&path, 9 * FRESH), Some(Some(7)), "it is being brought in");
        fresh.forget_id(&path, 8);
        assert_eq!(fresh.get(&path, FRESH), Some(Some(7)), "that was another");
        fresh.forget_id(&path, 7);
        assert_eq!(fresh.get(&path, FRESH * 3 / 2), Some(None));
        assert_eq!(fresh.get(&path, 2 * FRESH), None);
        fresh.put(path.clone(), 3 * FRESH, None);
        fresh.remove(&path);
        assert_eq!(fresh.get(&path, 3 * FRESH), None);
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let mut fresh = RecentFiles::default();
        let path = |n: usize| -> Arc<[u8]> { n.to_le_bytes()[..].into() };
        for n in 0..2 * REMEMBERED {
            fresh.put(path(n), Duration::from_nanos(n as u64), None);
            // Marked again and again, it stays.
            fresh.put(path(0), Duration::from_nanos(n as u64), None);
        }
        assert!(fresh.marks.len() <= REMEMBERED && fresh.order.len() <= REMEMBERED);
        assert!(fresh.get(&path(0), Duration::ZERO).is_some());
        assert!(fresh.get(&path(1), Duration::ZERO).is_none());
    }
}
