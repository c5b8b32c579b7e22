//! What some rows work on instead of the tree: databases, arrays, object files, a recognizer's models.
//!
//! Each is made once in an invocation, beside the storage, and copied onto each storage that needs it;
//! a storage holds one of them, and nothing else. All are made of installed packages or of seeded
//! sequences, and so are the same in every run.
//!
//! Invariant: data are complete or their row has no job.

use crate::data::competing_parts as parts;
use crate::data::dependent_reads as chain;
use crate::data::installed_programs as installed;
use crate::data::jpeg_files as images;
use crate::data::loader_samples as samples;
use crate::data::mapped_files as mapped;
use crate::data::netcdf_slices as slices;
use crate::data::object_files as link;
use crate::data::out_of_core as grids;
use crate::data::parquet_tables as tables;
use crate::data::postgres_join as join;
use crate::data::speech_models as speech;
use crate::data::sqlite_orders as orders;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::data::job::Job;
use crate::data::linux_source::{self as source, Source};
pub use crate::data::out_of_core::Kernel;
use crate::data::progress;
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};
use crate::rows::commands::Ground;

/// Data of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// The object files of a library.
    Objects,
    /// An SQLite database of 1 GB.
    Orders,
    /// A PostgreSQL cluster with relations to join.
    Relations,
    /// An array of 1 GB.
    Array,
    /// A recognizer's models, and a recording.
    Speech,
    /// A file in which each block names the next, one to be read again and again, and one that no command reads.
    Chain,
    /// A part of the tree, dealt out to programs that compete.
    Parts,
    /// 2 GB of numbers, to be mapped.
    Numbers,
    /// An LMDB database of 2 GB, and a list of keys.
    Records,
    /// A safetensors file of 2 GB.
    Tensors,
    /// Arrays of several programs, each larger than the memory that its program may have.
    Grids,
    /// 1,200 files, each with an index.
    Samples,
    /// 200 Parquet files.
    Tables,
    /// 400 JPEG files.
    Images,
    /// An installation of Python with pandas.
    Pandas,
    /// An installation of Go, and a program in it.
    Go,
}

/// A program or file that a row needs, and Debian's package of it.
pub type Need = (&'static str, &'static str);

pub const PYTHON: &str = "/usr/bin/python3";

/// A script, with the arguments that follow.
pub fn python(dir: &Path, script: &str) -> Job {
    Job::new(PYTHON, "python3", dir).args(["-c", script])
}

/// Where `scripts/setup` puts Python's modules that Debian has no package of, if this one is there.
pub fn module(module: &'static str) -> Result<PathBuf, Failure> {
    let modules = source::cache_dir().join("python");
    match modules.join(module).is_dir() {
        true => Ok(modules),
        false => Err(Failure::NoModule { module, path: modules }),
    }
}

impl Data {
    /// Its directory on the storage.
    pub fn dir(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Orders => "orders",
            Self::Relations => "relations",
            Self::Array => "array",
            Self::Speech => "speech",
            Self::Chain => "chain",
            Self::Parts => "parts",
            Self::Numbers => "numbers",
            Self::Records => "records",
            Self::Tensors => "tensors",
            Self::Grids => "grids",
            Self::Samples => "samples",
            Self::Tables => "tables",
            Self::Images => "images",
            Self::Pandas => "pandas",
            Self::Go => "go",
        }
    }

    /// What has to be free in the memory file system to have it on a storage.
    pub fn space(self, quick: bool) -> u64 {
        match (self, quick) {
            // An installation is always a whole one.
            (Self::Go, _) => 1 << 30,
            (Self::Pandas, _) => 512 << 20,
            (_, true) => 256 << 20,
            (Self::Numbers | Self::Records | Self::Tensors, _) => 2560 << 20,
            (Self::Orders | Self::Array, _) => 1536 << 20,
            (Self::Relations | Self::Chain | Self::Grids | Self::Samples, _) => 1 << 30,
            _ => 512 << 20,
        }
    }

    fn needs(self) -> &'static [Need] {
        match self {
            Self::Objects => &link::NEEDS,
            Self::Orders => &orders::NEEDS,
            Self::Relations => &join::NEEDS,
            Self::Array => &slices::NEEDS,
            Self::Speech => &speech::NEEDS,
            Self::Chain => &chain::NEEDS,
            Self::Parts => &parts::NEEDS,
            Self::Numbers => &mapped::NUMBERS_NEEDS,
            Self::Records => &mapped::RECORDS_NEEDS,
            Self::Tensors => &mapped::TENSORS_NEEDS,
            Self::Grids => &grids::NEEDS,
            Self::Samples => &samples::NEEDS,
            Self::Tables => &tables::NEEDS,
            Self::Images => &images::NEEDS,
            Self::Pandas => &installed::PANDAS_NEEDS,
            Self::Go => &installed::GO_NEEDS,
        }
    }

    /// Makes it in the empty directory `dir`.
    fn make(self, dir: &Path, source: &Source, quick: bool) -> Result<(), Error> {
        match self {
            Self::Objects => link::make(dir, quick),
            Self::Orders => orders::make(dir, quick),
            Self::Relations => join::make(dir, quick),
            Self::Array => slices::make(dir, quick),
            Self::Speech => speech::make(dir),
            Self::Chain => chain::make(dir, quick),
            Self::Parts => parts::make(dir, source, quick),
            Self::Numbers => mapped::make_numbers(dir, quick),
            Self::Records => mapped::make_records(dir, quick),
            Self::Tensors => mapped::make_tensors(dir, quick),
            Self::Grids => grids::make(dir, quick),
            Self::Samples => samples::make(dir, quick),
            Self::Tables => tables::make(dir, quick),
            Self::Images => images::make(dir, quick),
            Self::Pandas => installed::make_pandas(dir),
            Self::Go => installed::make_go(dir),
        }
    }
}

