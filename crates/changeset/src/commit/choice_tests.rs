//! Commits and undoes of chosen changes, complete and interrupted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use runahead_abi::overlay::{FILTER, ORIGIN_MAX, Origin, ReadKind, names_hash};

use super::stopping_points::STOP;
use super::tests::Scene;
use super::*;
use crate::recorded_origins::{current_metadata, origin};

/// Choices of the changes of a [`Scene`].
const CHOICES: [&[&str]; 4] = [&["keep"], &["turns", "was"], &["keep/a", "goes", "new"], &["new"]];

type Tree = BTreeMap<PathBuf, String>;

fn chosen(scene: &Scene, names: &[&str]) -> ChosenPaths {
    ChosenPaths::of(names.iter().map(|name| scene.real(name)))
}

/// The tree after everything is committed.
fn done() -> Tree {
    let scene = Scene::new();
    assert!(matches!(commit(&scene.tried, false), Ok(CommitOutcome::Done(_))));
    scene.tree()
}

/// Tree with the names at and below the chosen ones from another.
fn mixed(tree: &Tree, names: &[&str], chosen: &Tree) -> Tree {
    let is_chosen = |path: &Path| names.iter().any(|name| path.starts_with(name));
    let own = tree.iter().filter(|(path, _)| !is_chosen(path));
    let other = chosen.iter().filter(|(path, _)| is_chosen(path));
    own.chain(other).map(|(path, text)| (path.clone(), text.clone())).collect()
}

/// Runs `work` until a point, where it is killed or a call fails. Returns its result, and whether
/// the point was reached.
fn until<T>(point: usize, is_killed: bool, work: impl FnOnce() -> Result<T>) -> (Result<T>, bool) {
    STOP.set(Some((point, is_killed)));
    let outcome = work();
    let is_stopped = match STOP.take() {
        None => true,
        Some((left, _)) => left == 0 && outcome.is_err(),
    };
    (outcome, is_stopped)
}

/// Runs `then` for each choice and each point at which its commit or undo stops.
fn at_each_point<T: std::fmt::Debug>(
    is_killed: bool,
    work: impl Fn(&Scene, &ChosenPaths) -> Result<T>,
    then: impl Fn(&Scene, &[&str], &str, Error),
) {
    for names in CHOICES {
        for point in 0.. {
            let scene = Scene::new();
            let paths = chosen(&scene, names);
            match until(point, is_killed, || work(&scene, &paths)) {
                (Err(error), true) => {
                    let text = format!("{names:?} at {point}: {error}");
                    then(&scene, names, &text, error);
                }
                (outcome, _) => {
                    assert!(outcome.is_ok() && point > 4, "{names:?}, {point}: {outcome:?}");
                    break;
                }
            }
        }
    }
}

fn expect_partly(outcome: Result<CommitOutcome>, text: &str) {
    assert!(matches!(outcome, Ok(CommitOutcome::Partly(..))), "{text}: {outcome:?}");
}

fn commit_rest(scene: &Scene, text: &str) {
    let outcome = commit(&scene.tried, false);
    assert!(matches!(outcome, Ok(CommitOutcome::Done(_))), "{text}: {outcome:?}");
    scene.expect_done();
}

#[test]
fn chosen_changes_are_committed_and_the_rest_later() {
    let all = done();
    for names in CHOICES {
        let scene = Scene::new();
        let count = Changes::read(&scene.tried.overlay_directory()).expect("read").len();
        let outcome = commit_chosen(&scene.tried, Some(&chosen(&scene, names)), false);
        let Ok(CommitOutcome::Partly(Some(some), left)) = outcome else {
            panic!("{names:?}: {outcome:?}")
        };
        assert_eq!(some.len() + left, count, "{names:?}");
        assert_eq!(scene.tree(), mixed(&scene.before, names, &all), "{names:?}");
        commit_rest(&scene, &format!("{names:?}"));
    }
}

#[test]
fn chosen_changes_are_undone_and_the_rest_is_committed() {
    let all = done();
    for names in CHOICES {
        let scene = Scene::new();
        let outcome = undo_chosen(&scene.tried, Some(&chosen(&scene, names)));
        assert!(matches!(outcome, Ok(UndoOutcome::Partly(Some(_), _))), "{names:?}: {outcome:?}");
        assert_eq!(scene.tree(), scene.before, "{names:?}");
        assert!(matches!(commit(&scene.tried, false), Ok(CommitOutcome::Done(_))));
        assert_eq!(scene.tree(), mixed(&all, names, &scene.before), "{names:?}");
    }
}

