//! Computations on arrays that are in mapped files and have no room in memory: each file is twice
//! as large as the memory that its program may have, runahead included.
//!
//! Two of them write into their file, where all but its first array is overwritten before it is
//! read, so that every run has the same result.

use std::path::Path;

use crate::data::compile_program as compile;
use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, Sequence, write_pieces};
use crate::error::Error;

pub static GRIDS: Dataset =
    Dataset { dir: "grids", mib: 1024, quick_mib: 256, needs: &[("cc", "gcc")], make };

/// A program and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A matrix times a vector, row by row.
    MatVec,
    /// V-cycles on a grid and coarser ones.
    Multigrid,
    /// A Fourier transform, and inverse ones.
    Fourier,
}

/// A program with what it needs of `mapped_array.h`.
macro_rules! array {
    ($source:literal) => {
        concat!(include_str!("../../programs/mapped_array.h"), "\n", include_str!($source))
    };
}

/// Besides their arrays, what the kernel and a small program need of a control group.
const REST: u64 = 4 << 20;

impl Kernel {
    const ALL: [Self; 3] = [Self::MatVec, Self::Multigrid, Self::Fourier];

    fn name(self) -> &'static str {
        match self {
            Self::MatVec => "matvec",
            Self::Multigrid => "mgrid",
            Self::Fourier => "fft",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::MatVec => array!("../../programs/matrix_times_vector.c"),
            Self::Multigrid => array!("../../programs/multigrid.c"),
            Self::Fourier => array!("../../programs/fourier_transform.c"),
        }
    }

    /// Points along one side; of a matrix, rows and columns.
    fn side(self, quick: bool) -> u64 {
        match (self, quick) {
            (Self::MatVec, false) => 5632,
            (Self::MatVec, true) => 1024,
            (Self::Multigrid, false) => 160,
            (Self::Multigrid, true) => 64,
            (Self::Fourier, false) => 128,
            (Self::Fourier, true) => 64,
        }
    }

    /// Numbers of 8 bytes that are given, and those in all of the file.
    fn numbers(self, quick: bool) -> (u64, u64) {
        let n = self.side(quick);
        match self {
            Self::MatVec => (n * n, n * n),
            Self::Multigrid => (n.pow(3), n.pow(3) + 2 * coarser(n)),
            Self::Fourier => (2 * n.pow(3), 3 * 2 * n.pow(3)),
        }
    }

    fn make(self, dir: &Path, quick: bool) -> Result<(), Error> {
        let (given, all) = self.numbers(quick);
        let mut random = Sequence(given);
        let mut number = |n: u64| match self {
            _ if n >= given => 0.0,
            // 0 to 1.
            Self::MatVec | Self::Fourier => random.below(1 << 53) as f64 / (1u64 << 53) as f64,
            // A few charges, which come to nothing.
            Self::Multigrid if n % (given / 20) == given / 40 => {
                if (n / (given / 20)).is_multiple_of(2) { 1.0 } else { -1.0 }
            }
            Self::Multigrid => 0.0,
        };
        write_pieces(&dir.join(self.name()), (0..all).map(|n| number(n).to_ne_bytes()))
    }

    /// The computation on arrays in memory, half of which has no room and is swapped out.
    pub fn swapped(self, rounds: u32, ground: &JobPlaces<'_>) -> Result<Job, Error> {
        let (_, all) = self.numbers(ground.quick);
        Ok(Job { swap: Some(8 * all + (64 << 20)), ..self.on("-", rounds, ground)? })
    }

    /// The computation on arrays in a mapped file: so many products, cycles or transforms.
    pub fn mapped(self, rounds: u32, ground: &JobPlaces<'_>) -> Result<Job, Error> {
        self.on(self.name(), rounds, ground)
    }

    /// Arrays in a file, or in memory (`-`).
    fn on(self, file: &str, rounds: u32, ground: &JobPlaces<'_>) -> Result<Job, Error> {
        let program = compile::program(self.name(), self.source(), ground.out)?;
        let sizes = [self.side(ground.quick).to_string(), ground.size(rounds, 1).to_string()];
        let (_, all) = self.numbers(ground.quick);
        let job = Job::new(program, "gcc", ground.dir).args([file]).args(sizes);
        Ok(Job { memory: Some(8 * all / 2 + REST), ..job })
    }
}

/// Points of a grid with sides of `n` and of all coarser ones, as `multigrid.c` has them.
fn coarser(n: u64) -> u64 {
    match n {
        0..4 => 0,
        n if n % 2 == 1 => n.pow(3),
        n => n.pow(3) + coarser(n / 2),
    }
}

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    Kernel::ALL.iter().try_for_each(|kernel| kernel.make(making.dir, making.quick))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn each_program_takes_its_file_and_comes_to_the_same_again() {
        let dir = tempfile::tempdir().unwrap();
        Kernel::ALL.iter().for_each(|kernel| kernel.make(dir.path(), true).unwrap());
        let out = dir.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let ground = JobPlaces { root: dir.path(), dir: dir.path(), out: &out, quick: true };
        for kernel in Kernel::ALL {
            let job = kernel.mapped(1, &ground).unwrap();
            let run = || {
                let mut command = Command::new(&job.program);
                command.args(&job.args).current_dir(dir.path()).output().unwrap()
            };
            let (first, again) = (run(), run());
            assert!(first.status.success() && !first.stdout.is_empty(), "{kernel:?}: {first:?}");
            assert_eq!(first.stdout, again.stdout, "{kernel:?}");
        }
    }

    #[test]
    fn grids_become_coarser_until_a_side_is_odd_or_short() {
        assert_eq!(coarser(20), 8000 + 1000 + 125);
        assert_eq!(coarser(8), 512 + 64);
    }
}
