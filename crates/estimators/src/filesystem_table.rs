//! The file systems of Linux, as far as it matters here what they do.
//!
//! They are known by name where mountinfo is at hand (proc_pid_mountinfo(5)), and by number where a
//! file is (statfs(2), linux/magic.h and the file systems' own). Of what is not listed nothing is
//! known.

/// Traits of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traits(u8);

impl Traits {
    const NONE: Traits = Traits(0);
    const STORES: Traits = Traits(1);
    const REMOTE: Traits = Traits(2);
    const IN_MEMORY: Traits = Traits(4);
    const MADE_UP: Traits = Traits(8);
    const QUIET: Traits = Traits(16);

    const fn and(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }

    const fn has(self, other: Traits) -> bool {
        self.0 & other.0 != 0
    }

    /// True if a regular file of size 0 is empty. Where files are calls to a driver or server,
    /// queues and events have that size as well, and a read takes something out of them.
    pub const fn stores(self) -> bool {
        self.has(Traits::STORES)
    }

    /// True if the file system asks a server for each name that the kernel does not know.
    pub const fn is_remote(self) -> bool {
        self.has(Traits::REMOTE)
    }

    /// The file system lies in memory, and remembers no name that is not there.
    pub const fn is_in_memory(self) -> bool {
        self.has(Traits::IN_MEMORY)
    }

    /// The file system's files are calls into the kernel, or requests to a daemon.
    pub const fn is_made_up(self) -> bool {
        self.has(Traits::MADE_UP)
    }

    /// True if closing a duplicate of a descriptor has no effect: it has no `f_op->flush`, or
    /// (f2fs, mqueue) one that first checks that the process itself did what it undoes.
    pub const fn is_quiet(self) -> bool {
        self.has(Traits::QUIET)
    }
}

/// Bytes of the longest name that is listed.
const NAME_BYTES: usize = 12;

/// Name, NULs behind it, and number; 0: the same as another's, or none. (An array, so that the
/// agent has nothing to relocate.)
struct Kind([u8; NAME_BYTES], u32, Traits);

const fn kind(name: &str, number: u32, traits: Traits) -> Kind {
    let (name, mut bytes, mut at) = (name.as_bytes(), [0; NAME_BYTES], 0);
    while at < name.len() {
        bytes[at] = name[at];
        at += 1;
    }
    Kind(bytes, number, traits)
}

const DISK: Traits = Traits::STORES.and(Traits::QUIET);
const SHARE: Traits = Traits::STORES.and(Traits::REMOTE);
const MEMORY: Traits = Traits::IN_MEMORY.and(Traits::QUIET);
const KERNEL: Traits = Traits::MADE_UP.and(Traits::QUIET);

