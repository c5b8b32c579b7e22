//! Return hooks: stale values for reads whose data is missing, and for the functions that would
//! have used the data.
//!
//! A program checks what it reads: a page of a database of the wrong kind is an error, and the
//! query ends. So an untouched or cleared buffer leads nowhere. The data of the newest read from
//! the same site is of the right kind, and leads on. Where the program still finds that it is the
//! wrong data (a key that is missing), its functions are made to return what they returned whenever
//! the data was present.
//!
//! Where data is present, the return addresses above the read are replaced by the hook's, and what
//! each function returns is noted ([`runahead_estimators::value_predictor`]). Where data is missing
//! they are replaced too, and values that were always the same before are returned again, whatever
//! the function returns now. The stack is the shadow's own; no other process sees it.
//!
//! Invariant: a replaced word of the stack leads, through [`after_return`], to where it led before.

use runahead_estimators::value_predictor::{Caller, ELSEWHERE, FRAMES, LOCALS, Site};

use super::unshared_memory;
use crate::arch;
use crate::session;
use crate::sys;
use crate::thread_owned::Owned;

/// Most stack words that are searched.
const STACK_WORDS_MAX: u32 = 1024;

/// Purpose of a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReturnMode {
    /// Data was present: return values are noted.
    Learn,
    /// Data was present, but earlier data was missing: only the program's course is noted.
    Follow,
    /// Data was missing: expected values are returned.
    Expect,
    /// Data was missing: expected values are returned, also through pointers.
    ExpectAll,
}

/// A replaced return address.
#[derive(Clone, Copy)]
struct HookedReturn {
    /// Address of the replaced word.
    at: u64,
    caller: Caller,
    /// Number of words above the return address that may belong to the frame of the caller.
    locals: usize,
    /// Contents of these words at the time of the read.
    before: [u64; LOCALS],
    site: usize,
    mode: ReturnMode,
}

struct ReturnHooks {
    list: [HookedReturn; FRAMES],
    len: usize,
    newest: Option<NewestRead>,
    /// Site of the previous read, and its kind.
    before: Option<(usize, u32)>,
}

/// The newest read.
#[derive(Clone, Copy)]
struct NewestRead {
    site: usize,
    /// Depth of the outermost caller that was returned to since.
    reach: u32,
    /// Kind of the read before this one.
    before: u32,
    /// True if the data of the read was present.
    learned: bool,
}

const NO_HOOK: HookedReturn = HookedReturn {
    at: 0,
    caller: Caller { depth: 0, to: 0 },
    locals: 0,
    before: [0; LOCALS],
    site: 0,
    mode: ReturnMode::Learn,
};

static HOOKS: Owned<ReturnHooks> =
    Owned::new(ReturnHooks { list: [NO_HOOK; FRAMES], len: 0, newest: None, before: None });

/// Callers that were found last: a program reads mostly from where it read before.
static LAST_CALLERS: Owned<Callers> = Owned::new(NO_CALLERS);

const NO_CALLERS: Callers =
    Callers { stack: 0, list: [Caller { depth: 0, to: 0 }; FRAMES], len: 0 };

/// Return addresses above a stack pointer, innermost first. Some may be left over from calls that
/// have ended.
#[derive(Clone, Copy)]
pub(super) struct Callers {
    stack: u64,
    list: [Caller; FRAMES],
    len: usize,
}

impl Callers {
    /// Callers of a call that the program makes with its stack pointer at `stack`.
    pub(super) fn above(stack: u64) -> Self {
        // SAFETY: a runner, whose one thread is here; nothing else is held.
        let (places, watch, found) =
            unsafe { (unshared_memory::code_and_stack(), HOOKS.get(), LAST_CALLERS.get()) };
        if found.stack != stack || found.len == 0 || !found.are_unchanged(watch) {
            *found = Callers::find(stack, places, watch);
        }
        *found
    }

