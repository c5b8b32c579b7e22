//! `runahead try`: a command whose changes are held apart does what it does natively, changes nothing
//! until it is committed, and then what it would have changed.

mod commit_and_undo;
mod confinement;
mod nested_tries;
mod same_results;
mod try_directory;
