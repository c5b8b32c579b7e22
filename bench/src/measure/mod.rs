//! Measuring: slow storage, runs of a command, the oracle.

pub mod bench_run;
pub mod busy_processors;
pub mod command_runner;
pub mod debian_system;
pub mod everyday;
pub mod oracle;
pub mod outcome_difference;
pub mod redis_load;
pub mod resident_memory;
pub mod row_measurement;
pub mod rubbish_hints;
pub mod slow_storage;
pub mod speculation_cost;
pub mod surroundings;
pub mod sync_cost;
pub mod warm_programs;
