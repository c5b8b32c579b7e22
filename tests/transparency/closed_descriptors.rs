//! A descriptor that the program closes is closed, even while its shadow lives.

use std::time::Duration;

use runahead_tests::{End, available, drain, fixture, programs};

/// Runs `script`, `PROGRAM` in it being a program that closes its descriptor 1 and then waits for
/// the end of its input; whatever reads the pipe behind it must see the end before that.
fn ends_before_the_program(script: &str) {
    let Some(fixture) = available(fixture()) else { return };
    for link in programs::BOTH {
        fixture.reset();
        let program = programs::program("released_resources", link);
        let ahead = format!(
            "{} run --no-learn --require -- {}",
            runahead_tests::runahead().display(),
            program.display()
        );
        let script = script.replace("PROGRAM", &ahead);
        let mut child =
            fixture.run(&["sh", "-c", &script]).stdin("").command().spawn().expect("sh starts");
        let stdin = child.stdin.take();
        let text = drain(child.stdout.take().expect("a pipe"));
        let after = drain(child.stderr.take().expect("a pipe"));
        // The order shows it: the program cannot end before we close its input.
        let seen = text.recv_timeout(Duration::from_secs(5));
        let alive = child.try_wait().expect("our child").is_none();
        drop(stdin);
        let status = child.wait().expect("our child");
        assert_eq!(
            seen.as_deref().map(String::from_utf8_lossy),
            Ok("last words\n".into()),
            "{script}"
        );
        assert!(alive && status.success(), "{script}: {status}");
        assert_eq!(after.recv().as_deref(), Ok("after\n".as_bytes()), "{script}");
    }
}

#[test]
fn a_reader_sees_end_of_file_when_the_program_closes_the_pipe() {
    ends_before_the_program("exec PROGRAM eof");
}

#[test]
fn readers_of_further_descriptors_see_end_of_file() {
    ends_before_the_program("exec PROGRAM eof 7 7>&1 > /dev/null");
}

/// The other way round: a writer is told when the program no longer reads.
#[test]
fn a_writer_gets_sigpipe_when_the_program_closes_its_input() {
    let Some(fixture) = available(fixture()) else { return };
    let ahead = runahead_tests::runahead().display();
    let program = programs::program("released_resources", programs::Link::Dynamic);
    fixture.reset();
    // `yes` ends by SIGPIPE while the program still runs; it then gives the program leave to end.
    let script = format!(
        "mkfifo $W/on; {{ yes; echo > $W/on; }} | {ahead} run --no-learn --require -- {} input $W/on",
        program.display()
    );
    let outcome = fixture.run(&["sh", "-c", &script]).run();
    assert_eq!(
        (outcome.end, outcome.text()),
        (End::Exit(0), "closed\nended\n".into()),
        "{outcome:?}"
    );
}

#[test]
fn neighbours_in_a_pipeline_see_end_of_file() {
    let Some(fixture) = available(fixture()) else { return };
    let ahead = runahead_tests::runahead().display();
    fixture.reset();
    let script =
        format!("{ahead} run --no-learn --require -- cat many/* | {ahead} run --require -- md5sum");
    let plain = fixture.run(&["sh", "-c", "cat many/* | md5sum"]).run();
    assert_eq!(fixture.cold(&fixture.run(&["sh", "-c", &script])), plain);
}

#[test]
fn close_releases_locks() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with("released_resources", &["locks"], |case| case.with_shadow());
    assert!(!pair.outcome.text().contains("-1"));
}

#[test]
fn a_program_that_was_just_written_can_be_executed() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with("released_resources", &["text"], |case| case.with_shadow());
    assert!(pair.outcome.text().contains("9: 0\n"));
}

#[test]
fn pipes_and_sockets_of_the_programs_own_end() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with("released_resources", &["own"], |case| case.with_shadow());
    assert!(pair.outcome.text().contains("read(p[0], buf, 64): 0"));
}

#[test]
fn fifos_carry_input_and_output() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.script("mkfifo $W/f; cat $W/f & cat many/* > $W/f; wait").compare();
    fixture.script("mkfifo $W/f; cat many/* > $W/f & exec md5sum $W/f").compare();
}
