//! Tests of names in files that lead to files, learned from what a program reads.

use std::collections::BTreeMap;

use super::*;

/// A tree of files and what is named in them.
struct Tree {
    files: BTreeMap<String, String>,
    mentions: NameReferences,
    /// Paths fetched, in order, and the number of directories listed.
    fetched: Vec<String>,
    listed: usize,
}

impl Tree {
    fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().collect();
        // It has read others before.
        let mentions = NameReferences { demands: SCANNED_FROM, ..NameReferences::default() };
        Tree { files, mentions, fetched: Vec::new(), listed: 0 }
    }

    /// The program reads a file, and all that follows from it is done.
    fn read(&mut self, path: &str) -> bool {
        let mut actions = Vec::new();
        let used = self.mentions.saw(path.as_bytes(), &mut actions);
        self.go_on(actions);
        used
    }

    /// Marks all fetched files as used.
    fn use_all(&mut self) {
        let mut actions = Vec::new();
        self.mentions.settle(|_| true, &mut actions);
        self.go_on(actions);
    }

    fn go_on(&mut self, mut actions: Vec<Action>) {
        while let Some(action) = actions.pop() {
            let path = String::from_utf8(action.path().to_vec()).expect("text");
            match action {
                Action::List(_) => {
                    self.listed += 1;
                    let below = format!("{}/", path.trim_end_matches('/'));
                    let names = self.files.keys().filter_map(|file| file.strip_prefix(&below));
                    let first = |rest: &str| rest.split('/').next().map(|n| n.as_bytes().into());
                    let names: Vec<Box<[u8]>> = names.filter_map(first).collect();
                    self.mentions.listed(path.as_bytes(), names.into_iter(), &mut actions);
                }
                Action::Fetch(_) | Action::Scan(_) => {
                    let found = self.files.get(&path).map(|text| tokens(text.as_bytes()));
                    self.mentions.scanned(path.as_bytes(), found.unwrap_or_default(), &mut actions);
                    if matches!(action, Action::Fetch(_)) {
                        self.fetched.push(path);
                    }
                }
            }
        }
    }
}

/// Modules that need two others each, as a heap has them.
fn heap(count: usize, path: impl Fn(usize) -> String, names: impl Fn(usize) -> String) -> Tree {
    Tree::new((0..count).map(|n| {
        let needs = [2 * n + 1, 2 * n + 2].into_iter().filter(|&n| n < count).map(&names);
        (path(n), needs.collect::<Vec<_>>().join(" "))
    }))
}

fn all_but_the_first_few_are_fetched(
    path: impl Fn(usize) -> String + Copy,
    names: impl Fn(usize) -> String,
) -> Tree {
    let mut tree = heap(200, path, names);
    // As a program comes to them: depth first.
    let mut n = 0;
    while n < 64 {
        tree.read(&path(n));
        n = 2 * n + 1;
    }
    tree.use_all();
    assert!(tree.fetched.len() > 180, "{} of 200", tree.fetched.len());
    assert!(tree.fetched.iter().all(|path| tree.files.contains_key(path)), "only what is there");
    tree
}

#[test]
fn files_that_are_named_relative_to_others_are_fetched() {
    let path = |n| format!("/data/mods/p{n:03}/lib/index.js");
    let tree = all_but_the_first_few_are_fetched(path, |n| format!("require(\"../../p{n:03}\");"));
    assert_eq!(tree.listed, 1, "one directory has them all");
}

#[test]
fn files_that_are_named_below_a_directory_of_many_are_fetched() {
    let path = |n| format!("/usr/include/boost/part{}/file{n}.hpp", n % 5);
    all_but_the_first_few_are_fetched(path, |n| {
        format!("#include <boost/part{}/file{n}.hpp>", n % 5)
    });
}

#[test]
fn what_is_put_between_and_behind_the_parts_of_a_name_is_learned() {
    let path = |n| format!("/lib/python/pkg{}/__pycache__/mod{n}.cpython-311.pyc", n % 5);
    all_but_the_first_few_are_fetched(path, |n| format!("pkg{}.mod{n}", n % 5));
    let path = |n| format!("/usr/share/perl/Some/Module{n}.pm");
    all_but_the_first_few_are_fetched(path, |n| format!("use Some::Module{n};"));
}

#[test]
fn what_was_fetched_is_known_to_be_used() {
    let path = |n| format!("/usr/share/perl/Some/Module{n}.pm");
    let mut tree = all_but_the_first_few_are_fetched(path, |n| format!("use Some::Module{n};"));
    assert!(tree.read(&path(199)) && !tree.read(&path(199)));
    let key = GuessKind::Mentions.key(path(150).as_bytes());
    assert_eq!(tree.mentions.settle(|other| other == key, &mut Vec::new()), 0, "settled before");
    assert!(!tree.read(&path(150)));
}

/// Each file names many others that are there, and the program reads none of them.
#[test]
fn a_rule_that_is_never_right_is_given_up() {
    let all: String = (0..1000).map(|n| format!("other{n} ")).collect();
    let mut files: Vec<_> = (0..1000).map(|n| (format!("/d/other{n}.x"), String::new())).collect();
    files.push(("/d/main.x".to_owned(), all));
    let mut tree = Tree::new(files);
    tree.read("/d/main.x");
    (0..3).for_each(|n| _ = tree.read(&format!("/d/other{n}.x")));
    // There are two that explain it: in this directory, and in that of the file.
    let most = 2 * (DOUBTED as usize + 1);
    assert!((1..=most).contains(&tree.fetched.len()), "{}", tree.fetched.len());
}

#[test]
fn names_that_lead_nowhere_cost_nothing_but_listings() {
    let path = |n| format!("/usr/share/perl/Some/Module{n}.pm");
    let mut tree = heap(200, path, |n| format!("use Other::Module{n}; Some::Thing{n}"));
    (0..200).for_each(|n| _ = tree.read(&path(n)));
    assert!(tree.fetched.is_empty() && tree.listed < 20);
}
