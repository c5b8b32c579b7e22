//! ARCHITECTURE.md's arrows: a crate depends on what stands below it in the table there, and a part of a crate on what
//! stands below that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Parts of a crate, each a module with all that is in it, the highest first. A part that is not in its list is the
/// crate's own business.
const PARTS: &[(&str, &[&str])] = &[(
    "crates/agent",
    &["targets", "shadow", "desk", "hints", "session", "names", "maps", "extent", "paths"],
)];

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
    let paths = lines.filter_map(|line| line.split_once("path = \"../")?.1.split_once('"'));
    paths.map(|(name, _)| name.to_owned()).collect()
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

#[test]
fn an_arrow_that_points_up_is_found() {
    let layers = layers("| `crates/a` | text |\n| `crates/b` | text |\n");
    let manifest = "[package]\nx = 1\n\n[dependencies]\na = { path = \"../a\" }\n\n[dev-dependencies]\n\
                    c = { path = \"../c\" }\n";
    let of = |name: &str| if name == "b" { dependencies(manifest) } else { Vec::new() };
    assert_eq!(upwards(&layers, of), ["b -> a"]);
    let source = "use crate::{low, high};\n// crate::other\nfn f() { crate::high::g() }\n\
                  #[cfg(test)]\nmod tests { use crate::low; }\n";
    assert_eq!(names(source, &["high", "low", "other"]), ["low", "high", "high"]);
}
