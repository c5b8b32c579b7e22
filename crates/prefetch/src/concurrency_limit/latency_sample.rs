//! Measured operations.

use std::ops::Range;
use std::time::Duration;

use crate::device_number::DeviceNumber;

/// Shorter operations did not wait for storage.
pub(crate) const INFORMATIVE: Duration = Duration::from_micros(300);
/// Shortest service time for a device to count as serving one request at a time: that of a moving
/// head. Where requests are shorter, those that wait for a processor or for each other's locks look
/// as if they had queued.
pub(crate) const SEEK: Duration = Duration::from_millis(1);

/// Kinds of operations whose latencies can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Path walk and attributes.
    Lookup,
    /// Up to one chunk of file data.
    Read,
    /// More than that.
    LongRead,
    /// Directory entries.
    Listing,
}

pub(super) const KINDS: usize = 4;

/// A measured operation.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub kind: Kind,
    pub device: DeviceNumber,
    /// Inode and range of a read.
    pub part: (u64, Range<u64>),
    /// When the operation began, since any fixed instant.
    pub began: Duration,
    pub latency: Duration,
}
