//! Accesses of a recorded run, in the order in which each was first made.
//!
//! Invariant: nothing is in the list twice, and every entry lies where the recording was asked to
//! look.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::measure::oracle::strace_lines::{Call, descriptor, number, string};

/// Largest range read by one entry, the kernel's usual readahead: longer ones are read in parallel.
pub const PIECE: u64 = 128 << 10;

/// A lookup that is followed by the use of the same file this soon is one access with it.
const SOON: usize = 64;

/// Kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Look it up and get its attributes, or its absence.
    Look,
    /// Read all entries of the directory.
    List,
    /// Read bytes of the file.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes, at most [`PIECE`].
        len: u64,
    },
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    /// Absolute path.
    pub path: PathBuf,
    pub what: AccessKind,
}

/// The accesses of a recorded run.
#[derive(Debug, Default)]
pub struct Accesses {
    /// Accesses to the storage under test, in order.
    pub list: Vec<Access>,
    /// Other files that were looked up or read: programs, libraries, configuration.
    pub elsewhere: Vec<PathBuf>,
    /// Programs that were started.
    pub starts: usize,
}

impl Accesses {
    /// Puts a lookup of every path before everything else.
    pub fn put_lookups_first(&mut self) {
        let mut seen = HashSet::new();
        let first = self.list.iter().filter(|access| seen.insert(&access.path));
        let mut list: Vec<_> = first
            .map(|access| Access { path: access.path.clone(), what: AccessKind::Look })
            .collect();
        list.extend(self.list.drain(..).filter(|access| access.what != AccessKind::Look));
        self.list = list;
    }
}

/// Returns the pieces that count as touched of a mapped range of a file, in bytes.
pub type TouchedPieces<'a> = &'a dyn Fn(&Path, Range<u64>) -> Vec<Range<u64>>;

/// Builds [`Accesses`] from calls.
pub struct Collector<'a> {
    root: &'a Path,
    cwd: PathBuf,
    touched: TouchedPieces<'a>,
    /// Offsets of open files. Descriptors are told apart by number and path, and not by process:
    /// threads share them.
    offsets: HashMap<(u32, PathBuf), u64>,
    seen: HashSet<Access>,
    /// Index of a path's lookup in the list.
    looked_up: HashMap<PathBuf, usize>,
    /// Index of a path's latest piece in the list.
    last_piece: HashMap<PathBuf, usize>,
    result: Accesses,
}

impl<'a> Collector<'a> {
    pub fn new(root: &'a Path, cwd: &Path, touched: TouchedPieces<'a>) -> Self {
        Self {
            root,
            cwd: cwd.to_owned(),
            touched,
            offsets: HashMap::new(),
            seen: HashSet::new(),
            looked_up: HashMap::new(),
            last_piece: HashMap::new(),
            result: Accesses::default(),
        }
    }

    pub fn finish(self) -> Accesses {
        self.result
    }

    /// Takes in one call; those that touch no file are ignored.
    pub fn call(&mut self, call: &Call) {
        // None: a failed call, or arguments of a form that is not understood.
        let _ = match call.name.as_str() {
            "openat" | "openat2" => self.lookup_at(call).and_then(|()| self.opened(call)),
            "newfstatat" | "statx" | "faccessat" | "faccessat2" | "readlinkat" => {
                self.lookup_at(call)
            }
            "open" => self.lookup(call).and_then(|()| self.opened(call)),
            "stat" | "lstat" | "access" | "readlink" | "getxattr" | "lgetxattr" | "listxattr"
            | "llistxattr" | "chdir" => self.lookup(call),
            "execve" => self.lookup(call).and_then(|()| self.started(call)),
            "getdents" | "getdents64" => self.listed(call),
            "read" | "readv" | "copy_file_range" | "splice" => self.read(call, 0, None),
            "pread64" | "preadv" => self.read(call, 0, call.args.last().and_then(|a| number(a))),
            "preadv2" => self.read(call, 0, call.args.get(3).and_then(|a| number(a))),
            "sendfile" => self.read(call, 1, call.args.get(2).and_then(|a| number(a))),
            "mmap" => self.mapped(call),
            "lseek" => self.moved(call),
            _ => None,
        };
    }

    fn lookup_at(&mut self, call: &Call) -> Option<()> {
        let (number, base) = descriptor(call.args.first()?)?;
        if number.is_none() {
            self.cwd.clone_from(&base);
        }
        let name = string(call.args.get(1)?)?;
        // An empty name is the descriptor itself: nothing is looked up.
        if !name.as_os_str().is_empty() {
            self.add(base.join(name), AccessKind::Look);
        }
        Some(())
    }

