//! The installed command contains no fault injection: `crates/agent` has it behind the Cargo
//! feature `fault-injection`.

use std::path::Path;

use runahead_tests::{End, Run, runahead, runahead_faulty};

/// Bytes that only an image of the agent with the feature contains: the mark of calls that a
/// shadow makes as they stand (`shadow/planted_violations.rs`), and the path of the counts of
/// `fault_injection/call_counting.rs`.
const MARKS: [&[u8]; 2] = [b"leakmark", b"/dev/shm/runahead-calls-"];

fn holds(program: &Path, bytes: &[u8]) -> bool {
    let text = std::fs::read(program).expect("a built program can be read");
    text.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn the_installed_image_holds_no_fault_injection() {
    for mark in MARKS {
        assert!(!holds(runahead(), mark), "{}: {}", runahead().display(), mark.escape_ascii());
        // The planted violation: a build with the feature is told apart.
        assert!(holds(&runahead_faulty(), mark), "{}", mark.escape_ascii());
    }
}

#[test]
fn the_installed_command_refuses_to_inject_faults() {
    let injections: [&[&str]; 3] = [
        &["run", "--plant", "rubbish", "--", "true"],
        &["try", "--plant", "writes", "--", "true"],
        &["try", "--plant", "unconfined", "--", "true"],
    ];
    for words in injections {
        let outcome =
            Run::new([runahead().to_str().expect("a plain path")].iter().chain(words)).run();
        assert_eq!(outcome.end, End::Exit(2), "{words:?}: {outcome:?}");
        assert!(outcome.complaints().contains("--plant"), "{words:?}: {outcome:?}");
    }
    // The planted violation: a build with the feature accepts it.
    let faulty = runahead_faulty();
    let words = [faulty.to_str().expect("a plain path"), "run", "--plant", "rubbish", "--", "true"];
    assert_eq!(Run::new(words).run().end, End::Exit(0));
}
