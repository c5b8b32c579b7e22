//! The tree that a body starts from: everything that commits stumble over.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, IFlags, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};

use crate::attribute_steps::list_bytes;
use crate::other_owners::{OTHER, OTHERS_MODE};
use crate::random_names::{NAMES, Random};

/// Directories that are tried to be made, and other entries.
const DIRECTORIES: u64 = 14;
const ENTRIES: u64 = 60;

/// Time in the past that all entries get.
const OLD: i64 = 1_000_000_000;

/// Fills the working directory, and `other` on another file system. Run by root, the entries belong
/// to user `owner`, and some to other users.
pub fn prepare(seed: u64, other: &Path, owner: u32) {
    let mut random = Random::new(seed);
    let is_root = rustix::process::geteuid().is_root();
    fill(&mut random, Path::new("."), is_root.then_some(owner));
    fill(&mut random, other, is_root.then_some(owner));
}

fn fill(random: &mut Random, root: &Path, owner: Option<u32>) {
    for _ in 0..DIRECTORIES {
        let _ = fs::create_dir(root.join(random.plain_path()));
    }
    for _ in 0..ENTRIES {
        // A name may be taken, or below a file: then the entry is left out.
        let _ = add_entry(random, root);
    }
    let mut all = Vec::new();
    collect(root, &mut all);
    for path in &all {
        if let Some(owner) = owner.filter(|_| path != root) {
            let _ = lchown(path, Some(owner), Some(owner));
        }
        // Only where its directory is sticky: a file of another user that an ordinary user renames
        // belongs to that user after the commit (docs/guide/try.md).
        let is_held = path.parent() == Some(root) && has_one_name(path);
        let may_give = owner.is_some_and(|owner| owner == 0 || is_held);
        decorate(random, path, may_give);
    }
    if owner.is_some_and(|owner| owner != 0) {
        let sticky = rustix::fs::chmodat(CWD, root, Mode::from_raw_mode(0o1777), AtFlags::empty());
        sticky.expect("it is ours");
    }
    // Times last, from the leaves up, since every other change sets them.
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 5 };
    for path in all.iter().rev() {
        let last_modification = time(OLD + random.below(1000) as i64);
        let times = Timestamps { last_access: time(OLD), last_modification };
        let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
    // Only at the top: a directory of the lower tree that has such an entry below it cannot be
    // renamed in a try (docs/guide/try.md).
    for path in all.iter().filter(|path| path.parent() == Some(root)) {
        match random.below(24) {
            _ if !has_one_name(path) => {}
            0 | 1 => set_flags(path, IFlags::IMMUTABLE),
            2 => set_flags(path, IFlags::APPEND),
            _ => {}
        }
    }
}

/// True if an entry has no name but this one.
fn has_one_name(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir() || found.nlink() == 1)
}

/// Removes everything below a directory, also what is immutable or append-only.
pub fn clear(root: &Path) {
    let mut all = Vec::new();
    collect(root, &mut all);
    all.iter().for_each(|path| set_flags(path, IFlags::empty()));
    for path in all.iter().skip(1).rev() {
        let removed = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir(path),
            _ => fs::remove_file(path),
        };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// Sets the attributes of chattr(1), where the file system has them and the user may.
fn set_flags(path: &Path, flags: IFlags) {
    let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, open, Mode::empty()) else { return };
    let both = IFlags::IMMUTABLE | IFlags::APPEND;
    if let Ok(has) = rustix::fs::ioctl_getflags(&file)
        && has & both != flags
    {
        let _ = rustix::fs::ioctl_setflags(&file, has.difference(both) | flags);
    }
}

fn add_entry(random: &mut Random, root: &Path) -> std::io::Result<()> {
    let path = root.join(random.plain_path());
    match random.below(12) {
        0 => symlink(random.plain_path(), path),
        1 => symlink(format!("../{}", random.one_of(&NAMES)), path),
        2 | 3 => fs::hard_link(root.join(random.plain_path()), path),
        4 => rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .map_err(Into::into),
        5 => {
            let file = fs::File::create_new(path)?;
            file.set_len(1 << 21)?;
            rustix::io::pwrite(&file, b"behind a hole", 1 << 20)?;
            Ok(())
        }
        _ => {
            let mut file = fs::File::create_new(path)?;
            std::io::Write::write_all(&mut file, &random.bytes(9000))
        }
    }
}

/// Everything below a directory, and the directory itself first.
fn collect(path: &Path, all: &mut Vec<std::path::PathBuf>) {
    all.push(path.to_owned());
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        let mut names: Vec<_> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        names.sort();
        names.iter().for_each(|name| collect(name, all));
    }
}

/// Gives an entry attributes, and another owner if `may_give`, sometimes.
fn decorate(random: &mut Random, path: &Path, may_give: bool) {
    let Ok(found) = path.symlink_metadata() else { return };
    let list = list_bytes(&[
        (1, 7, u32::MAX),
        (2, 5, 65534),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ]);
    let choice = random.below(12);
    let owner = random.one_of(&[0, 65534, OTHER]);
    // Their owner may search and list all directories: a try cannot look into one that its command
    // gives itself these rights to (docs/guide/try.md).
    let modes =
        if found.is_dir() { [0o755, 0o2775, 0o1777, 0o751] } else { [0o600, 0o755, 0o664, 0o444] };
    let mode = random.one_of(&modes);
    if found.is_symlink() {
        if may_give && choice == 0 {
            let _ = lchown(path, Some(owner), None);
        }
        return;
    }
    // A file system may lack some of these; the tree is then without them, both times.
    let _ = match choice {
        0 => rustix::fs::setxattr(path, "user.one", b"as prepared", XattrFlags::empty()),
        1 if found.is_dir() => {
            rustix::fs::setxattr(path, "system.posix_acl_default", &list, XattrFlags::empty())
        }
        1 => rustix::fs::setxattr(path, "system.posix_acl_access", &list, XattrFlags::empty()),
        2 if may_give => {
            let (owner, group) = (Uid::from_raw(owner), Gid::from_raw(2000));
            rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::empty())
        }
        // A file of another user that all may write to.
        5 if may_give && found.is_file() => {
            let (other, all) = (Some(Uid::from_raw(OTHER)), Mode::from_raw_mode(OTHERS_MODE));
            let given = rustix::fs::chownat(CWD, path, other, None, AtFlags::empty());
            given.and_then(|()| rustix::fs::chmodat(CWD, path, all, AtFlags::empty()))
        }
        3 | 4 if path != Path::new(".") => {
            rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
        }
        _ => Ok(()),
    };
}
