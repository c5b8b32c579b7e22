//! Prefetching: what programs wait for is read ahead, within bounds.

mod ablation;
mod call_sampling;
mod disclosure;
mod follow_policy;
mod history;
mod mapped_files;
mod memory_bounds;
mod missing_data;
mod short_processes;
mod swapped_memory;
