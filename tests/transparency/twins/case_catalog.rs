//! Catalogue of the programs, their cases, and the ways of linking them.

use std::fmt;
use std::path::{Path, PathBuf};

use runahead_tests::installed;

use super::observed_run::Form;

/// Way of building a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Build {
    /// glibc, shared libraries.
    Dynamic,
    /// glibc, one file at a fixed address.
    Static,
    /// glibc, one file that is loaded anywhere.
    StaticPie,
    /// musl, one file.
    Musl,
    /// No library.
    Freestanding,
    /// C++, against shared libraries.
    Cxx,
    /// glibc and a garbage collector (libgc), shared libraries.
    Collected,
}

use Build::{Collected, Cxx, Dynamic, Freestanding, Musl, Static, StaticPie};

const GNU: &[Build] = &[Dynamic, Static, StaticPie];
const ANY: &[Build] = &[Dynamic, Static, StaticPie, Musl];
const BARE: &[Build] = &[Freestanding];

/// A case that differs, and will: for a reason that lies in how runahead works.
#[derive(Debug)]
pub struct Known {
    /// Name as `program.case`.
    pub case: &'static str,
    /// Differences of the case as the command, as [`super::observed_run::Seen::places`] names
    /// them.
    pub direct: &'static [&'static str],
    /// Differences of the case under a shell.
    pub under_a_shell: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

/// Known differences. Each must remain exactly so: a case that no longer differs, or differs more,
/// fails. The table in `docs/guide/compatibility.md` has the same names.
pub const KNOWN: &[Known] = &[Known {
    case: "waits.what_children_used",
    direct: &["output 0 2"],
    under_a_shell: &["output 0 2"],
    reason: "a shadow is forked by way of a helper that lives for some 50 us and is a child of \
                 the process until it is collected; the kernel adds what it used (some page \
                 faults, and as its peak of memory ours) to what children used",
}];

/// Cases that differ now and then; `docs/guide/compatibility.md` has the reasons. Such a case
/// fails when it differs three times in a row.
const UNSETTLED: &[&str] = &["sigsys.waited_for_by_a_thread"];

/// Attempts of a case before it fails.
pub fn looks(case: &Case) -> usize {
    if UNSETTLED.contains(&case.to_string().as_str()) { 3 } else { 1 }
}

/// Cases that differ in a session whose programs may speculate (`docs/guide/compatibility.md`).
const DIFFER_WHERE_PROGRAMS_MAY_SPECULATE: &[&str] = &["tracer.threads_of_an_attached_child"];

/// True if the case is the same in a session whose programs may speculate, and do not.
pub fn is_same_where_programs_may_speculate(case: &Case) -> bool {
    !DIFFER_WHERE_PROGRAMS_MAY_SPECULATE.contains(&case.to_string().as_str())
}

/// Reason of several cases that observe memory.
const KEPT_MEMORY: &str = "memory that was given up stays until the prediction is committed";

/// Cases without planted predictions: they observe what is not hidden
/// (`docs/guide/speculation.md`).
pub const DO_NOT_SPECULATE: &[(&str, &str)] = &[
    (
        "unwinding.traces_from_handlers",
        "it takes a thread that waits for an outcome for one that waits in its call",
    ),
    (
        "changing_names.unmapped_while_an_open_waits",
        "the call is made again, as after any handler, and its name has gone",
    ),
    (
        "changing_names.protected_while_an_open_waits",
        "the call is made again, as after any handler, and its name has gone",
    ),
    (
        "changing_names.without_an_end_while_an_open_waits",
        "the call is made again, as after any handler, and its name has gone",
    ),
    ("sigsys.waited_for_by_a_thread", "our signal is taken for the program's"),
    ("tracer.attached_while_it_reads", "the tracer sees our signals, and keeps them from us"),
    ("tracer.calls_of_an_attached_child", "the tracer sees calls that are made again"),
    ("tracer.children_of_an_attached_child", "the tracer sees our signals"),
    ("tracer.threads_of_an_attached_child", "the tracer sees our signals"),
    ("tracer.attached_while_it_sleeps", "the tracer sees our signals"),
    (
        "addresses.all_that_is_free_is_taken_piece_by_piece",
        "the mirror is where it has just seen nothing",
    ),
    ("read_results.bad_in_the_middle", KEPT_MEMORY),
    ("paths.names_at_the_end_of_memory", KEPT_MEMORY),
    ("memory.protections", KEPT_MEMORY),
    ("addresses.asked_for_again", KEPT_MEMORY),
    (
        "addresses.moved_to_what_was_free",
        "kept memory: later mappings lie elsewhere, one of them where it is about to move another",
    ),
    ("image.open_descriptors", "a descriptor that was closed is kept until that is committed"),
    (
        "image.status_of_the_process",
        "a descriptor that was closed is kept until that is committed; and signals are held",
    ),
    ("answered_opens.opens_that_are_allowed", "the answer for which an open waits is held"),
    (
        "timers.interrupted_beside_busy_threads",
        "its threads do nothing but make calls, after each of which the others may be stopped: it takes minutes",
    ),
];

/// True if predictions may be planted in the case.
pub fn may_speculate(case: &Case) -> bool {
    let name = case.to_string();
    DO_NOT_SPECULATE.iter().all(|(other, _)| *other != name)
}

/// Cases that need what not every processor has.
const KEYS: &str = "pkeys";

