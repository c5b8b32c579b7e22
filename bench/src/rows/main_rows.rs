//! The rows that are judged, except for those on other storage.

use crate::data::competing_parts::{PARTS, compete};
use crate::data::dependent_reads::{CHAIN, beside, chase, reread, rubbish};
use crate::data::installed_programs::{GO, PANDAS, go_build, import_pandas};
use crate::data::jpeg_files::{self, IMAGES};
use crate::data::loader_samples::{self, SAMPLES};
use crate::data::mapped_files::{
    NUMBERS, RECORDS, TENSORS, chained, gather, gets, memmap, part, stores,
};
use crate::data::netcdf_slices::{ARRAY, slices};
use crate::data::object_files::{OBJECTS, link};
use crate::data::out_of_core::{GRIDS, Kernel};
use crate::data::parquet_tables::{TABLES, query};
use crate::data::postgres_join::{self, RELATIONS};
use crate::data::share_programs::{
    JAVA, NODE, PYTHON, UNIX, configure, import, run_script, start_java,
};
use crate::data::speech_models::{SPEECH, recognize};
use crate::data::sqlite_orders::{self, ORDERS};
use crate::rows::cost_limits::{Cost, Unit};
use crate::rows::row_definition::{Content, Row};
use crate::rows::storage_kinds::{APPS, DISK, LARGE, MEMORY, SHARE, SPINDLE};
use crate::rows::tree_commands::{
    bash, build, dash, du, find_size, git_status, git_status_apart, grep_files, grep_r, ls_lr,
    pread, redis, sleeper, tar,
};

/// Slowdown with everything in memory, at most.
const WARM: f64 = 1.15;

/// Rows in columns: name, content, job, target or limits, description. The storage and the kind of
/// row stand above each block.
macro_rules! rows {
    ($($place:ident $kind:ident { $($name:literal $content:expr, $job:expr, $limit:expr; $about:literal)* })*) => {
        vec![$($(Row::new($name, &$place, $content, $job, $about).$kind($limit),)*)*]
    };
}

