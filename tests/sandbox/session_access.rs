//! Other users can do nothing through runahead that they could not do without it. The table is in
//! `docs/guide/security.md`.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use runahead_tests::processes::{eventually, kill};
use runahead_tests::{
    End, Link, Outcome, Run, apart, available, fixture, number, programs, root, scratch, with_stats,
};

const USER: u32 = 65534;

/// Memory that a process shares with the supervisor carries its rights. A child gets memory of its
/// own as soon as it changes its user, also a child that the agent does not know.
#[test]
fn a_child_with_fewer_rights_loses_its_parents_shared_memory() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    for how in ["fork", "raw", "directory", "subreaper", "dispatch"] {
        fixture.reset();
        let run = fixture
            .run_program("shared_memory_rights", Link::Dynamic, &[how])
            .ahead(&["--require"]);
        let outcome = run.run();
        assert_eq!(outcome.end, End::Exit(0), "{how}: {outcome:?}");
        assert_eq!(outcome.text(), "shared: 1, by a child: 0\n", "{how}");
    }
}

#[test]
fn memory_that_is_not_to_be_copied_is_in_no_shadow() {
    let Some(fixture) = available(fixture()) else { return };
    let run = |what: &str| {
        // Without libraries, for which there may be one before there is anything to hide.
        let run = fixture.run_program("secret_memory", Link::Static, &[what]);
        let once = |run: &Run| fixture.cold(run);
        let plain = once(&run);
        let (outcome, stats) = with_stats(&run, &[], once);
        assert_eq!(outcome, plain, "{what}");
        (outcome, number(&stats, "syncs/count"))
    };
    assert!(run("nothing").1 > 0, "no shadow ran at all");
    for what in ["mlock", "mapped", "mlockall", "secret", "watched", "undumpable", "child"] {
        let (outcome, syncs) = run(what);
        if outcome.text().starts_with("none") {
            let Some(()) = available(Err(format!("there is no memory for {what}"))) else {
                continue;
            };
        }
        assert_eq!(syncs, 0, "{what}");
    }
}

/// A program keeps its shadows if it drops rights that it does not have (BusyBox, at every start),
/// or asks whether it has filters (browsers). Statistics name a program that changes its user,
/// which has no shadows.
#[test]
fn a_program_that_sets_the_rights_it_has_keeps_its_shadows() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    open_scratch();
    let user = USER.to_string();
    let files: Vec<String> = (0..30).map(|n| format!("many/{n:02}")).collect();
    let args: Vec<&str> = [user.as_str()].into_iter().chain(files.iter().map(|f| &**f)).collect();
    let run = fixture.run_program("same_rights", Link::Static, &args);
    let told = |execute: &dyn Fn(&Run) -> Outcome| {
        let once = |run: &Run| {
            fixture.reset();
            execute(run)
        };
        let plain = once(&run);
        assert_eq!(plain.end, End::Exit(0), "{plain:?}");
        let (outcome, stats) = with_stats(&run, &[], once);
        assert_eq!(outcome, plain);
        let changed = |lost: &String| lost.contains("changed the rules");
        let lost = stats["lost"].as_object().expect("what was lost");
        (number(&stats, "syncs/count"), lost.keys().any(changed))
    };
    let (syncs, changed) = told(&as_user);
    assert!(syncs > 0 && !changed, "{syncs} shadows, {changed}");
    assert_eq!(told(&Run::run), (0, true));
}

/// A run of an ordinary user's, ended with its group when dropped.
struct Started(Child);

impl Started {
    fn new() -> Self {
        let run = Run::new(["sh", "-c", "echo ready; exec sleep 60"]).ahead(&["--require"]);
        let out = scratch().join("started");
        let mut command = run.command();
        command.stdout(std::fs::File::create(&out).expect("the scratch directory is ours"));
        command.stderr(Stdio::null()).uid(USER).gid(USER);
        let started = Started(command.spawn().expect("runahead starts"));
        let ready = || std::fs::read_to_string(&out).is_ok_and(|text| text == "ready\n");
        assert!(eventually(ready), "the command did not start");
        started
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        kill(-(self.0.id() as i32), libc::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Opens the scratch directory to every user, for programs and reports.
fn open_scratch() {
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    std::fs::set_permissions(scratch(), mode).expect("the scratch directory is ours");
}

fn as_user(run: &Run) -> Outcome {
    let mut command = run.command();
    command.uid(USER).gid(USER);
    run.finish(command)
}

/// The address can be read in /proc/net/unix, also by processes that Landlock restricts.
#[test]
fn a_process_outside_the_session_is_refused() {
    let _apart = apart();
    let Some(()) = available(root()) else { return };
    open_scratch();
    let program = programs::program("join_request", Link::Static).display().to_string();
    let started = Started::new();
    let prefix = format!("@runahead-{}-", started.0.id());
    let table = std::fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
    let name = table.split_whitespace().find(|word| word.starts_with(&prefix));
    let name = name.expect("the session has an address").trim_start_matches('@');
    for what in ["J", "E", "L"] {
        let outcome = as_user(&Run::new([&program, name, what]));
        assert_eq!(outcome.end, End::Exit(0), "{what}: {outcome:?}");
        assert_eq!(outcome.text(), "refused\nrefused\n", "{what}");
    }
}

#[test]
fn other_users_cannot_read_the_supervisors_memory() {
    let _apart = apart();
    let Some(()) = available(root()) else { return };
    let started = Started::new();
    let maps = format!("/proc/{}/maps", started.0.id());
    let outcome = as_user(&Run::new(["cat", &maps]));
    assert_eq!((outcome.end, outcome.text()), (End::Exit(1), String::new()));
    assert!(outcome.complaints().contains("Permission denied"), "{outcome:?}");
}
