//! Log of a run: entries that a session appends to a file while its command runs, so that little is
//! left to do when it ends. A later run merges it into the records (`pending_runs.rs`).
//!
//! The file is a sequence of frames, each of them a number of entries that were written at once:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the block, little-endian as all numbers outside it |
//! | 4 | length of the entries before they were compressed |
//! | 8 | SipHash-1-3 of the block |
//! | rest | the entries, as one block of LZ4: postcard values |
//!
//! The first entry is [`Entry::Start`], the last [`Entry::End`]. Files may come from anywhere:
//! allocations are bounded by the length of the input or by the bounds of this crate, and every
//! value is checked.

use std::collections::HashMap;

use runahead_abi::PATH_MAX;
use serde::{Deserialize, Serialize};

use crate::format::checksum;
use crate::{AccessKind, Keys, Origin, PATHS_MAX, PathState, RANGE_MAX, Recorder, Run};

/// Version of the layout. Logs of other versions are dropped.
const VERSION: u32 = 1;
/// Longest text of a frame, in bytes.
const FRAME_MAX: usize = 16 << 20;
/// Bytes of a frame before its block.
const HEAD: usize = 16;
/// Longest log, in bytes. Of a longer run the start is kept.
pub const LOG_MAX: usize = 32 << 20;

/// Entry of a log. Paths are numbered in their order, from 0.
#[derive(Serialize, Deserialize)]
enum Entry<'a> {
    Start {
        version: u32,
        keys: Keys,
        line: Vec<Vec<u8>>,
        directory: Vec<u8>,
    },
    Path {
        #[serde(borrow)]
        path: &'a [u8],
        key: u64,
    },
    /// State of a path, as it was found while the command ran.
    State(u32, PathState),
    Access(u32, AccessKind),
    Mapping {
        path: u32,
        offset: u64,
        length: u64,
    },
    Touched {
        path: u32,
        offset: u64,
        length: u64,
    },
    Program,
    End {
        was_killed: bool,
    },
}

/// Entries that are not yet written.
#[derive(Default)]
pub struct LogBuffer {
    text: Vec<u8>,
    /// Paths that were entered so far.
    paths: u32,
}

impl LogBuffer {
    fn put(&mut self, entry: &Entry<'_>) {
        // Cannot fail: plain structures are written to memory.
        let text = std::mem::take(&mut self.text);
        self.text = postcard::to_extend(entry, text).unwrap_or_default();
    }

    /// Enters the beginning of a run.
    pub fn start(&mut self, keys: &Keys, origin: &Origin) {
        let Origin { line, directory } = origin.clone();
        self.put(&Entry::Start { version: VERSION, keys: *keys, line, directory });
    }

    /// Enters the paths of the recorder that are new.
    pub fn paths_of(&mut self, recorder: &Recorder) {
        while let Some(place) = recorder.path(self.paths) {
            self.put(&Entry::Path { path: &place.path, key: place.key });
            self.paths += 1;
        }
    }

    /// Enters the state of a path.
    pub fn state(&mut self, path: u32, state: PathState) {
        self.put(&Entry::State(path, state));
    }

    /// Enters an access.
    pub fn access(&mut self, path: u32, what: AccessKind) {
        self.put(&Entry::Access(path, what));
    }

    /// Enters a range that was mapped.
    pub fn mapping(&mut self, path: u32, offset: u64, length: u64) {
        self.put(&Entry::Mapping { path, offset, length });
    }

    /// Enters a range that was used of a mapping.
    pub fn touched(&mut self, path: u32, offset: u64, length: u64) {
        self.put(&Entry::Touched { path, offset, length });
    }

    /// Enters the start of a program.
    pub fn program(&mut self) {
        self.put(&Entry::Program);
    }

    /// Enters the end. A run that was killed is no evidence of unused accesses.
    pub fn end(&mut self, was_killed: bool) {
        self.put(&Entry::End { was_killed });
    }

