//! Changes of a try, line by line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use runahead_abi::overlay::UPPER;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::try_changes::{ChangeKind, Changes, FileType};
use crate::widened_directory::WidenedDirectories;
use crate::{Change, Result, io_error, printed_name};

/// Size in bytes of the largest file whose lines are compared.
const BYTES_MAX: u64 = 8 << 20;
/// Time after which the comparison of a file finds no more common lines. All that is left of the
/// old file then counts as removed, and of the new one as added.
const TIME_MAX: Duration = Duration::from_millis(500);

/// Writes all changes in the form of `diff -u`, for people and for patch(1).
pub fn write(changes: &Changes, overlay_directory: &Path, to: &mut impl Write) -> Result<()> {
    let written = changes
        .iter()
        .try_for_each(|change| write_change(change, &overlay_directory.join(UPPER), to));
    written.map_err(io_error("write", Path::new("the differences")))
}

/// Side of a comparison: text, or a description.
enum Side {
    Nothing,
    Text(String),
    Other(String),
}

impl Side {
    fn of(path: &Path) -> Self {
        let Ok(found) = fs::symlink_metadata(path) else { return Side::Nothing };
        match FileType::of(&found) {
            FileType::Symlink => match fs::read_link(path) {
                Ok(text) => Side::Other(format!("symbolic link to {}", printed_name(&text))),
                Err(error) => Side::Other(error.to_string()),
            },
            FileType::File if found.len() > BYTES_MAX => {
                Side::Other(format!("file of {} bytes", found.len()))
            }
            FileType::File => match fs::read(path) {
                Ok(bytes) => {
                    let length = bytes.len();
                    match String::from_utf8(bytes) {
                        Ok(text) if !text.contains(is_binary) => Side::Text(text),
                        _ => Side::Other(format!("binary file of {length} bytes")),
                    }
                }
                Err(error) => Side::Other(error.to_string()),
            },
            other => Side::Other(format!("{other:?}").to_lowercase()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Side::Text(text) => text,
            _ => "",
        }
    }

    fn words(&self) -> &str {
        match self {
            Side::Nothing => "nothing",
            Side::Text(_) => "text",
            Side::Other(words) => words,
        }
    }
}

/// True for a control character that texts do not have. A terminal may act on it.
fn is_binary(character: char) -> bool {
    character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{c}')
}

/// Returns the lines as patch(1) counts them: a carriage return ends none.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn compare<'a>(old: &'a [&'a str], new: &'a [&'a str]) -> TextDiff<'a, 'a, 'a, str> {
    TextDiff::configure().newline_terminated(true).timeout(TIME_MAX).diff_slices(old, new)
}

/// Returns both sides of a change: before and after a commit.
fn sides(change: &Change, upper: &Path) -> (Side, Side) {
    let path = &change.path;
    let inner = upper.join(path.strip_prefix("/").unwrap_or(path));
    let _widened = WidenedDirectories::above(upper, [&inner]);
    let side = |at: &Path, is_nothing| if is_nothing { Side::Nothing } else { Side::of(at) };
    (side(path, change.kind == ChangeKind::Added), side(&inner, change.kind == ChangeKind::Deleted))
}

fn write_change(change: &Change, upper: &Path, to: &mut impl Write) -> io::Result<()> {
    let path = &change.path;
    let (old, new) = sides(change, upper);
    let label = |side: &Side, prefix: &str| match side {
        Side::Nothing => "/dev/null".to_owned(),
        _ => {
            let mut name = std::ffi::OsString::from(prefix);
            name.push(path);
            printed_name(Path::new(&name)).into_owned()
        }
    };
    let (from, into) = (label(&old, "a"), label(&new, "b"));
    let said = match (&old, &new) {
        (Side::Nothing, Side::Nothing) => return Ok(()),
        (Side::Text(a), Side::Text(b)) if a == b => {
            "the same contents, other attributes".to_owned()
        }
        (Side::Nothing, Side::Text(text)) if text.is_empty() => "nothing -> empty file".to_owned(),
        (Side::Text(text), Side::Nothing) if text.is_empty() => "empty file -> nothing".to_owned(),
        (Side::Other(_), _) | (_, Side::Other(_)) if change.kind == ChangeKind::Attributes => {
            "other attributes".to_owned()
        }
        (Side::Other(_), _) | (_, Side::Other(_)) => format!("{} -> {}", old.words(), new.words()),
        _ => {
            let (old, new) = (lines(old.text()), lines(new.text()));
            let diff = compare(&old, &new);
            return write!(to, "{}", diff.unified_diff().header(&from, &into));
        }
    };
    writeln!(to, "{}: {said}", printed_name(path))
}

/// Change of one name with its numbers of lines.
#[derive(Debug, Serialize)]
pub struct LineCounts<'a> {
    /// The change.
    #[serde(flatten)]
    pub change: &'a Change,
    /// Number of added lines; `None` if it is no text.
    pub added: Option<usize>,
    /// Number of removed lines; `None` if it is no text.
    pub removed: Option<usize>,
}

/// Counts the added and removed lines of each changed name.
pub fn count_lines<'a>(changes: &'a Changes, overlay_directory: &Path) -> Vec<LineCounts<'a>> {
    let upper = overlay_directory.join(UPPER);
    changes.iter().map(|change| count_change(change, &upper)).collect()
}

fn count_change<'a>(change: &'a Change, upper: &Path) -> LineCounts<'a> {
    let (old, new) = sides(change, upper);
    if matches!(old, Side::Other(_)) || matches!(new, Side::Other(_)) {
        return LineCounts { change, added: None, removed: None };
    }
    let (old, new) = (lines(old.text()), lines(new.text()));
    let diff = compare(&old, &new);
    let of = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
    LineCounts { change, added: Some(of(ChangeTag::Insert)), removed: Some(of(ChangeTag::Delete)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changed_lines_take_no_minutes() {
        let text = |step: u32| -> String {
            (0..20_000).map(|n: u32| format!("{}\n", n.wrapping_mul(step) % 9973)).collect()
        };
        let (old, new) = (text(7919), text(104_729));
        let (old, new) = (lines(&old), lines(&new));
        let start = std::time::Instant::now();
        let diff = compare(&old, &new);
        let removed = diff.iter_all_changes().filter(|line| line.tag() != ChangeTag::Insert);
        assert!(removed.map(|line| line.value()).eq(old.iter().copied()), "all old lines");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn a_carriage_return_ends_no_line() {
        let (old, new) = (lines("a\rb\r\n"), lines("a\rc\r\n"));
        let diff = compare(&old, &new).unified_diff().to_string();
        assert_eq!(diff, "@@ -1 +1 @@\n-a\rb\r\n+a\rc\r\n");
    }
}
