//! Mechanisms that can be switched off, one by one, to measure what each is worth.

use runahead_abi::agent_config::without;

/// Mechanisms that are switched off; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Without {
    /// No value stands in for missing data: a shadow finds its buffers as they were.
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
    /// The prefetcher does not guess from demands of the target.
    pub guesses: bool,
    /// Directories are not expanded.
    pub expansion: bool,
    /// Storage that serves one request at a time is read ahead like any other.
    pub sole: bool,
    /// A fork copies all of a target's memory at each sync.
    pub mirrors: bool,
    /// A target's large memory is kept out of the fork at each sync, however little it is.
    pub copies: bool,
    /// Programs that are executed are not loaded ahead.
    pub programs: bool,
    /// No guesses are made in sibling directories.
    pub siblings: bool,
    /// Names that programs look for in one directory after another are not guessed.
    pub patterns: bool,
    /// Agents see every call, also while nothing stalls.
    pub sampling: bool,
    /// Memory with `MADV_DONTFORK` is missing in shadows.
    pub dontfork: bool,
    /// Memory blocks that runs of a shadow touch are not copied ahead for the next run.
    pub touched: bool,
    /// No file of the same kind stands in for a file that is missing.
    pub exemplars: bool,
    /// Threads that wait at a time, of a process or a session, count one by one.
    pub concurrency: bool,
}

impl Without {
    /// Names by which [`Without::switch_off`] knows the mechanisms.
    pub const NAMES: [&'static str; 19] = [
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
        "programs",
        "siblings",
        "patterns",
        "sampling",
        "dontfork",
        "touched",
        "exemplars",
        "concurrency",
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
            "programs" => &mut self.programs,
            "siblings" => &mut self.siblings,
            "patterns" => &mut self.patterns,
            "sampling" => &mut self.sampling,
            "dontfork" => &mut self.dontfork,
            "touched" => &mut self.touched,
            "exemplars" => &mut self.exemplars,
            "concurrency" => &mut self.concurrency,
            _ => return false,
        };
        *which = true;
        true
    }

    /// Bits of the agent's part ([`without`]).
    pub fn bits(self) -> u64 {
        let parts = [
            (self.stale, without::STALE),
            (self.again, without::AGAIN),
            (self.mirrors, without::MIRRORS),
            (self.copies, without::COPIES),
            (self.sampling, without::SAMPLING),
            (self.dontfork, without::DONTFORK),
            (self.touched, without::TOUCHED),
            (self.exemplars, without::EXEMPLARS),
            (self.concurrency, without::CONCURRENCY),
        ];
        parts.iter().filter(|(is_off, _)| *is_off).fold(0, |bits, (_, bit)| bits | bit)
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
        let mut mine = all;
        for part in [
            &mut mine.stale,
            &mut mine.again,
            &mut mine.mirrors,
            &mut mine.copies,
            &mut mine.sampling,
            &mut mine.dontfork,
            &mut mine.touched,
            &mut mine.exemplars,
            &mut mine.concurrency,
        ] {
            *part = false;
        }
        assert_eq!(mine.bits(), 0);
        for (one, bit) in [
            (Without { stale: true, ..mine }, without::STALE),
            (Without { again: true, ..mine }, without::AGAIN),
            (Without { mirrors: true, ..mine }, without::MIRRORS),
            (Without { copies: true, ..mine }, without::COPIES),
            (Without { sampling: true, ..mine }, without::SAMPLING),
            (Without { dontfork: true, ..mine }, without::DONTFORK),
            (Without { touched: true, ..mine }, without::TOUCHED),
            (Without { exemplars: true, ..mine }, without::EXEMPLARS),
            (Without { concurrency: true, ..mine }, without::CONCURRENCY),
        ] {
            assert_eq!(one.bits(), bit);
        }
    }
}
