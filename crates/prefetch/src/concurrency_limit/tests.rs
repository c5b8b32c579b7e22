//! The limit against simulated storage, in virtual time: as many clients as the limit allows, each
//! always with a request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// Storage with `servers` that take one request at a time.
struct Disk {
    servers: usize,
    service: Duration,
    /// Service times vary by this fraction, up and down.
    noise: f64,
    /// A request can be served by one server only (data striped over spindles), not by any.
    striped: bool,
    /// Number of the last requests of each hundred that continue the one before, and take a tenth.
    continued: u64,
}

impl Disk {
    fn new(servers: usize, service_us: u64) -> Self {
        let service = Duration::from_micros(service_us);
        Disk { servers, service, noise: 0.0, striped: false, continued: 0 }
    }
}

/// Xorshift: repeatable.
struct Random(u64);

impl Random {
    /// Uniform in 0..1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Simulation {
    limit: Limit,
    now: Duration,
    free: Vec<Duration>,
    /// End, begin, in flight at the beginning, inode.
    flying: BinaryHeap<Reverse<(Duration, Duration, usize, u64)>>,
    random: Random,
    began: u64,
    /// Clients that have work; more than the limit unless a test says otherwise.
    clients: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Simulation {
            limit: Limit::new(256),
            now: Duration::ZERO,
            free: Vec::new(),
            flying: BinaryHeap::new(),
            random: Random(seed * 2 + 1),
            began: 0,
            clients: usize::MAX,
        }
    }

    fn run(&mut self, disk: &Disk, until: Duration, mut watch: impl FnMut(Duration, usize)) {
        self.free.resize(disk.servers, Duration::ZERO);
        while self.now < until {
            while self.flying.len() < self.limit.current().min(self.clients) {
                let server = if disk.striped {
                    (self.random.next() * disk.servers as f64) as usize
                } else {
                    (0..disk.servers).min_by_key(|&s| self.free[s]).expect("a server")
                };
                let factor = 1.0 + disk.noise * (2.0 * self.random.next() - 1.0);
                self.began += 1;
                let (hundred, n) = (self.began / 100, self.began % 100);
                let continues = n >= 100 - disk.continued;
                let factor = if continues { factor / 10.0 } else { factor };
                let inode = if continues { hundred * 100_000 + n } else { self.began * 1000 };
                let end = self.free[server].max(self.now) + disk.service.mul_f64(factor);
                self.free[server] = end;
                self.flying.push(Reverse((end, self.now, self.flying.len() + 1, inode)));
            }
            let Some(Reverse((end, began, in_flight, inode))) = self.flying.pop() else { break };
            self.now = end;
            let (kind, device, part) = (Kind::Read, (8, 0), (inode, 0..1));
            let sample = Sample { kind, device, part, began, latency: end - began };
            self.limit.sample(sample, in_flight);
            watch(self.now, self.limit.current());
        }
    }

    /// Runs to `until`; mean limit and requests a second in the last two thirds of the time.
    fn settle(&mut self, disk: &Disk, until: Duration) -> (f64, f64) {
        let from = self.now + (until - self.now) / 3;
        let (mut sum, mut count) = (0.0, 0.0);
        self.run(disk, until, |now, limit| {
            if now > from {
                sum += limit as f64;
                count += 1.0;
            }
        });
        (sum / count, count / (until - from).as_secs_f64())
    }
}

const SEEDS: std::ops::Range<u64> = 1..21;

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Runs `disk` for 30 s from each seed: the means must lie in `limits`, and the throughput must be
/// at least `share` of what the servers can do.
fn settles(name: &str, disk: &Disk, limits: std::ops::RangeInclusive<f64>, share: f64) {
    let most = disk.servers as f64 / disk.service.as_secs_f64();
    let runs: Vec<(f64, f64)> =
        SEEDS.map(|seed| Simulation::new(seed).settle(disk, secs(30))).collect();
    for (seed, &(limit, rate)) in SEEDS.zip(&runs) {
        assert!(limits.contains(&limit), "{name}, seed {seed}: limit settles at {limit:.1}");
        assert!(rate >= share * most, "{name}, seed {seed}: {rate:.0} of {most:.0} a second");
    }
    let of = |f: fn(f64, f64) -> f64, at: fn(&(f64, f64)) -> f64| {
        runs.iter().map(at).reduce(f).unwrap_or(0.0)
    };
    println!(
        "{name}: limit {:.0}-{:.0}, throughput {:.0}-{:.0} % of the most",
        of(f64::min, |r| r.0),
        of(f64::max, |r| r.0),
        100.0 * of(f64::min, |r| r.1) / most,
        100.0 * of(f64::max, |r| r.1) / most,
    );
}

