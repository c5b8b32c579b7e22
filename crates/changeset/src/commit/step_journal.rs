//! Journal of a commit: its steps as JSON, one per line, an empty line, then a line for each thing
//! that was done.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::commit_steps::{JournalPath, Step};
use super::entry_state::EntryState;
use crate::chosen_paths::ChosenPaths;
use crate::entry_metadata::KeptMetadata;
use crate::{Error, Result, io_error};

/// Name of the journal in the directory of a try.
pub(super) const JOURNAL: &str = "journal";

/// Bytes of a step's notes. As many are reserved, so that a full disk does not keep a commit from
/// being taken back.
const NOTES: u64 = 512;

/// First line: what does not belong to one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Preamble {
    /// Modification times of the directories whose entries are changed, before the commit.
    pub(super) times: Vec<(JournalPath, (i64, i64))>,
    /// True if steps are not taken back: the try is inside another.
    pub(super) is_nested: bool,
    /// Modification times of the directories of the upper tree whose entries the commit takes.
    /// Those of a rest that stays in the try get them again.
    #[serde(default)]
    pub(super) upper_times: Vec<(JournalPath, (i64, i64))>,
    /// Paths that were chosen, if others stay in the try.
    #[serde(default)]
    pub(super) chosen: Option<Chosen>,
}

/// Choice of some changes of a try.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Chosen {
    /// Paths at and below which all changes are chosen.
    pub(super) roots: Vec<JournalPath>,
    /// True if they are undone: there are no steps then.
    pub(super) is_undo: bool,
    /// Copies of the index that leave the try, by their paths in its directory.
    pub(super) copies: Vec<JournalPath>,
    /// Directories that the try has listed, and the hashes of their names after the commit.
    pub(super) listings: Vec<(JournalPath, u64)>,
}

impl Chosen {
    /// The paths.
    pub(super) fn paths(&self) -> ChosenPaths {
        ChosenPaths::of(self.roots.iter().map(JournalPath::path))
    }
}

/// Things that a step keeps of what it changes in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Kept {
    /// A copy of the file, in the directory of the try.
    Copy,
    /// Owner, permissions, attributes and modification time.
    Metadata(KeptMetadata),
    /// The modification time.
    Time((i64, i64)),
    /// A step that needs nothing to be taken back.
    Nothing,
}

/// Line behind the steps.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    /// The end of all copies for other file systems.
    Staged,
    /// The end of the copies: all steps are taken back, and the copies are about to be removed.
    Unstaged,
    /// An entry of the step lies beside its name, or is about to.
    Beside(usize),
    Started(usize, Kept),
    /// The step is done, and the name leads to this.
    Done(usize, Option<EntryState>),
    /// The step is about to be taken back.
    Undoing(usize),
    /// The step is taken back. A file that it had written into, and that got its contents again, is
    /// this now.
    TakenBack(usize, Option<EntryState>),
    /// The end of all steps. None is taken back any more.
    Final,
}

/// State of one step.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// True if it keeps an entry beside its name.
    pub(super) is_beside: bool,
    pub(super) kept: Option<Kept>,
    /// True if it is done and not taken back.
    pub(super) is_done: bool,
    /// State of its entry then.
    pub(super) after: Option<EntryState>,
    /// State of its file after its contents were written back. The modification time of another
    /// user's file cannot be set back.
    restored: Option<EntryState>,
}

/// Steps of a commit, and what has become of them.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    notes: File,
    pub(super) preamble: Preamble,
    pub(super) steps: Vec<Step>,
    progress: BTreeMap<usize, Progress>,
    pub(super) is_staged: bool,
    pub(super) is_final: bool,
}

