//! Samples as a loader has them: many files, each with an index at its end that says where its records are. Workers take
//! one file each at a time; within a file each read depends on the one before, between files none does.

use std::fs;
use std::path::Path;

use crate::data::datasets::{Need, PYTHON, Sequence, python};
use crate::data::job::Job;
use crate::error::Error;

pub const NEEDS: [Need; 1] = [(PYTHON, "python3")];

const SCRIPT: &str = include_str!("../../programs/workers.py");
const WORKERS: &str = "8";
/// One worker alone would wait for half a minute.
const FILES: u64 = 1_200;
const QUICK: u64 = 20;
/// Bytes of a file's records: from so many, below so many.
const RECORDS: (u64, u64) = (64 << 10, 512 << 10);
/// Entries of an index.
const ENTRIES: u64 = 512;
/// Bytes of what a worker reads of a record.
const RECORD: u64 = 4 << 10;

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    let mut random = Sequence(5);
    for n in 0..if quick { QUICK } else { FILES } {
        let size = (RECORDS.0 + random.below(RECORDS.1 - RECORDS.0)) / 8 * 8;
        let mut bytes: Vec<u8> = (0..size / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        bytes.extend((0..ENTRIES).flat_map(|_| random.below(size - RECORD).to_le_bytes()));
        bytes.extend([size, ENTRIES * 8].into_iter().flat_map(u64::to_le_bytes));
        let to = dir.join(format!("{n:05}.sample"));
        fs::write(&to, bytes).map_err(Error::system("write", &to))?;
    }
    Ok(())
}

pub fn job(dir: &Path) -> Job {
    python(dir, SCRIPT).args([".", WORKERS])
}
