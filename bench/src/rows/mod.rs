//! Rows: which command, on which storage, in which state, and how fast it has to be.

pub mod ablation_rows;
pub mod catalog;
pub mod commands;
pub mod cost_limits;
pub mod everyday_commands;
pub mod main_rows;
pub mod other_storages;
pub mod storages;
