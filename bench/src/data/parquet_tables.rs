//! Parquet files of orders and of customers, made by DuckDB, and queries of all of them.
//!
//! Debian has no DuckDB: `scripts/setup` installs its module for Python.

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, PYTHON, module, python, run_python};
use crate::error::Error;

pub static TABLES: Dataset =
    Dataset { dir: "tables", mib: 512, quick_mib: 256, needs: &[(PYTHON, "python3")], make };

const MODULE: &str = "duckdb";
const SCRIPT: &str = include_str!("../../programs/parquet_tables.py");
/// Files of orders, and rows in each, for 1 MB; there are a quarter as many files of customers.
const SIZE: [u32; 2] = [160, 6_500];
const QUICK_SIZE: [u32; 2] = [8, 1_000];

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    // Without the module the row's job fails, and says so.
    let Ok(modules) = module(MODULE) else { return Ok(()) };
    let [files, rows] = making.size(SIZE, QUICK_SIZE).map(|n| n.to_string());
    run_python(making.dir, SCRIPT, ["make", &files, &rows], Some(&modules))
}

/// An aggregate and a join.
pub fn query(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let job = python(ground.dir, SCRIPT).args(["query"]);
    Ok(Job { env: vec![("PYTHONPATH", module(MODULE)?.into())], ..job })
}
