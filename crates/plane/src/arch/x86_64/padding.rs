//! Padding within reach of a call site, proved to be never executed.
//!
//! Compilers fill the space before an aligned function or loop with instructions that do nothing.
//! Where they stand behind a `ret` or `jmp`, they are not executed: that is room for a long jump,
//! to which the two bytes of a system call instruction, made a short jump, can lead.
//!
//! What is proved, from the bytes of one page alone (that page is there: it was executed):
//! - The instruction before the padding is one, and nothing goes on behind it. *Ahead of* the site
//!   every instruction is decoded, from the site on. *Behind* it no boundary is known; but an
//!   instruction has at most fifteen bytes, so among fifteen bytes in a row one starts one, and
//!   when all that could do so lead to that same `ret`, the true one does.
//! - The padding ends at an aligned address, as padding does.
//! - No jump, call or address computation of this page leads into it: exactly for what was
//!   decoded; for all else at any byte, be it an instruction or not.
//!
//! What is assumed: that no code keeps the address of a padding in a table, or jumps to it from
//! another page; that no function begins with a long `nop` shortly before an aligned address; and
//! that the bytes looked at are code.

use super::SYSCALL;
use super::instruction_decoder::{Flags, Flow, Instruction, LONGEST, Undecoded, decode};
#[cfg(test)]
use super::planted_mistakes;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Bytes before the page that are looked at, so that what is at its front can be proved too.
pub const RUN_UP: usize = 128;
/// Bytes behind it, for what its last instructions lead to.
pub const RUN_OUT: usize = 64;
/// Bytes of the page of a site, and around it. A byte that is not mapped is [`ABSENT`].
pub type Window = [u8; END];
/// A byte with which no instruction begins.
pub const ABSENT: u8 = 0x06;
pub(super) const END: usize = PAGE_END + RUN_OUT;
const PAGE_END: usize = RUN_UP + PAGE_BYTES;
/// Bytes of a long jump.
pub const LONG_JUMP: usize = 5;
/// Most bytes of instructions before a call that a stub has room for a copy of.
pub(super) const RUN_MAX: usize = 17;
/// Byte that fills the rest of a used padding, and of a stub.
pub const INT3: u8 = 0xcc;
/// Alignment of functions and loops by compilers, in bytes.
const ALIGNED: usize = 16;
/// Reach of a short jump in bytes, on either side of its end.
const BACK: usize = 128;
const AHEAD: usize = 127;

/// Code around a site; offsets are in its window.
pub struct Code<'a> {
    pub(super) bytes: &'a Window,
    /// Offset where the stub continues to which a jump leads that ends at an offset and has this
    /// distance, if it leads to one.
    stub_return: &'a StubReturn<'a>,
}

/// Function that returns the offset where a stub continues, of a jump by its end and distance.
pub type StubReturn<'a> = dyn Fn(usize, i32) -> Option<usize> + 'a;

/// Offsets: the first byte of free padding, and the first byte behind it.
pub type Padding = core::ops::Range<usize>;

impl<'a> Code<'a> {
    /// `stub_return` is asked of jumps that may lead to stubs.
    pub fn new(bytes: &'a Window, stub_return: &'a StubReturn<'a>) -> Self {
        Code { bytes, stub_return }
    }

    /// The instruction at `at`. Where a call site is patched, it is what was there: execution goes
    /// on behind it, and of longer jumps some of the old bytes are left.
    fn decode(&self, at: usize) -> Result<Instruction, Undecoded> {
        #[cfg(test)]
        if planted_mistakes::is(planted_mistakes::RETURN_IN_OPERAND)
            && self.bytes[at..].starts_with(&[0x89, 0xc3])
        {
            let flags = Flags::Unchanged;
            return Ok(Instruction { len: 2, flow: Flow::Leaves, flags, is_filler: false });
        }
        let decoded = decode(&self.bytes[at..])?;
        let Flow::Jump(distance) = decoded.flow else { return Ok(decoded) };
        let end = at + decoded.len;
        if decoded.len == LONG_JUMP
            && let Some(back) = (self.stub_return)(end, distance)
        {
            return Ok(match self.displaced_end(end, back) {
                // The call and the comparison behind it.
                Some(end) if end == back => {
                    Instruction { len: end - at, flow: Flow::On, flags: Flags::New, ..decoded }
                }
                // What is no longer there may have read them.
                Some(end) => {
                    Instruction { len: end - at, flow: Flow::On, flags: Flags::Read, ..decoded }
                }
                // In padding.
                None => decoded,
            });
        }
        let is_patched = decoded.len == 2
            && end.checked_add_signed(distance as isize).is_some_and(|to| self.is_long_jump(to));
        Ok(if is_patched { Instruction { flow: Flow::On, ..decoded } } else { decoded })
    }

