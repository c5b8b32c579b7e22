//! Where the machine puts memory that it has no room for.

use std::fs::{metadata, read_to_string};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// Whether memory may be swapped out to a device that is waited for, and that many pages can be asked of at a time
/// (`/proc/swaps`, swapon(8)). Compressed memory (`zram`) is not waited for. A disk that turns has its heads moved for each page
/// that is read out of turn, where the kernel reads what lies together.
pub(crate) fn are_worth_it() -> bool {
    read_to_string("/proc/swaps")
        .is_ok_and(|text| files(&text).any(|file| !turns(Path::new(&file))))
}

/// The files and devices that memory is swapped out to and waited for.
fn files(swaps: &str) -> impl Iterator<Item = String> {
    // The first line says what is in the columns.
    let lines = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    lines.filter(|file| !file.starts_with("/dev/zram")).map(unescaped)
}

/// The name that the kernel writes with spaces, tabs, newlines and backslashes as three octal digits each.
fn unescaped(name: &str) -> String {
    let mut parts = name.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3).unwrap_or(("", part));
        text.extend(u8::from_str_radix(digits, 8).map(char::from));
        text.push_str(rest);
    }
    text
}

/// What a read takes on average on a device with heads that are moved, in milliseconds, at least.
const SEEK_MS: u64 = 4;
/// Reads that tell what one takes.
const ENOUGH: u64 = 100;

/// The device that `file` is or lies on turns, as the kernel says, and has been as slow since it is there: disks of virtual
/// machines often say so, and do not. False if nothing is said.
fn turns(file: &Path) -> bool {
    let Ok(about) = metadata(file) else { return false };
    let device = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
    let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // What is said of a partition is said of the disk.
    let said = |name| {
        let of = |at: &str| read_to_string(format!("{device}{at}/{name}")).ok();
        of("").or_else(|| of("/.."))
    };
    said("queue/rotational").is_some_and(|text| text.trim() == "1")
        && said("stat").is_none_or(|text| is_slow(&text))
}

/// A device of which the kernel has counted this (Documentation/block/stat.rst) takes as long for a read as heads do that
/// are moved; or nothing is known of it.
fn is_slow(stat: &str) -> bool {
    let counts: Vec<u64> =
        stat.split_ascii_whitespace().filter_map(|count| count.parse().ok()).collect();
    match counts[..] {
        [reads, _, _, ms, ..] => reads < ENOUGH || ms / reads >= SEEK_MS,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_memory_is_not_waited_for() {
        let head = "Filename                                Type            Size\n";
        let swaps = |lines: &str| files(&format!("{head}{lines}")).collect::<Vec<_>>();
        assert!(swaps("").is_empty() && swaps("/dev/zram0 partition 4194300 0 100\n").is_empty());
        let both = swaps("/dev/zram0 partition 4194300 0 100\n/dev/sda2 partition 999 0 -2\n");
        assert_eq!(both, ["/dev/sda2"]);
        assert_eq!(swaps("/a\\040b\\134 file 524284 1244 -2\n"), ["/a b\\"]);
    }

    #[test]
    fn slow_is_what_takes_as_long_as_heads_do() {
        assert!(!is_slow("  131274 3262 8000000 120000 5 5 5 5 0 1 1"));
        assert!(is_slow("  131274 3262 8000000 1900000 5 5 5 5 0 1 1"));
        assert!(is_slow("5 0 8 1") && is_slow(""), "nothing is known");
    }

    #[test]
    fn what_nothing_is_said_of_does_not_turn() {
        assert!(!turns(Path::new("/nowhere")) && !turns(Path::new("/proc/swaps")));
    }
}
