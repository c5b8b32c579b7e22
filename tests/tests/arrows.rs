//! ARCHITECTURE.md's arrows: a crate depends on what stands below it in the table there, a part of a crate on what
//! stands below that, and no file of a crate on one that depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Parts of a crate, each a module with all that is in it, the highest first. A part that is not in its list is the
/// crate's own business.
const PARTS: &[(&str, &[&str])] = &[(
    "crates/agent",
    &[
        "overlay",
        "speculation",
        "targets",
        "shadow",
        "socket",
        "hints",
        "session",
        "names",
        "maps",
        "extent",
        "paths",
    ],
)];

/// Crates whose files depend on each other in one direction only. (A file that is all of a folder's is what the files in it are
/// parts of: what they use of it says nothing.)
const ONE_WAY: &[&str] = &[
    "crates/agent",
    "crates/plane",
    "crates/prefetch",
    "crates/member",
    "crates/admission",
    "crates/supervisor",
    "crates/speculation",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The crates of the table, the highest first.
fn layers(architecture: &str) -> Vec<String> {
    let rows = architecture.lines().filter_map(|line| line.strip_prefix("| `crates/"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// What a manifest's `[dependencies]` name of ours, by the folder that they are in. (What tests need may be anything.)
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find_map(|part| part.strip_prefix("dependencies]"));
    let lines = section.unwrap_or_default().lines();
    let names = lines.filter_map(|line| line.strip_prefix("runahead-")?.split(['.', ' ']).next());
    names.map(str::to_owned).collect()
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
    let root = root();
    let layers = layers(&text(&root.join("ARCHITECTURE.md")));
    let mut folders: Vec<_> = fs::read_dir(root.join("crates"))
        .expect("crates/ is there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("text"))
        .collect();
    folders.sort();
    let mut named = layers.clone();
    named.sort();
    assert_eq!(named, folders, "ARCHITECTURE.md names each crate once");
    let of = |name: &str| dependencies(&text(&root.join("crates").join(name).join("Cargo.toml")));
    let wrong = upwards(&layers, of);
    assert!(wrong.is_empty(), "arrows that do not point down: {wrong:?}");
    assert!(of("plane").is_empty(), "the plane knows nothing of ours");
}

/// The source files of a part: a file, or a folder with all that is in it, tests left out.
fn sources(src: &Path, part: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = [src.join(format!("{part}.rs"))].into();
    let mut folders = vec![src.join(part)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.push(path),
            }
        }
    }
    found.retain(|path| path.is_file() && !path.to_string_lossy().contains("/tests"));
    assert!(!found.is_empty(), "{}: there is no {part}", src.display());
    found
}

/// Parts that a source file names as `crate::part`, also within braces, up to its unit tests.
fn names(source: &str, parts: &[&str]) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(" ");
    let word = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                found.extend(list.split(',').map(|item| word(item.trim())));
            }
            None => found.push(word(rest)),
        }
    }
    found.retain(|name| parts.contains(&name.as_str()));
    found
}

#[test]
fn parts_of_a_crate_use_what_is_below_them() {
    let mut wrong = Vec::new();
    for (krate, parts) in PARTS {
        let src = root().join(krate).join("src");
        let layers: Vec<_> = parts.iter().map(|part| (*part).to_owned()).collect();
        let of = |part: &str| {
            let files = sources(&src, part);
            let named = files.iter().flat_map(|file| names(&text(file), parts));
            named.filter(|name| name != part).collect()
        };
        wrong.extend(upwards(&layers, of).iter().map(|arrow| format!("{krate}: {arrow}")));
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "arrows that do not point down: {wrong:#?}");
}

/// The modules of a crate that are files, by their path within it, and their code up to its unit tests.
fn modules(src: &Path) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![src.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(src).expect("below it").with_extension("");
            let name = name.to_string_lossy().into_owned();
            let is_test = name.contains("tests") || name.contains("/sim") || name == "testing";
            if path.is_dir() {
                folders.push(path);
            } else if !is_test && name != "lib" && name != "main" {
                found.insert(name.trim_end_matches("/mod").to_owned(), code(&text(&path)));
            }
        }
    }
    found
}

