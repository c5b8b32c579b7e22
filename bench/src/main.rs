//! The `runahead-bench` command: measures runahead against plain runs and against an oracle.
//!
//! | folder | what it holds |
//! |---|---|
//! | [`data`] | commands, the data that they work on, and how both are made |
//! | [`rows`] | rows: which command, on which storage, in which state, and how fast it has to be |
//! | [`report`] | results: kept as JSON, reduced to a verdict, rendered as tables and documents |
//! | [`measure`] | slow storage, runs of a command, the oracle |
//!
//! A run goes through [`measure::bench_run`], which brings up one [`measure::slow_storage`] after
//! the other, and [`measure::row_measurement`], which takes each row through recording, pairs and
//! [`measure::oracle`]. Costs of speculation ([`measure::speculation_cost`]) and of syncs
//! ([`measure::sync_cost`]) are measured by themselves.
//!
//! Invariant: a failure is one sentence on standard error, and nothing is left mounted after any
//! end that a program can catch.

#![forbid(unsafe_code)]

mod data;
mod error;
mod measure;
mod options;
mod report;
mod rows;

use std::process::ExitCode;

use clap::Parser;
use runahead_harness::{interrupt, note, read_json, say};

use error::Error;
use options::{Cli, Task};

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            note!("runahead-bench: {e}");
            ExitCode::from(match e {
                Error::Harness(runahead_harness::Error::Interrupted(_)) => 130,
                Error::NoRow(_) | Error::NoSystem => 2,
                _ => 1,
            })
        }
    }
}

fn perform(task: Task) -> Result<bool, Error> {
    interrupt::catch()?;
    match task {
        Task::Run(options) => measure::bench_run::run(&options),
        Task::Speculate(options) => measure::speculation_cost::speculate(&options),
        Task::Syncs(options) => measure::sync_cost::syncs(&options),
        Task::List => {
            for row in rows::row_selection::all() {
                say!("{:<28} {}, on {}", row.name, row.about, row.place.describe(false));
            }
            Ok(true)
        }
        Task::Render { file } => {
            let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
            let report =
                read_json(&file)?.ok_or_else(|| Error::system("read", &file)(missing()))?;
            say!("{}", report::markdown_document::document(&report).trim_end());
            Ok(true)
        }
    }
}
