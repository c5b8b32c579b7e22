//! Merges a later run into the record of earlier ones.
//!
//! The later run's accesses come first, in its order. Accesses that only the record has keep their
//! place among them. A run does not report accesses that it found in memory before it first waited,
//! nor do processes that never wait report any. So an access that is not reported may still have
//! been made. It counts as *unused* only where the run has reported most of the accesses around it.
//! After [`UNUSED_RUNS_MAX`] runs in a row without it, it is dropped. If that was wrong, a run
//! waits for it once, reports it, and so restores it.
//!
//! Invariant: every access of the result was in the record or in the later run.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Access, AccessKind, Attributes, PATH_BYTES_MAX, PATHS_MAX, RecordedPath, Run};

/// Number of runs in a row without an access after which it is dropped.
pub const UNUSED_RUNS_MAX: u8 = 3;
/// Number of accesses before and after one that decide whether the later run has reported that
/// part.
const NEIGHBOURS: usize = 8;

/// Accesses of the later run, by path and kind.
struct LaterAccesses<'a> {
    plain: HashMap<(&'a [u8], AccessKind), u32>,
    /// Ranges by path, then by first byte: the byte after the last, and the access's number.
    data: HashMap<&'a [u8], BTreeMap<u64, (u64, u32)>>,
}

impl<'a> LaterAccesses<'a> {
    fn by(run: &'a Run) -> Self {
        let mut made = LaterAccesses { plain: HashMap::new(), data: HashMap::new() };
        for (access, number) in run.accesses.iter().zip(0u32..) {
            let path = &run.path_of(access).path[..];
            match access.kind.range() {
                Some((offset, length)) => {
                    let ranges = made.data.entry(path).or_default();
                    ranges.insert(offset, (offset + length, number));
                }
                None => _ = made.plain.insert((path, access.kind), number),
            }
        }
        made
    }

    /// Returns the number of the first access of those that cover all of `what`.
    fn find(&self, path: &[u8], what: AccessKind) -> Option<u32> {
        let Some((offset, length)) = what.range() else {
            return self.plain.get(&(path, what)).copied();
        };
        let ranges = self.data.get(path)?;
        let (_, &(mut end, first)) = ranges.range(..=offset).next_back()?;
        if end <= offset {
            return None;
        }
        // Adjacent ranges may be split at other offsets.
        let rest = ranges.range(offset + 1..offset + length);
        for (&start, &(its_end, _)) in rest {
            if start > end {
                break;
            }
            end = end.max(its_end);
        }
        (end >= offset + length).then_some(first)
    }
}

/// Returns `known`, updated by a `later` run. A run that is not `whole` (it was killed) is no
/// evidence that an access is unused.
pub fn merge(known: &Run, later: &Run, whole: bool) -> Run {
    let made = LaterAccesses::by(later);
    let found: Vec<Option<u32>> =
        known.accesses.iter().map(|a| made.find(&known.path_of(a).path, a.kind)).collect();
    let told = reported_around(&found);
    let unused: HashMap<u32, u8> = known.unused.iter().copied().collect();

    // For each kept access: the number of the later run's access that it follows, itself, and the
    // number of runs without it.
    let (mut kept, mut behind) = (Vec::new(), 0);
    for (number, place) in found.iter().enumerate() {
        if let Some(place) = place {
            behind = behind.max(place + 1);
            continue;
        }
        let before = unused.get(&(number as u32)).copied().unwrap_or(0);
        let runs = before.saturating_add(u8::from(whole && told[number]));
        if runs < UNUSED_RUNS_MAX {
            kept.push((behind, known.accesses[number], runs));
        }
    }
    assemble(known, later, &kept)
}

/// Returns a flag for each access: true if the later run reported most of the accesses around it.
fn reported_around(found: &[Option<u32>]) -> Vec<bool> {
    let mut sums = vec![0usize];
    sums.extend(found.iter().scan(0, |sum, found| {
        *sum += usize::from(found.is_some());
        Some(*sum)
    }));
    let around = |number: usize| {
        let (first, end) =
            (number.saturating_sub(NEIGHBOURS), (number + NEIGHBOURS + 1).min(found.len()));
        (sums[end] - sums[first]) * 2 >= end - first
    };
    (0..found.len()).map(around).collect()
}

