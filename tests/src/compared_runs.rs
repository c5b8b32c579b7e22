//! The comparison itself.

use serde_json::Value;

use crate::{Fixture, Outcome, Run, programs, tree};

/// A command to be run with and without runahead, each time from cold caches.
pub struct Case<'a> {
    fixture: &'a Fixture,
    run: Run,
    shadow: bool,
    speculates: bool,
}

/// Results of the two runs; they were equal.
#[derive(Debug)]
pub struct Pair {
    /// Outcome of the command, which is the same either way.
    pub outcome: Outcome,
    /// The statistics of the second run.
    pub stats: Value,
}

impl<'a> Case<'a> {
    /// Makes a case of any command.
    pub fn new(fixture: &'a Fixture, run: Run) -> Self {
        Case { fixture, run, shadow: false, speculates: false }
    }

    /// Gives the command input, through a pipe.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.run = self.run.stdin(bytes);
        self
    }

    /// Sets a variable of the command's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.run = self.run.env(name, value);
        self
    }

    /// Demands that a shadow ran: without one this test would show nothing.
    pub fn with_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Lets the command speculate, in its second run.
    pub fn speculating(mut self) -> Self {
        self.speculates = true;
        self
    }

    /// Runs the command both ways and demands the same output, end and files.
    pub fn compare(self) -> Pair {
        let report = crate::scratch().join("stats.json");
        let option = format!("--stats=json:{}", report.display());
        let options = ["--require", &option, "--speculate"];
        let ahead = self.run.ahead(&options[..if self.speculates { 3 } else { 2 }]);
        let (plain, plain_files) = self.once(&self.run);
        let _ = std::fs::remove_file(&report);
        let (outcome, files) = self.once(&ahead);
        let differ = |what: &str| {
            let first = first_difference(&plain, &outcome);
            format!(
                "{what} with and without\n  {}\n{first}\nwithout: {plain:?}\n\nwith: {outcome:?}",
                self.run
            )
        };
        assert!(outcome.end == plain.end, "{}", differ("ends differently"));
        assert!(outcome.stdout == plain.stdout, "{}", differ("output differs"));
        assert!(outcome.stderr == plain.stderr, "{}", differ("complaints differ"));
        assert!(files == plain_files, "{}\n{plain_files:?}\n{files:?}", differ("files differ"));
        let stats: Value = std::fs::read(&report)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .unwrap_or_default();
        if self.shadow {
            let syncs = stats["syncs"]["count"].as_u64();
            assert!(syncs > Some(0), "no shadow ran in {}: {stats:#}", self.run);
        }
        Pair { outcome, stats }
    }

    fn once(&self, run: &Run) -> (Outcome, std::collections::BTreeMap<std::path::PathBuf, String>) {
        let outcome = self.fixture.cold(run);
        (outcome, tree::snapshot(self.fixture.work()))
    }
}

impl Fixture {
    /// A command to be run in the slow tree both ways.
    pub fn case(&self, argv: &[&str]) -> Case<'_> {
        Case::new(self, self.run(argv))
    }

    /// A shell script to be run in the slow tree both ways.
    pub fn script(&self, script: &str) -> Case<'_> {
        self.case(&["sh", "-c", script])
    }

    /// A C program to be run in the slow tree both ways, once linked dynamically and once
    /// statically. Each pair must be equal; the dynamic one is returned.
    pub fn program(&self, name: &str, args: &[&str]) -> Pair {
        self.program_with(name, args, |case| case)
    }

    /// Runs a program as [`Fixture::program`] does, the case being changed first.
    pub fn program_with<'a>(
        &'a self,
        name: &str,
        args: &[&str],
        change: impl Fn(Case<'a>) -> Case<'a>,
    ) -> Pair {
        let [dynamic, _] = programs::BOTH
            .map(|link| change(Case::new(self, self.run_program(name, link, args))).compare());
        dynamic
    }
}

/// The first line of output that differs, for the reader of a failure.
fn first_difference(plain: &Outcome, ahead: &Outcome) -> String {
    let (without, with) = (plain.text(), ahead.text());
    let lines = without.lines().map(Some).chain(std::iter::repeat(None));
    let others = with.lines().map(Some).chain(std::iter::repeat(None));
    match lines.zip(others).take_while(|pair| *pair != (None, None)).find(|(a, b)| a != b) {
        Some((a, b)) => format!("first difference:\n  without: {a:?}\n  with:    {b:?}\n"),
        None => String::new(),
    }
}
