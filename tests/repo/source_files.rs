//! Source files: their length, their heads, and no word of how or where the project is worked on.

use crate::tracked_files::{Tracked, texts};

/// Most lines of a source file.
const LINES: usize = 800;

/// Words of a workplace, in two parts each so that this file has none of them.
const WORKPLACE: &[(&str, &str)] = &[
    ("/wor", "k/shared"),
    ("/wor", "k/tools"),
    ("/wor", "k/main"),
    ("/wor", "k/w-"),
    ("/wor", "k/base"),
    ("redesi", "gn.md"),
    ("GUI", "DE.md"),
    ("issues sh", "ow"),
    ("ra-ren", "ame"),
    ("Clau", "de"),
    ("Anthro", "pic"),
    ("ChatG", "PT"),
    ("Copi", "lot"),
    ("Co-Authored", "-By"),
];

fn too_long(files: &[Tracked]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.is_rust() || file.is_c());
    let lengths = sources.map(|file| (file, file.text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > LINES);
    long.map(|(file, lines)| format!("{}: {lines} lines", file.path)).collect()
}

/// Rust files that do not begin with what they are for.
fn headless(files: &[Tracked]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/"));
    let without =
        sources.filter(|file| !file.text.starts_with("//!") && !file.text.starts_with("#!"));
    without.map(|file| file.path.clone()).collect()
}

fn workplaces(files: &[Tracked]) -> Vec<String> {
    let words: Vec<_> = WORKPLACE.iter().map(|(a, b)| format!("{a}{b}").to_lowercase()).collect();
    let mut faults = Vec::new();
    for file in files {
        for (n, line) in file.text.lines().enumerate() {
            let line = line.to_lowercase();
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{}: {word}", file.path, n + 1));
            }
        }
    }
    faults
}

#[test]
fn no_source_file_is_longer_than_800_lines() {
    assert_eq!(too_long(&texts()), Vec::<String>::new());
}

#[test]
fn every_module_has_a_head() {
    assert_eq!(headless(&texts()), Vec::<String>::new());
}

#[test]
fn no_file_mentions_a_workplace() {
    assert_eq!(workplaces(&texts()), Vec::<String>::new());
}

#[test]
fn planted_faults_in_source_files_are_found() {
    let long = "//! Head.\n".repeat(LINES + 1);
    let mention = format!("a\nsee {}{}\n", WORKPLACE[0].0, WORKPLACE[0].1);
    let files = [
        Tracked::new("crates/a/src/lib.rs", &long),
        Tracked::new("crates/a/src/b.rs", "use x;\n"),
        Tracked::new("docs/c.md", &mention),
        Tracked::new("tests/d.rs", "use x;\n"),
    ];
    assert_eq!(too_long(&files), ["crates/a/src/lib.rs: 801 lines"]);
    assert_eq!(headless(&files), ["crates/a/src/b.rs"]);
    assert_eq!(workplaces(&files).len(), 1);
}
