//! Names of source files: two words, unless one word is exact in the field and in `words.txt`.

use crate::ratchet::{self, Rule};
use crate::tracked_files::{paths, root};

/// Names that Cargo and rustc give.
const GIVEN: &[&str] = &["mod", "lib", "main", "build", "tests"];

/// Source files whose name is one word that `known` does not have.
fn riddles(paths: &[String], known: &str) -> Vec<String> {
    let known: Vec<_> = known.lines().filter(|line| !line.starts_with('#')).collect();
    let is_riddle = |path: &&String| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some((stem, extension)) = name.rsplit_once('.') else { return false };
        let is_source = ["rs", "c", "h", "cpp"].contains(&extension);
        is_source && !stem.contains(['_', '-']) && !GIVEN.contains(&stem) && !known.contains(&stem)
    };
    paths.iter().filter(is_riddle).cloned().collect()
}

#[test]
fn file_names_are_two_words_or_a_word_of_the_field() {
    let known = std::fs::read_to_string(root().join("tests/repo/words.txt")).expect("words.txt");
    ratchet::check(&[Rule::new("names.one_word_files", riddles(&paths(), &known))]);
}

/// Keeps the list short: a word that no file has any more goes.
#[test]
fn each_listed_word_names_a_file() {
    let known = std::fs::read_to_string(root().join("tests/repo/words.txt")).expect("words.txt");
    let paths = paths();
    let stems: Vec<_> =
        paths.iter().filter_map(|path| path.rsplit('/').next()?.split('.').next()).collect();
    let words = known.lines().filter(|line| !line.starts_with('#'));
    let unused: Vec<_> = words.filter(|word| !stems.contains(word)).map(str::to_owned).collect();
    ratchet::check(&[Rule::new("names.unused_words", unused)]);
}

#[test]
fn planted_names_of_one_word_are_found() {
    let paths = ["a/told.rs", "a/clone.rs", "a/call_table.rs", "a/mod.rs", "a/x.md", "b/spin.c"];
    let paths = paths.map(str::to_owned);
    assert_eq!(riddles(&paths, "# words\nclone\n"), ["a/told.rs", "b/spin.c"]);
}
