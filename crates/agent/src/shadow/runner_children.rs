//! Children of the processes of a run.

use crate::thread_owned::Owned;

/// Most children that are remembered.
const CHILDREN_MAX: usize = 32;
/// First number that is no PID (`PID_MAX_LIMIT`, linux/threads.h).
const PIDS_END: u32 = 1 << 22;

/// Children of the thread that makes a shadow: their count and PIDs.
pub(crate) static TARGET_CHILDREN: Owned<(usize, [u32; CHILDREN_MAX])> =
    Owned::new((0, [0; CHILDREN_MAX]));

/// Children that the target had when the shadow was made.
pub(super) fn target_children() -> &'static [u32] {
    // SAFETY: a new process with one thread, which does not change it.
    let (len, list) = unsafe { TARGET_CHILDREN.get() };
    &list[..*len]
}

/// Children that were not waited for, oldest first.
pub(super) struct Children {
    list: [u32; CHILDREN_MAX],
    pub(super) len: usize,
    /// PID of the next child.
    pub(super) next_pid: u32,
    pub(super) forks: u32,
    /// Number of forks between the template's runner and this process.
    pub(super) depth: u32,
    /// Accesses left to this process, if it is a child.
    pub(super) accesses_left: u64,
    /// True if this process has tried to execute a file that is not in memory.
    pub(super) has_tried_exec: bool,
}

impl Children {
    pub(super) fn new(inherited: &[u32]) -> Self {
        let mut list = [0; CHILDREN_MAX];
        let len = inherited.len().min(CHILDREN_MAX);
        list[..len].copy_from_slice(&inherited[..len]);
        // No process has such a number.
        Children {
            list,
            len,
            next_pid: PIDS_END,
            forks: 0,
            depth: 0,
            accesses_left: 0,
            has_tried_exec: false,
        }
    }

    pub(super) fn add(&mut self, pid: u32) {
        if self.len == CHILDREN_MAX {
            self.list.copy_within(1.., 0);
            self.len -= 1;
        }
        self.list[self.len] = pid;
        self.len += 1;
    }

    /// Finds the child `which`, or the oldest, and removes it unless `keep`.
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

    /// True if this process is a child of a runner.
    pub(super) fn is_child(&self) -> bool {
        self.depth > 0
    }

    /// Takes one of a child's accesses; false if none is left.
    pub(super) fn take_access(&mut self) -> bool {
        self.accesses_left = self.accesses_left.saturating_sub(1);
        self.accesses_left > 0
    }

    /// True if this process has or had children, which could write into a pipe.
    pub(super) fn has_had_children(&self) -> bool {
        self.len > 0 || self.forks > 0
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
    fn the_oldest_of_too_many_children_are_forgotten() {
        let mut children = Children::new(&[]);
        (1..=CHILDREN_MAX as u32 + 1).for_each(|pid| children.add(pid));
        assert_eq!(children.take(None, false), Some(2));
    }
}
