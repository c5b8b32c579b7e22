//! The object files of a real library, to be linked.
//!
//! Members of an archive may have the same name; each occurrence of a name has a directory of its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::data::copy_tree as copy;
use crate::data::datasets::Need;
use crate::data::job::Job;
use crate::data::share_programs as apps;
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};
use crate::rows::commands::Ground;

pub const NEEDS: [Need; 4] = [
    ("ar", "binutils"),
    ("ld", "binutils"),
    ("cc", "gcc"),
    ("/usr/include/openssl/crypto.h", "libssl-dev"),
];

/// Many, and made to be in a shared library.
const LIBRARY: &str = "libcrypto.a";
const QUICK: usize = 100;

pub fn make(dir: &Path, quick: bool) -> Result<(), Error> {
    // Where it is depends on the machine; the compiler knows.
    let ask = format!("-print-file-name={LIBRARY}");
    let Some(archive) = apps::told(Path::new("cc"), &[&ask]).map(PathBuf::from) else {
        return Ok(());
    };
    let output =
        Command::new("ar").arg("t").arg(&archive).output().map_err(Error::system("run", "ar"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = text.lines().take(if quick { QUICK } else { usize::MAX }).collect();
    for (n, names) in (1..).zip(occurrences(&names)) {
        let into = dir.join(n.to_string());
        fs::create_dir(&into).map_err(Error::system("create", &into))?;
        let mut ar = Command::new("ar");
        // N: the n-th of this name.
        ar.arg("xN").arg(n.to_string()).arg("--output").arg(&into).arg(&archive).args(names);
        sys::run_helper("ar", ar, &archive)?;
    }
    Ok(())
}

/// Names that occur at least once, twice, and so on.
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

pub fn job(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let objects: Vec<_> = copy::regular_files(dir, Path::new(""))?;
    if objects.is_empty() {
        return Err(Failure::NotInstalled { program: LIBRARY.into(), package: "libssl-dev" }.into());
    }
    let library: OsString = ground.out.join("linked.so").into();
    let job =
        Job::new("ld", "binutils", dir).args(["-shared", "-o"]).args([&library]).args(objects);
    Ok(Job { artefact: Some(library.into()), ..job })
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
