//! Where the commands of the table work: slow storage of some kind, or memory.

use std::time::Duration;

use runahead_testbed::model::Service;

/// A storage, and what is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Constant latency, many at a time; the tree.
    Disk,
    /// Little of it, as of a solid-state disk in a cloud; the tree.
    Fast,
    /// Constant latency, many at a time; the whole of the source that the tree is a part of.
    Large,
    /// A memory file system, empty.
    Memory,
    /// Four rotating disks; the tree.
    Spindles,
    /// Three.
    Spindles3,
    /// One.
    Spindle,
    /// A network file system; the tree.
    Share,
    /// A network file system; installations of programs.
    Apps,
}

impl Place {
    /// In the order in which they are brought up, one after the other.
    pub const ALL: [Self; 9] = [
        Self::Disk,
        Self::Fast,
        Self::Large,
        Self::Memory,
        Self::Spindles,
        Self::Spindles3,
        Self::Spindle,
        Self::Share,
        Self::Apps,
    ];

    /// Of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Fast => "fast",
            Self::Large => "large",
            Self::Memory => "memory",
            Self::Spindles => "spindles",
            Self::Spindles3 => "spindles3",
            Self::Spindle => "spindle",
            Self::Share => "share",
            Self::Apps => "apps",
        }
    }

    /// How it serves; `quick` for tests of the harness.
    pub fn service(self, quick: bool) -> Service {
        let ms = |n| Duration::from_millis(if quick { 1 } else { n });
        let spindles = |spindles| Service::Spindles { spindles, stripe: 64 << 10, seek: ms(12) };
        match self {
            Self::Disk | Self::Large => Service::Parallel { latency: ms(5), parallel: 128 },
            Self::Share | Self::Apps => Service::Parallel { latency: ms(10), parallel: 128 },
            Self::Fast => Service::Parallel { latency: Duration::from_micros(500), parallel: 64 },
            Self::Spindles => spindles(4),
            Self::Spindles3 => spindles(3),
            Self::Spindle => spindles(1),
            // Nothing waits here.
            Self::Memory => Service::Parallel { latency: Duration::ZERO, parallel: 1 },
        }
    }

    /// As on the command line of `runahead-testbed`.
    pub fn describe(self, quick: bool) -> String {
        match (self, self.service(quick)) {
            (Self::Memory, _) => "tmpfs".to_owned(),
            (Self::Share | Self::Apps, Service::Parallel { latency, .. }) => {
                format!("share --latency {latency:?}, source in memory")
            }
            (_, Service::Parallel { latency, parallel }) => {
                format!("disk --latency {latency:?} --parallel {parallel}, ext4")
            }
            (_, Service::Spindles { spindles, stripe, seek }) => {
                let stripe = stripe >> 10;
                format!("disk --spindles {spindles} --stripe {stripe}KiB --seek {seek:?}, ext4")
            }
        }
    }

    /// How the oracle does best here.
    pub fn oracle(self) -> Oracle {
        match self {
            Self::Spindles | Self::Spindles3 | Self::Spindle => {
                Oracle { threads: 128, lookups_first: true }
            }
            _ => Oracle { threads: 512, lookups_first: false },
        }
    }

    /// What has to be free in the memory file system: the storage itself, outputs, archives.
    pub fn space(self, quick: bool) -> u64 {
        match (self, quick) {
            (Self::Apps, _) => 640 << 20,
            (_, true) => 192 << 20,
            (Self::Large, _) => 5 << 30,
            _ => 1 << 30,
        }
    }

    /// Whether a run of a program on it can be recorded for an oracle.
    pub fn has_storage(self) -> bool {
        self != Self::Memory
    }
}

/// How accesses are made for a command; what was best of 1 to 2048 threads and both orders.
///
/// The storage serves no more at a time than it always does, but several accesses wait for one
/// request (16 inodes are in a block), so that it takes more threads than that to keep it busy. On
/// spindles reading inodes between data costs two seeks a file.
#[derive(Debug, Clone, Copy)]
pub struct Oracle {
    /// Accesses under way at a time.
    pub threads: usize,
    /// All names before all data, instead of the order of the recording.
    pub lookups_first: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_storage_has_a_directory_of_its_own() {
        let names: HashSet<_> = Place::ALL.iter().map(|place| place.name()).collect();
        assert_eq!(names.len(), Place::ALL.len());
    }

    #[test]
    fn a_storage_is_described_as_the_testbed_is_told() {
        assert_eq!(Place::Fast.describe(false), "disk --latency 500µs --parallel 64, ext4");
        let three = "disk --spindles 3 --stripe 64KiB --seek 12ms, ext4";
        assert_eq!(Place::Spindles3.describe(false), three);
    }
}
