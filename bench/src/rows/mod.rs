//! Rows: which command, on which storage, in which state, and how fast it has to be.

pub mod catalog;
pub mod commands;
pub mod cost_limits;
pub mod derived_rows;
pub mod everyday_commands;
pub mod main_rows;
pub mod row;
pub mod storages;
