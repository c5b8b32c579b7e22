//! When shadows are stopped and tried again: single cases, and a property with a printed seed.

use super::*;

/// Good hints, ten to an interval.
const GOOD: Sample = Sample {
    issued: 10,
    used: 10,
    missed: 0,
    lost: 0,
    late: Duration::ZERO,
    dropped: false,
    added: 0.0,
    held: 0.1,
    stall: Duration::from_millis(5),
    depth: 128,
};
/// Hints that are never used.
const RUBBISH: Sample = Sample { issued: 1000, used: 0, missed: 4, held: 0.5, ..GOOD };

/// Feeds `samples` of equal length; what came of it, and when.
fn feed(
    worth: &mut CostBenefit,
    now: &mut Duration,
    sample: Sample,
    intervals: u32,
) -> Vec<(Duration, ShadowDecision)> {
    let mut changes = Vec::new();
    for _ in 0..intervals {
        *now += INTERVAL;
        changes.extend(worth.observe(*now, &sample).map(|change| (*now, change)));
    }
    changes
}

#[test]
fn rubbish_is_stopped_within_a_second_and_tried_again_ever_later() {
    let (mut worth, mut now) = (CostBenefit::default(), Duration::from_secs(7));
    let changes = feed(&mut worth, &mut now, RUBBISH, 20 * 600);
    let (stopped, change) = changes[0];
    assert_eq!(change, ShadowDecision::Stop(StopReason::Waste));
    assert!(stopped <= Duration::from_secs(8), "{stopped:?}");
    let mut last = Duration::ZERO;
    for pair in changes.chunks_exact(2) {
        assert!(matches!(
            (pair[0].1, pair[1].1),
            (ShadowDecision::Stop(_), ShadowDecision::TryAgain)
        ));
        let pause = pair[1].0 - pair[0].0;
        assert!(pause >= last && pause <= PAUSE.1, "{pause:?} after {last:?}");
        last = pause;
    }
    assert_eq!(last, PAUSE.1);
}

#[test]
fn what_was_good_for_long_is_stopped_within_a_second_of_turning_to_rubbish() {
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    let splendid = Sample { issued: 9000, used: 9000, ..GOOD };
    assert_eq!(feed(&mut worth, &mut now, splendid, 1000), []);
    let turned = now;
    let changes = feed(&mut worth, &mut now, RUBBISH, 10);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Waste));
    assert!(changes[0].0 - turned <= Duration::from_secs(1), "{changes:?}");
}

#[test]
fn where_many_requests_fit_few_right_hints_pay_for_many_wrong_ones() {
    let poor = Sample { issued: 100, used: 10, missed: 90, ..GOOD };
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    assert_eq!(feed(&mut worth, &mut now, poor, 100), []);
    // One spindle does one thing at a time.
    let changes = feed(&mut worth, &mut now, Sample { depth: 1, ..poor }, 100);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Waste));
}

#[test]
fn crowding_stops_what_removes_fewer_stalls_than_it_adds() {
    let crowding = Sample { added: 20.0, ..GOOD };
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    let changes = feed(&mut worth, &mut now, crowding, 10);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Crowding));
    let fair = Sample { added: 9.0, ..GOOD };
    assert_eq!(feed(&mut CostBenefit::default(), &mut Duration::default(), fair, 100), []);
}

#[test]
fn what_is_lost_before_it_is_used_is_stopped_where_few_requests_fit() {
    let lost = Sample { used: 1, lost: 20, ..GOOD };
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    assert_eq!(feed(&mut worth, &mut now, lost, 100), [], "one used pays for twenty lost");
    let changes = feed(&mut worth, &mut now, Sample { depth: 2, ..lost }, 10);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Loss));
    let all = Sample { used: 0, ..lost };
    let changes = feed(&mut CostBenefit::default(), &mut Duration::default(), all, 10);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Loss));
}

#[test]
fn foreseen_waits_that_take_as_long_as_others_count_only_while_something_is_dropped() {
    let late = Sample { late: Duration::from_millis(80), ..GOOD };
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    assert_eq!(feed(&mut worth, &mut now, late, 100), []);
    let dropped = Sample { dropped: true, ..late };
    let changes = feed(&mut worth, &mut now, dropped, 10);
    assert_eq!(changes[0].1, ShadowDecision::Stop(StopReason::Loss));
    let sooner = Sample { late: Duration::from_millis(40), ..dropped };
    assert_eq!(feed(&mut CostBenefit::default(), &mut Duration::default(), sooner, 100), []);
}

#[test]
fn a_timid_one_is_left_alone() {
    let timid = Sample { issued: 1, missed: 1, held: 0.0, ..RUBBISH };
    assert_eq!(feed(&mut CostBenefit::default(), &mut Duration::default(), timid, 1000), []);
}

#[test]
fn rubbish_that_has_filled_the_budget_and_waits_is_stopped() {
    let full = Sample { issued: 0, held: 1.0, ..RUBBISH };
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    assert_eq!(feed(&mut worth, &mut now, Sample { missed: 0, ..RUBBISH }, 1), []);
    assert_eq!(feed(&mut worth, &mut now, full, 9)[0].1, ShadowDecision::Stop(StopReason::Waste));
}

#[test]
fn hints_that_are_used_after_all_end_a_pause() {
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    while worth.until().is_none() {
        feed(&mut worth, &mut now, RUBBISH, 1);
    }
    let late = Sample { issued: 0, ..GOOD };
    assert_eq!(feed(&mut worth, &mut now, late, 1), [(now, ShadowDecision::TryAgain)]);
}

