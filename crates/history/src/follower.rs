//! Follows a later run through a recorded one: its position, and whether it is the same run at all.
//!
//! The accesses of the later run arrive in order. The position is the median of the latest accesses
//! that were found in the record. So processes that run side by side may come in another order each
//! time, and one early access moves nothing. When more than half of the latest accesses are not in
//! the record, the run is a different one, for good. A record begins where the recorded run first
//! waited, which may be after its beginning. So accesses before the first [`FOUND`] matches are
//! judged only if these matches take too long. Ranges that were used of mappings are never matched:
//! a record that consists mostly of these is not judged by its few other accesses.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{AccessKind, Run};

/// Number of latest accesses that are judged.
pub const JUDGED_MAX: u32 = 64;
/// Fewest accesses that are judged.
pub const JUDGED_MIN: u32 = 32;
/// Matches before accesses are judged, and the number of accesses after which they are judged
/// without.
const FOUND: (u64, u64) = (32, 128);
/// Divisor: a run is judged only if it reports more than one in this many of the record's accesses.
const SILENT_SHARE: usize = 4;
/// Number of accesses whose median is the position.
const RECENT: usize = 16;
/// Most ranges that begin before another one and may reach into it.
const OVERLAPPING: usize = 8;

/// Match of an access in the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    /// The access is this one of the record.
    At(usize),
    /// The record has other accesses to the same path.
    Near,
    /// The record has no such path or range.
    Nowhere,
}

/// Position of the current run in a recorded one.
pub struct Follower {
    run: Arc<Run>,
    numbers: HashMap<Vec<u8>, u32>,
    uses: Vec<PathUses>,
    passed: Vec<bool>,
    sent: Vec<bool>,
    recent: [u32; RECENT],
    matched: u64,
    place: usize,
    /// Bits of the latest accesses, the newest lowest: set if the access was not in the record.
    not_in_record: u64,
    /// Number of these bits that count.
    judged: u32,
    /// True if a run reports too few of the record's accesses to be judged by them.
    is_silent: bool,
    reported: u64,
    used: u64,
    given_up: Option<u64>,
    programs: usize,
}

/// Use of one path in the recorded run.
#[derive(Default)]
struct PathUses {
    /// Accesses to other than data.
    plain: Vec<u32>,
    /// Ranges: first byte, the byte after the last, and number of the access.
    data: Vec<(u64, u64, u32)>,
    /// True if the path is another file now.
    changed: bool,
}

impl Follower {
    /// Starts at the beginning of `run`.
    pub fn new(run: Arc<Run>) -> Self {
        let paths = run.paths.iter().zip(0..);
        let numbers = paths.map(|(place, number)| (place.path.clone(), number)).collect();
        let mut uses: Vec<PathUses> = run.paths.iter().map(|_| PathUses::default()).collect();
        for (access, number) in run.accesses.iter().zip(0u32..) {
            let uses = &mut uses[access.path as usize];
            match access.kind.range() {
                Some((offset, length)) => uses.data.push((offset, offset + length, number)),
                None => uses.plain.push(number),
            }
        }
        uses.iter_mut().for_each(|uses| uses.data.sort_unstable());
        let all = run.accesses.len();
        let tellable = run.accesses.iter().filter(|access| access.kind.is_reported()).count();
        Follower {
            is_silent: (tellable as u64) < FOUND.0 && tellable < all
                || tellable * SILENT_SHARE < all,
            run,
            numbers,
            uses,
            passed: vec![false; all],
            sent: vec![false; all],
            recent: [0; RECENT],
            matched: 0,
            place: 0,
            not_in_record: 0,
            judged: 0,
            reported: 0,
            used: 0,
            given_up: None,
            programs: 0,
        }
    }

    /// Matches an access of the later run.
    pub fn observe(&mut self, path: &[u8], what: AccessKind) -> Match {
        let seen = self.find(path, what);
        self.reported += 1;
        self.not_in_record = (self.not_in_record << 1) | u64::from(seen == Match::Nowhere);
        self.judged = JUDGED_MAX.min(self.judged + 1);
        if let Match::At(number) = seen {
            let before = self.matched;
            self.pass(number);
            if before < FOUND.0 && self.matched >= FOUND.0 {
                // Accesses before the record's beginning are no evidence.
                (self.not_in_record, self.judged) = (0, 0);
            }
        }
        if self.matched < FOUND.0 && self.reported < FOUND.1 || self.is_silent {
            return seen;
        }
        let is_other =
            self.judged >= JUDGED_MIN && self.not_in_record.count_ones() * 2 > self.judged;
        if is_other && self.given_up.is_none() {
            self.given_up = Some(self.reported);
        }
        seen
    }

