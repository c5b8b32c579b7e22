//! Commits of what an agent leaves, complete and interrupted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use runahead_abi::overlay::{CHANGES, ORIGIN_MAX, Origin, UPPER, WHITEOUT};

use super::stopping_points::STOP;
use super::*;
use crate::recorded_origins::{current_metadata, origin};
use crate::store::Store;

/// A lower tree, and a try as an agent leaves it.
pub(super) struct Scene {
    root: tempfile::TempDir,
    pub(super) tried: Try,
    /// The lower tree before a commit.
    pub(super) before: BTreeMap<PathBuf, String>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let real = root.path().canonicalize().expect("it is there").join("real");
        for directory in ["keep", "goes/in", "turns"] {
            fs::create_dir_all(real.join(directory)).expect("made");
        }
        for name in ["keep/a", "keep/b", "goes/in/c", "turns/d", "was"] {
            fs::write(real.join(name), name).expect("written");
        }
        let store = Store::new(Some(&root.path().join("state"))).expect("given");
        let (tried, lock) = store.create(vec!["x".into()], &real).expect("new");
        drop(lock);
        let mut scene = Scene { root, tried, before: BTreeMap::new() };
        scene.before = scene.tree();
        scene.change();
        scene
    }

    pub(super) fn real(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join("real").join(name)
    }

    pub(super) fn upper(&self, name: &str) -> PathBuf {
        let path = self.real(name);
        self.tried.overlay_directory().join(UPPER).join(path.strip_prefix("/").expect("absolute"))
    }

    fn words(&self, name: &str) -> Vec<u8> {
        let found = current_metadata(&self.real(name)).expect("looked at");
        let origin = found.as_ref().map_or(Origin::ABSENT, origin);
        let mut room = [0; ORIGIN_MAX];
        let len = origin.write(self.real(name).as_os_str().as_bytes(), &mut room);
        room[..len.expect("there is room")].to_vec()
    }

    fn write(&self, front: &[u8], name: &str) {
        let list = self.tried.overlay_directory().join(CHANGES);
        let mut file = File::options().append(true).open(list).expect("opened");
        file.write_all(&[front, &self.words(name), &[0]].concat()).expect("written");
    }

    pub(super) fn record(&self, name: &str) {
        self.write(&[], name);
    }

    pub(super) fn gone(&self, name: &str) {
        self.write(&[WHITEOUT], name);
    }

    /// Makes every kind of change: modified, added, deleted, and of another type.
    fn change(&self) {
        for directory in ["keep", "new/deep", "was"] {
            fs::create_dir_all(self.upper(directory)).expect("made");
        }
        ["keep/a", "new", "keep/link"].iter().for_each(|name| self.record(name));
        ["keep/b", "goes", "goes/in", "goes/in/c", "turns", "turns/d", "was"]
            .iter()
            .for_each(|name| self.gone(name));
        let files = ["keep/a", "new/deep/e", "was/f", "turns"];
        for name in files {
            fs::write(self.upper(name), format!("new {name}")).expect("written");
        }
        symlink("a", self.upper("keep/link")).expect("made");
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(self.upper("new/deep/e"), mode).expect("set");
    }

    pub(super) fn tree(&self) -> BTreeMap<PathBuf, String> {
        let real = self.real("");
        let all = walkdir::WalkDir::new(&real).into_iter().map(|entry| entry.expect("listed"));
        all.map(|entry| {
            let found = entry.metadata().expect("it is there");
            let contents = match found.is_file() {
                true => fs::read_to_string(entry.path()).expect("read"),
                false => String::new(),
            };
            let name = entry.path().strip_prefix(&real).expect("below it").to_owned();
            (name, format!("{:o} {contents}", found.mode()))
        })
        .collect()
    }

    pub(super) fn expect_done(&self) {
        let tree = self.tree();
        let names: Vec<_> = tree.keys().map(|name| name.to_string_lossy().into_owned()).collect();
        let expected = [
            "",
            "keep",
            "keep/a",
            "keep/link",
            "new",
            "new/deep",
            "new/deep/e",
            "turns",
            "was",
            "was/f",
        ];
        assert_eq!(names, expected);
        assert_eq!(tree[Path::new("keep/a")], "100644 new keep/a");
        assert_eq!(tree[Path::new("new/deep/e")], "100640 new new/deep/e");
        assert_eq!(tree[Path::new("turns")], "100644 new turns");
        assert!(!self.tried.directory().exists(), "nothing is left");
    }
}

#[test]
fn commit_applies_every_kind_of_change() {
    let scene = Scene::new();
    assert!(matches!(commit(&scene.tried, false), Ok(CommitOutcome::Done(_))));
    scene.expect_done();
}

