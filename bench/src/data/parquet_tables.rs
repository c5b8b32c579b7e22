//! Parquet files of orders and of customers, which DuckDB has made itself, and queries of all of them.
//!
//! Debian has no DuckDB: its module for Python is where `scripts/setup` puts such modules.

use std::path::Path;
use std::process::Command;

use crate::data::datasets::{Need, PYTHON, module, python};
use crate::data::job::Job;
use crate::data::system_programs as sys;
use crate::error::Error;

pub const NEEDS: [Need; 1] = [(PYTHON, "python3")];

const MODULE: &str = "duckdb";
const SCRIPT: &str = include_str!("../../programs/tables.py");
/// Files of orders, and rows of each, for 1 MB; there are a quarter as many of customers.
const SIZE: [u32; 2] = [160, 6_500];
const QUICK: [u32; 2] = [8, 1_000];

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    // The row says it.
    let Ok(modules) = module(MODULE) else { return Ok(()) };
    let size = if quick { QUICK } else { SIZE }.map(|n| n.to_string());
    let mut python = Command::new(PYTHON);
    python.args(["-c", SCRIPT, "make"]).args(size).current_dir(dir).env("PYTHONPATH", modules);
    sys::run_helper("python3", python, dir)
}

pub fn job(dir: &Path) -> Result<Job, Error> {
    let job = python(dir, SCRIPT).args(["query"]);
    Ok(Job { env: vec![("PYTHONPATH", module(MODULE)?.into())], ..job })
}
