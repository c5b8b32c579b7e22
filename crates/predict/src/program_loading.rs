//! What executing a program reads: the program, the interpreter of a script, the dynamic linker,
//! and the libraries, as data: no thread, no file, no clock.
//!
//! A hint for a program starts an *expansion*. Its *tasks* are done by the workers: find a file and
//! look at its head; read what else that says it needs; load a part of it. What one brings to light
//! becomes further tasks. An expansion belongs to every client that hinted its program, and stands
//! in each one's lane as a single item; it is given up when the last of them is gone.
//!
//! *Order.* Whoever starts a program waits for one thing after the other: the heads of all its
//! files, then all that relocation goes through (the tables at the start of a file and the data at
//! its end), then the code at the entry point. So tasks have a [`Turn`], and each turn is served for
//! the whole expansion before the next: a large program's code must not hold up the small libraries
//! without which it does not even start. What is left of the files comes last; of programs of 100
//! MB a start touches a third, in an order that nobody knows, and a part that is not there costs a
//! wait, so all is read up to [`WHOLE_MAX`].
//!
//! Scripts start the same few programs hundreds of times. What was expanded is *fresh* for
//! [`FRESH`] and not looked at again, and libraries that another program has brought in are not
//! either: a repeated hint costs one lookup in a table.
//!
//! Only the program's own file has a log key, the hint's: done when all of it has been loaded. The
//! libraries have none. They are opened by another process than the one whose shadow hinted the
//! program, mostly, and so are in another log.
//!
//! Invariants: one expansion has at most [`FILES_MAX`] files and loads at most [`LOAD_MAX`] bytes,
//! whatever the files hold; each of its hints is completed once, or dropped.

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
pub use program_task::{Dynamic, Lead, Located, Report, Role, Task, Turn};

#[cfg(test)]
#[path = "program_loading/tests.rs"]
mod tests;
