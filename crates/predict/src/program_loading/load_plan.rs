//! Ranges of a program or library to load, and their order.
//!
//! Ranges are cut at multiples of a piece, as all reads are, so that many can be in flight at a
//! time. Contents that no segment maps (debugging information, section tables) are left out.

use std::collections::BTreeMap;
use std::ops::Range;

use super::elf::{HEAD_BYTES, Head};
use super::program_task::Urgency;
use crate::read_sizes::{EXTEND_MAX_BYTES, PIECE_BYTES};

/// Files up to this size are loaded whole, debugging information aside.
pub(super) const WHOLE_MAX: u64 = 256 << 20;
/// Most bytes loaded of a file that is too large to be loaded whole.
const PART_MAX: u64 = 64 << 20;

/// The parts of an ELF file.
pub fn of_program(head: &Head) -> Vec<(Urgency, Range<u64>)> {
    let mut pieces: BTreeMap<u64, (Urgency, Range<u64>)> = BTreeMap::new();
    let whole = head.loads.iter().map(|l| l.file.end - l.file.start).fold(0, u64::saturating_add);
    let mut bound = if whole <= WHOLE_MAX { WHOLE_MAX } else { PART_MAX };
    let first = head.loads.iter().map(|load| load.file.start).min();
    for load in &head.loads {
        // The tables that relocation goes through are at the start, what it changes is writable.
        let tables = !load.executable && Some(load.file.start) == first;
        let urgency = if load.writable || tables { Urgency::Relocate } else { Urgency::Rest };
        if urgency == Urgency::Rest && whole > WHOLE_MAX {
            continue;
        }
        add(&mut pieces, urgency, load.file.clone(), &mut bound);
    }
    if let Some(entry) = head.entry {
        let mut around = entry / PIECE_BYTES * PIECE_BYTES..(entry / PIECE_BYTES + 1) * PIECE_BYTES;
        let load = head.loads.iter().find(|load| load.file.contains(&entry));
        if let Some(load) = load {
            around = around.start.max(load.file.start)..around.end.min(load.file.end);
            add(&mut pieces, Urgency::Enter, around, &mut bound);
        }
    }
    let mut parts: Vec<_> = pieces.into_values().collect();
    // What the head was read for need not be read again.
    for (_, range) in &mut parts {
        range.start = range.start.max(HEAD_BYTES);
    }
    parts.retain(|(_, range)| range.start < range.end);
    parts.sort_by_key(|(urgency, range)| (*urgency, range.start));
    parts
}

/// Adds `range` to the pieces that it touches, as long as there is room.
fn add(
    pieces: &mut BTreeMap<u64, (Urgency, Range<u64>)>,
    urgency: Urgency,
    range: Range<u64>,
    bound: &mut u64,
) {
    let mut at = range.start;
    while at < range.end && *bound > 0 {
        let piece = at / PIECE_BYTES;
        let end = range.end.min((piece + 1) * PIECE_BYTES);
        *bound = bound.saturating_sub(end - at);
        let known = pieces.entry(piece).or_insert((urgency, at..end));
        known.0 = known.0.min(urgency);
        known.1 = known.1.start.min(at)..known.1.end.max(end);
        at = end;
    }
}

/// Returns the rest of a file of `size` bytes that is no ELF file, a script for example. Its
/// interpreter reads it to its end, unless it is large.
pub fn of_script(size: u64) -> Vec<(Urgency, Range<u64>)> {
    let end = if size <= EXTEND_MAX_BYTES { size } else { 0 };
    let step = PIECE_BYTES as usize;
    let starts =
        (0..end).step_by(step).map(|start| start.max(HEAD_BYTES)..end.min(start + PIECE_BYTES));
    starts.filter(|range| !range.is_empty()).map(|range| (Urgency::Relocate, range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_loading::elf::Load;

    fn load(file: Range<u64>, writable: bool, executable: bool) -> Load {
        Load { address: file.start, file, writable, executable }
    }

    const MB: u64 = 1 << 20;

    #[test]
    fn what_relocation_needs_comes_first_and_all_of_it_comes() {
        let loads = vec![
            load(0..3 * MB, false, false),
            load(3 * MB..50 * MB, false, true),
            load(50 * MB..80 * MB, false, false),
            load(80 * MB..85 * MB + 100, true, false),
        ];
        let head = Head { loads, entry: Some(20 * MB), ..Head::default() };
        let parts = of_program(&head);
        let urgencies: Vec<Urgency> = parts.iter().map(|(urgency, _)| *urgency).collect();
        assert!(urgencies.is_sorted());
        let of = |urgency| parts.iter().filter(move |(t, _)| *t == urgency).map(|(_, range)| range);
        assert_eq!(of(Urgency::Relocate).next(), Some(&(HEAD_BYTES..PIECE_BYTES)));
        assert_eq!(of(Urgency::Relocate).next_back(), Some(&(85 * MB..85 * MB + 100)));
        assert_eq!(of(Urgency::Enter).collect::<Vec<_>>(), [&(20 * MB..20 * MB + PIECE_BYTES)]);
        let mut all: Vec<_> = parts.iter().map(|(_, range)| range.clone()).collect();
        all.sort_by_key(|range| range.start);
        assert!(all.windows(2).all(|w| w[0].end == w[1].start), "no gap, and nothing twice");
        assert!(all.iter().all(|range| range.end - range.start <= PIECE_BYTES));
    }

    #[test]
    fn what_is_mapped_nowhere_is_left_out() {
        let head = Head { loads: vec![load(0..MB, false, true)], ..Head::default() };
        assert_eq!(of_program(&head).last().map(|(_, range)| range.end), Some(MB));
        assert!(of_program(&Head::default()).is_empty());
    }

    #[test]
    fn of_a_huge_file_only_the_start_comes() {
        let loads = vec![
            load(0..10 * MB, false, false),
            load(10 * MB..4000 * MB, false, true),
            load(4000 * MB..5000 * MB, true, false),
        ];
        let head = Head { loads, entry: Some(1000 * MB), ..Head::default() };
        let parts = of_program(&head);
        let bytes: u64 = parts.iter().map(|(_, range)| range.end - range.start).sum();
        assert!(bytes <= PART_MAX + PIECE_BYTES, "{bytes}");
        assert!(parts.iter().all(|(urgency, _)| *urgency < Urgency::Rest));
    }

    #[test]
    fn a_script_is_read_to_its_end_unless_it_is_large() {
        let bytes = |size| of_script(size).iter().map(|(_, r)| r.end - r.start).sum::<u64>();
        assert_eq!(bytes(100), 0, "the head was all");
        assert_eq!(bytes(MB), MB - HEAD_BYTES);
        assert_eq!(bytes(MB + 1), 0);
    }
}
