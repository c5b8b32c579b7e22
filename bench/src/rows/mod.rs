//! Rows: which command, on which storage, in which state, and how fast it has to be.

pub mod cost_limits;
pub mod derived_rows;
pub mod everyday_commands;
pub mod main_rows;
pub mod row_definition;
pub mod row_selection;
pub mod storage_kinds;
pub mod tree_commands;
