//! A command does the same while it is recorded and replayed, and waits less the second time.

use runahead_tests::{Run, available, fixture, installed};

use super::*;

/// Runs it plainly, recorded and replayed; the statistics of the latter two.
fn three_times(fixture: &Fixture, name: &str, run: &Run) -> (Value, Value) {
    let path = record_path(name);
    let expected = plain(fixture, run);
    let (outcome, recorded) = with_file(fixture, run, "--record", &path);
    assert_eq!(outcome, expected, "recorded: {run}");
    assert_eq!(count(&recorded, &["history", "recorded", "lost"]), 0, "{recorded:#}");
    let (outcome, replayed) = with_file(fixture, run, "--replay", &path);
    assert_eq!(outcome, expected, "replayed: {run}");
    let told = &replayed["history"]["replayed"];
    assert_eq!(told["given_up_at"], Value::Null, "{replayed:#}");
    // What the command did meanwhile is left out.
    assert!(count(told, &["asked"]) * 2 >= count(told, &["accesses"]), "{replayed:#}");
    (recorded, replayed)
}

/// A chain of dependent reads, which no shadow can foresee.
#[test]
fn a_replayed_chain_of_reads_stalls_rarely() {
    let Some(fixture) = available(fixture()) else { return };
    let (recorded, replayed) = three_times(&fixture, "chain", &chain(&fixture));
    let (first, second) = (unforeseen(&recorded), unforeseen(&replayed));
    assert!(first >= u64::from(HOPS) / 2, "{recorded:#}");
    assert!(second * 8 <= first, "{second} stalls, and {first} before: {replayed:#}");
    assert!(count(&replayed, &["history", "replayed", "used"]) >= u64::from(HOPS) / 2);
}

#[test]
fn an_interpreter_is_replayed() {
    let Some(fixture) = available(fixture()) else { return };
    let Some(()) = available(installed("python3")) else { return };
    // Its modules are to come from the slow disk.
    fixture.change(|dir| {
        let package = dir.join("package");
        std::fs::create_dir_all(&package).expect("ours");
        for n in 0..120 {
            let next = format!("import m{}\nx = {n}\n", n + 1);
            std::fs::write(package.join(format!("m{n}.py")), next).expect("ours");
        }
        std::fs::write(package.join("m120.py"), "x = 120\n").expect("ours");
    });
    let script = "import sys; sys.path.insert(0, 'package'); import m0, m120; print(m120.x)";
    let run = fixture.run(&["python3", "-B", "-S", "-c", script]);
    let (recorded, replayed) = three_times(&fixture, "python", &run);
    let (first, second) = (unforeseen(&recorded), unforeseen(&replayed));
    assert!(first >= 12, "it shows nothing: {recorded:#}");
    assert!(second * 4 <= first, "{second} stalls, and {first} before: {replayed:#}");
}

#[test]
fn a_tree_of_processes_is_replayed() {
    let Some(fixture) = available(fixture()) else { return };
    let script = "for d in src/d*; do grep -c needle $d/*.c | cksum; done; \
                  (cat big & cat data; wait) | wc -c; find odd | sort | head -3; ls -lR src | wc -l";
    let run = fixture.run(&["sh", "-c", script]);
    let (recorded, replayed) = three_times(&fixture, "tree", &run);
    assert!(count(&recorded, &["programs"]) > 20);
    assert!(unforeseen(&replayed) <= unforeseen(&recorded), "{replayed:#}");
}

#[test]
fn changed_and_removed_files_are_replayed_safely() {
    let Some(fixture) = available(fixture()) else { return };
    let script = "cat many/* > $W/all; grep -c a $W/all; cp -r src $W/copy; rm -r $W/copy/d1; \
                  find $W/copy -name '*.c' | wc -l; cat $W/copy/d0/* | cksum; rm $W/all; echo done";
    let run = fixture.run(&["sh", "-c", script]);
    three_times(&fixture, "written", &run);
    let record = runahead_history::run_file::load(&record_path("written")).expect("a record");
    let work = fixture.work().as_os_str().as_encoded_bytes();
    let written = record
        .accesses
        .iter()
        .filter(|access| record.path_of(access).path.starts_with(work) && access.kind.bytes() > 0);
    assert_eq!(written.count(), 0, "what the command wrote is not to be read for it");
}

/// More at once than the ring holds, by one process and by the threads of another.
#[test]
fn many_accesses_are_all_recorded() {
    let Some(fixture) = available(fixture()) else { return };
    let Some(()) = available(installed("python3")) else { return };
    let long = "x".repeat(200);
    fixture.change(|dir| {
        let crowd = dir.join("crowd");
        std::fs::create_dir_all(&crowd).expect("ours");
        (0..3000).for_each(|n| {
            std::fs::write(crowd.join(format!("{long}{n}")), n.to_string()).expect("ours");
        });
    });
    // In memory, so that nothing slows it down.
    let one = fixture.run(&["sh", "-c", "cat crowd/* >/dev/null; exec cat crowd/*"]);
    let script = "import os, concurrent.futures as f; os.chdir('crowd'); \
                  read = lambda name: open(name, 'rb', 0).read(); \
                  print(b''.join(f.ThreadPoolExecutor(16).map(read, sorted(os.listdir('.')))))";
    let threads = fixture.run(&["python3", "-c", script]);
    for run in [one, threads] {
        all_of_the_crowd_is_recorded(&fixture, &run, &long);
    }
}

fn all_of_the_crowd_is_recorded(fixture: &Fixture, run: &Run, long: &str) {
    let path = record_path("crowd");
    let option = option("--record", &path);
    let recorded = run.ahead(&[&option[0], &option[1]]).run();
    assert_quiet(&recorded);
    assert_eq!(recorded.stdout, run.run().stdout);
    let record = runahead_history::run_file::load(&path).expect("a record");
    let crowd = fixture.dir().join("crowd");
    for n in 0..3000 {
        let file = crowd.join(format!("{long}{n}"));
        let file = file.as_os_str().as_encoded_bytes();
        let read = record
            .accesses
            .iter()
            .any(|access| access.kind.bytes() > 0 && record.path_of(access).path == file);
        assert!(read, "file {n} is missing among {}", record.accesses.len());
    }
}
