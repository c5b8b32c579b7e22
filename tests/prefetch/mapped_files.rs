//! Programs that map files, and large ones, see no difference whatever shadows do with that
//! memory.

use std::os::unix::fs::FileExt;

use runahead_tests::{End, Fixture, Link, Seed, available, fixture, number, with_stats};

/// Bytes of the file that is mapped.
const BYTES: u64 = 24 << 20;
/// Steps of the program for each seed.
const STEPS: &str = "400";
/// Seeds that are drawn for each way in which shadows get memory; the second with
/// `RUNAHEAD_FULL=1`.
const SEEDS: (u64, u64) = (4, 60);

fn fill(fixture: &Fixture) {
    fixture.change(|dir| {
        let path = dir.join("mapped");
        if path.exists() {
            return;
        }
        let file = std::fs::File::create(path).expect("the disk is ours");
        let mut word = 1u64;
        let mut piece = vec![0; 1 << 20];
        for at in (0..BYTES).step_by(piece.len()) {
            for bytes in piece.chunks_exact_mut(8) {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.copy_from_slice(&(word >> 8).to_le_bytes());
            }
            file.write_all_at(&piece, at).expect("there is room");
        }
    });
}

/// Runs some seeds natively and with `options`, and compares; returns the hints that were used.
fn same(options: &[&str]) -> u64 {
    let Some(fixture) = available(fixture()) else { return u64::MAX };
    fill(&fixture);
    let mut seeds = Seed::new();
    let (mut used, mut outputs) = (0, Vec::new());
    let count = if runahead_tests::full() { SEEDS.1 } else { SEEDS.0 };
    for _ in 0..count {
        let seed = seeds.below(1 << 40).to_string();
        let run = fixture.run_program("mapped_steps", Link::Dynamic, &["mapped", &seed, STEPS]);
        let plain = fixture.cold(&run);
        assert_eq!(plain.end, End::Exit(0), "{seed}: {plain:?}");
        let (ahead, stats) = with_stats(&run, options, |run| fixture.cold(run));
        assert!(ahead == plain, "{options:?}, seed {seed}: {ahead:?} {plain:?}");
        used += number(&stats, "hints_used");
        outputs.push(plain.stdout);
    }
    outputs.dedup();
    assert_eq!(outputs.len() as u64, count, "what is printed says nothing");
    used
}

#[test]
fn programs_see_no_difference_with_forked_memory() {
    assert!(same(&["--without", "mirrors"]) > 0, "no shadow was of use");
}

#[test]
fn programs_see_no_difference_with_mirrored_memory() {
    assert!(same(&["--without", "copies"]) > 0, "no shadow was of use");
}

#[test]
fn programs_see_no_difference_by_default() {
    assert!(same(&[]) > 0, "no shadow was of use");
}

/// Random accesses to a mapped file can be foreseen only by a shadow.
#[test]
fn used_pages_of_a_mapped_file_are_counted() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    // The loop goes on for some samples after all pages are read: uses after the last sample do
    // not count.
    let run = fixture.run_program("gathered_words", Link::Dynamic, &["mapped", "30000000"]);
    let plain = fixture.cold(&run);
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    let (ahead, stats) = with_stats(&run, &[], |run| fixture.cold(run));
    assert_eq!(ahead, plain);
    assert!(number(&stats, "hints_issued") > 100, "{stats:#}");
    assert!(number(&stats, "hints_used") > 50, "{stats:#}");
}

/// A process whose threads were sampled and that then runs natively: a signal of ours would kill
/// it.
#[test]
fn a_process_that_becomes_native_gets_no_signal_of_ours() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    let run = fixture.run_program("own_filter", Link::Dynamic, &["mapped"]);
    let plain = fixture.cold(&run);
    assert_eq!((plain.end, plain.text().as_str()), (End::Exit(0), "as ever\n"), "{plain:?}");
    for _ in 0..4 {
        let (ahead, _) = with_stats(&run, &[], |run| fixture.cold(run));
        assert_eq!(ahead, plain);
    }
}
