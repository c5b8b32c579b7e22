//! Directories that another process replaces by symbolic links while a commit goes on: it touches
//! nothing that they lead to.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runahead_tests::End;

use crate::try_directory::{Place, untouched};

/// Files of each kind in the directory.
const FILES: usize = 60;

/// Tries that are committed, and attempts at each.
const ROUNDS: usize = 12;
const ATTEMPTS: usize = 10;

/// Makes the directory `name` with files that the script changes, and one with those names outside.
fn fill(work: &Path, name: &str) {
    let directory = work.join(name);
    for inner in ["gone", "dressed"] {
        fs::create_dir_all(directory.join(inner)).expect("it is ours");
    }
    for file in 0..FILES {
        for kind in ["written", "gone/removed", "linked"] {
            fs::write(directory.join(format!("{kind}{file}")), "before").expect("it is ours");
        }
        let further = directory.join(format!("further{file}"));
        fs::hard_link(directory.join(format!("linked{file}")), further).expect("it is ours");
    }
}

/// Swaps `d` for a symbolic link to `outside` and back until `is_over`, for times that differ.
fn swap(work: &Path, is_over: &AtomicBool) {
    let (directory, away) = (work.join("d"), work.join("away"));
    for turn in 0u64.. {
        std::thread::sleep(Duration::from_micros(turn * 7919 % 9001));
        fs::rename(&directory, &away).expect("it is ours");
        symlink("outside", &directory).expect("it is ours");
        std::thread::sleep(Duration::from_micros(turn * 104_729 % 499));
        fs::remove_file(&directory).expect("it is ours");
        fs::rename(&away, &directory).expect("it is ours");
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
}

#[test]
fn a_commit_does_not_follow_a_directory_that_became_a_link() {
    let script = "for n in d/written* d/linked*; do echo after > $n; done; chmod 700 d/dressed; rm -r d/gone; \
                  for n in d/written*; do echo new > $n.new; done; mkdir d/made; echo > d/made/f";
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let place = Place::new(&format!("swapped-{round}"));
        fill(&place.work, "d");
        fill(&place.work, "outside");
        let outcome = place.shell(script);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let before = untouched(&place.work.join("outside"));
        let is_over = AtomicBool::new(false);
        let end = std::thread::scope(|scope| {
            scope.spawn(|| swap(&place.work, &is_over));
            // The comparison that goes first meets the link, too: then the commit is refused.
            let end = (0..ATTEMPTS)
                .map(|_| place.tried(&["commit"]).end)
                .find(|end| *end != End::Exit(3))
                .unwrap_or(End::Exit(3));
            is_over.store(true, Ordering::Relaxed);
            end
        });
        interrupted += usize::from(end == End::Exit(1));
        assert!(before == untouched(&place.work.join("outside")), "round {round}: {end:?}");
        if end != End::Exit(0) {
            // What a commit had done when it met the link was taken back.
            let later = place.tried(&["commit"]);
            assert_eq!(later.end, End::Exit(0), "round {round}: {later:?}");
        }
        let text = fs::read_to_string(place.work.join("d/written0")).expect("it is there");
        assert_eq!(text, "after\n", "round {round}");
        assert!(place.work.join("d/made/f").exists() && !place.work.join("d/gone").exists());
        fs::remove_dir_all(place.work.parent().expect("it was made there")).expect("it is ours");
    }
    assert!(interrupted > 0, "no commit met a link: this test shows nothing");
}