const SOURCES: &[(&str, &[Build])] = &[
    ("forks", ANY),
    ("vforks", ANY),
    ("clones", ANY),
    ("clone3", ANY),
    ("spawn", ANY),
    ("waits", ANY),
    ("statuses", ANY),
    ("child_signals", ANY),
    ("execs", ANY),
    ("exec_threads", ANY),
    ("execveat", ANY),
    ("locks", ANY),
    ("answered_opens", GNU),
    ("image", GNU),
    ("daemons", ANY),
    ("threads", GNU),
    ("thread_ends", GNU),
    ("raw_threads", ANY),
    ("changed_rules", GNU),
    ("handlers", ANY),
    ("altstack", ANY),
    ("frames", GNU),
    ("unwinding", &[Dynamic]),
    ("exceptions", &[Cxx]),
    ("collected_memory", &[Collected]),
    ("masks", ANY),
    ("sigsys", GNU),
    ("timers", ANY),
    ("stacks", GNU),
    ("memory", ANY),
    ("addresses", ANY),
    (KEYS, GNU),
    ("memory_barriers", ANY),
    ("limits", ANY),
    ("failed_writes", GNU),
    ("read_results", GNU),
    ("shared_offsets", GNU),
    ("counted_memory", GNU),
    ("paths", ANY),
    ("changing_names", ANY),
    ("files", ANY),
    ("pipes", ANY),
    ("jobs", ANY),
    ("tracer", GNU),
    ("odd_calls", GNU),
    ("no_library", BARE),
];

impl Build {
    /// The compiler, and what it is told.
    pub fn compiler(self) -> (&'static str, &'static [&'static str]) {
        // musl brings no kernel headers; the system's own are looked at last.
        const MUSL: &[&str] = &[
            "-static",
            "-idirafter",
            "/usr/include",
            "-idirafter",
            "/usr/include/x86_64-linux-gnu",
        ];
        match self {
            Dynamic | Collected => ("gcc", &[]),
            Cxx => ("g++", &[]),
            Static => ("gcc", &["-static"]),
            StaticPie => ("gcc", &["-static-pie"]),
            Musl => ("musl-gcc", MUSL),
            Freestanding => (
                "gcc",
                &[
                    "-static",
                    "-nostdlib",
                    "-ffreestanding",
                    "-fno-stack-protector",
                    "-fcf-protection=none",
                ],
            ),
        }
    }

    /// Libraries to link with.
    pub fn libraries(self) -> &'static [&'static str] {
        if self == Collected { &["-lgc"] } else { &[] }
    }

    /// Missing tool for this build.
    fn missing(self) -> Option<&'static str> {
        match self {
            Cxx if installed("g++").is_err() => Some("g++ is not installed"),
            Collected if !Path::new("/usr/include/gc.h").exists() => {
                Some("the collector is not installed (libgc-dev)")
            }
            _ => None,
        }
    }
}

/// A case of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    source: usize,
    name: String,
}

impl Case {
    /// The program's name.
    pub fn source(&self) -> &'static str {
        SOURCES[self.source].0
    }

    /// The program's place in the list of all.
    pub fn source_number(&self) -> usize {
        self.source
    }

    /// The argument that selects it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The ways in which it can be built here.
    pub fn builds(&self) -> impl Iterator<Item = Build> + use<> {
        SOURCES[self.source].1.iter().copied()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.source(), self.name)
    }
}

impl Known {
    /// Known differences in this form.
    pub fn places(&self, form: Form) -> &'static [&'static str] {
        match form {
            Form::Direct => self.direct,
            Form::ChildOfAShell => self.under_a_shell,
        }
    }
}

/// The cases that can be run, and why others cannot.
pub fn cases_here() -> (Vec<Case>, Vec<String>) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_keys = cpu.split_whitespace().any(|flag| flag == "ospke");
    let missing = |(name, builds): &(&str, &[Build])| match *name {
        KEYS if !has_keys => Some("the processor has no protection keys; see scripts/keys-in-a-vm"),
        _ => builds.iter().find_map(|build| build.missing()),
    };
    let mut cases = cases();
    cases.retain(|case| missing(&SOURCES[case.source]).is_none());
    let reasons = SOURCES.iter().filter_map(|entry| Some((entry.0, missing(entry)?)));
    (cases, reasons.map(|(name, why)| format!("{name}.*: {why}")).collect())
}

/// Known differences of this case.
pub fn known(case: &Case) -> Option<&'static Known> {
    let name = case.to_string();
    KNOWN.iter().find(|known| known.case == name)
}

/// Folder of the sources.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/twins")
}

/// The names of all programs.
pub fn sources() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// The source of a program.
pub fn source_path(name: &str) -> PathBuf {
    let is_cxx = SOURCES.iter().any(|(known, builds)| *known == name && builds.contains(&Cxx));
    directory().join(format!("{name}.{}", if is_cxx { "cpp" } else { "c" }))
}

/// Cases of all programs: the lines `CASE(name)` in their sources.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (source, name) in sources().enumerate() {
        let path = source_path(name);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{} cannot be read: {e}", path.display()));
        let names = text.lines().filter_map(|line| line.strip_prefix("CASE(")?.strip_suffix(')'));
        cases.extend(names.map(|name| Case { source, name: name.to_owned() }));
    }
    cases
}

/// The case called `name`, as `program.case`.
pub fn case(name: &str) -> Case {
    let found = cases().into_iter().find(|case| case.to_string() == name);
    found.unwrap_or_else(|| panic!("no case {name}"))
}
