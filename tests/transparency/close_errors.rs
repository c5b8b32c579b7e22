//! A server reports failed writes at the first close, which must be the program's.

use std::time::Duration;

use runahead_testbed::{Share, ShareOptions, Stats};
use runahead_tests::programs::{self, Link};
use runahead_tests::{available, fixture, scratch};

/// Runs the program natively and ahead, with its output on a share where writes fail late with
/// `errno`. Both get the error at `end`, and the share gets the same requests.
fn told(end: &str, errno: i32, mark: &str) {
    let probe = Share::probe().map_err(|missing| missing.to_string());
    let (Some(()), Some(fixture)) = (available(probe), available(fixture())) else { return };
    let [source, dir] =
        ["source", "share"].map(|name| scratch().join(format!("{name}-{end}-{errno}")));
    for dir in [&source, &dir] {
        std::fs::create_dir(dir).expect("the scratch directory is ours");
    }
    let options =
        ShareOptions::new(&source, &dir).parallel(Duration::from_millis(1), 64).late_error(errno);
    let share = Share::up(&options).expect("a share comes up");
    let out = dir.join("out");
    for link in [Link::Dynamic, Link::Static] {
        let program = programs::program("close_error", link);
        let [program, out] = [&program, &out].map(|path| path.to_str().expect("plain"));
        let run = fixture.run(&[program, out, end]);
        let once = |run: &runahead_tests::Run| {
            fixture.reset();
            share.reset_stats().expect("the share's server answers");
            let outcome = run.run();
            (outcome, asked(&share.stats().expect("the share's server answers")))
        };
        let (plain, asked_plain) = once(&run);
        assert!(plain.text().contains(mark), "{run}: {plain:?}");
        let (ahead, asked_ahead) = once(&run.ahead(&["--require"]));
        assert_eq!(ahead, plain, "{run}");
        assert_eq!(asked_ahead, asked_plain, "{run}: flushes and syncs");
    }
}

/// Flushes and syncs.
fn asked(stats: &Stats) -> [u64; 2] {
    ["flush", "fsync"].map(|name| stats.operations.get(name).copied().unwrap_or(0))
}

#[test]
fn close_reports_an_input_output_error() {
    told("close", libc::EIO, "close(out): -1 EIO");
}

#[test]
fn close_reports_a_full_disk() {
    told("close", libc::ENOSPC, "close(out): -1 ENOSPC");
}

#[test]
fn fsync_reports_an_error() {
    told("fsync", libc::EIO, "fsync(out): -1 EIO");
}
