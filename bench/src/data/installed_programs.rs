//! Installations of programs as data of a row: complete, so that nothing but the C library is read
//! from elsewhere.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use runahead_harness::find_program;

use crate::data::copy_tree::regular_files;
use crate::data::job::{Fresh, Job, JobPlaces};
use crate::data::row_datasets::{Dataset, DatasetBuild, PYTHON};
use crate::data::share_programs::{put, put_libraries, python, told, tree, with_libraries, write};
use crate::error::{Error, Failure};

/// Python with pandas, and with the shared libraries of both. A quick run has a whole installation,
/// too.
pub static PANDAS: Dataset = Dataset {
    dir: "pandas",
    mib: 512,
    quick_mib: 512,
    needs: &[
        (PYTHON, "python3"),
        ("/usr/lib/python3/dist-packages/pandas/__init__.py", "python3-pandas"),
    ],
    make: make_pandas,
};
/// Go, and a program to build.
pub static GO: Dataset = Dataset {
    dir: "go",
    mib: 1024,
    quick_mib: 1024,
    needs: &[("go", "golang-go"), ("cc", "gcc")],
    make: make_go,
};

const PACKAGES: &str = "/usr/lib/python3/dist-packages";

/// Packages that pandas imports, itself included.
const IMPORTED: [&str; 4] = ["numpy", "pandas", "dateutil", "pytz"];
const IMPORTED_FILE: &str = "six.py";
/// Asserts that all of it is this installation's: another one would be in memory.
const IMPORT: &str = "import pandas, sys
assert all(path.startswith(sys.prefix) for path in (sys.executable, pandas.__file__)), sys.prefix
print(pandas.__version__)";

/// Debian's Go, used even if PATH has another one. Up to version 1.19 the standard library is
/// installed compiled, and a build reads it; later versions compile all of it first, which is not
/// waiting.
const DEBIANS_GO: &str = "/usr/lib/go/bin/go";
/// Parts of a toolchain that a build reads. No version has all of them.
const TOOLCHAIN: [&str; 5] = ["bin", "pkg", "src", "lib", "misc"];
const TOOLCHAIN_FILES: [&str; 2] = ["VERSION", "go.env"];

const SERVER: &str = include_str!("../../programs/web_server.go");

fn make_pandas(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let (bin, lib) = (making.dir.join("bin"), making.dir.join("lib"));
    fs::create_dir(&bin).map_err(Error::system("create", &bin))?;
    let (from, to) = (Path::new(PACKAGES), lib.join("python3/dist-packages"));
    for name in IMPORTED {
        tree(&from.join(name), &to.join(name))?;
    }
    put(&from.join(IMPORTED_FILE), &to.join(IMPORTED_FILE))?;
    python(making.dir)?;
    put_libraries(Path::new(PYTHON), &lib)?;
    let files = regular_files(&lib, Path::new(""))?;
    let extensions = files.iter().filter(|file| file.extension().is_some_and(|name| name == "so"));
    extensions.into_iter().try_for_each(|file| put_libraries(&lib.join(file), &lib))
}

/// `python3 -c 'import pandas'`.
pub fn import_pandas(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let job = Job::new(ground.dir.join("bin/python3"), "python3", ground.dir);
    // -s: nothing of a user's own.
    Ok(with_libraries(job, ground.dir).args(["-s", "-c", IMPORT]))
}

fn make_go(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let Some(root) = go_root() else { return Ok(()) };
    let (to, server) = (making.dir.join("go"), making.dir.join("server"));
    for name in TOOLCHAIN.iter().filter(|name| root.join(name).is_dir()) {
        tree(&root.join(name), &to.join(name))?;
    }
    for name in TOOLCHAIN_FILES.iter().filter(|name| root.join(name).is_file()) {
        put(&root.join(name), &to.join(name))?;
    }
    fs::create_dir(&server).map_err(Error::system("create", &server))?;
    write(&server.join("go.mod"), "module server\n\ngo 1.19\n")?;
    write(&server.join("main.go"), SERVER)
}

fn go_root() -> Option<PathBuf> {
    let debians = Some(PathBuf::from(DEBIANS_GO)).filter(|path| path.is_file());
    let go = debians.or_else(|| find_program("go"))?;
    told(&go, &["env", "GOROOT"]).map(PathBuf::from)
}

/// `go build`, with nothing in its cache, which is in memory like the program that comes out.
pub fn go_build(ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let (dir, out) = (ground.dir, ground.out);
    let root = dir.join("go");
    let program = root.join("bin/go");
    if !program.is_file() {
        return Err(Failure::NotInstalled { program: "go".into(), package: "golang-go" }.into());
    }
    let built = out.join("go-server");
    // No network, no other toolchain, nothing of a user's own.
    let mut env: Vec<(&str, OsString)> =
        [("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOENV", "off")]
            .map(|(name, value)| (name, value.into()))
            .into();
    let cache = Fresh { from: None, dir: out.join("go-cache") };
    env.push(("GOROOT", root.into()));
    env.push(("GOCACHE", cache.dir.clone().into()));
    env.push(("GOPATH", out.join("go-path").into()));
    // For the linker's files.
    env.push(("TMPDIR", out.into()));
    let job = Job::new(program, "golang-go", &dir.join("server")).args(["build", "-o"]);
    let job = job.args([&built]).args(["."]);
    Ok(Job { env, artefact: Some(built), fresh: Some(cache), ..job })
}