    fn lookup(&mut self, call: &Call) -> Option<()> {
        let path = self.cwd.join(string(call.args.first()?)?);
        if call.name == "chdir" && number(&call.result).is_some() {
            self.cwd.clone_from(&path);
        }
        self.add(path, AccessKind::Look);
        Some(())
    }

    /// The kernel maps a program without a call: what is in its file may all be used.
    fn started(&mut self, call: &Call) -> Option<()> {
        number(&call.result)?;
        self.result.starts += 1;
        let path = self.cwd.join(string(call.args.first()?)?);
        if path.starts_with(self.root) {
            let len = std::fs::metadata(&path).ok()?.len();
            self.range(&path, 0, len);
        }
        Some(())
    }

    fn opened(&mut self, call: &Call) -> Option<()> {
        let (number, path) = descriptor(&call.result)?;
        self.offsets.insert((number?, path), 0);
        Some(())
    }

    fn listed(&mut self, call: &Call) -> Option<()> {
        let (_, path) = descriptor(call.args.first()?)?;
        self.add(path, AccessKind::List);
        Some(())
    }

    /// A call that returned a number of bytes of argument `fd`, from `offset` or the file's own.
    fn read(&mut self, call: &Call, fd: usize, offset: Option<u64>) -> Option<()> {
        let (fd, path) = descriptor(call.args.get(fd)?)?;
        let len = number(&call.result)?;
        let start = match offset {
            Some(offset) => offset,
            None => {
                let own = self.offsets.entry((fd?, path.clone())).or_default();
                *own += len;
                *own - len
            }
        };
        self.range(&path, start, len);
        Some(())
    }

    fn mapped(&mut self, call: &Call) -> Option<()> {
        let (_, path) = descriptor(call.args.get(4)?)?;
        number(&call.result)?;
        let (len, offset) = (number(call.args.get(1)?)?, number(call.args.get(5)?)?);
        if path.starts_with(self.root) {
            for piece in (self.touched)(&path, offset..offset.saturating_add(len)) {
                self.range(&path, piece.start, piece.end - piece.start);
            }
        } else {
            self.range(&path, offset, len);
        }
        Some(())
    }

    fn moved(&mut self, call: &Call) -> Option<()> {
        let (fd, path) = descriptor(call.args.first()?)?;
        self.offsets.insert((fd?, path), number(&call.result)?);
        Some(())
    }

    /// Adds a range in pieces, or lets the piece before it grow: programs read in small steps.
    fn range(&mut self, path: &Path, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let mut start = offset;
        if let Some(grown) = self.grow(path, offset, end) {
            start = grown;
        }
        while start < end {
            let len = (end - start).min(PIECE);
            self.add(path.to_owned(), AccessKind::Read { offset: start, len });
            start += len;
        }
    }

    /// Returns how far the path's last piece could be extended from its end at `start` towards
    /// `end`.
    fn grow(&mut self, path: &Path, start: u64, end: u64) -> Option<u64> {
        let at = *self.last_piece.get(path)?;
        let AccessKind::Read { offset, len } = &mut self.result.list[at].what else { return None };
        if *offset + *len != start || *len >= PIECE {
            return None;
        }
        *len = (end - *offset).min(PIECE);
        Some(*offset + *len)
    }

