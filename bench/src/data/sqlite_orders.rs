//! A database for the stock `sqlite3` shell: customers, and orders in no order of customers.

use std::path::Path;

use crate::data::datasets::Need;
use crate::data::job::Job;
use crate::data::system_programs as sys;
use crate::error::Error;

pub const NEEDS: [Need; 1] = [("sqlite3", "sqlite3")];

const SCRIPT: &str = include_str!("../../programs/orders.sql");
const FILE: &str = "orders.db";

/// 1 GB.
const ORDERS: u32 = 4_000_000;
const QUICK: u32 = 40_000;

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    let orders = if quick { QUICK } else { ORDERS };
    let size = format!("CREATE TEMP TABLE size AS SELECT {orders} AS orders;\n");
    let script = sys::script(&(size + SCRIPT))?;
    let mut sqlite = std::process::Command::new("sqlite3");
    sqlite.args(["-batch", "-bail", FILE]).current_dir(dir);
    sys::run_helper_on("sqlite3", sqlite, &dir.join(FILE), script.into()).map(drop)
}

/// Five customers, whose orders are all over the file.
pub fn range(dir: &Path) -> Job {
    let select = "select count(*), sum(length(note)), sum(total) from orders \
        where customer between 100 and 104";
    Job::new("sqlite3", "sqlite3", dir).args([FILE, select])
}

/// Orders by way of the customers' own table.
pub fn join(dir: &Path) -> Job {
    let select = "select c.name, count(o.id), sum(o.total) from customer c \
        join orders o on o.customer = c.id where c.id % 4000 = 7 group by c.id";
    Job::new("sqlite3", "sqlite3", dir).args([FILE, select])
}
