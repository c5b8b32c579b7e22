//! Whatever goes wrong on our side, or is taken away, the program's result is right, and what was
//! lost is said in `--stats`.
//!
//! Each command is run twice with the same thing taken away (by `confine`), natively and under
//! runahead, and output, complaints, end and files are compared. `RUNAHEAD_FULL=1` runs all cases,
//! otherwise there is a sample.

mod agent_panics;
mod confined_runs;
mod full_disk;
mod fuse_servers;
mod killed_commands;
mod killed_processes;
mod memory_limit;
mod missing_facilities;
mod planted_differences;
mod process_limit;
mod resource_limits;