    fn add(&mut self, path: PathBuf, what: AccessKind) {
        let access = Access { path, what };
        if !self.seen.insert(access.clone()) {
            return;
        }
        if !access.path.starts_with(self.root) {
            self.result.elsewhere.push(access.path);
            return;
        }
        let list = &mut self.result.list;
        if what == AccessKind::Look {
            self.looked_up.insert(access.path.clone(), list.len());
            list.push(access);
            return;
        }
        // The first use takes the place of the lookup just before it; two threads would only wait
        // for the same inode.
        let lookup = self.looked_up.remove(&access.path).filter(|at| list.len() - at <= SOON);
        let at = lookup.unwrap_or(list.len());
        if let AccessKind::Read { .. } = what {
            self.last_piece.insert(access.path.clone(), at);
        }
        match lookup {
            Some(at) => list[at] = access,
            None => list.push(access),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::oracle::strace_lines::Parser;

    fn hex(text: &str) -> String {
        text.bytes().map(|b| format!("\\x{b:02x}")).collect()
    }

    fn all(_: &Path, range: Range<u64>) -> Vec<Range<u64>> {
        vec![range]
    }

    fn collect(lines: &[String]) -> Accesses {
        let root = Path::new("/t");
        let mut collector = Collector::new(root, root, &all);
        let mut parser = Parser::default();
        for call in lines.iter().filter_map(|line| parser.line(line)) {
            collector.call(&call);
        }
        collector.finish()
    }

    fn open(name: &str, fd: u32) -> String {
        let (at, name, full) = (hex("/t"), hex(name), hex(&format!("/t/{name}")));
        format!(r#"1 openat(AT_FDCWD<{at}>, "{name}", O_RDONLY) = {fd}<{full}>"#)
    }

    fn read(name: &str, fd: u32, got: u64) -> String {
        format!(r#"1 read({fd}<{}>, ""..., 131072) = {got}"#, hex(&format!("/t/{name}")))
    }

    fn entry(path: &str, what: AccessKind) -> Access {
        Access { path: path.into(), what }
    }

    #[test]
    fn reads_follow_the_offset_and_replace_the_lookup() {
        let lseek = format!("1 lseek(3<{}>, 0, SEEK_SET) = 0", hex("/t/a"));
        let lines = [
            open("a", 3),
            open("b", 4),
            read("a", 3, 200_000),
            read("a", 3, 10),
            lseek,
            read("a", 3, 0),
        ];
        let expected = [
            entry("/t/a", AccessKind::Read { offset: 0, len: PIECE }),
            entry("/t/b", AccessKind::Look),
            entry("/t/a", AccessKind::Read { offset: PIECE, len: 200_010 - PIECE }),
        ];
        assert_eq!(collect(&lines).list, expected);
    }

    #[test]
    fn lookups_can_go_first() {
        let mut all = collect(&[open("a", 3), read("a", 3, 200_000), open("b", 3)]);
        all.put_lookups_first();
        let (a, b) = (entry("/t/a", AccessKind::Look), entry("/t/b", AccessKind::Look));
        assert_eq!((all.list.len(), &all.list[..2]), (4, &[a, b][..]));
    }

    #[test]
    fn absent_files_are_accesses_and_other_places_are_apart() {
        let missing = format!(
            r#"1 openat(AT_FDCWD<{}>, "{}", O_RDONLY) = -1 ENOENT (No such file or directory)"#,
            hex("/t"),
            hex("none")
        );
        let library = format!(r#"1 access("{}", R_OK) = 0"#, hex("/lib/x.so"));
        let relative = format!(r#"1 lgetxattr("{}", ""..., NULL, 0) = -1 ENODATA (No)"#, hex("y"));
        let all = collect(&[missing.clone(), missing, library, relative]);
        assert_eq!(all.list, [entry("/t/none", AccessKind::Look), entry("/t/y", AccessKind::Look)]);
        assert_eq!(all.elsewhere, [PathBuf::from("/lib/x.so")]);
    }

    #[test]
    fn programs_that_start_are_counted_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, [0; 5000]).unwrap();
        let exec = |path: &Path, result| {
            format!("1 execve(\"{}\", 0x7f00 /* 9 vars */) = {result}", hex(path.to_str().unwrap()))
        };
        let lines =
            [exec(Path::new("/bin/x"), "0"), exec(&program, "-1 ENOENT (No)"), exec(&program, "0")];
        let mut collector = Collector::new(dir.path(), dir.path(), &all);
        let mut parser = Parser::default();
        lines.iter().filter_map(|line| parser.line(line)).for_each(|call| collector.call(&call));
        let all = collector.finish();
        assert_eq!(all.starts, 2);
        assert_eq!(
            all.list,
            [Access { path: program, what: AccessKind::Read { offset: 0, len: 5000 } }]
        );
    }

    #[test]
    fn maps_and_directories() {
        let lines = [
            open("m", 3),
            format!(
                "1 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3<{}>, 0x1000) = 0x7f0000",
                hex("/t/m")
            ),
            open("d", 4),
            format!("1 getdents64(4<{}>, 0x55 /* 9 entries */, 32768) = 96", hex("/t/d")),
            "1 mmap(NULL, 4096, PROT_READ, MAP_ANONYMOUS, -1, 0) = 0x7f0000".to_owned(),
        ];
        let expected = [
            entry("/t/m", AccessKind::Read { offset: 4096, len: 4096 }),
            entry("/t/d", AccessKind::List),
        ];
        assert_eq!(collect(&lines).list, expected);
    }

    #[test]
    fn only_touched_pieces_of_a_mapping_count() {
        let mapped =
            format!("1 mmap(NULL, 65536, PROT_READ, MAP_SHARED, 3<{}>, 0) = 0x7f0000", hex("/t/m"));
        let call = Parser::default().line(&mapped).unwrap();
        let touched = |path: &Path, range| {
            assert_eq!((path, range), (Path::new("/t/m"), 0..65536));
            vec![4096..8192, 32768..40960]
        };
        let mut collector = Collector::new(Path::new("/t"), Path::new("/t"), &touched);
        collector.call(&call);
        let piece = |offset, len| entry("/t/m", AccessKind::Read { offset, len });
        assert_eq!(collector.finish().list, [piece(4096, 4096), piece(32768, 8192)]);
    }
}
