//! Inode numbers: a copy keeps the number of its original.
//!
//! A program that looks at a file before and after its copy-up finds the same file.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{InodeOrigins, Origin};
use runahead_abi::{FileId, device_number};

use super::call_results::{Call, CallResult, answer_call, copy_to_program};
use super::change_filter;
use super::kernel_calls::Stat;
use super::layer::Layer;
use super::lower_layer;
use crate::plane::{self, Verdict};
use crate::sys::{self, Result, nr};

fn origins(layer: Layer) -> &'static InodeOrigins {
    &change_filter::filter(layer).inodes
}

/// Records that the file `copy` was just copied from `of`.
pub(super) fn record_copy(layer: Layer, copy: &Stat, of: &Stat) {
    origins(layer).add(copy.origin().file, of.origin().file);
}

/// Forgets a file of the upper tree whose last name is about to be removed, or a directory.
pub(super) fn forget(layer: Layer, stat: &Stat) {
    if origins(layer).has_copies() && (stat.links == 1 || stat.is_directory()) {
        origins(layer).remove(stat.origin().file);
    }
}

/// Device and inode number that the view shows for a file of the upper tree.
pub(super) fn file_in_view(layer: Layer, upper: &Stat) -> FileId {
    let file = upper.origin().file;
    origins(layer).origin_of(file).unwrap_or(file)
}

/// True if results of stat calls are the kernel's: there is no copy, and no link count to correct.
fn are_unchanged(layer: Layer) -> bool {
    !origins(layer).has_copies() && change_filter::filter(layer).links.is_empty()
}

/// Link count that the view shows for `file`, which is in the view `shown`.
fn links_in_view(layer: Layer, file: FileId, shown: FileId, links: u32) -> Option<u32> {
    let table = &change_filter::filter(layer).links;
    if table.is_empty() || file != shown && !table.is_copied(shown) {
        return None;
    }
    Some(table.links(shown, links)).filter(|shown| *shown != links)
}

/// Address to which a stat call writes its result, and whether the call is statx(2).
fn result_address(call: &Call) -> (u64, bool) {
    match call.nr {
        nr::STATX => (call.args[4], true),
        nr::NEWFSTATAT => (call.args[2], false),
        _ => (call.args[1], false),
    }
}

/// Reads a result that the kernel just wrote.
pub(super) fn read_result<T: sys::PlainData>(at: u64) -> Result<T> {
    match plane::has_threads() {
        // SAFETY: the kernel has just written there, and no other thread can have taken it away;
        // plain data.
        false => Ok(unsafe { (at as *const T).read_unaligned() }),
        true => sys::copy_in(at),
    }
}

/// Corrects the result that the kernel just wrote: sets the original's device and inode number if
/// it is about a copy, and the link count of the view.
pub(super) fn restore_inode(layer: Layer, call: &Call) -> Result<()> {
    if are_unchanged(layer) {
        return Ok(());
    }
    let (at, extended) = result_address(call);
    if extended {
        let result: k::statx = read_result(at)?;
        let device = device_number(result.stx_dev_major, result.stx_dev_minor);
        let copy = FileId { device, inode: result.stx_ino };
        let shown = origins(layer).origin_of(copy).unwrap_or(copy);
        if let Some(links) = links_in_view(layer, copy, shown, result.stx_nlink) {
            let to = at + core::mem::offset_of!(k::statx, stx_nlink) as u64;
            copy_to_program(&links.to_ne_bytes(), to)?;
        }
        if shown == copy {
            return Ok(());
        }
        let FileId { device, inode } = shown;
        copy_to_program(
            &inode.to_ne_bytes(),
            at + core::mem::offset_of!(k::statx, stx_ino) as u64,
        )?;
        let numbers = ((device >> 32) as u32, device as u32);
        copy_to_program(
            &numbers.0.to_ne_bytes(),
            at + core::mem::offset_of!(k::statx, stx_dev_major) as u64,
        )?;
        return copy_to_program(
            &numbers.1.to_ne_bytes(),
            at + core::mem::offset_of!(k::statx, stx_dev_minor) as u64,
        );
    }
    let result: k::stat = read_result(at)?;
    let copy = FileId { device: from_st_dev(result.st_dev), inode: result.st_ino };
    let shown = origins(layer).origin_of(copy).unwrap_or(copy);
    if let Some(links) = links_in_view(layer, copy, shown, result.st_nlink as u32) {
        let to = at + core::mem::offset_of!(k::stat, st_nlink) as u64;
        copy_to_program(&u64::from(links).to_ne_bytes(), to)?;
    }
    if shown == copy {
        return Ok(());
    }
    let FileId { device, inode } = shown;
    let [a, b] = [to_st_dev(device), inode].map(u64::to_ne_bytes);
    let mut both = [0; 16];
    both[..8].copy_from_slice(&a);
    both[8..].copy_from_slice(&b);
    const _: () = assert!(core::mem::offset_of!(k::stat, st_dev) == 0);
    const _: () = assert!(core::mem::offset_of!(k::stat, st_ino) == 8);
    copy_to_program(&both, at)
}

/// Converts a device number from stat(2)'s form (makedev(3)) to the agent's.
fn from_st_dev(device: u64) -> u64 {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    device_number(major as u32, minor as u32)
}

/// Origin of the entry that the result of stat(2), which the kernel just wrote, is about.
pub(super) fn origin_of_result(call: &Call) -> Result<Origin> {
    let result: k::stat = read_result(result_address(call).0)?;
    Ok(Origin {
        file: FileId { device: from_st_dev(result.st_dev), inode: result.st_ino },
        mode: result.st_mode.into(),
        size: result.st_size as u64,
        mtime: [result.st_mtime as u64, result.st_mtime_nsec as u64],
        ctime: [result.st_ctime as u64, result.st_ctime_nsec as u64],
    })
}

fn to_st_dev(device: u64) -> u64 {
    let (major, minor) = (device >> 32, device & 0xffff_ffff);
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | (minor & 0xff) | (minor & !0xff) << 12
}

/// Handles fstat(2), and other stat calls that name a descriptor only.
pub(super) fn fstat(layer: Layer, call: &Call) -> CallResult {
    if are_unchanged(layer) {
        return Ok(Verdict::NATIVE);
    }
    // SAFETY: the program asked for exactly this call.
    let ret = unsafe { lower_layer::lower_syscall(layer, call.nr, call.args) };
    if ret.is_ok() {
        restore_inode(layer, call)?;
    }
    answer_call(call, ret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_convert_both_ways() {
        for (major, minor) in [(0, 5), (254, 0), (8, 17), (0x12345, 0x54321)] {
            let device = device_number(major, minor);
            assert_eq!(from_st_dev(to_st_dev(device)), device);
        }
        assert_eq!(to_st_dev(device_number(8, 1)), 0x801);
    }
}
