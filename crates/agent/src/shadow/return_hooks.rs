//! Stale values: what a read that has to do without its data brings instead, and what the program's
//! functions are taken to make of it.
//!
//! A program checks what it reads: a page of a database that is not of the kind that it must be is
//! an error, and the query ends. So a buffer left as it is, or cleared, leads nowhere. What leads on
//! is what the newest read from the same site brought, which is of the right kind; and where
//! the program finds that it is the wrong one all the same (a key that is not there), that its functions
//! return what they returned whenever the data was there.
//!
//! Where data is there, the return addresses above the read are replaced by an address of ours, and
//! what is returned by each is noted on the way ([`runahead_abi::value_predictor`]). Where it is not, they
//! are replaced, too, and what was always the same before is returned again, whatever the function
//! says now. It is a shadow's own stack; nobody else will see it.
//!
//! Invariant: a word of the stack that is replaced leads, through [`after_return`], to
//! where it led before.

use runahead_abi::value_predictor::{Caller, ELSEWHERE, FRAMES, LOCALS, Site};

use super::unshared_memory;
use crate::arch;
use crate::session;
use crate::sys;
use crate::thread_owned::Owned;

/// Words of the stack that are looked at.
const STACK_WORDS_MAX: u32 = 1024;

/// Why return addresses are watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReturnMode {
    /// Data was there: what is returned is noted.
    Learn,
    /// Data was there, but something before was not: only where the program goes is noted.
    Follow,
    /// Data was not there: what is expected is returned.
    Expect,
    /// Data was not there: what is expected is returned, and what is returned through pointers as well.
    ExpectAll,
}

/// A replaced return address.
#[derive(Clone, Copy)]
struct HookedReturn {
    /// Where the return address lies.
    at: u64,
    caller: Caller,
    /// Words above the return address that may be of the frame of the function that is returned to.
    locals: usize,
    /// The words above the return address, as they were at the read.
    before: [u64; LOCALS],
    site: usize,
    mode: ReturnMode,
}

struct ReturnHooks {
    list: [HookedReturn; FRAMES],
    len: usize,
    newest: Option<NewestRead>,
    /// The site of the read before, and its kind.
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
    /// The data of the read was there.
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

/// The callers that were found last: a program reads mostly from where it read before.
static LAST_CALLERS: Owned<Callers> = Owned::new(NO_CALLERS);

const NO_CALLERS: Callers =
    Callers { stack: 0, list: [Caller { depth: 0, to: 0 }; FRAMES], len: 0 };

/// The return addresses above a stack pointer, innermost first. Some may be left over from calls
/// that have ended.
#[derive(Clone, Copy)]
pub(super) struct Callers {
    stack: u64,
    list: [Caller; FRAMES],
    len: usize,
}

impl Callers {
    /// Of a call that the program makes with its stack pointer at `stack`.
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
        let (start, end) = places.stack;
        if !(start..end).contains(&stack) || !stack.is_multiple_of(8) {
            return callers;
        }
        let words = STACK_WORDS_MAX.min(((end - stack) / 8) as u32);
        for depth in 0..words {
            // SAFETY: within the mapping of the stack. (What is not readable in it ends the runner.)
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

    /// The callers are where they were found: the program has come there again, as in a loop.
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

    /// Has what is returned to these callers noted, or made as expected, for `site`.
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
            // Something else that looks like a return address would be led astray by us.
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
            // What has had to do without something goes on to be taken for the better.
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

    /// Where the word of the stack at `at` leads if it is a return address, and whether it is watched,
    /// and so is one.
    ///
    /// # Safety
    /// It can be read.
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

/// `at` lies in code, behind a call.
fn is_return_address(places: &unshared_memory::CodeAndStack, at: u64) -> bool {
    let Some(start) = places.code_around(at) else { return false };
    let Some(before) = at.checked_sub(arch::CALL_BYTES as u64).filter(|b| *b >= start) else {
        return false;
    };
    // SAFETY: within a readable mapping of code.
    let bytes = unsafe { (before as *const [u8; arch::CALL_BYTES]).read_volatile() };
    arch::ends_in_call(&bytes)
}

/// Another read: what became of the newest that was learned from is known.
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

/// Something is missing: what is returned from here on is not what it would be.
pub(super) fn stop_learning() {
    // SAFETY: as above.
    let watch = unsafe { HOOKS.get() };
    let learning =
        watch.list[..watch.len].iter_mut().filter(|watched| watched.mode == ReturnMode::Learn);
    learning.for_each(|watched| watched.mode = ReturnMode::Follow);
}

/// Of what kind the newest read was, seen from the next, which is from `site`.
pub(super) fn kind_before(site: usize) -> u32 {
    // SAFETY: as above.
    unsafe { HOOKS.get() }.previous_kind(site)
}

/// The site of that number.
fn site_numbered(number: usize) -> Option<&'static Site> {
    session::get().map(|session| session.shared().sites.get(number))
}

/// A function of the program returns through the word of the stack at `at`, with `value`: where it
/// goes on is written there.
///
/// Called by `arch`, on the program's stack, outside of any dispatch.
pub(super) extern "C" fn after_return(value: &mut u64, at: &mut u64) {
    // SAFETY: a runner, whose one thread is here; nothing else is held.
    let watch = unsafe { HOOKS.get() };
    let Some(&watched) = watch.find(core::ptr::from_ref(at) as u64) else {
        // A copy of the word: where it should lead is not known.
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
                // Only what was written since can be a result.
                if *word != before {
                    *word = *expected;
                }
            }
        }
    }
}
