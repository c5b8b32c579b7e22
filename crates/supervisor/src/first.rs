//! The first program: nobody hints it, so it is brought in while it starts.
//!
//! It has been executed, but of its file only the head is in memory for sure; its code, and the
//! libraries, are mapped and would be waited for page by page, which nothing can intercept.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::libc;
use runahead_abi::record::Header;
use runahead_abi::{ChunkIndex, HintKind, Identity, Record};
use runahead_prefetch::{Client, Completion, Prefetcher, Sink};

use crate::sandbox::CACHESTAT;

/// A start that takes longer has waited for storage. It takes 1 to 2 ms.
const SLOW: Duration = Duration::from_millis(8);
/// Of a program that is in memory, at least one page in so many is there.
const RESIDENT: u64 = 4;
/// Files up to this size may have been read whole by the exec itself.
const SMALL: u64 = 1 << 20;

/// Whether the program at `path`, whose exec took `elapsed`, has to come from storage.
pub(crate) fn is_cold(path: &Path, elapsed: Duration) -> bool {
    elapsed > SLOW || File::open(path).is_ok_and(|file| is_mostly_absent(&file))
}

fn is_mostly_absent(file: &File) -> bool {
    let size = file.metadata().map_or(0, |meta| meta.len());
    if size <= SMALL {
        return false;
    }
    let range = [0u64, size];
    // struct cachestat: the pages that are cached come first.
    let mut seen = [0u64; 5];
    // SAFETY: reads two words and writes five, all ours.
    let asked =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), seen.as_mut_ptr(), 0) };
    asked == 0 && seen[0] * RESIDENT < size.div_ceil(4096)
}

/// Has all that executing `path` reads brought into memory, for as long as the result lives.
pub(crate) fn bring_in(prefetcher: &Prefetcher, path: &Path) -> Option<Client> {
    let path = std::path::absolute(path).ok()?;
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
    let client = prefetcher.client(Arc::new(Untold));
    client.submit(&Record { kind, header, path });
    Some(client)
}

/// There is no process yet that could be told what has come.
struct Untold;

impl Sink for Untold {
    fn done(&self, _: Identity) {}

    fn forget(&self, _: Identity, _: u32) {}

    fn expect(&self, _: Identity, _: u32) -> bool {
        false
    }

    fn completed(&self, _: &Completion) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_not_absent_and_what_was_dropped_is() {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = place.path().join("program");
        std::fs::write(&path, vec![1; 4 << 20]).expect("a file");
        assert!(!is_cold(&path, Duration::ZERO));
        assert!(is_cold(&path, 2 * SLOW));
        let file = File::open(&path).expect("the file");
        file.sync_all().expect("written");
        // SAFETY: advice on a descriptor that is open.
        let advised =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
        assert!(is_cold(&path, Duration::ZERO));
        assert!(!is_cold(Path::new("/nowhere"), Duration::ZERO));
    }
}
