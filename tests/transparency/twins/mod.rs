//! Small programs about calls and signals. Each is run natively and under `runahead run --`, from
//! cold storage, and compared: output, complaints, end, files, and processes left behind.
//!
//! Each case runs in two forms: as the command itself, and as the child of a shell that prints its
//! exit status. By default a sample is run, chosen by `RUNAHEAD_SEED`; with `RUNAHEAD_FULL=1` all
//! cases, linked in every way. `RUNAHEAD_TWINS='forks. Static'` runs those whose name and way of
//! linking contain these words.

mod case_catalog;
mod cold_disk;
mod file_snapshot;
mod mount_namespace;
mod observed_run;
mod planted_differences;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use case_catalog::{Build, Case, KNOWN, Known};
use cold_disk::{Slow, slow};
use observed_run::{Form, Launcher, Seen};
use runahead_tests::prediction_counts::PredictionCounts;
use runahead_tests::{Seed, available, full, installed, kernel_facilities, runahead, scratch};

/// Cases in a sample: about half a minute's worth.
const SAMPLE: usize = 100;
/// Cases of a sample that are also run natively again and again.
const REPEATED: usize = 12;

/// Returns the cases to run, with their ways of linking.
fn chosen() -> Vec<(Case, Build)> {
    let (cases, left_out) = case_catalog::cases_here();
    for reason in left_out {
        let _ = available::<()>(Err(reason));
    }
    let musl = available(installed("musl-gcc")).is_some();
    let here = move |case: &Case| case.builds().filter(move |b| musl || *b != Build::Musl);
    let every = move |case: Case| here(&case).map(move |build| (case.clone(), build));
    if let Some(words) = std::env::var("RUNAHEAD_TWINS").ok().filter(|words| !words.is_empty()) {
        let named = |(case, build): &(Case, Build)| {
            let name = format!("{case} {build:?}");
            words.split_whitespace().all(|word| name.contains(word))
        };
        return cases.into_iter().flat_map(every).filter(named).collect();
    }
    if full() {
        return cases.into_iter().flat_map(every).collect();
    }
    let mut seed = Seed::new();
    // One way of linking for all cases of a file, so that little is compiled.
    let ways = case_catalog::sources().map(|_| seed.below(60) as usize).collect::<Vec<_>>();
    let mut sample = Vec::new();
    // What is known to differ is looked at every time.
    let (known, mut left): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| case_catalog::known(case).is_some());
    sample.extend(known.into_iter().filter_map(|case| {
        let build = here(&case).next()?;
        Some((case, build))
    }));
    while !left.is_empty() && sample.len() < SAMPLE {
        let case = left.swap_remove(seed.below(left.len() as u64) as usize);
        let builds: Vec<_> = here(&case).collect();
        let build = builds[ways[case.source_number()] % builds.len()];
        sample.push((case, build));
    }
    sample
}

#[test]
fn programs_run_as_natively() {
    mount_namespace::run("twins::programs_run_as_natively", compare_all);
}

fn compare_all() {
    let Some(slow) = available(slow()) else { return };
    let chosen = chosen();
    assert!(!chosen.is_empty(), "RUNAHEAD_TWINS names no case");
    slow.compile(&chosen);
    let mut report = String::new();
    let (mut failed, mut shadows, mut deep) = (0, 0, 0);
    for (case, build) in &chosen {
        for form in [Form::Direct, Form::ChildOfAShell] {
            let known = case_catalog::known(case);
            let plain = slow.observe(case, *build, form, &Launcher::Native);
            let (mut ahead, mut syncs) = slow.observe_ahead(case, *build, form);
            let mut wrong = judge(known, form, &plain, &ahead);
            if known.is_some() && !wrong.is_empty() && syncs == 0 {
                // No shadow was made this time, from which what is known might come.
                (ahead, syncs) = slow.observe_ahead(case, *build, form);
                wrong = judge(known, form, &plain, &ahead);
            }
            for _ in 1..case_catalog::looks(case) {
                if !wrong.is_empty() {
                    (ahead, syncs) = slow.observe_ahead(case, *build, form);
                    wrong = judge(known, form, &plain, &ahead);
                }
            }
            match form {
                Form::Direct => shadows += usize::from(syncs > 0),
                Form::ChildOfAShell => deep += usize::from(syncs > 0),
            }
            if wrong.is_empty() {
                continue;
            }
            failed += 1;
            // A case that is not even the same natively is a bug of the case.
            let again = slow.observe(case, *build, form, &Launcher::Native);
            let flaky = if plain.differences(&again).is_empty() { "" } else { " (nor natively)" };
            let heading = format!("{case} {build:?} {form:?}: not the same{flaky}\n");
            eprint!("{heading}");
            write!(report, "\n== {heading}{}", slow.command(case, *build, form)).expect("memory");
            for line in wrong {
                write!(report, "\n{line}").expect("memory");
            }
        }
    }
    let count = chosen.len();
    eprintln!("{count} twins in two forms; shadows in {shadows} and, under a shell, in {deep}");
    assert!(failed == 0, "{failed} of {} pairs differ{report}", count * 2);
    // Of a few cases that were asked for by name, none need have one.
    let enough = count < SAMPLE || shadows * 10 >= count * 9;
    assert!(enough, "hardly a shadow: {shadows} of {count} cases had one");
}

