//! Committed speculation: a process goes on as if an answer had come, and is taken back if it was another
//! (Nightingale 2005, sections 4 and 5).
//!
//! | part | what it does |
//! |---|---|
//! | `interface` | what the program says of its predictions, and the session's table of them |
//! | `policy` | what becomes of each call, signal and fault while a process speculates |
//! | `quick` | which calls need not come as signals |
//! | `ahead` | reading ahead, by the target's policy, for calls that are let go on |
//! | `calls`, `allowed` | which calls need not wait: the table, and how they are made |
//! | `checkpoint` | how far the process is, with all threads stopped where that changes |
//! | `process` | the stack of what is open: a checkpoint of each, commit, and rollback |
//! | `memory`, `pieces`, `mapped`, `heap`, `undo` | what the program's memory held at each checkpoint, and how it comes back |
//! | `mirror`, `written`, `protector` | the same, where the kernel notes what is written: a copy, which pages, and the descriptor for it |
//! | `write_faults`, `opened`, `outputs` | the same, where it does not: copies before the first store, and what calls write |
//! | `threads` | the frames of all threads, and what the kernel writes into their memory by itself |
//! | `journal`, `own` | private state that calls have changed: descriptors, offsets, mappings |
//! | `children` | forks, which depend on their parent |
//! | `execs` | programs that such children execute |
//! | `private` | which calls need not wait where nothing would be undone, but the process would end |
//! | `masks` | the mask of signals, while all are held |
//! | `held`, `outlet`, `storage` | output, until what it depends on is committed; how much of it a stream or a file surely takes |
//! | `depends`, `sockets` | what is read from pipes and local sockets that another process has only said so far |
//! | `host` | what the session shares, and the process as the others see it |
//! | `timer` | pokes, where nobody else can be relied upon |
//! | `planted` | predictions that tests plant |

mod call_table;
mod checkpoint;
mod child_execs;
mod child_private_calls;
mod child_processes;
mod descriptor_table;
mod dirty_pages;
mod execute_call;
mod fast_path;
mod file_capacity;
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
mod program_break;
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

/// Exit status of a process that could not be taken back, or that was lost while it speculated.
const FAILED: i32 = 125;
