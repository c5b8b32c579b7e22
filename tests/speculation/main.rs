//! Speculative execution: clients, reading ahead beside it, mapped files, and killed processes.

mod client_programs;
mod interrupted_waits;
mod killed_processes;
mod mapped_files;
mod read_ahead;
