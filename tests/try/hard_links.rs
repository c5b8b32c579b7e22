//! Several names of one file (hard links): the view and the commit keep them names of one file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_tests::End;

use crate::try_directory::{Place, differences, seen};

/// Names of one file, next to a file with one name.
const FILL: &str = "echo one > a; ln a b; ln a d0/x; ln a d1/a/x; echo single > s; \
                    touch -d 2001-01-01 a s . d0 d1/a";

/// Prints the number of names of files, and which are one.
const LOOK: &str = "look() { for f; do stat -c '%n %h %a' $f; done; cat \"$@\"; \
                    [ $1 -ef $2 ] && echo one; true; }; ";

/// Collects what a program can see of the tree, and the names of each file.
fn seen_with_links(work: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = seen(work);
    let inode = |name: &Path| work.join(name).symlink_metadata().map(|m| (m.dev(), m.ino())).ok();
    let mut groups: BTreeMap<_, Vec<PathBuf>> = BTreeMap::new();
    for name in all.keys() {
        groups.entry(inode(name)).or_default().push(name.clone());
    }
    for (name, text) in &mut all {
        text.push_str(&format!(" {:?}", groups[&inode(name)]));
    }
    all
}

fn fill(place: &Place) {
    place.again();
    let filled = place.run(&["/bin/sh", "-c", FILL]);
    assert_eq!(filled.end, End::Exit(0), "{filled:?}");
}

/// Runs a script natively and as a try that is then committed: it prints and leaves the same.
fn twins(place: &Place, script: &str) {
    let argv = ["/bin/sh", "-c", &format!("{LOOK}{script}")];
    fill(place);
    let plain = place.run(&argv);
    let made = seen_with_links(&place.work);
    fill(place);
    let before = seen_with_links(&place.work);
    let tried = place.tried(&[&["-q", "--"], &argv[..]].concat());
    assert_eq!(plain, tried, "{script}");
    let after = differences(&before, &seen_with_links(&place.work));
    assert!(after.is_empty(), "{script}: before it was committed: {after:#?}");
    place.commit();
    let differences = differences(&made, &seen_with_links(&place.work));
    assert!(differences.is_empty(), "{script}: natively, and committed: {differences:#?}");
}

const SCRIPTS: [&str; 19] = [
    "echo two >> a; look b a d0/x",
    "stat -c %h a; echo two > b; cat < a; look a d1/a/x",
    "chmod 600 d0/x; look a b; touch -d 2002-02-02 b; stat -c %Y a d0/x",
    "mv d0 e; look e/x a; echo two >> e/x; look a e/x b",
    "mv d1 e; echo two >> b; look b e/a/x; mv e d1; look d1/a/x a",
    "rm b; look a d0/x; mv d0/x g; chmod 600 a; look g a",
    "echo two >> a; rm a; look b d0/x",
    "rm a b d0/x; look d1/a/x s; rm d1/a/x; ls",
    "echo two > b; rm a b d0/x d1/a/x; ls -R",
    "cp -al d0 e; echo two >> e/x; look a e/x; rm d0/x; look e/x a",
    "ln a n; look n a; ln n d2/n; echo two >> d2/n; look n b; ln d0/x d2/m; look d2/m n",
    "mkdir n; ln a n/a; ln b n/b; ln s n/s; echo two >> n/b; echo more >> s; look n/a a; look s n/s",
    "echo new > t; mv t a; look b d0/x a; echo two >> b; look b a",
    "mv a b; look a b; echo two >> a; mv -f s d0/x; look a d0/x",
    "echo two > t; ln -f t a; look a t; ln -f b a; look a b; echo x >> a; look b d0/x",
    "python3 -I -S -B -c 'import os; r = open(\"a\", \"r+\"); os.unlink(\"a\"); r.write(\"new\"); r.flush(); \
     print(os.fstat(r.fileno()).st_nlink, open(\"b\").read()); os.fchmod(r.fileno(), 0o640)'; look b d0/x",
    "for f in a b d0/x d1/a/x; do echo more >> $f & done; wait; touch -d 2001-01-01 . d0 d1/a; look a b d0/x d1/a/x | sort",
    "chmod 600 a; python3 -I -S -B -c 'import os; r = open(\"b\"); os.fchmod(r.fileno(), 0o640); print(os.fstat(r.fileno()).st_mode)'; look d0/x a",
    "printf '#!/bin/sh\\necho two' > a; chmod +x b; ./d0/x; look b a",
];

#[test]
fn names_of_one_file_stay_so() {
    let place = Place::filled("links");
    SCRIPTS.iter().for_each(|script| twins(&place, script));
}

/// Files cannot be renamed from there: names are written one by one.
#[test]
fn names_stay_so_with_tries_on_another_file_system() {
    let mut place = Place::filled("links-elsewhere");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let other = Path::new("/dev/shm");
    if device(other).is_none() || device(other) == device(&place.work) {
        eprintln!("skipped: /dev/shm is no other file system");
        return;
    }
    place.state = other.join(format!("runahead-links-{}", std::process::id()));
    fs::create_dir_all(&place.state).expect("others may make directories there");
    let changes_in_place = [0, 1, 2, 6, 8, 12, 16, 17];
    changes_in_place.iter().for_each(|at| twins(&place, SCRIPTS[*at]));
    fs::remove_dir_all(&place.state).expect("it is ours");
}

/// The inner try is committed into the outer one, and that into the tree.
#[test]
fn names_stay_so_in_nested_tries() {
    let place = Place::filled("links-inside");
    for script in SCRIPTS {
        let before = "echo outer >> b; chmod 640 a";
        fill(&place);
        let plain = place.run(&["/bin/sh", "-c", &format!("{LOOK}{before}; {script}")]);
        let made = seen_with_links(&place.work);
        fill(&place);
        let inner = format!("{LOOK}{script}");
        fs::write(place.work.join("../inner"), inner).expect("it is ours");
        let tried = place.around(&format!(
            "{before}; \"$TRY\" try -q -- sh ../inner; [ -z \"$(\"$TRY\" try list)\" ] || \"$TRY\" try commit -q"
        ));
        assert_eq!(plain, tried, "{script}");
        place.commit();
        let differences = differences(&made, &seen_with_links(&place.work));
        assert!(differences.is_empty(), "{script}: natively, and committed: {differences:#?}");
    }
}

#[test]
fn unchanged_names_are_no_change() {
    let place = Place::filled("links-unchanged");
    fill(&place);
    place.shell("exec 3<> a 4<> b; cat d0/x");
    let status = place.tried(&["status"]).text();
    assert_eq!(status.lines().count(), 1, "no name: {status}");
}

#[test]
fn a_change_by_another_name_is_a_conflict() {
    let place = Place::filled("links-conflict");
    fill(&place);
    place.shell("echo ours >> a");
    fs::write(place.work.join("d0/x"), "theirs").expect("it is ours");
    let outcome = place.tried(&["commit"]);
    assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
    assert_eq!(fs::read_to_string(place.work.join("b")).expect("it is there"), "theirs");
}

/// The original keeps its inode: descriptors and names outside of the tree see the change.
#[test]
fn the_commit_writes_into_the_file() {
    let place = Place::filled("links-inode");
    fill(&place);
    let inode = || fs::metadata(place.work.join("a")).expect("it is there").ino();
    let before = inode();
    place.shell("mv d0 e; echo two >> e/x");
    place.commit();
    assert_eq!(inode(), before);
    assert_eq!(fs::read_to_string(place.work.join("b")).expect("it is there"), "one\ntwo\n");
}
