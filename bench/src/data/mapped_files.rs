//! Files of 2 GB that are mapped and touched here and there: numbers, a database of LMDB, a file of
//! safetensors.
//!
//! Most commands know their places before they run, or read a little to find them; they wait for
//! page faults. Some need places of the numbers that cannot be predicted, because each number names
//! the next place. The kernel is not told that accesses are random (`MADV_RANDOM`).

use crate::data::compile_program as compile;
use crate::data::job::{FigureSource, Job, JobPlaces};
use crate::data::row_datasets::{
    Dataset, DatasetBuild, NUMPY, PYTHON, Sequence, module, python, run_python, write_pieces,
};
use crate::error::Error;

pub static NUMBERS: Dataset = Dataset {
    dir: "numbers",
    mib: 2560,
    quick_mib: 256,
    needs: &[("cc", "gcc"), (PYTHON, "python3"), (NUMPY, "python3-numpy")],
    make: make_numbers,
};
pub static RECORDS: Dataset = Dataset {
    dir: "records",
    mib: 2560,
    quick_mib: 256,
    needs: &[
        (PYTHON, "python3"),
        (NUMPY, "python3-numpy"),
        ("/usr/lib/python3/dist-packages/lmdb/__init__.py", "python3-lmdb"),
    ],
    make: make_records,
};
pub static TENSORS: Dataset = Dataset {
    dir: "tensors",
    mib: 2560,
    quick_mib: 256,
    needs: &[(PYTHON, "python3"), (NUMPY, "python3-numpy")],
    make: make_tensors,
};

const GATHER: &str = include_str!("../../programs/gather_numbers.c");
const CHAINED: &str = include_str!("../../programs/chained_numbers.c");
const STORES: &str = include_str!("../../programs/chained_stores.c");
const MEMMAP: &str = include_str!("../../programs/numpy_memmap.py");
const GETS: &str = include_str!("../../programs/lmdb_gets.py");
const PART: &str = include_str!("../../programs/safetensors_part.py");
/// Makes the files; `scripts/everyday-root` uses it, too.
const MAKE: &str = include_str!("../../programs/make_mapped_files.py");

const FILE: &str = "numbers";
const BYTES: u64 = 2 << 30;
const QUICK_BYTES: u64 = 32 << 20;
/// Numbers that are touched: 20 s of waits.
const TOUCHES: &str = "4000";
const QUICK_TOUCHES: &str = "100";

const STORE: &str = "store";
const KEYS: &str = "keys";
/// Records and keys that are read. 2 GB: six records are in a block. 100,000 gets would have plain
/// wait for seven minutes. With 5,000, each waits for a leaf, and half of them for the block above
/// it, too: half a minute.
const SIZE: [&str; 2] = ["3100000", "5000"];
const QUICK_SIZE: [&str; 2] = ["30000", "100"];

const MODULE: &str = "safetensors";
const MODEL: &str = "model.safetensors";
/// Tensors and their rows: 2 GB, of which an eighth is loaded.
const SHAPE: [&str; 2] = ["500", "1024"];
const QUICK_SHAPE: [&str; 2] = ["10", "256"];

fn make_numbers(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let mut random = Sequence(2);
    let count = making.size(BYTES, QUICK_BYTES) / 8;
    write_pieces(&making.dir.join(FILE), (0..count).map(|_| random.next().to_ne_bytes()))
}

fn make_records(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let [records, keys] = making.size(SIZE, QUICK_SIZE);
    run_python(making.dir, MAKE, ["records", STORE, KEYS, records, keys], None)
}

fn make_tensors(making: &DatasetBuild<'_>) -> Result<(), Error> {
    // Without the module the row's job fails, and says so.
    let Ok(modules) = module(MODULE) else { return Ok(()) };
    let [count, rows] = making.size(SHAPE, QUICK_SHAPE);
    run_python(making.dir, MAKE, ["tensors", MODEL, count, rows], Some(&modules))
}

/// Numbers at places that a multiplicative generator gives.
pub fn gather(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(touching(chain_of("gather", GATHER, ground)?))
}

/// Numbers at random places, by `numpy.memmap`.
pub fn memmap(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let touches = ground.size(TOUCHES, QUICK_TOUCHES);
    Ok(touching(python(ground.dir, MEMMAP).args([FILE, touches])))
}

/// Numbers in which each names the place of the next.
pub fn chained(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    chain_of("chained", CHAINED, ground)
}

fn chain_of(name: &str, source: &str, ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let program = compile::program(name, source, ground.out)?;
    let touches = ground.size(TOUCHES, QUICK_TOUCHES);
    Ok(Job::new(program, "gcc", ground.dir).args([FILE, touches]))
}

/// Stores into 3 GB of memory, after each of 100 reads: each store may have to copy its page, and
/// none of the reads can be foreseen. The first time that memory is touched is not measured.
pub fn stores(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    storing(ground, ground.size([3 << 20, 100, 1000], [8 << 10, 10, 10]))
}

/// The program of [`stores`] with these sizes: KiB of memory, reads, pages that are stored into
/// after each.
pub fn storing(ground: &JobPlaces<'_>, sizes: [u64; 3]) -> Result<Job, Error> {
    let program = compile::program("stores", STORES, ground.out)?;
    let told = ground.out.join("stores.told");
    let sizes = sizes.map(|size| size.to_string());
    let job = Job::new(program, "gcc", ground.dir).args([FILE]).args(sizes).args([&told]);
    Ok(Job { gauge: FigureSource::Told(told), ..job })
}

/// LMDB: the values of a list of keys.
pub fn gets(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(touching(python(ground.dir, GETS).args([STORE, KEYS])))
}

/// An eighth of each tensor of a safetensors file.
pub fn part(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let job = touching(python(ground.dir, PART).args([MODEL]));
    Ok(Job { env: vec![("PYTHONPATH", module(MODULE)?.into())], ..job })
}

fn touching(job: Job) -> Job {
    Job { touches: true, ..job }
}