#[test]
fn a_wide_disk_is_used_within_a_few_latencies() {
    for seed in SEEDS {
        let (disk, mut sim) = (Disk { noise: 0.1, ..Disk::new(128, 5_000) }, Simulation::new(seed));
        let mut reached = None;
        sim.run(&disk, secs(2), |now, limit| {
            if limit >= 100 && reached.is_none() {
                reached = Some(now);
            }
        });
        let reached = reached.expect("the limit reaches 100");
        assert!(reached <= Duration::from_millis(50), "seed {seed}: {reached:?}");
        if seed == 1 {
            println!("128-way 5 ms: limit 100 after {reached:?}");
        }
    }
    settles("128-way 5 ms", &Disk { noise: 0.1, ..Disk::new(128, 5_000) }, 110.0..=256.0, 0.95);
}

#[test]
fn a_few_spindles_are_not_buried() {
    let disk = Disk { noise: 0.1, ..Disk::new(4, 12_000) };
    settles("4 spindles 12 ms, any", &disk, 8.0..=24.0, 0.95);
    let striped = Disk { striped: true, ..disk };
    // Queues of unequal length: while one spindle is swamped another idles, so the quartile allows
    // more in flight, and throughput needs it.
    settles("4 spindles 12 ms, striped", &striped, 8.0..=24.0, 0.7);
}

#[test]
fn what_continues_a_read_is_no_measure_for_others() {
    // Whole rounds of what takes a tenth: taken for the device's nature, they would leave two in
    // flight.
    let disk = Disk { noise: 0.1, continued: 70, ..Disk::new(4, 12_000) };
    settles("4 spindles 12 ms, runs of 70", &disk, 8.0..=95.0, 0.95);
}

#[test]
fn a_single_head_gets_little() {
    settles("1 head 8 ms", &Disk { noise: 0.2, ..Disk::new(1, 8_000) }, 1.5..=4.0, 0.95);
}

#[test]
fn an_eight_way_device_of_one_ms() {
    settles("8-way 1 ms", &Disk { noise: 0.1, ..Disk::new(8, 1_000) }, 12.0..=32.0, 0.95);
}

#[test]
fn noise_of_half_the_latency_changes_little() {
    let noisy = |servers, us| Disk { noise: 0.5, ..Disk::new(servers, us) };
    settles("128-way 5 ms ± 50 %", &noisy(128, 5_000), 100.0..=256.0, 0.9);
    settles("4 spindles 12 ms ± 50 %", &noisy(4, 12_000), 4.5..=24.0, 0.9);
}

#[test]
fn a_change_of_speed_is_followed_within_seconds() {
    for seed in SEEDS {
        let mut sim = Simulation::new(seed);
        let fast = Disk { noise: 0.1, ..Disk::new(64, 4_000) };
        let slow = Disk { noise: 0.1, ..Disk::new(64, 20_000) };
        let narrow = Disk { noise: 0.1, ..Disk::new(8, 20_000) };
        for (disk, until) in [(&fast, 10), (&slow, 20), (&narrow, 40), (&fast, 50)] {
            let from = secs(until - 5);
            sim.run(disk, from, |_, _| ());
            let (limit, rate) = sim.settle(disk, secs(until));
            let most = disk.servers as f64 / disk.service.as_secs_f64();
            assert!(rate > 0.85 * most, "seed {seed}, until {until} s: {rate:.0} of {most:.0}");
            let width = disk.servers as f64;
            assert!(limit <= 3.5 * width, "seed {seed}, until {until} s: limit {limit:.0}");
            if seed == 1 {
                println!("until {until} s ({width}-way {:?}): limit {limit:.0}", disk.service);
            }
        }
    }
}

