//! A ring of variable-length records from one writer to the supervisor.
//!
//! The writer copies a record in and then publishes it with one store of `tail`; killed before
//! that store it has published nothing, killed after it has published all. The reader trusts no
//! index: positions are masked, and [`crate::hint_record::Record`] checks what comes out.
//!
//! Invariant: an index that makes no sense empties the ring instead of being followed.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

use crate::hint_record::{MAX_RECORD, Record};

/// Bytes in one ring; a power of two and more than a few of the largest records.
pub const RING_BYTES: usize = 256 * 1024;
const MASK: u32 = RING_BYTES as u32 - 1;

/// Ring of records. Positions count bytes since the ring was made, modulo 2^32.
#[repr(C, align(64))]
pub struct Ring {
    /// Written by the writer.
    tail: AtomicU32,
    _pad0: [u32; 15],
    /// Written by the supervisor.
    head: AtomicU32,
    _pad1: [u32; 15],
    bytes: [AtomicU8; RING_BYTES],
}

impl Ring {
    /// Writes `parts`, one after the other, as one record preceded by its length in bytes. False
    /// when there is no room: the record is dropped, which only loses a hint.
    pub fn push(&self, parts: &[&[u8]]) -> bool {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        if !self.has_room(len) {
            return false;
        }
        let tail = self.tail.load(Relaxed);
        let mut at = tail;
        let mut put = |part: &[u8]| {
            for &byte in part {
                self.bytes[(at & MASK) as usize].store(byte, Relaxed);
                at = at.wrapping_add(1);
            }
        };
        put(&(len as u32).to_le_bytes());
        parts.iter().for_each(|p| put(p));
        self.tail.store(at, Release);
        true
    }

    /// True if a record of `len` bytes fits in now. Room only grows until the writer writes.
    pub fn has_room(&self, len: usize) -> bool {
        let used = self.tail.load(Relaxed).wrapping_sub(self.head.load(Acquire)) as usize;
        len <= MAX_RECORD && used <= RING_BYTES && RING_BYTES - used >= len + 4
    }

    /// Takes the oldest record out into `buf`. `None` when there is none, or when what is there
    /// cannot be a record (the rest of the ring is then thrown away).
    pub fn pop<'b>(&self, buf: &'b mut [u8; MAX_RECORD]) -> Option<Record<'b>> {
        let head = self.head.load(Relaxed);
        let tail = self.tail.load(Acquire);
        let used = tail.wrapping_sub(head) as usize;
        if used == 0 {
            return None;
        }
        let get = |at: u32| self.bytes[(at & MASK) as usize].load(Relaxed);
        let mut len = [0u8; 4];
        for (i, byte) in len.iter_mut().enumerate() {
            *byte = get(head.wrapping_add(i as u32));
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_RECORD || used > RING_BYTES || used < len + 4 {
            self.head.store(tail, Release);
            return None;
        }
        for (i, byte) in buf[..len].iter_mut().enumerate() {
            *byte = get(head.wrapping_add(4 + i as u32));
        }
        self.head.store(head.wrapping_add(4 + len as u32), Release);
        match Record::parse(&buf[..len]) {
            Ok(record) => Some(record),
            Err(_) => {
                self.head.store(tail, Release);
                None
            }
        }
    }

    /// Bytes that have been taken out since the ring was made, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.head.load(Relaxed)
    }

    /// True when nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.tail.load(Acquire) == self.head.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::hint_record::{Header, HintKind};
    use std::boxed::Box;

    fn ring() -> Box<Ring> {
        // SAFETY: Ring is atomics and integers, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn header(key: u64) -> Header {
        Header {
            kind: HintKind::Lookup as u32,
            run: 1,
            position: 0,
            key,
            offset: 0,
            length: 0,
            flags: 0,
            path_len: 4,
        }
    }

    #[test]
    fn records_come_out_in_order_and_the_ring_wraps() {
        let ring = ring();
        let mut buf = [0; MAX_RECORD];
        for n in 1..20_000u64 {
            assert!(ring.push(&[header(n).as_bytes(), b"/a/b"]));
            if n % 3 == 0 {
                for back in [2, 1, 0] {
                    let r = ring.pop(&mut buf).expect("a record");
                    assert_eq!((r.header.key, r.path), (n - back, &b"/a/b"[..]));
                }
                assert!(ring.is_empty());
            }
        }
    }

    #[test]
    fn a_full_ring_refuses_and_keeps_what_it_has() {
        let ring = ring();
        let mut sent = 0;
        while ring.push(&[header(sent + 1).as_bytes(), b"/a/b"]) {
            sent += 1;
        }
        let mut buf = [0; MAX_RECORD];
        let mut got = 0;
        while let Some(r) = ring.pop(&mut buf) {
            got += 1;
            assert_eq!(r.header.key, got);
        }
        assert_eq!((got, sent > 1000), (sent, true));
    }

    #[test]
    fn garbage_is_thrown_away_not_followed() {
        let ring = ring();
        ring.push(&[header(1).as_bytes(), b"/a/b"]);
        ring.bytes[2].store(0xff, Relaxed);
        let mut buf = [0; MAX_RECORD];
        assert!(ring.pop(&mut buf).is_none());
        assert!(ring.is_empty());
        ring.tail.store(0x8000_0000, Relaxed);
        assert!(ring.pop(&mut buf).is_none());
        assert!(ring.is_empty());
        assert!(ring.push(&[header(2).as_bytes(), b"/a/b"]));
        assert_eq!(ring.pop(&mut buf).map(|r| r.header.key), Some(2));
    }
}
