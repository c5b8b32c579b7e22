//! Names of files for terminals, patch(1) and JSON.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::ser::{SerializeMap, Serializer};

/// Returns a path in one line of text. A path with control characters, or that is not UTF-8, is
/// quoted as git does: `"a\nb\377"`. patch(1) reads that.
pub fn printed_name(path: &Path) -> Cow<'_, str> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(quote(path)),
    }
}

fn quote(path: &Path) -> String {
    let mut quoted = String::from("\"");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                '"' | '\\' => quoted.extend(['\\', character]),
                _ if character.is_control() => {
                    let mut room = [0; 4];
                    push_octal(&mut quoted, character.encode_utf8(&mut room).as_bytes());
                }
                _ => quoted.push(character),
            }
        }
        push_octal(&mut quoted, chunk.invalid());
    }
    quoted.push('"');
    quoted
}

fn push_octal(quoted: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(quoted, "\\{byte:03o}");
    }
}

/// Serializes a path as `path`, and as an array `path_bytes` too where it is not UTF-8.
pub(crate) fn serialize_path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    map.serialize_entry("path", &path.to_string_lossy())?;
    if path.to_str().is_none() {
        map.serialize_entry("path_bytes", path.as_os_str().as_bytes())?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn only_names_that_disturb_a_line_are_quoted() {
        let name = |bytes: &'static [u8]| printed_name(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(name(b"/a b\"c"), "/a b\"c");
        assert_eq!(name(b"/a\n\x1b[\"\\"), r#""/a\n\033[\"\\""#);
        assert_eq!(name("/ä\u{85}".as_bytes()), r#""/ä\302\205""#);
        assert_eq!(name(b"/q\xff"), r#""/q\377""#);
    }
}
