//! A process that has joined a session, as its supervisor sees it.
//!
//! | module | what it does |
//! |---|---|
//! | [`shared_memory`] | what it shares with us |
//! | [`doorbell`] | how the two sides of that wake each other |
//! | [`read_rights`] | whether it may have us read for it |
//! | [`page_presence`] | which pages of mapped files it has |
//! | [`slow_devices`] | how long it has waited, and on which devices somebody has of late |
//! | [`tsc_clock`] | by which it measures |
//! | [`degradations`] | what it had to do without |
//! | [`proc_files`] | what the kernel says of it, in files of text |

pub mod degradations;
pub mod doorbell;
pub mod page_presence;
pub mod proc_files;
pub mod read_rights;
pub mod shared_memory;
pub mod slow_devices;
pub mod tsc_clock;
