//! Table of FUSE nodes and the inodes of the source that they stand for.
//!
//! A node holds an `O_PATH` descriptor: it survives renames, costs no open file on the source's
//! side, and keeps the source from giving the inode's number to another file. A node's id is the
//! source's inode number wherever that is unambiguous, so that programs see the same numbers
//! through the share.
//!
//! Invariant: one (device, inode) of the source has at most one node, and a node lives from the
//! first lookup that the kernel was told of until the kernel has forgotten as many as it was told.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::INodeNo;
use rustix::fs::{AtFlags, Stat, statat};

/// Inode of the source.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) fd: OwnedFd,
}

impl Node {
    /// The inode's attributes now.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(statat(&self.fd, c"", AtFlags::EMPTY_PATH)?)
    }

    /// A path for the calls that take no `O_PATH` descriptor. Not for symbolic links, which it
    /// would follow.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

/// Source device and inode numbers.
type Key = (u64, u64);

#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    key: Key,
    lookups: u64,
}

/// Nodes that the kernel knows.
#[derive(Debug)]
pub(super) struct NodeTable {
    root: Arc<Node>,
    root_key: Key,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<u64, Entry>,
    by_key: HashMap<Key, u64>,
    synthetic: u64,
}

/// Ids at and above this belong to inodes whose number is taken: on another device, or 1, which
/// FUSE keeps for the root.
const SYNTHETIC: u64 = 1 << 63;

impl NodeTable {
    pub(super) fn new(root: OwnedFd) -> io::Result<Self> {
        let root = Arc::new(Node { id: INodeNo::ROOT.0, fd: root });
        let root_key = key(&root.stat()?);
        Ok(Self { root, root_key, table: Mutex::default() })
    }

    pub(super) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The node for an id that came from the kernel; none only if the kernel errs.
    pub(super) fn get(&self, ino: INodeNo) -> Option<Arc<Node>> {
        if ino == INodeNo::ROOT {
            return Some(Arc::clone(&self.root));
        }
        self.lock().by_id.get(&ino.0).map(|entry| Arc::clone(&entry.node))
    }

    /// The node of an inode, made if need be, counted as looked up once more.
    pub(super) fn look_up(&self, fd: OwnedFd, stat: &Stat) -> Arc<Node> {
        let key = key(stat);
        let mut guard = self.lock();
        let table = &mut *guard;
        if let Some(entry) = table.by_key.get(&key).and_then(|id| table.by_id.get_mut(id)) {
            entry.lookups += 1;
            return Arc::clone(&entry.node);
        }
        let natural = key.0 == self.root_key.0 && key.1 > INodeNo::ROOT.0 && key.1 < SYNTHETIC;
        let id = if natural {
            key.1
        } else {
            table.synthetic += 1;
            SYNTHETIC + table.synthetic
        };
        let node = Arc::new(Node { id, fd });
        let entry = Entry { node: Arc::clone(&node), key, lookups: 1 };
        table.by_key.insert(key, id);
        table.by_id.insert(id, entry);
        node
    }

    pub(super) fn forget(&self, ino: INodeNo, lookups: u64) {
        let mut guard = self.lock();
        let table = &mut *guard;
        let Some(entry) = table.by_id.get_mut(&ino.0) else {
            return;
        };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        if entry.lookups == 0 {
            table.by_key.remove(&entry.key);
            table.by_id.remove(&ino.0);
        }
    }

    /// Every id that the kernel knows.
    pub(super) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.lock().by_id.keys().copied().collect();
        ids.push(INodeNo::ROOT.0);
        ids
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock, and panics abort.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

/// Attributes as FUSE wants them.
pub(super) fn attributes(id: u64, stat: &Stat) -> fuser::FileAttr {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    let time = |seconds: i64, nanos: i64| -> SystemTime {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let whole = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
        whole + Duration::from_nanos(nanos as u64)
    };
    fuser::FileAttr {
        ino: INodeNo(id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as i64),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// A file type as FUSE names it; unknown ones (from directories of file systems that do not say) as
/// regular files, which is right until the lookup tells.
pub(super) fn kind(file_type: rustix::fs::FileType) -> fuser::FileType {
    use rustix::fs::FileType as Source;
    match file_type {
        Source::Directory => fuser::FileType::Directory,
        Source::Symlink => fuser::FileType::Symlink,
        Source::Fifo => fuser::FileType::NamedPipe,
        Source::Socket => fuser::FileType::Socket,
        Source::CharacterDevice => fuser::FileType::CharDevice,
        Source::BlockDevice => fuser::FileType::BlockDevice,
        Source::RegularFile | Source::Unknown => fuser::FileType::RegularFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::path::Path;

    fn open(path: &Path) -> OwnedFd {
        openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn hard_links_are_one_node_until_every_lookup_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "x").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        let nodes = NodeTable::new(open(dir.path())).unwrap();
        let stat = rustix::fs::stat(&a).unwrap();
        let first = nodes.look_up(open(&a), &stat);
        let second = nodes.look_up(open(&b), &stat);
        assert_eq!(first.id, second.id);
        assert_eq!(first.id, stat.st_ino);
        nodes.forget(INodeNo(first.id), 1);
        assert!(nodes.get(INodeNo(first.id)).is_some());
        nodes.forget(INodeNo(first.id), 1);
        assert!(nodes.get(INodeNo(first.id)).is_none());
        assert_eq!(nodes.ids(), [1]);
    }

    #[test]
    fn other_devices_get_numbers_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = NodeTable::new(open(dir.path())).unwrap();
        let proc = Path::new("/proc/version");
        let node = nodes.look_up(open(proc), &rustix::fs::stat(proc).unwrap());
        assert!(node.id > SYNTHETIC);
    }
}
