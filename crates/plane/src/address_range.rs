//! Ranges of addresses, so that an end is not taken for a length.

/// Addresses from `start` up to `end`, which is the first address behind them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AddressRange {
    /// First address.
    pub start: u64,
    /// First address behind the range.
    pub end: u64,
}

impl AddressRange {
    /// Range without addresses.
    pub const EMPTY: AddressRange = AddressRange { start: 0, end: 0 };

    /// Range from `start` up to `end`.
    pub const fn new(start: u64, end: u64) -> Self {
        AddressRange { start, end }
    }

    /// Range of `bytes` bytes from `start`.
    pub const fn of_bytes(start: u64, bytes: u64) -> Self {
        AddressRange { start, end: start + bytes }
    }

    /// Length in bytes.
    pub const fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// True if `address` is in the range.
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}
