//! Speculative execution: clients, reading ahead beside it, and processes that are killed.

mod client_programs;
mod killed_processes;
mod read_ahead;
