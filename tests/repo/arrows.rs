//! Dependencies point one way: between crates as in ARCHITECTURE.md, between the parts of a crate,
//! and between its files.

use std::collections::{BTreeMap, BTreeSet};

use crate::module_graph::{Graph, Use, circles};
use crate::ratchet::{self, Rule};
use crate::tracked_files::{Tracked, root, texts};

/// Parts of a crate, the highest first: each a module with all its children. Parts that are not in
/// the list are not checked.
const PARTS: &[(&str, &[&str])] = &[(
    "crates/agent",
    &[
        "overlay",
        "speculation",
        "targets",
        "shadow",
        "control_client",
        "hint_sender",
        "session",
        "descriptor_names",
        "process_maps",
        "read_extent",
        "path_text",
    ],
)];

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The crates of ARCHITECTURE.md's table, the highest first.
pub fn layers(architecture: &str) -> Vec<String> {
    let rows = architecture.lines().filter_map(|line| line.strip_prefix("| `crates/"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// True for a table of a manifest whose keys are dependencies of the package itself.
fn is_dependencies(table: &str) -> bool {
    let last = table.rsplit('.').next().unwrap_or(table);
    ["dependencies", "build-dependencies"].contains(&last)
        && (table == last || table.starts_with("target."))
}

/// The dependency that a table of a manifest describes, as `dependencies.NAME` does.
fn described(table: &str) -> Option<&str> {
    let (parent, name) = table.rsplit_once('.')?;
    is_dependencies(parent).then(|| name.trim_matches('"'))
}

/// Names of the packages that a manifest depends on. Dependencies of tests are free.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut table = "";
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = head;
            names.extend(described(table));
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
        if is_dependencies(table) {
            let package = value.split_once("package = \"").and_then(|(_, at)| at.split_once('"'));
            names.push(package.map_or(key, |(name, _)| name));
        } else if described(table).is_some() && key == "package" {
            names.push(value.trim().trim_matches('"'));
        }
    }
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Our crates that a manifest depends on, by their folders.
fn crates_used(manifest: &str) -> Vec<String> {
    let names = dependencies(manifest);
    names.iter().filter_map(|name| Some(name.strip_prefix("runahead-")?.to_owned())).collect()
}

/// The arrows from each of `layers` that do not point down.
fn upwards(layers: &[String], of: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let place: BTreeMap<&str, usize> =
        layers.iter().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
    let mut wrong = Vec::new();
    for (n, name) in layers.iter().enumerate() {
        for other in of(name) {
            match place.get(other.as_str()) {
                Some(m) if *m > n => {}
                _ => wrong.push(format!("{name} -> {other}")),
            }
        }
    }
    wrong
}

#[test]
fn crates_depend_on_what_is_below_them() {
    let layers = layers(&text("ARCHITECTURE.md"));
    let of = |name: &str| crates_used(&text(&format!("crates/{name}/Cargo.toml")));
    let wrong = upwards(&layers, of);
    assert!(wrong.is_empty(), "arrows that do not point down: {wrong:?}");
    assert!(of("plane").is_empty(), "the plane depends on no crate of ours");
}

/// Folder of packages above the crates.
struct Extensions {
    folder: &'static str,
    /// Packages of crates on which these may depend.
    crates: &'static [&'static str],
    /// True if these may depend on each other.
    on_each_other: bool,
}

const EXTENSIONS: [Extensions; 2] = [
    Extensions {
        folder: "fs",
        crates: &["runahead-abi", "runahead-client", "runahead-speculation"],
        on_each_other: true,
    },
    Extensions {
        folder: "apps",
        crates: &["runahead-changeset", "runahead-client"],
        on_each_other: false,
    },
];

/// Dependencies among `manifests`, by path, that [`EXTENSIONS`] does not allow.
fn misplaced(manifests: &BTreeMap<String, String>) -> Vec<String> {
    let folder = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let name = |text: &str| {
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        name.map(str::to_owned)
    };
    let folders: BTreeMap<String, String> =
        manifests.iter().filter_map(|(path, text)| Some((name(text)?, folder(path)))).collect();
    let of = |folder: &str| EXTENSIONS.iter().find(|extensions| extensions.folder == folder);
    let mut wrong = Vec::new();
    for (path, text) in manifests {
        for other in dependencies(text) {
            let Some(place) = folders.get(&other) else { continue };
            let is_allowed = match of(&folder(path)) {
                Some(Extensions { folder, crates, on_each_other }) => {
                    crates.contains(&other.as_str()) || *on_each_other && place == folder
                }
                None => folder(path) != "crates" || of(place).is_none(),
            };
            if !is_allowed {
                wrong.push(format!("{path} -> {other}"));
            }
        }
    }
    wrong
}

#[test]
fn file_systems_and_applications_depend_on_interfaces() {
    let texts = texts();
    let manifests = texts.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let manifests: BTreeMap<_, _> =
        manifests.map(|file| (file.path.clone(), file.text.clone())).collect();
    assert!(manifests.contains_key("crates/client/Cargo.toml"));
    assert_eq!(misplaced(&manifests), Vec::<String>::new());
}

/// Rust files by the folder of their package, and by their path in it.
pub fn packages(files: &[Tracked]) -> BTreeMap<String, BTreeMap<String, String>> {
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect();
    let mut packages = BTreeMap::<String, BTreeMap<String, String>>::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let inside = folders.iter().filter_map(|folder| {
            let path = file.path.strip_prefix(folder)?.strip_prefix('/')?;
            Some((folder, path))
        });
        if let Some((folder, path)) = inside.max_by_key(|(folder, _)| folder.len()) {
            let package = packages.entry((*folder).to_owned()).or_default();
            package.insert(path.to_owned(), file.text.clone());
        }
    }
    packages
}

