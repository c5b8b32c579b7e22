//! Files whose close has an effect: written data is sent to a server, and close(2) returns its
//! errors.
//!
//! A fork copies every descriptor, and every process that has a copy closes it. On FUSE, NFS and
//! CIFS that is a flush from a foreign process. The flush may wait, and may take the error that the
//! program's own close(2) should have returned. It cannot be avoided: the kernel gives a process
//! the first 64 descriptors of another or shares all of them (`CLOSE_RANGE_UNSHARE` leaves out
//! those above), and drops none without a flush. So no shadow is made while such a file is open for
//! writing.

use linux_raw_sys::general as k;
use runahead_estimators::filesystem_table;

use crate::plane;
use crate::shadow::shadow_descriptors;
use crate::spin_lock::Lock;
use crate::sys::{self, AT_FDCWD, Fd};

/// Mounts that are remembered.
const MOUNTS_KNOWN: usize = 8;

/// Mounts of files that were open for writing, and whether a close has an effect there; the oldest
/// entry is replaced.
pub(super) struct KnownMounts {
    known: [(u64, bool); MOUNTS_KNOWN],
    next: usize,
}

/// Finds files that must be flushed at close.
pub(super) struct FlushOnClose(Lock<KnownMounts>);

impl FlushOnClose {
    pub(super) const fn new() -> Self {
        FlushOnClose(Lock::new(KnownMounts { known: [(0, false); MOUNTS_KNOWN], next: 0 }))
    }

    /// True if a file is open for writing whose close has an effect.
    pub(super) fn is_any_open(&self) -> bool {
        const LOOKS: usize = 4;
        // Other threads may open and close descriptors faster than they can be scanned: that counts
        // as true.
        (0..LOOKS).find_map(|_| self.scan_descriptors()).unwrap_or(true)
    }

    /// Looks for such a file. `None`: the scan is incomplete because other threads have opened or
    /// closed descriptors meanwhile.
    fn scan_descriptors(&self) -> Option<bool> {
        /// Free descriptor numbers in a row that are skipped one by one; beyond, the kernel is
        /// asked for the next open one.
        const GAP: Fd = 16;
        /// Gap in a process with threads, which would notice a further descriptor: there the kernel
        /// is asked for the count, and the scan ends after `GAPS`.
        const GAP_OF_THREADS: Fd = 256;
        const GAPS: Fd = 16 * GAP_OF_THREADS;
        let has_threads = plane::has_threads();
        let wide = if has_threads { GAP_OF_THREADS } else { GAP };
        let (mut found, mut fd, mut gap) = (0, 0, 0);
        let mut open = count_descriptors()?;
        while found < open {
            if let Ok(flags) = sys::status_flags(fd) {
                (found, gap) = (found + 1, 0);
                let flags = flags as u32;
                let writes = flags & k::O_ACCMODE != k::O_RDONLY && flags & k::O_PATH == 0;
                if writes && self.flushes_on_close(fd) {
                    return Some(true);
                }
            } else {
                gap += 1;
            }
            fd += 1;
            if gap > 0 && gap % wide == 0 {
                // Another thread may have closed a descriptor. Its next open must get the lowest
                // free number, so none is taken here.
                match has_threads {
                    true if gap < GAPS => open = count_descriptors()?,
                    true => return None,
                    false => match next_open_descriptor(fd) {
                        Some(next) => (fd, gap) = (next, 0),
                        None => return Some(false),
                    },
                }
            }
        }
        Some(false)
    }

    /// True if closing `fd`, which is open for writing, has an effect.
    fn flushes_on_close(&self, fd: Fd) -> bool {
        let Ok(stat) = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_MNT_ID) else { return true };
        if u32::from(stat.stx_mode) & k::S_IFMT != k::S_IFREG {
            return false;
        }
        let mount = stat.stx_mnt_id;
        let known = self.0.try_with(|mounts| {
            if let Some(&(_, flushes)) = mounts.known.iter().find(|known| known.0 == mount) {
                return flushes;
            }
            let flushes = !closes_quietly(mount, fd);
            mounts.known[mounts.next] = (mount, flushes);
            mounts.next = (mounts.next + 1) % MOUNTS_KNOWN;
            flushes
        });
        known.unwrap_or(true)
    }
}

/// Directory that lists the process's descriptors.
const FD_DIRECTORY: &core::ffi::CStr = c"/proc/thread-self/fd";

/// Number of open descriptors, from the kernel.
fn count_descriptors() -> Option<u64> {
    sys::statx_path(FD_DIRECTORY.as_ptr() as u64, k::STATX_SIZE).ok().map(|told| told.stx_size)
}

/// The lowest open descriptor from `from`, from the kernel's list. Takes a descriptor for a moment.
fn next_open_descriptor(from: Fd) -> Option<Fd> {
    /// Directory offset of the first descriptor, behind `.` and `..`.
    const DOTS: i64 = 2;
    let flags = k::O_RDONLY | k::O_DIRECTORY | k::O_CLOEXEC;
    let list = sys::openat2(AT_FDCWD, FD_DIRECTORY.as_ptr() as u64, flags, 0, 0).ok()?;
    // Room for one or two entries.
    let mut buf = [0u8; 64];
    let got = sys::lseek(list, i64::from(from) + DOTS, k::SEEK_SET)
        .and_then(|_| sys::getdents(list, &mut buf))
        .unwrap_or(0);
    let _ = sys::close(list);
    let mut next = None;
    shadow_descriptors::each_entry(&buf[..got], |_, name, _| {
        let number = core::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        next = next.or(number);
    });
    next
}

