//! A sample of the suites that no one here wrote. All of them: `make test-full`.

use std::process::Command;

use runahead_tests::{Seed, available, installed, root};

/// Takes a minute or two, once the suites are prepared.
const UNITS: &str = "48";

fn possible() -> Result<(), String> {
    root()?;
    for program in ["unshare", "setpriv", "ip", "make", "cc", "apt-get"] {
        installed(program)?;
    }
    runahead_testbed::Disk::probe().map_err(|missing| missing.to_string())
}

#[test]
fn a_sample_of_other_projects_tests_passes_and_fails_as_without() {
    let Some(()) = available(possible()) else { return };
    let seed = Seed::new().below(u64::MAX);
    let output = Command::new(env!("CARGO_BIN_EXE_runahead-suites"))
        .args(["run", "--sample", UNITS, "--seed", &seed.to_string()])
        .env("RUNAHEAD_BIN", runahead_tests::runahead())
        .output()
        .expect("the harness can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    if output.status.code() == Some(4) {
        // Nothing about runahead: the machine is not connected, or Debian's archive is down.
        let reason = said.lines().last().unwrap_or_default().to_owned();
        available::<()>(Err(reason));
        return;
    }
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains(": same ("), "nothing was compared: {said}");
}
