//! Values that reads from the same place in a program have returned, for a shadow that lacks the
//! data.
//!
//! A *site* is a place in the code from which data is read, told by the return addresses on the
//! stack. Where data was there, a runner leaves here what the newest read brought, and what the
//! functions on the way back to the program's loop returned; where it is not, a runner takes both
//! for what they would be. The agent's part is `shadow/return_hooks.rs`.
//!
//! Shared by runs that follow each other, and sometimes for a moment by two. All of it is atomics:
//! what is torn or nonsense misleads a shadow, which ends. No loop depends on what is read here.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::atomic_words;

/// Sites that are remembered.
pub const SITES: usize = 128;
/// Return addresses of one site.
pub const FRAMES: usize = 32;
/// Bytes of a read that are kept.
pub const VALUE_BYTES: usize = 8192;
/// Kinds of data that one site may bring: the pages of a tree, say, that lead on and those that
/// hold what is looked for.
const KINDS: usize = 3;
/// Words of the frame of the function that is returned to: what is returned through pointers.
pub const LOCALS: usize = 12;
/// Frames that must be alike for two reads to be from the same site.
const ALIKE: usize = 2;

/// Word of the stack that looks like a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Words above the stack pointer.
    pub depth: u32,
    /// Address that the return leads to.
    pub to: u64,
}

/// Observations of one [`Caller`].
#[repr(C)]
struct Frame {
    depth: AtomicU32,
    /// Times that it was returned through; until the first, it may be a word that was left there.
    returns: AtomicU32,
    to: AtomicU64,
    /// Value that was returned.
    value: Steady,
    locals: [Steady; LOCALS],
}

/// A word, and whether it was always the same.
#[repr(C)]
struct Steady {
    first: AtomicU64,
    /// Bits in which a later one differed.
    varying: AtomicU64,
}

/// The largest absolute value that is a count, a truth or an error number rather than a handle, an
/// address or data.
const PLAIN: u32 = 255;

impl Steady {
    fn see(&self, word: u64, is_first: bool) {
        match is_first {
            true => {
                self.first.store(word, Relaxed);
                self.varying.store(0, Relaxed);
            }
            false => {
                self.varying.fetch_or(self.first.load(Relaxed) ^ word, Relaxed);
            }
        }
    }

    /// `word` with each of its halves that was always the same, and plain, as it was.
    fn expect(&self, word: u64) -> u64 {
        let (first, varying) = (self.first.load(Relaxed), self.varying.load(Relaxed));
        let half = |shift: u32| {
            let mask = u64::from(u32::MAX) << shift;
            let plain = ((first >> shift) as i32).unsigned_abs() <= PLAIN;
            (if plain && varying & mask == 0 { first } else { word }) & mask
        };
        half(0) | half(32)
    }
}

/// Substitute that a shadow uses for missing data (Chang 4.2.5; the returns are ours), in the order
/// in which they are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// The most frequent value. Functions, and what they return through pointers, are expected to
    /// be as usual.
    Results,
    /// The most frequent value. The return values of functions are expected to be as usual.
    Returns,
    /// The most frequent value.
    Usual,
    /// The buffer is left as it was.
    Left,
    /// Zeros.
    Cleared,
}

impl Stale {
    const ALL: [Stale; 5] =
        [Stale::Results, Stale::Returns, Stale::Usual, Stale::Left, Stale::Cleared];
}

impl Stale {
    /// From the stored number.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Stale::ALL.get(raw as usize).copied()
    }
}

/// Choice of a run for missing data at one site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The number of the site.
    pub site: usize,
    /// Substitute that the run uses there.
    pub stale: Stale,
    /// Bits of the values that the run used: bit n for the one of number n.
    pub given: u8,
}

impl Choice {
    /// The choice as one number, never 0.
    pub fn to_raw(self) -> u32 {
        (self.site as u32 + 1) << 16 | u32::from(self.given) << 8 | self.stale as u32
    }

    /// From what [`Choice::to_raw`] made; `None` if that is no choice.
    pub fn from_raw(raw: u32) -> Option<Self> {
        let site = (raw >> 16).checked_sub(1)? as usize;
        Some(Choice { site, stale: Stale::from_raw(raw & 0xff)?, given: (raw >> 8) as u8 })
    }
}

