//! `runahead-suites`: test suites that no one here wrote, run natively and under runahead from cold
//! storage, and compared case by case.
//!
//! A *suite* is another project with its tests, prepared once ([`prepare`]) and copied onto a slow
//! disk ([`disk`]). A *unit* is what is started at once, usually a test file; a *half* is one run of
//! a unit, native or ahead ([`half`]), alone in namespaces of its own ([`inside`]). A *case* is what
//! the suite itself reports as passed or failed ([`results`]). Two halves are compared, and what
//! differs is run again, to tell flaky from different ([`compare`]).
//!
//! Timing decides nothing here but the end of a unit that hangs.

mod compare;
mod disk;
mod error;
mod half;
mod inside;
mod markdown;
mod namespace;
mod options;
mod predictions;
mod prepare;
mod report;
mod results;
mod run;
mod select;
mod shell;
mod subject;
mod suites;
mod system;
mod tree;
mod unit;
mod written;

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
            note!("runahead-suites: {e}");
            ExitCode::from(match e {
                Error::Interrupted(_) => 130,
                Error::NoSuite(_)
                | Error::NoUnit { .. }
                | Error::NoRunahead(_)
                | Error::NoPlanter(_) => 2,
                Error::Prepare { .. } | Error::Nowhere(_) => 4,
                _ => 3,
            })
        }
    }
}

fn perform(task: Task) -> Result<bool, Error> {
    interrupt::catch()?;
    match task {
        Task::Run(options) => run::run(&options),
        Task::Prepare { suites } => {
            for suite in select::suites(&suites)? {
                let ready = prepare::ready(suite)?;
                say!("{}: {}, {} units", suite.name, ready.version, ready.units.len());
            }
            Ok(true)
        }
        Task::List { suites } => {
            for suite in select::suites(&suites)? {
                say!("{:<10} {}", suite.name, suite.about);
                for unit in prepare::ready_units(suite)? {
                    say!("    {unit}");
                }
            }
            Ok(true)
        }
        Task::Shell(options) => shell::shell(&options),
        Task::Render { file } => {
            say!("{}", markdown::document(&report::Report::read(&file)?).trim_end());
            Ok(true)
        }
    }
}
