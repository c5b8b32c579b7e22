//! What is known of descriptors: which of them this process alone has, what each stands for, and what the program
//! wants done with what it writes.
//!
//! One that was inherited, or that a child has inherited or somebody was sent, shares its offset with another process, which
//! would see it move.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::filesystem_table;

use super::output_buffer::{self, DescriptorKind};
use super::socket_pairs;
use crate::lock::Lock;
use crate::sys::{self, Fd};

/// Descriptors that are looked after; others are taken to be shared.
pub const DESCRIPTORS: usize = 1024;

static PRIVATE: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static POLICIES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];

fn word_and_bit(fd: Fd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((PRIVATE.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether it is of a file or directory, and no other process has it. As for [`known`].
pub fn is_private_file(fd: Fd) -> bool {
    is_private(fd)
        && info(fd).is_some_and(|known| {
            matches!(known.kind, DescriptorKind::File(_) | DescriptorKind::Directory)
        })
}

/// Whether no other process has it, whatever it is.
pub fn is_private(fd: Fd) -> bool {
    word_and_bit(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Whether that is so from here on.
pub fn set_private(fd: Fd, own: bool) {
    if let Some((word, bit)) = word_and_bit(fd) {
        match own {
            true => word.fetch_or(bit, Relaxed),
            false => word.fetch_and(!bit, Relaxed),
        };
    }
}

/// Another process has, or may have, all of them.
pub fn share_all() {
    PRIVATE.iter().for_each(|word| word.store(0, Relaxed));
}

/// What the program has said of what it writes to `fd`: a value of the interface, 0 for nothing.
pub fn policy(fd: Fd) -> u8 {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| POLICIES.get(fd))
        .map_or(0, |policy| policy.load(Relaxed))
}

/// The program says so; what it had said before. None: it is no descriptor that is looked after.
pub fn set_policy(fd: Fd, policy: u8) -> Option<u8> {
    let place = usize::try_from(fd).ok().and_then(|fd| POLICIES.get(fd))?;
    Some(place.swap(policy, Relaxed))
}

/// What is known of a descriptor.
#[derive(Clone, Copy)]
pub struct DescriptorInfo {
    /// What it stands for.
    pub kind: DescriptorKind,
    /// A regular file that keeps what was written to it: who reads it takes nothing away, and waits for nobody but storage.
    pub is_stored: bool,
    /// It can be written to, and what is written lies in no buffer of the program's afterwards; if it is a regular file, it is stored by
    /// this machine.
    pub can_hold_output: bool,
}

/// Of each, once it was asked for.
static INFO_CACHE: Lock<[Option<DescriptorInfo>; DESCRIPTORS]> = Lock::new([None; DESCRIPTORS]);

/// What `fd` is; None: it is not open. Signals must be blocked, or the process has one thread.
pub fn info(fd: Fd) -> Option<DescriptorInfo> {
    let index = usize::try_from(fd).ok().filter(|&fd| fd < DESCRIPTORS);
    let before = index.and_then(|index| INFO_CACHE.try_with(|known| known[index]).flatten());
    before.or_else(|| {
        let flags = sys::fcntl(fd, k::F_GETFL, 0).ok()? as u32;
        // (Who has a memfd may have writes refused, unless that is sealed itself: memfd_create(2).)
        let may_be_sealed =
            sys::fcntl(fd, k::F_GET_SEALS, 0).is_ok_and(|seals| seals as u32 != k::F_SEAL_SEAL);
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
        // (It may yet be connected.)
        if let Some(index) = index
            && kind != DescriptorKind::Local(None)
        {
            INFO_CACHE.try_with(|known| known[index] = Some(now));
        }
        Some(now)
    })
}

/// Of each descriptor, once it was asked for, whether it is a pipe or local stream socket.
static PIPES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
const IS_PIPE: u8 = 1;
const IS_NOT: u8 = 2;

/// Whether `fd` is a pipe or local stream socket, for who cannot keep handlers away. (One that comes in between and opens another there
/// leaves a wrong answer behind until that is closed.)
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

/// The descriptor may stand for something else from here on, or be used otherwise.
pub fn invalidate(fd: Fd) {
    if let Some(index) = usize::try_from(fd).ok().filter(|&fd| fd < DESCRIPTORS) {
        INFO_CACHE.with(|known| known[index] = None);
        PIPES[index].store(0, Relaxed);
    }
}

/// All may.
pub fn invalidate_all() {
    INFO_CACHE.with(|known| *known = [None; DESCRIPTORS]);
    PIPES.iter().for_each(|pipe| pipe.store(0, Relaxed));
}

/// In a forked child: whoever was at work there is not here.
pub fn in_child() {
    INFO_CACHE.break_open();
    invalidate_all();
}
