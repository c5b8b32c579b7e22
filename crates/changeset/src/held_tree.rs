//! Directories that are held by descriptors, and entries that are reached through these.
//!
//! A commit changes entries by such a descriptor and a name without a slash. A directory that
//! another process moves meanwhile, or replaces by a symbolic link, leads it nowhere else. No
//! symbolic link is ever followed: [`HeldTree::entry`] fails with `ELOOP` where one is met.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Statx,
    StatxFlags, Timestamps,
};
use rustix::io::Errno;

use crate::widened_modes::WidenedModes;

/// Flags of a descriptor by which entries of a directory are reached.
const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Permissions of a directory's owner that reading and changing its entries takes.
const ALL: u32 = 0o700;

/// Directory that is held by a descriptor.
#[derive(Debug, Clone)]
pub(crate) struct HeldDirectory(Rc<Held>);

#[derive(Debug)]
struct Held {
    descriptor: OwnedFd,
    /// Path by which it was found, for messages.
    path: PathBuf,
    /// Own metadata, if the permissions are widened as long as the directory is held.
    narrow: RefCell<Option<Metadata>>,
    /// Notes of what is widened.
    modes: Rc<WidenedModes>,
    /// Directory above, if that is widened for this one.
    _above: Option<HeldDirectory>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(own) = self.narrow.take() {
            // It belonged to this user.
            let _ = set_mode_of(self.descriptor.as_fd(), own.mode());
            self.modes.note_narrowed(&own);
        }
    }
}

/// Path of a descriptor, for calls that have no form for descriptors of paths.
fn descriptor_path(descriptor: BorrowedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn set_mode_of(descriptor: BorrowedFd, mode: u32) -> io::Result<()> {
    let path = descriptor_path(descriptor);
    Ok(rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?)
}

/// Opens what lies below a directory. Fails with `ELOOP` at a symbolic link.
fn open_below(directory: BorrowedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let open = |resolve| rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve);
    let opened = match open(ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH) {
        // In a try the agent refuses the second flag. No path here has a `..`.
        Err(Errno::NOSYS) => open(ResolveFlags::NO_SYMLINKS),
        opened => opened,
    };
    Ok(opened?)
}

impl HeldDirectory {
    /// Directory `path`, which `above` has or leads to.
    fn below(above: &HeldDirectory, descriptor: OwnedFd, path: PathBuf) -> Self {
        let (narrow, modes) = (RefCell::default(), above.0.modes.clone());
        let above = Some(above.clone());
        HeldDirectory(Rc::new(Held { descriptor, path, narrow, modes, _above: above }))
    }

    /// Path by which it was found.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }

    /// Metadata of the directory.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        fs::metadata(descriptor_path(self.descriptor()))
    }

    /// Attributes that only statx(2) has.
    pub(crate) fn statx(&self, wanted: StatxFlags) -> io::Result<Statx> {
        Ok(rustix::fs::statx(self.descriptor(), "", AtFlags::EMPTY_PATH, wanted)?)
    }

    /// Fails unless the effective user has these rights.
    pub(crate) fn access(&self, rights: Access) -> io::Result<()> {
        Ok(rustix::fs::accessat(self.descriptor(), ".", rights, AtFlags::EACCESS)?)
    }

    /// Entry of this directory.
    pub(crate) fn entry(&self, name: &OsStr) -> HeldEntry {
        HeldEntry { directory: self.clone(), name: name.to_owned() }
    }

    /// Sorted names of all entries.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.descriptor(), ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(opened)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Sets the times of the directory.
    pub(crate) fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        let path = descriptor_path(self.descriptor());
        Ok(rustix::fs::utimensat(CWD, path, times, AtFlags::empty())?)
    }

    /// Lets the owner read, write and search the directory until it is no longer held. Root, and a
    /// user who does not own it, change nothing.
    fn widen(&self) -> io::Result<()> {
        let found = self.metadata()?;
        let user = rustix::process::geteuid();
        if !user.is_root() && found.uid() == user.as_raw() && found.mode() & ALL != ALL {
            self.0.modes.note_widened(self.path(), &found, found.mode() | ALL);
            set_mode_of(self.descriptor(), found.mode() | ALL)?;
            self.0.narrow.replace(Some(found));
        }
        Ok(())
    }

    /// Runs `work`, which changes the directory's entries. If the user owns the directory and may
    /// not write to it, the permissions are widened meanwhile: the try may have changed them.
    pub(crate) fn change_entries<T>(
        &self,
        mut work: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        match work() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let found = self.metadata()?;
                let is_own = found.uid() == rustix::process::geteuid().as_raw();
                if !is_own || found.mode() & ALL == ALL {
                    return Err(error);
                }
                self.0.modes.note_widened(self.path(), &found, found.mode() | ALL);
                set_mode_of(self.descriptor(), found.mode() | ALL)?;
                let done = work();
                set_mode_of(self.descriptor(), found.mode())?;
                self.0.modes.note_narrowed(&found);
                done
            }
            done => done,
        }
    }
}