/// Without comments and unit tests.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The paths from `crate` or `super` on that `code` names, those within braces one by one.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_part =
                code[..at].ends_with([':', '_']) || code[..at].ends_with(char::is_alphanumeric);
            if !is_part {
                tree("", &code[at..], &mut found);
            }
        }
    }
    found
}

/// Adds what the tree of paths at the front of `text` names, behind `prefix`; what is left of the text.
fn tree<'a>(prefix: &str, text: &'a str, found: &mut Vec<String>) -> &'a str {
    let end =
        text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    let Some(mut rest) = text[end..].strip_prefix('{') else {
        found.push(path);
        return &text[end..];
    };
    loop {
        rest = tree(&path, rest.trim_start(), found).trim_start();
        // (`self`, and another name for it.)
        if let Some(renamed) = rest.strip_prefix("as ") {
            rest =
                renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
        }
        match rest.strip_prefix(',') {
            Some(more) if !more.trim_start().starts_with('}') => rest = more,
            _ => return rest.find('}').map_or("", |at| &rest[at + 1..]),
        }
    }
}

/// The module of `all` that `path` leads to from `module`, unless that is in it.
fn target(module: &str, path: &str, all: &BTreeMap<String, String>) -> Option<String> {
    let mut at: Vec<&str> = module.split('/').collect();
    let mut words = path.split("::").peekable();
    match words.next() {
        Some("crate") => at.clear(),
        _ => _ = at.pop(),
    }
    while words.next_if(|word| *word == "super").is_some() {
        at.pop();
    }
    let mut found = None;
    for word in words {
        at.push(word);
        match all.get_key_value(&at.join("/")) {
            Some((name, _)) => found = Some(name.clone()),
            None => break,
        }
    }
    found.filter(|found| !module.starts_with(found.as_str()))
}

/// A circle among the files of a crate, if there is one.
fn circle(all: &BTreeMap<String, String>) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        all: &BTreeMap<String, String>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(from) = way.iter().position(|name| name == at) {
            way.drain(..from);
            return true;
        }
        if done.contains(at) {
            return false;
        }
        way.push(at.to_owned());
        for path in paths(&all[at]) {
            if let Some(next) = target(at, &path, all)
                && walk(&next, all, way, done)
            {
                return true;
            }
        }
        way.pop();
        done.insert(at.to_owned());
        false
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    all.keys().any(|name| walk(name, all, &mut way, &mut done)).then_some(way)
}

#[test]
fn no_file_depends_on_one_that_depends_on_it() {
    for krate in ONE_WAY {
        let all = modules(&root().join(krate).join("src"));
        assert!(all.len() > 5, "{krate}: the files that were found are {:?}", all.keys());
        let circle = circle(&all);
        assert!(circle.is_none(), "{krate}: each uses the next: {circle:?}");
    }
}

#[test]
fn a_circle_is_found() {
    let all = |files: &[(&str, &str)]| {
        files.iter().map(|(name, code)| ((*name).to_owned(), (*code).to_owned())).collect()
    };
    let straight = [
        ("a", "use crate::b::{self, c::{C, D as E}, f};"),
        ("b", "fn f() { crate::d::g() }"),
        ("b/c", "use super::f; use super::super::d;"),
        ("d", "use std::fmt; use runahead_crate::a;"),
    ];
    assert_eq!(circle(&all(&straight)), None);
    let mut round = straight;
    round[3].1 = "use crate::{x, b::c::C};";
    assert_eq!(circle(&all(&round)), Some(vec!["d".to_owned(), "b/c".to_owned()]));
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let layers = layers("| `crates/a` | text |\n| `crates/b` | text |\n");
    let manifest = "[package]\nx = 1\n\n[dependencies]\nrunahead-a.workspace = true\nserde = \"1\"\n\n\
                    [dev-dependencies]\nrunahead-c = { workspace = true, features = [] }\n";
    let of = |name: &str| if name == "b" { dependencies(manifest) } else { Vec::new() };
    assert_eq!(upwards(&layers, of), ["b -> a"]);
    let source = "use crate::{low, high};\n// crate::other\nfn f() { crate::high::g() }\n\
                  #[cfg(test)]\nmod tests { use crate::low; }\n";
    assert_eq!(names(source, &["high", "low", "other"]), ["low", "high", "high"]);
}
