//! The C libraries, installed as by `make install`; the Python packages; programs built with them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Link, Run};

/// The root of this workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace")
}

/// Target directory of builds for tests. It shares no lock with other builds, as in
/// `tested_command`.
fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("tests know their own path");
    exe.ancestors().nth(3).expect("tests lie in a target directory").join("bindings-under-test")
}

/// Folder of the installed libraries, with `usr/include`, `usr/lib` and so on below.
pub fn installed() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let target = target();
        let root = crate::scratch().join("installed");
        let variable = |name: &str, path: &Path| format!("{name}={}", path.display());
        let output = Command::new("make")
            .args(["install-bindings", "PREFIX=/usr"])
            .arg(variable("DESTDIR", &root))
            .arg(variable("BIN", &target.join("release")))
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(workspace())
            .output()
            .expect("make is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        root
    })
}

/// Answer of `pkg-config` with `options` for `libraries`, each with `runahead_` in front.
fn pkg_config(libraries: &[&str], options: &[&str]) -> Vec<String> {
    if libraries.is_empty() {
        return Vec::new();
    }
    let root = installed();
    let output = Command::new("pkg-config")
        .args(options)
        .args(libraries.iter().map(|name| format!("runahead_{name}")))
        .env("PKG_CONFIG_LIBDIR", root.join("usr/lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        // Else what the system has by itself is left out.
        .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output()
        .expect("pkg-config is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// Compiles the C program at `source`, which speculates, to `output`.
pub fn compile_speculating(source: &Path, output: &Path) {
    let root = installed().join("usr");
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-Wall", "-I"])
        .arg(root.join("include"))
        .arg(source)
        .arg(root.join("lib/librunahead_speculate.a"))
        .arg("-o")
        .arg(output)
        .status()
        .expect("gcc is installed");
    assert!(status.success(), "compiling {} failed: {status}", source.display());
}

/// Compiles the C program at `source` and links it with `libraries`, into one file or not.
pub fn compile(source: &Path, libraries: &[&str], link: Link) -> PathBuf {
    let stem = source.file_stem().expect("a file").to_string_lossy();
    let output = crate::scratch().join(format!("{stem}.{link:?}"));
    let (options, flags): (_, &[_]) = match link {
        Link::Dynamic => (&["--cflags", "--libs"][..], &[]),
        Link::Static => (&["--static", "--cflags", "--libs"][..], &["-static"]),
    };
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-D_GNU_SOURCE", "-Wall", "-Wno-unused-result"])
        .args(flags)
        .arg(source)
        .args(pkg_config(libraries, options))
        .arg("-o")
        .arg(&output)
        .status()
        .expect("gcc is installed");
    assert!(status.success(), "compiling {} failed: {status}", source.display());
    output
}

/// Example `name` of `package`.
pub fn example(package: &str, name: &str) -> PathBuf {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--locked", "--package", package])
        .args(["--example", name, "--target-dir"])
        .arg(target())
        .current_dir(workspace())
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target().join("release/examples").join(name)
}

/// The directory in which such programs find the libraries when they start.
pub fn library_path() -> PathBuf {
    installed().join("usr/lib")
}

/// Runs the tests of the Python packages that are in `file`.
pub fn python_tests(file: &str) -> Run {
    let tests = workspace().join("bindings/python/tests");
    let tests = tests.to_str().expect("a plain path");
    let argv = ["python3", "-m", "unittest", "discover", "-s", tests, "-p", file];
    python(Run::new(argv))
}

/// Returns the command so that it finds the Python packages and writes nothing beside them.
pub fn python(run: Run) -> Run {
    let path = workspace().join("bindings/python/src");
    run.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1")
}

/// The Python interpreter: what goes by its name may be a script that starts another.
pub fn interpreter() -> String {
    let python = Run::new(["python3", "-c", "import sys; print(sys.executable)"]).run().text();
    python.trim().to_owned()
}
