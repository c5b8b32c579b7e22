//! The `runahead-bench` command: how fast is it, against plain and against an oracle?
//!
//! A run of the benchmark goes through these modules: [`run`] brings up one [`site`] (slow storage
//! with a [`source`] tree or [`apps`] on it) after the other; [`measure`] takes each of its [`rows`]
//! through recording, pairs and [`oracle`], every run of a [`job`] being made by [`runner`];
//! [`everyday`] is a benchmark of its own, of commands with real packages, and [`speculate`] of what speculating costs,
//! [`syncs`] of what syncs do. [`figures`] reduces runs to a verdict; [`report`] keeps them, and [`table`] and [`markdown`] show them.
//!
//! Invariant: one sentence on stderr for a failure, and nothing left mounted after any end that a
//! program can catch.

#![forbid(unsafe_code)]

mod data;
mod error;
mod measure;
mod options;
mod report;
mod rows;

use std::process::ExitCode;

use clap::Parser;
use runahead_harness::{interrupt, note, say};

use error::Error;
use options::{Cli, Task};

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            note!("runahead-bench: {e}");
            ExitCode::from(match e {
                Error::Interrupted(_) => 130,
                Error::NoRow(_) => 2,
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
        Task::Everyday(options) => measure::everyday::everyday(&options),
        Task::List => {
            for row in rows::catalog::all() {
                say!("{:<28} {}, on {}", row.name, row.about, row.place.describe(false));
            }
            Ok(true)
        }
        Task::Render { file } => {
            let report = report::results::Report::read(&file)?;
            let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
            let report = report.ok_or_else(|| Error::system("read", &file)(missing()))?;
            say!("{}", report::document::document(&report).trim_end());
            Ok(true)
        }
    }
}
