//! Effect of prefetching on a reader without prefetches, and its gain, on storage of four kinds.
//!
//! `cargo run --release -p runahead-prefetch --example reader_interference -- [DEVICE...]`
//!
//! with devices `spindle`, `spindles`, `cloud`, `share` (all, if none is named). Needs root, but
//! for `share`, and 1 GiB in /dev/shm. For each device it prints
//!
//! - demand: latency of one thread's random reads of 4 KiB, alone, and while hints for random 64
//!   KiB of other files are carried out without pause; the limit found, most requests outstanding
//!   at the device, and requests a second that it answered;
//! - files: how long 1,500 small files take that are hinted in random order;
//! - exact: what 64 hints of 128 KiB at random places of a large file had the device asked for.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use runahead_abi::hint_record::Header;
use runahead_abi::{HintKind, Record};
use runahead_estimators::Identity;
use runahead_prefetch::{Client, Completion, Options, PrefetchStats, Prefetcher, Sink};
use runahead_testbed::{Disk, DiskOptions, Share, ShareOptions, Storage};
use rustix::fs::{Advice, fadvise};

type Failure = Box<dyn std::error::Error>;

const LARGE: u64 = 384 << 20;
const DEMANDED: u64 = 128 << 20;
const FILES: u64 = 1500;
const FILE_BYTES: u64 = 8 << 10;
const CHUNK: u64 = 128 << 10;

struct IgnoreCompletions;

impl Sink for IgnoreCompletions {
    fn done(&self, _: Identity) {}
    fn forget(&self, _: Identity, _: u32) {}
    fn expect(&self, _: Identity, _: u32) -> bool {
        true
    }
    fn completed(&self, _: &Completion) {}
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn main() -> Result<(), Failure> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let all = ["spindle", "spindles", "cloud", "share"].map(String::from);
    for device in if named.is_empty() { &all[..] } else { &named } {
        measure(device)?;
    }
    Ok(())
}

/// Brings the device up, measures on it, and takes it down.
fn measure(device: &str) -> Result<(), Failure> {
    let place = tempfile::tempdir_in("/dev/shm")?;
    let (source, mount) = (place.path().join("source"), place.path().join("mount"));
    fs::create_dir(&source)?;
    fs::create_dir(&mount)?;
    let disk = || {
        let mut options = DiskOptions::new(&mount).delay(false).size(1 << 30);
        options.backing_dir = place.path().into();
        options
    };
    let seek = Duration::from_millis(12);
    let disk = match device {
        "spindle" => disk().spindles(1, 64 << 10, seek),
        "spindles" => disk().spindles(4, 64 << 10, seek),
        "cloud" => disk().parallel(Duration::from_millis(5), 128),
        "share" => {
            fill(&source)?;
            let options = ShareOptions::new(&source, &mount);
            let share = Share::up(&options.parallel(Duration::from_millis(10), 128))?;
            on(device, share.storage())?;
            return Ok(share.down()?);
        }
        _ => return Err(format!("{device}: no such device").into()),
    };
    let disk = Disk::up(&disk)?;
    fill(&mount)?;
    disk.set_delay(true)?;
    on(device, disk.storage())?;
    Ok(disk.down()?)
}

fn fill(dir: &Path) -> Result<(), Failure> {
    for (name, bytes) in [("large", LARGE), ("demanded", DEMANDED)] {
        let file = File::create(dir.join(name))?;
        for at in (0..bytes).step_by(1 << 20) {
            file.write_all_at(&[7; 1 << 20], at)?;
        }
        file.sync_all()?;
    }
    fs::create_dir(dir.join("files"))?;
    for n in 0..FILES {
        fs::write(small(dir, n), [7; FILE_BYTES as usize])?;
    }
    Ok(())
}

fn small(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("files/{n:04}"))
}

/// Drops the file from memory.
fn cool(path: &Path) -> Result<(), Failure> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn hint(client: &Client, path: &Path, offset: u64, length: u64, position: u64) {
    let path = path.as_os_str().as_bytes();
    let key = Identity::ROOT.join(path).raw();
    let (kind, flags, run) = (HintKind::Data, 0, 1);
    let path_len = path.len() as u32;
    let header = Header { kind: kind as u32, run, position, key, offset, length, flags, path_len };
    client.submit(&Record { kind, header, path });
}

fn fresh() -> (Prefetcher, Client) {
    let prefetcher = Prefetcher::new(Options::default(), |_, _| ());
    let client = prefetcher.client(Arc::new(IgnoreCompletions));
    (prefetcher, client)
}

