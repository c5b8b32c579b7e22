//! A directory in which commands are run natively and as tries, and compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_tests::tree::snapshot;
use runahead_tests::{End, Outcome, Run, runahead, scratch};

/// A directory for one test: the tree that commands work in, and where tries are kept.
pub struct Place {
    pub work: PathBuf,
    pub state: PathBuf,
}

/// Fills the directory with a few files, directories and links, all of one old time.
pub fn fill(work: &Path) {
    for dir in ["d0/d1", "d1/a", "d2"] {
        fs::create_dir_all(work.join(dir)).expect("it is ours");
    }
    let files = [
        ("a", "one\n"),
        ("d0/b", "two\n"),
        ("d0/d1/c", "three\n"),
        ("d1/a/a", "four\n"),
        ("d2/long name", "five\n"),
    ];
    for (name, text) in files {
        fs::write(work.join(name), text).expect("it is ours");
    }
    symlink("d0", work.join("l")).expect("it is ours");
    symlink("../a", work.join("d1/l")).expect("it is ours");
    let status = Command::new("find")
        .arg(work)
        .args(["-exec", "touch", "-h", "-d", "2001-01-01", "{}", "+"])
        .status();
    assert!(status.expect("find is there").success());
}

impl Place {
    pub fn new(name: &str) -> Self {
        let place = scratch().join(format!("try-{name}"));
        let (work, state) = (place.join("around/work"), place.join("state"));
        fs::create_dir_all(&work).expect("the scratch directory is ours");
        fs::create_dir_all(&state).expect("the scratch directory is ours");
        Place { work, state }
    }

    pub fn filled(name: &str) -> Self {
        let place = Place::new(name);
        fill(&place.work);
        place
    }

    pub fn run(&self, argv: &[&str]) -> Outcome {
        Run::new(argv).dir(&self.work).run()
    }

    /// `runahead try` with these options, words and command.
    pub fn tried(&self, words: &[&str]) -> Outcome {
        let program = runahead_tests::runahead_for(words);
        let program = program.to_str().expect("a plain path");
        let state = self.state.to_str().expect("a plain path");
        let first = [program, "try", "--state", state];
        Run::new(first.iter().chain(words)).dir(&self.work).run()
    }

    /// Runs a script as a try, in which `TRY` is the program that tries.
    pub fn around(&self, script: &str) -> Outcome {
        let script = format!("TRY={:?}; {script}", runahead());
        self.shell(&script)
    }

    pub fn shell(&self, script: &str) -> Outcome {
        self.tried(&["-q", "--", "/bin/sh", "-c", script])
    }

    /// Empties the tree and its surroundings, to which symbolic links lead, and fills it again.
    pub fn again(&self) {
        let around = self.work.parent().expect("it was made there");
        fs::remove_dir_all(around).expect("it is ours");
        fs::create_dir_all(&self.work).expect("it is ours");
        fill(&self.work);
    }

    /// Commits the only try; whether there was one.
    pub fn commit(&self) {
        let none = self.tried(&["list"]).stdout.is_empty();
        if !none {
            let outcome = self.tried(&["commit"]);
            assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        }
        assert!(self.tried(&["list"]).stdout.is_empty(), "nothing is left");
    }

    /// A try of a script that makes `a`, and goes on after that.
    pub fn until_a_is_there(&self, script: &str) -> std::process::Child {
        let program = runahead().to_str().expect("a plain path");
        let state = self.state.to_str().expect("a plain path");
        let argv = [program, "try", "-q", "--state", state, "--", "/bin/sh", "-c", script];
        let running = Run::new(argv).dir(&self.work).command().spawn().expect("it starts");
        while !self.tried(&["status"]).text().contains("work/a") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        running
    }
}

/// Everything that a program can see of a tree: [`snapshot`], and times that were set, not those
/// of now.
pub fn seen(work: &Path) -> BTreeMap<PathBuf, String> {
    const NOW: i64 = 1_500_000_000;
    let mut all = snapshot(work);
    for (name, text) in &mut all {
        let Ok(found) = work.join(name).symlink_metadata() else { continue };
        if found.mtime() < NOW {
            text.push_str(&format!(" {}.{}", found.mtime(), found.mtime_nsec()));
        }
    }
    all
}

/// Inodes, sizes and times of all, too: nothing at all has happened to the tree.
pub fn untouched(work: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, i64, i64)> {
    let about = |path: &Path| {
        let m = path.symlink_metadata().expect("it is there");
        (m.ino(), m.size(), m.mtime(), m.ctime(), m.ctime_nsec())
    };
    snapshot(work).keys().map(|name| (name.clone(), about(&work.join(name)))).collect()
}

pub fn differences(a: &BTreeMap<PathBuf, String>, b: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let differ = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    differ
        .map(|name| format!("{}: {:?} and {:?}", name.display(), a.get(name), b.get(name)))
        .collect()
}

/// Runs a command natively and as a try that is then committed. Both print and leave the same, and
/// nothing changes before the commit.
pub fn twins(place: &Place, argv: &[&str]) {
    let plain = place.run(argv);
    let made = seen(&place.work);
    place.again();
    let before = untouched(&place.work);
    let command = [&["-q", "--"], argv].concat();
    let tried = place.tried(&command);
    assert_eq!(plain, tried, "{argv:?}");
    assert_eq!(before, untouched(&place.work), "{argv:?}: before it was committed");
    place.commit();
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{argv:?}: natively, and committed: {differences:#?}");
}

pub fn sh(place: &Place, script: &str) {
    let argv = ["/bin/sh", "-c", script];
    twins(place, &argv);
    place.again();
    nested_twins(place, &argv);
    place.again();
}

/// Runs a command in a try inside a try in which `before` was run. The inner one is committed into
/// the outer one, then the outer one.
pub fn nested_twins_behind(place: &Place, before: &str, argv: &[&str]) {
    place.run(&["/bin/sh", "-c", before]);
    let plain = place.run(argv);
    let made = seen(&place.work);
    place.again();
    let untouched_before = untouched(&place.work);
    let list =
        "find . | sort; find . -type f ! -perm 000 | sort | xargs -d '\\n' -r cat 2> /dev/null";
    // The status is the inner command's; what the outer one sees is the same before and after.
    let script = format!(
        "{before}; {{ {list}; }} > ../before; \"$TRY\" try -q -- \"$@\"; status=$?; {{ {list}; }} > ../after; cmp ../before ../after || exit 99; \
         rm ../before ../after; if [ -n \"$(\"$TRY\" try list)\" ]; then \"$TRY\" try commit -q || exit 98; fi; exit $status"
    );
    let program = runahead().to_str().expect("a plain path");
    let environment = format!("TRY={program}");
    let command = ["-q", "--", "env", &environment, "/bin/sh", "-c", &script, "sh"];
    let tried = place.tried(&[&command[..], argv].concat());
    assert_eq!(plain, tried, "{argv:?} behind {before}");
    assert_eq!(untouched_before, untouched(&place.work), "{argv:?}: before it was committed");
    place.commit();
    let differences = differences(&made, &seen(&place.work));
    assert!(differences.is_empty(), "{argv:?} behind {before}: {differences:#?}");
}

pub fn nested_twins(place: &Place, argv: &[&str]) {
    nested_twins_behind(place, "true", argv);
}

/// The names of all tries, as they are listed.
pub fn names(place: &Place) -> Vec<String> {
    let list = place.tried(&["list"]).text();
    list.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}
