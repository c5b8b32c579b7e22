//! Places of random bodies (`src/bin/try_body`), and the ways in which they are run there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_tests::{runahead, scratch};

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
    pub as_user: bool,
}

/// Body, by the seed of its random numbers, its number of steps and those that are not done.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    pub seed: u64,
    pub steps: u64,
    pub left_out: &'a str,
}

/// Text that a body printed, and the trees that it left.
#[derive(PartialEq)]
pub struct Left {
    pub said: String,
    pub trees: String,
    /// Number of calls of the commit that change files.
    pub calls: u64,
    /// True if the commit was refused, for a reason that docs/guide/try.md names.
    pub is_refused: bool,
}

impl Place {
    pub fn new(name: &str, as_user: bool, state_in_memory: bool) -> Self {
        let around = scratch().join(format!("bodies-{name}"));
        let memory =
            PathBuf::from(format!("/dev/shm/runahead-bodies-{name}-{}", std::process::id()));
        let place = Place::at(&around, &memory, as_user, state_in_memory);
        fs::set_permissions(scratch(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        place
    }

    /// Place in these directories, of which the second one is on another file system.
    pub fn at(around: &Path, memory: &Path, as_user: bool, state_in_memory: bool) -> Self {
        let state = if state_in_memory { memory.join("state") } else { around.join("state") };
        let (work, other) = (around.join("around/work"), memory.join("around/other"));
        let (program, body) = (around.join("runahead"), around.join("body"));
        let place = Place { work, other, state, program, body, as_user };
        for made in [around, memory, &place.state] {
            fs::create_dir_all(made).expect("it is ours");
            let all = fs::Permissions::from_mode(0o777);
            fs::set_permissions(made, all).expect("it is ours");
        }
        fs::copy(runahead(), &place.program).expect("it can be copied");
        fs::copy(env!("CARGO_BIN_EXE_try_body"), &place.body).expect("it can be copied");
        place
    }

    /// Makes the directories anew, and fills them. Returns the trees.
    pub fn prepare(&self, seed: u64) -> String {
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
        self.look()
    }

    /// Removes the directories, what else bodies have made around them, and all tries.
    fn clear(&self) {
        for directory in [&self.work, &self.other].into_iter().filter(|it| it.exists()) {
            let cleared = Command::new(&self.body).arg("clear").arg(directory).status();
            assert!(cleared.expect("it starts").success());
            let around = directory.parent().expect("it was made there");
            fs::remove_dir_all(around).expect("it is ours");
        }
        let cleared = Command::new(&self.body).arg("clear").arg(&self.state).status();
        assert!(cleared.expect("it starts").success());
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

    /// State of both trees.
    pub fn look(&self) -> String {
        let directories = [path(&self.work), path(&self.other)];
        let words = [path(&self.body), "look"];
        self.output(&[&words[..], &directories].concat(), false)
    }

    fn words<'a>(&'a self, seed: &'a str, steps: &'a str, left_out: &'a str) -> [&'a str; 6] {
        [path(&self.body), "run", seed, steps, path(&self.other), left_out]
    }

    pub fn run_directly(&self, body: Body) -> Left {
        self.prepare(body.seed);
        let (seed, steps) = (body.seed.to_string(), body.steps.to_string());
        let said = self.output(&self.words(&seed, &steps, body.left_out), self.as_user);
        Left { said, trees: self.look(), calls: 0, is_refused: false }
    }

    /// Runs a body as a try. Returns what it printed.
    pub fn run_tried(&self, body: Body) -> String {
        let (seed, steps) = (body.seed.to_string(), body.steps.to_string());
        let words = self.words(&seed, &steps, body.left_out);
        let options = ["try", "--state", path(&self.state), "-q", "--"];
        self.output(&[&[path(&self.program)][..], &options, &words].concat(), self.as_user)
    }

    /// Runs a body as a try, and ends that by the task `end`: `commit` or `undo`.
    pub fn run_and_end(&self, body: Body, end: &str) -> Left {
        let before = self.prepare(body.seed);
        let said = self.run_tried(body);
        let mut trees = differences("the tree before", &before, "while it is tried", &self.look());
        let (mut calls, mut is_refused) = (0, false);
        if self.has_try() {
            let (text, count) = self.interrupted(0, "kill", end);
            calls = count;
            is_refused = is_refusal(&text) && self.look() == before;
            if !is_refused && !text.ends_with("status Some(0)\n") {
                trees += &format!("{end}: {text}");
            }
        }
        Left { said, trees: trees + &self.look(), calls, is_refused }
    }

    /// Text that a task for the newest try prints, with its status. Further words go to the task.
    pub fn tried(&self, task: &[&str]) -> String {
        let words = [path(&self.program), "try", "--state", path(&self.state)];
        self.output(&[&words[..], task].concat(), self.as_user)
    }

    /// True if there is a try that is neither committed nor undone.
    pub fn has_try(&self) -> bool {
        !self.tried(&["list"]).starts_with("status")
    }

    /// Text that a task for the newest try prints, which is killed at call `at` of those that
    /// change files, or finds all disks full from there on, as `how` says. Returns its number of
    /// these calls, too.
    pub fn interrupted(&self, at: u64, how: &str, task: &str) -> (String, u64) {
        let at = at.to_string();
        let interrupted = [path(&self.body), "interrupt", &at, how];
        let words = [path(&self.program), "try", "--state", path(&self.state), task];
        let text = self.output(&[&interrupted[..], &words].concat(), self.as_user);
        let is_count = |line: &&str| line.starts_with("calls ");
        let count = text.lines().find(is_count).expect("it is printed").to_owned();
        let calls = count["calls ".len()..].parse().expect("a number");
        (text.replacen(&format!("{count}\n"), "", 1), calls)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
        let memory = self.other.parent().and_then(Path::parent).expect("it was made there");
        let _ = fs::remove_dir_all(memory);
    }
}

/// True if a commit refuses what was appended to an append-only file (docs/guide/try.md).
pub fn is_refusal(said: &str) -> bool {
    said.contains("nothing was committed") && said.contains(": it is append-only")
}

/// True if a commit or an undo cannot take back what it has done in an append-only directory
/// (docs/guide/try.md).
pub fn is_kept(said: &str) -> bool {
    said.contains("cannot take back") && said.contains("not permitted")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Lines of two texts that differ.
pub fn differences(name: &str, text: &str, other_name: &str, other: &str) -> String {
    let only = |name: &str, text: &str, other: &str| -> String {
        let there: Vec<&str> = other.lines().collect();
        let only = text.lines().filter(|line| !there.contains(line));
        only.map(|line| format!("{name}: {line}\n")).collect()
    };
    only(name, text, other) + &only(other_name, other, text)
}