/// Until nothing waits and nothing is under way.
fn finish(prefetcher: &Prefetcher) -> PrefetchStats {
    loop {
        prefetcher.kick();
        let stats = prefetcher.stats();
        if stats.queued == 0 && stats.in_flight == 0 {
            return stats;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Latencies, in ms and sorted, of random reads for as long as `time`.
fn demand(dir: &Path, time: Duration, seed: u64) -> Result<Vec<f64>, Failure> {
    let path = dir.join("demanded");
    cool(&path)?;
    let file = File::open(&path)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut random = Random(seed);
    let (mut latencies, start) = (Vec::new(), Instant::now());
    while start.elapsed() < time {
        let (at, mut block) = (random.below(DEMANDED / 4096) * 4096, [0; 4096]);
        let began = Instant::now();
        file.read_exact_at(&mut block, at)?;
        latencies.push(began.elapsed().as_secs_f64() * 1e3);
    }
    // What is in memory by chance, having been read before, says nothing.
    latencies.retain(|ms| *ms > 1.0);
    latencies.sort_unstable_by(f64::total_cmp);
    Ok(latencies)
}

fn told(latencies: &[f64]) -> String {
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    format!(
        "mean {mean:.1} ms, median {:.1}, 90 % {:.1}, most {:.1} ({} reads)",
        at(0.5),
        at(0.9),
        at(1.0),
        latencies.len()
    )
}

/// Hints random parts of the large file, so that about 1,000 always wait, until told to stop.
/// Returns the limits that were in force meanwhile, sorted.
fn load(prefetcher: &Prefetcher, client: &Client, path: &Path, stop: &AtomicBool) -> Vec<usize> {
    let mut limits = Vec::new();
    let (mut random, mut position, mut cooled) = (Random(1), 0, 0);
    while !stop.load(Relaxed) {
        while prefetcher.queued() < 1000 {
            position += 1;
            // A stride of its own, so that neighbours do not join.
            hint(client, path, random.below(LARGE / CHUNK) * CHUNK, 64 << 10, position);
        }
        prefetcher.kick();
        limits.push(prefetcher.stats().limit);
        std::thread::sleep(Duration::from_micros(300));
        // What was read is soon all that there is: forget it.
        if position - cooled > 500 {
            cooled = position;
            let _ = cool(path);
        }
    }
    client.drop_queued_before(2);
    finish(prefetcher);
    limits.sort_unstable();
    limits
}

fn on(device: &str, storage: &Storage) -> Result<(), Failure> {
    let dir = storage.dir();
    let large = dir.join("large");
    let time = Duration::from_secs(5);
    let alone = demand(dir, time / 2, 1)?;
    println!("{device}\n  demand alone:      {}", told(&alone));

    cool(&large)?;
    let (prefetcher, client) = fresh();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let load = scope.spawn(|| load(&prefetcher, &client, &large, &stop));
        let first = demand(dir, Duration::from_millis(500), 2);
        storage.reset_stats()?;
        let began = Instant::now();
        let beside = demand(dir, time, 3);
        let (stats, seconds) = (storage.stats()?, began.elapsed().as_secs_f64());
        stop.store(true, Relaxed);
        let limits = load.join().map_err(|_| "the load failed")?;
        let part = |of: usize| limits[(limits.len() - 1) * of / 10];
        println!("  beside, at first:  {}", told(&first?));
        println!("  beside prefetches: {}", told(&beside?));
        println!(
            "  limit {} ({} to {} for 8 tenths of the time), at most {} outstanding, {:.0} requests/s, {:.1} MiB/s",
            part(5),
            part(1),
            part(9),
            stats.max_outstanding,
            stats.requests as f64 / seconds,
            stats.read_bytes as f64 / seconds / f64::from(1 << 20)
        );
        Ok(())
    })?;
    drop((client, prefetcher));
    files(storage)?;
    exact(storage)
}

fn files(storage: &Storage) -> Result<(), Failure> {
    let dir = storage.dir();
    let mut order: Vec<u64> = (0..FILES).collect();
    let mut random = Random(4);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    for n in 0..FILES {
        cool(&small(dir, n))?;
    }
    storage.reset_stats()?;
    let (prefetcher, client) = fresh();
    let began = Instant::now();
    for (position, n) in order.iter().enumerate() {
        hint(&client, &small(dir, *n), 0, FILE_BYTES, position as u64);
    }
    let done = finish(&prefetcher);
    println!(
        "  files: {FILES} of 8 KiB in {:.2} s, limit {}, {} reads of the device",
        began.elapsed().as_secs_f64(),
        done.limit,
        storage.stats()?.reads
    );
    Ok(())
}

fn exact(storage: &Storage) -> Result<(), Failure> {
    const HINTS: u64 = 64;
    let large = storage.dir().join("large");
    cool(&large)?;
    let (prefetcher, client) = fresh();
    storage.reset_stats()?;
    // Every sixth chunk from a random start: no two touch.
    let start = Random(5).below(8);
    (0..HINTS).for_each(|n| hint(&client, &large, (start + 6 * n) * CHUNK, CHUNK, n));
    finish(&prefetcher);
    let stats = storage.stats()?;
    println!(
        "  exact: {HINTS} hints of 128 KiB: {} reads, {} KiB of {} KiB hinted",
        stats.reads,
        stats.read_bytes >> 10,
        (HINTS * CHUNK) >> 10
    );
    Ok(())
}