/// Roots of a package's crates: `src/lib.rs`, programs, and targets of tests and the like.
pub fn crate_roots(sources: &BTreeMap<String, String>) -> Vec<&str> {
    let is_root = |path: &&str| {
        let parts: Vec<_> = path.split('/').collect();
        match parts.as_slice() {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
            ["src", "bin", _] | ["src", "bin", _, "main.rs"] => true,
            ["src", ..] => false,
            [_, "main.rs"] | ["tests" | "examples" | "benches", _, "main.rs"] => true,
            [_, _] => path.ends_with(".rs"),
            _ => false,
        }
    };
    let roots = sources.keys().map(String::as_str).filter(is_root);
    // Beside a `main.rs`, the files of a folder are its modules.
    let is_module = |path: &&str| {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        name != "main.rs"
            && !["src", "src/bin"].contains(&folder)
            && sources.contains_key(&format!("{folder}/main.rs"))
    };
    roots.filter(|path| !is_module(path)).collect()
}

/// Uses between the files of a package.
fn uses(sources: &BTreeMap<String, String>) -> Vec<Use> {
    crate_roots(sources).iter().flat_map(|root| Graph::new(sources, root).uses()).collect()
}

/// The files of a package that stand in circles, and the uses within these.
fn rule(package: &str, uses: &[Use]) -> Rule {
    let circles = circles(uses);
    let count = circles.iter().map(BTreeSet::len).sum();
    let mut faults = Vec::new();
    for circle in &circles {
        faults.push(format!("{package}: a circle of {}", circle.len()));
        let within =
            uses.iter().filter(|edge| circle.contains(&*edge.from) && circle.contains(&*edge.to));
        let mut last = None;
        for Use { from, to, line, path } in within {
            if last.replace((from, to)) != Some((from, to)) {
                let mutual = uses.iter().any(|edge| edge.from == *to && edge.to == *from);
                let mark = if mutual { ", which uses it" } else { "" };
                faults.push(format!("{package}/{from}:{line}: uses {to}{mark} ({path})"));
            }
        }
    }
    Rule { name: format!("circles.{package}"), aim: 0, count, faults }
}

#[test]
fn no_file_depends_on_one_that_depends_on_it() {
    let packages = packages(&texts());
    let all: usize = packages.values().map(|sources| uses(sources).len()).sum();
    assert!(all > 1000, "only {all} uses were found");
    let rules = packages.iter().map(|(package, sources)| rule(package, &uses(sources)));
    ratchet::check(&rules.collect::<Vec<_>>());
}

/// The parts among `parts` that files of `part` use.
fn parts_used(uses: &[Use], part: &str, parts: &[&str]) -> Vec<String> {
    let of = |path: &str| {
        let first = path.strip_prefix("src/")?.split('/').next()?;
        Some(first.strip_suffix(".rs").unwrap_or(first).to_owned())
    };
    let from_part = uses.iter().filter(|edge| of(&edge.from).as_deref() == Some(part));
    let mut used: Vec<_> = from_part.filter_map(|edge| of(&edge.to)).collect();
    used.retain(|other| other != part && parts.contains(&other.as_str()));
    used.sort();
    used.dedup();
    used
}

