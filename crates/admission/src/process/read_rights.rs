//! Check that a process may have read for it what this process may read.
//!
//! The prefetcher reads with our credentials what processes name. That gives them nothing as long
//! as theirs are the same, and names mean the same to them. Both are asked of the kernel, when a
//! process joins and again after its records have been taken out and before they are acted on: a
//! process that gave up rights before it wrote a record does not have them then. (One that could
//! take them up again has them.) A process's own filter shows here, too; its Landlock domain does
//! not, and there is nothing but the agent, which gives up before a program sets one up.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::io::Errno;
use rustix::process::Pid;

/// The lines of proc_pid_status(5) that are to be equal.
const EQUAL: [&str; 5] = ["Uid", "Gid", "Groups", "Seccomp", "Seccomp_filters"];
/// The one whose bits must all be there.
const CAPABILITIES: &str = "CapEff";
/// Bytes of that file that hold those lines: users may have 65536 groups.
const BYTES: usize = 1 << 20;
const FIRST_BYTES: usize = 4096;

/// Facts that decide about access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rights {
    lines: [String; EQUAL.len()],
    capabilities: u64,
    /// Root directory, and the name spaces of mounts and users.
    places: [(u64, u64); 3],
}

/// Comparison of the rights of one process with ours.
#[derive(Debug)]
pub struct RightsCheck {
    status: File,
    places: [String; 3],
    ours: Rights,
}

impl RightsCheck {
    /// Looks at `process`. The file stands for this process and no later one of the same number.
    pub fn new(process: Pid) -> std::io::Result<Self> {
        let (status, places) = open(&process.to_string())?;
        let (own, here) = open("self")?;
        let ours = rights(&own, &here)?;
        Ok(RightsCheck { status, places, ours })
    }

    /// True if the process may read all that we may read. An error of kind `NotFound`: it has
    /// ended.
    pub fn includes_ours(&self) -> std::io::Result<bool> {
        let theirs = rights(&self.status, &self.places)?;
        Ok(theirs.lines == self.ours.lines
            && theirs.places == self.ours.places
            && theirs.capabilities & self.ours.capabilities == self.ours.capabilities)
    }
}

fn open(process: &str) -> std::io::Result<(File, [String; 3])> {
    let places = ["root", "ns/mnt", "ns/user"].map(|place| format!("/proc/{process}/{place}"));
    Ok((File::open(format!("/proc/{process}/status"))?, places))
}

fn rights(status: &File, places: &[String; 3]) -> std::io::Result<Rights> {
    let text = whole(status).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::SRCH) => ErrorKind::NotFound.into(),
        _ => error,
    })?;
    let mut rights = Rights::default();
    let mut capabilities = None;
    // In one go: this is done whenever records have been taken out.
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        // A kernel without seccomp has no such lines.
        if let Some(at) = EQUAL.iter().position(|equal| *equal == name) {
            rights.lines[at] = value.trim().to_owned();
        } else if name == CAPABILITIES {
            capabilities = u64::from_str_radix(value.trim(), 16).ok();
        }
    }
    rights.capabilities = capabilities.ok_or(ErrorKind::InvalidData)?;
    for (place, path) in rights.places.iter_mut().zip(places) {
        let it = std::fs::metadata(path)?;
        *place = (it.dev(), it.ino());
    }
    Ok(rights)
}

/// Mostly one read suffices.
fn whole(file: &File) -> std::io::Result<String> {
    let mut bytes = vec![0; FIRST_BYTES];
    loop {
        let got = file.read_at(&mut bytes, 0)?;
        if got < bytes.len() || bytes.len() >= BYTES {
            bytes.truncate(got);
            return String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into());
        }
        bytes.resize(bytes.len() * 4, 0);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn our_own_rights_are_ours() {
        let watch = RightsCheck::new(getpid()).expect("we are there");
        assert!(watch.includes_ours().expect("we are there"));
    }

    #[test]
    fn others_rights_are_not() {
        let mut watch = RightsCheck::new(getpid()).expect("we are there");
        watch.ours.lines[2] = "1 2 3".into();
        assert!(!watch.includes_ours().expect("we are there"));
        let mut watch = RightsCheck::new(getpid()).expect("we are there");
        watch.ours.places[0].1 += 1;
        assert!(!watch.includes_ours().expect("we are there"));
        let mut watch = RightsCheck::new(getpid()).expect("we are there");
        watch.ours.capabilities = u64::MAX;
        assert!(!watch.includes_ours().expect("we are there"));
    }
}
