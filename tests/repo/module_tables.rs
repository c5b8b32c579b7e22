//! Tables of modules at the heads of files name the modules that exist, and ARCHITECTURE.md all
//! crates.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::{crate_roots, layers, packages};
use crate::module_graph::Graph;
use crate::ratchet::{self, Rule};
use crate::tracked_files::{root, texts};

/// Heads of the first column of a table of modules.
const HEADS: &[&str] = &["module", "part", "file"];

/// Names in the first column of the table of modules at the head of a file; `None` without a table.
fn table(text: &str) -> Option<BTreeSet<String>> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let mut rows = head.filter_map(|line| line[3..].trim().strip_prefix('|')).map(cells);
    rows.find(|cells| HEADS.contains(&cells[0].to_lowercase().as_str()))?;
    let names = rows.skip_while(|cells| cells[0].starts_with('-')).flat_map(|cells| {
        let names = cells[0].split('`').skip(1).step_by(2).map(str::to_owned);
        names.collect::<Vec<_>>()
    });
    Some(names.collect())
}

fn cells(row: &str) -> Vec<String> {
    row.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Faults of the tables of a package.
fn faults(package: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    for root in crate_roots(sources) {
        let graph = Graph::new(sources, root);
        for file in graph.files() {
            let Some(named) = table(&sources[file]) else { continue };
            let children = graph.children(file).unwrap_or_default();
            for child in &children {
                if !named.contains(*child) {
                    faults.push(format!("{package}/{file}: the table lacks `{child}`"));
                }
            }
            for name in &named {
                if !graph.has_descendant(file, name) {
                    faults.push(format!("{package}/{file}: the table has `{name}`, no module"));
                }
            }
        }
    }
    faults
}

#[test]
fn tables_name_the_modules_that_exist() {
    let packages = packages(&texts());
    let faults = packages.iter().flat_map(|(package, sources)| faults(package, sources));
    ratchet::check(&[Rule::new("modules.tables", faults.collect())]);
}

#[test]
fn architecture_names_each_crate_once() {
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    let mut named = layers(&architecture);
    named.sort();
    let mut folders: Vec<_> = packages(&texts())
        .keys()
        .filter_map(|package| package.strip_prefix("crates/"))
        .map(str::to_owned)
        .collect();
    folders.sort();
    assert_eq!(named, folders, "the crates of ARCHITECTURE.md, and those that exist");
}

#[test]
fn planted_faults_in_tables_are_found() {
    let head = "//! Docs.\n//!\n//! | module | what it does |\n//! |---|---|\n//! | [`a`], `a/b` | x |\n\
                //! | `gone` | `y` |\nmod a; mod c; #[cfg(test)] mod tests;";
    let files =
        [("src/lib.rs", head), ("src/a.rs", "mod b;"), ("src/a/b.rs", ""), ("src/c.rs", "")];
    let sources = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let expected =
        ["x/src/lib.rs: the table lacks `c`", "x/src/lib.rs: the table has `gone`, no module"];
    assert_eq!(faults("x", &sources), expected);
    assert_eq!(table("//! | name | x |\n//! |---|---|\n//! | `a` | b |\n"), None);
}