#[test]
fn a_trial_that_succeeds_makes_the_next_pause_short() {
    let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
    feed(&mut worth, &mut now, RUBBISH, 1000);
    while worth.until().is_some() {
        feed(&mut worth, &mut now, Sample { issued: 0, missed: 0, ..RUBBISH }, 1);
    }
    feed(&mut worth, &mut now, GOOD, 80);
    let stopped = feed(&mut worth, &mut now, RUBBISH, 10)[0].0;
    assert_eq!(worth.until(), Some(stopped + PAUSE.0));
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|s| s.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| now.map_or(1, |t| t.as_nanos() as u64));
        eprintln!("repeat with RUNAHEAD_SEED={seed}");
        Dice(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }

    fn device(&mut self) -> (Duration, usize) {
        let stall = Duration::from_micros(100 + self.below(50_000));
        (stall, 1 << self.below(9))
    }

    /// An interval, which may have been made up late.
    fn interval(&mut self) -> Duration {
        INTERVAL + Duration::from_millis(if self.below(4) == 0 { self.below(200) } else { 0 })
    }
}

/// Three of four hints are used, in bursts of any size and with any delay up to three intervals;
/// the others prove wrong meanwhile.
fn useful(dice: &mut Dice, worth: &mut CostBenefit, now: &mut Duration, intervals: usize) {
    let (stall, depth) = dice.device();
    let mut due = [(0u64, 0u64); 4];
    for at in 0..intervals {
        let issued = if dice.below(3) == 0 { dice.below(2000) } else { 0 };
        let (used, missed) = std::mem::take(&mut due[at % 4]);
        let wrong = dice.below(issued / 4 + 1);
        let later = &mut due[(at + 1 + dice.below(3) as usize) % 4];
        *later = (later.0 + issued - wrong, later.1 + wrong);
        *now += dice.interval();
        let added = dice.below(used / 8 + 1) as f64;
        let held = dice.below(100) as f64 / 100.0;
        let sample = Sample { issued, used, missed, added, held, stall, depth, ..GOOD };
        let change = worth.observe(*now, &sample);
        assert!(!matches!(change, Some(ShadowDecision::Stop(_))), "{at}: {sample:?} {worth:?}");
    }
}

#[test]
fn whatever_else_they_do_hints_that_are_lost_are_stopped_within_a_second_and_tried_again() {
    let mut dice = Dice::new();
    for _ in 0..500 {
        let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
        let intervals = dice.below(50) as usize;
        useful(&mut dice, &mut worth, &mut now, intervals);
        let (turned, (stall, depth)) = (now, dice.device());
        let mut stopped = None;
        while stopped.is_none() && now - turned <= Duration::from_millis(1000) {
            now += INTERVAL;
            let lost = 3 + dice.below(20);
            let least = depth.min(32) as f64 * 0.1 / stall.as_secs_f64();
            let issued = lost + least.ceil() as u64;
            let held = dice.below(100) as f64 / 100.0;
            let sample = Sample { issued, used: 0, lost, held, stall, depth, ..GOOD };
            stopped = worth.observe(now, &sample);
        }
        // What the useful ones have pushed out of memory may still be in the account.
        let is_told =
            matches!(stopped, Some(ShadowDecision::Stop(StopReason::Loss | StopReason::Crowding)));
        assert!(is_told, "{stopped:?} {worth:?}");
        let (mut tried, stopped) = (None, now);
        while tried.is_none() {
            now += dice.interval();
            tried = worth.observe(now, &Sample { stall, depth, ..Sample::default() });
            assert!(now - stopped <= PAUSE.1 + 4 * INTERVAL, "{worth:?}");
        }
        useful(&mut dice, &mut worth, &mut now, 20);
    }
}

#[test]
fn any_shadow_whose_hints_are_used_goes_on_and_any_that_only_costs_is_stopped() {
    let mut dice = Dice::new();
    for _ in 0..500 {
        let (mut worth, mut now) = (CostBenefit::default(), Duration::ZERO);
        let intervals = dice.below(100) as usize;
        useful(&mut dice, &mut worth, &mut now, intervals);
        // What was right before may still be in the account: from here on nothing is.
        let turned = now;
        let (stall, depth) = dice.device();
        let least = depth.min(32) as f64 * 0.3 / stall.as_secs_f64() * 0.3;
        let mut stopped = None;
        while stopped.is_none() && now - turned <= Duration::from_millis(1000) {
            now += INTERVAL;
            let issued = least.ceil() as u64 + dice.below(1000);
            let missed = 2 + dice.below(20);
            let held = dice.below(100) as f64 / 100.0;
            let sample = Sample { issued, used: 0, missed, held, stall, depth, ..GOOD };
            stopped = worth.observe(now, &sample);
        }
        assert!(matches!(stopped, Some(ShadowDecision::Stop(_))), "{stopped:?} {worth:?}");
        assert!(now - turned <= Duration::from_secs(1), "{:?} {worth:?}", now - turned);
        // And tried again, within what a pause may take.
        let mut tried = None;
        let stopped = now;
        while tried.is_none() {
            now += dice.interval();
            tried = worth.observe(now, &Sample { stall, depth, ..Sample::default() });
            assert!(now - stopped <= PAUSE.1 + 4 * INTERVAL, "{worth:?}");
        }
        assert_eq!(tried, Some(ShadowDecision::TryAgain));
        useful(&mut dice, &mut worth, &mut now, 20);
    }
}
