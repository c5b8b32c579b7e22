//! Committed speculation: a process continues on a predicted result and is rolled back if the
//! prediction was wrong (Nightingale 2005, sections 4 and 5).
//!
//! | part | what it does |
//! | --- | --- |
//! | `program_interface` | requests of the program about its predictions; the session's table |
//! | `policy` | decides about each call, signal and fault while a process speculates |
//! | `fast_path` | calls that need no signal |
//! | `target_prefetch` | reading ahead, by the target's policy, for calls that pass |
//! | `call_table`, `execute_call` | calls that need not wait: the table, and how they are made |
//! | `checkpoint` | state of the process; changes it with all threads stopped |
//! | `process_checkpoints` | stack of open speculations: checkpoint, commit, rollback |
//! | `memory_checkpoints` | program memory at each checkpoint: mirror or write faults |
//! | `writable_regions`, `mapping_calls` | the program's memory and mappings |
//! | `page_undo_log` | undo log of pages |
//! | `memory_mirror`, `dirty_pages`, `userfault_fd` | memory where the kernel tracks dirty pages |
//! | `write_faults`, `writable_groups`, `user_buffers` | elsewhere: copies before the first store |
//! | `thread_states` | frames of all threads, and memory that the kernel writes by itself (rseq) |
//! | `undo_journal`, `descriptor_table` | private state: descriptors, offsets, mappings |
//! | `child_processes` | forks, which depend on their parent |
//! | `child_execs` | programs that such children execute |
//! | `child_private_calls` | calls of such children that need no undo |
//! | `signal_masks` | the program's signal mask, while all signals are blocked |
//! | `output_buffer` | output, until what it depends on is committed |
//! | `mapped_files` | files that processes map, for which no output is held |
//! | `write_capacity` | how much a stream or a file certainly accepts |
//! | `pipe_dependencies`, `socket_pairs` | speculative data read from pipes and local sockets |
//! | `table_host` | the session's shared memory, and this process as the others see it |
//! | `wakeup_timer` | pokes a thread after a delay |
//! | `planted_predictions` | predictions that tests plant |

mod call_table;
mod checkpoint;
mod child_execs;
mod child_private_calls;
mod child_processes;
mod descriptor_table;
mod dirty_pages;
mod execute_call;
mod fast_path;
mod mapped_files;
mod mapping_calls;
mod memory_checkpoints;
mod memory_mirror;
mod output_buffer;
mod page_undo_log;
mod pipe_dependencies;
#[cfg(feature = "fault-injection")]
mod planted_predictions;
#[cfg(not(feature = "fault-injection"))]
#[path = "no_planted_predictions.rs"]
mod planted_predictions;
mod policy;
mod process_checkpoints;
mod program_interface;
mod signal_masks;
mod socket_pairs;
mod table_host;
mod target_prefetch;
mod thread_states;
mod undo_journal;
mod user_buffers;
mod userfault_fd;
mod wakeup_timer;
mod writable_groups;
mod writable_regions;
mod write_capacity;
mod write_faults;

pub use child_execs::inherit;
pub use policy::{may_speculate, start};

/// Exit status of a process that could not be rolled back, or that the agent lost while it
/// speculated.
const FAILED: i32 = 125;
