//! A database for the stock `sqlite3` shell: customers, and orders in no order of customers.

use std::process::Command;

use runahead_harness::run_helper;

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, script};
use crate::error::Error;

pub static ORDERS: Dataset =
    Dataset { dir: "orders", mib: 1536, quick_mib: 256, needs: &[("sqlite3", "sqlite3")], make };

const SCRIPT: &str = include_str!("../../programs/sqlite_orders.sql");
const FILE: &str = "orders.db";

/// Orders: 1 GB.
const COUNT: u32 = 4_000_000;
const QUICK_COUNT: u32 = 40_000;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let orders = making.size(COUNT, QUICK_COUNT);
    let size = format!("CREATE TEMP TABLE size AS SELECT {orders} AS orders;\n");
    let script = script(&(size + SCRIPT))?;
    let mut sqlite = Command::new("sqlite3");
    sqlite.args(["-batch", "-bail", FILE]).current_dir(making.dir).stdin(script);
    run_helper(&mut sqlite)?;
    Ok(())
}

/// A range of the index of customers: five customers, whose orders are all over the file.
pub fn range(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    select(
        ground,
        "select count(*), sum(length(note)), sum(total) from orders where customer between 100 and 104",
    )
}

/// Orders by way of the customers' own table.
pub fn join(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    select(
        ground,
        "select c.name, count(o.id), sum(o.total) from customer c \
        join orders o on o.customer = c.id where c.id % 4000 = 7 group by c.id",
    )
}

fn select(ground: &JobPlaces<'_>, select: &str) -> Result<Job, Error> {
    Ok(Job::new("sqlite3", "sqlite3", ground.dir).args([FILE, select]))
}