/// Success of one substitute.
#[repr(C)]
struct Trials {
    /// Runs that went on so.
    runs: AtomicU32,
    /// Hints of those runs that the target used.
    used: AtomicU32,
}

/// Gain that each substitute is assumed to have before it is tried.
const HOPES: [u64; Stale::ALL.len()] = [8, 3, 4, 2, 2];
/// Every so many runs one goes another way: what works may change.
const EXPLORE: usize = 16;
/// Runs that are remembered; older ones count ever less.
const RUNS: u32 = 32;

/// Hints of a run, used ones, from where on what it was given is kept.
const FAR: u64 = 16;
/// Further runs before one is judged by its used hints, which come some time after the run.
const PATIENCE: u32 = 4;

impl Trials {
    /// Used hints to be hoped for from a run, in parts of 2^8: their mean, and `hope` for what was
    /// hardly tried.
    fn promise(&self, hope: u64) -> u64 {
        let (runs, used) = (self.runs.load(Relaxed), self.used.load(Relaxed));
        ((u64::from(used) + hope) << 8) / (u64::from(runs) + 1)
    }

    fn clear(&self) {
        self.runs.store(0, Relaxed);
        self.used.store(0, Relaxed);
    }

    /// Counts a run. Returns true if those before it count half from now on.
    fn begin(&self) -> bool {
        let ages = self.runs.load(Relaxed) >= RUNS;
        if ages {
            self.runs.store(RUNS / 2, Relaxed);
            self.used.store(self.used.load(Relaxed) / 2, Relaxed);
        }
        self.runs.fetch_add(1, Relaxed);
        ages
    }
}

/// Value that a read returned.
#[repr(C)]
struct Value {
    /// Times that one of its kind was brought; 0 while there is none.
    count: AtomicU32,
    len: AtomicU32,
    /// Depth of the outermost caller that the program returned to before the next read. It tells
    /// the kind of the value.
    reach: AtomicU32,
    /// Runs that have been given this value, and their hints that the target used.
    trials: Trials,
    /// Others of its kind that came since it was last looked at whether this value stays.
    passed_over: AtomicU32,
    /// Hints of the runs that have been given this value.
    hinted: AtomicU32,
    /// After which kinds this value came how often.
    after: [After; KINDS + 1],
    words: [AtomicU64; VALUE_BYTES / 8],
}

#[repr(C)]
struct After {
    reach: AtomicU32,
    times: AtomicU32,
}

/// The kind of what was read before, if it was not read from the same site.
pub const ELSEWHERE: u32 = u32::MAX;

impl Value {
    fn clear(&self) {
        self.count.store(0, Relaxed);
        self.trials.clear();
        self.passed_over.store(0, Relaxed);
        self.hinted.store(0, Relaxed);
        self.after.iter().for_each(|after| after.times.store(0, Relaxed));
    }

    /// This value is not to be replaced by another of its kind, which has just come: it leads on,
    /// which the other may not do (a page of an index, for instance, whose keys are all smaller
    /// than what is looked for), or is still being tried.
    fn stays(&self) -> bool {
        let runs = self.trials.runs.load(Relaxed);
        if runs == 0 || u64::from(self.hinted.load(Relaxed)) < FAR * u64::from(runs) {
            return false;
        }
        let others = self.passed_over.fetch_add(1, Relaxed) + 1;
        if others < PATIENCE {
            return true;
        }
        self.passed_over.store(0, Relaxed);
        self.trials.promise(0) >= FAR << 8
    }

    /// A run is given this value for the first time.
    fn give(&self) {
        if self.trials.begin() {
            self.hinted.store(self.hinted.load(Relaxed) / 2, Relaxed);
        }
    }

    /// Copies the value's bytes from `from` on into `to`; how many.
    fn copy(&self, from: usize, to: &mut [u8]) -> usize {
        atomic_words::copy(&self.words, self.len.load(Relaxed) as usize, from, to)
    }

    fn times_after(&self, reach: u32) -> u32 {
        let is = |a: &&After| a.reach.load(Relaxed) == reach && a.times.load(Relaxed) > 0;
        self.after.iter().find(is).map_or(0, |after| after.times.load(Relaxed))
    }