#[test]
fn a_killed_commit_of_chosen_changes_is_resumed() {
    let all = done();
    let work = |scene: &Scene, paths: &ChosenPaths| commit_chosen(&scene.tried, Some(paths), false);
    at_each_point(true, work, |scene, names, text, _| {
        // Before the journal is there, nothing is.
        let paths = chosen(scene, names);
        let again = (!is_interrupted(&scene.tried)).then_some(&paths);
        expect_partly(commit_chosen(&scene.tried, again, false), text);
        assert_eq!(scene.tree(), mixed(&scene.before, names, &all), "{text}");
        commit_rest(scene, text);
    });
}

#[test]
fn a_killed_commit_of_chosen_changes_is_taken_back_or_final() {
    let work = |scene: &Scene, paths: &ChosenPaths| commit_chosen(&scene.tried, Some(paths), false);
    at_each_point(true, work, |scene, names, text, _| {
        if !is_interrupted(&scene.tried) {
            return;
        }
        for again in [
            commit_chosen(&scene.tried, Some(&chosen(scene, names)), false).map(|_| ()),
            undo_chosen(&scene.tried, Some(&chosen(scene, names))).map(|_| ()),
        ] {
            assert!(matches!(again, Err(Error::Interrupted(_))), "{text}: {again:?}");
        }
        match undo(&scene.tried) {
            Ok(UndoOutcome::TakenBack) => assert_eq!(scene.tree(), scene.before, "{text}"),
            Err(Error::HalfCommitted(_)) => expect_partly(commit(&scene.tried, false), text),
            other => panic!("{text}: {other:?}"),
        }
        commit_rest(scene, text);
    });
}

#[test]
fn a_failed_commit_of_chosen_changes_is_taken_back_or_finished() {
    let work = |scene: &Scene, paths: &ChosenPaths| commit_chosen(&scene.tried, Some(paths), false);
    at_each_point(false, work, |scene, _, text, error| {
        match error {
            Error::TakenBack(_) => assert_eq!(scene.tree(), scene.before, "{text}"),
            _ => expect_partly(commit(&scene.tried, false), text),
        }
        assert!(!is_interrupted(&scene.tried), "{text}");
        commit_rest(scene, text);
    });
}

#[test]
fn a_killed_undo_of_chosen_changes_is_finished_by_what_comes_next() {
    let all = done();
    let work = |scene: &Scene, paths: &ChosenPaths| undo_chosen(&scene.tried, Some(paths));
    for is_repeated in [true, false] {
        at_each_point(true, work, |scene, names, text, _| {
            assert_eq!(scene.tree(), scene.before, "{text}");
            let is_begun = is_interrupted(&scene.tried);
            if is_repeated || !is_begun {
                let outcome = undo_chosen(&scene.tried, Some(&chosen(scene, names)));
                let is_right = matches!(&outcome, Ok(UndoOutcome::Partly(some, _)) if some.is_none() == is_begun);
                assert!(is_right, "{text}: {outcome:?}");
                assert_eq!(scene.tree(), scene.before, "{text}");
            }
            let outcome = commit(&scene.tried, false);
            assert!(matches!(outcome, Ok(CommitOutcome::Done(_))), "{text}: {outcome:?}");
            assert_eq!(scene.tree(), mixed(&all, names, &scene.before), "{text}");
        });
    }
}

/// Puts reads of these names into the records of the scene.
fn read_names(scene: &Scene, reads: &[(ReadKind, &str)]) {
    let mut text = Vec::new();
    for (kind, name) in reads {
        let path = scene.real(name);
        let found = current_metadata(&path).expect("looked at");
        let mut was = found.as_ref().map_or(Origin::ABSENT, origin);
        if *kind == ReadKind::Listing {
            let names = fs::read_dir(&path).expect("listed");
            let hash = |entry: fs::DirEntry| names_hash(entry.file_name().as_bytes());
            was.size = names.fold(0, |sum, entry| sum.wrapping_add(hash(entry.expect("listed"))));
        }
        let mut room = [0; ORIGIN_MAX];
        let len = was.write(path.as_os_str().as_bytes(), &mut room).expect("there is room");
        text.push(*kind as u8);
        text.extend(&room[..len]);
        text.push(0);
    }
    let filter = scene.tried.overlay_directory().join(FILTER);
    recorded_reads::put_records(&filter, &[0; 8], &text).expect("written");
}

