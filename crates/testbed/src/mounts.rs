//! Mounting, unmounting, and what is mounted where.
//!
//! Invariant: only `/proc/self/mountinfo` is asked about mounts, never the mounted file system,
//! which may be dead.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::thread::UnshareFlags;

use crate::{Error, Missing, Step};

/// The type of our FUSE mounts, as `mountinfo` shows it.
const FUSE_TYPE: &str = "fuse.runahead-testbed";

/// Line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) fstype: String,
    pub(crate) source: OsString,
}

impl Mounted {
    pub(crate) fn is_our_fuse(&self) -> bool {
        self.fstype == FUSE_TYPE
    }
}

/// Mounts at `path` (canonical), topmost last.
pub(crate) fn mounted_at(path: &Path) -> Result<Vec<Mounted>, Error> {
    let table = Path::new("/proc/self/mountinfo");
    let text = std::fs::read(table).map_err(Error::system(Step::Inspect, table))?;
    Ok(text
        .split(|b| *b == b'\n')
        .filter_map(parse_line)
        .filter(|(at, _)| at == path)
        .map(|(_, mounted)| mounted)
        .collect())
}

/// Gives this process a mount table of its own, in which nothing lies on a testbed. Else a server
/// that is killed as the last process of a mount namespace unmounts its own disk, in the kernel,
/// before its end of the connection is closed. It then waits for its own answer, and so does every
/// caller of sync(2). Without root the table stays as it is, and there is no disk.
pub(crate) fn leave() {
    // SAFETY: there is one thread yet, and nothing that it has borrowed depends on where things are
    // mounted.
    #[allow(unsafe_code)]
    let left = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    if left.is_err() || rustix::mount::mount_change("/", private).is_err() {
        return;
    }
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = text.split(|b| *b == b'\n').filter_map(parse_line);
    let is_ours = |mounted: &Mounted| {
        mounted.is_our_fuse() || mounted.source.as_bytes().starts_with(b"/dev/loop")
    };
    for (at, _) in lines.filter(|(_, mounted)| is_ours(mounted)) {
        let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
    }
}

/// `36 35 98:0 /root /mount/point options... - type source super-options`, see proc(5).
fn parse_line(line: &[u8]) -> Option<(PathBuf, Mounted)> {
    let mut fields = line.split(|b| *b == b' ');
    let at = PathBuf::from(unescape(fields.nth(4)?));
    fields.find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some((at, Mounted { fstype, source }))
}

