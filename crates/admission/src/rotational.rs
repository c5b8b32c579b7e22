//! Rotational disks.

use std::fs::read_to_string;

/// Smallest mean read time of a rotational device, in milliseconds.
const SEEK_MS: u64 = 4;
/// Reads that tell what one takes.
const ENOUGH: u64 = 100;

/// True if the kernel calls a block device rotational, and its reads have taken as long since it is
/// there: it calls disks of virtual machines so that are not. False if the kernel says nothing.
pub fn is_rotational(major: u32, minor: u32) -> bool {
    let device = format!("/sys/dev/block/{major}:{minor}");
    // What is said of a partition is said of the disk.
    let said = |name| {
        let of = |at: &str| read_to_string(format!("{device}{at}/{name}")).ok();
        of("").or_else(|| of("/.."))
    };
    said("queue/rotational").is_some_and(|text| text.trim() == "1")
        && said("stat").is_none_or(|text| is_slow(&text))
}

/// A device of which the kernel has counted this (Documentation/block/stat.rst) takes as long for a
/// read as heads do that are moved; or nothing is known of it.
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
    fn slow_is_what_takes_as_long_as_heads_do() {
        assert!(!is_slow("  131274 3262 8000000 120000 5 5 5 5 0 1 1"));
        assert!(is_slow("  131274 3262 8000000 1900000 5 5 5 5 0 1 1"));
        assert!(is_slow("5 0 8 1") && is_slow(""), "nothing is known");
    }

    #[test]
    fn a_device_of_which_nothing_is_said_is_not_rotational() {
        assert!(!is_rotational(0, 1));
    }
}
