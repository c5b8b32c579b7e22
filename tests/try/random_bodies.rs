//! Random bodies (`src/bin/try_body`): each is done directly and as a try, and compared in what its
//! steps returned and in the trees that it left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_tests::{Seed, available, full, installed, root, runahead, scratch};

/// Bodies for each kind of user, in a sample and in full.
const BODIES: (u64, u64) = (25, 500);

/// Steps of a body.
pub const STEPS: u64 = 60;

/// Words that run a command as an ordinary user of several groups.
const AS_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=2000,2001"];

/// Words that end a body that waits for something.
const LIMIT: [&str; 2] = ["timeout", "60"];

/// Place of bodies: directories on two file systems, and where tries are kept.
pub struct Place {
    pub work: PathBuf,
    /// Directory in memory, beside which nothing else lies.
    pub other: PathBuf,
    state: PathBuf,
    /// Programs that an ordinary user may run.
    program: PathBuf,
    body: PathBuf,
    as_user: bool,
}

/// Way in which a body is run.
#[derive(Clone, Copy)]
enum Way {
    Directly,
    /// Try that is then committed.
    Committed,
    /// Try that is then undone.
    Undone,
}

/// Text that a body printed, and the trees that it left.
#[derive(PartialEq)]
struct Left {
    said: String,
    trees: String,
}

