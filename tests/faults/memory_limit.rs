//! A control group with little memory: nothing is killed because of us.

use runahead_tests::{Group, Link, available, fixture, full, root};

use crate::confined_runs::{Failures, Fault, compare, grep, lost, program, script};

/// `dirty` writes to 24 MiB and then reads. A shadow that is a copy of it must be given up, not
/// the program.
#[test]
fn a_memory_limit_kills_shadows_before_the_program() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    let mut failures = Failures::default();
    let limits: &[u64] = if full() { &[12, 16, 24, 32, 36, 40, 48, 64] } else { &[16, 32, 40] };
    for mebibytes in limits {
        let Some(group) = available(Group::new("faults", mebibytes << 20)) else { return };
        let fault = Fault::new(&format!("--cgroup={}", group.dir().display()));
        let fills = ["24", "14"].map(|n| program("dirty_memory", Link::Dynamic, &[n]));
        for argv in [grep(), script()].into_iter().chain(fills) {
            let case = format!("{mebibytes} MiB, {argv:?}");
            if argv[0].contains("dirty") && mebibytes < &(argv[1].parse::<u64>().unwrap_or(0) + 6) {
                continue;
            }
            if let Some(stats) = failures.note(&case, compare(&fixture, &fault, &argv)) {
                eprintln!("{mebibytes} MiB {}: {}", argv[0], lost(&stats));
            }
        }
    }
    failures.none();
}

/// A program sweeps a mapped file several times, and the file is larger than the group's memory.
/// Pages that were evicted are hinted again.
#[test]
fn evicted_pages_are_hinted_again() {
    const BYTES: u64 = 96 << 20;
    const CHUNKS: u64 = BYTES / (128 << 10);
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    fixture.change(|dir| {
        let bytes: Vec<u8> =
            (0..BYTES).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        std::fs::write(dir.join("swept"), bytes).expect("there is room");
    });
    let Some(group) = available(Group::new("faults", 80 << 20)) else { return };
    let fault = Fault::new(&format!("--cgroup={}", group.dir().display()));
    let argv = program("swept_file", Link::Dynamic, &["swept", "4"]);
    // A shadow gets the processor time that others leave: on a busy machine sometimes none.
    const TIMES: usize = 4;
    let mut failures = Failures::default();
    let mut seen = Vec::new();
    for _ in 0..TIMES {
        let Some(stats) = failures.note("swept four times", compare(&fixture, &fault, &argv))
        else {
            break;
        };
        let used = stats["hints_used"].as_u64().unwrap_or(0);
        seen.push(format!("{used} {}", lost(&stats)));
        // A chunk is at least one hint, and the hints of the first sweep are of different chunks.
        if used > CHUNKS * 3 / 2 {
            return;
        }
    }
    failures.none();
    panic!("hints that were used, of {CHUNKS} chunks: {seen:?}");
}