/// Undoes the kernel's `\040` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = |d: &[u8]| d.iter().fold(0u8, |n, c| n.wrapping_mul(8).wrapping_add(c & 7));
        if byte == b'\\' && tail.len() >= 3 {
            out.push(octal(&tail[..3]));
            rest = &tail[3..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    OsString::from_vec(out)
}

/// Mounts a FUSE file system at `dir`: directly where the kernel allows it, else through the setuid
/// `fusermount3`. Returns the connection to the kernel.
pub(crate) fn mount_fuse(dir: &Path) -> Result<OwnedFd, Error> {
    let failed = |source: io::Error| Error::system(Step::MountFuse, dir)(source);
    if !crate::probe::can_mount() {
        return fusermount(dir);
    }
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open("/dev/fuse")
        .map_err(failed)?;
    let mode = std::fs::metadata(dir).map_err(failed)?.mode();
    let options = format!(
        "fd={},rootmode={mode:o},user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd(),
    );
    let options = CString::new(options).map_err(|e| failed(e.into()))?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount("runahead-testbed", dir, FUSE_TYPE, flags, options.as_c_str())
        .map_err(|e| failed(e.into()))?;
    Ok(device.into())
}

/// `fusermount3` mounts with its own privileges and passes the descriptor over a socket.
fn fusermount(dir: &Path) -> Result<OwnedFd, Error> {
    let failed = |source: io::Error| Error::system(Step::MountFuse, dir)(source);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // The helper must inherit its end; `theirs` is closed in this process as soon as it has.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(|e| failed(e.into()))?;
    let child = Command::new("fusermount3")
        .args(["-o", "default_permissions,fsname=runahead-testbed,subtype=runahead-testbed", "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| helper_missing(e, failed))?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(helper_failed(dir, &output)),
        Err(e) => Err(failed(e)),
    }
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Unmounts what is on top at `dir`. In use: waits a moment (a program may just be ending), then
/// fails with [`Error::Busy`], or detaches if `lazy`.
pub(crate) fn unmount(dir: &Path, lazy: bool) -> Result<(), Error> {
    let give_up = Instant::now() + Duration::from_secs(1);
    loop {
        match unmount_once(dir, UnmountFlags::empty()) {
            Err(Error::Busy(_)) if Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Error::Busy(_)) if lazy => return unmount_once(dir, UnmountFlags::DETACH),
            other => return other,
        }
    }
}

fn unmount_once(dir: &Path, flags: UnmountFlags) -> Result<(), Error> {
    if !crate::probe::can_mount() {
        return fusermount_u(dir, flags);
    }
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(Error::Busy(dir.to_owned())),
        Err(e) => Err(Error::system(Step::Unmount, dir)(e.into())),
    }
}

fn fusermount_u(dir: &Path, flags: UnmountFlags) -> Result<(), Error> {
    let failed = |source: io::Error| Error::system(Step::Unmount, dir)(source);
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if flags.contains(UnmountFlags::DETACH) {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| helper_missing(e, failed))?;
    if output.status.success() {
        return Ok(());
    }
    // The helper's only sign of EBUSY is strerror's text.
    if output.stderr.windows(4).any(|w| w == b"busy") {
        return Err(Error::Busy(dir.to_owned()));
    }
    Err(helper_failed(dir, &output))
}

fn helper_missing(error: io::Error, otherwise: impl FnOnce(io::Error) -> Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Missing::Program { program: "fusermount3", package: "fuse3" }.into();
    }
    otherwise(error)
}

fn helper_failed(dir: &Path, output: &std::process::Output) -> Error {
    Error::Helper {
        program: "fusermount3",
        status: output.status,
        path: dir.to_owned(),
        message: last_line(&output.stderr),
    }
}

/// The last line that is not empty: where programs put the reason.
pub(crate) fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("no message").trim().to_owned()
}

/// Mounts the ext4 file system on `device` at `dir`.
pub(crate) fn mount_ext4(device: &Path, dir: &Path) -> Result<(), Error> {
    rustix::mount::mount(device, dir, "ext4", MountFlags::empty(), None)
        .map_err(|e| Error::system(Step::MountDisk, dir)(e.into()))
}

/// Writes what is dirty in the file system that holds `dir`.
pub(crate) fn sync_filesystem(dir: &Path) -> Result<(), Error> {
    let failed = |e: io::Error| Error::system(Step::WriteBack, dir)(e);
    let dir = File::open(dir).map_err(failed)?;
    rustix::fs::syncfs(dir).map_err(|e| failed(e.into()))
}

/// True if a mount's source is this path.
pub(crate) fn is_source(mounted: &Mounted, device: &Path) -> bool {
    OsStr::as_bytes(&mounted.source) == device.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines() {
        let line = br"36 35 98:0 / /mnt/a\040b rw,noatime master:1 - ext4 /dev/loop7 rw";
        let (at, mounted) = parse_line(line).unwrap();
        assert_eq!(at, Path::new("/mnt/a b"));
        assert_eq!(mounted.fstype, "ext4");
        assert!(is_source(&mounted, Path::new("/dev/loop7")));
        assert!(parse_line(b"").is_none());
        assert_eq!(unescape(br"back\134slash"), "back\\slash");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(!mounted_at(Path::new("/")).unwrap().is_empty());
        assert!(mounted_at(Path::new("/no/such/place")).unwrap().is_empty());
    }
}
