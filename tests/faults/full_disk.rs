//! No room where the program writes.

use runahead_tests::{Run, available, fixture, root};

use crate::confined_runs::{self as confined, Failures, Seen, difference, lost, read, report};

/// A small file system at `$W/mnt`, which the fixture unmounts.
fn mounted(fixture: &runahead_tests::Fixture, argv: &[String]) -> Seen {
    fixture.reset();
    let mount = fixture.work().join("mnt");
    std::fs::create_dir(&mount).expect("ours");
    let options = "size=256k,nr_inodes=40";
    let run = Run::new(
        ["mount", "-t", "tmpfs", "-o", options, "none"]
            .map(str::to_owned)
            .into_iter()
            .chain([confined::plain(&mount)]),
    );
    let mounted = run.run();
    assert_eq!(mounted.end, runahead_tests::End::Exit(0), "{mounted:?}");
    let outcome = Run::new(argv).dir(fixture.dir()).env("W", fixture.work()).run();
    Seen { outcome, files: runahead_tests::tree::snapshot(fixture.work()) }
}

#[test]
fn a_full_disk_changes_no_result() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    let mut failures = Failures::default();
    for script in [
        "cat src/d0/*.c > $W/mnt/all; echo $?; cp -r src $W/mnt; echo $?; ls $W/mnt | wc -l",
        "tar cf $W/mnt/tar src; echo $?; for f in many/*; do cp $f $W/mnt/; done; echo $?",
        "sort -S 64k -T $W/mnt data 2>/dev/null; echo $?; cat many/* > /dev/full; echo $?",
    ] {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let natively = mounted(&fixture, &argv);
        assert!(natively.outcome.complaints().contains("No space left"), "{natively:?}");
        let report = report();
        let ahead = mounted(&fixture, &confined::ahead(&report, &argv));
        let compared = difference(&natively, &ahead).map_or(Ok(()), Err);
        if failures.note(script, compared).is_some() {
            eprintln!("{script}: {}", lost(&read(&report)));
        }
    }
    failures.none();
}
