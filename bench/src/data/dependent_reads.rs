//! Files from which nothing can be gained: a chain of blocks each of which says where the next is, and
//! one that fills all memory there is.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::data::compile_program as compile;
use crate::data::datasets::{Need, Sequence};
use crate::data::job::{Gauge, Job};
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::measure::rubbish_hints as planted;
use crate::rows::commands::Ground;

pub const NEEDS: [Need; 2] = [("cc", "gcc"), ("taskset", "util-linux")];

const CHASE: &str = include_str!("../../programs/chase.c");
const REREAD: &str = include_str!("../../programs/reread.c");
const SPIN: &str = include_str!("../../programs/spin.c");
const BESIDE: &str = include_str!("../../programs/beside.sh");

const FILE: &str = "chain";
const SET: &str = "set";

const BLOCK: usize = 4096;
/// 200 MB.
const BLOCKS: u64 = 50_000;
/// The file that is read again.
const SET_BYTES: u64 = 64 << 20;
/// Of which rubbish is hinted: more than anything may prefetch.
const RUBBISH_BYTES: u64 = 512 << 20;
/// Besides it, what the kernel and a small program need of a control group.
const REST: u64 = 4 << 20;

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    let blocks = if quick { 500 } else { BLOCKS };
    write(&dir.join(FILE), cycle(blocks))?;
    write(&dir.join(SET), 0..set_bytes(quick) / BLOCK as u64)?;
    let rubbish = if quick { SET_BYTES } else { RUBBISH_BYTES };
    write(&dir.join(planted::FILE), 0..rubbish / BLOCK as u64)
}

fn set_bytes(quick: bool) -> u64 {
    if quick { 8 << 20 } else { SET_BYTES }
}

/// A block for each number, which is at its start.
fn write(path: &Path, numbers: impl IntoIterator<Item = u64>) -> Result<(), Error> {
    let failed = || Error::system("write", path);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed())?);
    for number in numbers {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(&number.to_ne_bytes());
        file.write_all(&block).map_err(failed())?;
    }
    file.flush().map_err(failed())
}

/// Where each of `n` blocks leads: all of them before the first again (Sattolo's shuffle).
fn cycle(n: u64) -> Vec<u64> {
    let mut random = Sequence(200);
    let mut next: Vec<u64> = (0..n).collect();
    for i in (1..next.len()).rev() {
        next.swap(i, random.below(i as u64) as usize);
    }
    next
}

/// 10 s of waits.
pub fn chase(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let program = compile::program("chase", CHASE, ground.out)?;
    let steps = if ground.quick { "20" } else { "2000" };
    Ok(Job::new(program, "gcc", dir).args([FILE, steps]))
}

/// Reads that depend on each other, while shadows hint what it never reads.
pub fn rubbish(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let job = chase(dir, ground)?;
    Ok(Job { options: planted::RUBBISH.map(Into::into).into(), ..job })
}

/// Everything that it may have is full after the first time.
pub fn reread(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let program = compile::program("reread", REREAD, ground.out)?;
    let told = ground.out.join("reread.told");
    let passes = if ground.quick { "3" } else { "100" };
    Ok(Job {
        memory: Some(set_bytes(ground.quick) + REST),
        gauge: Gauge::Told(told.clone()),
        ..Job::new(program, "gcc", dir).args([SET, passes]).args([told])
    })
}

/// A program that computes beside one that waits, on one processor. The other takes as long with runahead as
/// without, so that there is a shadow beside the first all the time, and no more useful work than without.
pub fn beside(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let spin: PathBuf = compile::program("spin", SPIN, ground.out)?;
    let told = ground.out.join("spin.told");
    let processor = sys::two_processors().0.unwrap_or(0).to_string();
    let millions = if ground.quick { "20" } else { "2000" };
    let mut job = chase(dir, ground)?;
    job.around = ["taskset", "-c", &processor, "sh", "-c", BESIDE, "sh"].map(Into::into).into();
    job.around.extend([spin.into(), millions.into(), told.clone().into()]);
    Ok(Job { gauge: Gauge::Told(told), ..job })
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
