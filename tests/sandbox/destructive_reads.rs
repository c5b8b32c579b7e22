//! Files of which a read removes something: a shadow that guesses wrong leaves them alone.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen,
    Request,
};
use runahead_tests::{Link, Run, available, fixture, scratch, with_stats};

const LONG: Duration = Duration::from_secs(600);

/// A file system with one file of size 0, each read of which returns the next number.
struct Queue {
    reads: Arc<AtomicU64>,
}

fn attributes(ino: INodeNo) -> FileAttr {
    let is_root = ino == INodeNo::ROOT;
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_root { FileType::Directory } else { FileType::RegularFile },
        perm: if is_root { 0o755 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Queue {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "queue" {
            true => reply.entry(&LONG, &attributes(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONG, &attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(format!("{}\n", self.reads.fetch_add(1, Relaxed)).as_bytes());
    }
}

/// Serves until it is dropped.
fn serve() -> Result<(BackgroundSession, Arc<AtomicU64>), String> {
    let dir = scratch().join("queue");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let reads = Arc::new(AtomicU64::new(0));
    let queue = Queue { reads: reads.clone() };
    let session = fuser::spawn_mount(queue, &dir, &Config::default());
    Ok((session.map_err(|e| format!("FUSE cannot be mounted: {e}"))?, reads))
}

#[test]
fn a_shadow_takes_nothing_from_a_queue() {
    let Some(fixture) = available(fixture()) else { return };
    let Some((_session, reads)) = available(serve()) else { return };
    let queue = scratch().join("queue/queue");
    assert!(queue.exists(), "its name is in memory");
    let queue = queue.to_str().expect("a plain path");
    fixture.reset();
    let run = fixture.run_program("wrong_guess", Link::Dynamic, &[queue]);
    let (outcome, stats) = with_stats(&run, &[], Run::run);
    assert_eq!(outcome.text(), "others 0\n", "{stats:#}");
    assert!(stats["syncs"]["count"].as_u64() > Some(0), "no shadow ran: {stats:#}");
    assert_eq!(reads.load(Relaxed), 0, "reads of a file that the program never opens");
    assert!(std::fs::read(queue).is_err() || reads.load(Relaxed) > 0, "it counts");
}
