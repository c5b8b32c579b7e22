//! List of all rows, and the choice among them by name or group.

use crate::error::Error;
use crate::rows::derived_rows::{ablations, elsewhere};
use crate::rows::everyday_commands::everyday;
use crate::rows::main_rows::main_rows;
use crate::rows::row_definition::{Cache, Row};

/// Returns every row, in the order of the tables.
pub fn all() -> Vec<Row> {
    let mut rows = main_rows();
    rows.extend(elsewhere(&rows));
    rows.extend(ablations(&rows));
    rows.extend(everyday());
    rows
}

/// Returns the rows with these names, in the order of the tables. `cold`, `ablation`, `futile`,
/// `warm`, `cost`, `everyday`, and the storages of everyday rows (`everyday-slow`) name groups. No
/// name at all means all rows but the everyday ones.
pub fn select(names: &[String]) -> Result<Vec<Row>, Error> {
    let matches = |row: &Row, name: &str| match name {
        "everyday" => row.is_everyday(),
        _ if row.is_everyday() => row.name == name || row.place.name == name,
        "ablation" => row.without.is_some(),
        "cold" => row.cache == Cache::Cold && row.cost.is_none() && row.without.is_none(),
        "futile" => row.cache == Cache::Cold && row.cost.is_some(),
        "warm" => row.cache == Cache::Warm && row.cost.is_none(),
        "cost" => row.cache == Cache::Warm && row.cost.is_some(),
        name => row.name == name,
    };
    let mut rows = all();
    if let Some(unknown) = names.iter().find(|name| !rows.iter().any(|row| matches(row, name))) {
        return Err(Error::NoRow(unknown.clone()));
    }
    rows.retain(|row| match names.is_empty() {
        true => !row.is_everyday(),
        false => names.iter().any(|name| matches(row, name)),
    });
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::rows::storage_kinds::DISK;

    #[test]
    fn rows_are_selected_by_name_and_group() {
        let names = |given: &[&str]| -> Result<Vec<_>, Error> {
            let given: Vec<String> = given.iter().map(|s| (*s).to_owned()).collect();
            Ok(select(&given)?.into_iter().map(|row| row.name).collect())
        };
        assert_eq!(names(&["tar", "grep-r"]).unwrap(), ["grep-r", "tar"]);
        let groups = ["warm", "cold", "ablation", "futile", "cost"];
        let groups = groups.map(|group| names(&[group]).unwrap().len());
        assert_eq!(groups.iter().sum::<usize>(), names(&[]).unwrap().len());
        assert_eq!(names(&[]).unwrap().len() + names(&["everyday"]).unwrap().len(), all().len());
        assert_eq!(names(&["everyday-share"]).unwrap().len(), 3);
        assert!(matches!(names(&["tarr"]), Err(Error::NoRow(name)) if name == "tarr"));
    }

    #[test]
    fn names_are_unique() {
        let unique: HashSet<_> = all().into_iter().map(|row| row.name).collect();
        assert_eq!(unique.len(), all().len());
    }

    #[test]
    fn an_ablation_is_of_a_row_and_named_after_it() {
        let ablations: Vec<_> = all().into_iter().filter(|row| row.without.is_some()).collect();
        for row in &ablations {
            let what = row.without.unwrap();
            let name = row.name.strip_suffix(&format!("-without-{what}")).unwrap();
            let rows = all();
            let whole = rows.iter().find(|row| row.name == name).unwrap();
            assert_eq!((row.place, row.cache, row.target), (whole.place, whole.cache, 0.0));
        }
        assert_eq!(ablations.len(), 30);
    }

    #[test]
    fn a_row_elsewhere_is_a_cold_row_of_the_disk_with_a_target() {
        let main = main_rows();
        for row in elsewhere(&main) {
            let (_, command) = row.name.split_once('-').unwrap();
            let whole = main.iter().find(|row| row.name == command).unwrap();
            assert_eq!((row.cache, whole.place), (Cache::Cold, &DISK));
            assert!(row.content == whole.content && row.cost.is_none() && row.target > 0.0);
            let swaps = command.starts_with("swap-");
            assert_eq!(row.place.name == "spindles3", swaps, "{}", row.name);
        }
    }

    #[test]
    fn every_cost_has_a_limit() {
        let costs: Vec<_> = all().into_iter().filter_map(|row| row.cost).collect();
        assert!(!costs.is_empty());
        assert!(costs.into_iter().all(|cost| cost.ratio.or(cost.added).is_some()));
    }

    #[test]
    fn a_container_has_commands_of_its_own_and_one_everyday_storage_is_busy() {
        let rows = select(&["everyday".to_owned()]).unwrap();
        let has = |name: &str| rows.iter().any(|row| row.name == name);
        assert!(has("everyday-share-web-server") && has("everyday-busy-pandas"));
        assert!(!has("everyday-share-pandas"));
        assert!(rows.iter().all(|row| row.place.busy == (row.place.name == "everyday-busy")));
    }
}
