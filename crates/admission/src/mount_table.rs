//! Device numbers of file systems in memory and of remote ones.
//!
//! File systems in memory keep no negative dentries, so the kernel cannot answer for missing names
//! from its cache; yet no process waits for them. Remote ones ask their server for each name that
//! they do not know. An agent gets the device numbers of both.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use runahead_abi::agent_config::{MEMORY_DEVICES_MAX, REMOTE_DEVICES_MAX, ROTATIONAL_DEVICES_MAX};
use runahead_abi::device_number;
use runahead_estimators::filesystem_table;
use rustix::fs::{AtFlags, StatxFlags, major, minor, statvfs, statx};

use crate::rotational;

/// Bytes of the table, mostly; a longer one is read all the same.
const TABLE_BYTES: usize = 16 << 10;

/// Text of mountinfo (proc_pid_mountinfo(5)).
pub struct Mounts(String);

impl Mounts {
    /// Reads the mounts of now.
    pub fn now() -> Self {
        // So that it is read at once: each read has the kernel write it from the start.
        let mut table = String::with_capacity(TABLE_BYTES);
        let file = File::open("/proc/self/mountinfo");
        let _ = file.and_then(|mut file| file.read_to_string(&mut table));
        Mounts(table)
    }

    /// Device numbers as [`runahead_abi::agent_config::AgentConfig::memory_devices`] has them.
    pub fn in_memory(&self) -> [u64; MEMORY_DEVICES_MAX] {
        first(self.devices(|kind| filesystem_table::by_name(kind.as_bytes()).is_in_memory()))
    }

    /// Returns [`runahead_abi::agent_config::AgentConfig::remote_devices`].
    pub fn remote(&self) -> [u64; REMOTE_DEVICES_MAX] {
        first(self.devices(is_remote))
    }

    /// Returns [`runahead_abi::agent_config::AgentConfig::rotational_devices`].
    pub fn rotational_devices(&self) -> [u64; ROTATIONAL_DEVICES_MAX] {
        // Those without a number of their own are of no block device.
        let is_rotational = |device: &u64| {
            let (major, minor) = ((device >> 32) as u32, *device as u32);
            major != 0 && rotational::is_rotational(major, minor)
        };
        first(self.devices(|_| true).into_iter().filter(is_rotational))
    }

    /// True if a file system is mounted whose server may never answer, or will be when it is first
    /// named (autofs(5); systemd's own for `binfmt_misc` has no server).
    pub fn have_servers(&self) -> bool {
        self.0.lines().any(|line| {
            let kind = device_and_kind(line).map(|(_, kind)| kind);
            kind.is_some_and(is_remote) || kind == Some("autofs") && !line.contains(" /proc/")
        })
    }

    /// Returns the mount points in the order of their mounts, each with true if its contents are
    /// generated or kept in memory.
    pub fn points(&self) -> Vec<(Vec<u8>, bool)> {
        self.0.lines().filter_map(point_and_kind).collect()
    }

    /// Devices of stored file systems that ask no server, with the numbers by which they are known
    /// when they are mounted again (statfs(2), `f_fsid`; 0: none).
    pub fn stored(&self) -> Vec<((u32, u32), u64)> {
        let mut found: Vec<((u32, u32), u64)> = Vec::new();
        for line in self.0.lines() {
            let Some((device, kind)) = device_and_kind(line) else { continue };
            let Some((point, false)) = point_and_kind(line) else { continue };
            let device = ((device >> 32) as u32, device as u32);
            if is_remote(kind) || found.iter().any(|(other, _)| *other == device) {
                continue;
            }
            let point = std::ffi::OsStr::from_bytes(&point);
            if let Ok(number) = statvfs(point).map(|told| told.f_fsid)
                && number != 0
            {
                found.push((device, number));
            }
        }
        found
    }

    /// Returns the devices of mounts of such a type, once each.
    fn devices(&self, is_such: impl Fn(&str) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for (device, kind) in self.0.lines().filter_map(device_and_kind) {
            if is_such(kind) && !found.contains(&device) {
                found.push(device);
            }
        }
        found
    }
}

