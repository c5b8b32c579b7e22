//! Mechanisms that can be switched off, one by one, to measure what each is worth.

use runahead_abi::agent_config::without;

/// Defines [`Without`]: a switch for each mechanism, and the agent's bit ([`without`]) of those in
/// its part.
macro_rules! mechanisms {
    ($($(#[$doc:meta])* $name:ident $(=> $bit:ident)?,)*) => {
        /// Mechanisms that are switched off; none by default.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Without {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Without {
            /// Names by which [`Without::switch_off`] knows the mechanisms.
            pub const NAMES: [&'static str; [$(stringify!($name)),*].len()] =
                [$(stringify!($name)),*];

            /// Switches off one more; false if there is none of this name.
            pub fn switch_off(&mut self, name: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name = true,)*
                    _ => return false,
                }
                true
            }

            /// Bits of the agent's part ([`without`]).
            pub fn bits(self) -> u64 {
                0 $($(| if self.$name { without::$bit } else { 0 })?)*
            }
        }
    };
}

mechanisms! {
    /// No value stands in for missing data: a shadow finds its buffers as they were.
    stale => STALE,
    /// No shadow runs a second time from the same point.
    again => AGAIN,
    /// Shadows may be ahead by any number of accesses.
    horizon,
    /// Every program is followed.
    unwatched,
    /// There are no shadows.
    shadows,
    /// The prefetcher does not guess from demands of the target.
    guesses,
    /// Directories are not expanded.
    expansion,
    /// Storage that serves one request at a time is read ahead like any other.
    sole,
    /// A fork copies all of a target's memory at each sync.
    mirrors => MIRRORS,
    /// A target's large memory is kept out of the fork at each sync, however little it is.
    copies => COPIES,
    /// Programs that are executed are not loaded ahead.
    programs,
    /// No guesses are made in sibling directories.
    siblings,
    /// Names that programs look for in one directory after another are not guessed.
    patterns,
    /// Agents see every call, also while nothing stalls.
    sampling => SAMPLING,
    /// Memory with `MADV_DONTFORK` is missing in shadows.
    dontfork => DONTFORK,
    /// Memory blocks that runs of a shadow touch are not copied ahead for the next run.
    touched => TOUCHED,
    /// No file of the same kind stands in for a file that is missing.
    exemplars => EXEMPLARS,
    /// Threads that wait at a time, of a process or a session, count one by one.
    concurrency => CONCURRENCY,
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
