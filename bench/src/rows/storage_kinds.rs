//! Storage on which rows work: slow storage of some kind, or memory.

use std::time::Duration;

use runahead_testbed::model::Service;

/// A kind of storage.
#[derive(Debug)]
pub struct Place {
    /// Name of its directory; of an everyday storage, part of its rows' names.
    pub name: &'static str,
    /// Description for people; empty for those that [`Place::describe`] describes.
    pub about: &'static str,
    pub medium: Medium,
    service: Service,
    /// True if other programs keep all processors busy meanwhile.
    pub busy: bool,
}

/// Medium of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A simulated disk with ext4.
    Disk,
    /// A directory shown as a network file system would show it.
    Share,
    /// A memory file system, where nothing waits.
    Memory,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const fn place(name: &'static str, medium: Medium, service: Service) -> Place {
    Place { name, about: "", medium, service, busy: false }
}

const fn parallel(latency: Duration, parallel: u32) -> Service {
    Service::Parallel { latency, parallel }
}

const fn spindles(spindles: u32, seek: u64) -> Service {
    Service::Spindles { spindles, stripe: 64 << 10, seek: Duration::from_millis(seek) }
}

const SLOW: Service = parallel(Duration::from_millis(5), 128);
const CLOUD: Service = parallel(Duration::from_micros(500), 64);
const NETWORK: Service = parallel(Duration::from_millis(10), 128);
const NO_WAIT: Service = parallel(Duration::ZERO, 1);

pub static DISK: Place = place("disk", Medium::Disk, SLOW);
/// A solid-state disk in a cloud.
pub static FAST: Place = place("fast", Medium::Disk, CLOUD);
/// A disk with the whole of the source that the tree is a part of.
pub static LARGE: Place = place("large", Medium::Disk, SLOW);
pub static MEMORY: Place = place("memory", Medium::Memory, NO_WAIT);
pub static SPINDLES: Place = place("spindles", Medium::Disk, spindles(4, 12));
pub static SPINDLES_3: Place = place("spindles3", Medium::Disk, spindles(3, 12));
pub static SPINDLE: Place = place("spindle", Medium::Disk, spindles(1, 12));
pub static SHARE: Place = place("share", Medium::Share, NETWORK);
/// A network file system with installations of programs.
pub static APPS: Place = place("apps", Medium::Share, NETWORK);

/// Places in the order in which they are brought up, one after the other.
pub static PLACES: [&Place; 9] =
    [&DISK, &FAST, &LARGE, &MEMORY, &SPINDLES, &SPINDLES_3, &SPINDLE, &SHARE, &APPS];

const fn everyday(
    name: &'static str,
    about: &'static str,
    medium: Medium,
    service: Service,
) -> Place {
    Place { about, ..place(name, medium, service) }
}

/// The storages of the everyday rows, in the same order.
pub static EVERYDAY: [Place; 7] = [
    everyday("everyday-slow", "5 ms, 128 requests at a time", Medium::Disk, SLOW),
    everyday("everyday-cloud", "0.5 ms, 64 at a time: a good cloud disk", Medium::Disk, CLOUD),
    everyday(
        "everyday-ssd",
        "0.1 ms, 32 at a time",
        Medium::Disk,
        parallel(Duration::from_micros(100), 32),
    ),
    everyday("everyday-spindle", "one spindle that seeks for 8 ms", Medium::Disk, spindles(1, 8)),
    everyday("everyday-memory", "everything in memory", Medium::Memory, NO_WAIT),
    Place {
        busy: true,
        ..everyday(
            "everyday-busy",
            "0.5 ms, 64 at a time, while other programs keep all processors busy",
            Medium::Disk,
            CLOUD,
        )
    },
    everyday(
        "everyday-share",
        "a network share of 10 ms, 128 at a time, with the image of a container",
        Medium::Share,
        NETWORK,
    ),
];

impl Place {
    /// Returns its service, with little latency if `quick`, for tests of the harness.
    pub fn service(&self, quick: bool) -> Service {
        let short = |time: Duration| if quick { time.min(Duration::from_millis(1)) } else { time };
        match self.service {
            Service::Parallel { latency, parallel } => {
                Service::Parallel { latency: short(latency), parallel }
            }
            Service::Spindles { spindles, stripe, seek } => {
                Service::Spindles { spindles, stripe, seek: short(seek) }
            }
        }
    }

    /// Description as on the command line of `runahead-testbed`.
    pub fn describe(&self, quick: bool) -> String {
        match (self.medium, self.service(quick)) {
            (Medium::Memory, _) => "tmpfs".to_owned(),
            (Medium::Share, Service::Parallel { latency, .. }) => {
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

    /// Returns the oracle that is best here.
    pub fn oracle(&self) -> Oracle {
        match self.service {
            Service::Spindles { .. } => Oracle { threads: 128, lookups_first: true },
            Service::Parallel { .. } => Oracle { threads: 512, lookups_first: false },
        }
    }

    /// Bytes of the memory file system that the storage itself, outputs and archives take.
    pub fn space(&self, quick: bool) -> u64 {
        match (self.name, quick) {
            ("apps", _) => 640 << 20,
            (_, true) => 192 << 20,
            ("large", _) => 5 << 30,
            _ => 1 << 30,
        }
    }
}

/// Threads and order of the oracle's accesses: the best of 1 to 2048 threads and both orders.
///
/// The storage serves no more at a time than it always does. But several accesses wait for one
/// request (16 inodes are in a block), so that it takes more threads than that to keep it busy. On
/// spindles reading inodes between data costs two seeks a file.
#[derive(Debug, Clone, Copy)]
pub struct Oracle {
    /// Accesses under way at a time.
    pub threads: usize,
    /// True for all names before all data, instead of the order of the recording.
    pub lookups_first: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_storage_has_a_directory_of_its_own() {
        let names: HashSet<_> =
            PLACES.into_iter().chain(&EVERYDAY).map(|place| place.name).collect();
        assert_eq!(names.len(), PLACES.len() + EVERYDAY.len());
    }

    #[test]
    fn a_storage_is_described_as_on_the_command_line_of_the_testbed() {
        assert_eq!(FAST.describe(false), "disk --latency 500µs --parallel 64, ext4");
        let three = "disk --spindles 3 --stripe 64KiB --seek 12ms, ext4";
        assert_eq!(SPINDLES_3.describe(false), three);
    }
}
