//! Prefetch of programs that are not cached, while they start.
//!
//! After an exec only the head of the program's file is cached for sure. Its code and its libraries
//! are mapped, and would be waited for page by page, which cannot be intercepted. So the program is
//! read with all that it needs as soon as a process is about to execute it. That holds for the
//! command itself, for which there is no hint, and for each exec that a process asks to have
//! followed (`abi::control_protocol`). That process need not have joined.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::libc;
use runahead_abi::hint_record::Header;
use runahead_abi::swapped_memory::PAGE_BYTES;
use runahead_abi::{HintKind, Record};
use runahead_estimators::{ChunkIndex, Identity};
use runahead_prefetch::{Client, Completion, Prefetcher, Sink};

use crate::shadow_sandbox::CACHESTAT;

/// Time of an exec from which on it has waited for storage; without a wait it takes 1 to 2 ms.
const SLOW_START: Duration = Duration::from_millis(8);
/// A program counts as resident if at least one page in this many is in memory.
const RESIDENT_SHARE: u64 = 4;
/// Size up to which the exec itself may have read a file whole.
const SMALL_FILE: u64 = 1 << 20;

/// True if the program at `path`, whose exec took `elapsed`, has to come from storage.
pub(crate) fn is_cold(path: &Path, elapsed: Duration) -> bool {
    elapsed > SLOW_START || File::open(path).is_ok_and(|file| is_mostly_absent(&file))
}

fn is_mostly_absent(file: &File) -> bool {
    let size = file.metadata().map_or(0, |meta| meta.len());
    if size <= SMALL_FILE {
        return false;
    }
    let range = [0u64, size];
    // The first word of `struct cachestat` is the number of cached pages.
    let mut seen = [0u64; 5];
    // SAFETY: reads two words and writes five, all of this function.
    let asked =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), seen.as_mut_ptr(), 0) };
    asked == 0 && seen[0] * RESIDENT_SHARE < size.div_ceil(PAGE_BYTES)
}

/// Prefetches the programs of a session.
#[derive(Default)]
pub struct ProgramPrefetch(Mutex<Option<Client>>);

impl ProgramPrefetch {
    /// Prefetches all that executing `path` reads, until [`ProgramPrefetch::cancel`]. Does nothing
    /// if `device`, on which it lies, serves one request at a time
    /// ([`runahead_admission::single_spindle`]). Runs in the I/O process.
    pub(crate) fn prefetch(&self, prefetcher: &Prefetcher, path: &Path, device: (u32, u32)) {
        if prefetcher.is_sole(device) {
            return;
        }
        let mut client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let client = client.get_or_insert_with(|| prefetcher.client(Arc::new(IgnoreCompletions)));
        submit(client, path);
    }

    /// Cancels what is not read yet.
    pub(crate) fn cancel(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn submit(client: &Client, path: &Path) {
    let Ok(path) = std::path::absolute(path) else { return };
    let kind = HintKind::Program;
    let path = path.as_os_str().as_bytes();
    let header = Header {
        kind: kind as u32,
        run: 0,
        position: 0,
        key: Identity::ROOT.join(path).chunk(ChunkIndex(u64::MAX)).raw(),
        offset: 0,
        length: 0,
        flags: 0,
        path_len: path.len() as u32,
    };
    client.submit(&Record { kind, header, path });
}

/// Sink for prefetches of no particular process: completions are ignored.
struct IgnoreCompletions;

impl Sink for IgnoreCompletions {
    fn done(&self, _: Identity) {}

    fn forget(&self, _: Identity, _: u32) {}

    fn expect(&self, _: Identity, _: u32) -> bool {
        false
    }

    fn completed(&self, _: &Completion) {}
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn written_file_is_cached_and_dropped_file_is_cold() {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = place.path().join("program");
        std::fs::write(&path, vec![1; 4 << 20]).expect("a file");
        assert!(!is_cold(&path, Duration::ZERO));
        assert!(is_cold(&path, 2 * SLOW_START));
        let file = File::open(&path).expect("the file");
        file.sync_all().expect("written");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
        assert!(is_cold(&path, Duration::ZERO));
        assert!(!is_cold(Path::new("/nowhere"), Duration::ZERO));
    }
}
