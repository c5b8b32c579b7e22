//! Mappings of this process: `/proc/self/maps` (proc_pid_maps(5)), read without an allocator.

use linux_raw_sys::general as k;

use crate::sys::{self, AT_FDCWD};

/// A line of `/proc/self/maps`: `start-end rwxs offset device inode name`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// The mapping can be read.
    pub readable: bool,
    /// The mapping can be written.
    pub writable: bool,
    /// The mapping can be executed.
    pub executable: bool,
    /// Stores to the mapping reach other processes.
    pub shared: bool,
    /// File offset at which the mapping begins, in bytes.
    pub offset: u64,
    /// Hash of the device number's text.
    pub device: u64,
    /// Inode number of the file; 0: no file.
    pub inode: u64,
}

/// Calls `each` with this process's mappings, by ascending address, and the first `NAME` bytes of
/// their names.
pub fn each<const NAME: usize>(
    mut each: impl FnMut(Mapping, &[u8]) -> sys::Result<()>,
) -> sys::Result<()> {
    let maps =
        sys::openat2(AT_FDCWD, c"/proc/thread-self/maps".as_ptr() as u64, k::O_CLOEXEC, 0, 0)?;
    let result = read::<NAME>(maps, &mut each);
    sys::close(maps).and(result)
}

fn read<const NAME: usize>(
    maps: sys::Fd,
    each: &mut impl FnMut(Mapping, &[u8]) -> sys::Result<()>,
) -> sys::Result<()> {
    let mut scanner = Scanner::<NAME>::new();
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
            return Ok(());
        }
        for &byte in &buf[..got] {
            if scanner.byte(byte) {
                each(scanner.mapping, scanner.name())?;
                scanner.begin();
            }
        }
    }
}

/// Calls `each` with the mappings that `text` lists.
#[cfg(test)]
pub fn in_text<const NAME: usize>(text: &[u8], mut each: impl FnMut(Mapping, &[u8])) {
    let mut scanner = Scanner::<NAME>::new();
    for &byte in text {
        if scanner.byte(byte) {
            each(scanner.mapping, scanner.name());
            scanner.begin();
        }
    }
}

/// Parses `/proc/self/maps` byte by byte.
struct Scanner<const NAME: usize> {
    mapping: Mapping,
    field: usize,
    column: usize,
    name: [u8; NAME],
    name_len: usize,
}

impl<const NAME: usize> Scanner<NAME> {
    fn new() -> Self {
        Scanner { mapping: Mapping::default(), field: 0, column: 0, name: [0; NAME], name_len: 0 }
    }

    fn begin(&mut self) {
        (self.mapping, self.field, self.column, self.name_len) = (Mapping::default(), 0, 0, 0);
    }

    fn name(&self) -> &[u8] {
        &self.name[..self.name_len]
    }

    /// Takes one byte. Returns true at the end of a line.
    fn byte(&mut self, byte: u8) -> bool {
        const LAST: usize = 6;
        let mapping = &mut self.mapping;
        let digit = || u64::from((byte as char).to_digit(16).unwrap_or(0));
        match (self.field, byte) {
            (_, b'\n') => return true,
            (0, b'-') | (1..LAST, b' ') => self.field += 1,
            (0, _) => mapping.start = mapping.start << 4 | digit(),
            (1, _) => mapping.end = mapping.end << 4 | digit(),
            (2, flag) => {
                self.column += 1;
                match self.column {
                    1 => mapping.readable = flag == b'r',
                    2 => mapping.writable = flag == b'w',
                    3 => mapping.executable = flag == b'x',
                    4 => mapping.shared = flag == b's',
                    _ => {}
                }
            }
            (3, _) => mapping.offset = mapping.offset << 4 | digit(),
            (4, _) => {
                mapping.device = mapping.device.wrapping_mul(31).wrapping_add(byte.into());
            }
            (5, _) => mapping.inode = mapping.inode.wrapping_mul(10).wrapping_add(digit()),
            // Spaces align the name.
            (LAST, name) if name != b' ' || self.name_len > 0 => {
                if let Some(place) = self.name.get_mut(self.name_len) {
                    *place = name;
                    self.name_len += 1;
                }
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const MAPS: &str = "00400000-00401000 r--p 00000000 08:01 123 /bin/s-p\n\
        00401000-00405000 r-xp 00001000 08:01 123                        /bin/s-p\n\
        7f00aa000000-7f00aa002000 rw-s 00000000 00:01 5 /memfd:x (deleted)\n\
        7f00bb000000-7f00bb001000 --xs 7f0000ab1000 00:01 6 /a file with rw-s in it\n\
        7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n";

    #[test]
    fn mappings_are_found() {
        let mut found = Vec::new();
        in_text::<64>(MAPS.as_bytes(), |mapping, name| found.push((mapping, name.to_vec())));
        assert_eq!(found.len(), 5);
        let code = Mapping {
            start: 0x40_1000,
            end: 0x40_5000,
            readable: true,
            writable: false,
            executable: true,
            shared: false,
            offset: 0x1000,
            device: found[0].0.device,
            inode: 123,
        };
        assert_eq!(found[1], (code, b"/bin/s-p".to_vec()));
        let data = Mapping {
            start: 0x7f00_bb00_0000,
            end: 0x7f00_bb00_1000,
            readable: false,
            writable: false,
            executable: true,
            shared: true,
            offset: 0x7f00_00ab_1000,
            device: found[2].0.device,
            inode: 6,
        };
        assert_ne!(code.device, data.device);
        assert_eq!(found[3], (data, b"/a file with rw-s in it".to_vec()));
        assert_eq!((found[2].0.shared, found[4].0.inode), (true, 0));
        let mut names = Vec::new();
        in_text::<4>(MAPS.as_bytes(), |_, name| names.push(name.to_vec()));
        assert_eq!(names[3], b"/a f");
    }
}