    /// This value has come after what let the program return as far as `reach`, and goes on in the
    /// place of `old`.
    fn follow(&self, reach: u32, old: Option<&Value>) {
        for (new, old) in old.into_iter().flat_map(|old| self.after.iter().zip(&old.after)) {
            new.reach.store(old.reach.load(Relaxed), Relaxed);
            new.times.store(old.times.load(Relaxed), Relaxed);
        }
        let is = |a: &&After| a.reach.load(Relaxed) == reach && a.times.load(Relaxed) > 0;
        let rarest = || self.after.iter().min_by_key(|after| after.times.load(Relaxed));
        let Some(after) = self.after.iter().find(is).or_else(rarest) else { return };
        let times = if after.reach.load(Relaxed) == reach { after.times.load(Relaxed) } else { 0 };
        after.reach.store(reach, Relaxed);
        after.times.store(times.saturating_add(1), Relaxed);
    }
}

/// Site from which data is read.
#[repr(C)]
pub struct Site {
    len: AtomicU32,
    /// The place in `values` where the next is put, until it is known of which kind it is.
    next: AtomicU32,
    used: AtomicU64,
    trials: [Trials; Stale::ALL.len()],
    /// Choices made.
    choices: AtomicU32,
    frames: [Frame; FRAMES],
    values: [Value; KINDS + 1],
}

/// Table of sites.
#[repr(C)]
pub struct Sites {
    clock: AtomicU64,
    sites: [Site; SITES],
}

impl Site {
    fn frames(&self) -> &[Frame] {
        &self.frames[..(self.len.load(Relaxed) as usize).min(FRAMES)]
    }

    /// Number of frames among `callers` that were returned through; `None` if one is missing that
    /// would be there.
    fn likeness(&self, callers: &[Caller]) -> Option<usize> {
        let mut alike = 0;
        let mut rest = callers.iter();
        // Of more than are kept, nothing is known: words that were left in a large frame may take
        // the places of callers.
        let known_to = callers.get(FRAMES - 1).map_or(u32::MAX, |last| last.depth);
        for frame in self.frames().iter().filter(|f| f.returns.load(Relaxed) > 0) {
            let wanted = Caller { depth: frame.depth.load(Relaxed), to: frame.to.load(Relaxed) };
            if wanted.depth > known_to {
                break;
            }
            // Both are in the order of depth.
            rest.find(|caller| caller.depth >= wanted.depth).filter(|c| **c == wanted)?;
            alike += 1;
        }
        Some(alike)
    }

    fn start(&self, callers: &[Caller]) {
        self.len.store(0, Relaxed);
        self.values.iter().for_each(Value::clear);
        for trials in &self.trials {
            trials.clear();
        }
        let callers = &callers[..callers.len().min(FRAMES)];
        for (frame, caller) in self.frames.iter().zip(callers) {
            frame.depth.store(caller.depth, Relaxed);
            frame.to.store(caller.to, Relaxed);
            frame.returns.store(0, Relaxed);
        }
        self.len.store(callers.len() as u32, Relaxed);
    }

    /// Chooses the substitute for a run without data from here: the one with most gain, or one that
    /// was hardly tried.
    pub fn choose(&self) -> Stale {
        let all = Stale::ALL.len();
        let number = self.choices.fetch_add(1, Relaxed) as usize;
        // Of equals, the last is taken.
        let promise = |n: &usize| self.trials[*n].promise(HOPES[*n]);
        let best = (0..all).rev().max_by_key(promise).unwrap_or(0);
        let explore = number % EXPLORE == EXPLORE - 1;
        let chosen = if explore { number / EXPLORE % all } else { best };
        self.trials[chosen].begin();
        Stale::ALL[chosen]
    }

    /// A hint of a run was used that had chosen so.
    pub fn was_used(&self, choice: Choice) {
        self.trials[choice.stale as usize].used.fetch_add(1, Relaxed);
        self.given(choice).for_each(|value| _ = value.trials.used.fetch_add(1, Relaxed));
    }

    /// A run gives a hint that has chosen so.
    pub fn hinted(&self, choice: Choice) {
        self.given(choice).for_each(|value| _ = value.hinted.fetch_add(1, Relaxed));
    }

    fn given(&self, choice: Choice) -> impl Iterator<Item = &Value> {
        let values = self.values.iter().enumerate();
        values.filter(move |(n, _)| choice.given & 1 << n != 0).map(|(_, value)| value)
    }

