//! Arguments that are wrong, help, and the commands that the README shows.

use runahead_tests::End;

use crate::ours;

#[test]
fn no_command_and_unknown_options_are_usage_errors() {
    let wrong: [&[&str]; 11] = [
        &[],
        &["run"],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["no-such-task"],
        &["run", "--stats=xml", "--", "true"],
        &["run", "--stats=json:", "--", "true"],
        &["run", "--stats=/a/file", "--", "true"],
        &["run", "--stats", "json:file", "true"],
        &["run", "--without", "all", "--", "true"],
        &["run", "--without", "--", "true"],
    ];
    for args in wrong {
        let outcome = ours(args);
        assert_eq!(outcome.end, End::Exit(2), "{args:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty(), "{args:?}: {outcome:?}");
        assert!(outcome.complaints().contains("Usage"), "{args:?}: {outcome:?}");
    }
}

#[test]
fn usage_errors_suggest_the_right_command() {
    let outcome = ours(&["ls", "-l"]);
    assert!(outcome.complaints().contains("runahead run -- ls"), "{outcome:?}");
    let outcome = ours(&["run", "--stats", "json:file", "--", "true"]);
    assert!(outcome.complaints().contains("--stats=json:file"), "{outcome:?}");
    let outcome = ours(&["run", "--", "json:file"]);
    assert_eq!(outcome.end, End::Exit(127), "a name like any other: {outcome:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"] as &[_], &["run", "--help"], &["--version"]] {
        let outcome = ours(args);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

#[test]
fn options_behind_the_command_are_passed_to_it() {
    let outcome = ours(&["run", "echo", "--stats", "--require", "--", "-n"]);
    assert_eq!(outcome.text(), "--stats --require -- -n\n");
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
}

/// Options and targets that the README shows are ones that exist.
#[test]
fn the_readme_shows_commands_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let help = |args: &[&str]| {
        let output = std::process::Command::new(runahead_tests::runahead()).args(args).output();
        String::from_utf8_lossy(&output.expect("runahead runs").stdout).into_owned()
    };
    let known = help(&["--help"]) + &help(&["run", "--help"]) + &help(&["try", "--help"]);
    let uses =
        readme.lines().filter(|l| l.trim_start().trim_start_matches("$ ").starts_with("runahead "));
    for line in uses {
        let ours = line.split(" -- ").next().unwrap_or(line);
        for word in ours.split_whitespace().filter(|w| w.starts_with("--") && w.len() > 2) {
            let option = word.split('=').next().unwrap_or(word);
            assert!(known.contains(option), "the README shows {option:?} in {line:?}");
        }
    }
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap_or_default();
    for target in readme.split('`').filter_map(|code| code.strip_prefix("make ")) {
        let rule = format!("{}:", target.split_whitespace().next().unwrap_or(target));
        let exists = makefile.lines().any(|l| l.starts_with(&rule));
        assert!(exists, "the README shows `make {target}`");
    }
}
