//! The children of a process that a runner is, or is a child of.

use crate::thread_owned::Owned;

/// Children that are kept in mind.
const CHILDREN: usize = 32;
/// The first number that no process has (`PID_MAX_LIMIT`, linux/threads.h).
const PIDS_END: u32 = 1 << 22;

/// Children of the thread that makes a shadow, for the shadow: how many, and their numbers.
pub(crate) static WAITED_FOR: Owned<(usize, [u32; CHILDREN])> = Owned::new((0, [0; CHILDREN]));

/// In a shadow: the children that the target had.
pub(super) fn waited_for() -> &'static [u32] {
    // SAFETY: a new process with one thread, which does not change it.
    let (len, list) = unsafe { WAITED_FOR.get() };
    &list[..*len]
}

/// Children that nobody has waited for, the oldest first.
pub(super) struct Children {
    list: [u32; CHILDREN],
    pub(super) len: usize,
    /// The number that the next child gets.
    pub(super) next: u32,
    pub(super) made: u32,
    /// How far this process is from the runner that its template made.
    pub(super) depth: u32,
    /// Accesses that this process may still make, if it is not that runner.
    pub(super) left: u64,
    /// This process has tried to execute something that is not in memory.
    pub(super) tried: bool,
}

impl Children {
    pub(super) fn new(inherited: &[u32]) -> Self {
        let mut list = [0; CHILDREN];
        let len = inherited.len().min(CHILDREN);
        list[..len].copy_from_slice(&inherited[..len]);
        // No process has such a number.
        Children { list, len, next: PIDS_END, made: 0, depth: 0, left: 0, tried: false }
    }

    pub(super) fn add(&mut self, pid: u32) {
        if self.len == CHILDREN {
            self.list.copy_within(1.., 0);
            self.len -= 1;
        }
        self.list[self.len] = pid;
        self.len += 1;
    }

    /// The child `which`, or the oldest. It stays if `keep`.
    pub(super) fn take(&mut self, which: Option<u32>, keep: bool) -> Option<u32> {
        let known = &self.list[..self.len];
        let at = known.iter().position(|&pid| which.is_none_or(|which| which == pid))?;
        let pid = known[at];
        if !keep {
            self.list.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
        Some(pid)
    }

    /// This process is a child of a runner.
    pub(super) fn is_child(&self) -> bool {
        self.depth > 0
    }

    /// One more access of a child; false if those were enough.
    pub(super) fn may_access(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// There are, or were, others who could write into a pipe.
    pub(super) fn is_family(&self) -> bool {
        self.len > 0 || self.made > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_waited_for_once_and_in_order() {
        let mut children = Children::new(&[7, 8]);
        children.add(9);
        assert_eq!(children.take(Some(8), true), Some(8));
        assert_eq!(children.take(Some(8), false), Some(8));
        assert_eq!(children.take(Some(8), false), None);
        assert_eq!(children.take(None, false), Some(7));
        assert_eq!(children.take(None, false), Some(9));
        assert_eq!(children.take(None, false), None);
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut children = Children::new(&[]);
        (1..=CHILDREN as u32 + 1).for_each(|pid| children.add(pid));
        assert_eq!(children.take(None, false), Some(2));
    }
}