    /// A read from here brought `value`.
    pub fn keep(&self, value: &[u8]) {
        let value = &value[..value.len().min(VALUE_BYTES)];
        let place = self.next();
        atomic_words::store(&place.words, value);
        place.len.store(value.len() as u32, Relaxed);
    }

    fn next(&self) -> &Value {
        &self.values[self.next.load(Relaxed) as usize % (KINDS + 1)]
    }

    /// After what was kept last, the program returned as far as to the caller at depth `reach`
    /// before it read again: that tells its kind, of which the newest stays, or one that leads on.
    /// What it had read before was of the kind `before`.
    pub fn settle(&self, before: u32, reach: u32) {
        let new = self.next();
        let others = || self.values.iter().filter(|value| !core::ptr::eq(*value, new));
        let is_alike = |v: &&Value| v.count.load(Relaxed) > 0 && v.reach.load(Relaxed) == reach;
        let alike = others().find(is_alike);
        let count = alike.map_or(0, |value| value.count.load(Relaxed)).saturating_add(1);
        if let Some(kept) = alike.filter(|value| value.stays()) {
            kept.follow(before, None);
            kept.count.store(count, Relaxed);
            return;
        }
        let rarest = || others().min_by_key(|value| value.count.load(Relaxed));
        let Some(old) = alike.or_else(rarest) else { return };
        new.clear();
        new.follow(before, alike);
        new.reach.store(reach, Relaxed);
        new.count.store(count, Relaxed);
        old.clear();
        let at = self.values.iter().position(|value| core::ptr::eq(value, old)).unwrap_or(0);
        self.next.store(at as u32, Relaxed);
    }

    /// Puts what is mostly brought after something of the kind `before`, from its byte `from` on,
    /// into `value`: which value it was, and how many bytes.
    pub fn recall(&self, before: u32, from: usize, value: &mut [u8]) -> Option<(usize, usize)> {
        let count = |value: &Value| value.count.load(Relaxed);
        let known = (0..self.values.len()).filter(|&n| count(&self.values[n]) > 0);
        let likeliness = |n: &usize| (self.values[*n].times_after(before), count(&self.values[*n]));
        let number = known.max_by_key(likeliness)?;
        Some((number, self.values[number].copy(from, value)))
    }

    /// A run is given the value of that number for the first time.
    pub fn gave(&self, number: usize) {
        self.values[number % self.values.len()].give();
    }

    /// True if the program was seen to return to `caller`.
    pub fn is_confirmed(&self, caller: Caller) -> bool {
        self.find(caller).is_some_and(|frame| frame.returns.load(Relaxed) > 0)
    }

    /// The function that returns to `caller` returned `value`, and what it found or left in that
    /// one's frame is `locals`.
    pub fn returned(&self, caller: Caller, value: u64, locals: &[u64]) {
        let Some(frame) = self.find(caller) else { return };
        let is_first = frame.returns.fetch_add(1, Relaxed) == 0;
        frame.value.see(value, is_first);
        frame.locals.iter().zip(locals).for_each(|(local, word)| local.see(*word, is_first));
    }

    /// Makes of what is returned to `caller` what was always returned when the data was there;
    /// where that was not always the same, it stays.
    pub fn expect(&self, caller: Caller, value: &mut u64, locals: &mut [u64]) {
        let Some(frame) = self.find(caller).filter(|f| f.returns.load(Relaxed) > 0) else { return };
        *value = frame.value.expect(*value);
        let each = |(local, word): (&Steady, &mut u64)| *word = local.expect(*word);
        frame.locals.iter().zip(locals).for_each(each);
    }

    fn find(&self, caller: Caller) -> Option<&Frame> {
        let is =
            |f: &&Frame| f.depth.load(Relaxed) == caller.depth && f.to.load(Relaxed) == caller.to;
        self.frames().iter().find(is)
    }
}

impl Sites {
    /// The site from which a read with `callers` above its stack pointer comes, innermost first:
    /// its number.
    pub fn find(&self, callers: &[Caller]) -> Option<usize> {
        let likeness = |site: &Site| site.likeness(callers).filter(|&n| n >= ALIKE);
        let (at, _) = (0..SITES)
            .filter_map(|at| Some((at, likeness(&self.sites[at])?)))
            .max_by_key(|&(_, alike)| alike)?;
        self.note_use(at);
        Some(at)
    }

