//! Files of 2 GB that are mapped and touched here and there: numbers, a database of LMDB, a file of safetensors. Which
//! places a command needs is known before it runs or told by a little of what it reads; what it waits for are page faults.
//! Of the numbers some commands need places that nobody can know, each told by the number before.
//!
//! Nobody tells the kernel that accesses are random (`MADV_RANDOM`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use crate::data::compile_program as compile;
use crate::data::datasets::{Need, PYTHON, Sequence, module, python};
use crate::data::job::{Gauge, Job};
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::rows::commands::Ground;

const NUMPY: &str = "/usr/lib/python3/dist-packages/numpy/__init__.py";

pub const NUMBERS_NEEDS: [Need; 3] = [("cc", "gcc"), (PYTHON, "python3"), (NUMPY, "python3-numpy")];
pub const RECORDS_NEEDS: [Need; 3] = [
    (PYTHON, "python3"),
    (NUMPY, "python3-numpy"),
    ("/usr/lib/python3/dist-packages/lmdb/__init__.py", "python3-lmdb"),
];
pub const TENSORS_NEEDS: [Need; 2] = [(PYTHON, "python3"), (NUMPY, "python3-numpy")];

const GATHER: &str = include_str!("../../programs/gather.c");
const CHAINED: &str = include_str!("../../programs/chained.c");
const STORES: &str = include_str!("../../programs/stores.c");
const MEMMAP: &str = include_str!("../../programs/memmap.py");
const GETS: &str = include_str!("../../programs/gets.py");
const PART: &str = include_str!("../../programs/tensors.py");
/// By which the everyday commands' files of these kinds are made, too.
const MAKE: &str = include_str!("../../programs/mapped.py");

const NUMBERS: &str = "numbers";
const BYTES: u64 = 2 << 30;
const QUICK_BYTES: u64 = 32 << 20;
/// 20 s of waits.
const TOUCHES: u32 = 4_000;

const STORE: &str = "store";
const KEYS: &str = "keys";
/// 2 GB: six are in a block.
const RECORDS: u32 = 3_100_000;
/// 100,000 gets would have plain wait for seven minutes. With 5,000, of which each waits for a leaf, and half of them
/// for the block above it, too, it waits for half a minute.
const KEYS_READ: u32 = 5_000;

const MODULE: &str = "safetensors";
const MODEL: &str = "model.safetensors";
/// 2 GB, of which an eighth is loaded.
const TENSORS: [u32; 2] = [500, 1024];
const QUICK_TENSORS: [u32; 2] = [10, 256];

pub fn make_numbers(dir: &Path, quick: bool) -> Result<(), Error> {
    let mut random = Sequence(2);
    let count = if quick { QUICK_BYTES } else { BYTES } / 8;
    write(&dir.join(NUMBERS), (0..count).map(|_| random.next().to_ne_bytes()))
}

/// Numbers one after the other.
pub fn write(path: &Path, numbers: impl IntoIterator<Item = [u8; 8]>) -> Result<(), Error> {
    let failed = || Error::system("write", path);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed())?);
    numbers.into_iter().try_for_each(|number| file.write_all(&number)).map_err(failed())?;
    file.flush().map_err(failed())
}

/// Numbers of a mapped file, at places that a multiplicative generator gives.
pub fn gather(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let program = compile::program("gather", GATHER, ground.out)?;
    Ok(mapping(Job::new(program, "gcc", dir).args([NUMBERS, &touches(ground)])))
}

/// Numbers of a mapped file, at random places, by `numpy.memmap`.
pub fn memmap(dir: &Path, ground: &Ground<'_>) -> Job {
    mapping(python(dir, MEMMAP).args([NUMBERS, &touches(ground)]))
}

/// Numbers of a mapped file, each of which says where the next is.
pub fn chained(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let program = compile::program("chained", CHAINED, ground.out)?;
    Ok(Job::new(program, "gcc", dir).args([NUMBERS, &touches(ground)]))
}

/// 3 GB, and a hundred reads with stores after each: each store is one that may have to copy its page, and of the
/// reads none can be foreseen. The first time that memory is touched is not measured.
pub fn stores(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let sizes = if ground.quick { [8 << 10, 10, 10] } else { [3 << 20, 100, 1000] };
    storing(dir, ground, sizes)
}

/// Sizes: KiB of memory, reads, pages that are stored into after each.
pub fn storing(dir: &Path, ground: &Ground<'_>, sizes: [u64; 3]) -> Result<Job, Error> {
    let program = compile::program("stores", STORES, ground.out)?;
    let told = ground.out.join("stores.told");
    let sizes = sizes.map(|size| size.to_string());
    let job = Job::new(program, "gcc", dir).args([NUMBERS]).args(sizes).args([&told]);
    Ok(Job { gauge: Gauge::Told(told), ..job })
}

fn touches(ground: &Ground<'_>) -> String {
    if ground.quick { 100 } else { TOUCHES }.to_string()
}

pub fn make_records(dir: &Path, quick: bool) -> Result<(), Error> {
    let (records, keys) = if quick { (30_000, 100) } else { (RECORDS, KEYS_READ) };
    let words = ["records", STORE, KEYS, &records.to_string(), &keys.to_string()];
    make(dir, &words.map(Into::into), &[])
}

/// What an LMDB database has for each of a list of keys.
pub fn gets(dir: &Path) -> Job {
    mapping(python(dir, GETS).args([STORE, KEYS]))
}

pub fn make_tensors(dir: &Path, quick: bool) -> Result<(), Error> {
    let Ok(modules) = module(MODULE) else { return Ok(()) };
    let [count, rows] = if quick { QUICK_TENSORS } else { TENSORS };
    let words = ["tensors", MODEL, &count.to_string(), &rows.to_string()];
    make(dir, &words.map(Into::into), &[("PYTHONPATH", modules.into())])
}

/// An eighth of each tensor of a safetensors file.
pub fn part(dir: &Path) -> Result<Job, Error> {
    let job = mapping(python(dir, PART).args([MODEL]));
    Ok(Job { env: vec![("PYTHONPATH", module(MODULE)?.into())], ..job })
}

fn make(dir: &Path, words: &[OsString], env: &[(&str, OsString)]) -> Result<(), Error> {
    let mut python = Command::new(PYTHON);
    python.args(["-c", MAKE]).args(words).current_dir(dir);
    python.envs(env.iter().map(|(name, value)| (name, value)));
    sys::run_helper("python3", python, dir)
}

fn mapping(job: Job) -> Job {
    Job { touches: true, ..job }
}
