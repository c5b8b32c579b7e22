//! Installations of programs, to be put on a share: an interpreter with its library, and so on, as
//! they are on this machine.
//!
//! The program itself and all that belongs to it are on the share; the C library and the dynamic
//! linker, which something on the machine always uses, are not.
//!
//! Invariant: an installation is complete or its row has no job.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::ProgressBar;
use runahead_harness::{find_program, helper_text};

use crate::data::copy_tree::{Links, copy_tree};
use crate::data::job::{Fresh, Job, JobPlaces, set_environment};
use crate::data::shared_libraries::{C_LIBRARY, libraries, named};
use crate::error::{Error, Failure};

/// An installation.
#[derive(Debug)]
pub struct App {
    /// Its directory on the storage.
    pub dir: &'static str,
    /// The program to start, in that directory.
    program: &'static str,
    /// Debian's packages of it.
    package: &'static str,
    /// Installs it in its directory, which has an empty `bin`; does nothing if this machine lacks a
    /// part of it.
    install: fn(&Path) -> Result<(), Error>,
}

/// Debian's Python with its library.
pub static PYTHON: App =
    App { dir: "python", program: "bin/python3", package: "python3", install: python };
/// Node and a script with modules.
pub static NODE: App = App { dir: "node", program: "bin/node", package: "nodejs", install: node };
/// A Java virtual machine.
pub static JAVA: App =
    App { dir: "java", program: "bin/java", package: "default-jre-headless", install: java };
/// Tools of a system, a compiler among them, and a script like one of autoconf's.
pub static UNIX: App = App {
    dir: "unix",
    program: "bin/dash",
    package: "gcc binutils coreutils diffutils findutils grep mawk sed",
    install: unix,
};

const IMPORTS: &str = include_str!("../../programs/import_modules.py");
const CONFIGURE: &str = include_str!("../../programs/configure_script.sh");

/// Programs that the script of [`UNIX`] starts.
const TOOLS: &str = "ar as awk basename cat cc chmod cksum cmp comm cp cut date dd diff dirname du \
    env expr find fold grep head id install join ld ln ls md5sum mkdir mktemp mv nl nm nproc objdump \
    od paste printenv ranlib readelf readlink realpath rm rmdir sed seq sha256sum size sort split \
    stat strings strip tail tee touch tr uname uniq wc xargs dash";

/// Packages for node, each with its own description.
const MODULES: usize = 40;

impl App {
    /// Installs it below `root`. If this machine lacks the program it is left out, and the row's
    /// job fails.
    pub fn install(&self, root: &Path) -> Result<(), Error> {
        let dir = root.join(self.dir);
        fs::create_dir_all(dir.join("bin")).map_err(Error::system("create", &dir))?;
        (self.install)(&dir)
    }

    /// Returns its directory on the storage, and the job that starts its program.
    fn job(&self, ground: &JobPlaces<'_>) -> Result<(PathBuf, Job), Error> {
        let dir = ground.root.join(self.dir);
        let program = dir.join(self.program);
        if !program.is_file() {
            let (program, package) = (self.program.replace("bin/", ""), self.package);
            return Err(Failure::NotInstalled { program, package }.into());
        }
        Ok((dir, Job::new(program, self.package, ground.root)))
    }
}

/// Imports 300 modules or more.
pub fn import(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(PYTHON.job(ground)?.1.args(["-c", IMPORTS]))
}

/// Runs the script with modules.
pub fn run_script(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let (dir, job) = NODE.job(ground)?;
    let job = job.args([dir.join("app/main.js")]);
    Ok(if dir.join("lib").is_dir() { with_libraries(job, &dir) } else { job })
}

/// Starts the virtual machine.
pub fn start_java(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    Ok(JAVA.job(ground)?.1.args(["-version"]))
}

/// Runs the configure script.
pub fn configure(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let (dir, job) = UNIX.job(ground)?;
    let fresh = Fresh { from: None, dir: ground.out.join("configure") };
    let job = job.args([dir.join("configure"), dir]);
    Ok(Job { cwd: fresh.dir.clone(), fresh: Some(fresh), ..job })
}

/// The job with shared libraries from where its installation `dir` has them.
pub fn with_libraries(job: Job, dir: &Path) -> Job {
    let mut path = OsString::from("LD_LIBRARY_PATH=");
    path.push(dir.join("lib"));
    // By a program between: runahead's own libraries are the system's.
    Job::new("env", "coreutils", &job.cwd).args([path]).args([job.program]).args(job.args)
}

/// Copies what `program` is linked with, the C library apart, into the directory `lib`.
pub fn put_libraries(program: &Path, lib: &Path) -> Result<(), Error> {
    for library in libraries(program)?.iter().filter(|path| !named(path, &C_LIBRARY)) {
        let own = lib.join(library.file_name().unwrap_or_default());
        if !own.exists() {
            put(library, &own)?;
        }
    }
    Ok(())
}

/// Installs Debian's Python, whatever else `python3` in PATH may be, in `dir`, whose `bin` exists,
/// and then compiles all modules that are below `lib`.
pub fn python(dir: &Path) -> Result<(), Error> {
    let program = Path::new("/usr/bin/python3");
    let ask = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let Some(library) = told(program, &["-c", ask]) else { return Ok(()) };
    let library = PathBuf::from(library);
    let own = dir.join("lib").join(library.file_name().unwrap_or_default());
    tree(&library, &own)?;
    put(program, &dir.join("bin/python3"))?;
    // Most have been compiled by Debian's package, and are so for the copy, too.
    let mut compile = Command::new(dir.join("bin/python3"));
    compile.args(["-W", "ignore", "-m", "compileall", "-q"]).arg(dir.join("lib"));
    set_environment(&mut compile);
    // Some files of the library are wrong on purpose.
    compile.stdin(Stdio::null()).output().map_err(Error::system("run", "compileall"))?;
    Ok(())
}

