//! `runahead-suites`: test suites of other projects, run natively and under runahead from cold
//! storage, and compared case by case.
//!
//! A *suite* is another project with its tests ([`suites`]), prepared once ([`suite_cache`]) and
//! copied onto a slow disk ([`slow_disk`]). A *unit* is started at once, usually a test file. A run
//! of it is native or under runahead ([`unit_run`]), alone in namespaces of its own
//! ([`unit_namespaces`]). A *case* is what the suite itself reports as passed or failed
//! ([`results`]). Two runs are compared, and a unit that differs is run again, to tell flaky from
//! different ([`case_differences`]).
//!
//! Time decides nothing here but the end of a unit that hangs.

mod case_differences;
mod error;
mod machine_requirements;
mod mount_namespace;
mod options;
mod planted_predictions;
mod pristine_tree;
mod report_tables;
mod results;
mod results_file;
mod slow_disk;
mod subject_copy;
mod suite_cache;
mod suites;
mod suites_run;
mod unit_choice;
mod unit_comparison;
mod unit_namespaces;
mod unit_run;
mod unit_shell;
mod written_files;

use std::process::ExitCode;

use clap::Parser;
use runahead_harness::Error as HarnessError;
use runahead_harness::{interrupt, note, read_json, say};

use error::Error;
use options::{Cli, Task};

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            note!("runahead-suites: {e}");
            ExitCode::from(match e {
                Error::Harness(HarnessError::Interrupted(_)) => 130,
                Error::NoSuite(_)
                | Error::NoUnit { .. }
                | Error::Harness(HarnessError::NoSubject { .. }) => 2,
                Error::Prepare { .. } | Error::Nowhere(_) => 4,
                _ => 3,
            })
        }
    }
}

fn perform(task: Task) -> Result<bool, Error> {
    interrupt::catch()?;
    match task {
        Task::Run(options) => suites_run::run(&options),
        Task::Prepare { suites } => {
            for suite in suites::all_suites::named(&suites)? {
                let ready = suite_cache::ready(suite)?;
                say!("{}: {}, {} units", suite.name, ready.version, ready.units.len());
            }
            Ok(true)
        }
        Task::List { suites } => {
            for suite in suites::all_suites::named(&suites)? {
                say!("{:<10} {}", suite.name, suite.about);
                for unit in suite_cache::ready_units(suite)? {
                    say!("    {unit}");
                }
            }
            Ok(true)
        }
        Task::Shell(options) => unit_shell::shell(&options),
        Task::Render { file } => {
            let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
            let report =
                read_json(&file)?.ok_or_else(|| Error::system("read", &file)(missing()))?;
            say!("{}", report_tables::document(&report).trim_end());
            Ok(true)
        }
    }
}
