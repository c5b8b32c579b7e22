//! Files that executing a program reads: the program, the interpreter of a script, the dynamic
//! linker, and the libraries. No threads, files or clocks here.
//!
//! A hint for a program starts an *expansion*. Workers do its *tasks*: find a file and inspect its
//! head; find what else that file needs; load a part of it. The results become further tasks. An
//! expansion belongs to every client that hinted its program, and waits in each client's queue as a
//! single item. It is dropped when the last of them is gone.
//!
//! *Order.* A process that starts a program waits first for the heads of all its files. Then it
//! waits for what relocation goes through: the tables at the start of a file and the data at its
//! end. Then it waits for the code at the entry point. So tasks have an [`Urgency`], and each
//! is served for the whole expansion before the next: a large program's code must not delay small
//! libraries without which the program does not start. The rest of the files comes last. A start
//! touches a third of a program of 100 MB, in an unknown order, and each missing part costs a wait;
//! so files are read whole up to 256 MB (`load_plan`).
//!
//! Scripts start the same few programs hundreds of times. An expanded program is *fresh* for 10 s
//! and not expanded again, nor are libraries that another program has loaded: a repeated hint costs
//! one lookup in a table.
//!
//! Only the program's own file has a log key, that of the hint: done when all of the file has been
//! loaded. The libraries have none. Mostly another process than the one whose shadow hinted the
//! program opens them, so they are in another log.
//!
//! Invariants: one expansion has at most 256 files and loads at most 1 GiB, whatever the files
//! hold; each of its hints is completed once, or dropped.

mod elf;
mod expansion_end;
#[cfg(test)]
mod fake_files;
mod file_inspection;
mod ld_cache;
mod library_search;
mod load_plan;
mod loader_arch;
mod program_expansion;
mod program_task;
mod recent_files;
mod script_line;

pub use file_inspection::{Files, Inspector};
pub use program_expansion::Programs;
pub use program_task::{Dynamic, FileLead, Located, Report, Role, Task, Urgency};

#[cfg(test)]
#[path = "program_loading/tests.rs"]
mod tests;
