//! Rows of the table again, with one mechanism of runahead's switched off.

use crate::data::datasets::Task;
use crate::rows::catalog::{Cache, Row};
use crate::rows::commands::Work;
use crate::rows::storages::Place;

/// The row `$row`, without each of the mechanisms that `runahead run --without` knows.
macro_rules! without {
    ($($row:literal: $work:expr),* ; spindles $($few:literal: $on_few:expr),* $(,)?) => {
        &[$(
            ablation(concat!($row, "-without-stale"), $work, Place::Disk, "stale"),
            ablation(concat!($row, "-without-again"), $work, Place::Disk, "again"),
            ablation(concat!($row, "-without-horizon"), $work, Place::Disk, "horizon"),
            ablation(concat!($row, "-without-memory"), $work, Place::Disk, "memory"),
        )* $(
            // Where a wrong hint is in the way of others.
            ablation(concat!($few, "-without-horizon"), $on_few, Place::Spindles, "horizon"),
            ablation(concat!($few, "-without-memory"), $on_few, Place::Spindles, "memory"),
        )*]
    };
}

const fn ablation(name: &'static str, work: Work, place: Place, without: &'static str) -> Row {
    Row {
        name,
        about: "the row of that name, with one mechanism switched off",
        work,
        place,
        cache: Cache::Cold,
        target: 0.0,
        cost: None,
        without: Some(without),
    }
}

/// What gains most by them, and one that has no need of any.
pub const ABLATION: &[Row] = without! {
    "sqlite-range": Work::Data(Task::Range),
    "postgres-80": Work::Data(Task::Postgres { percent: 80 }),
    "link": Work::Data(Task::Link),
    "slices": Work::Data(Task::Slices),
    "grep-files": Work::GrepFiles;
    spindles
    "spindles-postgres-20": Work::Data(Task::Postgres { percent: 20 }),
    "spindles-postgres-80": Work::Data(Task::Postgres { percent: 80 }),
};
