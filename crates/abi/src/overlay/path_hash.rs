//! Hashes of paths, by which the filter and the whiteouts are found.

/// Hash of a path, built component by component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathHash(u64);

impl PathHash {
    /// Hash of the empty path, which stands for the root directory.
    pub const ROOT: PathHash = PathHash(0xcbf2_9ce4_8422_2325);

    /// Returns the hash of the path with `bytes` appended (FNV-1a).
    pub fn append(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        PathHash(bytes.iter().fold(self.0, step))
    }

    /// Returns the hash of a whole path; the root directory is `/`.
    pub fn of(path: &[u8]) -> Self {
        if path == b"/" { Self::ROOT } else { Self::ROOT.append(path) }
    }

    /// Returns the mixed hash: every bit depends on the whole path.
    pub fn bits(self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_path_is_built_by_components() {
        assert_eq!(PathHash::of(b"/a/bc"), PathHash::ROOT.append(b"/a").append(b"/bc"));
        assert_eq!(PathHash::of(b"/"), PathHash::ROOT);
        assert_ne!(PathHash::of(b"/a"), PathHash::of(b"/b"));
    }
}
