//! Prefetching stays within its bounds.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use runahead_tests::{
    End, Fixture, Group, Link, Outcome, Run, available, fixture, number, root, with_stats,
};
use serde_json::Value;

const CHUNK: u64 = 128 << 10;
/// Reads of the program that is measured: two milliseconds each when cold, so more than a second.
const READS: u64 = 800;
/// Limit of a control group, of which an eighth may be prefetched.
const LIMIT: u64 = 64 << 20;
const BUDGET: u64 = LIMIT / 8;
/// More bytes than the group may hold.
const LARGE: u64 = 96 << 20;

/// Seconds that a process may spend on syncs before it has waited or gained.
const GRACE_SECONDS: f64 = 0.004;

/// Files: `cold`, of which a piece in every chunk is there; `rubbish` and `large`, which are full.
fn fill(fixture: &Fixture) {
    fixture.change(|dir| {
        if dir.join("large").exists() {
            return;
        }
        let create = |name| std::fs::File::create(dir.join(name)).expect("the disk is ours");
        let piece: Vec<u8> = (0..CHUNK).map(|at| (at % 251) as u8).collect();
        let cold = create("cold");
        for n in 0..READS {
            cold.write_all_at(&piece[..4096], n * CHUNK).expect("there is room");
        }
        for (name, bytes) in [("rubbish", 128 << 20), ("large", LARGE)] {
            let file = create(name);
            for at in (0..bytes).step_by(piece.len()) {
                file.write_all_at(&piece, at).expect("there is room");
            }
        }
    });
}

/// Runs it from cold caches under runahead with `options`: what it did, and the statistics.
fn measured(fixture: &Fixture, run: &Run, group: Option<&Group>, options: &[&str]) -> Value {
    let plain = once(fixture, run, group);
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    let (ahead, stats) = with_stats(run, options, |run| once(fixture, run, group));
    assert!(ahead == plain, "with and without {run}: {ahead:?} {plain:?}");
    stats
}

fn once(fixture: &Fixture, run: &Run, group: Option<&Group>) -> Outcome {
    fixture.reset();
    group.map_or_else(|| run.clone(), |group| group.run(run)).run()
}

fn rereads(fixture: &Fixture, file: &str, piece: &str, times: &str) -> Run {
    let step = CHUNK.to_string();
    fixture.run_program("repeated_reads", Link::Dynamic, &[file, &step, piece, times])
}

#[test]
fn data_that_is_dropped_before_it_is_used_is_counted() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    let run = fixture.run_program("dropped_pages", Link::Dynamic, &["cold", &CHUNK.to_string()]);
    // Reads that wait for the drops look as if the storage served one at a time.
    let stats = measured(&fixture, &run, None, &["--without", "sole"]);
    assert_eq!(stats["stopped"], serde_json::json!({}), "{stats:#}");
    assert!(number(&stats, "memory/hints_lost") > 6, "{stats:#}");
}

#[test]
fn most_hints_of_a_shadow_are_used() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    let run = rereads(&fixture, "cold", "4096", "1");
    let stats = measured(&fixture, &run, None, &[]);
    // The kernel reads much of it ahead of the shadow's own reads.
    let (used, hints) = (number(&stats, "hints_used"), number(&stats, "hints_issued"));
    assert!(used > 20 && used > hints / 2, "{stats:#}");
    assert_eq!(stats["stopped"], serde_json::json!({}), "{stats:#}");
}

