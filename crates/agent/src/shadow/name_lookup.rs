//! Name lookups: the object that a path leads to, if it is in memory, and otherwise the text that a
//! hint needs.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::hint_log::Hinted;
use runahead_abi::hint_record::{
    EXPAND_LEVELS_ONE, EXPAND_LISTINGS, EXPAND_NAMES, NO_FOLLOW, STEERS,
};
use runahead_abi::{HintKind, HintState, PATH_MAX};
use runahead_estimators::{Identity, Piece};

use super::open_allowlist;
use super::runner::{CallAnswer, Runner, Stop};
use super::shadow_descriptors::{self, Backing, Descriptor};
use crate::hint_sender::{self, Hint};
use crate::path_text::{self, PathBuf};
use crate::sys::{self, AT_FDCWD, Errno, Fd};

/// Names in listings from which their use counts as evidence.
const NAMES_TOLD_MIN: u64 = 4;
/// Levels of directories that are read ahead of a shadow that asks for the first.
const EXPAND_LEVELS: u32 = 4;

/// A path, as the program passed it.
#[derive(Clone, Copy)]
pub(super) struct LookupName {
    pub identity: Identity,
    /// Identity of the directory that it starts from.
    base: Identity,
    /// Directory descriptor as the program names it.
    pub dir: Fd,
    /// Real descriptor to start from; `None` if the directory itself is not open yet.
    from: Option<Fd>,
    address: u64,
    path: &'static [u8],
}

impl LookupName {
    /// True if the path looks like a file argument: neither an option nor a mere word.
    pub(super) fn looks_like_a_file(&self) -> bool {
        self.path.first() != Some(&b'-') && self.path.iter().any(|b| matches!(b, b'/' | b'.'))
    }
}

/// Result of a lookup.
#[expect(clippy::large_enum_variant, reason = "lives for one call; there is no heap to put it on")]
pub(super) enum LookupResult {
    /// An `O_PATH` descriptor of the object, and its attributes.
    Found(Fd, k::statx),
    /// Missing from memory; a hint has been sent.
    Cold,
    /// Error of the kernel.
    Error(i64),
}

impl Runner {
    /// Resolves the path at `address`, relative to `dir`, to an identity, or returns the error that
    /// the call would have.
    pub(super) fn name(&mut self, dir: Fd, address: u64) -> Result<LookupName, i64> {
        // SAFETY: a bad address ends the runner, which may happen; the program does not run while
        // the text is in use.
        let path: &'static [u8] = unsafe { path_text::c_string(address) };
        let (from, base) = if path.first() == Some(&b'/') {
            (Some(AT_FDCWD), Identity::ROOT)
        } else if dir == AT_FDCWD {
            (Some(self.cwd.0), self.cwd.1)
        } else {
            match self.descriptors.get(dir) {
                Some(d) => match d.backing {
                    Backing::Directory(real) => (Some(real), d.identity),
                    Backing::ColdDirectory | Backing::ColdFile => (None, d.identity),
                    _ => return Err(sys::fail(sys::ENOTDIR)),
                },
                None => return Err(sys::fail(sys::EBADF)),
            }
        };
        let identity = self.session.shared().parents.walk(base, path);
        Ok(LookupName { identity, base, dir, from, address, path })
    }