static NO_PROGRESS: Progress =
    Progress { is_beside: false, kept: None, is_done: false, after: None, restored: None };

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(of).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Reserves blocks for the first bytes of a file, where its file system can.
pub(super) fn reserve_room(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

impl Journal {
    /// Writes the journal of a commit that is about to start.
    pub(super) fn create(directory: &Path, preamble: Preamble, steps: Vec<Step>) -> Result<Self> {
        let path = directory.join(JOURNAL);
        let new = path.with_extension("new");
        let mut text = line(&preamble);
        steps.iter().for_each(|step| text.extend(line(step)));
        text.push(b'\n');
        let room = text.len() as u64 + steps.len() as u64 * NOTES + NOTES;
        let written = File::create(&new).and_then(|mut file| {
            reserve_room(&file, room)?;
            file.write_all(&text)?;
            fs::rename(&new, &path)
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(io_error("write", &path)(error));
        }
        Journal::open(directory)
    }

    /// Reads the journal of a commit that was interrupted.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(JOURNAL);
        let text = fs::read(&path).map_err(io_error("read", &path))?;
        let broken =
            |e: serde_json::Error| Error::Broken { path: path.clone(), why: e.to_string() };
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let preamble = serde_json::from_slice(first).map_err(broken)?;
        let mut steps = Vec::new();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            steps.push(serde_json::from_slice(line).map_err(broken)?);
        }
        let notes = File::options().append(true).open(&path).map_err(io_error("write", &path))?;
        let mut journal = Journal {
            notes,
            preamble,
            steps,
            progress: BTreeMap::new(),
            is_staged: false,
            is_final: false,
            path: path.clone(),
        };
        // A line that was cut off is of something that was not done after it.
        for note in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
            journal.apply(note);
        }
        Ok(journal)
    }

    fn apply(&mut self, note: Note) {
        match note {
            Note::Staged => self.is_staged = true,
            Note::Unstaged => self.is_staged = false,
            Note::Final => self.is_final = true,
            Note::Beside(step) => self.progress.entry(step).or_default().is_beside = true,
            Note::Started(step, kept) => {
                self.progress.entry(step).or_default().kept = Some(kept);
            }
            Note::Done(step, after) => {
                let progress = self.progress.entry(step).or_default();
                (progress.is_done, progress.after) = (true, after);
            }
            Note::Undoing(step) => self.progress.entry(step).or_default().is_done = false,
            Note::TakenBack(step, restored) => {
                let progress = self.progress.entry(step).or_default();
                (progress.is_done, progress.kept, progress.after) = (false, None, None);
                progress.restored = restored.or(progress.restored);
            }
        }
    }

    fn note(&mut self, note: Note) -> Result<()> {
        // A line that was cut off by a full file system is ended first.
        let text = [b"\n", &line(&note)[..]].concat();
        self.notes.write_all(&text).map_err(io_error("write", &self.path))?;
        self.apply(note);
        Ok(())
    }

    pub(super) fn note_staged(&mut self) -> Result<()> {
        self.note(Note::Staged)
    }

    pub(super) fn note_beside(&mut self, step: usize) -> Result<()> {
        self.note(Note::Beside(step))
    }

    pub(super) fn note_started(&mut self, step: usize, kept: Kept) -> Result<()> {
        self.note(Note::Started(step, kept))
    }

    pub(super) fn note_done(&mut self, step: usize, after: Option<EntryState>) -> Result<()> {
        self.note(Note::Done(step, after))
    }

    /// Notes that the copies are about to be removed, so that a resumed commit makes them again.
    pub(super) fn note_unstaged(&mut self) -> Result<()> {
        self.note(Note::Unstaged)
    }

    /// Notes that a step is about to be taken back, so that a resumed commit executes it again.
    pub(super) fn note_undoing(&mut self, step: usize) -> Result<()> {
        self.note(Note::Undoing(step))
    }

    /// Notes that a step was taken back. That the note has no room changes nothing: to take it back
    /// again does nothing.
    pub(super) fn note_taken_back(&mut self, step: usize, restored: Option<EntryState>) {
        let _ = self.note(Note::TakenBack(step, restored));
    }

    pub(super) fn note_final(&mut self) -> Result<()> {
        self.note(Note::Final)
    }

    /// State of a step.
    pub(super) fn progress(&self, step: usize) -> &Progress {
        self.progress.get(&step).unwrap_or(&NO_PROGRESS)
    }

    /// States of the files whose contents were written back, by device and inode number.
    pub(super) fn restored(&self) -> BTreeMap<(u64, u64), EntryState> {
        let all = self.progress.values().filter_map(|progress| progress.restored);
        all.map(|state| (state.file, state)).collect()
    }

    /// Time of the latest note: seconds and nanoseconds.
    pub(super) fn last_noted(&self) -> io::Result<(i64, i64)> {
        let found = self.notes.metadata()?;
        Ok((found.mtime(), found.mtime_nsec()))
    }

    /// Number of steps that are done.
    pub(super) fn done(&self) -> usize {
        self.progress.values().filter(|progress| progress.is_done).count()
    }

    /// Removes the journal: nothing is left to resume or to take back.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(io_error("remove", &self.path))
    }
}
