//! A process that has joined a session, as its supervisor sees it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`shared_memory`] | the memory that the process and the supervisor share |
//! | [`doorbell`] | how the two sides of that memory wake each other |
//! | [`read_rights`] | whether the process may read what the supervisor reads for it |
//! | [`page_presence`] | which pages of its mapped files the process has in its page tables |
//! | [`tsc_clock`] | the time-stamp counter, by which agents measure |
//! | [`proc_files`] | text files of `/proc` |

pub mod doorbell;
pub mod page_presence;
pub mod proc_files;
pub mod read_rights;
pub mod shared_memory;
pub mod tsc_clock;
