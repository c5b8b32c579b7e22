//! Files that are named in files which the program has read: imports, includes, requires.
//!
//! The next file that an interpreter or a compiler reads is named in what it has just read. A
//! shadow cannot know the name before that data has come, but the name can be looked for in the
//! data. No language is known here; the program itself shows how names in files become names of
//! files:
//! - Small files that it reads are scanned for possible names ([`tokens`]).
//! - A file that it then reads is compared with those names. If `a/b` was named in `/x/m.js` and
//!   `/lib/a/c/b.so` is read, that makes a *rule* likely: below `/lib`, with `c` before the last
//!   part, and `.so` behind it. A rule looks in a fixed directory, or relative to the file that
//!   names.
//! - A rule that has explained 3 files (`CONFIRMED`) is applied to all names, also to names in
//!   files that it has fetched itself. So named files are fetched as fast as the storage answers in
//!   parallel, level by level.
//!
//! A file is only looked for if the listing of its directory has it: most names in a text are not
//! names of files.
//!
//! Invariants: names, rules, listings and files looked for are bounded. A rule that is hardly ever
//! right is applied no more. [`crate::guess_budget`] bounds the cost of all of this.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use runahead_estimators::Identity;

use super::guess_kind::GuessKind;
use super::path_keys::{below, first_below, hash, split};

mod name_rules;
mod name_tokens;

use name_rules::{Name, Rule, Rules};
pub use name_tokens::{SCAN_BYTES, tokens};

/// Files that a program has to wait for before any is scanned.
const SCANNED_FROM: u32 = 4;
/// Names that are remembered, and listings.
const NAMES_MAX: usize = 1 << 14;
const LISTINGS_MAX: usize = 2048;
/// Entries of a directory that is looked into.
pub const LISTED_MAX: usize = 1 << 13;
/// Files that were scanned or looked for.
const FILES_MAX: usize = 1 << 14;
/// Names that are compared with a file that is read, the newest first.
const COMPARED: usize = 64;
/// Largest number of possibly used files that are checked each time; above it they are checked one
/// time in [`SETTLED_EVERY`].
const SETTLED: usize = 128;
const SETTLED_EVERY: u32 = 8;
/// A rule is not applied any more once it has looked for so many files more than [`RIGHT`] for each
/// that was used.
const DOUBTED: u32 = 64;
const RIGHT: u32 = 8;

/// Action for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Read the entries of a directory ([`NameReferences::listed`]).
    List(Arc<[u8]>),
    /// Fetch a file, and scan it ([`NameReferences::scanned`]).
    Fetch(Arc<[u8]>),
    /// Scan a file that the program reads itself.
    Scan(Arc<[u8]>),
}

impl Action {
    /// The path that the action is about.
    pub(super) fn path(&self) -> &Arc<[u8]> {
        match self {
            Action::List(path) | Action::Fetch(path) | Action::Scan(path) => path,
        }
    }
}

/// Names and rules of one client.
#[derive(Default)]
pub(super) struct NameReferences {
    /// Files that the program had to wait for.
    demands: u32,
    names: Vec<Name>,
    /// Indices into `names`, by hash of the name's last part.
    by_last: HashMap<u64, Vec<u32>>,
    rules: Rules,
    /// Hashes of entries, by hash of the directory. `None`: it has been asked for.
    listings: HashMap<u64, Option<HashSet<u64>>>,
    /// Names and rules that wait for a listing.
    waiting: HashMap<u64, Vec<(u32, u16)>>,
    /// Hashes of paths that were read, scanned or looked for.
    known: HashSet<u64>,
    /// Hashes of paths that were looked for and are not known to have been used: by which rule.
    pending: HashMap<u64, (u16, Identity)>,
    /// Number of checks of `pending`.
    asked: u32,
    /// Names and rules that are to be tried once the rule has been right more often.
    held: Vec<(u32, u16)>,
}

impl NameReferences {
    /// The program reads `path` from its beginning and has to wait. True if the file had been
    /// looked for.
    pub(super) fn saw(&mut self, path: &[u8], actions: &mut Vec<Action>) -> bool {
        self.demands = self.demands.saturating_add(1);
        let file = hash(path);
        let used = match self.pending.remove(&file) {
            Some((rule, _)) => {
                self.rules.was_used(rule);
                self.release(actions);
                true
            }
            None => false,
        };
        let is_one_of_many = self.demands >= SCANNED_FROM;
        if !is_one_of_many || self.known.len() >= FILES_MAX || !self.known.insert(file) {
            return used;
        }
        self.learn(path, actions);
        actions.push(Action::Scan(path.into()));
        used
    }

    /// Files that were looked for and used meanwhile, as `was_used` says; how many.
    pub(super) fn settle(
        &mut self,
        was_used: impl Fn(Identity) -> bool,
        actions: &mut Vec<Action>,
    ) -> u64 {
        // Each is a look at the log.
        self.asked += 1;
        if self.pending.len() > SETTLED && !self.asked.is_multiple_of(SETTLED_EVERY) {
            return 0;
        }
        let used: Vec<_> = self.pending.extract_if(|_, (_, key)| was_used(*key)).collect();
        used.iter().for_each(|(_, (rule, _))| self.rules.was_used(*rule));
        if !used.is_empty() {
            self.release(actions);
        }
        used.len() as u64
    }

