//! A part of the tree, dealt out to programs that compete for a disk.

use std::fs;
use std::path::Path;

use crate::data::copy_tree::regular_files;
use crate::data::job::{Job, JobPlaces};
use crate::data::linux_source::PATTERN;
use crate::data::row_datasets::{Dataset, DatasetBuild};
use crate::error::Error;

pub static PARTS: Dataset =
    Dataset { dir: "parts", mib: 512, quick_mib: 256, needs: &[("grep", "grep")], make };

const SCRIPT: &str = include_str!("../../programs/competing_greps.sh");

/// Parts: the largest number of programs.
const COUNT: usize = 8;
const FILES: usize = 150;
const QUICK_FILES: usize = 10;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let root = &making.source.root;
    let files = regular_files(root, Path::new(""))?;
    for (n, files) in files.chunks(making.size(FILES, QUICK_FILES)).take(COUNT).enumerate() {
        let part = making.dir.join(format!("part{n}"));
        fs::create_dir(&part).map_err(Error::system("create", &part))?;
        for (n, file) in files.iter().enumerate() {
            let to = part.join(format!("{n:03}"));
            fs::copy(root.join(file), &to).map_err(Error::system("copy to", &to))?;
        }
    }
    Ok(())
}

/// `programs` runs of grep at once, each on its own part and under its own runahead.
pub fn compete(programs: u32, ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let mut job = Job::new("grep", "grep", ground.dir).args(["-c", PATTERN]);
    job.around = ["sh", "-c", SCRIPT, "sh"].map(Into::into).into();
    job.around.extend([ground.out.into(), programs.to_string().into()]);
    Ok(job)
}
