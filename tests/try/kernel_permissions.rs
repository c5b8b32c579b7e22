//! Changes that the kernel refuses are refused in a try, with the same errors: immutable and
//! append-only entries, sticky directories, links to files of others, metadata of others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use runahead_tests::{available, installed, root, runahead, scratch};

/// Program with the changes. It prints the error of each.
const OPERATIONS: &str = include_str!("permission_operations.py");
const USER: u32 = 65534;

/// Two equal trees, one for a direct run and one for a try.
struct Trees {
    directory: PathBuf,
    group: &'static str,
    user: u32,
}

impl Trees {
    fn new(group: &'static str, user: u32) -> Self {
        let trees =
            Trees { directory: scratch().join(format!("rights-{group}-{user}")), group, user };
        for part in ["", "plain", "tried", "state"] {
            let path = trees.directory.join(part);
            fs::create_dir_all(&path).expect("the scratch directory is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("it is ours");
        }
        fs::copy(runahead(), trees.directory.join("runahead")).expect("it is ours");
        fs::write(trees.directory.join("operations.py"), OPERATIONS).expect("it is ours");
        trees
    }

    /// Runs words in a tree. Returns what they printed, and whether they ended with 0.
    fn run(&self, tree: &str, words: &[&str], user: u32) -> (String, bool) {
        let id = user.to_string();
        let as_user =
            ["setpriv", "--reuid", &id, "--regid", &id, "--groups", "2000", "--inh-caps=-all"];
        let words = if user == 0 { words.to_vec() } else { [&as_user, words].concat() };
        let done = Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.directory.join(tree))
            .env("XDG_STATE_HOME", self.directory.join("state"))
            .output()
            .expect("it starts");
        let text = [done.stdout, done.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), done.status.success())
    }

    fn task(&self, tree: &str, task: &str, user: u32, first: &[&str]) -> (String, bool) {
        let owner = self.user.to_string();
        let python = ["/usr/bin/python3", "-I", "../operations.py", self.group, task, &owner];
        self.run(tree, &[first, &python].concat(), user)
    }

    fn look(&self, tree: &str) -> String {
        self.task(tree, "look", 0, &[]).0
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        let _ = Command::new("chattr").args(["-R", "-i", "-a"]).arg(&self.directory).output();
    }
}

/// Makes the changes of a group directly and in a try, which is committed or undone.
fn compare(group: &'static str, user: u32, commits: bool) {
    if available(root()).is_none() || available(installed("chattr")).is_none() {
        return;
    }
    let trees = Trees::new(group, user);
    for tree in ["plain", "tried"] {
        let (said, done) = trees.task(tree, "prepare", 0, &[]);
        if !done {
            println!("skipped: no attributes of chattr(1) here: {said}");
            return;
        }
    }
    let before = trees.look("tried");
    let plain = trees.task("plain", "run", user, &[]);
    let tried = trees.task("tried", "run", user, &["../runahead", "try", "-q", "--"]);
    let differ: Vec<_> =
        plain.0.lines().zip(tried.0.lines()).filter(|(plain, tried)| plain != tried).collect();
    assert!(differ.is_empty(), "directly, and in a try: {differ:#?}");
    assert_eq!(plain, tried);
    assert_eq!(before, trees.look("tried"), "before it is decided");
    let decision = if commits { "commit" } else { "undo" };
    let decided = trees.run("tried", &["../runahead", "try", decision], user);
    assert!(decided.1, "{decision}: {}", decided.0);
    let after = trees.look("tried");
    assert_eq!(if commits { trees.look("plain") } else { before }, after, "after {decision}");
}

#[test]
fn immutable_and_append_only_entries_are_the_kernels_for_root() {
    compare("marked", 0, true);
}

#[test]
fn immutable_and_append_only_entries_are_the_kernels_for_a_user() {
    compare("marked", USER, true);
}

#[test]
fn append_only_files_are_appended_to_and_not_truncated() {
    compare("appended", 0, false);
    compare("appended", USER, false);
}

#[test]
fn files_of_others_are_the_kernels_for_root() {
    compare("owned", 0, true);
}

#[test]
fn files_of_others_are_the_kernels_for_a_user() {
    compare("owned", USER, false);
}
