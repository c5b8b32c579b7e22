//! What runahead is to those around it: to the kernel's rules for who starts a program.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use runahead_harness::write_program;
use runahead_tests::processes::{eventually, kill};
use runahead_tests::{
    End, Link, Outcome, Run, available, drain, fixture, installed, number, programs, root,
    runahead, scratch, with_stats,
};

/// Who runs the programs, and who owns them.
const USER: u32 = 65534;
const OWNER: u32 = 65533;
/// For what somebody else may hold up.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// A share whose server never answers for one name, mounted while it lives.
struct Silent {
    server: Child,
    said: PathBuf,
    at: PathBuf,
}

impl Silent {
    fn new() -> Result<Self, String> {
        root()?;
        let (said, at) = (scratch().join("said"), scratch().join("silent"));
        std::fs::create_dir_all(&at).expect("the scratch directory is ours");
        let log = File::create(&said).expect("the scratch directory is ours");
        let mut command = Command::new(programs::program("silent", Link::Static));
        let server = command.arg(&at).stdout(log).spawn().expect("it is compiled");
        let mut silent = Silent { server, said, at };
        let has_ended = |silent: &mut Self| silent.server.try_wait().expect("our child").is_some();
        eventually(|| silent.has_said("ready") || has_ended(&mut silent));
        match silent.has_said("ready") {
            true => Ok(silent),
            false => Err("FUSE cannot be had".into()),
        }
    }

    fn has_said(&self, what: &str) -> bool {
        let text = std::fs::read_to_string(&self.said).unwrap_or_default();
        text.lines().any(|line| line == what)
    }
}

impl Drop for Silent {
    /// Whoever waits for an answer then goes on.
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let path = CString::new(self.at.as_os_str().as_bytes()).expect("a plain path");
        // SAFETY: a string that lives.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Who waits for the answer to a wrong guess is beyond any signal. Nobody waits for him.
#[test]
fn a_server_that_never_answers_holds_up_nobody() {
    for is_killed in [false, true] {
        let Some(silent) = available(Silent::new()) else { return };
        let rest = if is_killed { "sleep 60" } else { "exit 7" };
        let script = format!(
            "for n in 0 1 2; do cat c${{n}}0 c${{n}}1 c${{n}}2 c${{n}}3 c${{n}}4; done; {rest}"
        );
        let run = Run::new(["sh", "-c", &script]).dir(&silent.at);
        let run = run.ahead(&["--require", "--stats", "--plant", "rubbish"]);
        let mut child = run.command().spawn().expect("runahead starts");
        let stdout = drain(child.stdout.take().expect("piped"));
        let stderr = drain(child.stderr.take().expect("piped"));
        let asked = eventually(|| silent.has_said("asked"));
        if is_killed {
            kill(-(child.id() as i32), libc::SIGKILL);
        }
        let mut status = None;
        let ended = eventually(|| {
            status = child.try_wait().expect("our child");
            status.is_some()
        });
        let all = |from: Receiver<Vec<u8>>| from.recv_timeout(PATIENCE).ok();
        let heard = (ended && !is_killed).then(|| (all(stdout), all(stderr)));
        // Before anything is asserted: what hangs is to end.
        drop(silent);
        let _ = child.wait();
        assert!(asked, "nobody has asked for what is not answered");
        let status = status.expect("runahead does not end");
        if is_killed {
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        } else {
            assert_eq!(status.code(), Some(7));
            let Some((Some(out), Some(said))) = heard else { panic!("somebody holds a pipe") };
            assert_eq!(out.len(), 15 * 16384);
            assert!(String::from_utf8_lossy(&said).contains("stalls"), "{said:?}");
        }
    }
}

/// There is one process then, where all else has two: the test's own disk is a server's.
#[test]
fn where_no_server_is_mounted_all_is_as_elsewhere() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    let Some(()) = available(installed("unshare")) else { return };
    let script = "mount --make-rprivate / && grep -e ' - fuse' -e ' - nfs' /proc/self/mountinfo | cut -d ' ' -f 5 | xargs -r umount -l && exec \"$@\"";
    let file = scratch().join("alone.json");
    let option = format!("--stats=json:{}", file.display());
    let run = fixture.run(&["cat", "many/00", "many/01", "many/02", "many/03", "many/04"]);
    let expected = run.run();
    fixture.reset();
    let run = run.ahead(&["--require", &option]);
    let outcome = run.behind(["unshare", "-m", "sh", "-c", script, "sh"].map(OsStr::new)).run();
    assert_eq!((outcome.end, outcome.text()), (End::Exit(0), expected.text()), "{outcome:?}");
    let text = std::fs::read(&file).expect("statistics were written");
    let stats: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert!(number(&stats, "syncs/count") > 0, "{stats:#}");
}

/// What is ours then gets their numbers, and gives them up with them.
#[test]
fn who_has_no_standard_descriptors_is_served_like_others() {
    let Some(fixture) = available(fixture()) else { return };
    let file = scratch().join("closed.json");
    for closed in ["<&-", "<&- 2>&-", "<&- >&- 2>&-"] {
        let ahead = format!(
            "exec {} run --no-learn --require --stats=json:{} -- cp many/00 many/01 many/02 many/03 many/04 $W {closed}",
            runahead().display(),
            file.display()
        );
        fixture.reset();
        let outcome = fixture.run(&["sh", "-c", &ahead]).run();
        assert_eq!(outcome.end, End::Exit(0), "{closed}: {outcome:?}");
        let text = std::fs::read(&file).expect("statistics were written");
        let stats: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert!(number(&stats, "syncs/count") > 0, "{closed}: {stats:#}");
        assert_eq!(stats["lost"], serde_json::json!({}), "{closed}: {stats:#}");
    }
}