    fn find(stack: u64, places: &unshared_memory::CodeAndStack, watch: &ReturnHooks) -> Self {
        let mut callers = Callers { stack, ..NO_CALLERS };
        if !places.stack.contains(stack) || !stack.is_multiple_of(8) {
            return callers;
        }
        let words = STACK_WORDS_MAX.min(((places.stack.end - stack) / 8) as u32);
        for depth in 0..words {
            // SAFETY: within the mapping of the stack; a word that is not readable ends the runner.
            let Some((to, is_watched)) = (unsafe { watch.leads_to(word_at(stack, depth)) }) else {
                continue;
            };
            if !is_watched && !is_return_address(places, to) {
                continue;
            }
            callers.list[callers.len] = Caller { depth, to };
            callers.len += 1;
            if callers.len == FRAMES {
                break;
            }
        }
        callers
    }

    /// True if the callers are still in place: the program has come to the same point again, as in
    /// a loop.
    fn are_unchanged(&self, watch: &ReturnHooks) -> bool {
        self.list().iter().all(|caller| {
            // SAFETY: words of the stack that were read before.
            let word = unsafe { watch.leads_to(word_at(self.stack, caller.depth)) };
            word.is_some_and(|(to, _)| to == caller.to)
        })
    }

    pub(super) fn list(&self) -> &[Caller] {
        &self.list[..self.len]
    }

    /// Hooks the returns to these callers, for `site`, in order to learn values or to return
    /// expected ones.
    pub(super) fn hook(&self, site: usize, way: ReturnMode) {
        // SAFETY: as above.
        let watch = unsafe { HOOKS.get() };
        let (list, len) = (watch.list, watch.len);
        let earlier = &list[..len];
        let find = |at| earlier.iter().find(|w: &&HookedReturn| w.at == at);
        let (before, learned) = (watch.previous_kind(site), way == ReturnMode::Learn);
        watch.newest = Some(NewestRead { site, reach: 0, before, learned });
        watch.len = 0;
        let known = site_numbered(site);
        for (n, &caller) in self.list().iter().enumerate() {
            // Replacing a number that only looks like a return address would lead the program
            // astray.
            if !matches!(way, ReturnMode::Learn)
                && !known.is_some_and(|site| site.is_confirmed(caller))
            {
                continue;
            }
            let at = word_at(self.stack, caller.depth);
            let next = self.list().get(n + 1).map_or(caller.depth + 1, |next| next.depth);
            let locals = LOCALS.min((next - caller.depth - 1) as usize);
            let mut before = [0; LOCALS];
            for (n, word) in before[..locals].iter_mut().enumerate() {
                // SAFETY: between two words of the stack that were just read.
                *word = unsafe { (at as *const u64).add(1 + n).read_volatile() };
            }
            let new = HookedReturn { at, caller, locals, before, site, mode: way };
            // A hook of a read that missed its data is kept.
            let old = find(at).filter(|old| old.caller.to == caller.to);
            watch.list[watch.len] = *old
                .filter(|old| matches!(old.mode, ReturnMode::Expect | ReturnMode::ExpectAll))
                .unwrap_or(&new);
            watch.len += 1;
            // SAFETY: a word of the stack that was just read; a stack can be written.
            unsafe { (at as *mut u64).write_volatile(arch::return_watch()) };
        }
        for old in earlier.iter().filter(|old| old.at >= self.stack) {
            // SAFETY: as above, when it was replaced.
            let word = unsafe { &mut *(old.at as *mut u64) };
            if watch.find(old.at).is_none() && *word == arch::return_watch() {
                *word = old.caller.to;
            }
        }
    }
}

impl ReturnHooks {
    fn previous_kind(&self, site: usize) -> u32 {
        self.before.filter(|before| before.0 == site).map_or(ELSEWHERE, |before| before.1)
    }

    fn find(&self, at: u64) -> Option<&HookedReturn> {
        self.list[..self.len].iter().find(|w| w.at == at)
    }

