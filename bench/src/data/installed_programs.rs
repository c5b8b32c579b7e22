//! Installations of programs as data of a row: complete, so that nothing but the C library is read from elsewhere.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::data::copy_tree as copy;
use crate::data::datasets::{Need, PYTHON};
use crate::data::job::{Fresh, Job};
use crate::data::share_programs::{self as apps, put, put_libraries, told, tree, write};
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};
use crate::rows::commands::Ground;

const PACKAGES: &str = "/usr/lib/python3/dist-packages";

pub const PANDAS_NEEDS: [Need; 2] =
    [(PYTHON, "python3"), ("/usr/lib/python3/dist-packages/pandas/__init__.py", "python3-pandas")];
pub const GO_NEEDS: [Need; 2] = [("go", "golang-go"), ("cc", "gcc")];

/// What pandas imports, itself included.
const IMPORTED: [&str; 4] = ["numpy", "pandas", "dateutil", "pytz"];
const IMPORTED_FILE: &str = "six.py";
/// That all of it is this installation's is asserted: another would be in memory.
const IMPORT: &str = "import pandas, sys
assert all(path.startswith(sys.prefix) for path in (sys.executable, pandas.__file__)), sys.prefix
print(pandas.__version__)";

/// Debian's, which comes before whatever else `go` may be: up to version 1.19 the standard library is installed
/// compiled, and a build reads it; later versions compile all of it first, which is not waiting.
const DEBIANS_GO: &str = "/usr/lib/go/bin/go";
/// Of a toolchain, what a build reads. No version has all of them.
const TOOLCHAIN: [&str; 5] = ["bin", "pkg", "src", "lib", "misc"];
const TOOLCHAIN_FILES: [&str; 2] = ["VERSION", "go.env"];

const SERVER: &str = include_str!("../../programs/server.go");

/// Python with pandas, and with the shared libraries of both.
pub fn make_pandas(dir: &Path) -> Result<(), Error> {
    fs::create_dir(dir.join("bin")).map_err(Error::system("create", dir))?;
    let packages = dir.join("lib/python3/dist-packages");
    for name in IMPORTED {
        tree(&Path::new(PACKAGES).join(name), &packages.join(name))?;
    }
    put(&Path::new(PACKAGES).join(IMPORTED_FILE), &packages.join(IMPORTED_FILE))?;
    apps::python(dir)?;
    let lib = dir.join("lib");
    put_libraries(Path::new(PYTHON), &lib)?;
    let files = copy::regular_files(&lib, Path::new(""))?;
    let extensions = files.iter().filter(|file| file.extension().is_some_and(|name| name == "so"));
    extensions.into_iter().try_for_each(|file| put_libraries(&lib.join(file), &lib))
}

/// `python3 -c 'import pandas'`.
pub fn pandas(dir: &Path) -> Job {
    let program = dir.join("bin/python3");
    // -s: nothing of a user's own.
    apps::with_libraries(Job::new(program, "python3", dir), dir).args(["-s", "-c", IMPORT])
}

pub fn make_go(dir: &Path) -> Result<(), Error> {
    let Some(root) = go_root() else { return Ok(()) };
    let (to, server) = (dir.join("go"), dir.join("server"));
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
    let go = debians.or_else(|| sys::find_program("go"))?;
    told(&go, &["env", "GOROOT"]).map(PathBuf::from)
}

/// `go build`, with nothing in its cache, which is in memory like the program that comes out.
pub fn go_build(dir: &Path, ground: &Ground<'_>) -> Result<Job, Error> {
    let (root, out) = (dir.join("go"), ground.out);
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
