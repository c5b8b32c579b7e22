//! What the tracker's operations cost where there are as many speculations as may be:
//! `cargo run --release -p runahead-speculation --example cost`.

use std::time::{Duration, Instant};

use runahead_speculation::{
    Access, CheckpointId, Effect, HeldId, Limits, Moment, ObjectId, ProcessId, Refused, Tracker,
    UndoId,
};

const PROCESSES: u64 = 200;

/// A host that takes a checkpoint whenever it has to, and numbers all it is asked for.
struct Host {
    tracker: Tracker,
    numbers: u64,
}

impl Host {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn tell<T>(&mut self, tell: impl Fn(&mut Tracker, Moment) -> Result<T, Refused>) -> T {
        let moment = Moment::at(Duration::ZERO);
        match tell(&mut self.tracker, moment) {
            Err(Refused::NeedsCheckpoint(_)) => {
                let checkpoint = CheckpointId(self.number());
                tell(&mut self.tracker, moment.with(checkpoint))
            }
            told => told,
        }
        .expect("it is not refused")
    }

    fn change(&mut self, process: ProcessId, object: ObjectId) {
        let undo = UndoId(self.number());
        let access = Access { changes: &[(object, undo)], ..Access::default() };
        self.tell(|tracker, now| tracker.access(process, access, now));
    }
}

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
    let mut host = Host { tracker: Tracker::new(Limits::default()), numbers: 0 };
    let [mut creates, mut commits, mut changes] = [(); 3].map(|()| Vec::new());
    let mut specs = Vec::new();
    for n in 0..2_000 {
        let process = ProcessId(n % PROCESSES);
        specs.push(timed(&mut creates, || {
            host.tell(|tracker, now| tracker.create(process, Effect::ReadOnly, now)).spec
        }));
        timed(&mut changes, || host.change(process, ObjectId(n)));
        if common {
            timed(&mut changes, || host.change(process, ObjectId(9_999)));
        }
        _ = host.tracker.output(process, HeldId(n));
    }
    fastrand::Rng::with_seed(1).shuffle(&mut specs);
    let mut last = specs.split_off(1_999);
    for spec in specs {
        timed(&mut commits, || host.tracker.commit(spec)).expect("it is open");
    }
    let mut fails = Vec::new();
    if let Some(spec) = last.pop() {
        timed(&mut fails, || host.tracker.fail(spec)).expect("it is open");
    }
    println!("{what}:");
    print("  create", creates);
    print("  change of an object", changes);
    print("  commit", commits);
    print("  failure of the last", fails);
}

fn main() {
    measure("each process by itself", false);
    measure("all change one file, and so depend on all that came before", true);
}
