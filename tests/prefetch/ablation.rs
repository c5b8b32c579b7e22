//! Each mechanism that can be switched off is: what it does is seen with it, and not without it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use runahead_tests::{End, Fixture, Link, Outcome, Run, available, fixture, number, with_stats};
use serde_json::Value;

const CHUNK: u64 = 128 << 10;
const PAGES: u64 = 240;
/// Half of them are beyond the horizon.
const NEAR: u64 = PAGES / 2;
/// More accesses than a shadow may be ahead.
const FAR: u64 = 80_000;

/// Makes `pages`, with one page in every chunk, and `links`, whose pages each contain the number
/// of the next.
fn fill(fixture: &Fixture) {
    let page: Vec<u8> = (0..4096u32).map(|at| (at % 251) as u8).collect();
    fixture.change(|dir| {
        write_pages(&dir.join("pages"), PAGES, |_| page.clone());
        write_pages(&dir.join("links"), PAGES, |n| {
            let mut page = page.clone();
            // 77 and PAGES have no common divisor, so that the chain visits every page.
            page[..4].copy_from_slice(&((n as u32 + 77) % PAGES as u32).to_ne_bytes());
            page
        });
    });
}

/// Makes a file of so many chunks, of each of which the first page is there.
fn write_pages(path: &Path, chunks: u64, page: impl Fn(u64) -> Vec<u8>) {
    let file = std::fs::File::create(path).expect("the disk is ours");
    for n in 0..chunks {
        file.write_all_at(&page(n), n * CHUNK).expect("there is room");
    }
}

/// Runs it from cold caches with `options`: the statistics.
fn measured(fixture: &Fixture, run: &Run, plain: &Outcome, options: &[&str]) -> Value {
    let (ahead, stats) = with_stats(run, options, |run| fixture.cold(run));
    assert!(ahead == *plain, "with and without {run}: {ahead:?} {plain:?}");
    stats
}

/// Time limit of repetitions: a shadow gets only processor time that is left over.
const PATIENCE: Duration = Duration::from_secs(60);

/// True if `seen` holds for the statistics of one of the runs.
fn ever(
    (fixture, run, plain): (&Fixture, &Run, &Outcome),
    options: &[&str],
    seen: impl Fn(&Value) -> bool,
) -> bool {
    let give_up = Instant::now() + PATIENCE;
    std::iter::repeat_with(|| measured(fixture, run, plain, options))
        .take_while(|_| Instant::now() < give_up)
        .any(|stats| seen(&stats))
}

fn plain(fixture: &Fixture, run: &Run) -> Outcome {
    let plain = fixture.cold(run);
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    plain
}

/// A program that checks what it reads leads no further than to the first page that is not there.
#[test]
fn without_stale_no_data_stands_in() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    let args = ["checked", "pages", &CHUNK.to_string(), &PAGES.to_string()];
    let run = fixture.run_program("ablated_reads", Link::Dynamic, &args);
    let plain = plain(&fixture, &run);
    let far = |stats: &Value| number(stats, "hints_used") > PAGES / 2;
    assert!(ever((&fixture, &run, &plain), &[], far), "nothing stood in");
    let off = measured(&fixture, &run, &plain, &["--without", "stale"]);
    assert!(number(&off, "syncs/count") > 0, "no shadow ran: {off:#}");
    assert!(number(&off, "hints_used") < PAGES / 4, "something stood in: {off:#}");
}

/// Requested shadow runs, without those that only tell a shadow to end. There is one of these in
/// each sync, one or two at the end of a process, and at most one each 0.2 s, when an idle shadow
/// is released.
fn repeated(stats: &Value) -> u64 {
    let seconds = stats["elapsed_seconds"].as_f64().expect("a time");
    let ended = 3 * number(stats, "processes_stalled") + (seconds / 0.2) as u64;
    number(stats, "runs").saturating_sub(number(stats, "syncs/count") + ended)
}

#[test]
fn without_again_a_shadow_runs_once() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    // Each page that arrives shows a shadow something new: which pages of another file are next.
    let args = ["fans", "links", &CHUNK.to_string(), &PAGES.to_string(), "pages"];
    let run = fixture.run_program("ablated_reads", Link::Dynamic, &args);
    let plain = plain(&fixture, &run);
    let again = |stats: &Value| repeated(stats) > PAGES / 16;
    // Stand-in data would lead back to where the chain has been.
    let exact = ["--without", "stale"];
    assert!(ever((&fixture, &run, &plain), &exact, again), "next to nothing ran again");
    let off = measured(&fixture, &run, &plain, &[&exact[..], &["--without", "again"]].concat());
    assert!(number(&off, "syncs/count") > 0, "no shadow ran: {off:#}");
    assert_eq!(repeated(&off), 0, "{off:#}");
}

/// The shadow of a program that sleeps has all the time there is.
#[test]
fn without_horizon_a_shadow_hints_beyond_it() {
    let Some(fixture) = available(fixture()) else { return };
    fill(&fixture);
    let [chunk, near, far] = [CHUNK, NEAR, FAR].map(|n| n.to_string());
    let args = ["far", "pages", &chunk, &near, "data", &far];
    let run = fixture.run_program("ablated_reads", Link::Dynamic, &args);
    let plain = plain(&fixture, &run);
    let with = measured(&fixture, &run, &plain, &[]);
    // Hints are not counted: names beside those of the program are guessed.
    let chunks = |stats: &Value| number(stats, "bytes_prefetched") / CHUNK;
    assert!(number(&with, "hints_issued") > 0, "no shadow ran: {with:#}");
    assert!(chunks(&with) < NEAR + NEAR / 2, "it went beyond its horizon: {with:#}");
    let beyond = |stats: &Value| chunks(stats) > NEAR + NEAR / 2;
    let options = ["--without", "horizon"];
    assert!(ever((&fixture, &run, &plain), &options, beyond), "it stopped somewhere");
}
