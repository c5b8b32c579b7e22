//! Guesses: files that no hint names, mostly neighbours of files that a program reads one after the
//! other.
//!
//! A program that imports modules, or a script that sources files, learns the next name from what
//! it has just read. A shadow cannot run ahead of that: again and again it lacks one small file.
//! But such files lie together. So where a target itself has waited for several files of one
//! directory, the others there with the same suffix are read, after all hints of all clients.
//!
//! The amount is learned from the results. Each directory and suffix has an *allowance* in bytes,
//! small at first.
//! - A guess that is used, that is, hinted or demanded later, raises the allowance by
//!   [`RETURN`](pattern_state::RETURN) times its cost, so right guesses multiply.
//! - A file that is wanted before it was guessed raises the allowance by about one file, or by as
//!   many as that.
//! - Wrong guesses raise nothing, so guessing ends.
//!
//! A used guess is not hinted if the target saw that the data was in memory. The client's log tells
//! of it when the next file is missed. Without a log, the missed files carry the allowance on.
//!
//! In addition, all first allowances of a client are paid from its *credit*, which grows with what
//! it reads: a walk that takes three files of each of many directories soon gets no more guesses.
//!
//! Guesses that were right become a *habit*: after 8 (`HABIT`) used guesses in directories of the
//! same name, the first file that a target waits for in another such directory is evidence enough.
//!
//! Kinds of guesses ([`GuessKind`]):
//! - contents of files, as above;
//! - names, in the same way: where a target has waited for the lookup of several names of one
//!   directory, or of one name of a directory that it has listed. Python lists a package, and looks
//!   up each module's source before it reads the compiled file;
//! - sibling directories, each entered to look for the same few names (`lookup_pattern`). From the
//!   third directory on, all of these names are looked up when the first is, and also in the
//!   directory's siblings, as far as their allowance goes;
//! - files that are named in files that were read (`name_references`).
//!
//! Invariants: the spending in a directory is within its allowance. So a client has guessed at most
//! 4 MiB (`CREDIT`), and a small multiple of what it wanted, in vain. A directory of more than
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
pub use guess_kind::{GuessKind, KIND_NAMES, KINDS};
pub use guess_state::Guesses;
pub use guess_task::{GuessTask, Outcome, Sent};
pub use name_references::{LISTED_MAX as NAMED_IN_MAX, SCAN_BYTES, tokens};
pub use pattern_state::ENTRIES_MAX;

#[cfg(test)]
#[path = "file_guesses_tests.rs"]
mod tests;
