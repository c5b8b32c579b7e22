//! A part of the tree, dealt out to programs that compete for a disk.

use std::fs;
use std::path::Path;

use crate::data::copy_tree as copy;
use crate::data::datasets::Need;
use crate::data::job::Job;
use crate::data::linux_source::Source;
use crate::error::Error;
use crate::rows::commands::{Ground, PATTERN};

pub const NEEDS: [Need; 1] = [("grep", "grep")];

const SCRIPT: &str = include_str!("../../programs/compete.sh");

/// As many as there are programs at most.
const PARTS: usize = 8;
const FILES: usize = 150;
const QUICK: usize = 10;

pub fn make(dir: &Path, source: &Source, quick: bool) -> Result<(), Error> {
    let each = if quick { QUICK } else { FILES };
    let files = copy::regular_files(&source.root, Path::new(""))?;
    for (n, files) in files.chunks(each).take(PARTS).enumerate() {
        let part = dir.join(format!("part{n}"));
        fs::create_dir(&part).map_err(Error::system("create", &part))?;
        for (n, file) in files.iter().enumerate() {
            let to = part.join(format!("{n:03}"));
            fs::copy(source.root.join(file), &to).map_err(Error::system("copy to", &to))?;
        }
    }
    Ok(())
}

pub fn job(programs: u32, dir: &Path, ground: &Ground<'_>) -> Job {
    let mut job = Job::new("grep", "grep", dir).args(["-c", PATTERN]);
    job.around = ["sh", "-c", SCRIPT, "sh"].map(Into::into).into();
    job.around.extend([ground.out.into(), programs.to_string().into()]);
    job
}
