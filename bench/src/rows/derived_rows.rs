//! Rows that are made from others: on other storage, and with one mechanism of runahead's switched
//! off.
//!
//! On rotating disks some do less than on the disk of the main rows, so that plain takes no more
//! than about 100 s.

use crate::data::out_of_core::Kernel;
use crate::rows::row_definition::Row;
use crate::rows::storage_kinds::{FAST, Place, SPINDLE, SPINDLES, SPINDLES_3};

/// Least ratio where there is little to gain: at most 2 % may be lost.
const NO_LOSS: f64 = 0.98;
/// Least ratio of computations on several spindles: 60 % less time than plain, which is the best
/// that the papers have.
const BEST: f64 = 2.5;

/// Storage, row, target, description.
type OtherStorageRow = (&'static Place, &'static str, f64, &'static str);

#[rustfmt::skip]
static ELSEWHERE: [OtherStorageRow; 28] = [
    (&SPINDLES, "grep-files", 3.2, "the first row on four rotating disks"),
    (&SPINDLES, "slices", 3.4, "the slices on four rotating disks"),
    (&SPINDLES, "link", 3.0, "the linker on four rotating disks"),
    (&SPINDLES, "postgres-80", 3.0, "the join where 80 % find a match, on four rotating disks"),
    (&SPINDLES, "postgres-20", 1.92, "the join where 20 % find a match, on four rotating disks"),
    (&SPINDLES, "matvec", BEST, "the matrix in a mapped file times a vector, three times, on four rotating disks"),
    (&SPINDLES, "mgrid", BEST, "the V-cycles on four rotating disks"),
    (&SPINDLES, "fft", BEST, "the Fourier transforms on four rotating disks"),
    (&SPINDLES_3, "swap-matvec", BEST, "the matrix in memory, half of which is swapped out, on three rotating disks"),
    (&SPINDLES_3, "swap-mgrid", BEST, "the V-cycles in such memory, on three rotating disks"),
    (&SPINDLES_3, "swap-fft", BEST, "the Fourier transforms in such memory, on three rotating disks"),
    (&SPINDLE, "memmap", NO_LOSS, "memmap on one rotating disk"),
    (&SPINDLE, "lmdb", NO_LOSS, "lmdb on one rotating disk"),
    (&SPINDLE, "matvec", NO_LOSS, "matvec on one rotating disk, once instead of three times"),
    (&SPINDLE, "workers", NO_LOSS, "workers on one rotating disk"),
    (&SPINDLE, "duckdb", NO_LOSS, "duckdb on one rotating disk"),
    (&SPINDLE, "images", NO_LOSS, "images on one rotating disk"),
    (&FAST, "git-status", NO_LOSS, "git-status on a fast disk"),
    (&FAST, "gather", NO_LOSS, "gather on a fast disk"),
    (&FAST, "memmap", NO_LOSS, "memmap on a fast disk"),
    (&FAST, "lmdb", NO_LOSS, "lmdb on a fast disk"),
    (&FAST, "safetensors", NO_LOSS, "safetensors on a fast disk"),
    (&FAST, "matvec", NO_LOSS, "matvec on a fast disk"),
    (&FAST, "workers", NO_LOSS, "workers on a fast disk"),
    (&FAST, "duckdb", NO_LOSS, "duckdb on a fast disk"),
    (&FAST, "images", NO_LOSS, "images on a fast disk"),
    (&FAST, "pandas", NO_LOSS, "pandas on a fast disk"),
    (&FAST, "go-build", NO_LOSS, "go-build on a fast disk"),
];

/// Returns the rows on other storage, made from `rows`, in the order of the table.
pub fn elsewhere(rows: &[Row]) -> Vec<Row> {
    let row = |&(place, name, target, about): &OtherStorageRow| {
        let row = named(rows, name);
        let storage = place.name.trim_end_matches('3');
        let row = Row { name: format!("{storage}-{name}"), place, target, about, ..row.clone() };
        match row.name.as_str() {
            // One product instead of three.
            "spindle-matvec" => {
                Row::new(row.name, place, row.content, |g| Kernel::MatVec.mapped(1, g), about)
                    .cold(target)
            }
            _ => row,
        }
    };
    ELSEWHERE.iter().map(row).collect()
}

/// Rows, and the mechanisms of `runahead run --without` that are switched off in each: those that
/// the row was made for, and in the first five rows those that concern every shadow. On rotating
/// disks a wrong hint delays other requests.
#[rustfmt::skip]
static ABLATED: [(&str, &[&str]); 12] = [
    ("sqlite-range", &["stale", "again", "horizon", "touched"]),
    ("postgres-80", &["stale", "again", "horizon"]),
    ("link", &["stale", "again", "horizon"]),
    ("slices", &["stale", "again", "horizon"]),
    ("grep-files", &["stale", "again", "horizon"]),
    ("spindles-postgres-20", &["horizon"]),
    ("spindles-postgres-80", &["horizon"]),
    ("share-python", &["programs", "siblings", "patterns"]),
    ("share-node", &["programs", "patterns", "dontfork"]),
    ("pandas", &["programs", "siblings", "patterns"]),
    ("workers", &["concurrency"]),
    ("images", &["concurrency", "exemplars"]),
];

/// Returns rows with one mechanism switched off, made from `rows`, in the order of the table.
pub fn ablations(rows: &[Row]) -> Vec<Row> {
    let ablation = |name: &str, without: &'static str| Row {
        name: format!("{name}-without-{without}"),
        about: "the row of that name, with one mechanism switched off",
        target: 0.0,
        without: Some(without),
        ..named(rows, name).clone()
    };
    let of = |&(name, mechanisms): &(&str, &'static [&str])| {
        mechanisms.iter().map(|without| ablation(name, without)).collect::<Vec<_>>()
    };
    ABLATED.iter().flat_map(of).collect()
}

fn named<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    let found = rows.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| unreachable!("{name} is a row"))
}
