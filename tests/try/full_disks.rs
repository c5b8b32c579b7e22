//! Random bodies whose commits find a full disk: they are made as a whole, or change nothing and
//! say so.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use runahead_tests::{Seed, scratch};

use crate::body_place::{Body, Place, differences, is_kept, is_refusal};
use crate::stopped_commits::Trees;

/// Most blocks, and most entries, that a full disk still has room for.
const ROOM: u64 = 24;

/// Size of a block of a file system in memory.
const BLOCK: u64 = 4096;

/// Place of bodies on two small file systems, which this thread and what it starts can see.
pub struct SmallDisks {
    disks: [PathBuf; 2],
    pub place: Place,
}

/// Mounts a file system in memory, or changes the size of it. Root may.
fn mount(at: &Path, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).expect("no zero byte");
    let at = text(std::os::unix::ffi::OsStrExt::as_bytes(at.as_os_str()));
    let (kind, options) = (text(b"tmpfs"), text(options.as_bytes()));
    // SAFETY: all texts end with a zero byte, and outlive the call.
    let done = unsafe {
        let (kind, at) = (kind.as_ptr(), at.as_ptr());
        libc::mount(kind, at, kind, flags, options.as_ptr().cast())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `work` in a thread that sees mounts of its own.
pub fn with_own_mounts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let separate = || {
        // SAFETY: the call takes a number, and concerns this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "root may");
        mount(Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, "").expect("root may");
        work()
    };
    std::thread::scope(|scope| scope.spawn(separate).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl SmallDisks {
    /// Mounts the disks. [`with_own_mounts`] does so for a thread alone.
    pub fn new(name: &str, as_user: bool, is_state_apart: bool) -> Self {
        let disks = ["one", "two"].map(|disk| scratch().join(format!("full-{name}-{disk}")));
        for disk in &disks {
            std::fs::create_dir_all(disk).expect("it is ours");
            mount(disk, 0, "").expect("root may");
        }
        let place = Place::at(&disks[0], &disks[1], as_user, is_state_apart);
        SmallDisks { disks, place }
    }

    /// Leaves a disk as much room as it uses, and some `blocks` and `entries`.
    fn shrink(&self, disk: usize, blocks: u64, entries: u64) {
        let found = rustix::fs::statvfs(&self.disks[disk]).expect("it is mounted");
        let size = (found.f_blocks - found.f_bfree + blocks) * found.f_frsize.max(BLOCK);
        let entries = found.f_files - found.f_ffree + entries;
        let options = format!("size={size},nr_inodes={entries}");
        mount(&self.disks[disk], libc::MS_REMOUNT, &options).expect("root may");
    }

    fn enlarge(&self) {
        for disk in &self.disks {
            mount(disk, libc::MS_REMOUNT, "size=4g,nr_inodes=1m").expect("root may");
        }
    }

    /// Differences that a commit leaves for which a disk has no room, or has; empty without any.
    pub fn compare(&self, body: Body) -> String {
        let mut random = Seed::of(body.seed ^ 0x6675_6c6c);
        let place = &self.place;
        let before = place.prepare(body.seed);
        let done = place.run_directly(body).trees;
        let trees = Trees { before: &before, done: &done };
        place.prepare(body.seed);
        place.run_tried(body);
        if !place.has_try() {
            return String::new();
        }
        self.shrink(random.below(2) as usize, random.below(ROOM), random.below(ROOM));
        let said = place.tried(&["commit"]);
        let is_done = said.ends_with("status Some(0)\n");
        let (left, status) = (place.look(), place.tried(&["status"]));
        self.enlarge();
        let mut found = String::new();
        if !is_kept(&said) {
            let expected = if is_done { trees.done } else { trees.before };
            found = differences("expected", expected, "on a full disk", &left);
            if !is_done && !said.contains("nothing was committed") {
                found += "it was not said that nothing was committed\n";
            }
        }
        if !is_done {
            let task = if is_kept(&said) { 0 } else { random.below(2) as usize };
            let task = ["commit", "undo"][task];
            let expected = if task == "commit" { trees.done } else { trees.before };
            let later = place.tried(&[task]);
            if task == "commit" && is_refusal(&later) {
                return found;
            }
            if !later.ends_with("status Some(0)\n") {
                found += &format!("{task} with room: {later}");
            }
            found += &differences("expected", expected, task, &place.look());
        }
        if found.is_empty() { found } else { format!("{said}{status}{found}") }
    }
}
