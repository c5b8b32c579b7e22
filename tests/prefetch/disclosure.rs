//! Disclosures of a program are used, can be cancelled, and have no other effect.

use std::os::unix::fs::FileExt;
use std::path::Path;

use runahead_tests::{
    Case, End, Fixture, Link, Pair, Run, Seed, apart, available, bindings, fixture, installed,
    number, programs, scratch,
};
use serde_json::Value;

const LIBRARY: &[&str] = &["disclose"];
const CHUNK: u64 = 128 << 10;

/// Program `name`, linked with the library.
fn program(fixture: &Fixture, name: &str, link: Link, args: &[&str]) -> Run {
    let program = bindings::compile(&programs::source(name), LIBRARY, link);
    let argv = [program.to_str().expect("a plain path")].into_iter().chain(args.iter().copied());
    Run::new(argv)
        .dir(fixture.dir())
        .env("W", fixture.work())
        .env("LD_LIBRARY_PATH", bindings::library_path())
}

/// Program `discloses`, both ways; its file is made of `chunks` that lead from one to the next.
fn discloses(fixture: &Fixture, how: &str, link: Link, chunks: u64) -> Pair {
    fixture.change(|dir| {
        let file = std::fs::File::create(dir.join("places")).expect("the disk is ours");
        let place = |n: u64| n * 7919 % chunks;
        for n in 0..chunks {
            let mut page = [n as u8; 4096];
            page[..8].copy_from_slice(&place((n + 1) % chunks).to_le_bytes());
            file.write_all_at(&page, place(n) * CHUNK + 8192).expect("there is room");
            file.write_all_at(&page, place(n) * CHUNK).expect("there is room");
        }
        file.set_len(chunks * CHUNK).expect("there is room");
        std::fs::create_dir_all(dir.join("named")).expect("the disk is ours");
        for n in 0..chunks {
            std::fs::write(dir.join(format!("named/{n}")), [n as u8; 3000]).expect("there is room");
        }
    });
    let file = if how == "paths" { "named" } else { "places" };
    let pair = Case::new(
        fixture,
        program(fixture, "disclosed_reads", link, &[how, file, &chunks.to_string()]),
    );
    pair.compare()
}

fn count(stats: &Value, name: &str) -> u64 {
    let value = &stats[name];
    value["count"].as_u64().or(value.as_u64()).unwrap_or_else(|| panic!("no {name} in {stats:#}"))
}

const CHUNKS: u64 = 300;

#[test]
fn disclosed_reads_are_foreseen() {
    let Some(fixture) = available(fixture()) else { return };
    for link in programs::BOTH {
        let silent = discloses(&fixture, "silent chain", link, CHUNKS).stats;
        let unforeseen = |stats: &Value| count(stats, "stalls_unforeseen");
        assert!(unforeseen(&silent) > CHUNKS / 2, "a shadow knew the way: {silent:#}");
        // Only the disclosed ranges, not the chunks around them. If a shadow discloses at the same
        // moment, each chunk seems to be requested twice and is read whole: in one of some twenty
        // runs.
        let told = (0..3).map(|_| {
            let told = discloses(&fixture, "chain", link, CHUNKS).stats;
            assert!(unforeseen(&told) < CHUNKS / 20, "{told:#}");
            assert!(count(&told, "hints_used") >= CHUNKS - 10, "{told:#}");
            count(&told, "bytes_prefetched")
        });
        let bytes: Vec<u64> = told.take_while(|bytes| *bytes >= CHUNKS * CHUNK / 8).collect();
        assert!(bytes.len() < 3, "bytes read: {bytes:?}");
    }
}

#[test]
fn files_disclosed_by_name_are_foreseen() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = discloses(&fixture, "paths", Link::Dynamic, CHUNKS);
    // Each name, and what is in the file.
    assert!(count(&pair.stats, "hints_used") >= 2 * CHUNKS - 20, "{:#}", pair.stats);
    assert!(count(&pair.stats, "stalls_unforeseen") < CHUNKS / 20, "{:#}", pair.stats);
}

#[test]
fn concurrent_disclosures_are_all_used() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = discloses(&fixture, "threads", Link::Dynamic, CHUNKS);
    // A shadow that is made while the file is opened hints its name and the reads that follow.
    let issued = count(&pair.stats, "hints_issued");
    assert!((CHUNKS..CHUNKS + 30).contains(&issued), "{:#}", pair.stats);
    assert!(count(&pair.stats, "hints_used") >= CHUNKS - 10, "{:#}", pair.stats);
}

