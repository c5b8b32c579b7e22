//! Programs and libraries made up for tests, and file systems that hold them.

use hashbrown::HashMap;

use super::file_inspection::Files;
use crate::deferred_effects::StepFailure;

/// Contents of an ELF file.
#[derive(Clone, Default)]
pub(crate) struct Made {
    pub interpreter: Option<&'static str>,
    pub needed: Vec<String>,
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    /// Zeros behind all that, in a segment of their own.
    pub padding: usize,
}

const PAGE: usize = 4096;

fn put(bytes: &mut [u8], at: usize, value: u64, length: usize) {
    bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
}

impl Made {
    pub(crate) fn needing(names: &[&str]) -> Self {
        let needed = names.iter().map(|name| (*name).to_owned()).collect();
        Made { interpreter: Some("/lib64/ld.so"), needed, ..Made::default() }
    }

    /// Returns the file: header, segments, interpreter, dynamic section and its strings. The latter
    /// two are in a writable segment that is mapped elsewhere than it lies.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut string = |text: &str| {
            let at = strings.len() as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let mut dynamic: Vec<(u64, u64)> = self.needed.iter().map(|n| (1, string(n))).collect();
        dynamic.extend(self.rpath.iter().map(|path| (15, string(path))));
        dynamic.extend(self.runpath.iter().map(|path| (29, string(path))));
        let count = dynamic.len() + 3;
        const SHIFT: u64 = 0x10_0000;
        let strings_at = (PAGE + 16 * count) as u64;
        dynamic.extend([(5, SHIFT + strings_at), (10, strings.len() as u64), (0, 0)]);
        let end = strings_at as usize + strings.len();
        let mut bytes = vec![0; end + self.padding];
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        put(&mut bytes, 16, 3, 2);
        put(&mut bytes, 18, 62, 2);
        put(&mut bytes, 20, 1, 4);
        put(&mut bytes, 24, 64, 8);
        put(&mut bytes, 32, 64, 8);
        put(&mut bytes, 52, 64, 2);
        put(&mut bytes, 54, 56, 2);
        let text = self.interpreter.unwrap_or("");
        bytes[1024..1024 + text.len()].copy_from_slice(text.as_bytes());
        // Kind, flags, offset, address, size.
        let mut segments = vec![
            (1, 5, 0, 0, PAGE as u64),
            (1, 6, PAGE as u64, SHIFT + PAGE as u64, (end - PAGE) as u64),
            (2, 6, PAGE as u64, SHIFT + PAGE as u64, 16 * count as u64),
        ];
        if self.interpreter.is_some() {
            segments.push((3, 4, 1024, 1024, text.len() as u64 + 1));
        }
        if self.padding > 0 {
            segments.push((1, 4, end as u64, 4 * SHIFT + end as u64, self.padding as u64));
        }
        put(&mut bytes, 56, segments.len() as u64, 2);
        for (n, (kind, flags, offset, address, size)) in segments.into_iter().enumerate() {
            let at = 64 + 56 * n;
            put(&mut bytes, at, kind, 4);
            put(&mut bytes, at + 4, flags, 4);
            put(&mut bytes, at + 8, offset, 8);
            put(&mut bytes, at + 16, address, 8);
            put(&mut bytes, at + 32, size, 8);
            put(&mut bytes, at + 40, size, 8);
        }
        for (n, (tag, value)) in dynamic.into_iter().enumerate() {
            put(&mut bytes, PAGE + 16 * n, tag, 8);
            put(&mut bytes, PAGE + 16 * n + 8, value, 8);
        }
        bytes[strings_at as usize..end].copy_from_slice(&strings);
        bytes
    }
}

/// Files by path, and what was asked of them.
#[derive(Default)]
pub(crate) struct FakeFiles {
    pub files: HashMap<Vec<u8>, Vec<u8>>,
    pub opened: Vec<Vec<u8>>,
    pub read: u64,
}

impl FakeFiles {
    pub(crate) fn put(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.as_bytes().to_vec(), bytes.into());
    }
}

impl Files<Vec<u8>> for FakeFiles {
    fn open(&mut self, path: &[u8]) -> Result<Option<(Vec<u8>, u64)>, StepFailure> {
        self.opened.push(path.to_vec());
        let size = self.files.get(path).ok_or(StepFailure::Answer)?.len();
        Ok(Some((path.to_vec(), size as u64)))
    }

    fn bytes(&mut self, file: &Vec<u8>, offset: u64, length: u64) -> Result<Vec<u8>, StepFailure> {
        let bytes = &self.files[file];
        let start = (offset.min(bytes.len() as u64)) as usize;
        let end = offset.saturating_add(length).min(bytes.len() as u64) as usize;
        self.read += (end - start) as u64;
        Ok(bytes[start..end].to_vec())
    }

    fn real_path(&mut self, file: &Vec<u8>) -> Option<Vec<u8>> {
        Some(file.clone())
    }
}

/// A cache with these libraries: flags, name, path.
pub(crate) fn ld_cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.resize(48, 0);
    let strings_at = 48 + 24 * entries.len();
    let mut strings = Vec::new();
    for (flags, name, path) in entries {
        bytes.extend_from_slice(&flags.to_le_bytes());
        for text in [name, path] {
            let at = (strings_at + strings.len()) as u32;
            bytes.extend_from_slice(&at.to_le_bytes());
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
        }
        bytes.extend_from_slice(&[0; 12]);
    }
    [bytes, strings].concat()
}
