//! Commits that are killed, or that cannot be made: done, undone, or refused before anything is
//! changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use runahead_tests::{End, Run, available, installed, root, runahead};

use crate::try_directory::{Place, differences, seen};

/// A directory in another file system, removed on drop.
struct OtherDisk(PathBuf);

impl OtherDisk {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/runahead-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("all may write there");
        OtherDisk(path)
    }
}

impl Drop for OtherDisk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Place whose tries are kept on the same file system, or on another one.
fn places(name: &str) -> [(Place, Option<OtherDisk>); 2] {
    let other = OtherDisk::new(name);
    let mut far = Place::new(&format!("{name}-far"));
    far.state = other.0.clone();
    [(Place::new(&format!("{name}-near")), None), (far, Some(other))]
}

fn fill(work: &Path) {
    for directory in ["d/gone", "e"] {
        fs::create_dir_all(work.join(directory)).expect("it is ours");
    }
    for number in 0..80 {
        for kind in ["d/written", "d/gone/x", "e/linked"] {
            let text = format!("before {number}");
            fs::write(work.join(format!("{kind}{number}")), text).expect("it is ours");
        }
        let first = work.join(format!("e/linked{number}"));
        fs::hard_link(first, work.join(format!("d/name{number}"))).expect("it is ours");
    }
    let words = ["-exec", "touch", "-d", "2001-01-01", "{}", "+"];
    let touched = Command::new("find").arg(work).args(words).status();
    assert!(touched.expect("find is there").success());
}

/// True if a commit has begun.
fn has_journal(state: &Path) -> bool {
    let tries = fs::read_dir(state).expect("it is there").flatten();
    tries.into_iter().any(|tried| tried.path().join("journal").exists())
}

/// Changes of all kinds. What they make has an old time.
const CHANGES: &str = "rm -r d/gone; for n in d/written* e/linked1*; do echo after > $n; done; mkdir -p n/m; \
     for n in 1 2 3 4 5 6 7 8 9; do echo new > n/m/$n; ln n/m/$n n/$n; done; ln -s x l; mkfifo p; mv e/linked2 moved; \
     chmod 700 e; find . -exec touch -h -d 2002-02-02 {} +";

#[test]
fn a_killed_commit_is_finished_or_undone() {
    for (place, _other) in places("killed") {
        fill(&place.work);
        let before = seen(&place.work);
        place.run(&["/bin/sh", "-c", CHANGES]);
        let made = seen(&place.work);
        let mut interrupted = 0;
        for round in 0u64..14 {
            fs::remove_dir_all(&place.work).expect("it is ours");
            fs::create_dir_all(&place.work).expect("it is ours");
            fill(&place.work);
            assert_eq!(place.shell(CHANGES).end, End::Exit(0));
            let program = runahead().to_str().expect("a plain path");
            let state = place.state.to_str().expect("a plain path");
            let argv = [program, "try", "--state", state, "commit"];
            let mut commit = Run::new(argv).dir(&place.work).command().spawn().expect("it starts");
            let is_over = |commit: &mut Child| commit.try_wait().expect("it is ours").is_some();
            while !has_journal(&place.state) && !is_over(&mut commit) {
                std::thread::sleep(Duration::from_micros(100));
            }
            std::thread::sleep(Duration::from_micros(round * 7919 % 24_000));
            commit.kill().expect("it is ours");
            commit.wait().expect("it is ours");
            let status = place.tried(&["status"]);
            interrupted += usize::from(status.text().contains("its commit was interrupted"));
            if place.tried(&["list"]).stdout.is_empty() {
                let differences = differences(&made, &seen(&place.work));
                assert!(differences.is_empty(), "round {round}, done: {differences:#?}");
                continue;
            }
            let (task, expected) =
                if round % 2 == 0 { ("commit", &made) } else { ("undo", &before) };
            let outcome = place.tried(&[task]);
            assert_eq!(outcome.end, End::Exit(0), "round {round}, {status:?}: {outcome:?}");
            let differences = differences(expected, &seen(&place.work));
            assert!(differences.is_empty(), "round {round}, {task}: {differences:#?}");
            assert!(place.tried(&["list"]).stdout.is_empty());
        }
        assert!(interrupted > 2, "{interrupted} of 14 commits were met");
    }
}

#[test]
fn what_the_kernel_would_refuse_is_said_before_anything_is_changed() {
    if available(root()).is_none() || available(installed("chattr")).is_none() {
        return;
    }
    let place = Place::filled("refused");
    let script = "echo new > a; rm d1/l; echo new > d2/n; chmod 700 d0";
    assert_eq!(place.shell(script).end, End::Exit(0));
    let chattr = |flag: &str, name: &str| {
        let done = place.run(&["chattr", flag, name]);
        assert_eq!(done.end, End::Exit(0), "{done:?}");
    };
    for (name, why) in [("d1", "d1/l: its directory is immutable"), ("d2", "d2/n: its directory")] {
        chattr("+i", name);
        let before = seen(&place.work);
        let outcome = place.tried(&["commit"]);
        chattr("-i", name);
        assert_eq!(outcome.end, End::Exit(1), "{outcome:?}");
        assert!(outcome.complaints().contains(why), "{outcome:?}");
        assert_eq!(before, seen(&place.work), "nothing was done");
    }
    place.commit();
    assert!(place.work.join("d2/n").exists() && !place.work.join("d1/l").exists());
}

#[test]
fn an_append_only_directory_gets_new_names_from_another_disk() {
    if available(root()).is_none() || available(installed("chattr")).is_none() {
        return;
    }
    for (place, _other) in places("append") {
        fs::create_dir_all(place.work.join("d")).expect("it is ours");
        place.run(&["chattr", "+a", "d"]);
        let outcome = place.shell("echo new > d/n; mkdir d/m; echo x > d/m/f");
        let committed = place.tried(&["commit"]);
        place.run(&["chattr", "-a", "d"]);
        assert_eq!((outcome.end, committed.end), (End::Exit(0), End::Exit(0)), "{committed:?}");
        let listed = place.run(&["find", "d"]).text();
        let mut names: Vec<_> = listed.lines().collect();
        names.sort_unstable();
        assert_eq!(names, ["d", "d/m", "d/m/f", "d/n"]);
    }
}

/// The file system of the tree has room for the bytes, and not for the names.
#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    if available(root()).is_none() || available(installed("unshare")).is_none() {
        return;
    }
    let place = Place::new("full");
    let script = "mount -t tmpfs -o nr_inodes=20 none . && cd . && cd \"$PWD\" || exit 9; \
         echo old > keep; echo old > gone; \
         $R -q -- sh -c 'rm gone; echo new > keep; for n in 1 2 3 4 5 6 7 8 9; do echo > a$n; done; mkdir d; for n in 1 2 3 4 5 6 7 8 9; do echo > d/$n; done'; \
         $R commit; echo $?; ls -A; cat keep; $R undo; echo $?; ls -A";
    let state = place.state.to_str().expect("a plain path");
    let program = runahead().to_str().expect("a plain path");
    let script = script.replace("$R", &format!("{program} try --state {state}"));
    let outcome = place.run(&["unshare", "-m", "sh", "-c", &script]);
    assert_eq!(outcome.text(), "1\ngone\nkeep\nold\n0\ngone\nkeep\n", "{outcome:?}");
    assert!(outcome.complaints().contains("nothing was committed"), "{outcome:?}");
}
