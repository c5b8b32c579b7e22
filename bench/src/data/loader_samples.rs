//! Samples as a loader has them: many files, each with an index at its end that says where its
//! records are. Workers take one file each at a time. Within a file each read depends on the one
//! before, between files none does.

use std::fs;

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, PYTHON, Sequence, python};
use crate::error::Error;

pub static SAMPLES: Dataset =
    Dataset { dir: "samples", mib: 1024, quick_mib: 256, needs: &[(PYTHON, "python3")], make };

const SCRIPT: &str = include_str!("../../programs/sample_workers.py");
const WORKERS: &str = "8";
/// Files: one worker alone would wait for half a minute.
const FILES: u64 = 1_200;
const QUICK_FILES: u64 = 20;
/// Bytes of a file's records: lower and upper bound.
const RECORDS: (u64, u64) = (64 << 10, 512 << 10);
/// Entries of an index.
const ENTRIES: u64 = 512;
/// Bytes that a worker reads of a record.
const RECORD: u64 = 4 << 10;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let mut random = Sequence(5);
    for n in 0..making.size(FILES, QUICK_FILES) {
        let size = (RECORDS.0 + random.below(RECORDS.1 - RECORDS.0)) / 8 * 8;
        let mut bytes: Vec<u8> = (0..size / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        bytes.extend((0..ENTRIES).flat_map(|_| random.below(size - RECORD).to_le_bytes()));
        bytes.extend([size, ENTRIES * 8].into_iter().flat_map(u64::to_le_bytes));
        let to = making.dir.join(format!("{n:05}.sample"));
        fs::write(&to, bytes).map_err(Error::system("write", &to))?;
    }
    Ok(())
}

/// A loader with eight threads.
pub fn load(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(python(ground.dir, SCRIPT).args([".", WORKERS]))
}