    /// Takes the entries out, as a frame; `None` if there are none, or more than a frame holds.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        let text = std::mem::take(&mut self.text);
        frame(&text)
    }

    /// Takes the entries out, to be compressed elsewhere.
    pub fn take(&mut self) -> LogBuffer {
        LogBuffer { text: std::mem::take(&mut self.text), paths: self.paths }
    }
}

fn frame(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > FRAME_MAX {
        return None;
    }
    let block = lz4_flex::block::compress(text);
    let mut bytes = Vec::with_capacity(HEAD + block.len());
    bytes.extend_from_slice(&(block.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum(&block).to_le_bytes());
    bytes.extend_from_slice(&block);
    Some(bytes)
}

/// Run that was read from a log.
pub struct LoggedRun {
    /// Keys under which it is remembered.
    pub keys: Keys,
    /// The run, under the key of its command.
    pub run: Run,
    /// True if it is no evidence of unused accesses: the command was killed.
    pub was_killed: bool,
}

/// Reads a log; `None` if it is damaged or ends early.
pub fn read(bytes: &[u8]) -> Option<LoggedRun> {
    let mut reader = Reader::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(HEAD)?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| head[at + n])) as usize;
        let (block, after) = after.split_at_checked(number(0))?;
        let sum = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| head[8 + n]));
        if checksum(block) != sum || number(4) > FRAME_MAX {
            return None;
        }
        let text = lz4_flex::block::decompress(block, number(4)).ok()?;
        let mut entries = &text[..];
        while !entries.is_empty() {
            let (entry, left) = postcard::take_from_bytes::<Entry<'_>>(entries).ok()?;
            reader.apply(entry)?;
            entries = left;
        }
        rest = after;
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    head: Option<(Keys, Origin)>,
    paths: Vec<(Vec<u8>, u64)>,
    states: HashMap<Vec<u8>, PathState>,
    recorder: Recorder,
    was_killed: Option<bool>,
}

impl Reader {
    fn apply(&mut self, entry: Entry<'_>) -> Option<()> {
        if let Entry::Start { version, keys, line, directory } = entry {
            let is_first = self.head.is_none() && version == VERSION;
            self.head = is_first.then_some((keys, Origin { line, directory }));
            return is_first.then_some(());
        }
        if self.head.is_none() || self.was_killed.is_some() {
            return None;
        }
        let range = |offset: u64, length: u64| {
            let end = offset.checked_add(length)?;
            ((1..=RANGE_MAX).contains(&length) && end <= i64::MAX as u64).then_some(())
        };
        match entry {
            Entry::Start { .. } => return None,
            Entry::Path { path, key } => {
                let is_sound = path.first() == Some(&b'/')
                    && path.len() <= PATH_MAX
                    && !path.contains(&0)
                    && self.paths.len() < PATHS_MAX;
                is_sound.then(|| self.paths.push((path.to_owned(), key)))?;
            }
            Entry::State(path, state) => {
                self.states.insert(self.paths.get(path as usize)?.0.clone(), state);
            }
            Entry::Access(path, what) => {
                what.range().map_or(Some(()), |(offset, length)| range(offset, length))?;
                let (path, key) = self.paths.get(path as usize)?;
                self.recorder.add_access(path, *key, what);
            }
            Entry::Mapping { path, offset, length } => {
                range(offset, length)?;
                let (path, key) = self.paths.get(path as usize)?;
                self.recorder.add_mapping(path, *key, offset, length);
            }
            Entry::Touched { path, offset, length } => {
                range(offset, length)?;
                let (path, key) = self.paths.get(path as usize)?;
                self.recorder.add_touched(path, *key, offset, length);
            }
            Entry::Program => self.recorder.add_program(),
            Entry::End { was_killed } => self.was_killed = Some(was_killed),
        }
        Some(())
    }

