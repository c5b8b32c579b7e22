//! The suites.

pub mod all_suites;
pub mod suite_definition;

mod cpython;
mod gnu_tools;
mod go_packages;
mod libc_test;
mod ltp;
mod other_tools;
mod perl_core;
mod pipe_scripts;
mod planted_units;
mod process_states;