static KINDS: [Kind; 67] = [
    kind("ext4", 0xef53, DISK),
    kind("ext3", 0, DISK),
    kind("ext2", 0, DISK),
    kind("xfs", 0x5846_5342, DISK),
    kind("btrfs", 0x9123_683e, DISK),
    kind("f2fs", 0xf2f5_2010, DISK),
    kind("bcachefs", 0xca45_1a4e, DISK),
    kind("zfs", 0x2fc1_2fc1, DISK),
    kind("jfs", 0x3153_464a, DISK),
    kind("nilfs2", 0x3434, DISK),
    kind("vfat", 0x4d44, DISK),
    kind("msdos", 0, DISK),
    kind("exfat", 0x2011_bab0, DISK),
    kind("ntfs3", 0x7366_746e, DISK),
    kind("udf", 0x1501_3346, DISK),
    kind("squashfs", 0x7371_7368, Traits::STORES),
    kind("erofs", 0xe0f5_e1e2, Traits::STORES),
    kind("iso9660", 0x9660, Traits::STORES),
    kind("overlay", OVERLAY, DISK),
    kind("tmpfs", 0x0102_1994, MEMORY.and(Traits::STORES)),
    kind("ramfs", 0x8584_58f6, MEMORY.and(Traits::STORES)),
    kind("rootfs", 0, MEMORY),
    kind("devtmpfs", 0, MEMORY),
    kind("hugetlbfs", 0x9584_58f6, MEMORY),
    kind("mqueue", 0x1980_0202, MEMORY.and(Traits::MADE_UP)),
    kind("devpts", 0x1cd1, Traits::IN_MEMORY.and(Traits::MADE_UP)),
    kind("fuse", 0x6573_5546, Traits::REMOTE),
    kind("virtiofs", 0, Traits::REMOTE),
    kind("9p", 0x0102_1997, Traits::REMOTE),
    kind("nfs", 0x6969, SHARE),
    kind("nfs4", 0, SHARE),
    kind("cifs", 0xff53_4d42, SHARE),
    kind("smb3", 0xfe53_4d42, SHARE),
    kind("ceph", 0x00c3_6400, SHARE),
    kind("afs", 0x5346_414f, SHARE),
    // The kernel's own AFS.
    kind("afs", 0x6b41_4653, SHARE),
    kind("lustre", 0x0bd0_0bd0, SHARE),
    kind("gpfs", 0x4750_4653, SHARE),
    kind("proc", 0x9fa0, KERNEL),
    kind("sysfs", 0x6265_6572, KERNEL),
    kind("cgroup", 0x0027_e0eb, KERNEL),
    kind("cgroup2", 0x6367_7270, KERNEL),
    kind("debugfs", 0x6462_6720, KERNEL),
    kind("tracefs", 0x7472_6163, KERNEL),
    kind("securityfs", 0x7363_6673, KERNEL),
    kind("configfs", 0x6265_6570, KERNEL),
    kind("efivarfs", 0xde5e_81e4, KERNEL),
    kind("bpf", 0xcafe_4a11, KERNEL),
    kind("nsfs", 0x6e73_6673, KERNEL),
    kind("pidfs", 0x5049_4446, KERNEL),
    kind("fusectl", 0x6573_5543, Traits::MADE_UP),
    kind("pstore", 0x6165_676c, Traits::MADE_UP),
    kind("binfmt_misc", 0x4249_4e4d, Traits::MADE_UP),
    kind("autofs", 0x0187, Traits::MADE_UP),
    kind("selinuxfs", 0xf97c_ff8c, Traits::MADE_UP),
    kind("smackfs", 0x4341_5d53, Traits::MADE_UP),
    kind("apparmorfs", 0x5a3c_69f0, Traits::MADE_UP),
    kind("resctrl", 0x0765_5821, Traits::MADE_UP),
    kind("rpc_pipefs", 0x6759_6969, Traits::MADE_UP),
    kind("nfsd", 0x6e66_7364, Traits::MADE_UP),
    kind("binder", 0x6c6f_6f70, Traits::MADE_UP),
    kind("xenfs", 0xabba_1974, Traits::MADE_UP),
    kind("openpromfs", 0x9fa1, Traits::MADE_UP),
    kind("usbdevfs", 0x9fa2, Traits::MADE_UP),
    // The kernel has internal mounts of these: files without an inode of their own, anonymous
    // memory, and buffers shared with devices.
    kind("anon_inodefs", 0x0904_1934, Traits::QUIET),
    kind("secretmem", 0x5345_434d, Traits::QUIET),
    kind("dmabuf", 0x444d_4142, Traits::QUIET),
];

/// The number of overlayfs, which may lie over any of the others.
pub const OVERLAY: u32 = 0x794c_7630;

/// Traits of the file systems of this number (`f_type` of statfs(2), of which 32 bits count).
pub fn by_number(number: u64) -> Traits {
    let number = number as u32;
    let of = KINDS.iter().find(|kind| kind.1 == number && number != 0);
    of.map_or(Traits::NONE, |kind| kind.2)
}

/// Traits of the file systems of this name. The name of `fuse.TYPE` is its first part.
pub fn by_name(name: &[u8]) -> Traits {
    let name = name.split(|&byte| byte == b'.').next().unwrap_or_default();
    let is = |kind: &&Kind| {
        let (front, rest) = kind.0.split_at(name.len().min(NAME_BYTES));
        front == name && rest.iter().all(|&byte| byte == 0)
    };
    KINDS.iter().find(is).map_or(Traits::NONE, |kind| kind.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_found_by_name_and_by_number() {
        for (name, number) in [("ext2", 0xef53), ("nfs4", 0x6969), ("anon_inodefs", 0x0904_1934)] {
            assert_eq!(by_name(name.as_bytes()), by_number(number));
            assert_ne!(by_number(number), Traits::NONE);
        }
        assert!(by_name(b"fuse.sshfs").is_remote() && !by_name(b"fuseblk.x").is_remote());
        assert!(by_number(0xffff_ffff_ff53_4d42).stores(), "signed numbers of CIFS");
        for unknown in [&b""[..], b"ext", b"ext44", b"a_name_that_is_longer"] {
            assert_eq!(by_name(unknown), Traits::NONE);
        }
        assert_eq!(by_number(0), Traits::NONE);
    }

    #[test]
    fn numbers_are_different() {
        for (at, kind) in KINDS.iter().enumerate() {
            let again = KINDS[at + 1..].iter().any(|other| other.1 == kind.1 && kind.1 != 0);
            assert!(!again, "{:x}", kind.1);
        }
    }
}