/// Commits until a point, where the commit is killed or a call fails. Returns its result, and
/// whether the point was reached.
fn commit_until(scene: &Scene, point: usize, is_killed: bool) -> (Result<CommitOutcome>, bool) {
    STOP.set(Some((point, is_killed)));
    let outcome = commit(&scene.tried, false);
    let is_stopped = match STOP.take() {
        None => true,
        Some((left, _)) => left == 0 && outcome.is_err(),
    };
    (outcome, is_stopped)
}

/// Runs `then` for a commit that was stopped, once for each point. Returns the number of points.
fn stopped_at_each_point(is_killed: bool, mut then: impl FnMut(Scene, usize, Error)) -> usize {
    for point in 0.. {
        let scene = Scene::new();
        match commit_until(&scene, point, is_killed) {
            (Err(error), true) => then(scene, point, error),
            (outcome, _) => {
                assert!(matches!(outcome, Ok(CommitOutcome::Done(_))), "{outcome:?}");
                return point;
            }
        }
    }
    unreachable!()
}

#[test]
fn killed_commit_is_resumed() {
    let points = stopped_at_each_point(true, |scene, point, _| {
        let done = commit(&scene.tried, false);
        assert!(matches!(done, Ok(CommitOutcome::Done(_))), "after {point}: {done:?}");
        scene.expect_done();
    });
    assert!(points > 20, "{points}");
}

#[test]
fn killed_commit_is_taken_back() {
    stopped_at_each_point(true, |scene, point, _| {
        undo(&scene.tried).unwrap_or_else(|error| panic!("after {point}: {error}"));
        assert_eq!(scene.tree(), scene.before, "after {point}");
        assert!(!scene.tried.directory().exists(), "nothing is left");
    });
}

/// Text of another process in a new entry stays, whether the commit has noted the step or not.
#[test]
fn an_undo_leaves_what_another_process_wrote_after_a_kill() {
    for name in ["keep/a", "new/deep/e", "turns"] {
        let mut kept = 0;
        stopped_at_each_point(true, |scene, point, _| {
            let path = scene.real(name);
            let committed = format!("new {name}");
            if !fs::read_to_string(&path).is_ok_and(|text| text == committed) {
                return;
            }
            // The clock of file systems has ticks of some milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(&path, "precious").expect("written");
            let undone = undo(&scene.tried);
            assert!(undone.is_err(), "after {point}: {undone:?}");
            assert_eq!(fs::read_to_string(&path).expect("there"), "precious", "after {point}");
            kept += 1;
        });
        assert!(kept > 3, "{name}: {kept}");
    }
}

#[test]
fn killed_undo_of_a_killed_commit_is_repeated_or_resumed() {
    let points = stopped_at_each_point(true, |_, _, _| {});
    for is_resumed in [true, false] {
        for point in [points / 3, points - 3] {
            for later in (0..points).step_by(3) {
                let scene = Scene::new();
                let (_, is_stopped) = commit_until(&scene, point, true);
                assert!(is_stopped);
                STOP.set(Some((later, true)));
                let undone = undo(&scene.tried);
                STOP.set(None);
                if undone.is_ok() {
                    assert_eq!(scene.tree(), scene.before);
                    break;
                }
                if is_resumed {
                    let done = commit(&scene.tried, false);
                    assert!(matches!(done, Ok(CommitOutcome::Done(_))), "{point} {later} {done:?}");
                    scene.expect_done();
                } else {
                    undo(&scene.tried).unwrap_or_else(|error| panic!("{point} {later}: {error}"));
                    assert_eq!(scene.tree(), scene.before, "{point} {later}");
                }
            }
        }
    }
}

#[test]
fn commit_with_a_failing_step_is_taken_back_and_can_be_made_later() {
    stopped_at_each_point(false, |scene, point, error| {
        assert!(matches!(error, Error::TakenBack(_)), "at {point}: {error}");
        assert_eq!(scene.tree(), scene.before, "at {point}");
        assert!(!is_interrupted(&scene.tried));
        let done = commit(&scene.tried, false);
        assert!(matches!(done, Ok(CommitOutcome::Done(_))), "after {point}: {done:?}");
        scene.expect_done();
    });
}

