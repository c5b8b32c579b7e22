//! Where the machine puts memory that it has no room for.

/// Whether memory may be swapped out to a device that is waited for (`/proc/swaps`, swapon(8)). Compressed memory
/// (`zram`) is not.
pub(crate) fn are_waited_for() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| names_device(&text))
}

fn names_device(swaps: &str) -> bool {
    // The first line says what is in the columns.
    swaps.lines().skip(1).any(|line| !line.is_empty() && !line.starts_with("/dev/zram"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_memory_is_not_waited_for() {
        let head = "Filename                                Type            Size\n";
        let swaps = |lines: &str| names_device(&format!("{head}{lines}"));
        assert!(!swaps("") && !swaps("/dev/zram0 partition 4194300 0 100\n"));
        assert!(swaps("/dev/zram0 partition 4194300 0 100\n/dev/sda2 partition 999 0 -2\n"));
        assert!(swaps("/swapfile file 524284 1244 -2\n"));
    }
}
