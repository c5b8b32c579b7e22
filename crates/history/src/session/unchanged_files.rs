//! File systems without stored files, and whether a file is still the one that was recorded.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::{Attributes, PathState};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, StatxTimestamp, openat2, statx,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use runahead_admission::mount_table::Mounts;

/// Longest time for examining files when the command has ended: they were just used, so their
/// attributes are cached.
const EXAMINE_TIMEOUT: Duration = Duration::from_secs(2);

/// The file systems of a session.
pub(super) struct SessionFilesystems {
    /// Mount points, longest first, and true for each that holds no stored files. Read on first
    /// use: most commands never wait, and never need it.
    mounted: OnceLock<Vec<(Vec<u8>, bool)>>,
    excluded: Vec<Vec<u8>>,
    started: i64,
}

impl SessionFilesystems {
    /// Makes the table for a command that starts now. No access in the directories `excluded` is
    /// recorded.
    pub(super) fn now(excluded: Vec<Vec<u8>>) -> Self {
        SessionFilesystems { mounted: OnceLock::new(), excluded, started: file_clock() }
    }

    #[cfg(test)]
    fn of(mounted: Vec<(Vec<u8>, bool)>) -> Self {
        SessionFilesystems {
            mounted: sorted(mounted).into(),
            ..SessionFilesystems::now(Vec::new())
        }
    }

    fn mounted(&self) -> &[(Vec<u8>, bool)] {
        self.mounted.get_or_init(|| {
            let mut mounted = Mounts::now().points();
            mounted.extend(self.excluded.iter().map(|path| (path.clone(), true)));
            sorted(mounted)
        })
    }

    /// True if no read of `path` waits for storage. Links are not followed.
    pub(super) fn is_unstored(&self, path: &[u8]) -> bool {
        let lies_in = |point: &[u8]| {
            let rest = path.strip_prefix(point.strip_suffix(b"/").unwrap_or(point));
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        self.mounted()
            .iter()
            .find(|(point, _)| lies_in(point))
            .is_some_and(|(_, unstored)| *unstored)
    }

    /// Examines a path while the command runs, as far as it is cached. Never waits.
    pub(super) fn examine(&self, path: &[u8]) -> PathState {
        if self.is_unstored(path) {
            return PathState::Unstored;
        }
        let mask = StatxFlags::BASIC_STATS;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = match open_cached(path) {
            Ok(place) => statx(place, c"", flags, mask),
            Err(Errno::AGAIN) => return PathState::Unknown,
            Err(_) => return PathState::Absent,
        };
        let Ok(found) = found else { return PathState::Unknown };
        if !StatxFlags::from_bits_retain(found.stx_mask).contains(mask) {
            return PathState::Unknown;
        }
        let time = |at: StatxTimestamp| nanoseconds(at.tv_sec, at.tv_nsec.into());
        match time(found.stx_ctime) >= self.started {
            true => PathState::Written,
            false => PathState::Same(Attributes {
                size: found.stx_size,
                mtime: time(found.stx_mtime),
                inode: found.stx_ino,
            }),
        }
    }

    /// Returns a function that examines a path once the command has ended, and tells files changed
    /// since its start from others.
    pub(super) fn found_after(&self) -> impl FnMut(&[u8]) -> PathState {
        let until = Instant::now() + EXAMINE_TIMEOUT;
        let mut late = false;
        move |path| {
            if self.is_unstored(path) {
                return PathState::Unstored;
            }
            late = late || Instant::now() > until;
            if late {
                return PathState::Unknown;
            }
            let Ok(meta) = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(path))) else {
                return PathState::Absent;
            };
            if nanoseconds(meta.ctime(), meta.ctime_nsec()) >= self.started {
                return PathState::Written;
            }
            PathState::Same(attributes(&meta))
        }
    }
}

/// Sorts mount points so that the one mounted last hides earlier ones.
fn sorted(mut mounted: Vec<(Vec<u8>, bool)>) -> Vec<(Vec<u8>, bool)> {
    mounted.reverse();
    mounted.sort_by_key(|(point, _)| std::cmp::Reverse(point.len()));
    mounted.dedup_by(|later, first| later.0 == first.0);
    mounted
}

/// Attributes of a file that exists.
pub(super) fn attributes(meta: &std::fs::Metadata) -> Attributes {
    let mtime = nanoseconds(meta.mtime(), meta.mtime_nsec());
    Attributes { size: meta.size(), mtime, inode: meta.ino() }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// True if the file at `path`, just looked up, still has this size and time of change. Its inode
/// number does not count: a copy in an unpacked image serves as well. Never waits: `None` if the
/// attributes are not cached.
pub(super) fn is_same(path: &[u8], expected: &Attributes) -> Option<bool> {
    let place = open_cached(path).ok()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::SIZE | StatxFlags::MTIME;
    let stat = statx(place, c"", flags, mask).ok()?;
    StatxFlags::from_bits_retain(stat.stx_mask).contains(mask).then(|| {
        let mtime = nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into());
        (stat.stx_size, mtime) == (expected.size, expected.mtime)
    })
}

/// True if the cache knows that there is no such file; false if it does not know.
pub(super) fn is_known_absent(path: &Path) -> bool {
    open_cached(path.as_os_str().as_bytes()).is_err_and(|errno| errno == Errno::NOENT)
}

/// Opens `path` (`O_PATH`) if all of it is in the directory entry cache.
fn open_cached(path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED)
}

/// The clock with which file systems stamp changes, in nanoseconds since 1970.
fn file_clock() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_decides() {
        let mounts = [("/", false), ("/dev", true), ("/dev/disk", false), ("/a b", true)];
        let mut mounts: Vec<_> = mounts.map(|(p, u)| (p.as_bytes().to_vec(), u)).into();
        mounts.push((b"/hidden".to_vec(), true));
        mounts.push((b"/hidden".to_vec(), false));
        let places = SessionFilesystems::of(mounts);
        for (path, unstored) in [
            ("/etc/passwd", false),
            ("/", false),
            ("/dev", true),
            ("/dev/null", true),
            ("/device", false),
            ("/dev/disk/x", false),
            ("/a b/c", true),
            ("/hidden/x", false),
        ] {
            assert_eq!(places.is_unstored(path.as_bytes()), unstored, "{path}");
        }
    }

    #[test]
    fn a_file_is_the_same_until_it_changes() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "one").expect("ours");
        let known = attributes(&path.metadata().expect("there"));
        let bytes = path.as_os_str().as_bytes();
        assert_eq!(is_same(bytes, &known), Some(true));
        std::fs::write(&path, "three").expect("ours");
        assert_eq!(is_same(bytes, &known), Some(false));
        assert_eq!(is_same(b"/no/such/file", &known), None);
    }

    #[test]
    fn files_changed_since_the_start_are_found_written() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "x").expect("ours");
        std::thread::sleep(Duration::from_millis(20));
        let places = SessionFilesystems::of(vec![(b"/".to_vec(), false)]);
        std::fs::write(&new, "x").expect("ours");
        let mut look = places.found_after();
        let mut at = |path: &Path| look(path.as_os_str().as_bytes());
        assert!(matches!(at(&old), PathState::Same(_)));
        assert_eq!(at(&new), PathState::Written);
        assert_eq!(at(&dir.path().join("none")), PathState::Absent);
    }
}
