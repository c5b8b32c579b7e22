//! The dynamic linker's cache of where libraries are: `/etc/ld.so.cache`, as ldconfig(8) of the GNU
//! C library writes it since 2.2 (alone, or behind an older table).
//!
//! A header, entries of fixed size, and names that entries refer to by their offset from the
//! header. The file is searched as it is, from its first entry to its last: that is quick enough,
//! and needs neither its order nor memory beside it.
//!
//! Invariant: whatever the bytes are, a search reads each entry at most once and nothing outside;
//! damage means that there is no entry.

use super::loader_arch::isa_level;

/// Largest cache file that is read. Usual sizes are some 30 to 200 KiB.
pub const CACHE_MAX: u64 = 4 << 20;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// A library for the GNU C library on x86-64 with pointers of 64 bits.
const X86_64: u32 = 0x0303;
/// Longest name that is compared, and longest path that is believed.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = runahead_abi::PATH_MAX;
/// Paths of one library: there is one, and one for each processor level it was built for.
const FOUND_MAX: usize = 4;

/// The file.
#[derive(Default)]
pub struct LdCache {
    bytes: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// The text at `at`, if it ends within `max` bytes.
fn text_at(bytes: &[u8], at: u32, max: usize) -> Option<&[u8]> {
    let rest = bytes.get(at as usize..)?;
    let end = rest.iter().take(max + 1).position(|&b| b == 0)?;
    Some(&rest[..end])
}

impl LdCache {
    /// Takes the bytes of the file; what is not a cache is an empty one.
    pub fn new(mut bytes: Vec<u8>) -> Self {
        if bytes.starts_with(OLD_MAGIC) {
            let entries = u32_at(&bytes, OLD_MAGIC.len()).unwrap_or(0) as usize;
            let end = OLD_HEADER.saturating_add(entries.saturating_mul(OLD_ENTRY));
            let start = end.checked_next_multiple_of(8).unwrap_or(usize::MAX);
            bytes.drain(..start.min(bytes.len()));
        }
        if !bytes.starts_with(MAGIC) {
            bytes.clear();
        }
        LdCache { bytes }
    }

    /// Returns the paths of `name`, the best first.
    pub fn find(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let bytes = &self.bytes[..];
        let entries = u32_at(bytes, MAGIC.len()).unwrap_or(0) as usize;
        let table = bytes.get(HEADER..).unwrap_or(&[]);
        let mut found: Vec<(u32, &[u8])> = Vec::new();
        for entry in table.chunks_exact(ENTRY).take(entries) {
            if u32_at(entry, 0) != Some(X86_64) {
                continue;
            }
            let key = u32_at(entry, 4).and_then(|at| text_at(bytes, at, NAME_MAX));
            if key != Some(name) {
                continue;
            }
            let path = u32_at(entry, 8).and_then(|at| text_at(bytes, at, PATH_MAX));
            let Some(path) = path.filter(|path| path.starts_with(b"/")) else { continue };
            let level = level(path);
            if level <= isa_level() {
                found.push((level, path));
                if found.len() == FOUND_MAX {
                    break;
                }
            }
        }
        found.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        found.into_iter().map(|(_, path)| path.to_vec()).collect()
    }
}

/// The processor level that `path` was built for, which its directory tells.
fn level(path: &[u8]) -> u32 {
    let mut parts = path.split(|&b| b == b'/').skip_while(|part| *part != b"glibc-hwcaps");
    match parts.nth(1) {
        None => 1,
        Some(b"x86-64-v2") => 2,
        Some(b"x86-64-v3") => 3,
        Some(b"x86-64-v4") => 4,
        Some(_) => u32::MAX,
    }
}

#[cfg(test)]
#[path = "ld_cache_tests.rs"]
mod tests;
