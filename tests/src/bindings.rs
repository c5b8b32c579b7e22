//! The C library for disclosures, installed as `make install` does it, and the Python package; and the C library for programs that
//! speculate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Link;

/// The root of this workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace")
}

/// Where the library is installed: `usr/include`, `usr/lib` and so on lie below.
pub fn installed() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let exe = std::env::current_exe().expect("tests know their own path");
        let target = exe.ancestors().nth(3).expect("tests lie in a target directory");
        // As in `binary`: no lock is shared with whoever builds meanwhile.
        let target = target.join("disclose-under-test");
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

/// What `pkg-config` says of it, `options` being asked.
pub fn pkg_config(options: &[&str]) -> Vec<String> {
    let root = installed();
    let output = Command::new("pkg-config")
        .args(options)
        .arg("runahead_disclose")
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

/// The C library for programs that speculate, built once.
fn speculate() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let exe = std::env::current_exe().expect("tests know their own path");
        let target = exe.ancestors().nth(3).expect("tests lie in a target directory");
        // As above.
        let target = target.join("speculate-under-test");
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["rustc", "--quiet", "--release", "--locked", "--package", "runahead-speculate"])
            .args(["--features", "c", "--crate-type", "staticlib", "--target-dir"])
            .arg(&target)
            .current_dir(workspace())
            .status()
            .expect("cargo can be run");
        assert!(status.success(), "building the library failed: {status}");
        target.join("release/librunahead_speculate.a")
    })
}

/// Compiles the C program at `source`, which speculates, to `output`.
pub fn compile_speculating(source: &Path, output: &Path) {
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-Wall", "-I"])
        .arg(workspace().join("bindings/c"))
        .arg(source)
        .arg(speculate())
        .arg("-o")
        .arg(output)
        .status()
        .expect("gcc is installed");
    assert!(status.success(), "compiling {} failed: {status}", source.display());
}

/// The directory to put into `PYTHONPATH`.
pub fn python_path() -> PathBuf {
    workspace().join("bindings/python/src")
}

/// Compiles the C program at `source` and links it with the library, into one file or not.
pub fn compile(source: &Path, link: Link) -> PathBuf {
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
        .args(pkg_config(options))
        .arg("-o")
        .arg(&output)
        .status()
        .expect("gcc is installed");
    assert!(status.success(), "compiling {} failed: {status}", source.display());
    output
}

/// The directory in which such programs find the library when they start.
pub fn library_path() -> PathBuf {
    installed().join("usr/lib")
}