fn assemble(known: &Run, later: &Run, kept: &[(u32, Access, u8)]) -> Run {
    let mut new = Builder::new(later);
    let mut kept = kept.iter().peekable();
    let mut programs = later.programs.iter().peekable();
    for number in 0..=later.accesses.len() as u32 {
        while let Some((_, access, runs)) = kept.next_if(|(behind, ..)| *behind <= number) {
            new.push(known.path_of(access), access.kind, *runs);
        }
        while programs.next_if(|&&before| before <= number).is_some() {
            new.run.programs.push(new.run.accesses.len() as u32);
        }
        if let Some(access) = later.accesses.get(number as usize) {
            new.push(later.path_of(access), access.kind, 0);
        }
    }
    new.run
}

struct Builder<'a> {
    run: Run,
    numbers: HashMap<Vec<u8>, u32>,
    /// Attributes of paths, as the later run found them.
    attributes: HashMap<&'a [u8], Option<Attributes>>,
    path_bytes: usize,
}

impl<'a> Builder<'a> {
    fn new(later: &'a Run) -> Self {
        let run = Run { command: later.command, origin: later.origin.clone(), ..Run::default() };
        let attributes = later.paths.iter().map(|p| (&p.path[..], p.attributes)).collect();
        Builder { run, numbers: HashMap::new(), attributes, path_bytes: 0 }
    }

    /// Adds an access, unless the run is full.
    fn push(&mut self, place: &RecordedPath, what: AccessKind, unused: u8) {
        let number = match self.numbers.get(&place.path) {
            Some(&number) => number,
            None => {
                let bytes = self.path_bytes + place.path.len();
                if self.run.paths.len() >= PATHS_MAX || bytes > PATH_BYTES_MAX {
                    return;
                }
                self.path_bytes = bytes;
                let newest = self.attributes.get(&place.path[..]).copied();
                let attributes = newest.unwrap_or(place.attributes);
                let number = self.run.paths.len() as u32;
                self.run.paths.push(RecordedPath { attributes, ..place.clone() });
                self.numbers.insert(place.path.clone(), number);
                number
            }
        };
        if self.run.accesses.len() >= crate::ACCESSES_MAX {
            return;
        }
        if unused > 0 {
            self.run.unused.push((self.run.accesses.len() as u32, unused));
        }
        self.run.accesses.push(Access { path: number, kind: what });
    }
}

/// True if writing `merged` in place of `known` gains nothing: all but one access in
/// [`DIFFERENT_SHARE`] are equal, and so is the count of unused ones.
pub fn is_nearly_equal(known: &Run, merged: &Run) -> bool {
    let all = |run: &Run| -> HashSet<(Vec<u8>, AccessKind)> {
        run.accesses.iter().map(|a| (run.path_of(a).path.clone(), a.kind)).collect()
    };
    let (ours, theirs) = (all(known), all(merged));
    let common = ours.intersection(&theirs).count();
    let attributes = |run: &Run| -> HashMap<Vec<u8>, Option<Attributes>> {
        run.paths.iter().map(|p| (p.path.clone(), p.attributes)).collect()
    };
    let (before, after) = (attributes(known), attributes(merged));
    let changed = after.iter().filter(|(path, a)| before.get(*path).is_some_and(|b| b != *a));
    let count = |run: &Run| run.unused.iter().map(|&(_, runs)| usize::from(runs)).sum::<usize>();
    let aged = count(known).abs_diff(count(merged));
    let different = ours.len().max(theirs.len()) - common + changed.count() + aged;
    different * DIFFERENT_SHARE <= ours.len().max(theirs.len())
}