/// A command that works on data of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// `ld` of a library's object files.
    Link,
    /// SQLite: a range of a secondary index.
    Range,
    /// SQLite: a join through a secondary index.
    SqlJoin,
    /// PostgreSQL: an index nested-loop join.
    Postgres {
        /// Of the outer relation's tuples, so many in 100 find a match.
        percent: u32,
    },
    /// Slices of an array.
    Slices,
    /// A speech recognizer.
    Recognize,
    /// Reads that depend on each other.
    Chase,
    /// Reads that depend on each other, with shadows that hint only rubbish.
    Rubbish,
    /// As much data as there may be memory, again and again.
    Reread,
    /// Programs that want the same disk at once.
    Compete {
        /// So many.
        programs: u32,
    },
    /// A program that computes beside one that waits.
    Beside,
    /// Numbers of a mapped file, each of which says where the next is.
    Chained,
    /// Stores into much memory, between reads that depend on each other.
    Stores,
    /// Numbers of a mapped file at computed places.
    Gather,
    /// Numbers of a mapped file at random places, by `numpy.memmap`.
    Memmap,
    /// LMDB: a list of keys.
    Gets,
    /// safetensors: a part of each tensor.
    Part,
    /// A computation that has its arrays in a mapped file.
    OutOfCore {
        /// Which.
        kernel: Kernel,
        /// Products, cycles, steps.
        rounds: u32,
    },
    /// One that has them in memory, half of which is swapped out.
    Swapped {
        /// Which.
        kernel: Kernel,
        /// Products, cycles, steps.
        rounds: u32,
    },
    /// A loader with eight threads.
    Workers,
    /// DuckDB: an aggregate and a join.
    DuckDb,
    /// A loader of pictures with eight threads.
    Images,
    /// Python that imports pandas.
    Pandas,
    /// Go that builds a program.
    GoBuild,
}

impl Task {
    /// What it works on.
    pub fn data(self) -> Data {
        match self {
            Self::Link => Data::Objects,
            Self::Range | Self::SqlJoin => Data::Orders,
            Self::Postgres { .. } => Data::Relations,
            Self::Slices => Data::Array,
            Self::Recognize => Data::Speech,
            Self::Chase | Self::Rubbish | Self::Reread | Self::Beside => Data::Chain,
            Self::Compete { .. } => Data::Parts,
            Self::Gather | Self::Memmap | Self::Chained | Self::Stores => Data::Numbers,
            Self::Gets => Data::Records,
            Self::Part => Data::Tensors,
            Self::OutOfCore { .. } | Self::Swapped { .. } => Data::Grids,
            Self::Workers => Data::Samples,
            Self::DuckDb => Data::Tables,
            Self::Images => Data::Images,
            Self::Pandas => Data::Pandas,
            Self::GoBuild => Data::Go,
        }
    }

    /// The command.
    ///
    /// # Errors
    /// [`Failure::NotInstalled`], a program of ours cannot be compiled, or what it works on cannot be
    /// listed.
    pub fn job(self, ground: &Ground<'_>) -> Result<Job, Error> {
        require(self.data().needs())?;
        let dir = &ground.root.join(self.data().dir());
        match self {
            Self::Link => link::job(dir, ground),
            Self::Range => Ok(orders::range(dir)),
            Self::SqlJoin => Ok(orders::join(dir)),
            Self::Postgres { percent } => join::job(percent, dir, ground),
            Self::Slices => Ok(slices::job(dir, ground)),
            Self::Recognize => Ok(speech::job(dir)),
            Self::Chase => chain::chase(dir, ground),
            Self::Rubbish => chain::rubbish(dir, ground),
            Self::Reread => chain::reread(dir, ground),
            Self::Beside => chain::beside(dir, ground),
            Self::Compete { programs } => Ok(parts::job(programs, dir, ground)),
            Self::Chained => mapped::chained(dir, ground),
            Self::Stores => mapped::stores(dir, ground),
            Self::Gather => mapped::gather(dir, ground),
            Self::Memmap => Ok(mapped::memmap(dir, ground)),
            Self::Gets => Ok(mapped::gets(dir)),
            Self::Part => mapped::part(dir),
            Self::OutOfCore { kernel, rounds } => kernel.job(rounds, dir, ground),
            Self::Swapped { kernel, rounds } => kernel.swapped(rounds, dir, ground),
            Self::Workers => Ok(samples::job(dir)),
            Self::DuckDb => tables::job(dir),
            Self::Images => Ok(images::job(dir)),
            Self::Pandas => Ok(installed::pandas(dir)),
            Self::GoBuild => installed::go_build(dir, ground),
        }
    }
}

