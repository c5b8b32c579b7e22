//! Origin of a name: what it led to in the lower tree when a try first changed it.

use crate::FileId;
use crate::hint_record::PATH_MAX;

/// Size in bytes of the numbers of an [`Origin`] as text, each with a space behind it.
const NUMBERS_MAX: usize = 8 * 17;
/// Size in bytes of an [`Origin`] and its path as text.
pub const ORIGIN_MAX: usize = NUMBERS_MAX + PATH_MAX;

/// Entry that a name led to. As text: eight hexadecimal numbers, and the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The file; both numbers are 0 if the name led to nothing.
    pub file: FileId,
    /// Type and permissions (`st_mode`, stat(3type)).
    pub mode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the data: seconds (two's complement), and nanoseconds.
    pub mtime: [u64; 2],
    /// Last change of data or metadata: seconds and nanoseconds.
    pub ctime: [u64; 2],
}

impl Origin {
    /// Origin of a name that led to nothing.
    pub const ABSENT: Origin = {
        let file = FileId { device: 0, inode: 0 };
        Origin { file, mode: 0, size: 0, mtime: [0; 2], ctime: [0; 2] }
    };

    fn numbers(&self) -> [u64; 8] {
        let Origin { file, mode, size, mtime: [c, d], ctime: [e, f] } = *self;
        [file.device, file.inode, mode, size, c, d, e, f]
    }

    /// Writes the origin and the path as text to the front of `to` and returns the length. `None`
    /// if `to` is too small.
    pub fn write(&self, path: &[u8], to: &mut [u8]) -> Option<usize> {
        let mut at = 0;
        for number in self.numbers() {
            let digits = (16 - number.leading_zeros() as usize / 4).max(1);
            for digit in (0..digits).rev() {
                *to.get_mut(at)? = b"0123456789abcdef"[(number >> (4 * digit)) as usize & 15];
                at += 1;
            }
            *to.get_mut(at)? = b' ';
            at += 1;
        }
        to.get_mut(at..at + path.len())?.copy_from_slice(path);
        Some(at + path.len())
    }

    /// Reads the text of [`Origin::write`]: the origin and the path.
    pub fn read(mut text: &[u8]) -> Option<(Origin, &[u8])> {
        let mut numbers = [0u64; 8];
        for number in &mut numbers {
            let end = text.iter().position(|byte| *byte == b' ')?;
            for digit in &text[..end] {
                let digit = (*digit as char).to_digit(16)?;
                *number = number.checked_mul(16)? + u64::from(digit);
            }
            text = &text[end + 1..];
        }
        let [device, inode, mode, size, c, d, e, f] = numbers;
        let file = FileId { device, inode };
        Some((Origin { file, mode, size, mtime: [c, d], ctime: [e, f] }, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_origins_are_read_back() {
        let origin = Origin {
            file: FileId { device: 0x1_0000_0003, inode: 12345 },
            mode: 0o100_644,
            size: 0,
            mtime: [u64::MAX, 999_999_999],
            ctime: [1, 16],
        };
        let mut room = [0u8; ORIGIN_MAX];
        for origin in [origin, Origin::ABSENT] {
            for path in [&b"/"[..], b"/a b/\xff"] {
                let len = origin.write(path, &mut room).unwrap();
                assert_eq!(Origin::read(&room[..len]), Some((origin, path)));
            }
        }
        assert_eq!(origin.write(b"/a", &mut room[..10]), None);
        assert_eq!(Origin::read(b"1 2 3"), None);
        assert_eq!(Origin::read(b"x 0 0 0 0 0 0 0 /a"), None);
    }
}
