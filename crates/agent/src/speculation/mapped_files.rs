//! Files that processes of the session map, and held output for them.
//!
//! A process sees in its mapping what any process writes to the file, without a call that could
//! wait. So output for a mapped file is not held: the write waits. A process that maps a file for
//! which another process already holds output does not depend on any process until all output for
//! files is written.
//!
//! A mapping is noted before it is made, and a write is held before the note is read. So one of the
//! two processes finds the other.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general as k;
use runahead_abi::FileId;
use runahead_speculation::Session as Shared;

use super::table_host;
use crate::plane::Call;
use crate::sys::{self, nr};

/// True if this process has mapped a file while output was held for it.
static HAS_MAPPED_HELD: AtomicBool = AtomicBool::new(false);

/// Notes the file that `call` is about to map, if any. Signals need not be blocked.
pub fn note_call(call: &Call) {
    if call.nr != nr::MMAP || call.args[3] as u32 & k::MAP_ANONYMOUS != 0 {
        return;
    }
    let Some(shared) = table_host::shared() else { return };
    // What is no regular file is noted without harm: its output is not held as a file's.
    let Ok(told) = sys::statx_fd(call.fd(4), k::STATX_INO) else { return };
    let device = runahead_abi::device_number(told.stx_dev_major, told.stx_dev_minor);
    shared.mapped.note(device, told.stx_ino);
    if shared.files.may_be_held(device, told.stx_ino) {
        HAS_MAPPED_HELD.store(true, SeqCst);
    }
}

/// True if a process of the session may have mapped `file`.
pub fn may_be_mapped(file: FileId) -> bool {
    table_host::shared().is_some_and(|shared| shared.mapped.may_be_mapped(file.device, file.inode))
}

/// True if a mapping of this process may lack output that another process holds.
pub fn may_lack_held_output(shared: &Shared) -> bool {
    if HAS_MAPPED_HELD.load(SeqCst) && !shared.files.any_held() {
        // No output is held for the file from here on, because it is noted as mapped.
        HAS_MAPPED_HELD.store(false, SeqCst);
    }
    HAS_MAPPED_HELD.load(SeqCst)
}