/// Divisor for [`is_nearly_equal`]: one access in this many may differ.
pub const DIFFERENT_SHARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: AccessKind = AccessKind::Data { offset: 0, length: 1 << 14 };

    /// Makes a run that looks up and reads each name.
    fn run(names: impl IntoIterator<Item = u32>) -> Run {
        let mut run = Run::default();
        for (name, place) in names.into_iter().zip(0..) {
            let attributes = Some(Attributes { size: 1 << 14, mtime: 1, inode: name.into() });
            run.paths.push(RecordedPath { path: format!("/{name}").into(), key: 0, attributes });
            for what in [AccessKind::Lookup, DATA] {
                run.accesses.push(Access { path: place, kind: what });
            }
        }
        run
    }

    fn names(run: &Run) -> Vec<String> {
        let looks = run.accesses.iter().filter(|a| a.kind == AccessKind::Lookup);
        looks.map(|a| String::from_utf8_lossy(&run.path_of(a).path[1..]).into_owned()).collect()
    }

    #[test]
    fn accesses_only_in_the_record_keep_their_place() {
        let merged = merge(&run(0..6), &run([1, 4, 9]), true);
        assert_eq!(names(&merged), ["0", "1", "2", "3", "4", "5", "9"]);
        assert_eq!(merged.paths.len(), 7);
    }

    #[test]
    fn unused_accesses_are_dropped_and_can_return() {
        let (all, most) = (run(0..40), run((0..40).filter(|n| n % 8 != 3)));
        let mut known = all.clone();
        for left in [40, 40, 35] {
            known = merge(&known, &most, true);
            assert_eq!(names(&known).len(), left);
        }
        assert_eq!(merge(&known, &most, true), merge(&most, &most, true));
        assert_eq!(names(&merge(&known, &all, true)), names(&all));
        let twice = merge(&merge(&all, &most, true), &most, true);
        assert!(!twice.unused.is_empty());
        assert!(merge(&twice, &all, true).unused.is_empty(), "it was used after all");
    }

    #[test]
    fn unreported_parts_do_not_count_as_unused() {
        let (all, half) = (run(0..100), run(0..40));
        let mut known = all.clone();
        (0..10).for_each(|_| known = merge(&known, &half, true));
        assert!(names(&known).len() >= 90, "{}", names(&known).len());
        let most = run((0..40).filter(|n| n % 8 != 3));
        let mut known = all.clone();
        (0..10).for_each(|_| known = merge(&known, &most, false));
        assert_eq!(names(&known), names(&all), "they were killed");
    }

    #[test]
    fn data_ranges_match_however_they_are_split() {
        let data = |offset, length| Access { path: 0, kind: AccessKind::Data { offset, length } };
        let of = |accesses: &[Access]| Run { accesses: accesses.to_vec(), ..run([7]) };
        let whole = of(&[data(0, 300)]);
        let pieces = of(&[data(100, 100), data(0, 100), data(200, 100)]);
        assert_eq!(merge(&whole, &pieces, true).accesses, pieces.accesses);
        assert_eq!(merge(&pieces, &whole, true).accesses, whole.accesses);
        let gap = of(&[data(0, 100), data(150, 150)]);
        assert_eq!(merge(&whole, &gap, true).accesses.len(), 3, "not all of it was read");
    }

    #[test]
    fn latest_attributes_of_a_file_win() {
        let (known, mut later) = (run(0..3), run([0, 2]));
        later.paths[0].attributes = Some(Attributes { size: 5, mtime: 9, inode: 1 });
        later.paths[1].attributes = None;
        let merged = merge(&known, &later, true);
        let of = |name: &[u8]| merged.paths.iter().find(|p| p.path == name).expect("kept");
        assert_eq!(of(b"/0").attributes, later.paths[0].attributes);
        assert_eq!((of(b"/1").attributes, of(b"/2").attributes), (known.paths[1].attributes, None));
        assert!(!is_nearly_equal(&known, &merged));
        assert!(is_nearly_equal(&run(0..300), &merge(&run(0..300), &run(0..300), true)));
    }

    #[test]
    fn programs_stay_between_the_same_accesses() {
        let mut later = run([1, 3]);
        later.programs = vec![0, 2, 4];
        let merged = merge(&run(0..4), &later, true);
        assert_eq!(names(&merged), ["0", "1", "2", "3"]);
        assert_eq!(merged.programs, [2, 6, 8]);
    }
}
