//! Rules of this repository that no compiler checks.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn files_below(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_longer_than_800_lines() {
    let mut sources = Vec::new();
    for place in ["crates", "bench", "tests"] {
        files_below(&root().join(place), "rs", &mut sources);
        files_below(&root().join(place), "c", &mut sources);
    }
    assert!(sources.len() > 40, "found only {sources:?}");
    for source in sources {
        let lines = std::fs::read_to_string(&source).expect("text").lines().count();
        assert!(lines <= 800, "{} has {lines} lines", source.display());
    }
}

#[test]
fn every_module_says_what_it_is_for() {
    let mut sources = Vec::new();
    files_below(&root().join("crates"), "rs", &mut sources);
    for source in sources {
        let text = std::fs::read_to_string(&source).expect("text");
        let first = text.lines().next().unwrap_or_default();
        let says = first.starts_with("//!") || first.starts_with("#!");
        assert!(says, "{} begins with {first:?}", source.display());
    }
}

/// Options of `runahead` that the README shows are options that it has.
#[test]
fn the_readme_shows_commands_that_exist() {
    let Ok(readme) = std::fs::read_to_string(root().join("README.md")) else { return };
    let help = |args: &[&str]| {
        let output = std::process::Command::new(runahead_tests::runahead()).args(args).output();
        String::from_utf8_lossy(&output.expect("runahead runs").stdout).into_owned()
    };
    let known = help(&["--help"]) + &help(&["run", "--help"]);
    let uses =
        readme.lines().filter(|l| l.trim_start().trim_start_matches("$ ").starts_with("runahead "));
    for line in uses {
        let ours = line.split(" -- ").next().unwrap_or(line);
        for word in ours.split_whitespace().filter(|w| w.starts_with("--") && w.len() > 2) {
            let option = word.split('=').next().unwrap_or(word);
            assert!(known.contains(option), "the README shows {option:?} in {line:?}");
        }
    }
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap_or_default();
    for target in readme.split('`').filter_map(|code| code.strip_prefix("make ")) {
        let rule = format!("{}:", target.split_whitespace().next().unwrap_or(target));
        let there = makefile.lines().any(|l| l.starts_with(&rule));
        assert!(there, "the README shows `make {target}`");
    }
}