    /// End of what a jump has displaced, up to the call where that stays: the jump ends at `end`,
    /// and its stub continues at `back`. `None` if the jump has displaced nothing.
    fn displaced_end(&self, end: usize, back: usize) -> Option<usize> {
        const LEFT_OF_COMPARISON: usize = 3;
        const LEFT_OF_RUN: usize = RUN_MAX - LONG_JUMP;
        if back == end + LEFT_OF_COMPARISON {
            return Some(back);
        }
        let call = back.checked_sub(SYSCALL.len())?;
        let is_near = (end..=end + LEFT_OF_RUN).contains(&call);
        (is_near && self.bytes.get(call..back) == Some(&SYSCALL)).then_some(call)
    }

    /// A jump to a stub is there.
    fn is_long_jump(&self, at: usize) -> bool {
        matches!(
            self.bytes.get(at..at + LONG_JUMP).map(decode),
            Some(Ok(Instruction { len: LONG_JUMP, flow: Flow::Jump(distance), .. }))
                if (self.stub_return)(at + LONG_JUMP, distance).is_some()
        )
    }

    /// The end of the padding that starts at `at`: the next aligned address. `at` itself if there
    /// is none; and what is aligned already may be a function that begins with room for a patch.
    fn end_of_filler(&self, at: usize) -> usize {
        let aligned = at.next_multiple_of(ALIGNED);
        let mut end = at;
        while end < aligned
            && let Ok(next) = decode(&self.bytes[end..])
            && next.is_filler
            // Assemblers begin with the long ones.
            && (end > at || next.len > 2 || self.bytes[at] == INT3)
        {
            end += next.len;
        }
        if end == aligned { end } else { at }
    }

