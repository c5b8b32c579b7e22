//! Measuring: slow storage, runs of a command, the oracle.

pub mod bench_run;
pub mod busy_processors;
pub mod control_group;
pub mod job_run;
pub mod oracle;
pub mod redis_load;
pub mod resident_memory;
pub mod row_measurement;
pub mod rubbish_hints;
pub mod run_outcome;
pub mod runahead_prefix;
pub mod running_command;
pub mod slow_storage;
pub mod speculation_cost;
pub mod sync_cost;
pub mod user_files;
pub mod warm_programs;