    /// Looks up `name` in memory, and hints it if it is not there. `want`: what the program will do
    /// with it.
    pub(super) fn look_up(
        &mut self,
        name: &LookupName,
        want: HintKind,
        follow: bool,
    ) -> LookupResult {
        let flags = k::O_PATH | k::O_CLOEXEC | if follow { 0 } else { k::O_NOFOLLOW };
        self.count_name_use(name);
        let mut text = [0u8; PATH_MAX + 1];
        let (dir, address) = match name.from {
            Some(real) => (real, name.address),
            None => match self.absolute_path(name, &mut text) {
                Some(_) => (AT_FDCWD, text.as_ptr() as u64),
                None => return LookupResult::Cold,
            },
        };
        let mut found = open_allowlist::open(dir, address, flags, k::RESOLVE_CACHED);
        if found == Err(Errno(sys::EAGAIN))
            && self.session.shared().log.state(name.identity) == HintState::Done
        {
            // It has been read, so what is still missing is not storage: a file system may refuse
            // RESOLVE_CACHED altogether.
            found = open_allowlist::open(dir, address, flags, 0);
        }
        self.note_met(name.identity);
        match found {
            Ok(fd) => match sys::statx_fd(fd, k::STATX_BASIC_STATS) {
                Ok(stat) => LookupResult::Found(fd, stat),
                Err(Errno(e)) => {
                    let _ = sys::close(fd);
                    LookupResult::Error(sys::fail(e))
                }
            },
            Err(Errno(sys::EAGAIN)) => {
                let flags = STEERS | if follow { 0 } else { NO_FOLLOW };
                self.hint_missing_name(name, want, flags);
                LookupResult::Cold
            }
            Err(Errno(e)) => LookupResult::Error(sys::fail(e)),
        }
    }

    /// Counts lookups of names that directory listings contained.
    fn count_name_use(&self, name: &LookupName) {
        let shared = self.session.shared();
        if shared.entries.first_use(name.identity).is_some() {
            shared.control.names_used.fetch_add(1, Relaxed);
        }
    }

    /// Flags that say how to expand a directory that is not in memory, from the program's use of
    /// earlier listings.
    pub(super) fn expansion(&self) -> u32 {
        let control = &self.session.shared().control;
        let most = |used: &AtomicU64, told: &AtomicU64| {
            let told = told.load(Relaxed);
            told >= NAMES_TOLD_MIN && used.load(Relaxed) * 2 >= told
        };
        let names = most(&control.names_used, &control.names_told);
        let listings = most(&control.directories_used, &control.directories_told);
        (if names { EXPAND_NAMES } else { 0 })
            | (if listings { EXPAND_LISTINGS | (EXPAND_LEVELS * EXPAND_LEVELS_ONE) } else { 0 })
    }

    /// Hints that `name` will be wanted.
    fn hint_missing_name(&mut self, name: &LookupName, kind: HintKind, flags: u32) {
        let (key, flags) = match kind {
            HintKind::Listing => (name.identity.listing(), flags | self.expansion()),
            _ => (name.identity, flags),
        };
        // A hint for the contents covers the name too.
        let known = self.log_hint(name.identity);
        if (key != name.identity && self.log_hint(key)) || known {
            let mut text = [0u8; PATH_MAX + 1];
            if let Some(len) = self.absolute_path(name, &mut text) {
                let object = name.identity;
                self.send_hint(&Hint::whole(kind, object, flags, &text[..len]));
            }
        }
        self.note_steering();
    }

    /// Counts a guess on which the course of the run depends.
    pub(super) fn note_steering(&self) {
        let status = self.status();
        status.steering.store(status.steering.load(Relaxed) + 1, Relaxed);
    }

    /// Enters a hint into the log. Returns true if a record must be sent.
    pub(super) fn log_hint(&mut self, piece: impl Into<Piece>) -> bool {
        let shared = self.session.shared();
        self.note_progress();
        match shared.log.hint(piece, self.run) {
            Hinted::New => {
                shared.control.hints_issued.fetch_add(1, Relaxed);
                true
            }
            Hinted::Again => true,
            Hinted::Known => false,
        }
    }

    pub(super) fn send_hint(&self, hint: &Hint<'_>) {
        hint_sender::send(self.session.shared(), self.run, self.hint_position(), hint);
    }

    /// Writes the absolute path of `name` to `out`, NUL-terminated. Returns its length.
    pub(super) fn absolute_path(&mut self, name: &LookupName, out: &mut PathBuf) -> Option<usize> {
        let len = if name.path.first() == Some(&b'/') {
            0
        } else {
            let base = self.directory_path(name.dir)?;
            out[..base.len()].copy_from_slice(base);
            base.len()
        };
        path_text::append(out, len, name.path)
    }

