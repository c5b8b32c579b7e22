//! Medians, ratios and verdicts.
//!
//! Invariant: a ratio is made of the two runs of one pair, which met the same state of the machine;
//! the median of ratios is what is judged. Only with everything in memory, where runs are short and
//! many, are the medians of the times compared.

use serde::{Deserialize, Serialize};

use crate::report::run_report::{Kind, RunReport};
use crate::rows::cost_limits::Cost;
use crate::rows::row_definition::Cache;

/// Result of a row's runs. Times are in seconds, figures in the unit of the row's cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub plain: Option<f64>,
    /// Median.
    pub runahead: Option<f64>,
    /// Cold: plain over runahead. Warm, and all costs: runahead over plain.
    pub ratio: Option<f64>,
    /// Smallest and largest ratio of a pair.
    pub spread: Option<(f64, f64)>,
    /// Plain over runahead with everything on, in the same pairs, of an ablation.
    #[serde(default)]
    pub whole: Option<Ratio>,
    /// Plain over the second run, of an everyday row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Ratio>,
    /// Runahead less plain, of a cost.
    #[serde(default)]
    pub added: Option<f64>,
    /// Median.
    pub oracle: Option<f64>,
    /// Plain over oracle.
    pub oracle_ratio: Option<f64>,
    /// Oracle over runahead: 1 is as good as perfect knowledge.
    pub closeness: Option<f64>,
    /// Median.
    #[serde(default)]
    pub replay: Option<f64>,
    pub verdict: Verdict,
}

/// A median, with the smallest and largest value of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub spread: (f64, f64),
}

impl Ratio {
    /// The ratio over these pairs; `None` without pairs.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let median = median(ratios.iter().copied())?;
        let least = ratios.iter().copied().min_by(f64::total_cmp)?;
        let most = ratios.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median, spread: (least, most) })
    }
}

/// Judgement of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It reached its target.
    Pass,
    /// It did not.
    Miss,
    /// It has no result.
    Failed,
    /// It is not judged: runahead was not measured, or with `--quick`, or without something.
    #[default]
    Open,
}

/// Measure of a row.
#[derive(Debug, Clone, Copy)]
pub enum RowMeasure {
    /// The ratio of elapsed times, and the target.
    Ratio(Cache, f64),
    /// Figures, and limits on them.
    Cost(Cache, Cost),
    /// No measure: runahead without something, or an everyday row.
    Nothing,
}

/// Median of a value of the runs of one kind.
pub fn median_of(
    runs: &[RunReport],
    kind: Kind,
    value: impl Fn(&RunReport) -> Option<f64>,
) -> Option<f64> {
    median(runs.iter().filter(|run| run.kind == kind).filter_map(value))
}

/// Bytes that the storage read for runs of `kind` over those that it read for plain, medians;
/// `None` if those were 0.
pub fn bytes_ratio(runs: &[RunReport], kind: Kind) -> Option<f64> {
    let read = |kind| median_of(runs, kind, |run| Some(run.read_bytes as f64));
    quotient(read(kind), read(Kind::Plain).filter(|bytes| *bytes > 0.0))
}

/// Processor time of runs of `kind` over plain's, medians. It is counted in hundredths of a second:
/// of a command that takes less than one, a ratio would mean nothing.
pub fn processor_ratio(runs: &[RunReport], kind: Kind) -> Option<f64> {
    let used = |kind| median_of(runs, kind, |run| run.processor);
    quotient(used(kind), used(Kind::Plain).filter(|plain| *plain >= 0.01))
}

