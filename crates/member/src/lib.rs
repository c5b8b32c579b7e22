//! A process that has joined a session, as its supervisor sees it.
//!
//! | module | what it does |
//! |---|---|
//! | [`memory`] | what it shares with us |
//! | [`wake`] | how the two sides of that wake each other |
//! | [`rights`] | whether it may have us read for it |
//! | [`present`] | which pages of mapped files it has |
//! | [`waits`] | how long it has waited, and on which devices somebody has of late |
//! | [`clock`] | by which it measures |
//! | [`degraded`] | what it had to do without |
//! | [`proc`] | what the kernel says of it, in files of text |

pub mod degradations;
pub mod doorbell;
pub mod page_presence;
pub mod proc_files;
pub mod read_rights;
pub mod shared_memory;
pub mod slow_devices;
pub mod tsc_clock;
