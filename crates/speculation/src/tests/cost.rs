//! What operations cost where there are as many speculations as may be. Only printed: run it with
//! `cargo test --release -p runahead-speculation cost -- --ignored --nocapture`.

use std::time::Instant;

use super::*;

const PROCESSES: u64 = 200;

/// The median and the longest of what each call takes, in microseconds.
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let micros = |time: &Duration| time.as_nanos() as f64 / 1_000.0;
    let [median, longest] = [&times[times.len() / 2], &times[times.len() - 1]].map(micros);
    println!("{what}: median {median:.2} µs, longest {longest:.1} µs");
}

fn timed<T>(times: &mut Vec<Duration>, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = act();
    times.push(began.elapsed());
    result
}

/// 2,000 speculations over 200 processes, each of which changes files of its own, or also one of
/// all.
fn measure(what: &str, common: bool) {
    let mut host = host();
    let [mut creates, mut commits, mut changes] = [(); 3].map(|()| Vec::new());
    let mut specs = Vec::new();
    for n in 0..2_000 {
        let process = ProcessId(n % PROCESSES);
        specs.push(timed(&mut creates, || host.create(process).0));
        timed(&mut changes, || host.change(process, ObjectId(n)));
        if common {
            timed(&mut changes, || host.change(process, ObjectId(9_999)));
        }
        _ = host.tracker.output(process, HeldId(n));
    }
    fastrand::Rng::with_seed(1).shuffle(&mut specs);
    let mut last = specs.split_off(1_999);
    for spec in specs {
        timed(&mut commits, || host.commit(spec));
    }
    let mut fails = Vec::new();
    if let Some(spec) = last.pop() {
        timed(&mut fails, || host.fail(spec));
    }
    println!("{what}:");
    print("  create", creates);
    print("  change of an object", changes);
    print("  commit", commits);
    print("  failure of the last", fails);
}

#[test]
#[ignore = "only measures"]
fn cost() {
    measure("each process by itself", false);
    measure("all change one file, and so depend on all that came before", true);
}
