//! The list, but for rows that are of it again, on another storage.

use crate::data::datasets::{Kernel, Task};
use crate::data::share_programs::App;
use crate::rows::catalog::{Cache, Row};
use crate::rows::commands::{Shell, Work};
use crate::rows::cost_limits::{Cost, Unit};
use crate::rows::storages::Place;

/// Never slower than this with everything in memory.
const WARM: f64 = 1.15;

/// One request after the other, and many at once.
const PIPELINE: u32 = 16;

pub const fn row(
    (name, work): (&'static str, Work),
    place: Place,
    cache: Cache,
    target: f64,
    about: &'static str,
) -> Row {
    Row { name, about, work, place, cache, target, cost: None, without: None }
}

const fn cost(
    (name, work): (&'static str, Work),
    place: Place,
    cost: Cost,
    about: &'static str,
) -> Row {
    let target = match (cost.ratio, cost.added) {
        (Some(ratio), _) => ratio,
        (None, Some(added)) => added,
        (None, None) => 0.0,
    };
    let cost = Some(cost);
    Row { name, about, work, place, cache: Cache::Warm, target, cost, without: None }
}

/// A ratio of times, with nothing in memory.
const fn futile(
    (name, task): (&'static str, Task),
    place: Place,
    limit: f64,
    about: &'static str,
) -> Row {
    let cost = Some(Cost::ratio(Unit::Seconds, limit));
    let (work, cache) = (Work::Data(task), Cache::Cold);
    Row { name, about, work, place, cache, target: limit, cost, without: None }
}

/// One that works on data of its own.
pub const fn data(
    (name, task): (&'static str, Task),
    place: Place,
    target: f64,
    about: &'static str,
) -> Row {
    row((name, Work::Data(task)), place, Cache::Cold, target, about)
}

/// Every row that is judged, in the order of the table.
pub const ROWS: &[Row] = {
    use Cache::{Cold, Warm};
    use Place::{Apps, Disk, Large, Memory, Share, Spindle};
    use Unit::{KiB, MicrosecondsPerStart, NanosecondsPerCall, RequestsPerSecond, Seconds};
    const WHOLE: Cost = Cost::ratio(Seconds, 1.03);
    const START: Cost = Cost::added(MicrosecondsPerStart, 350.0);
    const PREAD: Cost = Cost { unit: NanosecondsPerCall, ratio: Some(1.05), added: Some(15.0) };
    const SERVED: Cost = Cost::ratio(RequestsPerSecond, 0.99);
    const RESIDENT: Cost = Cost::added(KiB, 1024.0);
    &[
        row(
            ("grep-files", Work::GrepFiles),
            Disk,
            Cold,
            25.0,
            "reads files named on the command line",
        ),
        row(("grep-r", Work::GrepR), Disk, Cold, 20.0, "walks the tree and reads all of it"),
        row(
            ("tar", Work::Tar),
            Disk,
            Cold,
            15.0,
            "reads all of the tree into a real archive, in memory",
        ),
        row(
            ("find-size", Work::FindSize),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes of every file",
        ),
        row(
            ("du", Work::Du),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes of every file, sorted by inode",
        ),
        row(
            ("ls-lR", Work::LsLR),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes and extended attributes",
        ),
        row(
            ("git-status", Work::GitStatus),
            Disk,
            Cold,
            8.0,
            "compares a repository of that tree with its index",
        ),
        row(
            ("share-grep-r", Work::GrepR),
            Share,
            Cold,
            15.0,
            "the same over a network file system",
        ),
        row(
            ("share-python", Work::Program(App::Python)),
            Apps,
            Cold,
            4.0,
            "interpreter and 300 or more modules, with their .pyc files, from the share",
        ),
        row(
            ("share-node", Work::Program(App::Node)),
            Apps,
            Cold,
            2.0,
            "node and a script with 40 modules from the share",
        ),
        row(
            ("share-java", Work::Program(App::Java)),
            Apps,
            Cold,
            2.0,
            "starts a Java virtual machine from the share",
        ),
        row(
            ("share-configure", Work::Program(App::Configure)),
            Apps,
            Cold,
            2.0,
            "a script that starts 200 or more programs of 50 kinds, a compiler among them, from the share",
        ),
        data(("link", Task::Link), Disk, 8.0, "links the object files of libcrypto"),
        data(
            ("sqlite-range", Task::Range),
            Disk,
            8.0,
            "a range of an index, and rows all over 1 GB",
        ),
        data(("sqlite-join", Task::SqlJoin), Disk, 8.0, "the same by way of another table"),
        data(
            ("postgres-20", Task::Postgres { percent: 20 }),
            Disk,
            5.0,
            "an index nested-loop join of 3,000 tuples with 2,000,000; 20 % find a match",
        ),
        data(
            ("postgres-80", Task::Postgres { percent: 80 }),
            Disk,
            5.0,
            "the same where 80 % find one",
        ),
        data(
            ("slices", Task::Slices),
            Disk,
            10.0,
            "five slices through the middle of an array of 1 GB",
        ),
        data(
            ("recognizer", Task::Recognize),
            Disk,
            1.3,
            "recognizes four spoken words, with a language model of 27 MB",
        ),
        data(
            ("gather", Task::Gather),
            Disk,
            20.0,
            "adds up numbers all over a mapped file of 2 GB",
        ),
        data(
            ("memmap", Task::Memmap),
            Disk,
            5.0,
            "numbers at random places of such a file, by numpy.memmap",
        ),
        data(
            ("lmdb", Task::Gets),
            Disk,
            5.0,
            "gets 5,000 keys of a list from 2 GB (100,000 would take minutes)",
        ),
        data(
            ("safetensors", Task::Part),
            Disk,
            4.0,
            "loads an eighth of each tensor of a model of 2 GB",
        ),
        data(
            ("matvec", Task::OutOfCore { kernel: Kernel::MatVec, rounds: 3 }),
            Disk,
            2.5,
            "a matrix in a mapped file, twice as large as its memory, times a vector, three times",
        ),
        data(
            ("mgrid", Task::OutOfCore { kernel: Kernel::Multigrid, rounds: 2 }),
            Disk,
            2.5,
            "V-cycles on three-dimensional grids in such a file",
        ),
        data(
            ("fft", Task::OutOfCore { kernel: Kernel::Fourier, rounds: 4 }),
            Disk,
            2.5,
            "three-dimensional Fourier transforms in such a file",
        ),
        data(
            ("swap-matvec", Task::Swapped { kernel: Kernel::MatVec, rounds: 1 }),
            Disk,
            1.8,
            "the matrix in memory, half of which is swapped out to the disk, times a vector, once",
        ),
        data(
            ("swap-mgrid", Task::Swapped { kernel: Kernel::Multigrid, rounds: 2 }),
            Disk,
            1.8,
            "V-cycles on grids in such memory",
        ),
        data(
            ("swap-fft", Task::Swapped { kernel: Kernel::Fourier, rounds: 2 }),
            Disk,
            1.8,
            "Fourier transforms in such memory",
        ),
        data(
            ("workers", Task::Workers),
            Disk,
            4.0,
            "a loader with eight threads: 1,200 files, in each of which a read says where the next is",
        ),
        data(
            ("duckdb", Task::DuckDb),
            Disk,
            4.0,
            "DuckDB: an aggregate and a join over 200 Parquet files of 1 MB",
        ),
        data(
            ("images", Task::Images),
            Disk,
            4.0,
            "a loader with eight threads, which decodes and scales 400 JPEG files, by Pillow",
        ),
        data(
            ("pandas", Task::Pandas),
            Disk,
            3.0,
            "imports pandas; Python, its library, numpy and pandas are on the disk",
        ),
        data(
            ("go-build", Task::GoBuild),
            Disk,
            3.0,
            "builds a web server, with nothing in the cache; Go and its library are on the disk",
        ),
        futile(
            ("chase", Task::Chase),
            Disk,
            1.03,
            "reads blocks each of which says where the next is",
        ),
        futile(
            ("rubbish", Task::Rubbish),
            Disk,
            1.05,
            "the same, with shadows that hint nothing but what is never read",
        ),
        futile(
            ("cgroup-reread", Task::Reread),
            Disk,
            1.03,
            "reads a file that fills its control group's memory, again and again",
        ),
        futile(
            ("beside", Task::Beside),
            Disk,
            1.02,
            "computes, while another program follows such a chain on the same processor",
        ),
        futile(
            ("chained", Task::Chained),
            Disk,
            1.03,
            "adds up numbers of a mapped file of 2 GB each of which says where the next is",
        ),
        futile(
            ("stores", Task::Stores),
            Disk,
            1.03,
            "follows such a chain by reads, and stores all over 3 GB of memory in between",
        ),
        futile(
            ("compete-2", Task::Compete { programs: 2 }),
            Spindle,
            1.03,
            "two programs, each under its own runahead, want one rotating disk",
        ),
        futile(("compete-4", Task::Compete { programs: 4 }), Spindle, 1.03, "four programs"),
        futile(("compete-8", Task::Compete { programs: 8 }), Spindle, 1.03, "eight programs"),
        row(("warm-grep-files", Work::GrepFiles), Disk, Warm, WARM, "everything in memory"),
        row(("warm-grep-r", Work::GrepR), Disk, Warm, WARM, "everything in memory"),
        row(("warm-tar", Work::Tar), Disk, Warm, WARM, "everything in memory"),
        row(("warm-find-size", Work::FindSize), Disk, Warm, WARM, "everything in memory"),
        row(("warm-du", Work::Du), Disk, Warm, WARM, "everything in memory"),
        row(("warm-ls-lR", Work::LsLR), Disk, Warm, WARM, "everything in memory"),
        row(("warm-git-status", Work::GitStatus), Disk, Warm, WARM, "everything in memory"),
        cost(
            ("build", Work::Build),
            Memory,
            Cost::ratio(Seconds, 1.02),
            "builds redis from its source with two jobs",
        ),
        cost(("large-find", Work::FindSize), Large, WHOLE, "walks the whole of Linux's source"),
        cost(
            ("large-git-status", Work::GitStatusApart),
            Large,
            WHOLE,
            "compares the whole of Linux's source with its index, with git's own threads",
        ),
        cost(("large-grep-r", Work::GrepR), Large, WHOLE, "reads the whole of Linux's source"),
        cost(("large-tar", Work::Tar), Large, WHOLE, "archives the whole of Linux's source"),
        cost(("pread", Work::Pread), Disk, PREAD, "a loop of cached reads of 4 KiB"),
        cost(
            ("true-dash", Work::Starts(Shell::Dash)),
            Memory,
            START,
            "starts /bin/true 1,000 times from dash",
        ),
        cost(
            ("true-bash", Work::Starts(Shell::Bash)),
            Memory,
            START,
            "starts /bin/true 1,000 times from bash",
        ),
        cost(
            ("redis", Work::Redis { pipeline: 1 }),
            Memory,
            SERVED,
            "redis-benchmark's SET and GET, 50 connections",
        ),
        cost(
            ("redis-pipeline", Work::Redis { pipeline: PIPELINE }),
            Memory,
            SERVED,
            "the same, 16 requests at a time on each connection",
        ),
        cost(
            ("resident", Work::Resident { child: false }),
            Memory,
            RESIDENT,
            "memory of a program that has worked and sleeps (Rss)",
        ),
        cost(
            ("resident-child", Work::Resident { child: true }),
            Memory,
            RESIDENT,
            "the same, started by a shell",
        ),
    ]
};