fn node(dir: &Path) -> Result<(), Error> {
    let Some(program) = find_program("node") else { return Ok(()) };
    let app = dir.join("app");
    for n in 0..MODULES {
        let package = app.join(format!("node_modules/part{n}"));
        fs::create_dir_all(package.join("lib")).map_err(Error::system("create", &package))?;
        let about =
            format!("{{\"name\":\"part{n}\",\"version\":\"1.0.0\",\"main\":\"lib/index.js\"}}\n");
        write(&package.join("package.json"), &about)?;
        write(&package.join("lib/index.js"), &module(n))?;
    }
    write(&app.join("package.json"), "{\"name\":\"main\",\"version\":\"1.0.0\"}\n")?;
    write(
        &app.join("main.js"),
        "'use strict';\nfor (const name of ['fs', 'http', 'crypto', 'zlib', 'url', 'util']) require(name);\n\
         console.log(require('part0').weight());\n",
    )?;
    // Debian's has most of itself in a library.
    for library in libraries(&program)?.iter().filter(|path| named(path, &["libnode.so."])) {
        let own = dir.join("lib");
        fs::create_dir_all(&own).map_err(Error::system("create", &own))?;
        put(library, &own.join(library.file_name().unwrap_or_default()))?;
    }
    put(&program, &dir.join("bin/node"))
}

/// Text of module `n`, in a tree of modules in which each has three children.
fn module(n: usize) -> String {
    let children: Vec<_> = (1..=3).map(|i| 3 * n + i).filter(|child| *child < MODULES).collect();
    let required = children.iter().map(|child| format!("require('part{child}')"));
    let mut text =
        format!("'use strict';\nconst parts = [{}];\n", required.collect::<Vec<_>>().join(", "));
    for i in 0..40 {
        text.push_str(&format!(
            "// Part {n}, rule {i}.\nfunction rule{i}(value) {{\n  return value % {} === {i} ? value + {n} : value;\n}}\n",
            i + 2
        ));
    }
    text.push_str(
        "exports.weight = () => parts.reduce((sum, part) => sum + part.weight(), rule7(1));\n",
    );
    text
}

fn java(dir: &Path) -> Result<(), Error> {
    let Some(home) = find_program("java")
        .and_then(|program| program.canonicalize().ok())
        .and_then(|program| Some(program.parent()?.parent()?.to_owned()))
    else {
        return Ok(());
    };
    // Without what only compiles and documents.
    ["lib", "conf"].iter().try_for_each(|part| match home.join(part).is_dir() {
        true => tree(&home.join(part), &dir.join(part)),
        false => Ok(()),
    })?;
    put(&home.join("bin/java"), &dir.join("bin/java"))
}

fn unix(dir: &Path) -> Result<(), Error> {
    let (bin, lib) = (dir.join("bin"), dir.join("lib"));
    fs::create_dir_all(&lib).map_err(Error::system("create", &lib))?;
    let mut programs = Vec::new();
    for name in TOOLS.split_whitespace() {
        let Some(program) = find_program(name) else { return Ok(()) };
        programs.push((program, bin.join(name)));
    }
    // The compiler finds its parts by where it is itself.
    let Some(compiler) = told(Path::new("cc"), &["-print-prog-name=cc1"]) else { return Ok(()) };
    let compiler = PathBuf::from(compiler);
    let Some(parts) = compiler.parent() else { return Ok(()) };
    let Ok(below) = parts.strip_prefix("/usr/lib") else { return Ok(()) };
    tree(&parts.join("include"), &lib.join(below).join("include"))?;
    programs.push((compiler.clone(), lib.join(below).join("cc1")));
    for (program, copy) in &programs {
        put_libraries(program, &lib)?;
        put(program, copy)?;
    }
    write(&dir.join("configure"), CONFIGURE)
}

/// Returns the text that a program prints, if it succeeds and prints one.
pub fn told(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    set_environment(command.args(args));
    helper_text(&mut command).ok().filter(|text| !text.is_empty())
}

/// Copies a directory, with what its links point to.
pub fn tree(from: &Path, to: &Path) -> Result<(), Error> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(Error::system("create", parent))?;
    copy_tree(from, to, usize::MAX, Links::Follow, &ProgressBar::hidden()).map(drop)
}

/// Copies a file.
pub fn put(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map(drop).map_err(Error::system("copy to", to))
}

/// Writes a file.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::system("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_form_one_tree() {
        let mut required: Vec<usize> = Vec::new();
        for n in 0..MODULES {
            let text = module(n);
            let names = text.split("require('part").skip(1).map(|rest| rest.split('\'').next());
            required.extend(names.map(|name| name.unwrap().parse::<usize>().unwrap()));
        }
        required.sort_unstable();
        assert_eq!(required, (1..MODULES).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_program_is_a_failure_of_its_row() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let result = start_java(&JobPlaces { root: dir, dir, out: dir, quick: true });
        assert!(matches!(result, Err(Error::Failure(Failure::NotInstalled { .. }))));
    }
}
