//! Privileges that a program gets at exec: set-user-ID, set-group-ID, capabilities.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use runahead_harness::write_program;
use runahead_tests::{End, Link, Outcome, Run, apart, available, programs, root, scratch};

/// User that runs the programs, and their owner.
const USER: u32 = 65534;

const OWNER: u32 = 65533;

fn as_user(run: &Run) -> Outcome {
    let mut command = run.command();
    command.uid(USER).gid(USER);
    run.finish(command)
}

/// Copy of `program` that belongs to OWNER, with `mode`.
fn owned(program: &Path, name: &str, mode: u32) -> PathBuf {
    let path = scratch().join(name);
    let bytes = std::fs::read(program).expect("it is there");
    write_program(&path, bytes, 0o755).expect("the scratch directory is ours");
    chown(&path, Some(OWNER), Some(OWNER)).expect("we are root");
    // Not before: a change of owner takes such bits away.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
    path
}

/// Gives a file the capability to change owners, permitted and effective (`vfs_cap_data` version
/// 2).
fn give_capability(path: &Path) {
    let words: [u32; 5] = [0x0200_0001, 1, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = CString::new(path.as_os_str().as_bytes()).expect("a plain path");
    let attribute = c"security.capability".as_ptr();
    // SAFETY: two strings and a buffer of the length given, all of which live.
    let set =
        unsafe { libc::setxattr(name.as_ptr(), attribute, value.as_ptr().cast(), value.len(), 0) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Tracing an exec takes away the privileges of the program, or those of the interpreter of a
/// script.
#[test]
fn a_script_with_a_privileged_interpreter_keeps_its_privilege() {
    let _apart = apart();
    let Some(()) = available(root()) else { return };
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch(), mode).expect("the scratch directory is ours");
    let program = programs::program("privileges", Link::Dynamic);
    let set_user = owned(&program, "set-user", 0o4755);
    let set_group = owned(&program, "set-group", 0o2755);
    let capable = owned(&program, "capable", 0o755);
    give_capability(&capable);
    let script = |name: &str, interpreter: &Path| {
        let path = scratch().join(name);
        let text = format!("#! {} -x\n", interpreter.display());
        write_program(&path, text, 0o755).expect("the scratch directory is ours");
        path
    };
    let plain = script("of-an-ordinary-one", &program);
    let simple = script("of-set-user", &set_user);
    let nested = script("of-a-script", &script("of-capable", &capable));
    let unreadable = owned(&script("unreadable", &set_user), "unreadable", 0o711);
    let ordinary = as_user(&Run::new([&plain]));
    assert_eq!(as_user(&Run::new([&plain]).ahead(&["--require"])), ordinary);
    for path in [simple, script("of-set-group", &set_group), nested, unreadable] {
        let run = Run::new([&path]);
        let native = as_user(&run);
        assert_eq!(native.end, End::Exit(0), "{run}: {native:?}");
        assert_ne!(native.text(), ordinary.text(), "{run} has no privilege here");
        let ahead = as_user(&run.ahead(&[]));
        assert_eq!((ahead.end, ahead.text()), (native.end, native.text()), "{run}: {ahead:?}");
        assert_eq!(ahead.complaints().lines().count(), 1, "{run}: {ahead:?}");
        assert_eq!(as_user(&run.ahead(&["--require"])).end, End::Exit(125), "{run}");
        let relative = Run::new([Path::new(path.file_name().expect("a name"))])
            .dir("/")
            .env("PATH", scratch());
        assert_eq!(as_user(&relative.ahead(&[])).text(), native.text(), "{run}, by PATH");
    }
}
