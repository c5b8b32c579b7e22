//! Each facility of the kernel that runahead uses, forbidden in turn as a container would.

use runahead_tests::kernel_facilities::FACILITIES;
use runahead_tests::{End, Link, Run, available, fixture, full};

use crate::confined_runs::{Failures, Fault, compare, grep, lost, program, script};

/// The filter does what it is there for: a fault that is none shows nothing.
#[test]
fn each_filter_refuses_its_facility_alone() {
    for facility in FACILITIES {
        for errno in ["EPERM", "ENOSYS"] {
            let check = format!("--check={}", facility.name);
            let confine = env!("CARGO_BIN_EXE_confine");
            let deny = format!("--deny={}:{errno}", facility.name);
            let denied = Run::new([confine, &deny, &check]).run();
            assert_eq!(denied.end, End::Exit(0), "{} is allowed: {denied:?}", facility.name);
        }
    }
}

#[test]
fn results_are_native_without_each_facility() {
    let Some(fixture) = available(fixture()) else { return };
    let mut failures = Failures::default();
    let errnos: &[&str] = if full() { &["EPERM", "ENOSYS"] } else { &["EPERM"] };
    for facility in FACILITIES {
        for errno in errnos {
            let fault = Fault::new(&format!("--deny={}:{errno}", facility.name));
            let mut commands = vec![script()];
            if full() {
                commands.push(grep());
                commands.push(program("processes", Link::Dynamic, &["ways"]));
            }
            for argv in commands {
                let case = format!("{} {errno}", facility.name);
                let compared = compare(&fixture, &fault, &argv).and_then(|stats| {
                    let said = lost(&stats);
                    eprintln!("{case}: {said}");
                    match facility.needed && said.is_empty() {
                        true => Err(format!("the loss is not reported: {stats:#}")),
                        false => Ok(()),
                    }
                });
                failures.note(&case, compared);
            }
        }
    }
    failures.none();
}