/// Describes unexpected differences, and expected ones that are missing.
fn judge(known: Option<&Known>, form: Form, plain: &Seen, ahead: &Seen) -> Vec<String> {
    let mut found = plain.differences(ahead);
    let Some(known) = known else { return found };
    let (expected, seen) = (known.places(form), plain.places(ahead));
    if seen == expected {
        return Vec::new();
    }
    found.push(format!(
        "it is known to differ in {expected:?}, but does so in {seen:?}; the reason was: {}",
        known.reason
    ));
    found
}

/// Right and wrong predictions are planted, and the program shows no difference.
#[test]
fn speculating_programs_run_as_natively() {
    mount_namespace::run("twins::speculating_programs_run_as_natively", || {
        let (failed, report) = speculate("speculated", usize::MAX);
        assert!(failed == 0, "{failed} pairs differ{report}");
    });
}

/// A rollback that leaves memory changed is detected.
#[test]
fn planted_faults_of_rollback_are_found() {
    mount_namespace::run("twins::planted_faults_of_rollback_are_found", || {
        let (failed, _) = speculate("speculated-wrongly", 1);
        assert!(failed > 0 || available(slow()).is_none(), "nothing was found");
    });
}

/// Runs the tests again where userfaultfd(2) is refused.
#[test]
fn programs_speculating_by_write_faults_run_as_natively() {
    let _apart = runahead_tests::apart();
    let tests = [
        "twins::speculating_programs_run_as_natively",
        "twins::planted_faults_of_rollback_are_found",
    ];
    kernel_facilities::without_userfaultfd(env!("CARGO_BIN_EXE_confine"), &tests);
}

/// Cases of a sample in which processes speculate.
const SPECULATED: usize = 30;

/// Runs cases with predictions planted by `plant HOW` until `most` pairs differ; returns their
/// number and a report.
fn speculate(how: &str, most: usize) -> (usize, String) {
    let (mut failed, mut report) = (0, String::new());
    let Some(slow) = available(slow()) else { return (failed, report) };
    let mut chosen = chosen();
    chosen.retain(|(case, _)| {
        case_catalog::known(case).is_none() && case_catalog::may_speculate(case)
    });
    chosen.truncate(if full() { usize::MAX } else { SPECULATED });
    let counts = scratch().join(format!("twins-{how}"));
    let _ = std::fs::remove_file(&counts);
    let mut seed = Seed::new();
    let launcher = || {
        let number = seed.below(1 << 40).to_string();
        let plant = env!("CARGO_BIN_EXE_plant");
        let words = [plant.as_ref(), how.as_ref(), number.as_ref(), counts.as_os_str()];
        words.map(OsString::from).to_vec()
    };
    (failed, report) = compare(&slow, &chosen, most, launcher);
    let text = std::fs::read_to_string(&counts).unwrap_or_default();
    let seen: Vec<PredictionCounts> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let sum = |of: fn(&PredictionCounts) -> u64| seen.iter().map(of).sum::<u64>();
    let (committed, wrong) = (sum(|seen| seen.committed), sum(|seen| seen.failed));
    let refused = sum(|seen| seen.refused.values().sum());
    eprintln!(
        "{} twins: {committed} predictions right, {wrong} wrong, {refused} refused",
        chosen.len()
    );
    // The first prediction may already differ, where the first difference ends the run.
    let is_whole = failed < most;
    let are_both = wrong * 3 >= committed && committed > 0;
    assert!(!is_whole || are_both, "hardly a prediction was wrong");
    (failed, report)
}

/// Runs cases natively and by the words of `launcher` until `most` pairs differ; returns their
/// number and a report.
fn compare(
    slow: &Slow,
    chosen: &[(Case, Build)],
    most: usize,
    mut launcher: impl FnMut() -> Vec<OsString>,
) -> (usize, String) {
    let (mut failed, mut report) = (0, String::new());
    slow.compile(chosen);
    for (case, build) in chosen {
        for form in [Form::Direct, Form::ChildOfAShell] {
            if failed == most {
                break;
            }
            let plain = slow.observe(case, *build, form, &Launcher::Native);
            let (mut wrong, mut by) = (Vec::new(), String::new());
            for _ in 0..case_catalog::looks(case) {
                let words = launcher();
                by = format!("{words:?}");
                let other = slow.observe(case, *build, form, &Launcher::Wrapped(words));
                wrong = plain.differences(&other);
                if wrong.is_empty() {
                    break;
                }
            }
            if wrong.is_empty() {
                continue;
            }
            failed += 1;
            let command = slow.command(case, *build, form);
            write!(report, "\n== {case} {build:?} {form:?}, by {by}: {command}").expect("memory");
            wrong.iter().for_each(|line| write!(report, "\n{line}").expect("memory"));
        }
    }
    (failed, report)
}