    /// Absolute path of a directory descriptor, asked for once.
    pub(super) fn directory_path(&mut self, dir: Fd) -> Option<&'static [u8]> {
        let known = if dir == AT_FDCWD { self.paths.cwd } else { self.descriptors.get(dir)?.path };
        if known.1 > 0 {
            return Some(self.paths.get(known));
        }
        let real = match dir {
            AT_FDCWD => self.cwd.0,
            _ => match self.descriptors.get(dir)?.backing {
                Backing::Directory(real) | Backing::File(real) => real,
                _ => return None,
            },
        };
        let mut text = [0u8; PATH_MAX + 1];
        let len = path_text::directory(real, &mut text)?;
        let kept = self.paths.store(&text[..len]);
        match dir {
            AT_FDCWD => self.paths.cwd = kept,
            _ => self.descriptors.get(dir)?.path = kept,
        }
        (kept.1 > 0).then(|| self.paths.get(kept))
    }

    pub(super) fn open(&mut self, dir: Fd, path: u64, flags: u32) -> CallAnswer {
        // A file that is opened for reading as well may exist already: databases are opened this
        // way.
        let creates = flags & k::O_CREAT != 0;
        if flags & (k::O_TRUNC | k::O_EXCL) != 0
            || flags & k::O_ACCMODE == k::O_WRONLY
            || creates && flags & k::O_ACCMODE != k::O_RDWR
        {
            self.count_access()?;
            return Ok(self.open_sink());
        }
        let name = match self.name(dir, path) {
            Ok(name) => name,
            Err(e) => return Ok(e),
        };
        self.count_access()?;
        let follow = flags & k::O_NOFOLLOW == 0;
        let wants_directory =
            flags & k::O_DIRECTORY != 0 || self.known_kind(name.identity) == Some(k::S_IFDIR);
        let want = if wants_directory { HintKind::Listing } else { HintKind::Lookup };
        let descriptor = match self.look_up(&name, want, follow) {
            LookupResult::Found(place, stat) => match self.open_place(place, &stat, flags) {
                Ok((behind, size)) => Descriptor { size, ..Descriptor::new(behind, name.identity) },
                Err(e) => {
                    let _ = sys::close(place);
                    return Ok(e);
                }
            },
            LookupResult::Cold => {
                let behind =
                    if wants_directory { Backing::ColdDirectory } else { Backing::ColdFile };
                let mut text = [0u8; PATH_MAX + 1];
                let path = match self.absolute_path(&name, &mut text) {
                    Some(len) => self.paths.store(&text[..len]),
                    None => (0, 0),
                };
                let size = shadow_descriptors::LIKELY_FILE_BYTES;
                Descriptor { path, size, ..Descriptor::new(behind, name.identity) }
            }
            LookupResult::Error(e) if creates && e == sys::fail(sys::ENOENT) => {
                return Ok(self.open_sink());
            }
            LookupResult::Error(e) => return Ok(e),
        };
        self.session.shared().parents.opened(name.base, name.path);
        Ok(self.descriptors.open(0, descriptor).map_or(sys::fail(sys::EMFILE), i64::from))
    }

    /// Opens a looked-up object: only regular files and directories are really opened.
    fn open_place(
        &mut self,
        place: Fd,
        stat: &k::statx,
        flags: u32,
    ) -> Result<(Backing, u64), i64> {
        let kind = u32::from(stat.stx_mode) & k::S_IFMT;
        if flags & k::O_DIRECTORY != 0 && kind != k::S_IFDIR {
            return Err(sys::fail(sys::ENOTDIR));
        }
        match kind {
            k::S_IFREG => {
                let real = shadow_descriptors::reopen_file(place, &self.session.shared().control)
                    .map_err(|e| sys::fail(e.0))?;
                let _ = sys::close(place);
                Ok((Backing::File(real), stat.stx_size))
            }
            k::S_IFDIR => Ok((Backing::Directory(place), 0)),
            k::S_IFLNK if flags & k::O_PATH == 0 => Err(sys::fail(sys::ELOOP)),
            _ => {
                let _ = sys::close(place);
                Ok((Backing::Sink, 0))
            }
        }
    }

    pub(super) fn exists(&mut self, dir: Fd, path: u64) -> CallAnswer {
        let name = match self.name(dir, path) {
            Ok(name) => name,
            Err(e) => return Ok(e),
        };
        self.count_access()?;
        Ok(match self.look_up(&name, HintKind::Lookup, true) {
            LookupResult::Found(fd, _) => {
                let _ = sys::close(fd);
                0
            }
            LookupResult::Cold => 0,
            LookupResult::Error(e) => e,
        })
    }

    pub(super) fn read_link(&mut self, dir: Fd, path: u64, buf: u64, len: u64) -> CallAnswer {
        let name = match self.name(dir, path) {
            Ok(name) => name,
            Err(e) => return Ok(e),
        };
        self.count_access()?;
        match self.look_up(&name, HintKind::Link, false) {
            LookupResult::Found(fd, stat) if would_update_atime(&stat) => {
                let _ = sys::close(fd);
                // Like data that is not in memory: the buffer stays as it is.
                Ok(len.min(stat.stx_size) as i64)
            }
            LookupResult::Found(fd, _) => {
                // SAFETY: the program's buffer, checked by the kernel.
                let ret = unsafe {
                    sys::raw(sys::nr::READLINKAT, [fd as u64, c"".as_ptr() as u64, buf, len, 0, 0])
                };
                let _ = sys::close(fd);
                Ok(ret)
            }
            // Most names are not links.
            LookupResult::Cold => Ok(sys::fail(sys::EINVAL)),
            LookupResult::Error(e) => Ok(e),
        }
    }

    pub(super) fn change_directory(&mut self, path: u64) -> CallAnswer {
        let name = match self.name(AT_FDCWD, path) {
            Ok(name) => name,
            Err(e) => return Ok(e),
        };
        self.count_access()?;
        match self.look_up(&name, HintKind::Lookup, true) {
            LookupResult::Found(fd, _) => {
                self.set_directory(fd, name.identity);
                Ok(0)
            }
            LookupResult::Cold => Err(Stop(runahead_abi::RunEnd::Call)),
            LookupResult::Error(e) => Ok(e),
        }
    }

    pub(super) fn change_directory_fd(&mut self, fd: Fd) -> CallAnswer {
        match self.descriptors.get(fd) {
            Some(&mut Descriptor { backing: Backing::Directory(real), identity, .. }) => {
                // The program may close its descriptor and stay in the directory.
                let Ok(own) =
                    open_allowlist::open(real, c".".as_ptr() as u64, k::O_PATH | k::O_CLOEXEC, 0)
                else {
                    return Err(Stop(runahead_abi::RunEnd::Call));
                };
                self.set_directory(own, identity);
                Ok(0)
            }
            Some(_) => Err(Stop(runahead_abi::RunEnd::Call)),
            None => Ok(sys::fail(sys::EBADF)),
        }
    }

    fn set_directory(&mut self, place: Fd, identity: Identity) {
        if self.cwd.0 != AT_FDCWD {
            let _ = sys::close(self.cwd.0);
        }
        self.cwd = (place, identity);
        self.paths.cwd = (0, 0);
    }
}

/// True for a link whose access time the kernel would update when it is read. `O_NOATIME`, which is
/// for opens, cannot prevent that. Most file systems are mounted with `relatime`, whose rule this
/// is.
fn would_update_atime(stat: &k::statx) -> bool {
    const DAY: i64 = 24 * 3600;
    let time = |t: &k::statx_timestamp| (t.tv_sec, t.tv_nsec);
    let read = time(&stat.stx_atime);
    // SAFETY: asks for a number.
    let now = unsafe { sys::raw(sys::nr::TIME, [0; 6]) };
    let is_link = u32::from(stat.stx_mode) & k::S_IFMT == k::S_IFLNK;
    let is_old = read <= time(&stat.stx_mtime) || read <= time(&stat.stx_ctime);
    is_link && (is_old || now - read.0 >= DAY)
}
