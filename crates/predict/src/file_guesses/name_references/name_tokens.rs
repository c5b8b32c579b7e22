//! Possible names of other files in the contents of a file.

use hashbrown::HashSet;

/// Bytes of a file that are looked through.
pub const SCAN_BYTES: u64 = 256 << 10;
/// Most names taken from one file.
const TOKENS_MAX: usize = 4096;
/// Bytes of one.
const LENGTH: std::ops::RangeInclusive<usize> = 2..=96;

/// Beginnings of files that hold no names as text: ELF, archives, compressed data, images.
const OPAQUE: [&[u8]; 7] =
    [b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x89PNG", b"\x28\xb5\x2f\xfd"];

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'+' | b':' | b'@')
}

/// Returns each sequence of bytes in `contents` that may be a name, once, with `/` between its
/// parts: `a/b.h`, `../x`, `a.b` (as it is, and as `a/b`), `a::b` (as `a/b`).
pub fn tokens(contents: &[u8]) -> Vec<Box<[u8]>> {
    if OPAQUE.iter().any(|magic| contents.starts_with(magic)) {
        return Vec::new();
    }
    let mut all = HashSet::new();
    let mut found = Vec::new();
    for text in contents.split(|&byte| !is_of_name(byte)) {
        if found.len() >= TOKENS_MAX {
            break;
        }
        let text = trim(text);
        if !LENGTH.contains(&text.len()) || !text.iter().any(u8::is_ascii_alphabetic) {
            continue;
        }
        if !all.insert(text) {
            continue;
        }
        found.extend(readings(text));
    }
    found
}

/// Without what sentences and schemes put around a name.
fn trim(text: &[u8]) -> &[u8] {
    let is_around = |byte: &u8| matches!(byte, b':' | b'-' | b'+' | b'/');
    let first = text.iter().position(|b| !is_around(b) || *b == b'/').unwrap_or(text.len());
    let last = text.iter().rposition(|b| !is_around(b) && *b != b'.').map_or(first, |n| n + 1);
    text.get(first..last).unwrap_or_default()
}

/// The names as which `text` can be understood.
fn readings(text: &[u8]) -> Vec<Box<[u8]>> {
    let has = |what: &[u8]| text.windows(what.len()).any(|part| part == what);
    if has(b"//") || has(b":::") {
        return Vec::new();
    }
    if has(b"::") {
        let parts: Vec<&[u8]> =
            text.split(|&b| b == b':').filter(|part| !part.is_empty()).collect();
        return vec![parts.join(&b'/').into()];
    }
    if text.contains(&b':') {
        return Vec::new();
    }
    let mut all = vec![text.into()];
    let is_dotted = !text.contains(&b'/') && text.contains(&b'.') && !text.starts_with(b".");
    if is_dotted && !has(b"..") {
        let path: Vec<u8> = text.iter().map(|&b| if b == b'.' { b'/' } else { b }).collect();
        all.push(path.into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let text_of = |token: Box<[u8]>| String::from_utf8(token.into()).expect("text");
        tokens(text.as_bytes()).into_iter().map(text_of).collect()
    }

    #[test]
    fn names_are_found_in_what_programs_read() {
        assert_eq!(found("const x = require(\"../../p003\");"), ["const", "require", "../../p003"]);
        assert_eq!(found("#include <boost/asio.hpp>"), ["include", "boost/asio.hpp"]);
        assert_eq!(found("use File::Find;"), ["use", "File/Find"]);
        assert_eq!(
            found("\x02\u{1}z\x16pandas.core.api\x13z"),
            ["pandas.core.api", "pandas/core/api"]
        );
        assert_eq!(found("See: http://x.y/z (end). x"), ["See", "end"]);
        assert_eq!(found("a a ab ab 12 ...."), ["ab"]);
        assert!(tokens(b"\x7fELF abc def").is_empty());
    }

    #[test]
    fn they_are_bounded() {
        let many: String = (0..3 * TOKENS_MAX).map(|n| format!("n{n} ")).collect();
        assert_eq!(tokens(many.as_bytes()).len(), TOKENS_MAX);
        assert!(found(&"x".repeat(1000)).is_empty());
    }
}
