//! Parser of an ELF file for x86-64: what it says of the files that executing it reads.
//!
//! Only the parts that the dynamic linker looks at are read, in pieces that the caller fetches; all
//! of it is untrusted. A file that contradicts itself has nothing to say.
//!
//! Invariant: from one file at most [`READ_MAX`] bytes are asked for, whatever it holds.

use std::ops::Range;

use object::elf::{self, Dyn64, FileHeader64};
use object::pod;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, LittleEndian};

/// The start of a file that is read first. Of a small library it is all, and of others mostly all
/// that [`Head::parse`] and [`needs`] look at.
pub const HEAD_BYTES: u64 = runahead_estimators::access_identity::CHUNK_BYTES;

/// Segments that are looked at.
const SEGMENTS_MAX: usize = 64;
/// Libraries of one file that are looked at.
const NEEDS_MAX: usize = 256;
/// Bytes of a dynamic section; there are some 30 entries of 16 bytes and one for each library.
const DYNAMIC_MAX: u64 = 64 << 10;
/// Longest name of a library, and longest search path.
const NAME_MAX: usize = 255;
const PATHS_MAX: usize = 4096;

/// Largest part of a file that is parsed: dynamic section, names, two search paths and an
/// interpreter.
#[cfg(test)]
pub const READ_MAX: u64 = DYNAMIC_MAX + (NEEDS_MAX * (NAME_MAX + 1) + 3 * PATHS_MAX) as u64;

/// Reads parts of one file.
pub trait Source {
    /// Up to `length` bytes from `offset` on; less at the end of the file, or if it cannot be read.
    fn bytes(&mut self, offset: u64, length: u64) -> Vec<u8>;
}

/// A segment that is mapped from the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    pub file: Range<u64>,
    pub address: u64,
    pub writable: bool,
    pub executable: bool,
}

/// Contents of the ELF header and program headers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub loads: Vec<Load>,
    /// File offset of the entry point.
    pub entry: Option<u64>,
    pub(super) interpreter: Option<Range<u64>>,
    pub(super) dynamic: Option<Range<u64>>,
}

/// Contents of the dynamic section.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    pub names: Vec<Vec<u8>>,
    pub rpath: Option<Vec<u8>>,
    pub runpath: Option<Vec<u8>>,
}

impl Head {
    /// `head` is the start of a file of `size` bytes. `None` if that is no program or library that
    /// this machine could load.
    pub fn parse(head: &[u8], size: u64) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(head).ok()?;
        let endian = header.endian().ok()?;
        if endian != Endianness::Little || header.e_machine(endian) != elf::EM_X86_64 {
            return None;
        }
        let mut parsed = Head::default();
        let segments = header.program_headers(endian, head).ok()?;
        for segment in segments.iter().take(SEGMENTS_MAX) {
            let start = segment.p_offset(endian).min(size);
            let end = segment.p_offset(endian).saturating_add(segment.p_filesz(endian)).min(size);
            if start >= end {
                continue;
            }
            match segment.p_type(endian) {
                elf::PT_LOAD => parsed.loads.push(Load {
                    file: start..end,
                    address: segment.p_vaddr(endian),
                    writable: segment.p_flags(endian).contains(elf::PF_W),
                    executable: segment.p_flags(endian).contains(elf::PF_X),
                }),
                elf::PT_INTERP => parsed.interpreter = Some(start..end),
                elf::PT_DYNAMIC => parsed.dynamic = Some(start..end),
                _ => {}
            }
        }
        parsed.entry = parsed.in_file(header.e_entry(endian));
        Some(parsed)
    }

    /// Returns the file offset that is mapped at `address`.
    fn in_file(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|load| {
            let into = address.checked_sub(load.address)?;
            (into < load.file.end - load.file.start).then(|| load.file.start + into)
        })
    }

    /// True if it has a dynamic section.
    pub fn is_dynamic(&self) -> bool {
        self.dynamic.is_some()
    }

    /// The program that loads its libraries.
    pub fn interpreter(&self, source: &mut dyn Source) -> Option<Vec<u8>> {
        let range = self.interpreter.as_ref()?;
        text(source, range.start, (range.end - range.start).min(PATHS_MAX as u64))
    }

    /// Returns what the file needs of the dynamic linker.
    pub fn needs(&self, source: &mut dyn Source) -> Needs {
        let mut needs = Needs::default();
        let Some(dynamic) = &self.dynamic else { return needs };
        let length = (dynamic.end - dynamic.start).min(DYNAMIC_MAX);
        let bytes = source.bytes(dynamic.start, length);
        let count = bytes.len() / size_of::<Dyn64<LittleEndian>>();
        let Ok((entries, _)) = pod::slice_from_bytes::<Dyn64<LittleEndian>>(&bytes, count) else {
            return needs;
        };
        let (mut table, mut size) = (None, u64::MAX);
        let (mut names, mut rpath, mut runpath) = (Vec::new(), None, None);
        for entry in entries {
            let value = entry.d_val.get(LittleEndian);
            match entry.d_tag.get(LittleEndian) {
                elf::DT_NULL => break,
                elf::DT_STRTAB => table = self.in_file(value),
                elf::DT_STRSZ => size = value,
                elf::DT_NEEDED if names.len() < NEEDS_MAX => names.push(value),
                elf::DT_RPATH => rpath = Some(value),
                elf::DT_RUNPATH => runpath = Some(value),
                _ => {}
            }
        }
        let Some(table) = table else { return needs };
        let mut string = |at: u64, max: usize| {
            let length = size.checked_sub(at)?.min(max as u64 + 1);
            text(source, table.checked_add(at)?, length)
        };
        needs.names = names.into_iter().filter_map(|at| string(at, NAME_MAX)).collect();
        needs.rpath = rpath.and_then(|at| string(at, PATHS_MAX - 1));
        needs.runpath = runpath.and_then(|at| string(at, PATHS_MAX - 1));
        needs
    }
}

/// The text at `offset`, which ends with a NUL within `length` bytes and is not empty.
fn text(source: &mut dyn Source, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = source.bytes(offset, length);
    let end = bytes.iter().position(|&b| b == 0).filter(|&end| end > 0)?;
    bytes.truncate(end);
    Some(bytes)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
