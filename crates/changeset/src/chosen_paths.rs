//! Paths that a user gives to choose some of the changes of a try.
//!
//! A path is taken from the working directory and made plain by its text. Links on the way to its
//! last component are those of the try's view, since a try knows its names without links.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use runahead_abi::overlay::UPPER;

use crate::Result;
use crate::recorded_origins::Origins;
use crate::store::Try;

/// Most symbolic links that a path may lead through, as for the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Paths that choose changes: each chooses what is at or below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPaths {
    /// Absolute paths without symbolic links before the last component. None is below another.
    roots: Vec<PathBuf>,
}

impl ChosenPaths {
    /// Finds the paths that `words` mean in `directory` and in the view of the try.
    pub fn resolve(tried: &Try, directory: &Path, words: &[OsString]) -> Result<Self> {
        let overlay_directory = tried.overlay_directory();
        let view = View {
            origins: Origins::read(&overlay_directory)?,
            upper: overlay_directory.join(UPPER),
        };
        Ok(ChosenPaths::of(words.iter().map(|word| view.resolve(&plain(&directory.join(word))))))
    }

    /// Chooses what is at or below these paths.
    pub(crate) fn of(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut all: Vec<PathBuf> = paths.collect();
        all.sort();
        let mut roots: Vec<PathBuf> = Vec::new();
        for path in all {
            if !roots.iter().any(|root| path.starts_with(root)) {
                roots.push(path);
            }
        }
        ChosenPaths { roots }
    }

    /// The paths, sorted.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// True if the path is at or below a chosen one.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }
}

/// Returns an absolute path without `.` and `..`, by its text.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

/// Both trees of a try, for the links on a path.
struct View {
    origins: Origins,
    upper: PathBuf,
}

impl View {
    /// Follows the links before the last component.
    fn resolve(&self, path: &Path) -> PathBuf {
        let reversed = |path: &Path| -> Vec<OsString> {
            path.iter().rev().filter(|name| *name != "/").map(OsStr::to_owned).collect()
        };
        let (mut found, mut left, mut links) = (PathBuf::from("/"), reversed(path), 0);
        while let Some(name) = left.pop() {
            if name == ".." {
                found.pop();
                continue;
            }
            let next = found.join(name);
            let target = if left.is_empty() { None } else { self.link_target(&next) };
            match target {
                Some(target) if links < LINKS_MAX => {
                    links += 1;
                    left.extend(reversed(&target));
                    if target.is_absolute() {
                        found = PathBuf::from("/");
                    }
                }
                _ => found = next,
            }
        }
        found
    }

    /// Target of a link of the view; `None` if the path leads to something else.
    fn link_target(&self, path: &Path) -> Option<PathBuf> {
        let upper = self.upper.join(path.strip_prefix("/").unwrap_or(path));
        let is_hidden =
            || self.origins.whiteouts.contains(path) || self.origins.is_below_whiteout(path);
        match fs::symlink_metadata(&upper) {
            Ok(_) => fs::read_link(&upper).ok(),
            Err(_) if is_hidden() => None,
            Err(_) => fs::read_link(path).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::Store;

    #[test]
    fn paths_are_those_of_the_view() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("it is there").join("real");
        fs::create_dir_all(real.join("d")).expect("made");
        symlink("d", real.join("link")).expect("made");
        symlink("link", real.join("loop")).expect("made");
        let store = Store::new(Some(&place.path().join("state"))).expect("given");
        let (tried, _lock) = store.create(vec!["x".into()], &real).expect("new");
        let upper = tried.overlay_directory().join(UPPER);
        let upper = upper.join(real.strip_prefix("/").expect("absolute"));
        fs::create_dir_all(&upper).expect("made");
        symlink(real.join("link"), upper.join("new")).expect("made");
        symlink("new", upper.join("loop")).expect("made");
        let roots = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let chosen = ChosenPaths::resolve(&tried, &real, &words).expect("read");
            let below = |path: &PathBuf| path.strip_prefix(&real).expect("below").to_owned();
            chosen.roots().iter().map(below).collect::<Vec<_>>()
        };
        for (word, expected) in [
            ("./a", "a"),
            ("d/../a/./b/", "a/b"),
            ("link", "link"),
            ("link/a", "d/a"),
            ("new/a", "d/a"),
            ("loop/a/b", "d/a/b"),
            ("nowhere/../link/a", "d/a"),
        ] {
            assert_eq!(roots(&[word]), [Path::new(expected)], "{word}");
        }
        assert_eq!(roots(&["d/a", "d", "dd", "link/b"]), [Path::new("d"), Path::new("dd")]);
        assert_eq!(
            ChosenPaths::resolve(&tried, &real, &["/..".into()]).expect("read").roots(),
            [Path::new("/")]
        );
    }
}
