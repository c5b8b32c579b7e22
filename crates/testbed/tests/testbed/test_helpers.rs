//! Helpers of the integration tests: places, skipping, reading without the page cache, counting
//! leftovers.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const BLOCK: usize = 4096;

/// Skips the test, with the reason, where the machine lacks what it needs.
#[macro_export]
macro_rules! need {
    ($probe:expr) => {
        if let Err(missing) = $probe {
            eprintln!("skipped: {missing}");
            return;
        }
    };
}

/// Block `index` of a test file holds nothing but its number, repeated.
pub fn block(index: u64) -> Vec<u8> {
    index.to_le_bytes().repeat(BLOCK / 8)
}

/// Writes a file of numbered blocks and flushes it.
pub fn write_blocks(path: &Path, count: u64) {
    let content: Vec<u8> = (0..count).flat_map(block).collect();
    std::fs::write(path, content).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// Reads a numbered block past the page cache and checks it.
pub fn read_direct(path: &Path, index: u64) {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let mut space = vec![0u8; 2 * BLOCK];
    let skip = space.as_ptr().align_offset(BLOCK);
    let buffer = &mut space[skip..skip + BLOCK];
    let read = rustix::io::pread(&file, &mut *buffer, index * BLOCK as u64).unwrap();
    assert_eq!(read, BLOCK);
    assert!(buffer == block(index), "block {index} holds something else");
}

/// Time to read all of `indices` at once.
pub fn read_parallel(path: &Path, indices: impl Iterator<Item = u64>) -> Duration {
    let indices: Vec<u64> = indices.collect();
    let barrier = std::sync::Barrier::new(indices.len() + 1);
    std::thread::scope(|scope| {
        for index in indices {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                read_direct(path, index);
            });
        }
        barrier.wait();
        Instant::now()
    })
    .elapsed()
}

/// Panics if anything is still mounted at `dir`, or attached for it.
pub fn assert_nothing_left(dir: &Path, loops_before: &[String]) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.canonicalize().unwrap();
    let at = format!(" {} ", dir.display());
    assert!(!table.contains(&at), "still mounted: {table}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let new: Vec<_> = our_loops().into_iter().filter(|l| !loops_before.contains(l)).collect();
    assert!(new.is_empty(), "still attached: {new:?}");
    assert!(matches!(
        runahead_testbed::Storage::find(&dir),
        Err(runahead_testbed::Error::NotUp(_))
    ));
}

/// Files behind the loop devices that disks of this crate are attached to.
pub fn our_loops() -> Vec<String> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    devices
        .filter_map(|device| {
            std::fs::read_to_string(device.ok()?.path().join("loop/backing_file")).ok()
        })
        .filter(|file| file.contains("runahead-testbed"))
        .collect()
}

/// Lock for one test with mounts at a time: others would disturb its timing, its caches, and the
/// count of loop devices.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
