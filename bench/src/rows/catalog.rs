//! The rows of the table: which command, on which storage, in which state, and how fast it has to
//! be.

use crate::rows::ablation_rows::ABLATION;
use crate::rows::main_rows::ROWS;
use crate::rows::other_storages::ELSEWHERE;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::rows::commands::Work;
use crate::rows::cost_limits::Cost;
use crate::rows::storages::Place;

/// What is in memory before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Nothing of the storage under test: plain's time over runahead's, at least the target, if there is
    /// no cost.
    Cold,
    /// All of it: runahead's time over plain's, at most the target.
    Warm,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    /// As given to `--row`.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    /// What runs.
    pub work: Work,
    /// On what.
    pub place: Place,
    /// In which state.
    pub cache: Cache,
    /// A ratio of elapsed times; see [`Cache`]. Not judged if there is a cost.
    pub target: f64,
    /// What is judged instead.
    pub cost: Option<Cost>,
    /// Of `runahead run --without`: what is switched off. Nothing is judged then.
    pub without: Option<&'static str>,
}

/// Every row, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(ELSEWHERE).chain(ABLATION)
}

/// The rows of these names, in the table's order; `cold`, `ablation`, `futile`, `warm` and `cost`
/// name groups, nothing names all.
///
/// # Errors
/// [`Error::NoRow`].
pub fn select(names: &[String]) -> Result<Vec<&'static Row>, Error> {
    let matches = |row: &Row, name: &str| match name {
        "ablation" => row.without.is_some(),
        "cold" => row.cache == Cache::Cold && row.cost.is_none() && row.without.is_none(),
        "futile" => row.cache == Cache::Cold && row.cost.is_some(),
        "warm" => row.cache == Cache::Warm && row.cost.is_none(),
        "cost" => row.cache == Cache::Warm && row.cost.is_some(),
        name => row.name == name,
    };
    if let Some(unknown) = names.iter().find(|name| !all().any(|row| matches(row, name))) {
        return Err(Error::NoRow(unknown.clone()));
    }
    let chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| matches(row, name));
    Ok(all().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_name_and_group() {
        let names = |given: &[&str]| -> Result<Vec<_>, Error> {
            let given: Vec<String> = given.iter().map(|s| (*s).to_owned()).collect();
            Ok(select(&given)?.iter().map(|row| row.name).collect())
        };
        assert_eq!(names(&["tar", "grep-r"]).unwrap(), ["grep-r", "tar"]);
        assert_eq!(names(&[]).unwrap().len(), all().count());
        let groups = ["warm", "cold", "ablation", "futile", "cost"];
        let groups = groups.map(|group| names(&[group]).unwrap().len());
        assert_eq!(groups.iter().sum::<usize>(), all().count());
        assert!(matches!(names(&["tarr"]), Err(Error::NoRow(name)) if name == "tarr"));
    }

    #[test]
    fn names_are_unique() {
        let unique: std::collections::HashSet<_> = all().map(|row| row.name).collect();
        assert_eq!(unique.len(), all().count());
    }

    #[test]
    fn an_ablation_is_of_a_row_there_is() {
        for row in ABLATION {
            let what = row.without.unwrap();
            let name = row.name.strip_suffix(&format!("-without-{what}")).unwrap();
            let whole = all().find(|row| row.name == name).unwrap();
            assert_eq!((row.work, row.place, row.cache), (whole.work, whole.place, whole.cache));
        }
        assert_eq!(ABLATION.len(), 5 * 4 + 2 * 2);
    }

    /// What follows its storage is the name of the same command in the list.
    #[test]
    fn a_row_elsewhere_is_named_after_its_storage() {
        for row in ELSEWHERE {
            let (storage, command) = row.name.split_once('-').unwrap();
            let swaps = command.starts_with("swap-");
            let place = match storage {
                "fast" => Place::Fast,
                "spindle" => Place::Spindle,
                "spindles" if swaps => Place::Spindles3,
                "spindles" => Place::Spindles,
                other => panic!("{other}"),
            };
            let whole = ROWS.iter().find(|row| row.name == command).unwrap();
            assert_eq!((row.place, row.cache, whole.place), (place, Cache::Cold, Place::Disk));
            assert_eq!(row.work.data(), whole.work.data(), "{}", row.name);
            assert!(row.cost.is_none() && row.without.is_none() && row.target > 0.0);
        }
    }

    #[test]
    fn every_cost_has_a_limit() {
        let costs: Vec<_> = all().filter_map(|row| row.cost).collect();
        assert!(!costs.is_empty());
        assert!(costs.into_iter().all(|cost| cost.ratio.or(cost.added).is_some()));
    }
}
