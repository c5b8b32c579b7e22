//! Recent reads of a device, and reads that lie beside them.

use std::collections::VecDeque;
use std::ops::Range;

use runahead_estimators::access_identity::CHUNK_BYTES;

use super::latency_sample::{Kind, Sample};

/// Reads that are remembered: as many as may end between two that follow each other in a sweep.
const READS: usize = 64;
/// File systems give inodes and blocks from the same places in the same order: files whose inodes
/// are no further apart than this lie beside each other, as a rule.
const INODES: u64 = 16;

/// The last reads of a device.
#[derive(Default)]
pub(super) struct RecentReads(VecDeque<(u64, Range<u64>)>);

impl RecentReads {
    /// True if `sample` is a read beside one of the last ones, for which heads hardly move. Adds it
    /// to these.
    pub(super) fn add(&mut self, sample: &Sample) -> bool {
        if !matches!(sample.kind, Kind::Read | Kind::LongRead) {
            return false;
        }
        let (inode, range) = &sample.part;
        let is_beside = |(other, there): &(u64, Range<u64>)| match inode.abs_diff(*other) {
            0 => range.start <= there.end + CHUNK_BYTES && there.start <= range.end + CHUNK_BYTES,
            apart => apart <= INODES,
        };
        let is_near = self.0.iter().any(is_beside);
        self.0.truncate(READS - 1);
        self.0.push_front(sample.part.clone());
        is_near
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn beside_are_parts_of_a_file_and_files_that_were_made_together() {
        let mut recent = RecentReads::default();
        let mut beside = |kind, inode, start: u64| {
            let (part, began) = ((inode, start..start + 4096), Duration::ZERO);
            recent.add(&Sample { kind, device: (8, 0), part, began, latency: began })
        };
        assert!(!beside(Kind::Read, 1000, 0));
        assert!(beside(Kind::LongRead, 1000, 8192));
        assert!(!beside(Kind::Read, 1000, 10 << 20));
        assert!(beside(Kind::Read, 1000 + INODES, 0));
        assert!(!beside(Kind::Read, 1000 + 3 * INODES, 0));
        assert!(!beside(Kind::Lookup, 1000, 0));
        // What was long ago is forgotten.
        for n in 1..=READS as u64 {
            assert!(!beside(Kind::Read, n << 20, 0));
        }
        assert!(!beside(Kind::Read, 1000, 0));
    }
}
