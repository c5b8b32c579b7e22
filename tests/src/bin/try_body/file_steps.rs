//! Steps that make, read and write files by name.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::step_context::{Context, Kind, Result, open};

/// Permissions that files and directories are made with.
const MODES: [u32; 6] = [0o644, 0o600, 0o755, 0o666, 0o400, 0o2770];

/// Bytes from the beginning of a file that are read.
const READ: usize = 64;

pub const KINDS: &[Kind] = &[
    Kind { name: "create", run: |context| written(context, OFlags::CREATE | OFlags::EXCL) },
    Kind { name: "overwrite", run: |context| written(context, OFlags::CREATE | OFlags::TRUNC) },
    Kind { name: "append", run: |context| written(context, OFlags::APPEND) },
    Kind {
        name: "append-or-create",
        run: |context| written(context, OFlags::CREATE | OFlags::APPEND),
    },
    Kind { name: "write-no-follow", run: |context| written(context, OFlags::NOFOLLOW) },
    Kind { name: "write-inside", run: write_inside },
    Kind { name: "write-far", run: write_far },
    Kind { name: "truncate", run: truncate },
    Kind { name: "punch", run: punch },
    Kind { name: "copy-range", run: copy_range },
    Kind { name: "nameless", run: nameless },
    Kind { name: "read", run: read },
    Kind { name: "read-through-map", run: read_map },
    Kind { name: "write-through-map", run: write_map },
    Kind { name: "open-directory-for-writing", run: write_directory },
    Kind { name: "rewrite-by-rename", run: rewrite },
    Kind { name: "rewrite-by-rename", run: rewrite },
];

fn written(context: &mut Context, flags: OFlags) -> Result {
    let path = context.path();
    let mode = context.one_of(&MODES);
    let file = open(&path, OFlags::WRONLY | flags, mode)?;
    let bytes = context.random.bytes(5000);
    Ok(rustix::io::write(&file, &bytes)?.to_string())
}

fn for_update(path: &str) -> std::result::Result<OwnedFd, Errno> {
    open(path, OFlags::RDWR, 0)
}

fn write_inside(context: &mut Context) -> Result {
    let path = context.path();
    let at = context.number(6000);
    let file = for_update(&path)?;
    Ok(rustix::io::pwrite(&file, &context.random.bytes(300), at)?.to_string())
}

fn write_far(context: &mut Context) -> Result {
    let path = context.path();
    let file = for_update(&path)?;
    let at = 1 << (17 + context.number(6));
    Ok(rustix::io::pwrite(&file, b"far", at)?.to_string())
}

fn truncate(context: &mut Context) -> Result {
    let path = context.path();
    let length = context.number(9000);
    let c_path = std::ffi::CString::new(path).expect("no zero byte");
    // SAFETY: the path ends with a zero byte.
    match unsafe { libc::truncate(c_path.as_ptr(), length as i64) } {
        0 => Ok("done".into()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("it has a number")),
    }
}

fn punch(context: &mut Context) -> Result {
    let path = context.path();
    let file = for_update(&path)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 4096 * context.number(3), 8192)?;
    Ok("done".into())
}

fn copy_range(context: &mut Context) -> Result {
    let (from, to) = (context.path(), context.path());
    let from = open(&from, OFlags::RDONLY, 0)?;
    let to = open(&to, OFlags::WRONLY | OFlags::CREATE, 0o644)?;
    if rustix::fs::fstat(&from)?.st_ino == rustix::fs::fstat(&to)?.st_ino {
        return Ok("one file".into());
    }
    match rustix::fs::copy_file_range(&from, None, &to, None, 1 << 20) {
        // As programs do. Where the state is on another file system, a try meets this more often.
        Err(Errno::XDEV) => {
            let mut bytes = vec![0; 1 << 20];
            let count = rustix::io::read(&from, &mut bytes)?;
            Ok(rustix::io::write(&to, &bytes[..count])?.to_string())
        }
        copied => Ok(copied?.to_string()),
    }
}

/// Makes a file without a name, writes it and gives it one.
fn nameless(context: &mut Context) -> Result {
    let (directory, path) = (context.random.plain_path(), context.path());
    let directory = if context.number(2) == 0 { ".".into() } else { directory };
    let file = open(&directory, OFlags::TMPFILE | OFlags::RDWR, 0o640)?;
    rustix::io::write(&file, &context.random.bytes(100))?;
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, &name, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
    Ok("done".into())
}

fn read(context: &mut Context) -> Result {
    let path = context.path();
    let file = open(&path, OFlags::RDONLY, 0)?;
    let mut bytes = [0; READ];
    let count = rustix::io::pread(&file, &mut bytes, context.number(3) * 1000)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).replace('\0', "0"))
}

/// Maps the first page of a file, and returns what `with` makes of it.
fn with_map(file: &OwnedFd, writable: bool, with: impl FnOnce(&mut [u8]) -> String) -> Result {
    let size = rustix::fs::fstat(file)?.st_size as usize;
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    if size == 0 {
        return Ok("empty".into());
    }
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: a new mapping, where the kernel likes; nothing else knows its address.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, descriptor, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(
            Errno::from_io_error(&std::io::Error::last_os_error()).expect("it has a number")
        );
    }
    // SAFETY: mapped above, within the file's size, and no other reference exists. Without
    // `writable` the closures only read.
    let said = with(unsafe { std::slice::from_raw_parts_mut(at.cast(), size.min(4096)) });
    // SAFETY: mapped above, and the reference is gone.
    unsafe { libc::munmap(at, 4096) };
    Ok(said)
}

fn read_map(context: &mut Context) -> Result {
    let path = context.path();
    let file = open(&path, OFlags::RDONLY, 0)?;
    with_map(&file, false, |bytes| {
        bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_string()
    })
}

fn write_map(context: &mut Context) -> Result {
    let path = context.path();
    let file = for_update(&path)?;
    let byte = b'A' + context.number(26) as u8;
    with_map(&file, true, |bytes| {
        bytes[0] = byte;
        bytes.len().to_string()
    })
}

fn write_directory(context: &mut Context) -> Result {
    let path = context.path();
    let made = open(&path, OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(context.one_of(&[0o755, 0o700, 0o1777])))?;
    Ok("done".into())
}

/// Writes a new file and renames it over the old one, as editors do.
fn rewrite(context: &mut Context) -> Result {
    let path = context.path();
    let new = format!("{path}.new");
    let file = open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o644)?;
    rustix::io::write(&file, &context.random.bytes(900))?;
    let renamed = rustix::fs::rename(&new, &path);
    if renamed.is_err() {
        rustix::fs::unlink(&new)?;
    }
    renamed.map(|()| "done".into())
}
