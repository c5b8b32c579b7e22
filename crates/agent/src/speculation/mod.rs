//! Committed speculation: a process goes on as if an answer had come, and is taken back if it was another
//! (Nightingale 2005, sections 4 and 5).
//!
//! | part | what it does |
//! |---|---|
//! | `memory` | what the program's memory held at the checkpoint, and how it comes back |
//! | `protector` | the descriptor by which the kernel notes what is written, and who keeps it |
//! | `threads` | the frames of all threads, and what the kernel writes into their memory by itself |
//! | `checkpoint` | both, with all threads stopped |
//! | `policy` | which calls wait, and what becomes of them when the outcome is known |
//! | `planted` | predictions that tests plant |
//!
//! While a process speculates every call of it waits, signals wait, and a fault waits: nothing that it does can be seen. So a
//! rollback has to restore memory and registers, and nothing that the kernel keeps.

mod checkpoint;
mod memory;
mod planted;
mod policy;
mod protector;
mod threads;

pub use policy::start;