impl Place {
    pub fn new(name: &str, as_user: bool, state_in_memory: bool) -> Self {
        let around = scratch().join(format!("bodies-{name}"));
        let memory =
            PathBuf::from(format!("/dev/shm/runahead-bodies-{name}-{}", std::process::id()));
        let state = if state_in_memory { memory.join("state") } else { around.join("state") };
        let (work, other) = (around.join("around/work"), memory.join("around/other"));
        let place = Place {
            work,
            other,
            state,
            program: around.join("runahead"),
            body: around.join("body"),
            as_user,
        };
        for made in [&around, &memory, &place.state] {
            fs::create_dir_all(made).expect("it is ours");
            let all = fs::Permissions::from_mode(0o777);
            fs::set_permissions(made, all).expect("it is ours");
        }
        fs::set_permissions(scratch(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::copy(runahead(), &place.program).expect("it can be copied");
        fs::copy(env!("CARGO_BIN_EXE_try_body"), &place.body).expect("it can be copied");
        place
    }

    /// Makes the directories anew, and fills them.
    pub fn prepare(&self, seed: u64) {
        self.clear();
        for directory in [&self.work, &self.other] {
            let around = directory.parent().expect("it was made there");
            fs::create_dir_all(directory).expect("it is ours");
            for open in [around, directory] {
                let all = fs::Permissions::from_mode(0o777);
                fs::set_permissions(open, all).expect("it is ours");
            }
        }
        let other = self.other.to_str().expect("a plain path");
        let owner = if self.as_user { "65534" } else { "0" };
        let words = [path(&self.body), "prepare", &seed.to_string(), other, owner];
        assert_eq!(self.output(&words, false), "status Some(0)\n", "body {seed}");
    }

    /// Removes the directories, and what else bodies have made around them.
    fn clear(&self) {
        for directory in [&self.work, &self.other].into_iter().filter(|it| it.exists()) {
            let cleared = Command::new(&self.body).arg("clear").arg(directory).status();
            assert!(cleared.expect("it starts").success());
            let around = directory.parent().expect("it was made there");
            fs::remove_dir_all(around).expect("it is ours");
        }
    }

    /// Text that a command prints, with its status.
    fn output(&self, words: &[&str], as_user: bool) -> String {
        let user: &[&str] = if as_user { &AS_USER } else { &[] };
        let words = [user, &LIMIT, words].concat();
        let done = Command::new(words[0]).args(&words[1..]).current_dir(&self.work).output();
        let done = done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let text = [done.stdout, done.stderr].concat();
        format!("{}status {:?}\n", String::from_utf8_lossy(&text), done.status.code())
    }

    /// Text of `runahead try` with these words, with its status.
    pub fn tried(&self, words: &[&str]) -> String {
        let first = [path(&self.program), "try", "--state", path(&self.state)];
        self.output(&[&first[..], words].concat(), self.as_user)
    }

    /// Does a body as a try.
    pub fn try_body(&self, seed: u64) -> String {
        let (seed, steps) = (seed.to_string(), STEPS.to_string());
        self.tried(&["-q", "--", path(&self.body), "run", &seed, &steps, path(&self.other)])
    }

    pub fn look(&self) -> String {
        let directories = [path(&self.work), path(&self.other)];
        let words = [path(&self.body), "look"];
        self.output(&[&words[..], &directories].concat(), false)
    }

    fn run(&self, seed: u64, steps: u64, left_out: &str, way: Way) -> Left {
        self.prepare(seed);
        let before = self.look();
        let (seed, steps) = (seed.to_string(), steps.to_string());
        let body = [path(&self.body), "run", &seed, &steps, path(&self.other), left_out];
        let tried = [path(&self.program), "try", "--state", path(&self.state)];
        let said = match way {
            Way::Directly => self.output(&body, self.as_user),
            _ => self.output(&[&tried[..], &["-q", "--"], &body].concat(), self.as_user),
        };
        let meanwhile = self.look();
        let end = match way {
            Way::Directly => return Left { said, trees: meanwhile },
            Way::Committed => "commit",
            Way::Undone => "undo",
        };
        let mut trees = differences("the tree before", &before, "while it is tried", &meanwhile);
        trees += &self.ended(&tried, end);
        trees += &self.look();
        Left { said, trees }
    }

    /// Ends the try. Returns what it said if that failed.
    fn ended(&self, tried: &[&str], how: &str) -> String {
        let listed = self.output(&[tried, &["list"]].concat(), self.as_user);
        if listed.starts_with("status") {
            return String::new();
        }
        let said = self.output(&[tried, &[how]].concat(), self.as_user);
        if said.ends_with("status Some(0)\n") {
            return String::new();
        }
        self.output(&[tried, &["undo"]].concat(), self.as_user);
        format!("{how}: {said}")
    }

    /// Differences between a body done directly and as a try; empty without any.
    fn compare(&self, seed: u64, steps: u64, left_out: &str) -> String {
        let directly = self.run(seed, steps, left_out, Way::Directly);
        let committed = self.run(seed, steps, left_out, Way::Committed);
        let said = differences("directly", &directly.said, "as a try", &committed.said);
        said + &differences("left directly", &directly.trees, "committed", &committed.trees)
    }

    /// Differences that undoing a try leaves; empty without any.
    fn compare_undone(&self, seed: u64) -> String {
        let nothing = self.run(seed, 0, "", Way::Directly);
        let undone = self.run(seed, STEPS, "", Way::Undone);
        differences("before", &nothing.trees, "undone", &undone.trees)
    }

    /// Panics with the fewest steps that still differ.
    fn check(&self, seed: u64) {
        let undone = self.compare_undone(seed);
        assert!(undone.is_empty(), "body {seed}: {undone}");
        let first = self.compare(seed, STEPS, "");
        if first.is_empty() {
            return;
        }
        let mut left_out: Vec<String> = Vec::new();
        for step in (0..STEPS).rev() {
            left_out.push(step.to_string());
            if self.compare(seed, STEPS, &left_out.join(",")).is_empty() {
                left_out.pop();
            }
        }
        let left_out = left_out.join(",");
        let steps = self.run(seed, STEPS, &left_out, Way::Directly).said;
        let differences = self.compare(seed, STEPS, &left_out);
        panic!(
            "body {seed} ({}): {first}\nof its steps these are enough:\n{steps}\n{differences}",
            if self.as_user { "an ordinary user" } else { "as the tests run" },
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
        let memory = self.other.parent().and_then(Path::parent).expect("it was made there");
        let _ = fs::remove_dir_all(memory);
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Lines of two texts that differ.
fn differences(name: &str, text: &str, other_name: &str, other: &str) -> String {
    let only = |name: &str, text: &str, other: &str| -> String {
        let there: Vec<&str> = other.lines().collect();
        let only = text.lines().filter(|line| !there.contains(line));
        only.map(|line| format!("{name}: {line}\n")).collect()
    };
    only(name, text, other) + &only(other_name, other, text)
}

/// Runs random bodies, with the state on each of the two file systems by turns.
fn bodies(name: &str, as_user: bool) {
    let places = [false, true]
        .map(|in_memory| Place::new(&format!("{name}-{in_memory}"), as_user, in_memory));
    let mut seeds = Seed::new();
    let count = if full() { BODIES.1 } else { BODIES.0 };
    for body in 0..count {
        places[(body % 2) as usize].check(seeds.below(1 << 32));
    }
}

#[test]
fn random_bodies_leave_what_they_leave_directly() {
    bodies("own", false);
}

#[test]
fn random_bodies_of_a_user_leave_what_they_leave_directly() {
    if available(root()).is_some() && available(installed("setpriv")).is_some() {
        bodies("user", true);
    }
}
