//! JPEG files as a loader of samples has them: workers take one each, decode it and scale it down.

use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, PYTHON, python, run_python};
use crate::error::Error;

pub static IMAGES: Dataset = Dataset {
    dir: "images",
    mib: 512,
    quick_mib: 256,
    needs: &[
        (PYTHON, "python3"),
        ("/usr/lib/python3/dist-packages/PIL/__init__.py", "python3-pil"),
    ],
    make,
};

const SCRIPT: &str = include_str!("../../programs/jpeg_images.py");
const WORKERS: &str = "8";
/// Files of 100 to 230 KB.
const COUNT: &str = "400";
const QUICK_COUNT: &str = "20";

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    run_python(making.dir, SCRIPT, ["make", making.size(COUNT, QUICK_COUNT)], None)
}

/// Decodes and scales all of them.
pub fn load(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(python(ground.dir, SCRIPT).args(["load", WORKERS]))
}
