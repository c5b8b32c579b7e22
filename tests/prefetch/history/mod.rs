//! History of earlier runs: what is recorded is replayed, and no record does harm.

mod bad_records;
mod learned_runs;
mod recorded_accesses;
mod replayed_runs;

use std::path::{Path, PathBuf};

use runahead_tests::{End, Fixture, Outcome, Run, scratch};
use serde_json::Value;

/// Blocks of the chain, their length in bytes, and how many of them are visited.
const BLOCKS: u32 = 256;
const BLOCK_BYTES: usize = 64 << 10;
const HOPS: u32 = 150;

/// Path of a record on ordinary storage; `work` is emptied between runs.
fn record_path(name: &str) -> PathBuf {
    scratch().join(format!("{name}.record"))
}

/// Runs `run` behind `runahead run OPTIONS`, from cold caches, and what its statistics say.
fn ahead(fixture: &Fixture, run: &Run, options: &[&str]) -> (Outcome, Value) {
    fixture.reset();
    let report = scratch().join("history.json");
    let _ = std::fs::remove_file(&report);
    let stats = format!("--stats=json:{}", report.display());
    let outcome = run.ahead(&[&["--require", &stats], options].concat()).run();
    let json = std::fs::read(&report).unwrap_or_else(|e| panic!("no report ({e}): {outcome:?}"));
    (outcome, serde_json::from_slice(&json).expect("JSON"))
}

fn plain(fixture: &Fixture, run: &Run) -> Outcome {
    fixture.cold(run)
}

fn option(name: &str, path: &Path) -> [String; 2] {
    [name.into(), path.display().to_string()]
}

fn with_file(fixture: &Fixture, run: &Run, name: &str, path: &Path) -> (Outcome, Value) {
    let option = option(name, path);
    ahead(fixture, run, &[&option[0], &option[1]])
}

fn count(stats: &Value, key: &[&str]) -> u64 {
    let value = key.iter().fold(stats, |value, key| &value[*key]);
    value.as_u64().unwrap_or_else(|| panic!("no {key:?} in {stats:#}"))
}

fn unforeseen(stats: &Value) -> u64 {
    count(stats, &["stalls_unforeseen", "count"])
}

/// A program whose every read depends on the last one, and its file.
fn chain(fixture: &Fixture) -> Run {
    let path = fixture.dir().join("chain");
    if !path.exists() {
        fixture.change(|dir| {
            let mut bytes = vec![0u8; BLOCKS as usize * BLOCK_BYTES];
            // A full cycle: an odd step through a power of two, far apart.
            for block in 0..BLOCKS {
                let next = (block * 5 + 97) % BLOCKS;
                let at = block as usize * BLOCK_BYTES;
                bytes[at..at + 4].copy_from_slice(&next.to_le_bytes());
                bytes[at + 4..at + 4096].fill(block as u8);
            }
            std::fs::write(dir.join("chain"), bytes).expect("the disk has room");
        });
    }
    let args = ["chain", &BLOCK_BYTES.to_string(), &HOPS.to_string()];
    fixture.run_program("dependent_reads", runahead_tests::Link::Dynamic, &args)
}

/// It ended well, and nothing was said.
fn assert_quiet(outcome: &Outcome) {
    assert_eq!((outcome.end, outcome.stderr.len()), (End::Exit(0), 0), "{outcome:?}");
}
