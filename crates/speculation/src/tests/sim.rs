//! The tracker as a deterministic simulation: seeded worlds of processes, files, pipes and signals,
//! in virtual time.
//!
//! Each process runs a little program whose next operation follows from its registers
//! ([`program`]), so that it takes another path after it was taken back and has been answered
//! otherwise. The host ([`host`], [`resolve`]) lets processes go on with predictions, right and
//! wrong, keeps what undoes their changes, and carries out what the tracker says, on real state
//! ([`machine`]). Predictions are resolved in any order; some that are right are
//! failed all the same.
//!
//! The host notes each step, and strikes out those that are taken back ([`history`]). After each
//! step and each resolution the tracker is compared with what follows from the notes ([`checks`]).
//! At the end the steps that are left are made once more, in their order, on another machine, where
//! every question is answered at once and truly ([`model`]). It must come to the same: this is what
//! it means that what is taken back leaves no trace, that what is not does not depend on it, and
//! that all predictions that are left are right. That each rule is needed is shown by
//! planted violations ([`runs`]).

mod checks;
mod history;
mod host;
mod machine;
mod model;
mod program;
mod resolve;
mod runs;
