//! Numbers of faults that may fall and never rise, in `ratchet.txt`.
//!
//! A rule that is not in the file allows its aim. `RUNAHEAD_RATCHET=write` lowers the numbers in
//! the file to today's; `RUNAHEAD_RATCHET=list` prints every fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

/// Held while the file is read or written: tests run at the same time.
static FILE: Mutex<()> = Mutex::new(());

/// Faults that a message shows.
const SHOWN: usize = 40;

/// The faults that a rule finds.
pub struct Rule {
    pub name: String,
    /// Number that is good enough, from where on the ratchet does not follow.
    pub aim: usize,
    pub count: usize,
    /// Each with its file and line.
    pub faults: Vec<String>,
}

impl Rule {
    /// A rule that aims at no fault.
    pub fn new(name: &str, faults: Vec<String>) -> Self {
        Self { name: name.to_owned(), aim: 0, count: faults.len(), faults }
    }
}

fn path() -> PathBuf {
    crate::tracked_files::root().join("tests/repo/ratchet.txt")
}

/// Lines `rule = number`; comments start with `#`.
fn parse(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(" = "));
    pairs.map(|(name, count)| (name.to_owned(), count.parse().expect("a number"))).collect()
}

/// Replaces, adds or removes the line of a rule; all others stay as they are.
fn rewrite(text: &str, name: &str, count: Option<usize>) -> String {
    let start = format!("{name} = ");
    let mut lines: Vec<_> = text.lines().filter(|l| !l.starts_with(&start)).collect();
    let line = count.map(|count| format!("{start}{count}"));
    if let Some(line) = &line {
        let behind = |l: &&str| !l.starts_with('#') && *l > line.as_str();
        let at = lines.iter().position(behind).unwrap_or(lines.len());
        lines.insert(at, line);
    }
    lines.join("\n") + "\n"
}

/// The message for a rule that allows `allowed` faults, if it is not as it should be.
fn verdict(rule: &Rule, allowed: usize) -> Option<String> {
    let Rule { name, count, faults, .. } = rule;
    let lowest = (*count).max(rule.aim);
    if lowest < allowed {
        return Some(format!("{name}: {count}; lower the ratchet from {allowed} to {lowest}"));
    }
    if *count <= allowed {
        return None;
    }
    let mut text = format!("{name}: {count}, and {allowed} are allowed");
    for fault in faults.iter().take(SHOWN) {
        let _ = write!(text, "\n  {fault}");
    }
    if faults.len() > SHOWN {
        let _ = write!(text, "\n  and {} more (RUNAHEAD_RATCHET=list)", faults.len() - SHOWN);
    }
    Some(text)
}

/// Fails unless each rule has as many faults as the ratchet says.
pub fn check(rules: &[Rule]) {
    let _guard = FILE.lock().unwrap_or_else(|e| e.into_inner());
    let mode = std::env::var("RUNAHEAD_RATCHET").unwrap_or_default();
    let mut text = fs::read_to_string(path()).expect("ratchet.txt is readable");
    let allowed = parse(&text);
    let mut wrong = Vec::new();
    for rule in rules {
        let most = allowed.get(&rule.name).copied().unwrap_or(rule.aim);
        println!("{} = {} (at most {most}, aim {})", rule.name, rule.count, rule.aim);
        if mode == "list" {
            rule.faults.iter().for_each(|fault| println!("  {fault}"));
        }
        let lowest = rule.count.max(rule.aim);
        if mode == "write" && lowest < most {
            text = rewrite(&text, &rule.name, (lowest > rule.aim).then_some(lowest));
        } else {
            wrong.extend(verdict(rule, most));
        }
    }
    if mode == "write" {
        fs::write(path(), text).expect("ratchet.txt is writable");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_number_that_rises_or_falls_is_reported() {
    let rule = Rule::new("r", vec!["a.rs:1: x".into(), "a.rs:2: y".into()]);
    assert_eq!(verdict(&rule, 2), None);
    assert_eq!(verdict(&rule, 3).as_deref(), Some("r: 2; lower the ratchet from 3 to 2"));
    let more = verdict(&rule, 1).expect("a message");
    assert_eq!(more, "r: 2, and 1 are allowed\n  a.rs:1: x\n  a.rs:2: y");
}

#[test]
fn writing_changes_one_line() {
    let text = "# head\na = 1\nc = 3\n";
    assert_eq!(rewrite(text, "b", Some(2)), "# head\na = 1\nb = 2\nc = 3\n");
    assert_eq!(rewrite(text, "c", Some(2)), "# head\na = 1\nc = 2\n");
    assert_eq!(rewrite(text, "a", None), "# head\nc = 3\n");
    assert_eq!(parse(text), [("a".to_owned(), 1), ("c".to_owned(), 3)].into());
}