/// Returns them in the order of the table.
pub fn main_rows() -> Vec<Row> {
    use Content::{App, Data, Nothing, Repository, RepositoryApart, Tree};
    use Kernel::{Fourier, MatVec, Multigrid};
    let whole = || Cost::ratio(Unit::Seconds, 1.03);
    let start = || Cost::added(Unit::MicrosecondsPerStart, 350.0);
    let served = || Cost::ratio(Unit::RequestsPerSecond, 0.99);
    let resident = || Cost::added(Unit::KiB, 1024.0);
    let cached = Cost { unit: Unit::NanosecondsPerCall, ratio: Some(1.05), added: Some(15.0) };
    let mut rows = rows! {
        DISK cold {
            "grep-files" Tree, grep_files, 25.0; "reads files named on the command line"
            "grep-r" Tree, grep_r, 20.0; "walks the tree and reads all of it"
            "tar" Tree, tar, 15.0; "reads all of the tree into a real archive, in memory"
            "find-size" Tree, find_size, 8.0; "walks the tree, attributes of every file"
            "du" Tree, du, 8.0; "walks the tree, attributes of every file, sorted by inode"
            "ls-lR" Tree, ls_lr, 8.0; "walks the tree, attributes and extended attributes"
            "git-status" Repository, git_status, 8.0;
                "compares a repository of that tree with its index"
        }
        SHARE cold {
            "share-grep-r" Tree, grep_r, 15.0; "the same over a network file system"
        }
        APPS cold {
            "share-python" App(&PYTHON), import, 4.0;
                "interpreter and 300 or more modules, with their .pyc files, from the share"
            "share-node" App(&NODE), run_script, 2.0;
                "node and a script with 40 modules from the share"
            "share-java" App(&JAVA), start_java, 2.0;
                "starts a Java virtual machine from the share"
            "share-configure" App(&UNIX), configure, 2.0;
                "a script that starts 200 or more programs of 50 kinds, a compiler among them, from the share"
        }
        DISK cold {
            "link" Data(&OBJECTS), link, 8.0; "links the object files of libcrypto"
            "sqlite-range" Data(&ORDERS), sqlite_orders::range, 8.0;
                "a range of an index, and rows all over 1 GB"
            "sqlite-join" Data(&ORDERS), sqlite_orders::join, 8.0;
                "the same by way of another table"
            "postgres-20" Data(&RELATIONS), |ground| postgres_join::join(20, ground), 5.0;
                "an index nested-loop join of 3,000 tuples with 2,000,000; 20 % find a match"
            "postgres-80" Data(&RELATIONS), |ground| postgres_join::join(80, ground), 5.0;
                "the same where 80 % find one"
            "slices" Data(&ARRAY), slices, 10.0;
                "five slices through the middle of an array of 1 GB"
            "recognizer" Data(&SPEECH), recognize, 1.3;
                "recognizes four spoken words, with a language model of 27 MB"
            "gather" Data(&NUMBERS), gather, 20.0;
                "adds up numbers all over a mapped file of 2 GB"
            "memmap" Data(&NUMBERS), memmap, 5.0;
                "numbers at random places of such a file, by numpy.memmap"
            "lmdb" Data(&RECORDS), gets, 5.0;
                "gets 5,000 keys of a list from 2 GB (100,000 would take minutes)"
            "safetensors" Data(&TENSORS), part, 4.0;
                "loads an eighth of each tensor of a model of 2 GB"
            "matvec" Data(&GRIDS), |ground| MatVec.mapped(3, ground), 2.5;
                "a matrix in a mapped file, twice as large as its memory, times a vector, three times"
            "mgrid" Data(&GRIDS), |ground| Multigrid.mapped(2, ground), 2.5;
                "V-cycles on three-dimensional grids in such a file"
            "fft" Data(&GRIDS), |ground| Fourier.mapped(4, ground), 2.5;
                "three-dimensional Fourier transforms in such a file"
            "swap-matvec" Data(&GRIDS), |ground| MatVec.swapped(1, ground), 1.8;
                "the matrix in memory, half of which is swapped out to the disk, times a vector, once"
            "swap-mgrid" Data(&GRIDS), |ground| Multigrid.swapped(2, ground), 1.8;
                "V-cycles on grids in such memory"
            "swap-fft" Data(&GRIDS), |ground| Fourier.swapped(2, ground), 1.8;
                "Fourier transforms in such memory"
            "workers" Data(&SAMPLES), loader_samples::load, 4.0;
                "a loader with eight threads: 1,200 files, in each of which a read says where the next is"
            "duckdb" Data(&TABLES), query, 4.0;
                "DuckDB: an aggregate and a join over 200 Parquet files of 1 MB"
            "images" Data(&IMAGES), jpeg_files::load, 4.0;
                "a loader with eight threads, which decodes and scales 400 JPEG files, by Pillow"
            "pandas" Data(&PANDAS), import_pandas, 3.0;
                "imports pandas; Python, its library, numpy and pandas are on the disk"
            "go-build" Data(&GO), go_build, 3.0;
                "builds a web server, with nothing in the cache; Go and its library are on the disk"
        }
        DISK futile {
            "chase" Data(&CHAIN), chase, 1.03; "reads blocks each of which says where the next is"
            "rubbish" Data(&CHAIN), rubbish, 1.05;
                "the same, with shadows that hint nothing but what is never read"
            "cgroup-reread" Data(&CHAIN), reread, 1.03;
                "reads a file that fills its control group's memory, again and again"
            "beside" Data(&CHAIN), beside, 1.02;
                "computes, while another program follows such a chain on the same processor"
            "chained" Data(&NUMBERS), chained, 1.03;
                "adds up numbers of a mapped file of 2 GB each of which says where the next is"
            "stores" Data(&NUMBERS), stores, 1.03;
                "follows such a chain by reads, and stores all over 3 GB of memory in between"
        }
        SPINDLE futile {
            "compete-2" Data(&PARTS), |ground| compete(2, ground), 1.03;
                "two programs, each under its own runahead, want one rotating disk"
            "compete-4" Data(&PARTS), |ground| compete(4, ground), 1.03; "four programs"
            "compete-8" Data(&PARTS), |ground| compete(8, ground), 1.03; "eight programs"
        }
        DISK warm {
            "warm-grep-files" Tree, grep_files, WARM; "everything in memory"
            "warm-grep-r" Tree, grep_r, WARM; "everything in memory"
            "warm-tar" Tree, tar, WARM; "everything in memory"
            "warm-find-size" Tree, find_size, WARM; "everything in memory"
            "warm-du" Tree, du, WARM; "everything in memory"
            "warm-ls-lR" Tree, ls_lr, WARM; "everything in memory"
            "warm-git-status" Repository, git_status, WARM; "everything in memory"
        }
        MEMORY cost {
            "build" Nothing, build, Cost::ratio(Unit::Seconds, 1.02);
                "builds redis from its source with two jobs"
        }
        LARGE cost {
            "large-find" Tree, find_size, whole(); "walks the whole of Linux's source"
            "large-git-status" RepositoryApart, git_status_apart, whole();
                "compares the whole of Linux's source with its index, with git's own threads"
            "large-grep-r" Tree, grep_r, whole(); "reads the whole of Linux's source"
            "large-tar" Tree, tar, whole(); "archives the whole of Linux's source"
        }
        DISK cost {
            "pread" Tree, pread, cached; "a loop of cached reads of 4 KiB"
        }
        MEMORY cost {
            "true-dash" Nothing, dash, start(); "starts /bin/true 1,000 times from dash"
            "true-bash" Nothing, bash, start(); "starts /bin/true 1,000 times from bash"
            "redis" Nothing, |ground| redis(1, ground), served();
                "redis-benchmark's SET and GET, 50 connections"
            "redis-pipeline" Nothing, |ground| redis(16, ground), served();
                "the same, 16 requests at a time on each connection"
            "resident" Nothing, |ground| sleeper(false, ground), resident();
                "memory of a program that has worked and sleeps (Rss)"
            "resident-child" Nothing, |ground| sleeper(true, ground), resident();
                "the same, started by a shell"
        }
    };
    rows.iter_mut().filter(|row| row.name == "build").for_each(|row| row.long = true);
    rows
}
