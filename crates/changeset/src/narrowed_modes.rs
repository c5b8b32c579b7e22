//! Permissions that killed processes have left widened, set back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use crate::held_tree::HeldTree;
use crate::widened_modes::{FileNumber, NOTES, Note, PERMISSIONS, Widened, number};

/// Gives what killed processes have left widened its own permissions again. The caller has the lock
/// of the try.
pub(crate) fn narrow_left(overlay_directory: &Path) {
    let path = overlay_directory.join(NOTES);
    let Ok(text) = fs::read(&path) else { return };
    let mut left: BTreeMap<FileNumber, (usize, Widened)> = BTreeMap::new();
    for (line, note) in text.split(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(note) {
            Ok(Note::Widened(widened)) => {
                // What is widened twice was narrow before the first time.
                left.entry(widened.file).or_insert((line, widened));
            }
            Ok(Note::Narrowed(file)) => drop(left.remove(&file)),
            Err(_) => {}
        }
    }
    let mut left: Vec<_> = left.into_values().collect();
    // The last first: what lies in a directory can be reached as long as that is widened.
    left.sort_by_key(|(line, _)| std::cmp::Reverse(*line));
    if let Ok(tree) = HeldTree::whole(Rc::default()) {
        left.iter().for_each(|(_, widened)| _ = narrow(&tree, widened));
    }
    let _ = fs::remove_file(path);
}

/// Sets the permissions of one entry back, unless something else has changed them since.
fn narrow(tree: &HeldTree, widened: &Widened) -> Option<()> {
    let entry = tree.entry(Path::new(&OsString::from_vec(widened.path.clone()))).ok()?;
    let found = entry.metadata().ok()?;
    let is_it = number(&found) == widened.file && found.mode() & PERMISSIONS == widened.wide;
    is_it.then(|| entry.set_mode(widened.own).ok())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::widened_modes::WidenedModes;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & PERMISSIONS
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    /// Widens the entry, as a process does that is killed then.
    fn widen_and_stop(overlay: &Path, path: &Path, wide: u32) {
        WidenedModes::of(overlay).note_widened(path, &fs::metadata(path).expect("there"), wide);
        set_mode(path, wide);
    }

    #[test]
    fn what_a_killed_process_widened_is_narrow_again() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("it is there");
        let (above, below) = (real.join("a"), real.join("a/b"));
        fs::create_dir_all(&below).expect("made");
        set_mode(&below, 0o311);
        set_mode(&above, 0o500);
        for path in [&above, &below] {
            widen_and_stop(&real, path, mode(path) | 0o700);
        }
        narrow_left(&real);
        assert_eq!((mode(&above), mode(&below)), (0o500, 0o311));
        assert!(!real.join(NOTES).exists());
        set_mode(&above, 0o700);
    }

    #[test]
    fn what_was_narrowed_or_changed_since_is_left_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let real = place.path().canonicalize().expect("it is there");
        let [done, changed, other] = ["done", "changed", "other"].map(|name| real.join(name));
        for path in [&done, &changed, &other] {
            fs::create_dir(path).expect("made");
            set_mode(path, 0o300);
            widen_and_stop(&real, path, 0o700);
        }
        WidenedModes::of(&real).note_narrowed(&fs::metadata(&done).expect("there"));
        set_mode(&changed, 0o750);
        fs::rename(&other, real.join("moved")).expect("ours");
        fs::create_dir(&other).expect("made");
        set_mode(&other, 0o700);
        narrow_left(&real);
        assert_eq!([&done, &changed, &other].map(|path| mode(path)), [0o700, 0o750, 0o700]);
    }
}
