//! File systems of servers: one that never answers, and none at all.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use runahead_tests::processes::{eventually, kill};
use runahead_tests::{
    End, Link, Run, apart, available, drain, fixture, installed, number, programs, root, scratch,
};

/// Time limit for what another process may hold up.
const PATIENCE: Duration = Duration::from_secs(10);

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
        let mut command = Command::new(programs::program("silent_server", Link::Static));
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
    /// Processes that wait for an answer of the server continue then.
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let path = CString::new(self.at.as_os_str().as_bytes()).expect("a plain path");
        // SAFETY: a string that lives.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A shadow that guessed wrong waits for the answer and cannot be killed. No process waits for
/// that shadow.
#[test]
fn a_silent_server_delays_neither_program_nor_runahead() {
    let _apart = apart();
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
        assert!(asked, "no process made the request without an answer");
        let status = status.expect("runahead does not end");
        if is_killed {
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        } else {
            assert_eq!(status.code(), Some(7));
            let Some((Some(out), Some(said))) = heard else {
                panic!("a process still holds a pipe")
            };
            assert_eq!(out.len(), 15 * 16384);
            assert!(String::from_utf8_lossy(&said).contains("stalls"), "{said:?}");
        }
    }
}

/// There is one process then, where all else has two: the test's own disk is a server's.
#[test]
fn shadows_run_without_any_fuse_mount() {
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
