//! What is kept automatically: one recorded run for each command, in the user's state directory.
//!
//! The name of a file is the [`key`] of its command. Files are private to the user. They are replaced by
//! renaming, so of two runs of a command at once the one that ends last is remembered; no lock is needed.
//! Bounded: a file may have [`COMMAND_MAX`] bytes, all together [`TOTAL_MAX`]; those that were not
//! used for longest go first.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::file::{self, Error, TEMPORARY};
use crate::{Attributes, CommandKey, Run, format};

/// Bytes that one command's run may have.
pub const COMMAND_MAX: usize = 4 << 20;
/// Bytes of all of them.
pub const TOTAL_MAX: u64 = 64 << 20;
/// What the names of the files end in.
const ENDING: &str = ".history";
/// What is being written for longer than this was left behind.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Identifies a command: its `line`, the directory it runs in, and the program's file.
pub fn key<'a>(
    line: impl IntoIterator<Item = &'a OsStr>,
    directory: &Path,
    program: &Path,
    attributes: Option<Attributes>,
) -> CommandKey {
    let mut hasher = SipHasher13::new();
    let mut add = |bytes: &[u8]| {
        hasher.write(&(bytes.len() as u64).to_le_bytes());
        hasher.write(bytes);
    };
    add(directory.as_os_str().as_bytes());
    add(program.as_os_str().as_bytes());
    if let Some(Attributes { size, mtime, inode }) = attributes {
        add(&[size.to_le_bytes(), mtime.to_le_bytes(), inode.to_le_bytes()].concat());
    }
    line.into_iter().for_each(|argument| add(argument.as_bytes()));
    hasher.finish128().as_bytes()
}

/// The directory.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    total_max: u64,
}

impl Store {
    /// That of this user: `$XDG_STATE_HOME/runahead`, or `~/.local/state/runahead`. Made if need be.
    pub fn of_user() -> Result<Self, Error> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let state = variable("XDG_STATE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
            .ok_or(Error::NoPlace("neither XDG_STATE_HOME nor HOME is set to an absolute path"))?;
        Store::at(&state.join("runahead"), TOTAL_MAX)
    }

