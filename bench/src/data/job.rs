//! A command that a row runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command, and everything that has to be arranged for it.
#[derive(Debug, Clone)]
pub struct Job {
    /// A path, or a name that is found in PATH.
    pub program: PathBuf,
    /// Debian's package of the program.
    pub package: &'static str,
    pub args: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Words in front of everything, runahead included, that execute what follows them.
    pub around: Vec<OsString>,
    /// The user that those words change to, if they change it.
    pub owner: Option<u32>,
    /// Limit on its memory in bytes, runahead included.
    pub memory: Option<u64>,
    /// Bytes of a swap file in its working directory.
    pub swap: Option<u64>,
    /// Options of `runahead run`: a fault to plant, or a mechanism to leave out.
    pub options: Vec<OsString>,
    /// Standard input; `/dev/null` if none.
    pub input: Option<PathBuf>,
    /// Text in the output of a run that did its work, for a program whose exit status does not
    /// tell.
    pub says: Option<&'static str>,
    /// Environment variables besides those of [`set_environment`].
    pub env: Vec<(&'static str, OsString)>,
    /// A file that it writes besides its output, compared like its output.
    pub artefact: Option<PathBuf>,
    /// A directory that is made anew before each run and removed after it.
    pub fresh: Option<Fresh>,
    pub manner: CommandEnd,
    pub gauge: FigureSource,
    /// True if the lines of its output come in any order (`make -j2`): they are compared sorted.
    pub unordered: bool,
    /// True if it touches little of what it maps: of a mapping, the oracle reads what is in memory
    /// after a run.
    pub touches: bool,
    /// Place of runahead and its files for a command that runs below another root directory.
    pub inside: Option<ChangedRoot>,
}

/// A directory that a command sees under another name, because its root directory is another one.
#[derive(Debug, Clone)]
pub struct ChangedRoot {
    /// Its name outside.
    pub outside: PathBuf,
    /// Its name inside.
    pub inside: PathBuf,
    /// Directory in it with what runahead has learned of this command.
    pub state: PathBuf,
}

/// A directory for one run.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// Its content at the start; empty if none.
    pub from: Option<PathBuf>,
    pub dir: PathBuf,
}

/// End of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It ends by itself.
    Itself,
    /// It is redis: it serves `requests` of each kind, sent `pipeline` at a time, and is then told
    /// to end.
    Serving { requests: u64, pipeline: u32 },
    /// It announces that it sleeps, is examined, and is then told to end.
    Sleeping,
}

/// Source of a run's figure.
#[derive(Debug, Clone, PartialEq)]
pub enum FigureSource {
    /// Elapsed time counts.
    None,
    /// Elapsed time divided by this number, in microseconds.
    MicrosecondsEach(u32),
    /// A file that the program writes.
    Told(PathBuf),
}

/// The places where a command works.
#[derive(Debug, Clone, Copy)]
pub struct JobPlaces<'a> {
    /// Root of the storage.
    pub root: &'a Path,
    /// The row's own data on it; the root if the row has none.
    pub dir: &'a Path,
    /// Directory in memory, for what is written.
    pub out: &'a Path,
    /// True for as little work as shows that the row works.
    pub quick: bool,
}

impl JobPlaces<'_> {
    /// Returns `full`, or `little` of a quick run.
    pub fn size<T>(&self, full: T, little: T) -> T {
        if self.quick { little } else { full }
    }
}

impl Job {
    /// A command without anything special.
    pub fn new(program: impl Into<PathBuf>, package: &'static str, cwd: &Path) -> Self {
        Self {
            program: program.into(),
            package,
            args: Vec::new(),
            cwd: cwd.to_owned(),
            around: Vec::new(),
            owner: None,
            memory: None,
            swap: None,
            options: Vec::new(),
            input: None,
            says: None,
            env: Vec::new(),
            artefact: None,
            fresh: None,
            manner: CommandEnd::Itself,
            gauge: FigureSource::None,
            unordered: false,
            touches: false,
            inside: None,
        }
    }

    /// Adds arguments after those that it has.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// File name of the program.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The command line: [`Job::around`], then `prefix`, then the command itself.
    pub fn command(&self, prefix: &[OsString]) -> Command {
        let program = self.program.clone().into();
        let front = self.around.iter().chain(prefix).cloned();
        let mut words = front.chain([program]).chain(self.args.clone());
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(&self.cwd);
        set_environment(&mut command);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Gives a command the same few variables on every machine: no locale, git configuration or cache
/// of compilations.
pub fn set_environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("LC_ALL", "C")
        .env("CCACHE_DISABLE", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
}
