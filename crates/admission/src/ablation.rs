//! Mechanisms that can be switched off, one by one, to measure what each is worth.

use runahead_abi::agent_config::without;

/// What is switched off; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Without {
    /// Nothing stands in for data that is missing: a shadow finds its buffers as they were.
    pub stale: bool,
    /// No shadow runs a second time from the same point.
    pub again: bool,
    /// Shadows that are not worth what they cost are not stopped.
    pub memory: bool,
    /// Shadows may be ahead by any number of accesses.
    pub horizon: bool,
    /// Every program is followed.
    pub unwatched: bool,
    /// There are no shadows.
    pub shadows: bool,
    /// Nobody guesses from what the target waits for.
    pub guesses: bool,
    /// Directories are not expanded.
    pub expansion: bool,
    /// Storage that serves one request at a time is read ahead like any other.
    pub sole: bool,
    /// All of a target's memory is copied by a fork at each sync.
    pub mirrors: bool,
    /// A target's large memory is kept out of the fork at each sync, however little it is.
    pub copies: bool,
}

impl Without {
    /// Names by which [`Without::switch_off`] knows the mechanisms.
    pub const NAMES: [&'static str; 11] = [
        "stale",
        "again",
        "memory",
        "horizon",
        "unwatched",
        "shadows",
        "guesses",
        "expansion",
        "sole",
        "mirrors",
        "copies",
    ];

    /// Switches off one more; false if there is none of this name.
    pub fn switch_off(&mut self, name: &str) -> bool {
        let which = match name {
            "stale" => &mut self.stale,
            "again" => &mut self.again,
            "memory" => &mut self.memory,
            "horizon" => &mut self.horizon,
            "unwatched" => &mut self.unwatched,
            "shadows" => &mut self.shadows,
            "guesses" => &mut self.guesses,
            "expansion" => &mut self.expansion,
            "sole" => &mut self.sole,
            "mirrors" => &mut self.mirrors,
            "copies" => &mut self.copies,
            _ => return false,
        };
        *which = true;
        true
    }

    /// What is switched off, as the agent is told.
    pub fn bits(self) -> u64 {
        let stale = if self.stale { without::STALE } else { 0 };
        let again = if self.again { without::AGAIN } else { 0 };
        let mirrors = if self.mirrors { without::MIRRORS } else { 0 };
        let copies = if self.copies { without::COPIES } else { 0 };
        stale | again | mirrors | copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_switches_off_one_and_no_other_name_any() {
        let seen = Without::NAMES.map(|name| {
            let mut without = Without::default();
            assert!(without.switch_off(name), "{name}");
            without
        });
        for (n, one) in seen.iter().enumerate() {
            assert_ne!(*one, Without::default());
            assert!(seen[..n].iter().all(|other| other != one), "{one:?} twice");
        }
        let mut without = Without::default();
        assert!(!without.switch_off("all") && without == Without::default());
    }

    #[test]
    fn the_agent_is_told_of_its_own_part() {
        let mut all = Without::default();
        assert!(Without::NAMES.iter().all(|name| all.switch_off(name)));
        let mine = Without { stale: false, again: false, mirrors: false, copies: false, ..all };
        assert_eq!(mine.bits(), 0);
        for (one, bit) in [
            (Without { stale: true, ..mine }, without::STALE),
            (Without { again: true, ..mine }, without::AGAIN),
            (Without { mirrors: true, ..mine }, without::MIRRORS),
            (Without { copies: true, ..mine }, without::COPIES),
        ] {
            assert_eq!(one.bits(), bit);
        }
    }
}