/// The cost of a fork grows with the program's memory, and pages that are written afterwards are
/// copied.
#[test]
fn shadows_of_a_large_program_cost_less_than_its_waits() {
    let Some(fixture) = available(fixture()) else { return };
    let account = |mebibytes: &str| {
        let run = fixture.run_program("dirty_memory", Link::Dynamic, &[mebibytes]);
        let stats = measured(&fixture, &run, None, &[]);
        let seconds = |name: &str| stats[name]["seconds"].as_f64().unwrap_or(f64::NAN);
        (number(&stats, "syncs/count"), seconds("syncs"), seconds("stalls_unforeseen"))
    };
    let (syncs, ..) = account("2");
    assert!(syncs > 0, "a small one makes shadows");
    // It is small, too, while its libraries are loaded. On a busy machine one fork may take much
    // longer than expected.
    let accounts: Vec<_> = (0..3).map(|_| account("1024")).collect();
    let is_kept = |&(_, spent, waited): &(u64, f64, f64)| spent <= waited + GRACE_SECONDS;
    assert!(accounts.iter().any(is_kept), "syncs, seconds for them and of waits: {accounts:?}");
}

/// A process grows while it has a shadow, in a group with room for one of them, and the supervisor
/// gets no processor. Other memory of ours is some 6 MiB. The shadow may be killed, and must be
/// killed first.
#[test]
fn a_program_that_grows_into_its_group_is_not_killed_for_its_shadow() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    const GROWN: u64 = 52;
    let Some(group) = available(Group::new("grows", (GROWN + 8) << 20)) else { return };
    let read_before: Vec<String> = (32..48).map(|n| format!("many/{n}")).collect();
    let grown = GROWN.to_string();
    let args: Vec<&str> = [&grown].into_iter().chain(&read_before).map(String::as_str).collect();
    let run = fixture.run_program("dirty_memory", Link::Static, &args);
    let stop = AtomicBool::new(false);
    let all = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let once = || measured(&fixture, &run, Some(&group), &[]);
        let all: Vec<_> = (0..5).map(|_| std::panic::catch_unwind(once)).collect();
        stop.store(true, Relaxed);
        all
    });
    for stats in all {
        let stats = stats.unwrap_or_else(|_| panic!("a run was not as it is natively; see above"));
        assert!(number(&stats, "hints_issued") > 0, "it had no shadow: {stats:#}");
    }
    eprintln!("{} shadows killed for lack of memory", group.killed());
}

#[test]
fn prefetched_data_takes_at_most_an_eighth_of_a_groups_limit() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    fill(&fixture);
    let Some(group) = available(Group::new("budget", LIMIT)) else { return };
    for (file, piece, plant) in [
        ("large", "131072", &[][..]),
        ("large", "131072", &["--plant", "rubbish"]),
        ("cold", "4096", &[]),
    ] {
        let run = rereads(&fixture, file, piece, "1");
        // Useless data keeps its memory for two seconds, about as long as the program runs; and
        // shadows that save nothing are made ever more rarely.
        let least = if plant.contains(&"rubbish") { BUDGET / 2 } else { BUDGET };
        let within = || {
            let stats = measured(&fixture, &run, Some(&group), plant);
            let peak = number(&stats, "memory/peak_bytes_ahead");
            assert!(peak > 0 && peak <= BUDGET, "{file} {plant:?}: {stats:#}");
            stats
        };
        // In all, more is hinted than fits; if shadows find no processor in this run, then in
        // another.
        let is_more = |stats: &Value| number(stats, "hints_issued") * CHUNK > least;
        let stats = std::iter::repeat_with(within).take(3).find(is_more);
        let stats = stats.unwrap_or_else(|| panic!("{file} {plant:?}: too little was hinted"));
        let hints = number(&stats, "hints_issued");
        assert_eq!(group.killed(), 0, "{file} {plant:?}: {stats:#}");
        if plant.is_empty() {
            assert!(number(&stats, "hints_used") > hints / 2, "{file}: {stats:#}");
        }
    }
    // Without a limit it is more, so the group's is what is kept.
    let run = rereads(&fixture, "large", "131072", "1");
    let stats = measured(&fixture, &run, None, &["--plant", "rubbish"]);
    assert!(number(&stats, "memory/hints_overdue") > 0, "{stats:#}");
    assert!(number(&stats, "memory/peak_bytes_ahead") > BUDGET, "{stats:#}");
}
