//! The oracle: the same command while other threads make every access that it will make, from the
//! start and in parallel.
//!
//! A recorded run ([`record_run`], with strace) gives the accesses in order ([`access_list`]);
//! [`replay_accesses`] makes them from as many threads as the storage serves requests, released at
//! the moment at which the command starts. The oracle has perfect knowledge and costs the command
//! nothing but shared processors: what remains is the command's own work and the storage's latency
//! for what depends on something else. It is a mark to steer by; a run under runahead can be
//! faster.

pub mod access_list;
pub mod record_run;
pub mod replay_accesses;
mod strace_lines;
