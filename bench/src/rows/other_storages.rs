//! Commands of the list again, on other storage: rotating disks, and a fast one.
//!
//! On rotating disks some do less than on the disk of the list, so that plain takes no more than about 100 s.

use crate::data::datasets::{Kernel, Task};
use crate::rows::catalog::{Cache, Row};
use crate::rows::commands::Work;
use crate::rows::main_rows::{data, row};
use crate::rows::storages::Place;

/// Where there is little to gain, this much may be lost.
const NO_LOSS: f64 = 0.98;
/// 60 % less time than plain, which is the best that the papers have on several spindles.
const BEST: f64 = 2.5;

const fn out_of_core(kernel: Kernel, rounds: u32) -> Task {
    Task::OutOfCore { kernel, rounds }
}

const fn swapped(kernel: Kernel, rounds: u32) -> Task {
    Task::Swapped { kernel, rounds }
}

/// In the order of the table.
pub const ELSEWHERE: &[Row] = {
    use Cache::Cold;
    use Kernel::{Fourier, MatVec, Multigrid};
    use Place::{Fast, Spindle, Spindles, Spindles3};
    &[
        row(
            ("spindles-grep-files", Work::GrepFiles),
            Spindles,
            Cold,
            3.2,
            "the first row on four rotating disks",
        ),
        data(("spindles-slices", Task::Slices), Spindles, 3.4, "the slices on four rotating disks"),
        data(("spindles-link", Task::Link), Spindles, 3.0, "the linker on four rotating disks"),
        data(
            ("spindles-postgres-80", Task::Postgres { percent: 80 }),
            Spindles,
            3.0,
            "the join where 80 % find a match, on four rotating disks",
        ),
        data(
            ("spindles-postgres-20", Task::Postgres { percent: 20 }),
            Spindles,
            1.92,
            "the join where 20 % find a match, on four rotating disks",
        ),
        data(
            ("spindles-matvec", out_of_core(MatVec, 3)),
            Spindles,
            BEST,
            "the matrix in a mapped file times a vector, three times, on four rotating disks",
        ),
        data(
            ("spindles-mgrid", out_of_core(Multigrid, 2)),
            Spindles,
            BEST,
            "the V-cycles on four rotating disks",
        ),
        data(
            ("spindles-fft", out_of_core(Fourier, 4)),
            Spindles,
            BEST,
            "the Fourier transforms on four rotating disks",
        ),
        data(
            ("spindles-swap-matvec", swapped(MatVec, 1)),
            Spindles3,
            BEST,
            "the matrix in memory, half of which is swapped out, on three rotating disks",
        ),
        data(
            ("spindles-swap-mgrid", swapped(Multigrid, 2)),
            Spindles3,
            BEST,
            "the V-cycles in such memory, on three rotating disks",
        ),
        data(
            ("spindles-swap-fft", swapped(Fourier, 2)),
            Spindles3,
            BEST,
            "the Fourier transforms in such memory, on three rotating disks",
        ),
        data(("spindle-memmap", Task::Memmap), Spindle, NO_LOSS, "memmap on one rotating disk"),
        data(("spindle-lmdb", Task::Gets), Spindle, NO_LOSS, "lmdb on one rotating disk"),
        data(
            ("spindle-matvec", out_of_core(MatVec, 1)),
            Spindle,
            NO_LOSS,
            "matvec on one rotating disk, once instead of three times",
        ),
        data(("spindle-workers", Task::Workers), Spindle, NO_LOSS, "workers on one rotating disk"),
        data(("spindle-duckdb", Task::DuckDb), Spindle, NO_LOSS, "duckdb on one rotating disk"),
        data(("spindle-images", Task::Images), Spindle, NO_LOSS, "images on one rotating disk"),
        row(("fast-git-status", Work::GitStatus), Fast, Cold, NO_LOSS, "git-status on a fast disk"),
        data(("fast-gather", Task::Gather), Fast, NO_LOSS, "gather on a fast disk"),
        data(("fast-memmap", Task::Memmap), Fast, NO_LOSS, "memmap on a fast disk"),
        data(("fast-lmdb", Task::Gets), Fast, NO_LOSS, "lmdb on a fast disk"),
        data(("fast-safetensors", Task::Part), Fast, NO_LOSS, "safetensors on a fast disk"),
        data(("fast-matvec", out_of_core(MatVec, 3)), Fast, NO_LOSS, "matvec on a fast disk"),
        data(("fast-workers", Task::Workers), Fast, NO_LOSS, "workers on a fast disk"),
        data(("fast-duckdb", Task::DuckDb), Fast, NO_LOSS, "duckdb on a fast disk"),
        data(("fast-images", Task::Images), Fast, NO_LOSS, "images on a fast disk"),
        data(("fast-pandas", Task::Pandas), Fast, NO_LOSS, "pandas on a fast disk"),
        data(("fast-go-build", Task::GoBuild), Fast, NO_LOSS, "go-build on a fast disk"),
    ]
};