    /// Tries what was held back.
    fn release(&mut self, actions: &mut Vec<Action>) {
        for (name, rule) in std::mem::take(&mut self.held) {
            self.apply(name, rule, actions);
        }
    }

    /// `path` was looked for, and is not known to have been used.
    pub(super) fn is_pending(&self, path: &[u8]) -> bool {
        self.pending.contains_key(&hash(path))
    }

    /// Names were found in `path`.
    pub(super) fn scanned(
        &mut self,
        path: &[u8],
        found: Vec<Box<[u8]>>,
        actions: &mut Vec<Action>,
    ) {
        let Some((from, _)) = split(path) else { return };
        let from: Arc<[u8]> = from.into();
        for text in found {
            if self.names.len() >= NAMES_MAX {
                return;
            }
            let Some(text) = resolve(&from, &text) else { continue };
            let Some(last) = text.rsplit(|&b| b == b'/').next() else { continue };
            let number = self.names.len() as u32;
            let same = self.by_last.entry(hash(last)).or_default();
            let is_known = |&other: &u32| {
                let other = &self.names[other as usize];
                other.text == text && (text.starts_with(b"/") || other.from == from)
            };
            if same.iter().any(is_known) {
                continue;
            }
            same.push(number);
            self.names.push(Name { text, from: from.clone() });
            for rule in self.rules.active() {
                self.apply(number, rule, actions);
            }
        }
    }

    /// Takes the entries of `directory`; none if it does not exist.
    pub(super) fn listed(
        &mut self,
        directory: &[u8],
        entries: impl Iterator<Item = Box<[u8]>>,
        actions: &mut Vec<Action>,
    ) {
        let directory = hash(directory);
        let entries = entries.map(|entry| hash(&entry)).collect();
        self.listings.insert(directory, Some(entries));
        for (name, rule) in self.waiting.remove(&directory).unwrap_or_default() {
            self.apply(name, rule, actions);
        }
    }

    /// Confirms the rules that lead to `path`. Rules that were confirmed often enough are applied
    /// from now on.
    fn learn(&mut self, path: &[u8], actions: &mut Vec<Action>) {
        let mut found: Vec<Rule> = Vec::new();
        for (last, ending) in name_rules::ends(path) {
            let Some(numbers) = self.by_last.get(&hash(&path[last.clone()])) else { continue };
            for &number in numbers.iter().rev().take(COMPARED) {
                let name = &self.names[number as usize];
                let explained = name_rules::explain(path, last.clone(), ending, name);
                for rule in explained {
                    if !found.contains(&rule) {
                        found.push(rule);
                    }
                }
                if found.len() >= name_rules::AT_ONCE {
                    break;
                }
            }
        }
        for rule in found {
            let Some(new) = self.rules.confirm(rule) else { continue };
            (0..self.names.len() as u32).for_each(|name| self.apply(name, new, actions));
        }
    }

    /// Looks for what the name would be by that rule.
    fn apply(&mut self, name: u32, number: u16, actions: &mut Vec<Action>) {
        let rule = self.rules.get(number);
        let is_doubted = rule.tried > DOUBTED + RIGHT * rule.used;
        let Some(place) = rule.rule.place(&self.names[name as usize]) else { return };
        for step in &place.directories {
            let key = hash(step);
            match self.listings.get(&key) {
                Some(Some(_)) => {}
                Some(None) => {
                    self.waiting.entry(key).or_default().push((name, number));
                    return;
                }
                None if self.listings.len() < LISTINGS_MAX => {
                    self.listings.insert(key, None);
                    self.waiting.entry(key).or_default().push((name, number));
                    actions.push(Action::List(step.clone()));
                    return;
                }
                None => return,
            }
            let next = first_below(step, &place.path);
            let has = self.listings.get(&key).and_then(Option::as_ref);
            if !has.is_some_and(|entries| entries.contains(&hash(next))) {
                return;
            }
        }
        let file = hash(&place.path);
        if self.known.len() >= FILES_MAX || self.known.contains(&file) {
            return;
        }
        if is_doubted {
            if self.held.len() < NAMES_MAX {
                self.held.push((name, number));
            }
            return;
        }
        self.known.insert(file);
        self.rules.was_tried(number);
        self.pending.insert(file, (number, GuessKind::Mentions.key(&place.path)));
        actions.push(Action::Fetch(place.path));
    }
}

/// Returns the name as it is, or resolved from the directory of its file. `None` if it leads
/// nowhere.
fn resolve(from: &[u8], text: &[u8]) -> Option<Arc<[u8]>> {
    let (mut base, mut rest) = (from, text);
    while let Some(up) = rest.strip_prefix(b"../") {
        (base, _) = split(base)?;
        rest = up;
    }
    let here = rest.strip_prefix(b"./");
    let is_relative = here.is_some() || rest.len() < text.len();
    let rest = here.unwrap_or(rest);
    let is_plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    if !rest.strip_prefix(b"/").unwrap_or(rest).split(|&b| b == b'/').all(is_plain) {
        return None;
    }
    Some(if is_relative { below(base, rest) } else { rest.into() })
}

#[cfg(test)]
#[path = "name_references_tests.rs"]
mod tests;
