//! Descriptors of a shadow: real ones of its own, stand-ins, and sinks.
//!
//! The program sees the numbers that it would see in the target; this table has what backs each
//! number. Nothing is shared with the target. Inherited regular files and directories are replaced
//! by `O_PATH` descriptors, and reopened read-only by the runner that reads them. (An open
//! description would share its offset and locks and, kept open for writing, cause ETXTBSY.) All
//! other descriptors are closed before the target goes on.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::Control;
use runahead_estimators::{Identity, filesystem_table};

use super::open_allowlist;
use crate::descriptor_names::{NAMES, TRACKED_DESCRIPTORS};
use crate::path_text::FdPath;
use crate::sys::{self, AT_FDCWD, Errno, Fd};
use crate::thread_owned::Owned;
use crate::uninherited_memory;

/// Assumed size of a file of unknown size, in bytes. Most files of a tree are shorter than two
/// pages; an odd number is unlikely to be a real size.
pub(super) const LIKELY_FILE_BYTES: u64 = 6007;

/// Object that backs a descriptor number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// The number is free.
    Free,
    /// A regular file, open as this descriptor; an `O_PATH` descriptor if it was inherited.
    File(Fd),
    /// A directory, open as this descriptor, which may be an `O_PATH` one.
    Directory(Fd),
    /// A file that is not open yet: its name was not in memory.
    ColdFile,
    /// A directory that is not open yet.
    ColdDirectory,
    /// Takes output and gives none: terminals, sockets, files opened for writing.
    Sink,
    /// Either end of a pipe.
    Pipe,
}

/// A descriptor of the program.
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// Object that backs the descriptor.
    pub backing: Backing,
    /// Identity of the object in the hint log.
    pub identity: Identity,
    /// Offset of the next read; for a directory the cookie to seek to.
    pub offset: u64,
    /// Size of the file in bytes, known or guessed.
    pub size: u64,
    /// Absolute path in the [`super::path_pool::PathPool`]; empty until it is asked for.
    pub path: (u32, u32),
    /// True once a directory has returned its last entry, or its own description has been opened.
    pub listed: bool,
    /// True if the real descriptor is this runner's own, not shared with its template.
    pub is_own: bool,
    /// True if an exemplar, another file of the same kind, is read in place of the file.
    pub is_exemplar: bool,
}

const FREE_DESCRIPTOR: Descriptor = Descriptor {
    backing: Backing::Free,
    identity: Identity::UNSET,
    offset: 0,
    size: 0,
    path: (0, 0),
    listed: false,
    is_own: false,
    is_exemplar: false,
};

/// Descriptor table of a shadow.
pub struct DescriptorTable {
    table: [Descriptor; TRACKED_DESCRIPTORS],
}

// SAFETY: zeroes, like all of it; placed at the end of the image so that small statics share pages.
#[unsafe(link_section = ".bss.large")]
static DESCRIPTORS: Owned<DescriptorTable> =
    Owned::new(DescriptorTable { table: [FREE_DESCRIPTOR; TRACKED_DESCRIPTORS] });

/// The shadow's table.
///
/// # Safety
/// In a shadow, with no other reference to it in use.
pub(super) unsafe fn table() -> &'static mut DescriptorTable {
    // SAFETY: passed on to the caller.
    unsafe { DESCRIPTORS.get() }
}

impl DescriptorTable {
    /// Entry of `fd`, unless the number is free.
    pub fn get(&mut self, fd: Fd) -> Option<&mut Descriptor> {
        let entry = self.table.get_mut(usize::try_from(fd).ok()?)?;
        (entry.backing != Backing::Free).then_some(entry)
    }

    /// Takes the lowest free number from `from`, as open(2) and dup(2) do.
    pub fn open(&mut self, from: usize, descriptor: Descriptor) -> Option<Fd> {
        let free = (from..TRACKED_DESCRIPTORS).find(|&n| self.table[n].backing == Backing::Free)?;
        self.table[free] = descriptor;
        Some(free as Fd)
    }

    /// dup2(2): makes `to` the given descriptor, whatever it was.
    pub fn replace(&mut self, to: Fd, descriptor: Descriptor) -> Option<()> {
        *self.table.get_mut(usize::try_from(to).ok()?)? = descriptor;
        Some(())
    }

