//! Collects the accesses of a run, each once, in the order in which they were made first.
//!
//! Reports may repeat an access. Bytes of a file that were seen before are left out, and a read
//! that directly follows the previous one of the same file extends it. A mapping is recorded as the
//! ranges that were used of it if these were reported, and otherwise as a whole. Accesses beyond
//! the bounds of a [`Run`] are counted and left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    ACCESSES_MAX, Access, AccessKind, Attributes, CommandKey, PATH_BYTES_MAX, PATHS_MAX,
    PROGRAMS_MAX, RecordedPath, Run,
};

/// Most bytes of an access that adjacent reads become: longer ones would make a run's position in
/// it imprecise.
const MERGED_MAX: u64 = 1 << 20;

/// State of a path, as the session that records a run finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PathState {
    /// The file existed before the run with these attributes, and is unchanged.
    Same(Attributes),
    /// The run or another process has written the file, so it no longer holds the data that was
    /// read.
    Written,
    /// There is no such file.
    Absent,
    /// The file lies where no read waits for storage.
    Unstored,
    /// The path was not examined.
    Unknown,
}

/// Accesses of a run so far.
#[derive(Default)]
pub struct Recorder {
    places: Vec<RecordedPath>,
    numbers: HashMap<Vec<u8>, u32>,
    path_bytes: usize,
    accesses: Vec<Access>,
    done: HashSet<(u32, AccessKind)>,
    data: HashMap<u32, ReadRanges>,
    /// Ranges that were mapped, by path.
    mappings: HashMap<u32, ReadRanges>,
    /// Accesses that stand for mappings.
    mapped: HashSet<usize>,
    /// Ranges of mappings that were used, by path.
    touched: BTreeMap<u32, ReadRanges>,
    touched_ranges: usize,
    /// Files of whose mappings the used ranges are known.
    resolved: HashSet<u32>,
    left_out: u64,
    programs: Vec<u32>,
}

/// Ranges of one file that were read.
#[derive(Default)]
struct ReadRanges {
    /// Disjoint ranges: first byte and the one behind the last.
    read: BTreeMap<u64, u64>,
    /// The access that was added last.
    last: Option<usize>,
}

impl ReadRanges {
    /// Adds a range. Returns false if it was covered already.
    fn add(&mut self, start: u64, end: u64) -> bool {
        let before = self.read.range(..=start).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, e)| e >= end) {
            return false;
        }
        let (mut start, mut end) = (start, end);
        if let Some((s, e)) = before.filter(|&(_, e)| e >= start) {
            (start, end) = (s, end.max(e));
        }
        let joined: Vec<u64> = self.read.range(start..=end).map(|(&s, _)| s).collect();
        for s in joined {
            end = end.max(self.read.remove(&s).unwrap_or(end));
        }
        self.read.insert(start, end);
        true
    }

    /// Ranges of the file, as accesses of at most [`MERGED_MAX`] bytes.
    fn pieces(&self) -> impl Iterator<Item = AccessKind> + '_ {
        self.read.iter().flat_map(|(&start, &end)| {
            let starts = (start..end).step_by(MERGED_MAX as usize);
            starts.map(move |offset| AccessKind::Touched {
                offset,
                length: MERGED_MAX.min(end - offset),
            })
        })
    }
}

impl Recorder {
    /// Number of accesses so far.
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// True if there is no access so far.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Number of accesses that exceeded the bounds.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The path of this number. Paths are numbered from 0, in the order in which they came.
    pub fn path(&self, number: u32) -> Option<&RecordedPath> {
        self.places.get(number as usize)
    }

    /// Adds an access to `path`, which has the identity `key` in the program. Returns the number of
    /// the path, if the access is a new one.
    pub fn add_access(&mut self, path: &[u8], key: u64, what: AccessKind) -> Option<u32> {
        let Some(place) = self.path_number(path, key) else {
            self.left_out += 1;
            return None;
        };
        match what {
            AccessKind::Data { offset, length } => {
                let data = self.data.entry(place).or_default();
                if !data.add(offset, offset + length) {
                    return None;
                }
                let last = data.last.and_then(|last| self.accesses.get_mut(last));
                if let Some(Access {
                    kind: AccessKind::Data { offset: start, length: so_far }, ..
                }) = last
                    && *start + *so_far == offset
                    && *so_far + length <= MERGED_MAX
                {
                    *so_far += length;
                    return Some(place);
                }
            }
            _ if !self.done.insert((place, what)) => return None,
            _ => {}
        }
        if self.accesses.len() >= ACCESSES_MAX {
            self.left_out += 1;
            return None;
        }
        if let AccessKind::Data { .. } = what
            && let Some(data) = self.data.get_mut(&place)
        {
            data.last = Some(self.accesses.len());
        }
        self.accesses.push(Access { path: place, kind: what });
        Some(place)
    }

