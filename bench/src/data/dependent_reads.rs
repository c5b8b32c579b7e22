//! Files from which nothing can be gained: a chain of blocks in which each names the next, and a
//! file that fills all memory that its reader may have.

use std::path::PathBuf;

use crate::data::allowed_processors;
use crate::data::compile_program as compile;
use crate::data::job::{FigureSource, Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, Sequence, write_pieces};
use crate::error::Error;

pub static CHAIN: Dataset = Dataset {
    dir: "chain",
    mib: 1024,
    quick_mib: 256,
    needs: &[("cc", "gcc"), ("taskset", "util-linux")],
    make,
};

const CHASE: &str = include_str!("../../programs/chase_blocks.c");
const REREAD: &str = include_str!("../../programs/reread_file.c");
const SPIN: &str = include_str!("../../programs/spin_loop.c");
const BESIDE: &str = include_str!("../../programs/spin_beside.sh");

/// Option of `runahead run` that makes shadows hint only pieces of the file `rubbish` in the
/// working directory.
pub const PLANT_RUBBISH: [&str; 2] = ["--plant", "rubbish"];

const FILE: &str = "chain";
const SET: &str = "set";
/// A file that no command reads.
const RUBBISH: &str = "rubbish";

const BLOCK: usize = 4096;
/// Blocks of the chain: 200 MB.
const BLOCKS: u64 = 50_000;
const QUICK_BLOCKS: u64 = 500;
/// Size of the file that is read again.
const SET_BYTES: u64 = 64 << 20;
const QUICK_SET_BYTES: u64 = 8 << 20;
/// More than may be prefetched.
const RUBBISH_BYTES: u64 = 512 << 20;
const QUICK_RUBBISH_BYTES: u64 = 64 << 20;
/// Memory that the kernel and a small program need in a control group besides the file.
const REST: u64 = 4 << 20;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let blocks = |bytes| 0..bytes / BLOCK as u64;
    let write = |name, numbers: &mut dyn Iterator<Item = u64>| {
        write_pieces(&making.dir.join(name), numbers.map(block))
    };
    write(FILE, &mut cycle(making.size(BLOCKS, QUICK_BLOCKS)).into_iter())?;
    write(SET, &mut blocks(making.size(SET_BYTES, QUICK_SET_BYTES)))?;
    write(RUBBISH, &mut blocks(making.size(RUBBISH_BYTES, QUICK_RUBBISH_BYTES)))
}

/// A block with a number at its start.
fn block(number: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&number.to_ne_bytes());
    block
}

/// Returns the successor of each of `n` blocks; the chain visits all of them before the first again
/// (Sattolo's shuffle).
fn cycle(n: u64) -> Vec<u64> {
    let mut random = Sequence(200);
    let mut next: Vec<u64> = (0..n).collect();
    for i in (1..next.len()).rev() {
        next.swap(i, random.below(i as u64) as usize);
    }
    next
}

/// Reads that depend on each other: 10 s of waits.
pub fn chase(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let program = compile::program("chase", CHASE, ground.out)?;
    Ok(Job::new(program, "gcc", ground.dir).args([FILE, ground.size("2000", "20")]))
}

/// The chase, while shadows hint what it never reads.
pub fn rubbish(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(Job { options: PLANT_RUBBISH.map(Into::into).into(), ..chase(ground)? })
}

/// Reads a file again and again that fills all memory that the program may have.
pub fn reread(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let program = compile::program("reread", REREAD, ground.out)?;
    let told = ground.out.join("reread.told");
    Ok(Job {
        memory: Some(ground.size(SET_BYTES, QUICK_SET_BYTES) + REST),
        gauge: FigureSource::Told(told.clone()),
        ..Job::new(program, "gcc", ground.dir).args([SET, ground.size("100", "3")]).args([told])
    })
}

/// A program that computes beside the chase, on one processor. The chase takes the longer of the
/// two with runahead as without, so that it has a shadow all the time.
pub fn beside(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let spin: PathBuf = compile::program("spin", SPIN, ground.out)?;
    let told = ground.out.join("spin.told");
    let processor = allowed_processors::two_processors().0.unwrap_or(0).to_string();
    let millions = ground.size("2000", "20");
    let mut job = chase(ground)?;
    job.around = ["taskset", "-c", &processor, "sh", "-c", BESIDE, "sh"].map(Into::into).into();
    job.around.extend([spin.into(), millions.into(), told.clone().into()]);
    Ok(Job { gauge: FigureSource::Told(told), ..job })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_leads_through_all_blocks() {
        let next = cycle(500);
        let mut at = 0;
        for step in 1..=500 {
            at = next[at as usize];
            assert_eq!(at == 0, step == 500, "after {step} steps");
        }
    }
}
