//! Choice of the units to run.

use runahead_harness::note;

use crate::error::Error;
use crate::options::Run;
use crate::suite_cache::{self as prepare, PreparedSuite};
use crate::suites::all_suites::named;

/// Returns the suites that `options` choose, prepared if need be, with the units to run. A suite
/// that cannot be prepared is left out if its error is `tolerated`.
pub fn selection(
    options: &Run,
    seed: u64,
    mut tolerated: impl FnMut(Error) -> Result<(), Error>,
) -> Result<Vec<PreparedSuite>, Error> {
    let mut chosen = named(&options.suites)?;
    if options.sample.is_some() && options.suites.is_empty() {
        chosen.retain(|suite| suite.quick);
    }
    let mut ready = Vec::new();
    for suite in chosen {
        match prepare::ready(suite) {
            Ok(suite) => ready.push(suite),
            // No failure: its source has to be brought by hand.
            Err(e @ Error::Nowhere(_)) if options.suites.is_empty() => note!("skipped: {e}"),
            Err(e) => tolerated(e)?,
        }
    }
    if options.sample.is_some() || options.budget.is_some() {
        note!("units are chosen by --seed {seed}");
        shuffle(&mut ready, seed);
    }
    if let Some(n) = options.sample {
        sample(&mut ready, n);
    }
    if !options.units.is_empty() {
        keep_units(&mut ready, &options.units)?;
    }
    ready.retain(|suite| !suite.units.is_empty());
    Ok(ready)
}

fn keep_units(ready: &mut [PreparedSuite], units: &[String]) -> Result<(), Error> {
    for unit in units {
        if !ready.iter().any(|suite| suite.units.contains(unit)) {
            let suite = ready.first().map_or("", |ready| ready.suite.name);
            return Err(Error::NoUnit { suite, unit: unit.clone() });
        }
    }
    for suite in ready {
        suite.units.retain(|unit| units.contains(unit));
    }
    Ok(())
}

/// Puts each suite's units into a random order, which does not depend on the other suites.
fn shuffle(ready: &mut [PreparedSuite], seed: u64) {
    for suite in ready {
        fastrand::Rng::with_seed(seed).shuffle(&mut suite.units);
    }
}

/// Keeps `n` units, taken from the suites in turn.
fn sample(ready: &mut [PreparedSuite], n: usize) {
    let mut left: Vec<Vec<String>> = Vec::new();
    for suite in ready.iter_mut() {
        let mut units = std::mem::take(&mut suite.units);
        units.retain(|unit| !suite.suite.slow.split_whitespace().any(|slow| slow == unit));
        left.push(units);
    }
    let mut taken = 0;
    while taken < n && left.iter().any(|units| !units.is_empty()) {
        for (suite, units) in ready.iter_mut().zip(&mut left) {
            if taken < n
                && let Some(unit) = units.pop()
            {
                suite.units.push(unit);
                taken += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::all_suites::find;

    fn ready(units: &[&str]) -> PreparedSuite {
        PreparedSuite {
            suite: find("planted").unwrap(),
            tree: "/nonexistent".into(),
            version: "planted 1".into(),
            units: units.iter().map(|unit| (*unit).to_owned()).collect(),
            of: units.len(),
        }
    }

    #[test]
    fn a_sample_is_repeatable_and_fair() {
        let both = || [ready(&["a", "b", "c", "d", "e", "slow"]), ready(&["x"])];
        let units = |seed, n| {
            let mut suites = both();
            shuffle(&mut suites, seed);
            sample(&mut suites, n);
            suites.map(|suite| suite.units)
        };
        assert_eq!(units(7, 4), units(7, 4));
        assert!((0..20).any(|seed| units(seed, 4) != units(7, 4)));
        let [first, second] = units(1, 4);
        assert_eq!((first.len(), second.len()), (3, 1));
        let [mut all, _] = units(3, 100);
        all.sort();
        assert_eq!(all, ["a", "b", "c", "d", "e"], "all but those that are slow");
    }

    #[test]
    fn an_order_is_repeatable_and_independent_of_other_suites() {
        let order = |suites: &mut [PreparedSuite], seed| {
            shuffle(suites, seed);
            suites.last().map(|suite| suite.units.clone())
        };
        let one = || ready(&["a", "b", "c", "d", "e", "f", "slow"]);
        assert_eq!(order(&mut [one()], 7), order(&mut [ready(&["x", "y", "z"]), one()], 7));
        assert!((0..20).any(|seed| order(&mut [one()], seed) != order(&mut [one()], 7)));
        let mut all = order(&mut [one()], 7).unwrap();
        all.sort();
        assert_eq!(all, one().units, "slow ones, too");
    }

    #[test]
    fn unknown_units_are_errors() {
        let mut one = [ready(&["a", "b"])];
        assert!(keep_units(&mut one, &["z".into()]).is_err());
        keep_units(&mut one, &["b".into()]).unwrap();
        assert_eq!(one[0].units, ["b"]);
    }
}
