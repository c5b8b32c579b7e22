//! Documents: width of lines, links, and paths of the repository.

use std::collections::BTreeSet;

use crate::ratchet::{self, Rule};
use crate::tracked_files::{Tracked, paths, texts};

/// Most columns of a line.
const COLUMNS: usize = 160;

/// Lines outside of code fences, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((n + 1, line));
        }
    }
    lines
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    let shown = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        if line.starts_with('#') {
            let first = slug(&link_texts(line));
            let free = (0..).map(|n| if n == 0 { first.clone() } else { format!("{first}-{n}") });
            anchors.extend(free.into_iter().find(|anchor| !anchors.contains(anchor)));
        }
        let ids = line.split("id=\"").skip(1).chain(line.split("name=\"").skip(1));
        anchors.extend(ids.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    anchors
}

/// `line` with each link replaced by its text.
fn link_texts(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("](") {
        out.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    out + rest
}

/// Targets of links in a line, code left out.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        if line[..at].matches('`').count().is_multiple_of(2) || line[..at].ends_with('`') {
            let target = line[at + 2..].split([')', ' ']).next();
            found.extend(target.filter(|target| !target.is_empty()));
        }
    }
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    found.extend(definition.map(|(_, target)| target.trim()));
    found
}

/// `path` from the folder of `file`, without `..`.
fn relative(file: &str, path: &str) -> String {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Files and folders of the repository.
struct Tree {
    paths: BTreeSet<String>,
    documents: Vec<Tracked>,
}

impl Tree {
    fn new(paths: impl IntoIterator<Item = String>, documents: Vec<Tracked>) -> Self {
        let mut all = BTreeSet::new();
        for path in paths {
            for (at, _) in path.match_indices('/') {
                all.insert(path[..at].to_owned());
            }
            all.insert(path);
        }
        Self { paths: all, documents }
    }

    fn wide_lines(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for Tracked { path, text } in &self.documents {
            for (n, line) in text.lines().enumerate() {
                let columns = line.chars().count();
                if columns > COLUMNS {
                    faults.push(format!("{path}:{}: {columns} columns", n + 1));
                }
            }
        }
        faults
    }

    fn broken_links(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for Tracked { path, text } in &self.documents {
            for (n, line) in prose(text) {
                for link in links(line) {
                    if !link.contains("://")
                        && !link.starts_with("mailto:")
                        && !self.leads(path, link)
                    {
                        faults.push(format!("{path}:{n}: {link} leads nowhere"));
                    }
                }
            }
        }
        faults
    }

    fn leads(&self, file: &str, link: &str) -> bool {
        let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
        // A document among sources is a part of one at the root.
        let from = if file.contains("/src/") { "" } else { file };
        let target = if path.is_empty() { file.to_owned() } else { relative(from, path) };
        let document = self.documents.iter().find(|document| document.path == target);
        match (anchor, document) {
            (Some(anchor), Some(document)) => anchors(&document.text).contains(anchor),
            _ => self.paths.contains(&target) || target.is_empty(),
        }
    }

    /// Paths in backticks, also in comments of sources, that start in a folder at the top.
    fn broken_paths(&self, files: &[Tracked]) -> Vec<String> {
        let mut faults = Vec::new();
        for Tracked { path: file, text } in files {
            for (n, line) in text.lines().enumerate() {
                for code in line.split('`').skip(1).step_by(2) {
                    if self.is_path(code) && !self.exists(code) {
                        faults.push(format!("{file}:{}: `{code}` does not exist", n + 1));
                    }
                }
            }
        }
        faults
    }

    /// True for a path within a folder at the top, as `docs/x.md`, without variable parts.
    fn is_path(&self, code: &str) -> bool {
        let Some((top, _)) = code.split_once('/') else { return false };
        let is_variable = |c: char| " *<>$…=|()[]\\\"'".contains(c);
        let placeholder = code.split(['/', '.']).any(|part| {
            part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()) && part != "README"
        });
        self.paths.contains(top)
            && !self.documents.iter().any(|document| document.path == top)
            && !code.contains(is_variable)
            && (!placeholder || self.exists(code))
    }

    /// True if the path exists, with a line number behind it or alternatives in braces too.
    fn exists(&self, code: &str) -> bool {
        let code = code.trim_end_matches('/');
        let path = match code.split_once(':') {
            Some((path, _)) => path,
            None => code.split_once('#').map_or(code, |(path, _)| path),
        };
        match path.split_once('{').and_then(|(a, rest)| Some((a, rest.split_once('}')?))) {
            Some((start, (list, end))) => {
                list.split(',').all(|word| self.exists(&format!("{start}{}{end}", word.trim())))
            }
            None => self.paths.contains(path),
        }
    }
}

fn tree() -> Tree {
    Tree::new(paths(), texts().into_iter().filter(Tracked::is_markdown).collect())
}

#[test]
fn lines_have_at_most_160_columns() {
    ratchet::check(&[Rule::new("markdown.wide_lines", tree().wide_lines())]);
}

#[test]
fn links_lead_somewhere() {
    ratchet::check(&[Rule::new("markdown.broken_links", tree().broken_links())]);
}

#[test]
fn paths_in_documents_and_comments_exist() {
    let mut files = texts();
    files.retain(|file| file.is_markdown() || file.is_rust() || file.is_c());
    // The tests here plant paths that do not exist.
    files.retain(|file| !file.path.starts_with("tests/repo/"));
    ratchet::check(&[Rule::new("markdown.broken_paths", tree().broken_paths(&files))]);
}

#[test]
fn planted_faults_in_documents_are_found() {
    let wide = "x".repeat(161);
    let a = format!(
        "# A `b`: c, (d)\n\n[x](b.md) [y](b.md#two-words) [z](#a-b-c-d) [w](../crates)\n\
         [x](c.md) [y](b.md#three) [z](#e) [w](../nothing)\n[v]: ../gone.md\n`[u](none)`\n\
         ```\n[t](none)\n```\n{wide}\n[s](https://example.org/x)\n"
    );
    let documents = vec![
        Tracked::new("docs/a.md", &a),
        Tracked::new("docs/b.md", "## Two words\n## Two words\n"),
    ];
    let paths = ["docs/a.md", "docs/b.md", "crates/a/src/b.rs", "crates/a/src/c.rs"];
    let tree = Tree::new(paths.map(str::to_owned), documents);
    assert_eq!(tree.wide_lines(), ["docs/a.md:10: 161 columns"]);
    let expected = [
        "docs/a.md:4: c.md leads nowhere",
        "docs/a.md:4: b.md#three leads nowhere",
        "docs/a.md:4: #e leads nowhere",
        "docs/a.md:4: ../nothing leads nowhere",
        "docs/a.md:5: ../gone.md leads nowhere",
    ];
    assert_eq!(tree.broken_links(), expected);
    assert!(tree.leads("docs/a.md", "b.md#two-words-1"));
    let source = Tracked::new(
        "x.rs",
        "// `docs/a.md` `crates/a/src/{b,c}.rs:5` `crates/NAME/src` `crates/*/src` `a/b` `docs/`\n\
         // `docs/c.md` `crates/a/src/{b,d}.rs`\n",
    );
    let expected =
        ["x.rs:2: `docs/c.md` does not exist", "x.rs:2: `crates/a/src/{b,d}.rs` does not exist"];
    assert_eq!(tree.broken_paths(&[source]), expected);
}
