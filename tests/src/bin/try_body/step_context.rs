//! State that the steps of a body share.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::random_names::Random;

/// Result of a step: text to print, or the error of its first call that failed.
pub type Result = std::result::Result<String, Errno>;

/// Kind of a step.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub run: fn(&mut Context) -> Result,
}

/// Number of descriptors that a body keeps open.
const HELD: usize = 4;

/// State that the steps of a body share.
pub struct Context {
    pub random: Random,
    /// Arguments of the present step, as it printed them.
    pub said: String,
    /// Descriptors of files, open for reading and writing, with the path that each was opened by.
    pub files: Vec<OwnedFd>,
    /// Descriptors of directories.
    pub directories: Vec<OwnedFd>,
    work: String,
    other: String,
}

impl Context {
    pub fn new(other: &str) -> Self {
        let work = std::env::current_dir().expect("there is a working directory");
        let work = work.to_str().expect("a plain path").to_owned();
        let other = other.to_owned();
        let (random, said) = (Random::new(0), String::new());
        Context { random, said, files: Vec::new(), directories: Vec::new(), work, other }
    }

    /// Adds an argument of the step to what is printed.
    pub fn say(&mut self, argument: impl std::fmt::Display) {
        self.said.push_str(&format!("{argument} "));
    }

    /// Random path, printed without the names of the test's own directories.
    pub fn path(&mut self) -> String {
        let path = self.random.path(&self.work, &self.other);
        self.say(path.replace(&self.work, "WORK").replace(&self.other, "OTHER"));
        path
    }

    pub fn number(&mut self, bound: u64) -> u64 {
        let number = self.random.below(bound);
        self.say(number);
        number
    }

    pub fn one_of<T: Copy + std::fmt::Debug>(&mut self, all: &[T]) -> T {
        let chosen = self.random.one_of(all);
        self.say(format_args!("{chosen:?}"));
        chosen
    }

    /// Keeps a descriptor open; the oldest is closed if there are too many.
    pub fn hold(held: &mut Vec<OwnedFd>, descriptor: OwnedFd) {
        held.push(descriptor);
        if held.len() > HELD {
            held.remove(0);
        }
    }

    /// Closes all directories before one is renamed or removed: a try does not follow directories
    /// of the lower tree to which that happens while they are open (docs/guide/try.md).
    pub fn let_go_of_directories(&mut self) {
        self.directories.clear();
    }

    /// Random descriptor among those that are held.
    pub fn held<'a>(
        random: &mut Random,
        held: &'a [OwnedFd],
    ) -> std::result::Result<&'a OwnedFd, Errno> {
        match held.len() {
            0 => Err(Errno::BADF),
            count => Ok(&held[random.below(count as u64) as usize]),
        }
    }
}

/// Result of a call that returns nothing.
pub fn done(result: std::result::Result<(), Errno>) -> Result {
    result.map(|()| "done".into())
}

/// Opens a file. Named pipes are opened without waiting for the other end, and not for writing.
pub fn open(path: &str, flags: OFlags, mode: u32) -> std::result::Result<OwnedFd, Errno> {
    // A try refuses to write to pipes of the lower tree (docs/guide/try.md).
    if flags.intersects(OFlags::WRONLY | OFlags::RDWR)
        && let Ok(found) = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::empty())
        && rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo
    {
        return Err(Errno::NXIO);
    }
    rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}
