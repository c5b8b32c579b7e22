//! Making recorded accesses, many at a time.
//!
//! Invariant: threads exist and hold their buffers before the start, so that the start costs the
//! command nothing; each access is made once, in the order of the list as far as that has a meaning
//! in parallel.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use rustix::fs::OFlags;

use crate::error::Error;
use crate::measure::oracle::access_list::{Access, AccessKind, PIECE};

/// Bytes of stack of each of hundreds of threads, which make system calls only.
const STACK: usize = 64 << 10;

/// Threads that wait for the start.
pub struct Replay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    list: Arc<Vec<Access>>,
    next: AtomicUsize,
    start: Barrier,
}

impl Replay {
    /// Makes `threads` threads, which wait.
    pub fn prepare(list: Arc<Vec<Access>>, threads: usize) -> Result<Self, Error> {
        let start = Barrier::new(threads + 1);
        let shared = Arc::new(Shared { list, next: AtomicUsize::new(0), start });
        let work = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("oracle".into())
                .stack_size(STACK)
                .spawn(move || shared.work())
        };
        let threads: io::Result<Vec<_>> = (0..threads).map(work).collect();
        let threads = threads.map_err(Error::system("start threads of", "/proc/self"))?;
        Ok(Self { shared, threads })
    }

    /// Lets them go.
    pub fn start(&self) {
        self.shared.start.wait();
    }

    /// Stops them; accesses that have not begun are not made. Returns how many accesses were begun.
    pub fn stop(self) -> usize {
        let all = self.shared.list.len();
        let begun = self.shared.next.swap(all, Ordering::Relaxed).min(all);
        for thread in self.threads {
            // A thread does not panic: a failure in it is an access not made.
            let _ = thread.join();
        }
        begun
    }
}

impl Shared {
    fn work(&self) {
        let mut buffer = vec![0; PIECE as usize];
        self.start.wait();
        while let Some(access) = self.list.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            // The command itself meets what cannot be read.
            let _ = make(access, &mut buffer);
        }
    }
}

/// Makes an access. On a network file system the arrival of data or entries makes the kernel's copy
/// of the attributes out of date (the access time), and the command would wait for them once more.
/// So they are asked for again after everything else; where they are still known, that costs a
/// microsecond.
fn make(access: &Access, buffer: &mut [u8]) -> io::Result<()> {
    match access.what {
        AccessKind::Look => fs::symlink_metadata(&access.path).map(drop),
        AccessKind::List => {
            fs::read_dir(&access.path)?.for_each(drop);
            fs::symlink_metadata(&access.path).map(drop)
        }
        AccessKind::Read { offset, len } => {
            let file = open(access)?;
            let room = buffer.len().min(len as usize);
            file.read_exact_at(&mut buffer[..room], offset)?;
            file.metadata().map(drop)
        }
    }
}

fn open(access: &Access) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let with = |flags: OFlags| {
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&access.path)
    };
    // Access times are left to the command; only the owner of a file has the choice.
    match with(flags | OFlags::NOATIME) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => with(flags),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_access_is_made_even_if_some_fail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, [7; 5000]).unwrap();
        let read = Access { path, what: AccessKind::Read { offset: 4096, len: 904 } };
        let mut buffer = [0; 8192];
        make(&read, &mut buffer).unwrap();
        assert_eq!((buffer[903], buffer[904]), (7, 0));

        let absent = Access { path: dir.path().join("none"), what: AccessKind::Look };
        let list = Access { path: dir.path().into(), what: AccessKind::List };
        let all = Arc::new(vec![absent, list, read]);
        let replay = Replay::prepare(Arc::clone(&all), 4).unwrap();
        replay.start();
        while replay.shared.next.load(Ordering::Relaxed) < all.len() {
            std::thread::yield_now();
        }
        assert_eq!(replay.stop(), all.len());
    }
}
