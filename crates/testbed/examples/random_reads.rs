//! Random 4 KiB direct reads of one file by a number of threads: latency, rate, and processor time
//! of the machine.
//!
//! `cargo run --release -p runahead-testbed --example random_reads -- FILE THREADS SECONDS`
//!
//! Processor time is the machine's, from /proc/stat, so measure on a machine that does nothing
//! else.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, threads, seconds] = args.as_slice() else {
        eprintln!("usage: measure FILE THREADS SECONDS");
        std::process::exit(2);
    };
    let threads: u64 = threads.parse().expect("THREADS is a number");
    let seconds: u64 = seconds.parse().expect("SECONDS is a number");
    let busy_before = busy_ticks();
    let start = Instant::now();
    let until = start + Duration::from_secs(seconds);
    let workers: Vec<_> = (0..threads)
        .map(|seed| {
            let file = file.clone();
            std::thread::spawn(move || read_until(Path::new(&file), seed, until))
        })
        .collect();
    let mut latencies: Vec<u64> =
        workers.into_iter().flat_map(|w| w.join().expect("no panic")).collect();
    let elapsed = start.elapsed().as_secs_f64();
    let busy = (busy_ticks() - busy_before) as f64 / 100.0;
    latencies.sort_unstable();
    let count = latencies.len();
    let at = |part: f64| latencies[((count - 1) as f64 * part) as usize];
    println!(
        "{threads} threads: {:.0} reads/s; latency mean {} µs, median {}, p99 {}, max {}; processor {:.1} µs a read",
        count as f64 / elapsed,
        latencies.iter().sum::<u64>() / count as u64,
        at(0.5),
        at(0.99),
        at(1.0),
        busy * 1e6 / count as f64,
    );
}

/// Latencies in microseconds.
fn read_until(path: &Path, seed: u64, until: Instant) -> Vec<u64> {
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("FILE opens for direct reads");
    let blocks = file.metadata().expect("FILE has attributes").len() / BLOCK;
    let mut space = vec![0u8; 2 * BLOCK as usize];
    let skip = space.as_ptr().align_offset(BLOCK as usize);
    let buffer = &mut space[skip..skip + BLOCK as usize];
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut latencies = Vec::new();
    while Instant::now() < until {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let begin = Instant::now();
        rustix::io::pread(&file, &mut *buffer, random % blocks * BLOCK).expect("the disk answers");
        latencies.push(begin.elapsed().as_micros() as u64);
    }
    latencies
}

/// Processor time that the machine spent on anything but idling, in ticks of 10 ms.
fn busy_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    fields.iter().take(3).chain(fields.get(5..7).unwrap_or_default()).sum()
}