    /// Counts a program that the later run started. Short programs report nothing, so the position
    /// is at least where the recorded run was when it had started as many.
    pub fn program_started(&mut self) {
        if let Some(&before) = self.run.programs.get(self.programs) {
            self.place = self.place.max(before as usize);
        }
        self.programs += 1;
    }

    fn find(&self, path: &[u8], what: AccessKind) -> Match {
        let Some(&place) = self.numbers.get(path) else { return Match::Nowhere };
        let uses = &self.uses[place as usize];
        let found = match what.range() {
            Some((offset, length)) => {
                let behind = uses.data.partition_point(|&(start, ..)| start < offset + length);
                let before = uses.data[..behind].iter().rev().take(OVERLAPPING);
                let mut all = before.filter(|&&(_, end, _)| end > offset);
                match all.next() {
                    Some(&(.., number)) => Some(number),
                    None if uses.changed => None,
                    None => return Match::Nowhere,
                }
            }
            None => {
                let is_it = |&&number: &&u32| self.run.accesses[number as usize].kind == what;
                uses.plain.iter().find(is_it).copied()
            }
        };
        found.map_or(Match::Near, |number| Match::At(number as usize))
    }

    fn pass(&mut self, number: usize) {
        if std::mem::replace(&mut self.passed[number], true) {
            return;
        }
        self.used += u64::from(self.sent[number]);
        self.recent[(self.matched % RECENT as u64) as usize] = number as u32;
        self.matched += 1;
        let known = self.matched.min(RECENT as u64) as usize;
        let mut sorted = self.recent;
        sorted[..known].sort_unstable();
        self.place = self.place.max(sorted[known / 2] as usize);
    }

    /// Marks the file of a path as changed: its data may be read in another way.
    pub fn has_changed(&mut self, place: u32) {
        self.uses[place as usize].changed = true;
    }

    /// An access has been asked for.
    pub fn has_sent(&mut self, number: usize) {
        self.sent[number] = true;
    }

    /// It has, and the later run did not come there yet.
    pub fn is_pending(&self, number: usize) -> bool {
        self.sent[number] && !self.passed[number]
    }

    /// The later run was there.
    pub fn is_passed(&self, number: usize) -> bool {
        self.passed[number]
    }

    /// Index of the access that the later run is near.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Accesses of it that were in the record.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Accesses that were asked for before the later run made them.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The later run is another one, as was found after so many of its accesses.
    pub fn given_up(&self) -> Option<u64> {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, RecordedPath};

    fn data(offset: u64, length: u64) -> AccessKind {
        AccessKind::Data { offset, length }
    }

    /// Makes a run that looks up each of `files` and reads it in blocks.
    fn run(files: u32, blocks: u64) -> Arc<Run> {
        let mut run = Run::default();
        for place in 0..files {
            let path = format!("/{place}").into();
            run.paths.push(RecordedPath { path, key: place.into(), attributes: None });
            run.accesses.push(Access { path: place, kind: AccessKind::Lookup });
            let all = (0..blocks).map(|n| data(n << 14, 1 << 14));
            run.accesses.extend(all.map(|what| Access { path: place, kind: what }));
        }
        Arc::new(run)
    }

    fn follow(follower: &mut Follower, run: &Run, accesses: impl IntoIterator<Item = usize>) {
        for number in accesses {
            let access = &run.accesses[number];
            let seen = follower.observe(&run.path_of(access).path, access.kind);
            assert_eq!(seen, Match::At(number));
        }
    }

    #[test]
    fn the_same_run_is_followed_closely_to_its_end() {
        let run = run(50, 7);
        let mut follower = Follower::new(run.clone());
        for number in 0..run.accesses.len() {
            follower.has_sent(number);
            assert!(follower.is_pending(number));
            follow(&mut follower, &run, [number]);
            assert!((number.saturating_sub(RECENT)..=number).contains(&follower.place()));
        }
        assert_eq!((follower.given_up(), follower.used()), (None, run.accesses.len() as u64));
    }