    /// In `dir`, with at most `total_max` bytes.
    pub fn at(dir: &Path, total_max: u64) -> Result<Self, Error> {
        let dir = dir.to_owned();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(Error::system("make the directory", &dir))?;
        let meta = fs::metadata(&dir).map_err(Error::system("use the directory", &dir))?;
        if meta.uid() != geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(Error::NotPrivate(dir));
        }
        // Better to know now than when the command has run.
        let probe = dir.join(format!("{}{TEMPORARY}", std::process::id()));
        File::create(&probe).map_err(Error::system("write to", &dir))?;
        let _ = fs::remove_file(&probe);
        Ok(Store { dir, total_max })
    }

    fn file(&self, command: &CommandKey) -> PathBuf {
        let digits: String = command.iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(digits + ENDING)
    }

    /// What is remembered of `command`.
    pub fn load(&self, command: &CommandKey) -> Result<Option<Run>, Error> {
        let path = self.file(command);
        match file::load(&path) {
            Ok(run) => Ok((run.command == *command).then_some(run)),
            Err(Error::System { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Remembers `run`, and sees to the bounds.
    pub fn save(&self, run: &Run) -> Result<(), Error> {
        let most = COMMAND_MAX.min(self.total_max as usize);
        file::save(&self.file(&run.command), &format::encode_within(run, most))?;
        self.prune();
        Ok(())
    }

    /// What is remembered of `command` was of use.
    pub fn was_used(&self, command: &CommandKey) {
        if let Ok(file) = File::open(self.file(command)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes what is too much, and what was left behind. Another may do the same meanwhile.
    fn prune(&self) {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(meta) = entry.metadata() else { continue };
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.as_bytes().ends_with(TEMPORARY.as_bytes()) {
                if modified.elapsed().is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(entry.path());
                }
            } else if name.as_bytes().ends_with(ENDING.as_bytes()) && meta.is_file() {
                kept.push((modified, entry.path(), meta.len()));
            }
        }
        kept.sort_unstable();
        let mut total: u64 = kept.iter().map(|(.., len)| len).sum();
        for (_, path, len) in kept {
            if total <= self.total_max {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Access, Place, What};

    fn run(command: u8, accesses: u64) -> Run {
        let mut run = Run { command: [command; 16], ..Run::default() };
        for n in 0..accesses {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            run.places.push(Place { path: format!("/{key}").into(), key, attributes: None });
            run.accesses.push(Access { place: n as u32, what: What::Look });
        }
        run
    }

    fn bytes(dir: &Path) -> u64 {
        let sizes = dir.read_dir().expect("ours").map(|e| e.expect("ours").metadata());
        sizes.map(|meta| meta.expect("ours").len()).sum()
    }

    #[test]
    fn commands_differ_in_all_that_they_are() {
        let line = |text: &'static [&'static str]| text.iter().map(OsStr::new);
        let (here, program) = (Path::new("/here"), Path::new("/bin/cat"));
        let file = |inode| Some(Attributes { size: 1, mtime: 2, inode });
        let keys = [
            key(line(&["cat", "a"]), here, program, file(3)),
            key(line(&["cata"]), here, program, file(3)),
            key(line(&["cat", "a", ""]), here, program, file(3)),
            key(line(&["cat", "a"]), Path::new("/there"), program, file(3)),
            key(line(&["cat", "a"]), here, Path::new("/my/cat"), file(3)),
            key(line(&["cat", "a"]), here, program, file(4)),
            key(line(&["cat", "a"]), here, program, None),
        ];
        for (n, one) in keys.iter().enumerate() {
            assert!(!keys[..n].contains(one), "{n}");
        }
        // Of this build and every other one.
        let digits: String = keys[0].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, DIGITS);
    }
    const DIGITS: &str = "9683028189e2f79f7d999bc0c6ccd92a";

    #[test]
    fn what_is_remembered_is_private_and_found_again() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("state/runahead");
        let store = Store::at(&dir, TOTAL_MAX).expect("made");
        assert_eq!(dir.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        assert!(store.load(&[1; 16]).expect("no error").is_none());
        store.save(&run(1, 10)).expect("written");
        assert_eq!(store.load(&[1; 16]).expect("there"), Some(run(1, 10)));
        let file = store.file(&[1; 16]);
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        // Somebody has put another command's there.
        fs::rename(&file, store.file(&[2; 16])).expect("ours");
        assert!(store.load(&[2; 16]).expect("no error").is_none());

        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(matches!(Store::at(&dir, TOTAL_MAX), Err(Error::NotPrivate(_))));
        assert!(Store::at(Path::new("/proc/none"), TOTAL_MAX).is_err());
        fs::write(place.path().join("file"), "").expect("ours");
        assert!(Store::at(&place.path().join("file/below"), TOTAL_MAX).is_err());
    }

    #[test]
    fn the_oldest_go_first_and_what_was_left_behind_goes_too() {
        let place = tempfile::tempdir().expect("a directory");
        let one = format::encode(&run(0, 1000)).len() as u64;
        let store = Store::at(place.path(), 4 * one + one / 2).expect("ours");
        let (old, new) = (place.path().join("old.new"), place.path().join("fresh.new"));
        let age = |path: &Path, hours: u64| {
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let then = SystemTime::now() - Duration::from_secs(hours * 3600);
            file.expect("ours").set_modified(then).expect("ours");
        };
        age(&old, 2);
        age(&new, 0);
        for command in 0..8u8 {
            store.save(&run(command, 1000)).expect("written");
            age(&store.file(&[command; 16]), 100 - u64::from(command));
            if command == 5 {
                // The one that would be next to go.
                store.was_used(&[2; 16]);
            }
            assert!(bytes(place.path()) <= 4 * one + one / 2, "after {command}");
        }
        let left: Vec<u8> =
            (0..8).filter(|&n| store.load(&[n; 16]).expect("no error").is_some()).collect();
        assert_eq!(left, [2, 5, 6, 7]);
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn one_command_has_a_bound_of_its_own() {
        let place = tempfile::tempdir().expect("a directory");
        let store = Store::at(place.path(), TOTAL_MAX).expect("ours");
        let long = run(9, PATHS);
        assert!(format::encode(&long).len() > COMMAND_MAX, "it tests nothing");
        store.save(&long).expect("written");
        assert!(bytes(place.path()) <= COMMAND_MAX as u64);
        let cut = store.load(&[9; 16]).expect("there").expect("there");
        assert!(
            cut.accesses.len() > 10_000 && cut.accesses[..] == long.accesses[..cut.accesses.len()]
        );
    }
    const PATHS: u64 = 200_000;
}