    /// Target of the return address at `at`, and true if it is hooked. An unhooked word may be any
    /// number.
    ///
    /// # Safety
    /// The word can be read.
    unsafe fn leads_to(&self, at: u64) -> Option<(u64, bool)> {
        // SAFETY: the caller's promise.
        let word = unsafe { (at as *const u64).read_volatile() };
        if word != arch::return_watch() {
            return Some((word, false));
        }
        self.find(at).map(|watched| (watched.caller.to, true))
    }
}

fn word_at(stack: u64, depth: u32) -> u64 {
    stack + u64::from(depth) * 8
}

/// True if `at` lies in code, behind a call instruction.
fn is_return_address(places: &unshared_memory::CodeAndStack, at: u64) -> bool {
    let Some(start) = places.code_around(at) else { return false };
    let Some(before) = at.checked_sub(arch::CALL_BYTES as u64).filter(|b| *b >= start) else {
        return false;
    };
    // SAFETY: within a readable mapping of code.
    let bytes = unsafe { (before as *const [u8; arch::CALL_BYTES]).read_volatile() };
    arch::ends_in_call(&bytes)
}

/// Reports how far up the newest learned read has returned, at the next read.
pub(super) fn finish_newest_read() {
    // SAFETY: as above.
    let watch = unsafe { HOOKS.get() };
    watch.before = None;
    let Some(newest) = watch.newest.take() else { return };
    watch.before = Some((newest.site, newest.reach));
    if let Some(site) = site_numbered(newest.site).filter(|_| newest.learned) {
        site.settle(newest.before, newest.reach);
    }
}

/// Stops learning: data is missing, so what functions return from here on is no evidence.
pub(super) fn stop_learning() {
    // SAFETY: as above.
    let watch = unsafe { HOOKS.get() };
    let learning =
        watch.list[..watch.len].iter_mut().filter(|watched| watched.mode == ReturnMode::Learn);
    learning.for_each(|watched| watched.mode = ReturnMode::Follow);
}

/// Kind of the newest read, as seen from the next read, at `site`.
pub(super) fn kind_before(site: usize) -> u32 {
    // SAFETY: as above.
    unsafe { HOOKS.get() }.previous_kind(site)
}

/// The site of that number.
fn site_numbered(number: usize) -> Option<&'static Site> {
    session::get().map(|session| session.shared().sites.get(number))
}

/// Handles a return of the program through the word of the stack at `at`, with `value`, and writes
/// where it goes on.
///
/// Called by `arch` on the program's stack, outside of any dispatch.
pub(super) extern "C" fn after_return(value: &mut u64, at: &mut u64) {
    // SAFETY: a runner, whose one thread is here; nothing else is held.
    let watch = unsafe { HOOKS.get() };
    let Some(&watched) = watch.find(core::ptr::from_ref(at) as u64) else {
        // A copy of the word: its original target is unknown.
        sys::exit(1);
    };
    *at = watched.caller.to;
    if let Some(newest) = watch.newest.as_mut().filter(|newest| newest.site == watched.site) {
        newest.reach = newest.reach.max(watched.caller.depth);
    }
    let Some(site) = site_numbered(watched.site) else { return };
    // SAFETY: words of the stack above the one that was replaced, which the caller's frame reaches
    // up to.
    let locals =
        unsafe { core::slice::from_raw_parts_mut(watched.at as *mut u64, 1 + watched.locals) };
    let [_, locals @ ..] = locals else { return };
    match watched.mode {
        ReturnMode::Learn => {
            site.returned(watched.caller, *value, locals);
        }
        ReturnMode::Follow => {}
        ReturnMode::Expect => site.expect(watched.caller, value, &mut []),
        ReturnMode::ExpectAll => {
            let mut expected = [0; LOCALS];
            let expected = &mut expected[..locals.len()];
            expected.copy_from_slice(locals);
            site.expect(watched.caller, value, expected);
            for ((word, before), expected) in locals.iter_mut().zip(watched.before).zip(expected) {
                // Only words that were written since the read can be results.
                if *word != before {
                    *word = *expected;
                }
            }
        }
    }
}