    #[test]
    fn one_early_access_does_not_move_the_position_but_many_do() {
        let run = run(100, 0);
        let mut follower = Follower::new(run.clone());
        follow(&mut follower, &run, (0..20).chain([99]));
        assert!(follower.place() < 20);
        follow(&mut follower, &run, 60..60 + RECENT);
        assert!(follower.place() >= 60);
        let before = follower.place();
        follow(&mut follower, &run, 20..40);
        assert_eq!(follower.place(), before, "it does not go back");
    }

    #[test]
    fn started_programs_advance_the_position() {
        let mut run = Run::clone(&run(100, 0));
        run.programs = vec![0, 30, 30, 90];
        let mut follower = Follower::new(Arc::new(run));
        for place in [0, 30, 30, 90, 90] {
            follower.program_started();
            assert_eq!(follower.place(), place);
        }
    }

    /// Processes side by side make their accesses in any order.
    #[test]
    fn reordered_accesses_are_the_same_run() {
        let run = run(100, 3);
        let mut follower = Follower::new(run.clone());
        let order = (0..400).map(|n| (n / 8) * 8 + (n * 5) % 8);
        follow(&mut follower, &run, order);
        assert_eq!((follower.given_up(), follower.matched()), (None, 400));
        assert!(follower.place() > 370);
    }

    #[test]
    fn different_run_is_given_up_soon_and_for_good() {
        let run = run(100, 3);
        let mut follower = Follower::new(run.clone());
        follow(&mut follower, &run, 0..100);
        for n in 0..200u64 {
            assert_eq!(
                follower.observe(format!("/other/{n}").as_bytes(), AccessKind::Lookup),
                Match::Nowhere
            );
            assert_eq!(follower.given_up().is_some(), n >= u64::from(JUDGED_MAX) / 2, "{n}");
        }
        follow(&mut follower, &run, 100..300);
        assert_eq!(follower.given_up(), Some(100 + u64::from(JUDGED_MAX) / 2 + 1));
    }

    #[test]
    fn few_accesses_are_no_evidence() {
        let run = run(30, 1);
        let other = |follower: &mut Follower, count: u64| {
            (0..count).for_each(|n| {
                _ = follower.observe(format!("/other/{n}").as_bytes(), AccessKind::Lookup)
            });
            follower.given_up()
        };
        let mut follower = Follower::new(run.clone());
        // A record that began later.
        assert_eq!(other(&mut follower, FOUND.1 - FOUND.0), None);
        follow(&mut follower, &run, 0..FOUND.0 as usize);
        assert_eq!(other(&mut follower, u64::from(JUDGED_MIN) / 2), None);
        assert!(other(&mut follower, u64::from(JUDGED_MIN)).is_some());
        // Nothing of it comes.
        let mut follower = Follower::new(run);
        assert_eq!(other(&mut follower, FOUND.1 - 1), None);
        assert_eq!(other(&mut follower, 1), Some(FOUND.1));
    }

    /// A program that waits only for mapped data is one of those.
    #[test]
    fn runs_are_not_judged_by_touched_ranges() {
        let with_plain = |plain: u64| {
            let mut run = Run::clone(&run(1, plain));
            let touched =
                (0..500).map(|n| AccessKind::Touched { offset: n << 20, length: 1 << 14 });
            run.accesses.extend(touched.map(|what| Access { path: 0, kind: what }));
            let mut follower = Follower::new(Arc::new(run));
            for n in 0..4 * FOUND.1 {
                follower.observe(format!("/other/{n}").as_bytes(), AccessKind::Lookup);
            }
            follower.given_up()
        };
        assert_eq!(with_plain(8), None);
        assert_eq!(with_plain(200), Some(FOUND.1));
    }

    #[test]
    fn data_is_found_by_its_offset() {
        let mut run = Run::clone(&run(1, 2));
        let far = data(1 << 30, 1 << 20);
        run.accesses.push(Access { path: 0, kind: far });
        let mut follower = Follower::new(Arc::new(run));
        let mut saw = |what| follower.observe(b"/0", what);
        assert_eq!(saw(data(100, 1)), Match::At(1));
        assert_eq!(saw(data(0, 1 << 20)), Match::At(2), "the last that it reaches");
        assert_eq!(saw(data((1 << 30) + 5, 9)), Match::At(3));
        assert_eq!(saw(data(1 << 25, 9)), Match::Nowhere);
        assert_eq!(saw(AccessKind::List), Match::Near);
        follower.has_changed(0);
        assert_eq!(follower.observe(b"/0", data(1 << 25, 9)), Match::Near, "it is another file");
    }
}