#[test]
fn parts_of_a_crate_use_what_is_below_them() {
    let packages = packages(&texts());
    let mut wrong = Vec::new();
    for (package, parts) in PARTS {
        let sources = &packages[*package];
        for part in *parts {
            let file = format!("src/{part}.rs");
            let exists =
                sources.contains_key(&file) || sources.contains_key(&format!("src/{part}/mod.rs"));
            assert!(exists, "{package} has no part {part}");
        }
        let uses = uses(sources);
        let layers: Vec<_> = parts.iter().map(|part| (*part).to_owned()).collect();
        let of = |part: &str| parts_used(&uses, part, parts);
        wrong.extend(upwards(&layers, of).iter().map(|arrow| format!("{package}: {arrow}")));
    }
    assert!(wrong.is_empty(), "arrows that do not point down: {wrong:#?}");
}

/// A crate of the files `(path, text)`; each but the facade `part/mod.rs` has code of its own.
fn planted(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let text = |path: &str, text: &str| match path {
        "src/part/mod.rs" => text.to_owned(),
        _ => format!("{text}\nfn code() {{}}"),
    };
    files.iter().map(|(path, code)| ((*path).to_owned(), text(path, code))).collect()
}

/// Files in circles of the crate.
fn in_circles(files: &[(&str, &str)]) -> Vec<String> {
    let sources = planted(files);
    let uses = uses(&sources);
    circles(&uses).into_iter().flatten().map(str::to_owned).collect()
}

#[test]
fn planted_circles_of_siblings_are_found() {
    let straight = [
        ("src/lib.rs", "mod a; mod b; mod d;"),
        ("src/a.rs", "use crate::b::{self, c::{C, D as E}, f};"),
        ("src/b.rs", "pub mod c; fn f() { crate::d::g() }"),
        ("src/b/c.rs", "use super::super::d; #[cfg(test)] mod tests { use crate::a::x; }"),
        ("src/d.rs", "use std::fmt; use runahead_crate::a; #[test] fn t() { crate::a::f() }"),
    ];
    assert!(in_circles(&straight).is_empty());
    let mut round = straight;
    round[4].1 = "use crate::{x, b::c::C};";
    assert_eq!(in_circles(&round), ["src/b/c.rs", "src/d.rs"]);
}

#[test]
fn planted_circles_of_parent_and_child_are_found() {
    for parent in
        ["mod job; use job::X;", "mod job; fn f() { job::g() }", "mod job; use self::job as j;"]
    {
        for child in ["use super::Y;", "fn g() { super::f() }", "use crate::queue::{A, B};"] {
            let files = [
                ("src/lib.rs", "mod queue;"),
                ("src/queue.rs", parent),
                ("src/queue/job.rs", child),
            ];
            assert_eq!(in_circles(&files), ["src/queue.rs", "src/queue/job.rs"], "{files:?}");
        }
        let files = [
            ("src/lib.rs", "mod queue;"),
            ("src/queue.rs", parent),
            ("src/queue/job.rs", "use std::fmt; fn g() { x::super_f() }"),
        ];
        assert!(in_circles(&files).is_empty(), "{files:?}");
    }
}

#[test]
fn planted_circles_through_facades_are_found() {
    let facade = "//! Docs.\n#![allow(x)]\nmod a; mod b;\npub use a::A;\npub use b::{B as C, *};\n";
    let files = [
        ("src/lib.rs", "mod part;"),
        ("src/part/mod.rs", facade),
        ("src/part/a.rs", "use super::C; pub struct A;"),
        ("src/part/b.rs", "pub struct B; pub fn f() {}"),
    ];
    assert!(in_circles(&files).is_empty());
    let mut round = files;
    round[3].1 = "pub struct B; use crate::part::A;";
    assert_eq!(in_circles(&round), ["src/part/a.rs", "src/part/b.rs"]);
    round[3].1 = "pub struct B; use crate::part; fn f() { part::A }";
    assert_eq!(in_circles(&round), ["src/part/a.rs", "src/part/b.rs"]);
    // A re-export is no use, but code beside it may be one.
    round[1].1 = "mod a; mod b; pub use b::B; pub fn code() {}";
    assert!(in_circles(&round).is_empty());
    round[1].1 = "mod a; mod b; pub use b::B; pub fn code() -> B {}";
    round[2].1 = "pub struct A;";
    round[3].1 = "use super::code; pub struct B;";
    assert_eq!(in_circles(&round), ["src/part/b.rs", "src/part/mod.rs"]);
}