/// Entry of a directory that is held.
#[derive(Debug, Clone)]
pub(crate) struct HeldEntry {
    directory: HeldDirectory,
    name: OsString,
}

impl HeldEntry {
    /// Directory that has the entry.
    pub(crate) fn directory(&self) -> &HeldDirectory {
        &self.directory
    }

    /// Name in the directory.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Path by which the directory was found, with the name.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Path through the held directory, for calls that take no descriptor of a directory. The last
    /// component may be a symbolic link, so that the call must not follow it.
    pub(crate) fn path_through_descriptor(&self) -> PathBuf {
        descriptor_path(self.directory.descriptor()).join(&self.name)
    }

    /// Entry with another name of the same directory.
    pub(crate) fn beside(&self, name: OsString) -> HeldEntry {
        HeldEntry { directory: self.directory.clone(), name }
    }

    /// Metadata of the entry. Of a symbolic link, its own.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        fs::symlink_metadata(self.path_through_descriptor())
    }

    /// True if the entry exists.
    pub(crate) fn exists(&self) -> bool {
        self.metadata().is_ok()
    }

    /// Opens a regular file, and nothing else.
    pub(crate) fn open(&self, flags: OFlags) -> io::Result<File> {
        // Opening a FIFO must not wait.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let directory = self.directory.descriptor();
        let opened = File::from(rustix::fs::openat(directory, &self.name, flags, Mode::empty())?);
        match opened.metadata()?.is_file() {
            true => Ok(opened),
            false => Err(Errno::INVAL.into()),
        }
    }

    /// Makes an empty file, which only the user may read and write.
    pub(crate) fn create_file(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(self.directory.descriptor(), &self.name, flags, mode)?.into())
    }

    /// Makes a directory, which only the user may read, write and search.
    pub(crate) fn create_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self.directory.descriptor(), &self.name, Mode::RWXU)?)
    }

    /// Makes a FIFO or a socket.
    pub(crate) fn create_node(&self, kind: FileType) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::mknodat(self.directory.descriptor(), &self.name, kind, mode, 0)?)
    }

    /// Makes a symbolic link with this text.
    pub(crate) fn create_symlink(&self, text: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(text, self.directory.descriptor(), &self.name)?)
    }

    /// Makes a further name of the entry.
    pub(crate) fn link_to(&self, new: &HeldEntry) -> io::Result<()> {
        let (from, to) = (self.directory.descriptor(), new.directory.descriptor());
        Ok(rustix::fs::linkat(from, &self.name, to, &new.name, AtFlags::empty())?)
    }

    /// Renames the entry. What is at the new name is replaced.
    pub(crate) fn rename_to(&self, new: &HeldEntry) -> io::Result<()> {
        let (from, to) = (self.directory.descriptor(), new.directory.descriptor());
        Ok(rustix::fs::renameat(from, &self.name, to, &new.name)?)
    }

    /// Renames the entry. Fails if something is at the new name.
    pub(crate) fn rename_to_new(&self, new: &HeldEntry) -> io::Result<()> {
        self.rename_with(new, RenameFlags::NOREPLACE)
    }

    /// Exchanges two entries.
    pub(crate) fn exchange_with(&self, other: &HeldEntry) -> io::Result<()> {
        self.rename_with(other, RenameFlags::EXCHANGE)
    }

    fn rename_with(&self, new: &HeldEntry, flags: RenameFlags) -> io::Result<()> {
        let (from, to) = (self.directory.descriptor(), new.directory.descriptor());
        Ok(rustix::fs::renameat_with(from, &self.name, to, &new.name, flags)?)
    }

    /// Attributes that only statx(2) has.
    pub(crate) fn statx(&self, wanted: StatxFlags) -> io::Result<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::statx(self.directory.descriptor(), &self.name, flags, wanted)?)
    }

    /// Fails unless the effective user has these rights. Of a symbolic link, to the link itself.
    pub(crate) fn access(&self, rights: Access) -> io::Result<()> {
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        let directory = self.directory.descriptor();
        Ok(rustix::fs::accessat(directory, &self.name, rights, flags)?)
    }

    /// Removes an entry that is no directory.
    pub(crate) fn remove_file(&self) -> io::Result<()> {
        let directory = self.directory.descriptor();
        Ok(rustix::fs::unlinkat(directory, &self.name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        let directory = self.directory.descriptor();
        Ok(rustix::fs::unlinkat(directory, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Text of a symbolic link.
    pub(crate) fn read_link(&self) -> io::Result<OsString> {
        use std::os::unix::ffi::OsStringExt;
        let text = rustix::fs::readlinkat(self.directory.descriptor(), &self.name, Vec::new())?;
        Ok(OsString::from_vec(text.into_bytes()))
    }

    /// Sets times.
    pub(crate) fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        let directory = self.directory.descriptor();
        Ok(rustix::fs::utimensat(directory, &self.name, times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets owner and group.
    pub(crate) fn set_owners(&self, user: u32, group: u32) -> io::Result<()> {
        let directory = self.directory.descriptor();
        let user = Some(rustix::fs::Uid::from_raw(user));
        let group = Some(rustix::fs::Gid::from_raw(group));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(directory, &self.name, user, group, flags)?)
    }

    /// Sets permissions. Fails for a symbolic link.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = self.directory.descriptor();
        let opened = rustix::fs::openat(directory, &self.name, flags, Mode::empty())?;
        set_mode_of(opened.as_fd(), mode)
    }

    /// Sets wider permissions for a while. `found` is the metadata.
    pub(crate) fn widen(&self, found: &Metadata, wide: u32) -> io::Result<()> {
        self.directory.0.modes.note_widened(&self.path(), found, wide);
        self.set_mode(wide)
    }

    /// Sets the permissions that the entry had before it was widened: those of `found`.
    pub(crate) fn narrow(&self, found: &Metadata) -> io::Result<()> {
        self.set_mode(found.mode())?;
        self.directory.0.modes.note_narrowed(found);
        Ok(())
    }

    /// Sets permissions, unless the entry has them: only its owner may.
    pub(crate) fn change_mode(&self, mode: u32) -> io::Result<()> {
        match (self.metadata()?.mode() ^ mode) & 0o7777 {
            0 => Ok(()),
            _ => self.set_mode(mode),
        }
    }

    /// Holds the directory that the entry is.
    pub(crate) fn hold(&self) -> io::Result<HeldDirectory> {
        let opened = open_below(self.directory.descriptor(), Path::new(&self.name), HOLD)?;
        Ok(HeldDirectory::below(&self.directory, opened, self.path()))
    }

    /// Holds the directory that the entry is, widened as long as it is held.
    pub(crate) fn hold_widened(&self) -> io::Result<HeldDirectory> {
        let held = self.hold()?;
        held.widen()?;
        Ok(held)
    }

    /// Removes the entry with everything below it.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        let found = match self.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if !found.is_dir() {
            return self.remove_file();
        }
        let directory = self.hold_widened()?;
        for name in directory.names()? {
            directory.entry(&name).remove_all()?;
        }
        self.remove_directory()
    }
}

/// Tree of directories below one that is held.
#[derive(Debug)]
pub(crate) struct HeldTree {
    root: HeldDirectory,
    /// True if directories are widened as long as they are held.
    is_widened: bool,
    /// Directory that was asked for last, by its path below the root. Entries of one directory are
    /// mostly asked for in a row.
    last: RefCell<Option<(PathBuf, HeldDirectory)>>,
}

impl HeldTree {
    /// Path of the directory that the tree lies below.
    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    fn open(path: &Path, is_widened: bool, modes: Rc<WidenedModes>) -> io::Result<Self> {
        let descriptor = rustix::fs::openat(CWD, path, HOLD, Mode::empty())?;
        let (path, narrow) = (path.to_owned(), RefCell::default());
        let root = HeldDirectory(Rc::new(Held { descriptor, path, narrow, modes, _above: None }));
        Ok(HeldTree { root, is_widened, last: RefCell::new(None) })
    }

    /// Everything below the root directory. What is widened is noted in `modes`.
    pub(crate) fn whole(modes: Rc<WidenedModes>) -> io::Result<Self> {
        HeldTree::open(Path::new("/"), false, modes)
    }

    /// Everything below the root directory. What this user owns is widened while it is held, and
    /// noted where `other` notes it.
    pub(crate) fn whole_widened(other: &HeldTree) -> io::Result<Self> {
        HeldTree::open(Path::new("/"), true, other.root.0.modes.clone())
    }

    /// Everything below a directory of a try, whose owner this user is.
    pub(crate) fn of_try(path: &Path, modes: Rc<WidenedModes>) -> io::Result<Self> {
        HeldTree::open(path, true, modes)
    }

    /// Directory at a path, which is absolute in terms of the tree.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<HeldDirectory> {
        let below = path.strip_prefix("/").unwrap_or(path);
        if below == Path::new("") {
            return Ok(self.root.clone());
        }
        if let Some((last, held)) = &*self.last.borrow()
            && last == below
        {
            return Ok(held.clone());
        }
        // Directories above it are widened until another one is asked for.
        let last = self.last.take();
        let held = self.open_directory(below)?;
        drop(last);
        self.last.replace(Some((below.to_owned(), held.clone())));
        Ok(held)
    }

    fn open_directory(&self, below: &Path) -> io::Result<HeldDirectory> {
        let path = self.root.path().join(below);
        let held = match open_below(self.root.descriptor(), below, HOLD) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && self.is_widened => {
                let start = self.root.clone();
                return below
                    .iter()
                    .try_fold(start, |above, name| above.entry(name).hold_widened());
            }
            opened => HeldDirectory::below(&self.root, opened?, path),
        };
        if self.is_widened {
            held.widen()?;
        }
        Ok(held)
    }

    /// Entry at a path, which is absolute in terms of the tree. Its directory must exist, and is
    /// held until another one is asked for.
    pub(crate) fn entry(&self, path: &Path) -> io::Result<HeldEntry> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        Ok(self.directory(path.parent().unwrap_or(path))?.entry(name))
    }

    /// Forgets the directory that was asked for last: it may have been removed or replaced.
    pub(crate) fn forget(&self) {
        self.last.take();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn symbolic_links_are_not_followed() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("it is there");
        fs::create_dir_all(real.join("a/b")).expect("made");
        fs::write(real.join("a/f"), "x").expect("written");
        symlink("a", real.join("link")).expect("made");
        symlink("f", real.join("a/g")).expect("made");
        let tree = HeldTree::whole(Rc::default()).expect("held");
        assert!(tree.entry(&real.join("a/b/c")).is_ok());
        for path in ["link/b/c", "link/b"] {
            let error = tree.entry(&real.join(path)).expect_err("a link").raw_os_error();
            assert_eq!(error, Some(Errno::LOOP.raw_os_error()), "{path}");
        }
        let link = tree.entry(&real.join("a/g")).expect("its directory is there");
        assert!(link.metadata().expect("there").is_symlink());
        assert!(link.open(OFlags::WRONLY).is_err() && link.set_mode(0o777).is_err());
        assert_ne!(fs::metadata(real.join("a/f")).expect("there").mode() & 0o777, 0o777);
    }

    #[test]
    fn a_held_directory_stays_the_same_when_its_name_leads_elsewhere() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("it is there");
        fs::create_dir_all(real.join("a")).expect("made");
        fs::create_dir_all(real.join("outside")).expect("made");
        let tree = HeldTree::whole(Rc::default()).expect("held");
        let entry = tree.entry(&real.join("a/new")).expect("its directory is there");
        fs::rename(real.join("a"), real.join("was")).expect("renamed");
        symlink("outside", real.join("a")).expect("made");
        entry.create_file().expect("made");
        assert!(real.join("was/new").exists() && !real.join("outside/new").exists());
    }

    #[test]
    fn directories_of_a_try_are_widened_while_they_are_held() {
        let place = tempfile::tempdir().expect("a directory");
        let shut = place.path().join("a/b");
        fs::create_dir_all(&shut).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o0)).expect("set");
        let tree = HeldTree::of_try(place.path(), Rc::default()).expect("held");
        let entry = tree.entry(Path::new("a/b/c")).expect("its directory is there");
        entry.create_file().expect("made");
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(mode(&shut), if is_root { 0 } else { 0o700 });
        drop((entry, tree));
        assert_eq!(mode(&shut), 0);
    }
}
