//! Devices that the machine swaps to.

use std::ffi::OsString;
use std::fs::{metadata, read_to_string};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use runahead_admission::mount_table::unescaped;
use runahead_admission::rotational;

/// True if a swap device is slow enough to be waited for and serves many pages at a time
/// (`/proc/swaps`, swapon(8)). Compressed memory (`zram`) is not waited for. A rotational disk
/// seeks for each page that is read out of order, while the kernel reads neighbours together.
pub(crate) fn any_worth_prefetching() -> bool {
    read_to_string("/proc/swaps").is_ok_and(|text| files(&text).any(|file| !is_rotational(&file)))
}

/// Swap files and devices that are waited for.
fn files(swaps: &str) -> impl Iterator<Item = PathBuf> {
    // The first line names the columns.
    let lines = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    let waited_for = lines.filter(|file| !file.starts_with("/dev/zram"));
    waited_for.map(|file| OsString::from_vec(unescaped(file)).into())
}

/// True if the device that `file` is or lies on is rotational.
fn is_rotational(file: &Path) -> bool {
    let Ok(about) = metadata(file) else { return false };
    let device = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
    rotational::is_rotational(major(device), minor(device))
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
        assert_eq!(both, [Path::new("/dev/sda2")]);
        assert_eq!(swaps("/a\\040b\\134 file 524284 1244 -2\n"), [Path::new("/a b\\")]);
    }

    #[test]
    fn unknown_device_is_not_rotational() {
        assert!(!is_rotational(Path::new("/nowhere")) && !is_rotational(Path::new("/proc/swaps")));
    }
}
