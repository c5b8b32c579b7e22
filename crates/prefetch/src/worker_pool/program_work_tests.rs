//! Files found for the programs of this machine, compared with those their dynamic linkers load.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_predict::{Inspector, Located, Role};

use super::*;
use crate::io::Clock;
use crate::worker_pool::pool::variable;

/// Returns the files that `program` leads to.
fn found(program: &Path) -> BTreeSet<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let inspector = Inspector::new(&variable("LD_LIBRARY_PATH"), &variable("PATH"));
    let mut reader = Reader::new(Clock::new(std::time::Instant::now()));
    let devices = Devices::default();
    let mut disk = Disk { reader: &mut reader, devices: &devices };
    let path = program.as_os_str().as_bytes().to_vec();
    let role = Role::Program { scripts: 0 };
    let mut leads = vec![FileLead { name: path.clone(), places: vec![path].into(), role }];
    let (mut files, mut names) = (BTreeSet::new(), BTreeSet::new());
    while let Some(lead) = leads.pop() {
        if !names.insert(lead.name.clone()) {
            continue;
        }
        let located: Option<Box<Located<Node>>> = inspector.find(&mut disk, &lead).ok().flatten();
        let Some(located) = located else { continue };
        let path = Path::new(std::ffi::OsStr::from_bytes(&located.path));
        files.insert(path.canonicalize().expect("it was just found"));
        leads.extend(located.leads);
        if let Some(needs) = located.needs {
            leads.extend(inspector.needs(&mut disk, &needs, std::time::Duration::ZERO));
        }
    }
    files
}

/// Returns the files that the dynamic linker says it would load: `name => path (address)`, or `path
/// (address)`.
fn loaded(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").output();
    let output = output.expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.lines().filter_map(|line| {
        let path = line.rsplit_once("=>").map_or(line, |(_, path)| path).trim();
        Path::new(path.split(" (").next()?).canonicalize().ok()
    });
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn all_that_the_dynamic_linker_loads_is_found() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut compared = 0;
    let own = std::env::current_exe().expect("this test is a program");
    let names = ["sh", "ls", "git", "gcc", "ld", "perl", "node", "java", "tar", "find", "curl"];
    let programs = names.iter().filter_map(|name| {
        directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    });
    for program in programs.chain([own]) {
        let head = std::fs::read(&program).expect("a program that can be read");
        if !head.starts_with(b"\x7fELF") {
            continue;
        }
        let (found, loaded) = (found(&program), loaded(&program));
        let missing: Vec<_> = loaded.difference(&found).collect();
        assert!(missing.is_empty(), "{}: {missing:?} not among {found:?}", program.display());
        // And little else: the program, the linker.
        let more = found.difference(&loaded).count();
        assert!(more <= 2, "{}: {found:?} for {loaded:?}", program.display());
        compared += usize::from(loaded.len() > 1);
    }
    assert!(compared >= 3, "only {compared} programs here have libraries");
}

#[test]
fn a_script_leads_to_the_program_that_env_finds() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/usr/bin/env sh\n").expect("written");
    let files = found(&script);
    let sh = ["/bin/sh", "/usr/bin/sh"].map(|sh| Path::new(sh).canonicalize());
    assert!(sh.iter().flatten().any(|sh| files.contains(sh)), "{files:?}");
}
