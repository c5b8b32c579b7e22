//! Path text: the program's strings, and the absolute names that hints need.

use runahead_abi::PATH_MAX;

use crate::sys::{self, AT_FDCWD, Fd};

/// Buffer for one path and its NUL.
pub type PathBuf = [u8; PATH_MAX + 1];

/// The NUL-terminated string at `at`, without its NUL; cut at `PATH_MAX`.
///
/// # Safety
/// The kernel has just read this string for the same thread, or a fault here may end the
/// process (as it may in a shadow). It does not change while the result is in use.
pub unsafe fn c_string<'a>(at: u64) -> &'a [u8] {
    // SAFETY: passed on to the caller.
    let whole = unsafe { c_string_within(at, u64::MAX) };
    // SAFETY: the same: so many bytes have just been read.
    whole.unwrap_or_else(|| unsafe { core::slice::from_raw_parts(at as *const u8, PATH_MAX) })
}

/// The string at an address, without its NUL; `None` if it is longer than `PATH_MAX`, or does not
/// end in the first `most` bytes. Bytes beyond them are not read.
///
/// # Safety
/// As for [`c_string`], of these bytes.
pub unsafe fn c_string_within<'a>(at: u64, most: u64) -> Option<&'a [u8]> {
    let start = at as *const u8;
    let most = most.min(PATH_MAX as u64 + 1) as usize;
    // SAFETY: up to the NUL that the caller promises, one byte at a time.
    let len = (0..most).find(|&len| unsafe { *start.add(len) } == 0)?;
    // SAFETY: the bytes just read.
    Some(unsafe { core::slice::from_raw_parts(start, len) })
}

/// True for absolute paths into file systems that the kernel generates on demand: a lookup there
/// never finds its name in memory, and never waits for storage. `/dev` is not one, as others are
/// mounted below it.
pub fn is_made_up(path: &[u8]) -> bool {
    [&b"/proc/"[..], b"/sys/"].iter().any(|prefix| path.starts_with(prefix))
}

/// True if the name is below a directory in `/dev/shm`, where others are mounted. Memory that is
/// shared by name lies directly in `/dev/shm` (shm_overview(7)).
pub fn is_below_shm(name: &[u8]) -> bool {
    name.strip_prefix(b"/dev/shm/").is_some_and(|rest| rest.contains(&b'/'))
}

/// True if the name is that of a file that may exist again in a later run.
pub fn is_lasting(name: &[u8]) -> bool {
    name.first() == Some(&b'/')
        && !name.ends_with(b" (deleted)")
        && (!name.starts_with(b"/dev/") || is_below_shm(name))
        && !is_made_up(name)
        && name.len() < PATH_MAX
}

/// Writes a number into the front of `text`, which has room for ten digits.
pub fn decimal(number: u32, text: &mut [u8]) {
    let mut digits = [0u8; 10];
    let (mut rest, mut count) = (number, 0);
    while count == 0 || rest > 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    text.iter_mut().zip(digits[..count].iter().rev()).for_each(|(place, digit)| *place = *digit);
}

/// `/proc/thread-self/fd/N`, NUL-terminated. It names the thread: after the end of the first
/// thread of a process, the PID leads to no descriptors.
pub struct FdPath([u8; 32]);

impl FdPath {
    /// The name by which `fd` can be opened again.
    pub fn new(fd: Fd) -> Self {
        const PREFIX: &[u8] = b"/proc/thread-self/fd/";
        let mut text = [0u8; 32];
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        decimal(fd as u32, &mut text[PREFIX.len()..]);
        FdPath(text)
    }

    /// The name, without its NUL.
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..len]
    }

    /// Address of the name, for the kernel.
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// Writes the absolute path of directory `dir` (or of the working directory) to `out`. Returns its
/// length, or `None` if it has no name that can be opened: deleted, or outside this root.
pub fn directory(dir: Fd, out: &mut PathBuf) -> Option<usize> {
    let len = if dir == AT_FDCWD {
        sys::getcwd(&mut out[..PATH_MAX]).ok()?.checked_sub(1)?
    } else {
        sys::readlinkat(AT_FDCWD, FdPath::new(dir).address(), &mut out[..PATH_MAX]).ok()?
    };
    let text = &out[..len];
    (text.first() == Some(&b'/') && !text.ends_with(b" (deleted)")).then_some(len)
}

/// Appends `path` to the directory of length `len` in `out`, or replaces it if absolute, and ends
/// it with a NUL. Returns the new length without the NUL.
pub fn append(out: &mut PathBuf, len: usize, path: &[u8]) -> Option<usize> {
    let mut end = if path.first() == Some(&b'/') { 0 } else { len };
    if end > 0 && out[end - 1] != b'/' && !path.is_empty() {
        *out.get_mut(end)? = b'/';
        end += 1;
    }
    let room = out.get_mut(end..end + path.len())?;
    room.copy_from_slice(path);
    end += path.len();
    *out.get_mut(end)? = 0;
    (end > 0).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_last_are_told() {
        let lasting = ["/usr/lib/libc.so.6", "/data/a b", "/dev/shm/disk/x"];
        let others = ["", "[heap]", "/memfd:x (deleted)", "/dev/shm/x", "/proc/self/mem"];
        assert!(lasting.iter().all(|name| is_lasting(name.as_bytes())));
        assert!(!others.iter().any(|name| is_lasting(name.as_bytes())));
    }

    #[test]
    fn descriptors_have_names() {
        for (fd, name) in [
            (0, "/proc/thread-self/fd/0"),
            (7, "/proc/thread-self/fd/7"),
            (i32::MAX, "/proc/thread-self/fd/2147483647"),
        ] {
            let path = FdPath::new(fd);
            assert_eq!(&path.0[..name.len() + 1], [name.as_bytes(), b"\0"].concat());
        }
    }

    #[test]
    fn paths_join_like_the_kernel_resolves_them() {
        let mut out = [0xff; PATH_MAX + 1];
        out[..4].copy_from_slice(b"/dir");
        assert_eq!(append(&mut out, 4, b"a/b"), Some(8));
        assert_eq!(&out[..9], b"/dir/a/b\0");
        assert_eq!(append(&mut out, 8, b"/etc"), Some(4));
        assert_eq!(&out[..5], b"/etc\0");
        assert_eq!(append(&mut out, 4, b""), Some(4));
        out[0] = b'/';
        assert_eq!(append(&mut out, 1, b"x"), Some(2));
        assert_eq!(&out[..3], b"/x\0");
        assert_eq!(append(&mut out, PATH_MAX - 1, b"too long"), None);
    }
    extern crate std;
}
