//! Rules by which a name in a file becomes the name of a file.

use std::ops::Range;
use std::sync::Arc;

use super::super::path_keys::split;

/// Files that a rule must have explained before it is applied.
const CONFIRMED: u32 = 3;
/// Rules that are remembered, and of those that are applied.
const RULES_MAX: usize = 256;
const ACTIVE_MAX: usize = 24;
/// Rules that one file confirms at most.
pub(super) const AT_ONCE: usize = 8;
/// Most levels above the directory of the naming file.
const UP_MAX: usize = 2;

/// A name that stands in a file.
pub(super) struct Name {
    /// The name, with `/` between its parts; absolute if it begins with `/`.
    pub text: Arc<[u8]>,
    /// The directory of the file.
    pub from: Arc<[u8]>,
}

/// Directory in which a named file is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Base {
    /// The name is whole: it was relative to its file, and has been resolved.
    Whole,
    /// This many directories above that of the naming file.
    Above(usize),
    /// A fixed directory.
    At(Arc<[u8]>),
}

/// A rule: `a/b` becomes `base/a/infix/b` and the ending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    base: Base,
    infix: Option<Box<[u8]>>,
    ending: Box<[u8]>,
}

/// Path to which a rule leads.
pub(super) struct Place {
    pub path: Arc<[u8]>,
    /// Directories on the way to it in which it has to be listed, from the base on.
    pub directories: Vec<Arc<[u8]>>,
}

impl Rule {
    pub(super) fn place(&self, name: &Name) -> Option<Place> {
        let text = &name.text[..];
        let base: &[u8] = match &self.base {
            Base::Whole => {
                let (directory, _) = split(text)?;
                directory
            }
            _ if text.starts_with(b"/") => return None,
            Base::Above(levels) => {
                let up = |from, _| split(from).map(|(above, _)| above);
                (0..*levels).try_fold(&name.from[..], up)?
            }
            Base::At(directory) => directory,
        };
        let below_base = if self.base == Base::Whole { split(text)?.1 } else { text };
        let (head, last) = match below_base.iter().rposition(|&b| b == b'/') {
            Some(slash) => (&below_base[..=slash], &below_base[slash + 1..]),
            None => (&b""[..], below_base),
        };
        let mut path = base.to_vec();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(head);
        if let Some(infix) = &self.infix {
            path.extend_from_slice(infix);
            path.push(b'/');
        }
        let own = path.len();
        path.extend_from_slice(last);
        path.extend_from_slice(&self.ending);
        // The listings of the base and of each directory below it are checked. A directory that
        // bears the name itself is not checked: it would be one more listing for each name.
        let slashes = (base.len() + 1..own).filter(|&at| path[at] == b'/');
        let below = slashes.map(|at| Arc::from(&path[..at]));
        let directories = std::iter::once(Arc::from(base)).chain(below).collect();
        Some(Place { path: path.into(), directories })
    }
}

/// Returns possible last parts of a name that leads to `path`, each with the start of the ending.
/// They are the file's name without what follows one of its dots, and the two directories above it.
pub(super) fn ends(path: &[u8]) -> Vec<(Range<usize>, usize)> {
    let mut all = Vec::new();
    let mut end = path.len();
    for level in 0..3 {
        let Some(slash) = path[..end].iter().rposition(|&b| b == b'/') else { break };
        let part = slash + 1..end;
        if part.is_empty() {
            break;
        }
        all.push((part.clone(), end));
        if level == 0 {
            let dots = part.clone().skip(1).filter(|&at| path[at] == b'.');
            all.extend(dots.map(|dot| (part.start..dot, dot)));
        }
        end = slash;
    }
    all
}

/// The rules by which `name`, whose last part is that of `path`, leads there.
pub(super) fn explain(path: &[u8], last: Range<usize>, ending: usize, name: &Name) -> Vec<Rule> {
    let text = &name.text[..];
    let ending: Box<[u8]> = path[ending..].into();
    let before = path[..last.start].strip_suffix(b"/").unwrap_or_default();
    let head = text.strip_suffix(&path[last]).unwrap_or_default();
    let head = head.strip_suffix(b"/").unwrap_or(head);
    if text.starts_with(b"/") {
        let rule = Rule { base: Base::Whole, infix: None, ending };
        return if head == before { vec![rule] } else { Vec::new() };
    }
    let mut all = Vec::new();
    let inner = split(before).filter(|(_, infix)| !infix.is_empty());
    let with_infix = inner.map(|(outer, infix)| (outer, Some(infix)));
    for (directory, infix) in std::iter::once((before, None)).chain(with_infix) {
        let base = match head {
            b"" => directory,
            head => match directory.strip_suffix(head).and_then(|rest| rest.strip_suffix(b"/")) {
                Some(base) => base,
                None => continue,
            },
        };
        if base.is_empty() {
            continue;
        }
        let mut above = Some(&name.from[..]);
        let levels = (0..=UP_MAX).find(|_| {
            let is_it = above == Some(base);
            above = above.and_then(|from| split(from)).map(|(above, _)| above);
            is_it
        });
        // Of a name of one part, any directory above would do.
        let base = match levels {
            Some(levels) => Base::Above(levels),
            None if infix.is_some() && head.is_empty() => continue,
            None => Base::At(base.into()),
        };
        all.push(Rule { base, infix: infix.map(Box::from), ending: ending.clone() });
    }
    all
}

/// A rule, and what came of it.
pub(super) struct RuleRecord {
    pub rule: Rule,
    confirmed: u32,
    /// Files that were looked for by it, and of those the ones that were used.
    pub tried: u32,
    pub used: u32,
}

/// Rules of one client.
#[derive(Default)]
pub(super) struct Rules {
    all: Vec<RuleRecord>,
    active: Vec<u16>,
}

impl Rules {
    /// Counts one more file that `rule` explains. Returns the rule's number if it is applied from
    /// now on.
    pub(super) fn confirm(&mut self, rule: Rule) -> Option<u16> {
        let number = match self.all.iter().position(|known| known.rule == rule) {
            Some(number) => number,
            None if self.all.len() >= RULES_MAX => return None,
            None => {
                self.all.push(RuleRecord { rule, confirmed: 0, tried: 0, used: 0 });
                self.all.len() - 1
            }
        };
        let known = &mut self.all[number];
        known.confirmed += 1;
        if known.confirmed != CONFIRMED || self.active.len() >= ACTIVE_MAX {
            return None;
        }
        self.active.push(number as u16);
        Some(number as u16)
    }

    pub(super) fn active(&self) -> Vec<u16> {
        self.active.clone()
    }

    pub(super) fn get(&self, number: u16) -> &RuleRecord {
        &self.all[usize::from(number)]
    }

    pub(super) fn was_tried(&mut self, number: u16) {
        self.all[usize::from(number)].tried += 1;
    }

    pub(super) fn was_used(&mut self, number: u16) {
        self.all[usize::from(number)].used += 1;
    }
}