    /// The call at `site` leaves the flags alone; does the code behind it want to know them?
    /// `false` also when that cannot be seen.
    pub fn wants_flags(&self, site: usize) -> bool {
        const ENOUGH: usize = 32;
        #[cfg(test)]
        if planted_mistakes::is(planted_mistakes::FLAGS_ARE_FREE) {
            return false;
        }
        let mut at = site + 2;
        for _ in 0..ENOUGH {
            if at >= END {
                return true;
            }
            let Ok(next) = self.decode(at) else { return false };
            // No function gets or gives anything in them, but who knows where other jumps lead?
            let is_return = matches!(self.bytes[at..], [0xc2 | 0xc3, ..] | [0xf2 | 0xf3, 0xc3, ..]);
            at += next.len;
            match (next.flags, next.flow) {
                (Flags::Read, _) => return true,
                (Flags::Unchanged, Flow::Leaves) => return !is_return,
                (Flags::Unchanged, Flow::On) => {}
                (Flags::Unchanged, Flow::Jump(distance)) => {
                    match at.checked_add_signed(distance as isize) {
                        Some(to) if to < END => at = to,
                        // To another function.
                        _ => return false,
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// Unreachable padding to which a short jump at `site` can lead.
    pub fn padding(&self, site: usize) -> Option<Padding> {
        let from = site + 2;
        let ahead = Walk::new(self, from, from + AHEAD + ALIGNED);
        let near = |p: &&Padding| p.start <= from + AHEAD;
        let mut candidates = ahead.paddings().iter().filter(near).cloned();
        let before = self.walk_to(site);
        candidates
            .find(|padding| self.is_free(padding, [&before, &ahead]))
            .or_else(|| self.padding_behind(site, [&before, &ahead]))
    }

    /// Code before the site, from as far as is useful.
    fn walk_to(&self, site: usize) -> Walk {
        (site.saturating_sub(2 * BACK)..site)
            .filter(|&at| self.is_boundary(at))
            .map(|at| Walk::straight(self, at, site))
            .find(|walk| walk.at == site)
            .unwrap_or_else(|| Walk::nothing(site))
    }

    fn padding_behind(&self, site: usize, walks: [&Walk; 2]) -> Option<Padding> {
        let nearest = site & !(ALIGNED - 1);
        let ends = (0..=BACK / ALIGNED).map(|n| nearest - n * ALIGNED);
        ends.take_while(|&end| end > RUN_UP).find_map(|end| {
            let first = (site + 2 - BACK).max(end - (ALIGNED - 1));
            (first..=end - LONG_JUMP)
                .filter(|&start| self.end_of_filler(start) == end && self.is_behind_end(start))
                .map(|start| start..end)
                .find(|padding| {
                    // Behind the padding's end starts some instruction: decoding there has to come
                    // out at the site.
                    Walk::straight(self, end, site).at == site && self.is_free(padding, walks)
                })
        })
    }

    /// True if an instruction ends at `start`, and does not go on behind itself.
    fn is_behind_end(&self, start: usize) -> bool {
        self.all_lead_to(start, |flow| matches!(flow, Flow::Jump(_) | Flow::Leaves))
    }

    /// True if an instruction of the code before `start` ends there.
    pub fn is_boundary(&self, start: usize) -> bool {
        #[cfg(test)]
        if planted_mistakes::is(planted_mistakes::ANY_NUMBER) {
            return true;
        }
        self.all_lead_to(start, |_| true)
    }

    /// True if execution from each of fifteen bytes in a row before `start` comes to an instruction
    /// that ends there and satisfies `fits`.
    fn all_lead_to(&self, start: usize, fits: impl Fn(Flow) -> bool) -> bool {
        let base = start.saturating_sub(RUN_UP);
        let mut leads = [Leads::Nowhere; RUN_UP];
        let mut in_a_row = 0;
        let mut sure = false;
        for at in (base..start).rev() {
            let lead = match self.decode(at) {
                Err(Undecoded::Impossible) => Leads::IsNone,
                Ok(next) if at + next.len == start && fits(next.flow) => Leads::There,
                Ok(next) if at + next.len < start => leads[at + next.len - base],
                _ => Leads::Nowhere,
            };
            leads[at - base] = lead;
            (in_a_row, sure) = match lead {
                Leads::Nowhere => (0, false),
                Leads::IsNone => (in_a_row + 1, sure),
                Leads::There => (in_a_row + 1, true),
            };
            if in_a_row >= LONGEST && sure {
                return true;
            }
        }
        false
    }

    /// True if no code in sight leads into the padding; `walks` have been decoded.
    fn is_free(&self, padding: &Padding, walks: [&Walk; 2]) -> bool {
        #[cfg(test)]
        if planted_mistakes::is(planted_mistakes::NOBODY_JUMPS) {
            return true;
        }
        let inside = |to: i64| (padding.start as i64..padding.end as i64).contains(&to);
        if walks.iter().any(|walk| walk.targets().iter().any(|&to| inside(to))) {
            return false;
        }
        // The padding's own bytes are never executed as instructions.
        let outside = |at: usize, len: usize| at + len <= padding.start || at >= padding.end;
        // A distance of four bytes that ends inside, in whatever instruction.
        let far = self.bytes.windows(4).enumerate().any(|(at, d)| {
            let distance = i32::from_le_bytes([d[0], d[1], d[2], d[3]]);
            inside(at as i64 + 4 + i64::from(distance)) && outside(at, 4)
        });
        // A short jump, where instructions were not decoded.
        let near = padding.start.saturating_sub(BACK + 2)..(padding.end + BACK).min(END - 1);
        let unknown = |at: &usize| !walks.iter().any(|walk| walk.covers(*at)) && outside(*at, 1);
        !far && !near.filter(unknown).any(|at| {
            matches!(self.bytes[at], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb)
                && inside(at as i64 + 2 + i64::from(self.bytes[at + 1] as i8))
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    There,
    Nowhere,
    /// No instruction starts here.
    IsNone,
}

/// Code decoded in a row.
struct Walk {
    from: usize,
    /// Offset where decoding ended.
    at: usize,
    targets: [i64; 48],
    known: usize,
    paddings: [Padding; 8],
    found: usize,
}

impl Walk {
    fn nothing(from: usize) -> Self {
        let paddings = [const { 0..0 }; 8];
        Walk { from, at: from, targets: [0; 48], known: 0, paddings, found: 0 }
    }

    /// Decodes from `from` to `to`, over everything.
    fn straight(code: &Code<'_>, from: usize, to: usize) -> Self {
        let mut walk = Walk::nothing(from);
        while walk.at < to && walk.step(code).is_some() {}
        walk
    }

    /// Decodes from `from` on while it is sure to be code, until `to` and paddings are found.
    fn new(code: &Code<'_>, from: usize, to: usize) -> Self {
        let mut walk = Walk::nothing(from);
        while walk.at < to.min(END) {
            let Some(flow) = walk.step(code) else { break };
            if !matches!(flow, Flow::Jump(_) | Flow::Leaves) {
                continue;
            }
            let end = code.end_of_filler(walk.at);
            if end - walk.at >= LONG_JUMP && end <= PAGE_END && walk.found < walk.paddings.len() {
                walk.paddings[walk.found] = walk.at..end;
                walk.found += 1;
            }
            // Behind the end of code there may be data, unless a jump leads there, or it was
            // aligned like code.
            let is_code = end > walk.at || walk.targets().contains(&(walk.at as i64));
            walk.at = end;
            if !is_code && !end.is_multiple_of(ALIGNED) {
                break;
            }
        }
        walk
    }

    fn step(&mut self, code: &Code<'_>) -> Option<Flow> {
        if self.at >= END {
            return None;
        }
        let next = code.decode(self.at).ok()?;
        let end = self.at + next.len;
        if let Flow::Perhaps(distance) | Flow::Jump(distance) = next.flow {
            *self.targets.get_mut(self.known)? = end as i64 + i64::from(distance);
            self.known += 1;
        }
        self.at = end;
        Some(next.flow)
    }

    fn targets(&self) -> &[i64] {
        &self.targets[..self.known]
    }

    fn paddings(&self) -> &[Padding] {
        &self.paddings[..self.found]
    }

    fn covers(&self, at: usize) -> bool {
        (self.from..self.at).contains(&at)
    }
}

#[cfg(test)]
mod tests;
