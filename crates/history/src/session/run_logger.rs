//! Logger of a session: appends what the session records to a log (`run_log.rs`), while the command
//! runs.
//!
//! A thread does so now and then, and examines the paths that have come since. So when the command
//! has ended, no more is left than what came in the last moment: one write, and a bounded number of
//! looks at paths. Nothing is written before a process has waited.
//!
//! Invariant: the thread waits for no storage but that of the log. Paths are examined only as far
//! as they are cached, which they are, since the command has just used them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::run_file::{HistoryError, TEMPORARY};
use crate::run_log::{LOG_MAX, LogBuffer};
use crate::{AccessKind, Keys, Origin, PathState, Recorder, Store};

use super::mutex_locking::lock;
use super::unchanged_files::SessionFilesystems;

/// Intervals between two batches: after one that had entries, and at most, when there are none.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// Most paths that are examined in one batch. When the command has ended, at most two batches are
/// waited for.
const EXAMINED_MAX: usize = 512;
/// Longest wait for the thread's batch when the command has ended.
const BATCH_TIMEOUT: Duration = Duration::from_millis(200);
const STACK_BYTES: usize = 128 * 1024;

/// Recording of a run.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) recorder: Recorder,
    /// Entries for the log, if there is one.
    log: Option<LogBuffer>,
    /// Number of paths, from the first on, that were taken to be examined.
    examined: u32,
    /// Paths that were not cached when they were examined: the access was about to be made.
    late: Vec<u32>,
}

impl Recording {
    /// Begins to log the run.
    pub(super) fn log(&mut self, keys: &Keys, origin: &Origin) {
        let mut log = LogBuffer::default();
        log.start(keys, origin);
        self.log = Some(log);
    }

    /// Adds an access.
    pub(super) fn add_access(&mut self, path: &[u8], key: u64, what: AccessKind) {
        let new = self.recorder.add_access(path, key, what);
        if let Some((log, path)) = self.log.as_mut().zip(new) {
            log.paths_of(&self.recorder);
            log.access(path, what);
        }
    }

    /// Adds a range that was mapped.
    pub(super) fn add_mapping(&mut self, path: &[u8], key: u64, offset: u64, length: u64) {
        let new = self.recorder.add_mapping(path, key, offset, length);
        if let Some((log, path)) = self.log.as_mut().zip(new) {
            log.paths_of(&self.recorder);
            log.mapping(path, offset, length);
        }
    }

    /// Adds a range that was used of a mapping.
    pub(super) fn add_touched(&mut self, path: &[u8], key: u64, offset: u64, length: u64) {
        let new = self.recorder.add_touched(path, key, offset, length);
        if let Some((log, path)) = self.log.as_mut().zip(new) {
            log.paths_of(&self.recorder);
            log.touched(path, offset, length);
        }
    }

    /// Adds the start of a program.
    pub(super) fn add_program(&mut self) {
        self.recorder.add_program();
        self.log.iter_mut().for_each(LogBuffer::program);
    }

    /// Takes out at most `max` paths that are to be examined.
    fn take_paths(&mut self, max: usize) -> Vec<(u32, Vec<u8>)> {
        let mut taken = Vec::new();
        let mut late = std::mem::take(&mut self.late).into_iter();
        while taken.len() < max {
            let (number, is_new) = match late.next() {
                Some(number) => (number, false),
                None => (self.examined, true),
            };
            let Some(place) = self.recorder.path(number) else { break };
            taken.push((number, place.path.clone()));
            self.examined += u32::from(is_new);
        }
        taken
    }

    /// Enters the state of a path that was examined. `is_last`: it is not examined again.
    fn add_state(&mut self, path: u32, state: PathState, is_last: bool) {
        match (state, &mut self.log) {
            (PathState::Unknown, _) if is_last => {}
            (PathState::Unknown, _) => self.late.push(path),
            (state, Some(log)) => log.state(path, state),
            (_, None) => {}
        }
    }
}

/// Log that is being written.
struct OpenLog {
    file: File,
    temporary: PathBuf,
    bytes: usize,
    /// True if a frame had no room: what comes later may be about its paths.
    is_full: bool,
}

#[derive(Default)]
struct LogFile {
    open: Option<OpenLog>,
    failure: Option<HistoryError>,
}

impl LogFile {
    fn append(&mut self, logger: &RunLogger, frame: &[u8], is_end: bool) {
        if self.failure.is_some() {
            return;
        }
        if let Err(error) = self.try_append(logger, frame, is_end) {
            self.failure = Some(error);
            self.discard();
        }
    }

    fn try_append(
        &mut self,
        logger: &RunLogger,
        frame: &[u8],
        is_end: bool,
    ) -> Result<(), HistoryError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(logger.create()?),
        };
        open.is_full |= open.bytes + frame.len() > LOG_MAX;
        if open.is_full && !is_end {
            return Ok(());
        }
        open.bytes += frame.len();
        open.file.write_all(frame).map_err(HistoryError::system("write", &open.temporary))
    }

    /// Gives the log its name.
    fn complete(&mut self, logger: &RunLogger) {
        let Some(OpenLog { temporary, .. }) = self.open.take() else { return };
        let path = logger.store.pending_log(&logger.keys);
        if let Err(error) = std::fs::rename(&temporary, &path) {
            let _ = std::fs::remove_file(&temporary);
            self.failure = Some(HistoryError::system("write", &path)(error));
        }
    }

    fn discard(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = std::fs::remove_file(open.temporary);
        }
    }
}

