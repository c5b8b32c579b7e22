//! A command with something taken away, run natively and under runahead, and compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runahead_tests::{Fixture, Link, Outcome, Run, programs, runahead, scratch, tree};
use serde_json::Value;

/// The one line that runahead writes when a command runs natively.
const NATIVELY: &str = "runahead: running natively: ";

/// Restrictions: options of `confine`.
#[derive(Debug, Clone, Default)]
pub struct Fault(pub Vec<String>);

impl Fault {
    /// `options`, separated by spaces.
    pub fn new(options: &str) -> Self {
        Fault(options.split_whitespace().map(str::to_owned).collect())
    }

    /// `argv` behind it, in the slow tree.
    pub fn run(&self, fixture: &Fixture, argv: &[String]) -> Run {
        let head = [env!("CARGO_BIN_EXE_confine").to_owned()];
        let all = head.into_iter().chain(self.0.iter().cloned()).chain(["--".to_owned()]);
        let run = Run::new(all.chain(argv.iter().cloned())).dir(fixture.dir());
        run.env("W", fixture.work())
    }
}

/// A run and what it left.
#[derive(Debug)]
pub struct Seen {
    pub outcome: Outcome,
    pub files: BTreeMap<PathBuf, String>,
}

/// Describes how a run differs; `None` if it does not.
pub fn difference(plain: &Seen, ahead: &Seen) -> Option<String> {
    let complaints = without_warning(&ahead.outcome.complaints());
    let what = if plain.outcome.end != ahead.outcome.end {
        "ends differently"
    } else if plain.outcome.stdout != ahead.outcome.stdout {
        "output differs"
    } else if complaints != plain.outcome.complaints() {
        "complaints differ"
    } else if plain.files != ahead.files {
        "files differ"
    } else {
        return None;
    };
    Some(format!("{what}\nwithout: {:?}\n\nwith: {:?}", plain.outcome, ahead.outcome))
}

/// Complaints of the program without runahead's own lines. The first line may say why it runs
/// natively. The last may say that statistics cannot be written, which only those see who ask for
/// statistics.
fn without_warning(complaints: &str) -> String {
    let rest = match complaints.split_once('\n') {
        Some((first, rest)) if first.starts_with(NATIVELY) => rest,
        _ => complaints,
    };
    match rest.trim_end().rfind("runahead: cannot write statistics to ") {
        Some(last) if rest[last..].trim_end().lines().count() == 1 => rest[..last].to_owned(),
        _ => rest.to_owned(),
    }
}

/// Runs `run` from cold caches. Users other than root write to the work directory, too.
pub fn once(fixture: &Fixture, run: &Run) -> Seen {
    fixture.reset();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(fixture.work(), all).expect("the work directory is ours");
    let outcome = run.run();
    Seen { outcome, files: tree::snapshot(fixture.work()) }
}

/// Path for statistics that any user may write.
pub fn report() -> PathBuf {
    let path = scratch().join("report");
    std::fs::write(&path, "").expect("the scratch directory is ours");
    for (path, mode) in [(scratch(), 0o755), (&*path, 0o666)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    }
    path
}

/// `argv` behind `runahead run --stats`.
pub fn ahead(report: &Path, argv: &[String]) -> Vec<String> {
    let option = format!("--stats=json:{}", report.display());
    let head = [plain(runahead()), "run".into(), "--no-learn".into(), option, "--".into()];
    head.into_iter().chain(argv.iter().cloned()).collect()
}

/// Runs `argv` both ways with `fault`; the statistics of the second run, or what differs.
pub fn compare(fixture: &Fixture, fault: &Fault, argv: &[String]) -> Result<Value, String> {
    let natively = once(fixture, &fault.run(fixture, argv));
    let report = report();
    let run = fault.run(fixture, &ahead(&report, argv));
    let seen = once(fixture, &run);
    match difference(&natively, &seen) {
        None => Ok(read(&report)),
        Some(difference) => Err(format!("{run}\n{difference}")),
    }
}

/// Failures of many cases, shown together.
#[derive(Default)]
pub struct Failures(Vec<String>);

impl Failures {
    /// Keeps what is wrong with one.
    pub fn note<T>(&mut self, case: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|wrong| self.0.push(format!("=== {case}: {wrong}\n"))).ok()
    }

    /// Demands that there were none.
    pub fn none(self) {
        assert!(self.0.is_empty(), "{} cases failed:\n{}", self.0.len(), self.0.concat());
    }
}

/// The statistics in `report`.
pub fn read(report: &Path) -> Value {
    let json = std::fs::read(report).unwrap_or_default();
    serde_json::from_slice(&json).unwrap_or_default()
}

/// Losses that the statistics list; empty if there are none.
pub fn lost(stats: &Value) -> String {
    let native = stats["native"].as_str().unwrap_or_default();
    let lost = stats["lost"].as_object().into_iter().flatten();
    let lost: Vec<_> = lost.map(|(what, times)| format!("{what} ({times})")).collect();
    format!("{native}{}", lost.join("; "))
}

/// A path without oddities.
pub fn plain(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|&w| w.to_owned()).collect()
}

/// `grep -r` over the slow tree.
pub fn grep() -> Vec<String> {
    argv(&["grep", "-rc", "needle", "src"])
}

/// A shell that starts programs, and writes.
pub fn script() -> Vec<String> {
    let text = "for d in 0 1 3; do grep -l needle src/d$d/*.c | head -3; done; \
                cat many/0* | cksum > $W/sum; cp many/1* $W; (exit 7); echo status $?; \
                ls odd | wc -l; exit 3";
    argv(&["sh", "-c", text])
}

/// Program `name` of `programs/`.
pub fn program(name: &str, link: Link, args: &[&str]) -> Vec<String> {
    let path = plain(&programs::program(name, link));
    std::iter::once(path).chain(args.iter().map(|&a| a.to_owned())).collect()
}