    /// Adds a range of `path` that was mapped. Returns the number of the path, if the range is new.
    pub fn add_mapping(&mut self, path: &[u8], key: u64, offset: u64, length: u64) -> Option<u32> {
        let Some(place) =
            self.path_number(path, key).filter(|_| self.accesses.len() < ACCESSES_MAX)
        else {
            self.left_out += 1;
            return None;
        };
        if !self.mappings.entry(place).or_default().add(offset, offset + length) {
            return None;
        }
        self.mapped.insert(self.accesses.len());
        self.accesses.push(Access { path: place, kind: AccessKind::Data { offset, length } });
        Some(place)
    }

    /// Adds a range that was used of a mapping of `path`. Returns the number of the path, if the
    /// range is new.
    pub fn add_touched(&mut self, path: &[u8], key: u64, offset: u64, length: u64) -> Option<u32> {
        let Some(place) =
            self.path_number(path, key).filter(|_| self.touched_ranges < ACCESSES_MAX / 2)
        else {
            self.left_out += 1;
            return None;
        };
        self.touched_ranges += 1;
        let is_new = self.touched.entry(place).or_default().add(offset, offset + length);
        is_new.then_some(place)
    }

    /// Adds the start of a program.
    pub fn add_program(&mut self) {
        if self.programs.len() < PROGRAMS_MAX {
            self.programs.push(self.accesses.len() as u32);
        }
    }

    fn path_number(&mut self, path: &[u8], key: u64) -> Option<u32> {
        if let Some(&number) = self.numbers.get(path) {
            return Some(number);
        }
        let bytes = self.path_bytes + path.len();
        if self.places.len() >= PATHS_MAX || bytes > PATH_BYTES_MAX {
            return None;
        }
        self.path_bytes = bytes;
        let number = self.places.len() as u32;
        self.numbers.insert(path.to_owned(), number);
        self.places.push(RecordedPath { path: path.to_owned(), key, attributes: None });
        Some(number)
    }