    fn note_use(&self, at: usize) {
        self.sites[at].used.store(self.clock.fetch_add(1, Relaxed) + 1, Relaxed);
    }

    /// Index of the site of `callers`, made if need be in place of the one that was not used for
    /// longest.
    pub fn claim(&self, callers: &[Caller]) -> usize {
        self.find(callers).unwrap_or_else(|| {
            let age = |at: &usize| self.sites[*at].used.load(Relaxed);
            let at = (0..SITES).min_by_key(age).unwrap_or(0);
            self.note_use(at);
            self.sites[at].start(callers);
            at
        })
    }

    /// The site of that number.
    pub fn get(&self, at: usize) -> &Site {
        &self.sites[at % SITES]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    fn sites() -> Box<Sites> {
        // SAFETY: Sites is atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn brought(recalled: Option<(usize, usize)>) -> usize {
        recalled.expect("something was kept").1
    }

    fn callers(words: &[(u32, u64)]) -> std::vec::Vec<Caller> {
        words.iter().map(|&(depth, to)| Caller { depth, to }).collect()
    }

    #[test]
    fn a_site_is_known_by_the_addresses_that_were_returned_to() {
        let sites = sites();
        // The word at depth 7 was left there by something else.
        let first = callers(&[(0, 100), (4, 200), (7, 999), (9, 300)]);
        let at = sites.claim(&first);
        assert_eq!(sites.find(&first), None, "nothing was returned through yet");
        for n in [0, 1, 3] {
            sites.get(at).returned(first[n], n as u64, &[]);
        }
        assert_eq!(sites.find(&callers(&[(0, 100), (4, 200), (6, 1), (9, 300)])), Some(at));
        assert_eq!(sites.find(&callers(&[(0, 100), (4, 200), (9, 301)])), None);
        assert_eq!(sites.find(&callers(&[(0, 100), (4, 200)])), None);
        assert_eq!(sites.find(&callers(&[(0, 100), (5, 200), (9, 300)])), None);
    }

    #[test]
    fn a_caller_for_which_there_was_no_room_may_be_there() {
        let sites = sites();
        let known = callers(&[(0, 100), (4, 200), (900, 300)]);
        let at = sites.claim(&known);
        known.iter().for_each(|caller| sites.get(at).returned(*caller, 0, &[]));
        let left_over = |depth| (depth, 999);
        let with = |rest: core::ops::Range<u32>| -> std::vec::Vec<_> {
            callers(&[(0, 100), (4, 200)])
                .into_iter()
                .chain(callers(&rest.map(left_over).collect::<std::vec::Vec<_>>()))
                .collect()
        };
        let full = FRAMES as u32 - 2;
        assert_eq!(sites.find(&with(10..10 + full)), Some(at));
        assert_eq!(sites.find(&with(10..10 + full - 1)), None, "it would have been seen");
        assert_eq!(sites.find(&with(880..880 + full)), None, "something else is there");
    }

    #[test]
    fn the_most_alike_of_two_is_meant() {
        let sites = sites();
        let inner = callers(&[(0, 100), (4, 200)]);
        let outer = callers(&[(0, 100), (4, 200), (9, 300)]);
        let short = sites.claim(&inner);
        inner.iter().for_each(|c| sites.get(short).returned(*c, 0, &[]));
        assert_eq!(sites.claim(&outer), short, "as long as nothing else is known");
        let long = 1;
        sites.get(long).start(&outer);
        outer.iter().for_each(|c| sites.get(long).returned(*c, 0, &[]));
        assert_eq!(sites.find(&outer), Some(long));
        assert_eq!(sites.find(&callers(&[(0, 100), (4, 200), (9, 301)])), Some(short));
    }

    #[test]
    fn only_what_was_always_returned_is_expected() {
        let sites = sites();
        let callers = callers(&[(0, 100), (4, 200)]);
        let site = sites.get(sites.claim(&callers));
        let expect = |caller, value, mut locals: [u64; 2]| {
            let mut value = value;
            site.expect(caller, &mut value, &mut locals);
            (value, locals)
        };
        assert_eq!(expect(callers[0], 9, [1, 2]), (9, [1, 2]), "nothing is known");
        let address = 0x7f00_1234_5678;
        site.returned(callers[0], 5, &[0, address]);
        site.returned(callers[1], 6, &[1]);
        site.returned(callers[0], 5, &[7 << 32, address]);
        site.returned(callers[1], 7, &[1]);
        assert_eq!(expect(callers[0], 9, [2 << 32 | 1, 2]).0, 5);
        assert_eq!(expect(callers[0], 9, [2 << 32 | 1, 2]).1[0], 2 << 32, "half of it varies");
        assert_eq!(expect(callers[0], 9, [1, 2]).1[1] as u32, 2, "it is no plain number");
        assert_eq!(expect(callers[1], 9, [3, 3]).0, 9);
        site.returned(callers[1], 6, &[1]);
        let (value, locals) = expect(callers[1], 9, [3, 3]);
        assert_eq!((value, locals[0]), (9, 1), "once it varied it varies");
        assert_eq!(expect(Caller { depth: 1, to: 100 }, 9, [3, 3]), (9, [3, 3]));
    }

    #[test]
    fn negative_numbers_are_plain() {
        let word = Steady { first: AtomicU64::new(0), varying: AtomicU64::new(0) };
        word.see(-1i64 as u64, true);
        assert_eq!(word.expect(0), -1i64 as u64);
        word.see(u64::from(u32::MAX - PLAIN), true);
        assert_eq!(word.expect(7), 7, "not that large");
        word.see(u64::from(u32::MAX - PLAIN + 1), true);
        assert_eq!(word.expect(7), u64::from(u32::MAX - PLAIN + 1));
    }

    #[test]
    fn the_newest_of_the_usual_kind_is_recalled() {
        let sites = sites();
        let site = sites.get(3);
        let mut out = [0u8; 16];
        assert_eq!(site.recall(0, 0, &mut out), None);
        site.keep(b"a first value");
        assert_eq!(site.recall(0, 0, &mut out), None, "its kind is not known");
        site.settle(ELSEWHERE, 7);
        site.keep(b"abcdefghijk");
        site.settle(ELSEWHERE, 7);
        site.keep(b"of another kind");
        site.settle(ELSEWHERE, 3);
        assert_eq!(brought(site.recall(1, 0, &mut out)), 11);
        assert_eq!(&out[..11], b"abcdefghijk");
        assert_eq!(brought(site.recall(1, 9, &mut out)), 2);
        assert_eq!(&out[..2], b"jk");
        assert_eq!(brought(site.recall(1, 12, &mut out)), 0);
        for n in 0..5u8 {
            site.keep(&[n; VALUE_BYTES + 1]);
            site.settle(ELSEWHERE, 3);
        }
        assert_eq!(brought(site.recall(1, VALUE_BYTES - 3, &mut out)), 3);
        assert_eq!(out[0], 4, "it has become the usual one");
        for reach in 10..30 {
            site.keep(b"seen once");
            site.settle(ELSEWHERE, reach);
        }
        assert_eq!(brought(site.recall(1, 0, &mut out)), 16);
        assert_eq!(out[0], 4);
    }

    #[test]
    fn any_part_is_recalled() {
        let value: std::vec::Vec<u8> = (0..29).collect();
        let sites = sites();
        let site = sites.get(3);
        site.keep(&value);
        site.settle(ELSEWHERE, 7);
        for (from, wanted) in (0..32).flat_map(|from| (0..32).map(move |wanted| (from, wanted))) {
            let mut out = [0xff; 32];
            let part = value.get(from..).unwrap_or(&[]);
            let part = &part[..part.len().min(wanted)];
            let count = brought(site.recall(1, from, &mut out[..wanted]));
            assert_eq!(count, part.len(), "{from} {wanted}");
            assert_eq!(&out[..part.len()], part, "{from} {wanted}");
            assert!(out[part.len()..].iter().all(|&byte| byte == 0xff), "{from} {wanted}");
        }
    }

    #[test]
    fn a_value_that_leads_on_is_kept_and_another_is_not() {
        let sites = sites();
        let site = sites.get(3);
        let keep = |value: u8| {
            site.keep(&[value]);
            site.settle(ELSEWHERE, 7);
        };
        let give = || {
            let mut out = [0];
            let (number, _) = site.recall(ELSEWHERE, 0, &mut out).expect("one was kept");
            site.gave(number);
            (out[0], Choice { site: 3, stale: Stale::Usual, given: 1 << number })
        };
        keep(1);
        keep(2);
        let (value, choice) = give();
        assert_eq!(value, 2, "nobody was given the first");
        (0..FAR * 2).for_each(|_| site.hinted(choice));
        (10..10 + PATIENCE as u8 - 1).for_each(keep);
        assert_eq!(give().0, 2, "it is not known yet how many are used");
        (0..FAR * 3).for_each(|_| site.was_used(choice));
        (10..30).for_each(keep);
        let (value, choice) = give();
        assert_eq!(value, 2);
        assert!((0..20).all(|_| give().0 == 2));
        // It brings nothing any more.
        (30..30 + PATIENCE as u8).for_each(keep);
        assert_ne!(give().0, 2);
        // Credit that comes late is for what has its place now, and does no harm for long.
        (0..FAR).for_each(|_| site.was_used(choice));
        for _ in 0..10 {
            give();
        }
        (40..60).for_each(keep);
        assert!(give().0 > 50);
    }

    #[test]
    fn a_choice_is_what_its_number_says() {
        for (site, stale, given) in [(0, Stale::Results, 0), (SITES - 1, Stale::Cleared, 0xf)] {
            let choice = Choice { site, stale, given };
            assert_eq!(Choice::from_raw(choice.to_raw()), Some(choice));
        }
        assert_eq!(Choice::from_raw(0), None);
        assert_eq!(Choice::from_raw(1 << 16 | 99), None);
    }

    /// Models a lookup in a tree: an inner page, then a leaf; or only a leaf, where the inner one
    /// is known.
    #[test]
    fn what_usually_follows_is_recalled() {
        let sites = sites();
        let site = sites.get(3);
        let (inner, leaf) = (5, 9);
        let mut before = ELSEWHERE;
        for n in 0..30 {
            for (kind, value) in [(inner, b"inner"), (leaf, b"leaf ")] {
                if n % 3 == 0 || kind == leaf {
                    site.keep(value);
                    site.settle(before, kind);
                    before = kind;
                }
            }
        }
        let recalled = |before| {
            let mut out = [0u8; 5];
            site.recall(before, 0, &mut out);
            out
        };
        assert_eq!(&recalled(inner), b"leaf ");
        assert_eq!(&recalled(leaf), b"leaf ", "more often than not");
        for _ in 0..60 {
            for (kind, value) in [(inner, b"inner"), (leaf, b"leaf ")] {
                site.keep(value);
                site.settle(before, kind);
                before = kind;
            }
        }
        assert_eq!(&recalled(inner), b"leaf ");
        assert_eq!(&recalled(leaf), b"inner");
    }

    #[test]
    fn what_brings_most_is_chosen() {
        let sites = sites();
        let site = sites.get(0);
        let gain = |stale, by: [u32; 5]| {
            (0..by[stale as usize])
                .for_each(|_| site.was_used(Choice { site: 0, stale, given: 0 }));
        };
        let run = |times: u32, by: [u32; 5]| {
            let chosen = (0..times).map(|_| site.choose()).inspect(|stale| gain(*stale, by));
            let best = by.iter().enumerate().max_by_key(|(_, gain)| **gain);
            chosen.filter(|&stale| best.map(|(n, _)| n) == Some(stale as usize)).count()
        };
        assert_eq!(site.choose(), Stale::Results, "the first is tried first");
        run(20, [0; 5]);
        run(100, [0, 1, 9, 1, 0]);
        assert!(run(100, [0, 1, 9, 1, 0]) > 85);
        run(200, [9, 1, 0, 1, 0]);
        assert!(run(100, [9, 1, 0, 1, 0]) > 85, "what works may change");
    }

    #[test]
    fn the_oldest_site_goes_first() {
        let sites = sites();
        let of = |n: u64| callers(&[(0, n + 1), (4, n + 1)]);
        for n in 0..SITES as u64 {
            let at = sites.claim(&of(n));
            of(n).iter().for_each(|c| sites.get(at).returned(*c, 0, &[]));
        }
        assert!(sites.find(&of(0)).is_some());
        sites.claim(&of(1000));
        assert!(sites.find(&of(0)).is_some(), "it was used since");
        assert_eq!(sites.find(&of(1)), None);
    }
}
