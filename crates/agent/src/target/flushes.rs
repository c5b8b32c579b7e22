//! Files whose close is an event: what was written is sent to a server, and an error of that is returned.
//!
//! A fork copies every descriptor, and whoever has a copy closes it: on FUSE, NFS and CIFS that is a flush from a
//! foreign process, which may wait, and may take the error that the program's own close(2) should have
//! returned. There is no way around it: the kernel gives a process the first 64 descriptors of another
//! or shares all of them (`CLOSE_RANGE_UNSHARE` leaves out those above), and lets go of none without a flush. So there is
//! no shadow while such a file is open for writing.

use linux_raw_sys::general as k;

use crate::lock::Lock;
use crate::sys::{self, AT_FDCWD, Fd};

/// Mounts that are remembered.
const MOUNTS: usize = 8;

/// Mounts of files that were open for writing, and whether a close is an event there; the oldest are
/// forgotten.
pub(super) struct Mounts {
    known: [(u64, bool); MOUNTS],
    next: usize,
}

/// See the module's text.
pub(super) struct Flushes(Lock<Mounts>);

impl Flushes {
    pub(super) const fn new() -> Self {
        Flushes(Lock::new(Mounts { known: [(0, false); MOUNTS], next: 0 }))
    }

    /// A file is open for writing whose close is an event.
    pub(super) fn are_due(&self) -> bool {
        /// Numbers that are looked at; a process with higher ones has no shadow.
        const MOST: Fd = 1 << 16;
        // The kernel tells how many there are.
        let Ok(open) = sys::statx_path(c"/proc/self/fd".as_ptr() as u64, k::STATX_SIZE) else {
            return true;
        };
        let mut left = open.stx_size;
        for fd in 0..MOST {
            if left == 0 {
                return false;
            }
            let Ok(flags) = sys::fcntl(fd, k::F_GETFL, 0) else { continue };
            left -= 1;
            let flags = flags as u32;
            if flags & k::O_ACCMODE != k::O_RDONLY && flags & k::O_PATH == 0 && self.flushes(fd) {
                return true;
            }
        }
        true
    }

    /// `fd`, open for writing, is of such a file.
    fn flushes(&self, fd: Fd) -> bool {
        let Ok(stat) = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_MNT_ID) else { return true };
        if u32::from(stat.stx_mode) & k::S_IFMT != k::S_IFREG {
            return false;
        }
        let mount = stat.stx_mnt_id;
        let known = self.0.try_with(|mounts| {
            if let Some(&(_, flushes)) = mounts.known.iter().find(|known| known.0 == mount) {
                return flushes;
            }
            let flushes = !is_quiet(mount, fd);
            mounts.known[mounts.next] = (mount, flushes);
            mounts.next = (mounts.next + 1) % MOUNTS;
            flushes
        });
        known.unwrap_or(true)
    }
}

/// To close a file on this mount, on which `fd` is open, concerns nobody.
fn is_quiet(mount: u64, fd: Fd) -> bool {
    // No server is asked.
    match type_of_mount(mount) {
        Some(quiet) => quiet,
        // One that this process does not see: memory without a name (memfd_create(2)), or of another
        // name space, from which it was handed in.
        None => {
            sys::filesystem_type(fd).is_ok_and(|kind| QUIET_NUMBERS.contains(&(kind & 0xffff_ffff)))
        }
    }
}

/// File systems that do nothing at a close (`f_op->flush`), by their names.
const QUIET: [&[u8]; 26] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"bcachefs",
    b"zfs",
    b"tmpfs",
    b"ramfs",
    b"devtmpfs",
    b"hugetlbfs",
    b"overlay",
    b"vfat",
    b"msdos",
    b"exfat",
    b"ntfs3",
    b"jfs",
    b"nilfs2",
    b"proc",
    b"sysfs",
    b"cgroup",
    b"cgroup2",
    b"debugfs",
    b"tracefs",
    b"rootfs",
];
/// Of those the likeliest, by their numbers (linux/magic.h).
const QUIET_NUMBERS: [u64; 7] = [
    0x0102_1994, // tmpfs
    0x9584_58f6, // hugetlbfs
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x2fc1_2fc1, // ZFS
    0x794c_7630, // overlay
];

/// Whether a mount is of one of the [`QUIET`]; `None` if it is not to be seen.
fn type_of_mount(mount: u64) -> Option<bool> {
    let path = c"/proc/self/mountinfo".as_ptr() as u64;
    let list = sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0).ok()?;
    let (mut scanner, mut at, mut buf) = (Scanner::new(mount), 0, [0u8; 2048]);
    let mut found = None;
    while found.is_none() {
        let got = sys::pread(list, &mut buf, at).unwrap_or(0);
        if got == 0 {
            break;
        }
        at += got as u64;
        found = buf[..got].iter().find_map(|&byte| scanner.byte(byte));
    }
    let _ = sys::close(list);
    found
}

/// Looks for a mount in mountinfo (proc_pid_mountinfo(5)): its number is the first word of its line, its type the first behind
/// a word that is a dash.
struct Scanner {
    wanted: u64,
    words: u32,
    number: u64,
    /// The type's word is next, or at hand.
    after_dash: bool,
    word: [u8; 16],
    len: usize,
}

impl Scanner {
    fn new(wanted: u64) -> Self {
        Scanner { wanted, words: 0, number: 0, after_dash: false, word: [0; 16], len: 0 }
    }

    /// Takes one byte; whether the mount's type is one of the [`QUIET`], once that is known.
    fn byte(&mut self, byte: u8) -> Option<bool> {
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
            .then(|| word.is_some_and(|word| QUIET.contains(&word)));
        // The root of a mount and its directory, which come earlier, begin with a slash.
        self.after_dash = word == Some(b"-");
        self.words = if byte == b'\n' { 0 } else { self.words + 1 };
        self.len = 0;
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"21 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
        22 21 0:30 / /mnt/a\\040b rw - fuse.sshfs host:/ rw,user_id=0\n\
        23 21 0:31 / /a-very-long-name-indeed-of-a-directory rw - nfs4 host:/export rw\n\
        24 21 0:32 / /sys/fs rw shared:9 - cgroup2 cgroup2 rw\n";

    fn quiet(mount: u64) -> Option<bool> {
        let mut scanner = Scanner::new(mount);
        LIST.iter().find_map(|&byte| scanner.byte(byte))
    }

    #[test]
    fn mounts_are_found_by_their_numbers() {
        let found = [21, 22, 23, 24, 25, 254].map(quiet);
        assert_eq!(found, [Some(true), Some(false), Some(false), Some(true), None, None]);
    }
}