    /// Returns the run, once it has ended; `look` examines a path.
    pub fn finish(mut self, command: CommandKey, mut look: impl FnMut(&[u8]) -> PathState) -> Run {
        let mut run = Run { command, ..Run::default() };
        let mut kept: Vec<Option<u32>> = Vec::with_capacity(self.places.len());
        let mut found = Vec::with_capacity(self.places.len());
        for mut place in self.places {
            let is = look(&place.path);
            found.push(is);
            if is == PathState::Unstored {
                kept.push(None);
                continue;
            }
            if let PathState::Same(attributes) = is {
                place.attributes = Some(attributes);
            }
            kept.push(Some(run.paths.len() as u32));
            run.paths.push(place);
        }
        let is_mapped = |(number, access): (usize, &Access)| {
            self.mapped.contains(&number).then_some(access.path)
        };
        let mapped: HashSet<u32> = self.accesses.iter().enumerate().filter_map(is_mapped).collect();
        let mut touched = self.touched;
        let put = |run: &mut Run, place: u32, what: AccessKind| {
            let (Some(new), is) = (kept[place as usize], found[place as usize]) else { return };
            let mut what = what;
            if let AccessKind::Data { offset, length } | AccessKind::Touched { offset, length } =
                &mut what
            {
                match is {
                    PathState::Written | PathState::Absent => return,
                    // Used ranges are reported in whole blocks, and mappings may reach beyond the
                    // end of the file.
                    PathState::Same(Attributes { size, .. }) => {
                        *length = size.saturating_sub(*offset).min(*length);
                    }
                    PathState::Unstored | PathState::Unknown => {}
                }
                if *length == 0 {
                    return;
                }
            }
            run.accesses.push(Access { path: new, kind: what });
        };
        // Number of kept accesses before each access.
        let mut before = Vec::with_capacity(self.accesses.len() + 1);
        for (number, Access { path: place, kind: what }) in self.accesses.into_iter().enumerate() {
            before.push(run.accesses.len() as u32);
            let is_mapping = self.mapped.contains(&number);
            let mut used = None;
            if is_mapping || !mapped.contains(&place) {
                used = touched.remove(&place);
            }
            let known = used.is_some() || self.resolved.contains(&place);
            if used.is_some() {
                self.resolved.insert(place);
            }
            // The ranges that were used replace the mapping.
            if !(is_mapping && known) {
                put(&mut run, place, what);
            }
            used.iter().flat_map(ReadRanges::pieces).for_each(|piece| put(&mut run, place, piece));
        }
        for (place, used) in touched {
            used.pieces().for_each(|piece| put(&mut run, place, piece));
        }
        before.push(run.accesses.len() as u32);
        run.programs = self.programs.iter().map(|&at| before[at as usize]).collect();
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(offset: u64, length: u64) -> AccessKind {
        AccessKind::Data { offset, length }
    }

    fn touched(offset: u64, length: u64) -> AccessKind {
        AccessKind::Touched { offset, length }
    }

    fn all_same(_: &[u8]) -> PathState {
        PathState::Same(Attributes { size: 1 << 30, mtime: 1, inode: 2 })
    }

    #[test]
    fn each_access_is_kept_once_and_in_order() {
        let mut recorder = Recorder::default();
        for _ in 0..2 {
            recorder.add_access(b"/a", 1, AccessKind::Lookup);
            recorder.add_access(b"/b", 2, AccessKind::List);
            recorder.add_access(b"/a", 1, AccessKind::LookupNoFollow);
        }
        let run = recorder.finish([7; 16], all_same);
        let shown: Vec<_> =
            run.accesses.iter().map(|a| (&run.path_of(a).path[..], a.kind)).collect();
        let expected: [(&[u8], _); 3] = [
            (b"/a", AccessKind::Lookup),
            (b"/b", AccessKind::List),
            (b"/a", AccessKind::LookupNoFollow),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn adjacent_reads_become_one_up_to_a_bound_and_known_bytes_are_left_out() {
        let mut recorder = Recorder::default();
        for block in 0..100u64 {
            recorder.add_access(b"/a", 1, data(block << 14, 1 << 14));
            recorder.add_access(b"/other", 2, data(block << 20, 1));
        }
        recorder.add_access(b"/a", 1, data(5 << 14, 10 << 14));
        let run = recorder.finish([0; 16], all_same);
        let of_a: Vec<_> = run.accesses.iter().filter(|a| a.path == 0).map(|a| a.kind).collect();
        assert_eq!(of_a, [data(0, 64 << 14), data(64 << 14, 36 << 14)]);
        assert_eq!(run.accesses.len(), 102);
    }

    #[test]
    fn data_of_changed_or_unstored_files_is_not_recorded() {
        let mut recorder = Recorder::default();
        for path in [&b"/written"[..], b"/gone", b"/memory", b"/short", b"/kept"] {
            recorder.add_access(path, 1, AccessKind::Lookup);
            recorder.add_access(path, 1, data(1 << 14, 1 << 14));
            recorder.add_program();
        }
        let run = recorder.finish([0; 16], |path| match path {
            b"/written" => PathState::Written,
            b"/gone" => PathState::Absent,
            b"/memory" => PathState::Unstored,
            b"/short" => PathState::Same(Attributes { size: 100, mtime: 1, inode: 1 }),
            _ => PathState::Same(Attributes { size: (1 << 14) + 5, mtime: 1, inode: 1 }),
        });
        let shown: Vec<_> =
            run.accesses.iter().map(|a| (&run.path_of(a).path[..], a.kind)).collect();
        let expected: [(&[u8], _); 5] = [
            (b"/written", AccessKind::Lookup),
            (b"/gone", AccessKind::Lookup),
            (b"/short", AccessKind::Lookup),
            (b"/kept", AccessKind::Lookup),
            (b"/kept", data(1 << 14, 5)),
        ];
        assert_eq!(shown, expected);
        assert_eq!(run.programs, [1, 2, 2, 3, 5], "counted in what was kept");
    }

    #[test]
    fn mapping_is_recorded_as_its_touched_ranges() {
        let mut recorder = Recorder::default();
        recorder.add_access(b"/program", 1, AccessKind::Execute);
        recorder.add_mapping(b"/known", 2, 0, 8 << 20);
        recorder.add_mapping(b"/known", 2, 4 << 20, 1 << 20);
        recorder.add_access(b"/between", 3, AccessKind::Lookup);
        recorder.add_mapping(b"/known", 2, 6 << 20, 4 << 20);
        recorder.add_mapping(b"/unknown", 4, 0, 8 << 20);
        recorder.add_access(b"/known", 2, data(7 << 20, 5));
        recorder.add_touched(b"/known", 2, 3 << 20, (1 << 20) + 7);
        recorder.add_touched(b"/known", 2, 0, 1 << 14);
        recorder.add_touched(b"/program", 1, 1 << 14, 1 << 14);
        recorder.add_touched(b"/left", 5, 0, 1);
        recorder.add_program();
        let run = recorder.finish([0; 16], all_same);
        let shown: Vec<_> =
            run.accesses.iter().map(|a| (&run.path_of(a).path[..], a.kind)).collect();
        let expected: [(&[u8], _); 9] = [
            (b"/program", AccessKind::Execute),
            (b"/program", touched(1 << 14, 1 << 14)),
            (b"/known", touched(0, 1 << 14)),
            (b"/known", touched(3 << 20, 1 << 20)),
            (b"/known", touched(4 << 20, 7)),
            (b"/between", AccessKind::Lookup),
            (b"/unknown", data(0, 8 << 20)),
            (b"/known", data(7 << 20, 5)),
            (b"/left", touched(0, 1)),
        ];
        assert_eq!(shown, expected);
        assert_eq!(run.programs, [9]);
    }

    #[test]
    fn endless_run_is_truncated() {
        let mut recorder = Recorder::default();
        for n in 0..ACCESSES_MAX as u64 + 10 {
            recorder.add_access(b"/a", 1, data((3 * n) << 14, 1));
        }
        assert_eq!((recorder.len(), recorder.left_out()), (ACCESSES_MAX, 10));
        let mut recorder = Recorder::default();
        let long = "/x".repeat(2000);
        for n in 0..20_000 {
            recorder.add_access(format!("{long}{n}").as_bytes(), 1, AccessKind::Lookup);
        }
        assert!(recorder.len() * long.len() <= PATH_BYTES_MAX);
        assert_eq!(recorder.len() as u64 + recorder.left_out(), 20_000);
    }
}