/// A program on [`Data::Numbers`] that has so many KiB of memory, makes so many reads, and after each stores into so many
/// pages.
///
/// # Errors
/// As of [`Task::job`].
pub fn storing(ground: &Ground<'_>, sizes: [u64; 3]) -> Result<Job, Error> {
    require(Data::Numbers.needs())?;
    mapped::storing(&ground.root.join(Data::Numbers.dir()), ground, sizes)
}

fn require(needs: &[Need]) -> Result<(), Error> {
    let missing = |(name, _): &&Need| find(name).is_none();
    match needs.iter().find(missing) {
        Some((name, package)) => {
            Err(Failure::NotInstalled { program: (*name).to_owned(), package }.into())
        }
        None => Ok(()),
    }
}

/// A file, if the name is a path; else a program.
fn find(name: &str) -> Option<PathBuf> {
    match name.starts_with('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
        false => sys::find_program(name),
    }
}

/// Data that have been made in this invocation, on the machine's own disk.
pub struct Store {
    dir: TempDir,
    quick: bool,
}

impl Store {
    /// Makes it, empty.
    ///
    /// # Errors
    /// There is no room for temporary files.
    pub fn new(quick: bool) -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("runahead-bench-data-")
            .tempdir_in(&parent)
            .map_err(Error::system("create a directory in", &parent))?;
        // A database server refuses to be root.
        sys::let_through(dir.path())?;
        Ok(Self { dir, quick })
    }

    /// Where `data` are, made now if they have not been. Those that this machine lacks the means for are an
    /// empty directory; [`Task::job`] says so.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or what makes them failed.
    pub fn get(&self, data: Data, source: &Source) -> Result<PathBuf, Error> {
        let path = self.dir.path().join(data.dir());
        if path.is_dir() {
            return Ok(path);
        }
        fs::create_dir(&path).map_err(Error::system("create", &path))?;
        if data.needs().iter().any(|(name, _)| find(name).is_none()) {
            return Ok(path);
        }
        // Twice: some are made of something else.
        sys::require_space(self.dir.path(), 2 * data.space(self.quick))?;
        let clock = progress::clock("making what the rows work on");
        let made = data.make(&path, source, self.quick);
        clock.finish_and_clear();
        made.map(|()| path)
    }

    /// Removes them.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn forget(&self, data: Data) -> Result<(), Error> {
        let path = self.dir.path().join(data.dir());
        match path.is_dir() {
            true => fs::remove_dir_all(&path).map_err(Error::system("remove", &path)),
            false => Ok(()),
        }
    }
}

/// Copies a directory with its owners, modes and times.
///
/// # Errors
/// `cp` failed.
pub fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--sparse=never"]).arg(from).arg(to);
    sys::run_helper("cp", cp, to)
}

/// A seeded sequence (splitmix64) for what is made here.
pub struct Sequence(pub u64);

impl Sequence {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_said() {
        let needs = [("sh", "dash"), ("/usr/lib/no-such-file", "no-such-package")];
        assert!(require(&needs[..1]).is_ok());
        let result = require(&needs);
        assert!(
            matches!(result, Err(Error::Failure(Failure::NotInstalled { package, .. })) if package == "no-such-package")
        );
    }

    #[test]
    fn data_are_made_once_and_forgotten() {
        let store = Store::new(true).unwrap();
        let source = Source { root: "/usr/include".into(), what: "headers".into() };
        let path = store.get(Data::Chain, &source).unwrap();
        let mark = path.join("mark");
        fs::write(&mark, "").unwrap();
        assert_eq!(store.get(Data::Chain, &source).unwrap(), path);
        assert!(mark.exists(), "made again");
        store.forget(Data::Chain).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_copy_keeps_modes() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::set_permissions(&from, PermissionsExt::from_mode(0o700)).unwrap();
        fs::write(from.join("f"), "text").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read(to.join("f")).unwrap(), b"text");
    }
}
