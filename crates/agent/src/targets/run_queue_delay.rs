//! Time that a thread has waited for a processor.
//!
//! Where other processes compute on every processor, a thread that has waited for storage then
//! waits for its turn. Reading ahead could not save that time: it needs a processor itself. The
//! source is run_delay in /proc/pid/schedstat (proc(5)).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_estimators::Micros;

use crate::plane::{self, signal_block};
use crate::sys::{self, AT_FDCWD};

/// Run-queue delay of the process's only thread.
pub(super) struct RunQueueDelay {
    /// Delay at the last check, in nanoseconds.
    seen_ns: AtomicU64,
}

impl RunQueueDelay {
    pub(super) const fn new() -> Self {
        RunQueueDelay { seen_ns: AtomicU64::new(0) }
    }

    /// Resets the delay in a child.
    pub(super) fn start_in_child(&self) {
        self.seen_ns.store(0, Relaxed);
    }

    /// Time that this thread, the only one, has waited for a processor since the last check; 0 if
    /// unknown. The check takes a descriptor for a moment, which another thread could notice.
    pub(super) fn waited(&self) -> Micros {
        if plane::has_threads() {
            return Micros(0);
        }
        // A signal handler could notice the descriptor as well.
        let mask = signal_block::begin();
        let now = run_delay();
        signal_block::end(mask);
        let since = |now: u64| now.saturating_sub(self.seen_ns.swap(now, Relaxed));
        Micros(now.map_or(0, since) / 1000)
    }
}

fn run_delay() -> Option<u64> {
    let path = c"/proc/thread-self/schedstat".as_ptr() as u64;
    let fd = sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0).ok()?;
    let mut text = [0u8; 64];
    let got = sys::pread(fd, &mut text, 0);
    let _ = sys::close(fd);
    second_number(&text[..got.ok()?])
}

/// The second number of a line, between the time on a processor and the number of time slices.
fn second_number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.split(|byte| *byte == b' ').nth(1)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(second_number(b"2871 650 3\n"), Some(650));
        assert_eq!(second_number(b""), None);
        let line = std::fs::read("/proc/thread-self/schedstat").expect("the kernel keeps it");
        assert!(
            second_number(&line).is_some_and(|then| run_delay().is_some_and(|now| now >= then))
        );
    }
}
