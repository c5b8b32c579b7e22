//! The object files of a real library, to be linked.
//!
//! Members of an archive may have the same name; each occurrence of a name has a directory of its
//! own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{helper_text, run_helper};

use crate::data::copy_tree::regular_files;
use crate::data::job::{Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild};
use crate::error::{Error, Failure};

pub static OBJECTS: Dataset = Dataset {
    dir: "objects",
    mib: 512,
    quick_mib: 256,
    needs: &[
        ("ar", "binutils"),
        ("ld", "binutils"),
        ("cc", "gcc"),
        ("/usr/include/openssl/crypto.h", "libssl-dev"),
    ],
    make,
};

/// A library with many members, compiled for shared libraries.
const LIBRARY: &str = "libcrypto.a";
const QUICK_MEMBERS: usize = 100;

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    // The place of the library depends on the machine; the compiler knows it.
    let asked = helper_text(Command::new("cc").arg(format!("-print-file-name={LIBRARY}")));
    let Ok(archive) = asked.map(PathBuf::from) else { return Ok(()) };
    let text = helper_text(Command::new("ar").arg("t").arg(&archive))?;
    let names: Vec<&str> = text.lines().take(making.size(usize::MAX, QUICK_MEMBERS)).collect();
    for (n, names) in (1..).zip(occurrences(&names)) {
        let into = making.dir.join(n.to_string());
        fs::create_dir(&into).map_err(Error::system("create", &into))?;
        let mut ar = Command::new("ar");
        // N: the n-th member of this name.
        ar.arg("xN").arg(n.to_string()).arg("--output").arg(&into).arg(&archive).args(names);
        run_helper(&mut ar)?;
    }
    Ok(())
}

/// Returns the names that occur at least once, those that occur at least twice, and so on.
fn occurrences<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut result: Vec<Vec<&str>> = Vec::new();
    for name in names {
        let times = seen.entry(name).or_default();
        if result.len() == *times {
            result.push(Vec::new());
        }
        result[*times].push(name);
        *times += 1;
    }
    result
}

/// `ld -shared` of all of them.
pub fn link(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let objects = regular_files(ground.dir, Path::new(""))?;
    if objects.is_empty() {
        return Err(Failure::NotInstalled { program: LIBRARY.into(), package: "libssl-dev" }.into());
    }
    let library: OsString = ground.out.join("linked.so").into();
    let job = Job::new("ld", "binutils", ground.dir).args(["-shared", "-o"]).args([&library]);
    Ok(Job { artefact: Some(library.into()), ..job.args(objects) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_the_same_name_are_kept_apart() {
        let all = occurrences(&["a.o", "b.o", "a.o", "c.o", "a.o"]);
        assert_eq!(all, [vec!["a.o", "b.o", "c.o"], vec!["a.o"], vec!["a.o"]]);
        assert_eq!(occurrences(&[]), Vec::<Vec<&str>>::new());
    }
}