/// True if closing a file on this mount, on which `fd` is open, has no effect outside this process.
fn closes_quietly(mount: u64, fd: Fd) -> bool {
    // mountinfo is in memory: no server is asked.
    match mount_closes_quietly(mount) {
        Some(quiet) => quiet,
        // This process does not see the mount: the kernel's own (anonymous memory, message queues),
        // or one of another name space, from which the descriptor was passed.
        None => {
            sys::filesystem_type(fd).is_ok_and(|kind| filesystem_table::by_number(kind).is_quiet())
        }
    }
}

/// True if the mount's file system needs no flush at close; `None` if the mount is not listed.
fn mount_closes_quietly(mount: u64) -> Option<bool> {
    let path = c"/proc/thread-self/mountinfo".as_ptr() as u64;
    let list = sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0).ok()?;
    let (mut scanner, mut at, mut buf) = (MountinfoScanner::new(mount), 0, [0u8; 2048]);
    let mut found = None;
    while found.is_none() {
        let got = sys::pread(list, &mut buf, at).unwrap_or(0);
        if got == 0 {
            break;
        }
        at += got as u64;
        found = buf[..got].iter().find_map(|&byte| scanner.push(byte));
    }
    let _ = sys::close(list);
    found
}

/// Finds a mount in mountinfo (proc_pid_mountinfo(5)): its number is the first word of its line,
/// its type the first word behind a dash.
struct MountinfoScanner {
    wanted: u64,
    words: u32,
    number: u64,
    /// True if the type is the next or current word.
    after_dash: bool,
    word: [u8; 16],
    len: usize,
}

impl MountinfoScanner {
    fn new(wanted: u64) -> Self {
        MountinfoScanner { wanted, words: 0, number: 0, after_dash: false, word: [0; 16], len: 0 }
    }

    /// Takes one byte. Returns whether the mount closes quietly, once its type is known.
    fn push(&mut self, byte: u8) -> Option<bool> {
        if !matches!(byte, b' ' | b'\n') {
            if let Some(place) = self.word.get_mut(self.len) {
                *place = byte;
            }
            self.len += 1;
            return None;
        }
        let word = self.word.get(..self.len);
        if self.words == 0 {
            let text = word.and_then(|word| core::str::from_utf8(word).ok());
            self.number = text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        }
        let answer = (self.after_dash && self.number == self.wanted)
            .then(|| word.is_some_and(|word| filesystem_table::by_name(word).is_quiet()));
        // The root of a mount and its directory, which come earlier, begin with a slash.
        self.after_dash = word == Some(b"-");
        self.words = if byte == b'\n' { 0 } else { self.words + 1 };
        self.len = 0;
        answer
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    const LIST: &[u8] = b"21 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
        22 21 0:30 / /mnt/a\\040b rw - fuse.sshfs host:/ rw,user_id=0\n\
        23 21 0:31 / /a-very-long-name-indeed-of-a-directory rw - nfs4 host:/export rw\n\
        24 21 0:32 / /sys/fs rw shared:9 - cgroup2 cgroup2 rw\n";

    fn quiet(mount: u64) -> Option<bool> {
        let mut scanner = MountinfoScanner::new(mount);
        LIST.iter().find_map(|&byte| scanner.push(byte))
    }

    #[test]
    fn mounts_are_found_by_their_numbers() {
        let found = [21, 22, 23, 24, 25, 254].map(quiet);
        assert_eq!(found, [Some(true), Some(false), Some(false), Some(true), None, None]);
    }

    /// A message queue is a regular file to statx(2), on a mount that is not listed.
    #[test]
    fn mounts_of_the_kernel_itself_close_quietly() {
        let name = std::format!("flushes-{}\0", std::process::id());
        let (name, small) = (name.as_ptr() as u64, [0u64, 1, 16, 0, 0, 0, 0, 0]);
        let flags = u64::from(k::O_CREAT | k::O_RDWR);
        let at = small.as_ptr() as u64;
        let make = |nr: u32, args: [u64; 6]| {
            // SAFETY: text and numbers are of this function; memory is only read.
            sys::check(unsafe { sys::raw(nr.into(), args) })
        };
        let queue = make(k::__NR_mq_open, [name, flags, 0o600, at, 0, 0]);
        let _ = make(k::__NR_mq_unlink, [name, 0, 0, 0, 0, 0]);
        let memory = make(k::__NR_memfd_create, [name, 0, 0, 0, 0, 0]);
        let flushes = FlushOnClose::new();
        // Kernels without message queues are skipped.
        for fd in [queue, memory].into_iter().flatten() {
            assert!(!flushes.flushes_on_close(fd as Fd), "{fd}");
            sys::close(fd as Fd).expect("ours");
        }
    }

    #[test]
    fn numbers_far_apart_are_found() {
        let file =
            sys::openat2(AT_FDCWD, c"/dev/null".as_ptr() as u64, k::O_RDWR, 0, 0).expect("there");
        let high = sys::duplicate_above(file, 900).expect("below the limit");
        assert_eq!(next_open_descriptor(high), Some(high));
        assert!(
            next_open_descriptor(high - 100).is_some_and(|fd| (high - 100..=high).contains(&fd))
        );
        sys::close(file).and(sys::close(high)).expect("ours");
    }
}
