//! Files of another user, which ordinary users see differently in a try.

use rustix::fs::Stat;

/// User that owns some of the entries.
pub const OTHER: u32 = 1234;

/// Permissions of that user's files that all may write to.
pub const OTHERS_MODE: u32 = 0o666;

/// True if a file may be another user's, by its permissions, and this is an ordinary user. A new
/// name of it becomes a copy when a try is committed (docs/guide/try.md).
pub fn may_be_anothers(path: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let has_mode =
        |found: std::fs::Metadata| found.is_file() && found.mode() & 0o7777 == OTHERS_MODE;
    !rustix::process::geteuid().is_root() && std::fs::metadata(path).is_ok_and(has_mode)
}

/// Owner of an entry, for root. Another user's file that an ordinary user has written shows that
/// user in a try (docs/guide/try.md).
pub fn owner(found: &Stat) -> String {
    match rustix::process::geteuid().is_root() {
        true => found.st_uid.to_string(),
        false => "own".into(),
    }
}
