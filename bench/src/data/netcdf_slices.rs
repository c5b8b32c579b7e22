//! An array of numbers in NetCDF's classic format, and slices of it through its middle dimension: every
//! one is a short piece from every plane.
//!
//! Of HDF5's own format the library reads 64 KiB where a piece is 4,000 bytes, which keeps more than one
//! spindle busy with each.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::data::datasets::{Need, PYTHON, Sequence};
use crate::data::job::Job;
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::rows::commands::Ground;

pub const NEEDS: [Need; 3] = [
    ("ncks", "nco"),
    (PYTHON, "python3"),
    ("/usr/lib/python3/dist-packages/h5py/__init__.py", "python3-h5py"),
];

const SCRIPT: &str = include_str!("../../programs/slices.py");
const FILE: &str = "array.nc";
const MADE: &str = "array.h5";

/// 1 GB. Pieces of a slice are 2,000,000 bytes apart, which is no multiple of a stripe: with powers of two all
/// of a slice would be on one spindle.
const SHAPE: [u64; 3] = [520, 500, 1000];
const QUICK: [u64; 3] = [40, 50, 1000];
const SLICES: usize = 5;

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    let shape = if quick { QUICK } else { SHAPE };
    let mut python = Command::new(PYTHON);
    let made = dir.join(MADE);
    python.args(["-c", SCRIPT]).arg(&made).args(shape.map(|n| n.to_string()));
    sys::run_helper("python3", python, dir)?;
    // -6: the classic format for large files.
    let mut ncks = Command::new("ncks");
    ncks.args(["-O", "-h", "-C", "-6", "-v", "v", MADE, FILE]).current_dir(dir);
    sys::run_helper("ncks", ncks, dir)?;
    fs::remove_file(&made).map_err(Error::system("remove", &made))
}

/// `ncks` reads one slice after the other, and writes them into one file.
pub fn job(dir: &Path, ground: &Ground<'_>) -> Job {
    let slices = ground.out.join("slices.nc");
    let [_, middle, _] = if ground.quick { QUICK } else { SHAPE };
    let mut random = Sequence(520);
    // -h: without the time and the command in the file; -3: in the classic format, too.
    let job = Job::new("ncks", "nco", dir).args(["-O", "-h", "-C", "-3", "-v", "v"]);
    let picked = (0..SLICES).map(|_| format!("phony_dim_1,{}", random.below(middle)));
    let job = picked.fold(job, |job, slice| job.args(["-d", &slice]));
    Job { artefact: Some(slices.clone()), ..job.args([FILE]).args([slices]) }
}
