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

use crate::data::copy_tree::{self as copy, Links};
use crate::data::job;
use crate::data::job::{Fresh, Job};
use crate::data::shared_libraries::{C_LIBRARY, libraries, named};
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};

/// An installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum App {
    /// Debian's python with its library.
    Python,
    /// Node and a script with modules.
    Node,
    /// A Java virtual machine.
    Java,
    /// Tools of a system, a compiler among them, and a script like one of autoconf's.
    Configure,
}

const IMPORTS: &str = include_str!("../../programs/imports.py");
const CONFIGURE: &str = include_str!("../../programs/configure.sh");

/// What the script of [`App::Configure`] starts, as it calls them.
const TOOLS: [&str; 64] = [
    "ar",
    "as",
    "awk",
    "basename",
    "cat",
    "cc",
    "chmod",
    "cksum",
    "cmp",
    "comm",
    "cp",
    "cut",
    "date",
    "dd",
    "diff",
    "dirname",
    "du",
    "env",
    "expr",
    "find",
    "fold",
    "grep",
    "head",
    "id",
    "install",
    "join",
    "ld",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "nm",
    "nproc",
    "objdump",
    "od",
    "paste",
    "printenv",
    "ranlib",
    "readelf",
    "readlink",
    "realpath",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sha256sum",
    "size",
    "sort",
    "split",
    "stat",
    "strings",
    "strip",
    "tail",
    "tee",
    "touch",
    "tr",
    "uname",
    "uniq",
    "wc",
    "xargs",
    "dash",
];

/// Packages for node, each with its own description.
const MODULES: usize = 40;

impl App {
    /// Its directory on the storage.
    pub fn dir(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Java => "java",
            Self::Configure => "unix",
        }
    }

    /// The program to start, in its directory.
    fn program(self) -> &'static str {
        match self {
            Self::Python => "bin/python3",
            Self::Node => "bin/node",
            Self::Java => "bin/java",
            Self::Configure => "bin/dash",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "nodejs",
            Self::Java => "default-jre-headless",
            Self::Configure => "gcc binutils coreutils diffutils findutils grep mawk sed",
        }
    }

    /// Installs it below `root`. A program that this machine does not have is left out, and
    /// [`job`] says so.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn install(self, root: &Path) -> Result<(), Error> {
        let dir = root.join(self.dir());
        fs::create_dir_all(dir.join("bin")).map_err(Error::system("create", &dir))?;
        match self {
            Self::Python => python(&dir),
            Self::Node => node(&dir),
            Self::Java => java(&dir),
            Self::Configure => unix(&dir),
        }
    }
}

/// The command that starts `app`, which is below `root`; `out` is for what it writes.
///
/// # Errors
/// [`Failure::NotInstalled`].
pub fn job(app: App, root: &Path, out: &Path) -> Result<Job, Error> {
    let dir = root.join(app.dir());
    let program = dir.join(app.program());
    if !program.is_file() {
        let (program, package) = (app.program().replace("bin/", ""), app.package());
        return Err(Failure::NotInstalled { program, package }.into());
    }
    let job = Job::new(program, app.package(), root);
    Ok(match app {
        App::Python => job.args(["-c", IMPORTS]),
        App::Node => match dir.join("lib").is_dir() {
            false => job.args([dir.join("app/main.js")]),
            true => with_libraries(job.args([dir.join("app/main.js")]), &dir),
        },
        App::Java => job.args(["-version"]),
        App::Configure => {
            let fresh = Fresh { from: None, dir: out.join("configure") };
            let job = job.args([dir.join("configure"), dir]);
            Job { cwd: fresh.dir.clone(), fresh: Some(fresh), ..job }
        }
    })
}

/// The same command, with shared libraries from where its installation `dir` has them.
pub fn with_libraries(job: Job, dir: &Path) -> Job {
    let mut path = OsString::from("LD_LIBRARY_PATH=");
    path.push(dir.join("lib"));
    // By a program between: runahead's own libraries are the system's.
    Job::new("env", "coreutils", &job.cwd).args([path]).args([job.program]).args(job.args)
}

/// Copies what `program` is linked with, the C library apart, into the directory `lib`.
///
/// # Errors
/// It cannot be copied.
pub fn put_libraries(program: &Path, lib: &Path) -> Result<(), Error> {
    for library in libraries(program)?.iter().filter(|path| !named(path, &C_LIBRARY)) {
        let own = lib.join(library.file_name().unwrap_or_default());
        if !own.exists() {
            put(library, &own)?;
        }
    }
    Ok(())
}

/// Debian's own: whatever else `python3` in PATH may be. Installs it in `dir`, whose `bin` exists, and compiles all
/// modules that are below `lib` then.
///
/// # Errors
/// It cannot be copied.
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
    job::set_environment(&mut compile);
    // Some files of the library are wrong on purpose.
    compile.stdin(Stdio::null()).output().map_err(Error::system("run", "compileall"))?;
    Ok(())
}

fn node(dir: &Path) -> Result<(), Error> {
    let Some(program) = sys::find_program("node") else { return Ok(()) };
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

/// Of a tree in which each has three children, as deep as it gets.
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
    let Some(home) = sys::find_program("java")
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
    for name in TOOLS {
        let Some(program) = sys::find_program(name) else { return Ok(()) };
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

/// The first line that a program says, if it is there and succeeds.
pub fn told(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stderr(Stdio::null());
    job::set_environment(&mut command);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}

/// Copies a directory, with what its links point to.
///
/// # Errors
/// It cannot be copied.
pub fn tree(from: &Path, to: &Path) -> Result<(), Error> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(Error::system("create", parent))?;
    copy::copy_tree(from, to, usize::MAX, Links::Follow, &ProgressBar::hidden()).map(drop)
}

/// Copies a file.
///
/// # Errors
/// It cannot be copied.
pub fn put(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map(drop).map_err(Error::system("copy to", to))
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
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
    fn what_is_not_installed_is_a_failure_of_its_row() {
        let dir = tempfile::tempdir().unwrap();
        let result = job(App::Java, dir.path(), dir.path());
        assert!(matches!(result, Err(Error::Failure(Failure::NotInstalled { .. }))));
    }
}