    /// Frees the number, and closes the real descriptor unless another number needs it.
    pub fn close(&mut self, fd: Fd) -> bool {
        let Some(entry) = self.get(fd) else { return false };
        let Descriptor { backing: behind, is_own: own, .. } = *entry;
        *entry = FREE_DESCRIPTOR;
        if let (Backing::File(real) | Backing::Directory(real), true) = (behind, own)
            && !self.table.iter().any(|d| d.backing == behind)
        {
            let _ = sys::close(real);
        }
        true
    }
}

impl Descriptor {
    /// A new descriptor at offset 0.
    pub fn new(behind: Backing, identity: Identity) -> Self {
        Descriptor { backing: behind, identity, is_own: true, ..FREE_DESCRIPTOR }
    }
}

/// Closes all inherited descriptors, except those that can be reopened for reading.
pub(super) fn give_up_inherited() -> sys::Result<()> {
    // SAFETY: in the new process, on its only thread; the reference ends with this function.
    let files = unsafe { table() };
    files.table = [FREE_DESCRIPTOR; TRACKED_DESCRIPTORS];
    let list = sys::openat2(
        AT_FDCWD,
        c"/proc/thread-self/fd".as_ptr() as u64,
        k::O_DIRECTORY | k::O_CLOEXEC,
        0,
        0,
    )?;
    let mut buf = [0u8; 4096];
    let mut open = DescriptorSet::default();
    // The directory is read to its end before any descriptor changes.
    loop {
        let got = sys::getdents(list, &mut buf)?;
        if got == 0 {
            break;
        }
        each_entry(&buf[..got], |_, name, _| {
            if let Some(fd) = parse_descriptor(name) {
                open.add(fd);
            }
        });
    }
    sys::close(list)?;
    // SAFETY: the one thread of a new process.
    let memory = unsafe { uninherited_memory::target_memory() };
    for fd in open.all() {
        if memory.is_some_and(|of_target| of_target.descriptors().any(|its| its == fd)) {
            // The agent's own descriptors, which the program does not know.
            continue;
        }
        let inherited = replace_by_place(fd);
        match inherited {
            Some((behind, offset, size)) => {
                let identity = NAMES.identity(fd);
                let descriptor = Descriptor { offset, size, ..Descriptor::new(behind, identity) };
                files.replace(fd, Descriptor { is_own: false, ..descriptor });
            }
            None => {
                let behind = if sys::is_pipe(fd) { Backing::Pipe } else { Backing::Sink };
                if sys::close(fd).is_ok() {
                    files.replace(fd, Descriptor::new(behind, NAMES.identity(fd)));
                }
            }
        }
    }
    Ok(())
}

/// Set of descriptor numbers, of which few are high.
struct DescriptorSet {
    /// Bit set of the lower numbers.
    low: [u64; DescriptorSet::WORDS],
    /// Highest number of all.
    highest: Fd,
}

impl Default for DescriptorSet {
    fn default() -> Self {
        DescriptorSet { low: [0; Self::WORDS], highest: -1 }
    }
}

impl DescriptorSet {
    const WORDS: usize = 64;
    const LOW: Fd = Self::WORDS as Fd * 64;

    fn add(&mut self, fd: Fd) {
        if let Some(word) = self.low.get_mut(fd as usize / 64) {
            *word |= 1 << (fd % 64);
        }
        self.highest = self.highest.max(fd);
    }

    /// The numbers that were added; beyond the bit set, every number up to the highest.
    fn all(&self) -> impl Iterator<Item = Fd> {
        let low = self.low;
        let is_in = move |&fd: &Fd| fd >= Self::LOW || low[fd as usize / 64] >> (fd % 64) & 1 != 0;
        (0..=self.highest).filter(is_in)
    }
}

