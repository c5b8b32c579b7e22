//! An array of numbers in NetCDF's classic format, and slices of it through its middle dimension:
//! each slice is a short piece of every plane.
//!
//! Of HDF5's own format the library reads 64 KiB where a piece is 4,000 bytes, which keeps more
//! than one spindle busy with each.

use std::process::Command;

use runahead_harness::{remove, run_helper};

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, PYTHON, Sequence, run_python};
use crate::error::Error;

pub static ARRAY: Dataset = Dataset {
    dir: "array",
    mib: 1536,
    quick_mib: 256,
    needs: &[
        ("ncks", "nco"),
        (PYTHON, "python3"),
        ("/usr/lib/python3/dist-packages/h5py/__init__.py", "python3-h5py"),
    ],
    make,
};

const SCRIPT: &str = include_str!("../../programs/hdf5_array.py");
const FILE: &str = "array.nc";
const MADE: &str = "array.h5";

/// Sides: 1 GB. Pieces of a slice are 2,000,000 bytes apart, which is no multiple of a stripe: with
/// powers of two all of a slice would be on one spindle.
const SHAPE: [u64; 3] = [520, 500, 1000];
const QUICK_SHAPE: [u64; 3] = [40, 50, 1000];
const SLICES: usize = 5;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let [a, b, c] = making.size(SHAPE, QUICK_SHAPE).map(|n| n.to_string());
    run_python(making.dir, SCRIPT, [MADE, &a, &b, &c], None)?;
    // -6: the classic format for large files.
    let mut ncks = Command::new("ncks");
    ncks.args(["-O", "-h", "-C", "-6", "-v", "v", MADE, FILE]).current_dir(making.dir);
    run_helper(&mut ncks)?;
    Ok(remove(&making.dir.join(MADE))?)
}

/// `ncks` reads one slice after the other, and writes them into one file.
pub fn slices(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let slices = ground.out.join("slices.nc");
    let [_, middle, _] = ground.size(SHAPE, QUICK_SHAPE);
    let mut random = Sequence(520);
    // -h: without the time and the command in the file; -3: in the classic format, too.
    let job = Job::new("ncks", "nco", ground.dir).args(["-O", "-h", "-C", "-3", "-v", "v"]);
    let picked = (0..SLICES).map(|_| format!("phony_dim_1,{}", random.below(middle)));
    let job = picked.fold(job, |job, slice| job.args(["-d", &slice]));
    Ok(Job { artefact: Some(slices.clone()), ..job.args([FILE]).args([slices]) })
}
