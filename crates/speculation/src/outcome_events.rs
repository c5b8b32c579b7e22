//! Log of the speculations of a session and their outcomes, in order (Wester 2011, section 5.2).
//!
//! It is a ring. A reader keeps a position and sees each event once; a slow reader misses
//! overwritten ones.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::Id;

const EVENTS: usize = 1024;

/// An event in the life of a speculation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Event {
    /// A process continues on a prediction.
    Begun,
    /// The prediction was right.
    Committed,
    /// The prediction was wrong.
    Failed,
}

/// Ring of events. All-zero is valid and empty.
#[repr(C)]
pub struct Events {
    end: AtomicU64,
    /// Each entry's position plus one, and its event. A writer zeroes the former, writes the
    /// latter, then writes the former.
    entries: [[AtomicU64; 2]; EVENTS],
}

impl Events {
    /// Appends an event.
    pub fn record(&self, id: Id, event: Event) {
        let position = self.end.fetch_add(1, SeqCst);
        let [number, word] = &self.entries[position as usize % EVENTS];
        number.store(0, SeqCst);
        word.store(id.0 << 2 | event as u64, SeqCst);
        number.store(position + 1, SeqCst);
    }

    /// Returns the position of the next event.
    pub fn end(&self) -> u64 {
        self.end.load(SeqCst)
    }

    /// Returns the first event at or after `position` that is not overwritten, and the position
    /// after it.
    pub fn next(&self, position: u64) -> Option<(Id, Event, u64)> {
        let end = self.end();
        let first = position.max(end.saturating_sub(EVENTS as u64));
        (first..end).find_map(|position| {
            let [number, word] = &self.entries[position as usize % EVENTS];
            let before = number.load(SeqCst);
            let what = word.load(SeqCst);
            if before != position + 1 || number.load(SeqCst) != before {
                return None;
            }
            let events = [Event::Begun, Event::Committed, Event::Failed];
            let event = events.into_iter().find(|event| *event as u64 == what & 3)?;
            Some((Id(what >> 2), event, position + 1))
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn each_event_is_seen_once_unless_overwritten() {
        // SAFETY: all-zero is valid.
        let events: Box<Events> = unsafe { Box::new_zeroed().assume_init() };
        assert_eq!(events.next(0), None);
        events.record(Id(7), Event::Begun);
        events.record(Id(7), Event::Failed);
        assert_eq!(events.next(0), Some((Id(7), Event::Begun, 1)));
        assert_eq!(events.next(1), Some((Id(7), Event::Failed, 2)));
        assert_eq!(events.next(2), None);
        (0..2000).for_each(|n| events.record(Id(n), Event::Committed));
        let mut position = 2;
        let mut seen = Vec::new();
        while let Some((id, event, next)) = events.next(position) {
            assert_eq!(event, Event::Committed);
            seen.push(id.0);
            position = next;
        }
        assert_eq!((position, seen), (events.end(), (2000 - EVENTS as u64..2000).collect()));
    }
}