impl Summary {
    /// The summary of these runs.
    pub fn of(runs: &[RunReport], judged: RowMeasure, failed: bool) -> Self {
        let cache = match judged {
            RowMeasure::Ratio(cache, _) | RowMeasure::Cost(cache, _) => cache,
            RowMeasure::Nothing => Cache::Cold,
        };
        let value = |kind| median_of(runs, kind, |run| Some(run.value()));
        let (plain, runahead, oracle) =
            (value(Kind::Plain), value(Kind::Runahead), value(Kind::Oracle));
        // How many times faster; else how many times slower.
        let faster = matches!(judged, RowMeasure::Ratio(Cache::Cold, _) | RowMeasure::Nothing);
        let ratios = pair_ratios(runs, Kind::Runahead, faster);
        let ratio = match cache {
            Cache::Cold => median(ratios.iter().copied()),
            Cache::Warm => quotient(runahead, plain),
        };
        let added = match judged {
            RowMeasure::Cost(..) => plain.zip(runahead).map(|(plain, runahead)| runahead - plain),
            RowMeasure::Ratio(..) | RowMeasure::Nothing => None,
        };
        let met = match (judged, ratio, added) {
            (RowMeasure::Ratio(Cache::Cold, target), Some(ratio), _) => Some(ratio >= target),
            (RowMeasure::Ratio(Cache::Warm, target), Some(ratio), _) => Some(ratio <= target),
            (RowMeasure::Cost(_, cost), Some(ratio), Some(added)) => Some(cost.met(ratio, added)),
            _ => None,
        };
        let verdict = match (failed, met) {
            (true, _) => Verdict::Failed,
            (_, None) => Verdict::Open,
            (_, Some(true)) => Verdict::Pass,
            (_, Some(false)) => Verdict::Miss,
        };
        Self {
            plain,
            runahead,
            ratio,
            spread: Ratio::of(&ratios).map(|ratio| ratio.spread),
            whole: Ratio::of(&pair_ratios(runs, Kind::Whole, true)),
            again: Ratio::of(&pair_ratios(runs, Kind::Again, true)),
            added,
            oracle,
            oracle_ratio: quotient(plain, oracle),
            closeness: quotient(oracle, runahead),
            replay: value(Kind::Replay),
            verdict,
        }
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

fn pair_ratios(runs: &[RunReport], ahead: Kind, faster: bool) -> Vec<f64> {
    let of =
        |kind, pair| runs.iter().find(|r| r.kind == kind && r.pair == pair).map(RunReport::value);
    runs.iter()
        .filter(|run| run.kind == Kind::Plain)
        .filter_map(|run| {
            let runahead = of(ahead, run.pair)?;
            Some(if faster { run.value() / runahead } else { runahead / run.value() })
        })
        .collect()
}

fn quotient(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::cost_limits::Unit;

    fn cold(runs: &[RunReport], target: f64, failed: bool) -> Summary {
        Summary::of(runs, RowMeasure::Ratio(Cache::Cold, target), failed)
    }

    fn run(kind: Kind, pair: usize, seconds: f64) -> RunReport {
        RunReport::test(kind, pair, seconds)
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn bytes_have_a_ratio_if_plain_reads_any() {
        let read = |kind, pair, read_bytes| RunReport { read_bytes, ..run(kind, pair, 1.0) };
        let mut runs = vec![read(Kind::Runahead, 1, 30), read(Kind::Runahead, 2, 50)];
        assert_eq!(bytes_ratio(&runs, Kind::Runahead), None);
        runs.push(read(Kind::Plain, 1, 10));
        assert_eq!(bytes_ratio(&runs, Kind::Runahead), Some(4.0));
        runs[2].read_bytes = 0;
        assert_eq!(bytes_ratio(&runs, Kind::Runahead), None);
    }

    #[test]
    fn little_processor_time_has_no_ratio() {
        let used = |kind, processor| RunReport { processor, ..run(kind, 1, 1.0) };
        let ratio = |plain| {
            let runs = [used(Kind::Plain, plain), used(Kind::Again, Some(0.5))];
            processor_ratio(&runs, Kind::Again)
        };
        assert_eq!((ratio(Some(0.25)), ratio(Some(0.0)), ratio(None)), (Some(2.0), None, None));
    }

    #[test]
    fn cold_ratios_are_of_pairs() {
        let pairs = [(1, 10.0, 1.0), (2, 30.0, 1.0), (3, 20.0, 4.0)];
        let mut runs: Vec<_> = pairs
            .iter()
            .flat_map(|(n, plain, ahead)| {
                [run(Kind::Runahead, *n, *ahead), run(Kind::Plain, *n, *plain)]
            })
            .collect();
        runs.push(run(Kind::Oracle, 1, 0.5));
        let summary = cold(&runs, 10.0, false);
        assert_eq!((summary.ratio, summary.spread), (Some(10.0), Some((5.0, 30.0))));
        assert_eq!((summary.oracle_ratio, summary.closeness), (Some(40.0), Some(0.5)));
        assert_eq!(summary.verdict, Verdict::Pass);
        assert_eq!(cold(&runs, 10.1, false).verdict, Verdict::Miss);
        assert_eq!(cold(&runs, 1.0, true).verdict, Verdict::Failed);
        let plain_only = [run(Kind::Plain, 1, 1.0)];
        assert_eq!(cold(&plain_only, 1.0, false).verdict, Verdict::Open);
    }

    #[test]
    fn an_ablation_is_beside_the_whole_and_not_judged() {
        let runs = [(1, 10.0, 5.0, 1.0), (2, 10.0, 10.0, 2.0)].map(|(n, plain, without, whole)| {
            [
                run(Kind::Plain, n, plain),
                run(Kind::Whole, n, whole),
                run(Kind::Runahead, n, without),
            ]
        });
        let summary = Summary::of(&runs.concat(), RowMeasure::Nothing, false);
        assert_eq!((summary.ratio, summary.spread), (Some(1.5), Some((1.0, 2.0))));
        assert_eq!(summary.whole, Some(Ratio { median: 7.5, spread: (5.0, 10.0) }));
        assert_eq!((summary.verdict, summary.added), (Verdict::Open, None));
        let failed = Summary::of(&runs.concat(), RowMeasure::Nothing, true);
        assert_eq!(failed.verdict, Verdict::Failed);
        assert_eq!(cold(&runs.concat()[..1], 1.0, false).whole, None);
    }

    #[test]
    fn warm_is_slowdown() {
        let runs = [run(Kind::Plain, 1, 1.0), run(Kind::Runahead, 1, 1.2)];
        let verdict =
            |target| Summary::of(&runs, RowMeasure::Ratio(Cache::Warm, target), false).verdict;
        assert_eq!((verdict(1.15), verdict(1.2)), (Verdict::Miss, Verdict::Pass));
    }

    #[test]
    fn costs_are_of_figures() {
        let told = |kind, figure| RunReport { figure: Some(figure), ..run(kind, 1, 9.0) };
        let runs = [told(Kind::Plain, 200.0), told(Kind::Runahead, 230.0)];
        let judge = |added| {
            let cost = Cost::added(Unit::NanosecondsPerCall, added);
            Summary::of(&runs, RowMeasure::Cost(Cache::Warm, cost), false)
        };
        let summary = judge(40.0);
        assert_eq!((summary.plain, summary.added), (Some(200.0), Some(30.0)));
        assert_eq!((summary.ratio, summary.verdict), (Some(1.15), Verdict::Pass));
        assert_eq!(judge(29.0).verdict, Verdict::Miss);
    }

    #[test]
    fn cold_costs_are_of_pairs() {
        let pairs = [(1, 10.0, 10.1), (2, 20.0, 22.0), (3, 30.0, 30.3)];
        let runs: Vec<_> = pairs
            .iter()
            .flat_map(|(n, plain, ahead)| {
                [run(Kind::Plain, *n, *plain), run(Kind::Runahead, *n, *ahead)]
            })
            .collect();
        let judge = |limit| {
            let cost = Cost::ratio(Unit::Seconds, limit);
            Summary::of(&runs, RowMeasure::Cost(Cache::Cold, cost), false)
        };
        // Of the medians it would be 1.1.
        let summary = judge(1.02);
        assert!((summary.ratio.unwrap() - 1.01).abs() < 1e-9, "{summary:?}");
        assert_eq!((summary.verdict, judge(1.005).verdict), (Verdict::Pass, Verdict::Miss));
    }
}