/// A program that might predict something, and does not.
#[test]
fn programs_that_may_speculate_run_as_natively() {
    mount_namespace::run("twins::programs_that_may_speculate_run_as_natively", || {
        let Some(slow) = available(slow()) else { return };
        let mut chosen = chosen();
        chosen.retain(|(case, _)| {
            case_catalog::known(case).is_none()
                && case_catalog::is_same_where_programs_may_speculate(case)
        });
        chosen.truncate(if full() { usize::MAX } else { SPECULATED });
        let words = ["run", "--require", "--speculate", "--"].map(OsString::from);
        let launcher = || [&[runahead().into()], &words[..]].concat();
        let (failed, report) = compare(&slow, &chosen, usize::MAX, launcher);
        assert!(failed == 0, "{failed} pairs differ{report}");
    });
}

/// A case that varies natively shows nothing.
#[test]
fn cases_do_not_vary_natively() {
    mount_namespace::run("twins::cases_do_not_vary_natively", repeat);
}

fn repeat() {
    let Some(slow) = available(slow()) else { return };
    let mut chosen = chosen();
    let times = if full() { 20 } else { 4 };
    if full() {
        // Each case in one of its ways of linking; the next case in the next way.
        let place = |case: &Case, build| case.builds().position(|b| b == build);
        let mut number = 0;
        chosen.retain(|(case, build)| {
            number += usize::from(place(case, *build) == Some(0));
            place(case, *build) == Some(number % case.builds().count())
        });
    } else if std::env::var_os("RUNAHEAD_TWINS").is_none() {
        chosen.truncate(REPEATED);
    }
    slow.compile(&chosen);
    let mut report = String::new();
    for (case, build) in &chosen {
        let first = slow.observe(case, *build, Form::Direct, &Launcher::Native);
        for time in 1..times {
            let again = slow.observe(case, *build, Form::Direct, &Launcher::Native);
            for difference in first.differences(&again) {
                write!(report, "\n== {case} {build:?}, time {time}: {difference}").expect("memory");
            }
        }
    }
    assert!(report.is_empty(), "cases that vary by themselves:{report}");
}

/// The comparer finds what is planted: each difference that it is there to find.
#[test]
fn planted_differences_are_found() {
    mount_namespace::run("twins::planted_differences_are_found", plant_all);
}

fn plant_all() {
    let Some(slow) = available(slow()) else { return };
    for plant in planted_differences::PLANTS {
        let case = case_catalog::case(plant.case);
        let build = Build::Dynamic;
        slow.compile(&[(case.clone(), build)]);
        let plain = slow.observe(&case, build, plant.form, &Launcher::Native);
        let wrapper = ["sh", "-c", plant.wrapper, "sh"].map(OsString::from).to_vec();
        let other = slow.observe(&case, build, plant.form, &Launcher::Wrapped(wrapper));
        let found = plain.differences(&other);
        assert!(
            found.iter().any(|difference| difference.starts_with(plant.found)),
            "{:?} was not found by its {}: {found:?}\n{other:?}",
            plant.wrapper,
            plant.found
        );
        // Neither a case that differs otherwise than is known passes, nor one that is mended.
        for known in KNOWN {
            assert!(!judge(Some(known), plant.form, &plain, &other).is_empty(), "{known:?}");
            assert!(!judge(Some(known), plant.form, &plain, &plain).is_empty(), "{known:?}");
        }
        let none = plain.differences(&slow.observe(&case, build, plant.form, &Launcher::Native));
        assert!(none.is_empty(), "{case} varies by itself: {none:?}");
    }
}

/// The guide for users lists exactly the known differences.
#[test]
fn known_differences_are_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/compatibility.md");
    let text = std::fs::read_to_string(&path).expect("the documentation is there");
    let listed: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| case_catalog::cases().iter().any(|case| case.to_string() == *name))
        .collect();
    let known: Vec<_> =
        KNOWN.iter().map(|known| case_catalog::case(known.case).to_string()).collect();
    assert_eq!(listed, known, "{}", path.display());
}

/// Two hundred were promised, and each name means one case.
#[test]
fn the_catalogue_has_every_program() {
    let mut names: Vec<_> = case_catalog::cases().iter().map(Case::to_string).collect();
    let count = names.len();
    assert!(count >= 200, "{count} cases");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two cases of one name");
    for (name, _) in case_catalog::DO_NOT_SPECULATE {
        let _ = case_catalog::case(name);
    }
    let listed: Vec<_> = case_catalog::sources().collect();
    for entry in std::fs::read_dir(case_catalog::directory()).expect("sources are there") {
        let path = entry.expect("readable").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let is_source = path.extension().is_some_and(|e| e == "c" || e == "cpp");
        let is_listed = listed.contains(&name.as_str()) && case_catalog::source_path(&name) == path;
        assert!(!is_source || is_listed, "{} is in no list", path.display());
    }
}
