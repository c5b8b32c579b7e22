//! Storage as its users see it: real mounts, real requests, real leftovers.

mod command;
mod disk;
mod share;
mod test_helpers;
