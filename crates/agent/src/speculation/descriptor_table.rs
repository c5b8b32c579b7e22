//! Cached facts about descriptors: which are private to this process, what each names, and the
//! program's policy for writes to it.
//!
//! A descriptor that was inherited, or that a child inherited or another process received, shares
//! its offset with another process. That process would see the offset move.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_estimators::filesystem_table;

use super::output_buffer::{self, DescriptorKind};
use super::socket_pairs;
use crate::spin_lock::Lock;
use crate::sys::{self, Fd};

/// Descriptors that are tracked; others count as shared.
pub const DESCRIPTORS: usize = 1024;

static PRIVATE: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static POLICIES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];

fn word_and_bit(fd: Fd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((PRIVATE.get(fd / 64)?, 1 << (fd % 64)))
}

/// True if `fd` names a file or directory and is private to this process. Conditions as for
/// [`info`].
pub fn is_private_file(fd: Fd) -> bool {
    is_private(fd)
        && info(fd).is_some_and(|known| {
            matches!(known.kind, DescriptorKind::File(_) | DescriptorKind::Directory)
        })
}

/// True if `fd` is private to this process, whatever it names.
pub fn is_private(fd: Fd) -> bool {
    word_and_bit(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Marks `fd` as private to this process, or as shared.
pub fn set_private(fd: Fd, own: bool) {
    if let Some((word, bit)) = word_and_bit(fd) {
        match own {
            true => word.fetch_or(bit, Relaxed),
            false => word.fetch_and(!bit, Relaxed),
        };
    }
}

/// Marks all descriptors as shared: another process has or may have them.
pub fn share_all() {
    PRIVATE.iter().for_each(|word| word.store(0, Relaxed));
}

/// Returns the program's policy for writes to `fd`: a value of the interface, 0 for none.
pub fn policy(fd: Fd) -> u8 {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| POLICIES.get(fd))
        .map_or(0, |policy| policy.load(Relaxed))
}

/// Sets the program's policy for `fd` and returns the previous one. None: `fd` is not tracked.
pub fn set_policy(fd: Fd, policy: u8) -> Option<u8> {
    let place = usize::try_from(fd).ok().and_then(|fd| POLICIES.get(fd))?;
    Some(place.swap(policy, Relaxed))
}

/// Facts about a descriptor.
#[derive(Clone, Copy)]
pub struct DescriptorInfo {
    /// Kind of object that it names.
    pub kind: DescriptorKind,
    /// True for a regular file that stores what is written to it. A read takes nothing away and
    /// waits only for storage.
    pub is_stored: bool,
    /// True if writes to it can be held: it is writable, and the data does not stay in the
    /// program's buffer. A regular file must be stored by this machine.
    pub can_hold_output: bool,
}

/// Facts by descriptor number, filled on first use.
static INFO_CACHE: Lock<[Option<DescriptorInfo>; DESCRIPTORS]> = Lock::new([None; DESCRIPTORS]);

/// Returns the facts about `fd`; None if it is not open. Signals must be blocked, or the process
/// has one thread.
pub fn info(fd: Fd) -> Option<DescriptorInfo> {
    let index = usize::try_from(fd).ok().filter(|&fd| fd < DESCRIPTORS);
    let before = index.and_then(|index| INFO_CACHE.try_with(|known| known[index]).flatten());
    before.or_else(|| {
        let flags = sys::status_flags(fd).ok()? as u32;
        // Another holder of a memfd may seal it against writes, unless F_SEAL_SEAL is set
        // (memfd_create(2)).
        let may_be_sealed = sys::file_seals(fd).is_ok_and(|seals| seals as u32 != k::F_SEAL_SEAL);
        let is_plain = flags & (k::O_PATH | k::O_DIRECT) == 0 && !may_be_sealed;
        let kind = output_buffer::kind(fd)?;
        let traits = match kind {
            DescriptorKind::File(_) => {
                filesystem_table::by_number(sys::filesystem_type(fd).unwrap_or(0))
            }
            _ => filesystem_table::Traits::default(),
        };
        let is_here =
            !matches!(kind, DescriptorKind::File(_)) || traits.stores() && !traits.is_remote();
        let takes = flags & k::O_ACCMODE != k::O_RDONLY && is_plain && is_here;
        let now = DescriptorInfo { kind, is_stored: traits.stores(), can_hold_output: takes };
        // The socket may yet be connected.
        if let Some(index) = index
            && kind != DescriptorKind::Local(None)
        {
            INFO_CACHE.try_with(|known| known[index] = Some(now));
        }
        Some(now)
    })
}

/// Cached answers of [`may_be_pipe`], by descriptor number.
static PIPES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
const IS_PIPE: u8 = 1;
const IS_NOT: u8 = 2;

/// True if `fd` is a pipe or local stream socket; usable while signal handlers can run. A handler
/// that opens another file as `fd` meanwhile leaves a wrong answer until that is closed.
pub fn may_be_pipe(fd: Fd) -> bool {
    let Some(pipe) = usize::try_from(fd).ok().and_then(|fd| PIPES.get(fd)) else { return false };
    match pipe.load(Relaxed) {
        0 => {
            let is_pipe = output_buffer::is_pipe(fd) || socket_pairs::is_local_stream(fd);
            pipe.store(if is_pipe { IS_PIPE } else { IS_NOT }, Relaxed);
            is_pipe
        }
        known => known == IS_PIPE,
    }
}

/// Drops the facts about `fd`, which may name something else from here on or have other flags.
pub fn invalidate(fd: Fd) {
    if let Some(index) = usize::try_from(fd).ok().filter(|&fd| fd < DESCRIPTORS) {
        INFO_CACHE.with(|known| known[index] = None);
        PIPES[index].store(0, Relaxed);
    }
}

/// Drops the facts about all descriptors.
pub fn invalidate_all() {
    INFO_CACHE.with(|known| *known = [None; DESCRIPTORS]);
    PIPES.iter().for_each(|pipe| pipe.store(0, Relaxed));
}

/// Resets the cache in a forked child. The thread that held its lock is not in the child.
pub fn in_child() {
    INFO_CACHE.break_open();
    invalidate_all();
}