#[test]
fn planted_circles_through_globs_and_macros_are_found() {
    let files = [
        ("src/main.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "use crate::b::*; #[macro_export] macro_rules! say { () => {} } fn f() { g() }",
        ),
        ("src/b.rs", "pub fn g() { crate::say!() }"),
    ];
    assert_eq!(in_circles(&files), ["src/a.rs", "src/b.rs"]);
}

#[test]
fn planted_arrows_that_point_up_are_found() {
    let layers = layers("| `crates/a` | text |\n| `crates/b` | text |\n");
    let manifest = "[package]\nx = 1\n\n[dependencies]\nrunahead-a.workspace = true\nserde = \"1\"\n\n\
                    [dev-dependencies]\nrunahead-c = { workspace = true, features = [] }\n";
    let of = |name: &str| if name == "b" { crates_used(manifest) } else { Vec::new() };
    assert_eq!(upwards(&layers, of), ["b -> a"]);
    let sources = planted(&[
        ("src/lib.rs", "mod low; mod high; mod other;"),
        ("src/low/mod.rs", "mod child;"),
        ("src/low/child.rs", "use crate::high::x; use crate::other::y;"),
        ("src/high.rs", "use crate::low::child;"),
        ("src/other.rs", ""),
    ]);
    let uses = uses(&sources);
    assert_eq!(parts_used(&uses, "low", &["high", "low"]), ["high"]);
    assert_eq!(parts_used(&uses, "high", &["high", "low"]), ["low"]);
}

#[test]
fn planted_dependencies_of_file_systems_and_applications_are_found() {
    let manifest = |(path, name, dependencies): (&str, &str, &str)| {
        (path.to_owned(), format!("[package]\nname = \"{name}\"\n\n{dependencies}"))
    };
    let crates = ["abi", "agent", "changeset", "client", "speculation", "supervisor"];
    let crates = crates.map(|name| {
        let (path, package) = (format!("crates/{name}/Cargo.toml"), format!("runahead-{name}"));
        manifest((&path, &package, ""))
    });
    let found = |others: &[(&str, &str, &str)]| {
        misplaced(&crates.iter().cloned().chain(others.iter().copied().map(manifest)).collect())
    };
    let file_system = "[dependencies]\nrunahead-abi.workspace = true\nrunahead-speculation = \"1\"\n\
                       other = { path = \"../other\" }\nserde = \"1\"\n\
                       [dev-dependencies]\nrunahead-supervisor.workspace = true\n";
    let application = "[dependencies.runahead-client]\nworkspace = true\n\
                       [target.'cfg(unix)'.dependencies]\n\"runahead-changeset\" = \"1\"\n";
    let mut packages = [
        ("apps/ai/Cargo.toml", "ai", application),
        ("crates/cli/Cargo.toml", "runahead-cli", "[dependencies]\nrunahead-agent = \"1\"\n"),
        ("fs/nfs/Cargo.toml", "nfs", file_system),
        ("fs/other/Cargo.toml", "other", ""),
        ("tests/Cargo.toml", "runahead-tests", "[dependencies]\nnfs.workspace = true\n"),
    ];
    assert!(found(&packages).is_empty());
    packages[0].2 = "[target.x.dependencies.fast]\npackage = \"runahead-supervisor\"\n\
                     [build-dependencies]\nnfs = \"1\"\n# runahead-agent = \"1\"\n";
    packages[1].2 = "[dependencies]\nai = \"1\"\n";
    packages[2].2 = "[dependencies]\nx = { package = \"runahead-agent\", path = \"../..\" }\n\
                     ai.workspace = true\n";
    let expected = [
        "apps/ai/Cargo.toml -> runahead-supervisor",
        "apps/ai/Cargo.toml -> nfs",
        "crates/cli/Cargo.toml -> ai",
        "fs/nfs/Cargo.toml -> runahead-agent",
        "fs/nfs/Cargo.toml -> ai",
    ];
    assert_eq!(found(&packages), expected);
}

#[test]
fn roots_of_crates_are_found() {
    let paths = [
        "src/lib.rs",
        "src/a.rs",
        "src/bin/b.rs",
        "src/bin/c/main.rs",
        "src/bin/c/d.rs",
        "tests/e.rs",
        "tests/f/main.rs",
        "tests/f/g.rs",
        "repo/main.rs",
        "repo/h.rs",
    ];
    let sources = planted(&paths.map(|path| (path, "")));
    let expected = [
        "repo/main.rs",
        "src/bin/b.rs",
        "src/bin/c/main.rs",
        "src/lib.rs",
        "tests/e.rs",
        "tests/f/main.rs",
    ];
    assert_eq!(crate_roots(&sources), expected);
}
