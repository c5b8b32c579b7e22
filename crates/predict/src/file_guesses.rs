//! Files that nobody asked for: the neighbours of those that a program reads one after the other.
//!
//! A program that imports modules, or a script that sources files, reads what it has just learned
//! of, and a shadow cannot run ahead of that: all it has is one small file that is not there yet,
//! again and again. But such files lie together. So where a target itself has waited for several
//! files of one directory, the others there with the same suffix are brought in, after everything
//! that was hinted, by any client.
//!
//! How far to go is learned from what comes of it. Each directory and suffix has an *allowance* in
//! bytes, small at first. A guess that is used, that is, hinted or demanded later, raises it by
//! [`RETURN`](pattern_state::RETURN) times what it cost, so that guesses that are right multiply; a file that is
//! wanted before it was guessed raises it by about one file, or as many as that. Guesses that are
//! wrong raise nothing, and that is the end. (A guess that served a target which could see that the data was in memory
//! is not hinted any more. The client's log tells, when the next file is missed; without one, the
//! files that are missed carry the allowance on.) In addition all
//! first allowances of a client are paid from its *credit*, which grows with what it reads: a walk
//! that takes three files of each of many directories soon gets no more guesses.
//!
//! What has been right becomes a *habit*: after [`HABIT`] guesses that were used in directories of the
//! same name, the first file that a target waits for in another such one is evidence enough.
//!
//! Names are guessed in the same way, where a target has waited to look several of one directory up,
//! or one of a directory that it has listed (as python does, which lists a package, and asks for each
//! module's source before it reads what was compiled from it).
//!
//! A third kind are the directories that a program enters, each to look for the same few names
//! ([`lookup_pattern`]): from the third on, all of these are looked for when the first is, and in the
//! directory's siblings, as far as their allowance goes.
//!
//! A fourth are files that are named in those that were read ([`name_references`]).
//!
//! Invariants: what is spent in a directory is within its allowance, and so a client has guessed at
//! most [`CREDIT`] bytes, and a small multiple of what it wanted, in vain; a directory of more than
//! [`ENTRIES_MAX`] entries is left alone.

mod guess_counts;
mod guess_evidence;
mod guess_jobs;
mod guess_kind;
mod guess_state;
mod guess_task;
mod lookup_pattern;
mod name_references;
mod path_keys;
mod pattern_state;
mod reference_jobs;
mod sibling_directories;

pub use guess_counts::Tally;
pub use guess_kind::{KIND_NAMES, KINDS, Of};
pub use guess_state::Guesses;
pub use guess_task::{Errand, Outcome, Sent};
pub use name_references::{LISTED_MAX as NAMED_IN_MAX, SCAN_BYTES, tokens};
pub use pattern_state::ENTRIES_MAX;

#[cfg(test)]
#[path = "file_guesses_tests.rs"]
mod tests;
