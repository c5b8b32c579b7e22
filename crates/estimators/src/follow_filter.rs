//! Programs that need not be followed for a while.
//!
//! Scripts start the same few programs over and over. Where these stall on nothing, following them
//! only costs time: as much as half of what a short program takes. The supervisor enters these
//! programs here, each with a time (`supervisor::follow_policy`). A process that is about to
//! execute one of them does not ask to be followed.
//!
//! There is one table for a session, mapped as that of slow devices is ([`crate::slow_devices`]).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Ticks;
use crate::access_identity::mixed;

/// Programs that can be in the table.
pub const PROGRAMS_MAX: usize = 64;

/// Hash of a program's file (device and inode), alone or with the arguments that tell what it does;
/// never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramKey(u64);

impl ProgramKey {
    /// Key of the file `inode` on `device` (`runahead_abi::device_number`).
    pub fn new(device: u64, inode: u64) -> Self {
        ProgramKey(mixed(mixed(0, device), inode).max(1))
    }

    /// Key of this file called with the arguments `first` and `second`, as far as they tell what it
    /// does. That is the first one, which names a command or a script; of a command line (`-c`) the
    /// word with which it begins.
    pub fn called(self, first: &[u8], second: &[u8]) -> Self {
        let word = |hash, bytes: &[u8]| {
            let parts = bytes.chunks(8).map(|part| {
                let mut whole = [0; 8];
                whole[..part.len()].copy_from_slice(part);
                u64::from_le_bytes(whole)
            });
            parts.fold(mixed(hash, bytes.len() as u64), mixed)
        };
        let begin = second.split(|byte| *byte == b' ').next().filter(|_| first == b"-c");
        ProgramKey(word(word(self.0, first), begin.unwrap_or_default()).max(1))
    }

    /// Bytes of the key, as they are sent to the supervisor.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Converts sent bytes; any bytes are some key.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        ProgramKey(u64::from_le_bytes(bytes).max(1))
    }
}

#[repr(C)]
struct Program {
    /// [`ProgramKey`]; 0: none.
    key: AtomicU64,
    /// Time-stamp up to which it need not be followed.
    until_ticks: AtomicU64,
}

/// Table of programs that need not be followed, and until when.
#[repr(C)]
pub struct FollowFilter {
    programs: [Program; PROGRAMS_MAX],
}

impl FollowFilter {
    /// True if `key` need not be followed at `now`.
    pub fn has(&self, key: ProgramKey, now: Ticks) -> bool {
        let is_it =
            |p: &Program| p.key.load(Relaxed) == key.0 && p.until_ticks.load(Relaxed) > now.0;
        self.programs.iter().any(is_it)
    }

    /// Enters `key` as one that need not be followed up to `until`. There may be one writer at a
    /// time. A reader may meanwhile take a new entry for that of the program that had its slot.
    pub fn add(&self, key: ProgramKey, until: Ticks) {
        let known = self.programs.iter().find(|p| p.key.load(Relaxed) == key.0);
        let place =
            known.or_else(|| self.programs.iter().min_by_key(|p| p.until_ticks.load(Relaxed)));
        let Some(program) = place else { return };
        program.until_ticks.store(0, Relaxed);
        program.key.store(key.0, Relaxed);
        program.until_ticks.store(until.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_followed_again_when_their_time_is_over() {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        let table: FollowFilter = unsafe { core::mem::zeroed() };
        let key = |n| ProgramKey::new(1, n);
        assert!(!table.has(key(0), Ticks(0)));
        (0..PROGRAMS_MAX as u64).for_each(|n| table.add(key(n), Ticks(100 + n)));
        assert!(
            table.has(key(7), Ticks(106))
                && !table.has(key(7), Ticks(107))
                && !table.has(key(99), Ticks(0))
        );
        table.add(key(7), Ticks(50));
        assert!(table.has(key(7), Ticks(49)) && !table.has(key(7), Ticks(50)));
        table.add(key(99), Ticks(1_000));
        assert!(
            table.has(key(99), Ticks(500))
                && !table.has(key(7), Ticks(49))
                && table.has(key(0), Ticks(99))
        );
    }

    #[test]
    fn a_program_is_told_by_its_first_argument_and_a_command_line_by_its_first_word() {
        let git = ProgramKey::new(1, 2);
        assert_eq!(git.called(b"log", b"-1"), git.called(b"log", b"--all"));
        assert_ne!(git.called(b"log", b""), git.called(b"clone", b""));
        assert_ne!(git.called(b"log", b""), ProgramKey::new(1, 3).called(b"log", b""));
        assert_ne!(git.called(b"a long name, 1", b""), git.called(b"a long name, 2", b""));
        let line = |line: &[u8]| git.called(b"-c", line);
        assert_eq!(line(b"cc x.c"), line(b"cc y.c"));
        assert_ne!(line(b"cc x.c"), line(b"ld x.o"));
        assert_eq!(ProgramKey::from_bytes(git.to_bytes()), git);
    }
}
