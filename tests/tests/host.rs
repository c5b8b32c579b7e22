//! What runahead is to those around it: to the kernel's rules for who starts a program.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use runahead_harness::write_program;
use runahead_tests::{
    End, Link, Outcome, Run, available, fixture, programs, root, scratch, with_stats,
};

/// Who runs the programs, and who owns them.
const USER: u32 = 65534;
const OWNER: u32 = 65533;

fn as_user(run: &Run) -> Outcome {
    let mut command = run.command();
    command.uid(USER).gid(USER);
    run.finish(command)
}

/// A copy of `program` that belongs to somebody else, with `mode`.
fn owned(program: &Path, name: &str, mode: u32) -> PathBuf {
    let path = scratch().join(name);
    let bytes = std::fs::read(program).expect("it is there");
    write_program(&path, bytes, 0o755).expect("the scratch directory is ours");
    chown(&path, Some(OWNER), Some(OWNER)).expect("we are root");
    // Not before: a change of owner takes such bits away.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
    path
}

/// Gives a file the capability to change owners, permitted and effective (`vfs_cap_data`, version 2).
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

/// Tracing an exec takes the privileges of the program away, which is the interpreter's where it is a
/// script that is executed.
#[test]
fn a_script_with_a_privileged_interpreter_keeps_its_privilege() {
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

/// A shadow that is being made when its program ends is one that nobody needs any more.
#[test]
fn what_ends_before_its_shadow_is_made_is_no_loss() {
    let Some(fixture) = available(fixture()) else { return };
    let script = "for k in 0 1 2; do for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2; do \
                  cat many/$j$i many/$k$i > /dev/null & done; done; wait; done";
    for _ in 0..3 {
        let (outcome, stats) = with_stats(&fixture.run(&["sh", "-c", script]), &[], |run| {
            fixture.reset();
            run.run()
        });
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let lost = stats["lost"].to_string();
        assert!(!lost.contains("could not be confined"), "{lost}");
        assert!(!lost.contains("no thread was left"), "{lost}");
    }
}