/// Logger of a session.
pub(super) struct RunLogger {
    store: Store,
    keys: Keys,
    recording: Arc<Mutex<Recording>>,
    places: Arc<SessionFilesystems>,
    /// The log; `None` while the thread writes to it.
    file: Mutex<Option<LogFile>>,
    file_is_back: Condvar,
    /// True when the command has ended.
    is_over: Mutex<bool>,
    over: Condvar,
}

impl RunLogger {
    /// Makes the logger of a run that is remembered under these keys.
    pub(super) fn new(
        (store, keys): (Store, Keys),
        recording: Arc<Mutex<Recording>>,
        places: Arc<SessionFilesystems>,
    ) -> Self {
        RunLogger {
            store,
            keys,
            recording,
            places,
            file: Mutex::new(Some(LogFile::default())),
            file_is_back: Condvar::new(),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        }
    }

    fn create(&self) -> Result<OpenLog, HistoryError> {
        self.store.prepare()?;
        let path = self.store.pending_log(&self.keys);
        let directory = self.store.pending_directory(&self.keys.program);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(HistoryError::system("make the directory", &directory))?;
        let temporary = path.with_extension(format!("{}{TEMPORARY}", std::process::id()));
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let file = made.map_err(HistoryError::system("write", &temporary))?;
        Ok(OpenLog { file, temporary, bytes: 0, is_full: false })
    }

    /// Waits for the next batch; false if the command has ended.
    fn wait(&self, interval: Duration) -> bool {
        let is_over = lock(&self.is_over);
        if *is_over {
            return false;
        }
        if interval == Duration::ZERO {
            return true;
        }
        let waited = self.over.wait_timeout(is_over, interval);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes the log out, once the thread's batch is done; `None` if that takes too long.
    fn take_file(&self) -> Option<LogFile> {
        let until = Instant::now() + BATCH_TIMEOUT;
        let mut file = lock(&self.file);
        loop {
            if let Some(file) = file.take() {
                return Some(file);
            }
            let rest = until.checked_duration_since(Instant::now())?;
            let waited = self.file_is_back.wait_timeout(file, rest);
            file = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn put_back(&self, file: LogFile) {
        *lock(&self.file) = Some(file);
        self.file_is_back.notify_all();
    }
}

/// Starts the thread. If that fails, everything is written when the command has ended.
pub(super) fn start(logger: Arc<RunLogger>) {
    let work = move || {
        let mut interval = INTERVALS.0;
        while logger.wait(interval) {
            interval = match logger.log_batch() {
                Batch::Full => Duration::ZERO,
                Batch::Some => INTERVALS.0,
                Batch::Empty => INTERVALS.1.min(INTERVALS.0.max(2 * interval)),
            };
        }
    };
    let thread = std::thread::Builder::new().name("log".into()).stack_size(STACK_BYTES);
    let _ = thread.spawn(work);
}

/// Size of a batch.
enum Batch {
    Empty,
    Some,
    /// There are more paths to examine.
    Full,
}

impl RunLogger {
    /// Appends what is new to the log.
    fn log_batch(&self) -> Batch {
        let Some(mut file) = lock(&self.file).take() else { return Batch::Empty };
        let paths = lock(&self.recording).take_paths(EXAMINED_MAX);
        let frame = self.examine(&paths, false);
        if let Some(frame) = &frame {
            file.append(self, frame, false);
        }
        self.put_back(file);
        match frame {
            _ if paths.len() == EXAMINED_MAX => Batch::Full,
            Some(_) => Batch::Some,
            None => Batch::Empty,
        }
    }

    /// Examines paths, and returns a frame with all new entries.
    fn examine(&self, paths: &[(u32, Vec<u8>)], is_last: bool) -> Option<Vec<u8>> {
        let states: Vec<_> = paths.iter().map(|(_, path)| self.places.examine(path)).collect();
        let mut log = {
            let mut recording = lock(&self.recording);
            for ((path, _), state) in paths.iter().zip(states) {
                recording.add_state(*path, state, is_last);
            }
            recording.log.as_mut()?.take()
        };
        log.take_frame()
    }

    /// Writes the rest of the log, when the command has ended and no process can report any more.
    /// It is dropped unless the run `is_kept`. Returns the reason that nothing is learned.
    pub(super) fn complete(&self, is_kept: bool, was_killed: bool) -> Option<HistoryError> {
        *lock(&self.is_over) = true;
        self.over.notify_all();
        let Some(mut file) = self.take_file() else {
            return Some(HistoryError::NoPlace("its file system did not answer in time"));
        };
        if !is_kept {
            file.discard();
            return None;
        }
        let paths = lock(&self.recording).take_paths(EXAMINED_MAX);
        if let Some(frame) = self.examine(&paths, true) {
            file.append(self, &frame, false);
        }
        let mut end = LogBuffer::default();
        end.end(was_killed);
        if let Some(frame) = end.take_frame() {
            file.append(self, &frame, true);
        }
        file.complete(self);
        file.failure
    }
}
