//! Writes to files that processes have mapped, while a prediction is open.

use runahead_tests::{End, Link, Run, apart, bindings, programs, scratch};

/// A process that looks at its mapping of a file finds what was written to the file.
#[test]
fn writes_to_mapped_files_are_in_the_mappings() {
    let _apart = apart();
    let source = programs::source("mapped_writes");
    let program = bindings::compile(&source, &["speculate"], Link::Static);
    let files = ["mapped", "mapped-later"].map(|name| scratch().join(name));
    let [first, second] = files.each_ref().map(|file| file.as_os_str());
    let run = Run::new([program.as_os_str(), first, second]);
    let plain = run.run();
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    for _ in 0..3 {
        assert_eq!(run.ahead(&["--speculate", "--require"]).run(), plain);
    }
}