#[test]
fn undo_takes_no_change_of_another_process_back() {
    let points = stopped_at_each_point(true, |_, _, _| {});
    let scenes = (0..points).rev().map(|point| {
        let scene = Scene::new();
        let (_, is_stopped) = commit_until(&scene, point, true);
        (scene, is_stopped)
    });
    let is_met = |(scene, is_stopped): &(Scene, bool)| {
        *is_stopped && is_interrupted(&scene.tried) && scene.real("new/deep").exists()
    };
    let (scene, _) = { scenes }.find(is_met).expect("one commit has made it");
    fs::write(scene.real("new/deep/late"), "precious").expect("written");
    let undone = undo(&scene.tried);
    assert!(undone.is_err(), "{undone:?}");
    assert_eq!(fs::read(scene.real("new/deep/late")).expect("it is there"), b"precious");
    assert!(interruption(&scene.tried).expect("read").is_some());
    assert!(matches!(commit(&scene.tried, false), Ok(CommitOutcome::Done(_))));
    assert_eq!(fs::read(scene.real("new/deep/late")).expect("it is there"), b"precious");
}

#[test]
fn changes_by_another_process_stop_a_commit() {
    type Change = fn(&Scene);
    let changes: [(&str, Change); 5] = [
        ("keep/a", |scene| fs::write(scene.real("keep/a"), "x").expect("written")),
        ("keep/b", |scene| fs::remove_file(scene.real("keep/a")).expect("removed")),
        ("new", |scene| fs::write(scene.real("new"), "x").expect("written")),
        ("goes", |scene| fs::write(scene.real("goes/in/late"), "x").expect("written")),
        ("was", |scene| fs::write(scene.real("was"), "x").expect("written")),
    ];
    for (name, change) in changes {
        let scene = Scene::new();
        change(&scene);
        let before = scene.tree();
        let Ok(CommitOutcome::Conflicts(conflicts)) = commit(&scene.tried, false) else {
            panic!("{name}: it was committed")
        };
        assert!(!conflicts.is_empty());
        assert_eq!(before, scene.tree(), "{name}");
    }
}

fn set_modified(path: &Path, time: std::time::SystemTime) {
    let file = File::options().write(true).open(path).expect("opened");
    file.set_modified(time).expect("set");
}

#[test]
fn unchanged_copy_is_no_change() {
    let scene = Scene::new();
    let before = Changes::read(&scene.tried.overlay_directory()).expect("read").len();
    scene.record("turns/d");
    let (real, upper) = (scene.real("was"), scene.upper("copy"));
    fs::write(scene.real("copy"), "same").expect("written");
    scene.record("copy");
    fs::copy(scene.real("copy"), &upper).expect("copied");
    let found = fs::symlink_metadata(scene.real("copy")).expect("it is there");
    set_modified(&upper, found.modified().expect("there"));
    assert_eq!(Changes::read(&scene.tried.overlay_directory()).expect("read").len(), before);
    fs::write(&upper, "SAME").expect("written");
    set_modified(&upper, found.modified().expect("there"));
    assert_eq!(
        Changes::read(&scene.tried.overlay_directory()).expect("read").len(),
        before + 1,
        "its contents"
    );
    assert!(real.exists());
}

#[test]
fn interrupted_commit_is_not_resumed_over_changes_of_others() {
    let scene = Scene::new();
    let (_, is_stopped) = commit_until(&scene, 4, true);
    assert!(is_stopped);
    fs::write(scene.real("keep/a"), "precious").expect("written");
    let CommitOutcome::Conflicts(conflicts) = commit(&scene.tried, false).expect("tried") else {
        panic!("it was resumed");
    };
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(fs::read(scene.real("keep/a")).expect("it is there"), b"precious");
    assert!(matches!(commit(&scene.tried, true), Ok(CommitOutcome::Done(_))));
    scene.expect_done();
}

#[test]
fn a_directory_that_another_process_removed_is_a_conflict() {
    let scene = Scene::new();
    fs::remove_dir_all(scene.real("keep")).expect("removed");
    let CommitOutcome::Conflicts(conflicts) = commit(&scene.tried, false).expect("tried") else {
        panic!("it was made again");
    };
    assert!(conflicts.iter().any(|change| change.path == scene.real("keep")), "{conflicts:?}");
}

#[test]
fn a_removal_whose_directory_is_away_is_a_conflict() {
    let scene = Scene::new();
    fs::create_dir(scene.real("away")).expect("made");
    fs::write(scene.real("away/removed"), "x").expect("written");
    scene.gone("away/removed");
    fs::rename(scene.real("away"), scene.real("elsewhere")).expect("renamed");
    let CommitOutcome::Conflicts(conflicts) = commit(&scene.tried, false).expect("tried") else {
        panic!("the removal was left out");
    };
    let paths: Vec<_> = conflicts.iter().map(|change| change.path.clone()).collect();
    assert_eq!(paths, [scene.real("away/removed")]);
    fs::rename(scene.real("elsewhere"), scene.real("away")).expect("renamed");
    assert!(matches!(commit(&scene.tried, false), Ok(CommitOutcome::Done(_))));
    assert!(!scene.real("away/removed").exists());
}