/// Major and minor number of the device of the file at `path`.
pub fn device(path: &Path) -> Option<(u32, u32)> {
    let number = std::fs::metadata(path).ok()?.dev();
    Some((major(number), minor(number)))
}

/// Major and minor number of what an open file, or a place of one (`O_PATH`), is on. What is known
/// here: no server is asked.
pub fn device_of(place: impl AsFd) -> Option<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let it = statx(place, c"", flags, StatxFlags::empty()).ok()?;
    Some((it.stx_dev_major, it.stx_dev_minor))
}

/// File systems that ask no server, as they turn up.
#[derive(Default)]
pub struct LocalFilesystems(Mutex<Vec<u64>>);

impl LocalFilesystems {
    /// True if the file at `place` lies on such a file system.
    pub fn has(&self, place: impl AsFd) -> bool {
        let Some((major, minor)) = device_of(place) else { return false };
        let device = device_number(major, minor);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&device) {
            return true;
        }
        // The table is long.
        let is_local = !Mounts::now().devices(is_remote).contains(&device);
        if is_local {
            known.push(device);
        }
        is_local
    }
}

/// Returns as many devices as there is room for.
fn first<const N: usize>(devices: impl IntoIterator<Item = u64>) -> [u64; N] {
    let mut found = [0; N];
    found.iter_mut().zip(devices).for_each(|(place, device)| *place = device);
    found
}

fn is_remote(kind: &str) -> bool {
    filesystem_table::by_name(kind.as_bytes()).is_remote()
}

/// Parses a line for [`Mounts::points`] (proc_pid_mountinfo(5)).
fn point_and_kind(line: &str) -> Option<(Vec<u8>, bool)> {
    let (mount, source) = line.split_once(" - ")?;
    let point = unescaped(mount.split(' ').nth(4)?);
    let kind = filesystem_table::by_name(source.split(' ').next()?.as_bytes());
    Some((point, kind.is_in_memory() || kind.is_made_up()))
}

/// A name as the kernel's tables have it: white space and backslashes are written as octal numbers.
pub fn unescaped(name: &str) -> Vec<u8> {
    let mut rest = name.as_bytes();
    let mut text = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok();
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        text.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 3 } else { 0 }..];
    }
    text
}

/// Parses a line of the table.
fn device_and_kind(line: &str) -> Option<(u64, &str)> {
    let (mount, source) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let number = device_number(major.parse().ok()?, minor.parse().ok()?);
    Some((number, source.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_memory_and_those_elsewhere_are_found_once_each() {
        let table = Mounts(String::from(
            "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:22 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw
24 22 0:5 / /proc rw - proc proc rw
25 22 0:22 /a /bound\\040a rw master:2 - tmpfs tmpfs rw
26 22 0:40 / /mnt rw - fuse.share share rw
28 22 0:41 / /home rw - nfs4 server:/home rw
29 22 0:42 / /sys/fs/fuse/connections rw - fusectl fusectl rw
27 22 0:6 / /dev rw - devtmpfs udev rw
nonsense
",
        ));
        assert_eq!(table.in_memory()[..3], [22, 6, 0]);
        assert_eq!(table.remote()[..3], [40, 41, 0]);
        let points = table.points();
        let unstored = |point: &[u8]| points.iter().find(|(p, _)| p == point).map(|(_, u)| *u);
        assert_eq!(
            (points.len(), unstored(b"/"), unstored(b"/proc")),
            (8, Some(false), Some(true))
        );
        assert_eq!((unstored(b"/mnt"), unstored(b"/bound a")), (Some(false), Some(true)));
    }

    #[test]
    fn servers_are_known_before_anything_of_theirs_is_mounted() {
        let servers = |table: &str| Mounts(table.into()).have_servers();
        let disk = "22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n";
        let formats = "30 24 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n";
        assert!(!servers(disk) && !servers(&format!("{disk}{formats}")));
        for line in [
            "28 22 0:41 / /home rw - nfs4 server:/home rw",
            "26 22 0:40 / /mnt rw - fuse.share share rw",
            "31 22 0:31 / /net rw - autofs auto.net rw",
        ] {
            assert!(servers(&format!("{disk}{formats}{line}\n")), "{line}");
        }
    }
}