/// "keeps" has the effect that an ignored cancellation would have.
#[test]
fn cancelled_disclosures_are_not_read() {
    let Some(fixture) = available(fixture()) else { return };
    // As many as the ring holds.
    const MANY: u64 = 1500;
    let kept = discloses(&fixture, "keeps", Link::Dynamic, MANY).stats;
    // A shadow that is made while the file is opened hints a name or two, and more the longer that
    // takes. Of three runs the one with the fewest hints counts, without runs in which another
    // process emptied the machine's caches.
    let cancelled = (0..9)
        .map(|_| discloses(&fixture, "cancels", Link::Dynamic, MANY).stats)
        .filter(|stats| number(stats, "memory/hints_lost") == 0)
        .take(3)
        .min_by_key(|stats| count(stats, "hints_issued"))
        .expect("three runs");
    let check = |stats: &Value| count(stats, "bytes_prefetched") < 50 * CHUNK;
    assert!(check(&cancelled), "{cancelled:#}");
    assert!(!check(&kept), "cancellation makes no difference: {kept:#}");
    // What is disclosed afterwards stays, and what is left of the rest does not count as hinted.
    assert!((1..3).contains(&count(&cancelled, "hints_used")), "{cancelled:#}");
    assert!(count(&cancelled, "hints_issued") < 10, "{cancelled:#}");
    assert!(count(&kept, "hints_issued") >= MANY, "{kept:#}");
}

#[test]
fn random_disclosures_change_no_result() {
    let Some(fixture) = available(fixture()) else { return };
    let full = runahead_tests::full();
    let mut seed = Seed::new();
    for round in 0..if full { 20 } else { 3 } {
        let link = programs::BOTH[round % 2];
        let args = [seed.below(1 << 40).to_string(), "20000".into()];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let taken = scratch().join("taken");
        let run = program(&fixture, "random_disclosures", link, &args).env("TAKEN", &taken);
        let pair = Case::new(&fixture, run).compare();
        let text = pair.outcome.text();
        let expected = "errno changed 0 times, offsets 0, access time 1000000, size 4800, gone\n";
        assert_eq!((pair.outcome.end, text.as_str()), (End::Exit(0), expected), "{args:?}");
        let taken = std::fs::read_to_string(taken).unwrap_or_default();
        assert!(taken.trim().parse().is_ok_and(|n: u64| n > 100), "too few were accepted: {taken}");
    }
}

#[test]
fn millions_of_disclosures_do_no_harm() {
    let Some(fixture) = available(fixture()) else { return };
    let full = runahead_tests::full();
    let calls = if full { "10000000" } else { "1000000" };
    let run = program(&fixture, "disclosed_reads", Link::Dynamic, &["many", "many", calls]);
    let pair = Case::new(&fixture, run).compare();
    assert_eq!(pair.outcome.end, End::Exit(0), "{:?}", pair.outcome);
    assert!(count(&pair.stats, "hints_issued") > 0, "{:#}", pair.stats);
}

#[test]
fn without_runahead_each_function_makes_one_call_that_fails() {
    let _apart = apart();
    let onecall = bindings::compile(&programs::source("one_call"), LIBRARY, Link::Static);
    let expected = "the kernel says -1, EBADF\nnothing: 0 calls, taken 0\n\
                    disclose_fd: 1 calls, taken 0\ndisclose_path: 1 calls, taken 0\n\
                    cancel_all: 1 calls, taken 0\n";
    let argv = [onecall.as_os_str()];
    let outcome = Run::new(argv).run();
    let end = "0 calls of another kind, 0 on a real descriptor\n";
    assert_eq!((outcome.end, outcome.text()), (End::Exit(0), format!("{expected}{end}")));
    // The count would notice another.
    let outcome = Run::new([onecall.as_os_str(), "planted".as_ref()]).run();
    assert!(outcome.text().contains("planted: 1 calls"), "{outcome:?}");
    assert!(outcome.text().contains("1 calls of another kind"), "{outcome:?}");
}