fn stale(scene: &Scene) -> Vec<PathBuf> {
    let reads = recorded_reads::compare(&scene.tried.overlay_directory()).expect("compared");
    reads.stale.into_iter().map(|stale| stale.path).collect()
}

#[test]
fn what_the_commit_changed_itself_is_not_stale_and_later_changes_are() {
    use ReadKind::*;
    let reads = [
        (Entry, "keep/a"),
        (Entry, "keep/b"),
        (Listing, "keep"),
        (Entry, "goes/in/c"),
        (Listing, "goes/in"),
        (Entry, "goes"),
        (Existence, "turns"),
        (Listing, "turns"),
        (Entry, "turns/d"),
        (Entry, "was"),
        (Absence, "new"),
        (Absence, "new/deep/e"),
        (Absence, "was/f"),
        (Listing, ""),
        (Absence, "keep/link"),
    ];
    let later = ["keep/a", "turns", "new/deep/e", "was/f", "goes", "keep/b", "keep/new"];
    for names in CHOICES {
        for point in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
            let scene = Scene::new();
            read_names(&scene, &reads);
            assert_eq!(stale(&scene), [] as [PathBuf; 0]);
            let paths = chosen(&scene, names);
            let work = || commit_chosen(&scene.tried, Some(&paths), false);
            match point {
                None => expect_partly(work(), "at once"),
                Some(point) => {
                    // Near the end, where the records are written.
                    let all = (0..).find(|point| {
                        let other = Scene::new();
                        let paths = chosen(&other, names);
                        let work = || commit_chosen(&other.tried, Some(&paths), false);
                        !until(*point, true, work).1
                    });
                    let at = all.expect("it ends") - 1 - point;
                    assert!(until(at, true, work).1);
                    expect_partly(commit(&scene.tried, false), "resumed");
                }
            }
            assert_eq!(stale(&scene), [] as [PathBuf; 0], "{names:?} {point:?}");
            for name in later {
                let path = scene.real(name);
                let Some(found) = current_metadata(&path).expect("looked at") else {
                    if path.parent().is_some_and(Path::is_dir) {
                        fs::write(&path, "later").expect("written");
                        let above = path.parent().expect("below another").to_owned();
                        let noticed = stale(&scene);
                        assert!(
                            noticed.iter().any(|it| *it == path || *it == above),
                            "{names:?} {name}"
                        );
                        fs::remove_file(&path).expect("ours");
                    }
                    continue;
                };
                if !found.is_file() {
                    continue;
                }
                let text = fs::read(&path).expect("read");
                fs::write(&path, "written later by another process").expect("written");
                assert!(stale(&scene).contains(&path), "{names:?} {name}: {:?}", stale(&scene));
                fs::write(&path, text).expect("written");
                let file = fs::File::options().write(true).open(&path).expect("opened");
                file.set_modified(found.modified().expect("there")).expect("set");
            }
            assert_eq!(stale(&scene), [] as [PathBuf; 0], "{names:?}: as before");
            // The times of change of these names are others now.
            assert!(matches!(commit(&scene.tried, true), Ok(CommitOutcome::Done(_))));
            scene.expect_done();
        }
    }
}

/// Directories of the upper tree are written to by the steps, and by taking these back.
#[test]
fn a_commit_that_was_taken_back_leaves_the_times_of_directories() {
    let time = |scene: &Scene| {
        let found = fs::metadata(scene.upper("keep")).expect("there");
        (found.mtime(), found.mtime_nsec())
    };
    for point in 0.. {
        let scene = Scene::new();
        let before = time(&scene);
        let (outcome, is_stopped) = until(point, false, || commit(&scene.tried, false));
        if !is_stopped {
            assert!(outcome.is_ok() && point > 20);
            break;
        }
        assert_eq!(time(&scene), before, "at {point}");
    }
}
