//! Storage as its users see it: real mounts, real requests, real leftovers.

mod command;
mod common;
mod disk;
mod share;
