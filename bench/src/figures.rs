//! Medians, ratios and verdicts.
//!
//! Invariant: a ratio is made of the two runs of one pair, which met the same state of the machine;
//! the median of ratios is what is judged. Only with everything in memory, where runs are short and
//! many, are the medians of the times compared.

use serde::{Deserialize, Serialize};

use crate::cost::Cost;
use crate::job::Kind;
use crate::report::RunReport;
use crate::rows::Cache;

/// What a row's runs come to. Times are in seconds, figures in the unit of the row's cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub plain: Option<f64>,
    /// Median.
    pub runahead: Option<f64>,
    /// Cold: plain over runahead. Warm and costs: runahead over plain.
    pub ratio: Option<f64>,
    /// Smallest and largest of a pair.
    pub spread: Option<(f64, f64)>,
    /// Of a cost: runahead less plain.
    #[serde(default)]
    pub added: Option<f64>,
    /// Median.
    pub oracle: Option<f64>,
    /// Plain over oracle.
    pub oracle_ratio: Option<f64>,
    /// Oracle over runahead: 1 is as good as perfect knowledge.
    pub closeness: Option<f64>,
    /// The judgement.
    pub verdict: Verdict,
}

/// Of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Reached its target.
    Pass,
    /// Did not.
    Miss,
    /// Has no result.
    Failed,
    /// Nothing to judge: runahead was not measured, or with `--quick`.
    #[default]
    Open,
}

/// What a row is judged by.
#[derive(Debug, Clone, Copy)]
pub enum Judged {
    /// The ratio of elapsed times, and the target.
    Ratio(Cache, f64),
    /// Figures, and limits on them.
    Cost(Cost),
}

impl RunReport {
    /// What counts of it.
    fn value(&self) -> f64 {
        self.figure.unwrap_or(self.seconds)
    }
}

impl Summary {
    /// Of these runs.
    pub fn of(runs: &[RunReport], judged: Judged, failed: bool) -> Self {
        let cache = match judged {
            Judged::Ratio(cache, _) => cache,
            Judged::Cost(_) => Cache::Warm,
        };
        let median_of = |kind| median(runs.iter().filter(|r| r.kind == kind).map(RunReport::value));
        let (plain, runahead, oracle) =
            (median_of(Kind::Plain), median_of(Kind::Runahead), median_of(Kind::Oracle));
        let ratios = pair_ratios(runs, cache);
        let ratio = match cache {
            Cache::Cold => median(ratios.iter().copied()),
            Cache::Warm => quotient(runahead, plain),
        };
        let met = match (judged, ratio, plain.zip(runahead)) {
            (Judged::Ratio(Cache::Cold, target), Some(ratio), _) => Some(ratio >= target),
            (Judged::Ratio(Cache::Warm, target), Some(ratio), _) => Some(ratio <= target),
            (Judged::Cost(cost), _, Some((plain, runahead))) => Some(cost.met(plain, runahead)),
            _ => None,
        };
        let verdict = match (failed, met) {
            (true, _) => Verdict::Failed,
            (_, None) => Verdict::Open,
            (_, Some(true)) => Verdict::Pass,
            (_, Some(false)) => Verdict::Miss,
        };
        let added = match judged {
            Judged::Cost(_) => plain.zip(runahead).map(|(plain, runahead)| runahead - plain),
            Judged::Ratio(..) => None,
        };
        Self {
            plain,
            runahead,
            ratio,
            spread: spread(&ratios),
            added,
            oracle,
            oracle_ratio: quotient(plain, oracle),
            closeness: quotient(oracle, runahead),
            verdict,
        }
    }
}

/// The middle, or the mean of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

fn pair_ratios(runs: &[RunReport], cache: Cache) -> Vec<f64> {
    let of =
        |kind, pair| runs.iter().find(|r| r.kind == kind && r.pair == pair).map(RunReport::value);
    runs.iter()
        .filter(|run| run.kind == Kind::Plain)
        .filter_map(|run| {
            let runahead = of(Kind::Runahead, run.pair)?;
            Some(match cache {
                Cache::Cold => run.value() / runahead,
                Cache::Warm => runahead / run.value(),
            })
        })
        .collect()
}

fn spread(ratios: &[f64]) -> Option<(f64, f64)> {
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

fn quotient(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Unit;

    fn cold(runs: &[RunReport], target: f64, failed: bool) -> Summary {
        Summary::of(runs, Judged::Ratio(Cache::Cold, target), failed)
    }

    fn run(kind: Kind, pair: usize, seconds: f64) -> RunReport {
        let exit = "exit 0".to_owned();
        RunReport {
            kind,
            pair,
            seconds,
            figure: None,
            more: Default::default(),
            exit,
            requests: 0,
            read_bytes: 0,
            max_in_service: 0,
            disturbed: false,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
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
    fn warm_is_slowdown() {
        let runs = [run(Kind::Plain, 1, 1.0), run(Kind::Runahead, 1, 1.2)];
        let verdict =
            |target| Summary::of(&runs, Judged::Ratio(Cache::Warm, target), false).verdict;
        assert_eq!((verdict(1.15), verdict(1.2)), (Verdict::Miss, Verdict::Pass));
    }

    #[test]
    fn costs_are_of_figures() {
        let told = |kind, figure| RunReport { figure: Some(figure), ..run(kind, 1, 9.0) };
        let runs = [told(Kind::Plain, 200.0), told(Kind::Runahead, 230.0)];
        let judge = |added| {
            Summary::of(&runs, Judged::Cost(Cost::added(Unit::NanosecondsPerCall, added)), false)
        };
        let summary = judge(40.0);
        assert_eq!((summary.plain, summary.added), (Some(200.0), Some(30.0)));
        assert_eq!((summary.ratio, summary.verdict), (Some(1.15), Verdict::Pass));
        assert_eq!(judge(29.0).verdict, Verdict::Miss);
    }
}