    fn finish(self) -> Option<LoggedRun> {
        let (keys, origin) = self.head?;
        let was_killed = self.was_killed?;
        let state = |path: &[u8]| self.states.get(path).copied().unwrap_or(PathState::Unknown);
        let run = Run { origin, ..self.recorder.finish(keys.command, state) };
        Some(LoggedRun { keys, run, was_killed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    const DATA: AccessKind = AccessKind::Data { offset: 0, length: 1 << 14 };

    /// Logs a run of `files` files in frames of `step` accesses, and the same run without a log.
    fn logged(files: u32, step: usize) -> (Vec<u8>, Run) {
        let keys = Keys { command: [1; 16], place: [2; 16], program: [3; 16] };
        let origin = Origin::new([&b"cat"[..], b"x"], b"/here");
        let (mut buffer, mut recorder) = (LogBuffer::default(), Recorder::default());
        buffer.start(&keys, &origin);
        let (mut bytes, mut accesses) = (Vec::new(), 0);
        let state = |file: u32| match file % 4 {
            0 => PathState::Absent,
            1 => PathState::Written,
            _ => PathState::Same(Attributes { size: 100, mtime: -5, inode: file.into() }),
        };
        for file in 0..files {
            let path = format!("/a/{file}");
            for what in [AccessKind::Lookup, DATA] {
                let number = recorder.add_access(path.as_bytes(), file.into(), what);
                buffer.paths_of(&recorder);
                buffer.access(number.expect("it is new"), what);
                accesses += 1;
                if accesses % step == 0 {
                    bytes.extend(buffer.take_frame().expect("it has entries"));
                }
            }
            buffer.state(file, state(file));
            if file % 5 == 0 {
                recorder.add_program();
                buffer.program();
            }
        }
        recorder.add_touched(b"/a/0", 0, 0, 4096);
        buffer.touched(0, 0, 4096);
        buffer.end(false);
        bytes.extend(buffer.take_frame().expect("it has entries"));
        let number = |path: &[u8]| std::str::from_utf8(&path[3..]).ok()?.parse().ok();
        let run = recorder.finish([1; 16], |path| state(number(path).expect("a number")));
        (bytes, Run { origin, ..run })
    }

    #[test]
    fn a_log_gives_the_run_however_it_was_cut() {
        for step in [1, 7, 1000] {
            let (bytes, run) = logged(40, step);
            let read = read(&bytes).expect("it is whole");
            assert_eq!(read.run, run);
            assert_eq!((read.keys.program, read.was_killed), ([3; 16], false));
        }
    }

    #[test]
    fn a_damaged_log_is_refused() {
        let (bytes, run) = logged(6, 3);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_none(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            // The length of the text is no part of the sum: LZ4 finds that it is another.
            assert!(read(&bytes).is_none_or(|read| read.run == run), "{at}");
        }
        assert!(read(&[bytes.clone(), bytes].concat()).is_none(), "nothing follows the end");
    }

    #[test]
    fn values_that_no_session_writes_are_refused() {
        let with = |entries: &[Entry<'_>]| {
            let mut buffer = LogBuffer::default();
            buffer.start(&Keys::default(), &Origin::default());
            entries.iter().for_each(|entry| buffer.put(entry));
            buffer.end(false);
            read(&buffer.take_frame().expect("it has entries")).is_some()
        };
        let path = |path| Entry::Path { path, key: 1 };
        assert!(with(&[path(b"/a"), Entry::Access(0, DATA)]));
        assert!(!with(&[path(b"a")]) && !with(&[path(b"/a\0")]));
        assert!(!with(&[Entry::Access(0, DATA)]), "no such path");
        let far = |offset, length| {
            with(&[path(b"/a"), Entry::Access(0, AccessKind::Data { offset, length })])
        };
        assert!(!far(0, 0) && !far(0, RANGE_MAX + 1) && !far(u64::MAX - 1, 1));
    }
}