/// Replaces `fd` by an `O_PATH` descriptor. Returns its kind, offset and size, or `None` if it is
/// neither file nor directory.
///
/// Nothing of the target's description is left, and nothing is opened: on a network file system
/// that could wait for the server, and the target waits for this.
fn replace_by_place(fd: Fd) -> Option<(Backing, u64, u64)> {
    let stat = sys::statx_fd(fd, k::STATX_TYPE | k::STATX_SIZE).ok()?;
    let flags = sys::status_flags(fd).ok()? as u32;
    let directory = match u32::from(stat.stx_mode) & k::S_IFMT {
        k::S_IFDIR => true,
        k::S_IFREG => false,
        _ => return None,
    };
    if flags & k::O_PATH != 0 {
        return directory.then_some((Backing::Directory(fd), 0, 0));
    }
    let offset = sys::lseek(fd, 0, k::SEEK_CUR).unwrap_or(0);
    let new =
        sys::openat2(AT_FDCWD, FdPath::new(fd).address(), k::O_PATH | k::O_CLOEXEC, 0, 0).ok()?;
    sys::dup3(new, fd, k::O_CLOEXEC).ok()?;
    sys::close(new).ok()?;
    let behind = if directory { Backing::Directory(fd) } else { Backing::File(fd) };
    Some((behind, offset, stat.stx_size))
}

/// Reopens a regular file or directory for reading. Its access time stays as it is where that is
/// allowed (O_NOATIME needs ownership).
pub(super) fn reopen(fd: Fd, directory: bool) -> sys::Result<Fd> {
    let path = FdPath::new(fd);
    let kind = if directory { k::O_DIRECTORY } else { k::O_NONBLOCK | k::O_NOCTTY };
    let flags = k::O_RDONLY | k::O_CLOEXEC | kind;
    match open_allowlist::open(AT_FDCWD, path.address(), flags | k::O_NOATIME, 0) {
        Err(Errno(sys::EPERM)) => open_allowlist::open(AT_FDCWD, path.address(), flags, 0),
        other => other,
    }
}

/// True if memory is scarce, so that little may be read ahead of the program.
pub(super) fn is_memory_scarce(control: &Control) -> bool {
    const AMPLE: u64 = 256 << 20;
    control.bytes_budget.load(Relaxed) < AMPLE
}

/// Reopens a regular file for reading. Where memory is scarce the kernel's readahead is turned off,
/// as it is not accounted for.
pub(super) fn reopen_file(fd: Fd, control: &Control) -> sys::Result<Fd> {
    let opened = reopen(fd, false)?;
    if is_memory_scarce(control) {
        sys::read_at_random(opened);
    }
    Ok(opened)
}

/// True if the file system of the regular file `fd` stores files: a size of 0 is then true.
///
/// This may wait for a server.
pub(super) fn has_true_size(fd: Fd) -> bool {
    sys::filesystem_type(fd).is_ok_and(|kind| filesystem_table::by_number(kind).stores())
}

/// True for a file of procfs that every user may read: reading it takes no data from another
/// reader.
pub(super) fn is_readable_by_all(fd: Fd) -> bool {
    const PROC: u64 = 0x9fa0;
    sys::filesystem_type(fd) == Ok(PROC)
        && sys::statx_fd(fd, k::STATX_MODE).is_ok_and(|stat| stat.stx_mode & 0o444 == 0o444)
}

/// Calls `each` with (inode, name, type) of every entry in a buffer that getdents64(2) filled.
pub(crate) fn each_entry(buf: &[u8], mut each: impl FnMut(u64, &[u8], u8)) {
    const NAME: usize = 19;
    let mut rest = buf;
    while rest.len() > NAME {
        let inode = u64::from_le_bytes(core::array::from_fn(|i| rest[i]));
        let len = u16::from_le_bytes([rest[16], rest[17]]) as usize;
        if len <= NAME || len > rest.len() {
            return;
        }
        let name = &rest[NAME..len];
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        each(inode, &name[..end], rest[18]);
        rest = &rest[len..];
    }
}

fn parse_descriptor(name: &[u8]) -> Option<Fd> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_apart_below_and_all_taken_above() {
        let mut numbers = DescriptorSet::default();
        assert_eq!(numbers.all().count(), 0);
        [0, 2, 63, 64, DescriptorSet::LOW - 1].into_iter().for_each(|fd| numbers.add(fd));
        assert!(numbers.all().eq([0, 2, 63, 64, DescriptorSet::LOW - 1]));
        numbers.add(DescriptorSet::LOW + 2);
        assert!(numbers.all().skip(5).eq(DescriptorSet::LOW..=DescriptorSet::LOW + 2));
    }
}
