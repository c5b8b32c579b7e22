//! Measured operations.

use std::ops::Range;
use std::time::Duration;

use crate::device_number::DeviceNumber;

/// Shorter operations did not wait for storage.
pub(crate) const INFORMATIVE: Duration = Duration::from_micros(300);
/// What serves one request at a time, and what one takes there, at least, to be taken for it: a head that moves. Where
/// requests are shorter, those that wait for a processor or for each other's locks look as if they had queued.
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

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub kind: Kind,
    pub device: DeviceNumber,
    /// Of reads, the inode of what was read, and from where to where.
    pub part: (u64, Range<u64>),
    /// When the operation began, since any fixed instant.
    pub began: Duration,
    pub latency: Duration,
}
