//! Shared memory is given up: what a shadow stores must reach nobody.
//!
//! Every shared mapping but our own becomes private memory with the same contents, up to a limit;
//! beyond it the memory cannot be touched any more, and a shadow that tries ends. Read-only ones
//! go, too, since their protection could be changed back.

use linux_raw_sys::general as k;

use crate::sys::{self, AT_FDCWD, Errno};

/// Bytes of shared memory copied for one shadow.
const COPY_BYTES: u64 = 64 << 20;
/// Mappings found at most; a process with more has no shadow.
const MAPPINGS: usize = 256;

/// Replaces every shared mapping except the one at `ours`.
pub(super) fn give_up_shared(ours: u64) -> sys::Result<()> {
    let mut found = [(0u64, 0u64, false); MAPPINGS];
    let count = shared_mappings(&mut found)?;
    let mut copied = 0;
    for &(start, end, readable) in &found[..count] {
        if start == ours {
            continue;
        }
        let len = end - start;
        // SAFETY: the program's memory in this process's copy; it is replaced by the same contents
        // or taken away, and the agent keeps nothing in shared memory but `ours`.
        unsafe {
            if !readable || copied + len > COPY_BYTES {
                sys::replace_with_private(start, len, k::PROT_NONE)?;
                continue;
            }
            let copy = sys::map_private(len as usize)?;
            // A page beyond the end of its file faults here, which ends this process.
            core::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, len as usize);
            sys::move_pages(copy, len, start)?;
        }
        copied += len;
    }
    Ok(())
}

/// Fills `found` with (start, end, readable) of the shared mappings; their number.
fn shared_mappings(found: &mut [(u64, u64, bool); MAPPINGS]) -> sys::Result<usize> {
    let maps = sys::openat2(AT_FDCWD, c"/proc/self/maps".as_ptr() as u64, k::O_CLOEXEC, 0, 0)?;
    let mut scanner = MapsScanner::new();
    let mut count = 0;
    let mut buf = [0u8; 4096];
    loop {
        // SAFETY: reads into a buffer of ours.
        let got = sys::check(unsafe {
            sys::raw(
                sys::nr::READ,
                [maps as u64, buf.as_mut_ptr() as u64, buf.len() as u64, 0, 0, 0],
            )
        })? as usize;
        if got == 0 {
            break;
        }
        for &byte in &buf[..got] {
            if let Some(mapping) = scanner.byte(byte) {
                *found.get_mut(count).ok_or(Errno(sys::ENOMEM))? = mapping;
                count += 1;
            }
        }
    }
    sys::close(maps)?;
    Ok(count)
}

/// Reads `/proc/self/maps` (proc_pid_maps(5)) a byte at a time: `start-end rwxs …\n`.
struct MapsScanner {
    numbers: [u64; 2],
    field: usize,
    column: usize,
    readable: bool,
}

impl MapsScanner {
    fn new() -> Self {
        MapsScanner { numbers: [0; 2], field: 0, column: 0, readable: false }
    }

    /// A shared mapping, when this byte shows that the line is one.
    fn byte(&mut self, byte: u8) -> Option<(u64, u64, bool)> {
        match (self.field, byte) {
            (_, b'\n') => *self = MapsScanner::new(),
            (0, b'-') | (1, b' ') => self.field += 1,
            (0 | 1, digit) => {
                let value = (digit as char).to_digit(16).unwrap_or(0);
                self.numbers[self.field] = self.numbers[self.field] << 4 | u64::from(value);
            }
            (2, flag) => {
                self.column += 1;
                match self.column {
                    1 => self.readable = flag == b'r',
                    4 => {
                        self.field = 3;
                        let [start, end] = self.numbers;
                        return (flag == b's').then_some((start, end, self.readable));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn shared_mappings_are_found_in_maps() {
        let maps = "00400000-00401000 r--p 00000000 08:01 123 /bin/s-p\n\
            7f00aa000000-7f00aa002000 rw-s 00000000 00:01 5 /memfd:x (deleted)\n\
            7f00bb000000-7f00bb001000 --xs 00000000 00:01 6 /a file with rw-s in it\n";
        let mut scanner = MapsScanner::new();
        let found: Vec<_> = maps.bytes().filter_map(|b| scanner.byte(b)).collect();
        assert_eq!(
            found,
            [
                (0x7f00_aa00_0000, 0x7f00_aa00_2000, true),
                (0x7f00_bb00_0000, 0x7f00_bb00_1000, false)
            ]
        );
    }
}