#[test]
fn a_device_that_slows_down_is_recognised_before_its_base_expires() {
    for seed in SEEDS {
        let mut sim = Simulation::new(seed);
        sim.run(&Disk { noise: 0.1, ..Disk::new(64, 4_000) }, secs(4), |_, _| ());
        let slow = Disk { noise: 0.1, ..Disk::new(64, 20_000) };
        let (mut least, mut at_end) = (usize::MAX, 0);
        sim.run(&slow, Duration::from_millis(5000), |_, limit| {
            least = least.min(limit);
            at_end = limit;
        });
        // It was cut, to no avail, and let go again.
        assert!(least <= 64 && at_end >= 64, "seed {seed}: down to {least}, then {at_end}");
    }
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let mut sim = Simulation::new(1);
    sim.clients = 6;
    sim.run(&Disk::new(128, 5_000), secs(5), |_, _| ());
    assert_eq!(sim.limit.current(), START);
}

#[test]
fn cached_operations_say_nothing() {
    let mut limit = Limit::new(256);
    for n in 0..10_000 {
        let began = Duration::from_micros(n * 10);
        let sample = Sample {
            kind: Kind::Lookup,
            device: (8, 0),
            part: (0, 0..0),
            began,
            latency: Duration::from_micros(299),
        };
        limit.sample(sample, 16);
    }
    assert_eq!(limit.current(), FIRST);
}

#[test]
fn kinds_with_different_latencies_do_not_disturb_each_other() {
    // A lookup walks three cold directories, a read does not: 15 ms beside 5 ms is no queue.
    let mut limit = Limit::new(256);
    let mut now = Duration::ZERO;
    for _ in 0..12 {
        for n in 0..256u64 {
            let (kind, ms) = if n % 2 == 0 { (Kind::Lookup, 15) } else { (Kind::Read, 5) };
            let sample = Sample {
                kind,
                device: (8, 0),
                part: (n, 0..1),
                began: now,
                latency: Duration::from_millis(ms),
            };
            limit.sample(sample, limit.current());
        }
        now += Duration::from_millis(16);
    }
    assert_eq!(limit.current(), 256);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_samples_drive_the_limit_out_of_its_bounds(
            max in 0usize..300,
            samples in prop::collection::vec((0u64..1 << 40, 0u64..1 << 36, 0usize..400, 0u8..4, 0u64..9), 0..400),
        ) {
            let mut limit = Limit::new(max);
            for (began, latency, in_flight, kind, file) in samples {
                let kind = [Kind::Lookup, Kind::Read, Kind::LongRead, Kind::Listing][kind as usize];
                let began = Duration::from_nanos(began);
                let latency = Duration::from_nanos(latency);
                limit.sample(Sample { kind, device: (8, 0), part: (file, 0..1), began, latency }, in_flight);
                prop_assert!((1..=max.max(1)).contains(&limit.current()));
            }
        }
    }
}

/// A wide and slow device, of which a few operations were half cached when they were timed.
#[test]
fn a_base_that_was_half_cached_does_not_last() {
    let mut limit = Limit::new(256);
    let mut now = Duration::ZERO;
    let mut feed = |limit: &mut Limit, us: u64, waves: u64| {
        let latency = Duration::from_micros(us);
        for _ in 0..waves {
            for _ in 0..limit.current().max(ROUND.0) {
                let (kind, device, part) = (Kind::Lookup, (8, 0), (0, 0..0));
                let sample = Sample { kind, device, part, began: now, latency };
                limit.sample(sample, limit.current());
            }
            now += latency;
        }
    };
    feed(&mut limit, 10_000, 10);
    feed(&mut limit, 1_500, 1);
    // Walks of fewer and fewer cold directories: as if cuts were helping.
    for us in [200_000, 130_000, 90_000, 60_000, 40_000, 27_000, 18_000] {
        feed(&mut limit, us, 1);
    }
    assert!(limit.current() <= 8, "taken for a queue at first: {}", limit.current());
    feed(&mut limit, 10_000, 100);
    assert_eq!(limit.current(), 256);
}
