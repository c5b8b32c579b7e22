//! Changes of a try, line by line.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use runahead_abi::overlay::UPPER;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::try_changes::{ChangeKind, Changes, FileType};
use crate::widened_directory::WidenedDirectories;
use crate::{Change, Result, io_error};

/// Size in bytes of the largest file whose lines are compared.
const BYTES_MAX: u64 = 8 << 20;

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
                Ok(text) => Side::Other(format!("symbolic link to {}", text.display())),
                Err(error) => Side::Other(error.to_string()),
            },
            FileType::File if found.len() > BYTES_MAX => {
                Side::Other(format!("file of {} bytes", found.len()))
            }
            FileType::File => match fs::read(path) {
                Ok(bytes) if bytes.contains(&0) => {
                    Side::Other(format!("binary file of {} bytes", bytes.len()))
                }
                Ok(bytes) => Side::Text(String::from_utf8_lossy(&bytes).into_owned()),
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
        _ => format!("{prefix}{}", path.display()),
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
            let diff = TextDiff::from_lines(old.text(), new.text());
            return write!(to, "{}", diff.unified_diff().header(&from, &into));
        }
    };
    to.write_all(path.as_os_str().as_bytes())?;
    writeln!(to, ": {said}")
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
    let diff = TextDiff::from_lines(old.text(), new.text());
    let of = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
    LineCounts { change, added: Some(of(ChangeTag::Insert)), removed: Some(of(ChangeTag::Delete)) }
}
