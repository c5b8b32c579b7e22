//! Contents of a record, and its use when files have changed since.

use std::collections::HashMap;

use runahead_history::{AccessKind, run_file};
use runahead_tests::{available, fixture};

use super::*;

#[test]
fn a_record_contains_exactly_the_accesses() {
    let Some(fixture) = available(fixture()) else { return };
    let path = record_path("all");
    let run = fixture.run(&["sh", "-c", "cat data many/0*; ls odd >/dev/null; readlink odd/link"]);
    let (outcome, stats) = with_file(&fixture, &run, "--record", &path);
    assert_quiet(&outcome);
    let record = run_file::load(&path).expect("a record");
    assert_eq!(count(&stats, &["history", "recorded", "accesses"]), record.accesses.len() as u64);
    let mut read: HashMap<&[u8], u64> = HashMap::new();
    for access in &record.accesses {
        *read.entry(&record.path_of(access).path).or_default() += access.kind.bytes();
    }
    let at = |name: &str| fixture.dir().join(name).as_os_str().as_encoded_bytes().to_vec();
    assert_eq!(read.get(&at("data")[..]), Some(&(1 << 20)));
    for n in 0..10 {
        assert_eq!(read.get(&at(&format!("many/0{n}"))[..]), Some(&(5000 + n)));
    }
    assert_eq!(read.get(&at("many/10")[..]), None);
    assert_eq!(read.get(&at("big")[..]), None);
    let did = |name: &str, what: AccessKind| {
        let path = at(name);
        record.accesses.iter().any(|a| a.kind == what && record.path_of(a).path == path)
    };
    assert!(
        did("odd", AccessKind::List)
            && did("odd/link", AccessKind::Link)
            && !did("src", AccessKind::List)
    );
    let unstored =
        |p: &&[u8]| [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|d| p.starts_with(d));
    assert_eq!(read.keys().find(|path| unstored(path)), None);
    let programs = record.accesses.iter().filter(|a| a.kind == AccessKind::Execute).count();
    assert!((3..10).contains(&programs), "{programs}");
}

/// Here and there in a large file: no more than that.
#[test]
fn single_pages_are_recorded() {
    let Some(fixture) = available(fixture()) else { return };
    let path = record_path("pages");
    let (outcome, _) = with_file(&fixture, &chain(&fixture), "--record", &path);
    assert_quiet(&outcome);
    let record = run_file::load(&path).expect("a record");
    let name = fixture.dir().join("chain");
    let of_file = |p: &[u8]| p == name.as_os_str().as_encoded_bytes();
    let ranges = record.accesses.iter().filter(|a| of_file(&record.path_of(a).path));
    let bytes: u64 = ranges.map(|access| access.kind.bytes()).sum();
    let most = u64::from(HOPS) * (16 << 10);
    assert!((u64::from(HOPS) * 4096..=most).contains(&bytes), "{bytes} bytes");
}

#[test]
fn files_that_have_changed_are_looked_up_and_not_read() {
    let Some(fixture) = available(fixture()) else { return };
    let path = record_path("changed");
    let run = fixture.run(&["sh", "-c", "cat changing/*"]);
    fixture.change(|dir| {
        std::fs::create_dir_all(dir.join("changing")).expect("ours");
        for n in 0..60 {
            std::fs::write(dir.join(format!("changing/{n}")), [b'a'; 9000]).expect("ours");
        }
    });
    let (outcome, _) = with_file(&fixture, &run, "--record", &path);
    assert_quiet(&outcome);
    fixture.change(|dir| {
        for n in 0..20 {
            std::fs::write(dir.join(format!("changing/{n}")), [b'b'; 100]).expect("ours");
        }
        (20..40).for_each(|n| {
            std::fs::remove_file(dir.join(format!("changing/{n}"))).expect("ours");
        });
    });
    let expected = plain(&fixture, &run);
    let (outcome, stats) = with_file(&fixture, &run, "--replay", &path);
    assert_eq!(outcome, expected);
    assert_eq!(count(&stats, &["history", "replayed", "files_changed"]), 20, "{stats:#}");
}

/// A record of another command is useless, and is given up.
#[test]
fn the_record_of_another_command_is_given_up() {
    let Some(fixture) = available(fixture()) else { return };
    let path = record_path("other");
    let other = fixture.run(&["sh", "-c", "cat src/d*/*.c src/d*/d*/*.c"]);
    let (outcome, stats) = with_file(&fixture, &other, "--record", &path);
    assert_quiet(&outcome);
    let all = count(&stats, &["history", "recorded", "accesses"]);
    let run = chain(&fixture);
    let expected = plain(&fixture, &run);
    let (outcome, stats) = with_file(&fixture, &run, "--replay", &path);
    assert_eq!(outcome, expected);
    let replayed = &stats["history"]["replayed"];
    // Where the system's libraries are cold, both have read those: what is found is not against it.
    let besides = |name, found| count(replayed, &[name]) - count(replayed, &[found]);
    assert!(besides("given_up_at", "matched") < u64::from(HOPS), "{stats:#}");
    assert!(besides("asked", "used") * 2 < all, "{stats:#}");
    // The text says so, too.
    fixture.reset();
    let option = option("--replay", &path);
    let outcome = run.ahead(&["--stats", &option[0], &option[1]]).run();
    assert!(outcome.complaints().contains("; given up after "), "{outcome:?}");
}
