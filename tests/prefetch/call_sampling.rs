//! A process in which nothing stalls for long is left alone, and no longer than that: what is cold
//! afterwards is foreseen as if it had come at once.
//!
//! That these fail when a rest is not ended was seen with `Pace::stalled` and `Pace::used` leaving
//! `quiet` as it is and `stalled` leaving everything as it is while the process rests: each of them
//! but the child's had fewer than twenty hints used.

use std::os::unix::fs::FileExt;

use runahead_tests::{Pair, available, fixture, number};

/// Length of the rest, and the number of cold reads after it.
struct Rest {
    warm: u64,
    cold: u64,
    /// Calls without hints: at most 23 before one is sampled, in a deep rest 95, and as many again
    /// if the shadow is late.
    missed: u64,
}

const REST: Rest = Rest { warm: 12_000, cold: 96, missed: 46 };
const DEEP_REST: Rest = Rest { warm: 50_000, cold: 320, missed: 190 };

/// Runs the program; `None` if that is not possible here.
fn cold_after_a_rest(how: &str, Rest { warm, cold, .. }: &Rest) -> Option<Pair> {
    let fixture = available(fixture())?;
    fixture.change(|dir| {
        let file = std::fs::File::create(dir.join("cold")).expect("the disk is ours");
        let piece: Vec<u8> = (0..4096u32).map(|at| (at % 251) as u8).collect();
        for n in 0..=*cold {
            file.write_all_at(&piece, n << 17).expect("there is room");
        }
        for n in 0..*cold {
            let own = dir.join(format!("cold.d/{n}"));
            std::fs::create_dir_all(&own).expect("the disk is ours");
            std::fs::write(own.join("file"), &piece[..4000]).expect("there is room");
        }
    });
    let args = [how, &warm.to_string(), &cold.to_string()];
    Some(fixture.program_with("warm_then_cold", &args, |case| case.with_shadow()))
}

/// Most of what is cold is to be foreseen.
fn foresees(how: &str) {
    foresees_after(how, &REST);
}

fn foresees_after(how: &str, rest: &Rest) {
    // Once of three times: on a machine that others keep busy shadows may find no processor.
    const TIMES: usize = 3;
    for time in 1..=TIMES {
        let Some(pair) = cold_after_a_rest(how, rest) else { return };
        assert!(pair.outcome.text().starts_with(how), "{:?}", pair.outcome);
        let used = number(&pair.stats, "hints_used");
        if used >= rest.cold - rest.missed {
            return;
        }
        assert!(time < TIMES, "{how}: only {used} hints were used: {:#}", pair.stats);
    }
}

#[test]
fn cold_reads_are_foreseen_after_a_rest() {
    foresees("reads");
}

#[test]
fn cold_reads_are_foreseen_after_a_deep_rest() {
    foresees_after("reads", &DEEP_REST);
}

#[test]
fn cold_preads_are_foreseen_after_a_rest() {
    foresees("offsets");
}

#[test]
fn cold_names_are_foreseen_after_a_rest() {
    foresees("looks");
}

/// Every open is sampled.
#[test]
fn cold_files_are_foreseen_after_a_rest() {
    foresees("opens");
}

#[test]
fn cold_reads_of_threads_are_foreseen_after_a_rest() {
    foresees("threads");
}

/// A child starts without a rest.
#[test]
fn cold_reads_of_a_child_are_foreseen_while_its_parent_rests() {
    foresees("child");
}
