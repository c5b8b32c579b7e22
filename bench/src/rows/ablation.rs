//! Rows of the table again, with one mechanism of runahead's switched off.

use super::{Cache, Row};
use crate::data::Task;
use crate::place::Place;
use crate::work::Work;

/// The row `$row`, without each of the mechanisms that `runahead run --without` knows.
macro_rules! without {
    ($($row:literal: $work:expr),* $(,)?) => {
        &[$(
            ablation(concat!($row, "-without-stale"), $work, "stale"),
            ablation(concat!($row, "-without-again"), $work, "again"),
            ablation(concat!($row, "-without-horizon"), $work, "horizon"),
            ablation(concat!($row, "-without-memory"), $work, "memory"),
        )*]
    };
}

const fn ablation(name: &'static str, work: Work, without: &'static str) -> Row {
    Row {
        name,
        about: "the row of that name, with one mechanism switched off",
        work,
        place: Place::Disk,
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
    "grep-files": Work::GrepFiles,
};