#[test]
fn python_makes_one_call_that_fails() {
    let _apart = apart();
    let Some(()) = available(installed("python3").and(installed("strace"))) else { return };
    let script = "import os, runahead_disclose as r; os.getppid(); r.disclose_fd(0, 0, 1); os.getppid(); \
                  r.disclose_path('/etc/passwd'); os.getppid(); r.cancel_all(); os.getppid()";
    let trace = scratch().join("trace");
    let python = bindings::interpreter();
    let strace = ["strace", "-o", trace.to_str().expect("a plain path"), &python, "-c", script];
    let outcome = bindings::python(Run::new(strace)).run();
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let trace = std::fs::read_to_string(trace).expect("strace wrote it");
    let parts: Vec<&str> = trace.split("getppid()").collect();
    assert_eq!(parts.len(), 5, "not four marks in the trace of {python}");
    for part in &parts[1..4] {
        let calls: Vec<&str> = part.lines().skip(1).collect();
        assert!(
            calls.len() == 1 && calls[0].starts_with("fadvise64(-") && calls[0].contains("EBADF"),
            "{calls:?}"
        );
    }
}

#[test]
fn the_python_package_passes_its_tests_either_way() {
    let (Some(fixture), Some(())) = (available(fixture()), available(installed("python3"))) else {
        return;
    };
    fixture.reset();
    let run = bindings::python_tests("test_disclose.py").env("W", fixture.work());
    for run in [run.clone(), run.env("RUNAHEAD_LISTENS", "1").ahead(&["--require"])] {
        let outcome = run.run();
        assert_eq!(outcome.end, End::Exit(0), "{run}: {outcome:?}");
        assert!(outcome.complaints().contains("Ran 4 tests"), "{outcome:?}");
    }
}

/// The blocks of docs/guide/disclosure.md that are marked as `language`.
fn examples(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(bindings::workspace().join("docs/guide/disclosure.md"));
    let text = text.expect("the document is there");
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.filter_map(|b| b.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

#[test]
fn examples_of_the_guide_run() {
    let (Some(fixture), Some(())) = (available(fixture()), available(installed("python3"))) else {
        return;
    };
    let [c, py] = ["c", "python"].map(examples);
    assert!(!c.is_empty() && !py.is_empty(), "no examples");
    let compiled = c.iter().enumerate().map(|(n, text)| {
        let source = scratch().join(format!("example{n}.c"));
        std::fs::write(&source, text).expect("the directory is ours");
        let program = bindings::compile(&source, LIBRARY, Link::Dynamic);
        Run::new([program.as_os_str(), Path::new("data").as_os_str()])
            .env("LD_LIBRARY_PATH", bindings::library_path())
    });
    let scripts = py.iter().map(|text| {
        let path = scratch().join("example.py");
        std::fs::write(&path, text).expect("the directory is ours");
        let argv = ["python3".as_ref(), path.as_os_str(), Path::new("data").as_os_str()];
        bindings::python(Run::new(argv))
    });
    for run in compiled.chain(scripts) {
        let run = run.dir(fixture.dir()).env("W", fixture.work());
        let pair = Case::new(&fixture, run.clone()).compare();
        assert_eq!(pair.outcome.end, End::Exit(0), "{run}: {:?}", pair.outcome);
        assert!(count(&pair.stats, "hints_used") >= 5, "{run}: {:#}", pair.stats);
    }
}

#[test]
fn a_child_inherits_no_disclosure_and_can_disclose() {
    let (Some(fixture), Some(())) = (available(fixture()), available(installed("python3"))) else {
        return;
    };
    let script = "import os, runahead_disclose as r\n\
                  f = open('data', 'rb', buffering=0)\n\
                  r.disclose_fd(f, 0, 4096)\n\
                  child = os.fork()\n\
                  if child: os.waitpid(child, 0)\n\
                  else: r.cancel_all(); r.disclose_fd(f, 1 << 19, 4096)\n\
                  print(len(os.pread(f.fileno(), 4096, 0 if child else 1 << 19)), flush=True)";
    let run = bindings::python(Run::new(["python3", "-c", script]));
    let run = run.dir(fixture.dir()).env("W", fixture.work());
    let pair = Case::new(&fixture, run).compare();
    assert_eq!(pair.outcome.text(), "4096\n4096\n");
    // A process that discloses is known to the session.
    assert!(count(&pair.stats, "processes_stalled") >= 2, "{:#}", pair.stats);
}
