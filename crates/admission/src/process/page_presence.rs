//! Pages of its mapped files that a process has mapped. The kernel maps a page when the process
//! touches it, with those around it that are in memory (`fault_around_bytes`, 64 KiB).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use runahead_abi::swapped_memory::PAGE_BYTES;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// A part of a file that a process has mapped, to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedPart {
    /// Addresses of the mapping.
    pub at: Range<u64>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The file's name.
    pub path: Vec<u8>,
}

/// Returns the mapped files of `process`, in pieces of at least `least` bytes that are not
/// executable (`/proc/PID/maps`, proc_pid_maps(5)).
pub fn mapped_parts(process: i32, least: u64) -> io::Result<Vec<MappedPart>> {
    let text = fs::read(format!("/proc/{process}/maps"))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(|line| part(line, least)).collect())
}

/// `start-end rwxs offset device inode name`.
fn part(line: &[u8], least: u64) -> Option<MappedPart> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = text()?.split_once('-')?;
    let at = hexadecimal(start)?..hexadecimal(end)?;
    let rights = text()?;
    let offset = hexadecimal(text()?)?;
    let (_device, _inode) = (text()?, text()?);
    let path = fields.next()?.trim_ascii_start();
    let is_data = rights.starts_with('r') && !rights.contains('x') && path.starts_with(b"/");
    (is_data && at.end - at.start >= least).then(|| MappedPart { at, offset, path: path.to_vec() })
}

/// `struct pm_scan_arg` (linux/fs.h): of which pages what is to be told.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`: addresses and categories.
type Found = [u64; 3];

const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
const PRESENT: u64 = 1 << 3;
/// Ranges that are told at a time.
const RANGES: usize = 2048;

/// The pages of a process, as the kernel tells of them: `/proc/PID/pagemap` (proc_pid_pagemap(5)).
pub struct Present {
    pagemap: File,
}

impl Present {
    /// Opens the page map of `process`.
    pub fn of(process: i32) -> io::Result<Self> {
        File::open(format!("/proc/{process}/pagemap")).map(|pagemap| Present { pagemap })
    }

    /// Calls `each` with the ranges of `at` that are there, in order.
    pub fn each(&self, at: &Range<u64>, mut each: impl FnMut(Range<u64>)) -> io::Result<()> {
        match self.scan(at, &mut each) {
            // Before Linux 6.7.
            Err(error) if error.raw_os_error() == Some(ENOTTY) => self.read(at, each),
            other => other,
        }
    }

    fn scan(&self, at: &Range<u64>, each: &mut impl FnMut(Range<u64>)) -> io::Result<()> {
        let mut found: Vec<Found> = vec![[0; 3]; RANGES];
        let mut start = at.start;
        while start < at.end {
            found.fill([0; 3]);
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start,
                end: at.end,
                ranges: found.as_mut_ptr() as u64,
                ranges_len: found.len() as u64,
                category_mask: PRESENT,
                return_mask: PRESENT,
                ..Scan::default()
            };
            // SAFETY: the kernel reads and writes a Scan, and writes as many ranges as it says
            // there are.
            unsafe { ioctl(&self.pagemap, Updater::<SCAN, Scan>::new(&mut scan))? };
            found
                .iter()
                .take_while(|range| range[1] > 0)
                .for_each(|range| each(range[0]..range[1]));
            if scan.walk_end <= start {
                return Ok(());
            }
            start = scan.walk_end;
        }
        Ok(())
    }

    fn read(&self, at: &Range<u64>, mut each: impl FnMut(Range<u64>)) -> io::Result<()> {
        const ENTRY: usize = 8;
        let mut entries = vec![0; 64 << 10];
        let mut start = at.start;
        while start < at.end {
            let most = ((at.end - start) / PAGE_BYTES) as usize * ENTRY;
            let most = most.min(entries.len());
            let got =
                self.pagemap.read_at(&mut entries[..most], start / PAGE_BYTES * ENTRY as u64)?
                    / ENTRY;
            if got == 0 {
                return Ok(());
            }
            for (entry, n) in entries.chunks_exact(ENTRY).take(got).zip(0..) {
                // The last bit: the page is there.
                if entry[ENTRY - 1] & 0x80 != 0 {
                    each(start + n * PAGE_BYTES..start + (n + 1) * PAGE_BYTES);
                }
            }
            start += got as u64 * PAGE_BYTES;
        }
        Ok(())
    }
}

const ENOTTY: i32 = rustix::io::Errno::NOTTY.raw_os_error();

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ptr::null_mut;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

    use super::*;

    #[test]
    fn parts_of_files_are_found_in_lines() {
        let line = b"7f00aa000000-7f00aa200000 r--s 00001000 08:01 123                /a b/c";
        let path = b"/a b/c".to_vec();
        let expected = MappedPart { at: 0x7f00_aa00_0000..0x7f00_aa20_0000, offset: 0x1000, path };
        assert_eq!(part(line, 0x20_0000), Some(expected));
        assert_eq!(part(line, 0x20_0001), None);
        for other in [
            &b"7f00aa000000-7f00aa200000 r-xp 00001000 08:01 123 /lib"[..],
            b"7f00aa000000-7f00aa200000 rw-p 00000000 00:00 0",
            b"7f00aa000000-7f00aa200000 rw-p 00000000 00:00 0 [heap]",
            b"",
        ] {
            assert_eq!(part(other, 0), None);
        }
    }

    #[test]
    fn what_was_touched_is_there_and_what_was_not_is_not() {
        const LEN: usize = 64 << 20;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[1; 4096])
            .and_then(|()| file.as_file().set_len(LEN as u64))
            .expect("written");
        let name = file.path().to_str().expect("a plain name").as_bytes();
        // SAFETY: a fresh mapping, which no other code knows.
        let at = unsafe { mmap(null_mut(), LEN, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let at = at.expect("memory");
        // SAFETY: advice on that mapping; then a byte of it.
        unsafe {
            madvise(at, LEN, Advice::Random).expect("advice");
            let _ = at.cast::<u8>().add(LEN / 2 + 4096).read_volatile();
        }
        let process = std::process::id() as i32;
        let parts = mapped_parts(process, LEN as u64).expect("it lives");
        let part = parts.iter().find(|part| part.path == name).expect("it is mapped");
        assert_eq!(part.at, at as u64..at as u64 + LEN as u64);
        let touched = at as u64 + LEN as u64 / 2 + 4096;
        let present = Present::of(process).expect("this process");
        let (mut scanned, mut read) = (Vec::new(), Vec::new());
        let told = present.scan(&part.at, &mut |range| scanned.push(range));
        present.read(&part.at, |range| read.push(range)).expect("told");
        let pages = |ranges: &[Range<u64>]| -> Vec<u64> {
            ranges.iter().flat_map(|range| range.clone().step_by(4096)).collect()
        };
        assert!(pages(&read).contains(&touched) && pages(&read).len() <= 16, "{read:?}");
        match told {
            Ok(()) => assert_eq!(pages(&scanned), pages(&read)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(ENOTTY)),
        }
        // SAFETY: the mapping above.
        unsafe { munmap(at, LEN) }.expect("it was mapped");
    }
}
