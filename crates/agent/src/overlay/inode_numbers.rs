//! Numbers of files: a copy goes on with that of its original, so that a program that looks at a file before and after it has been
//! copied finds the same one.

use linux_raw_sys::general as k;
use runahead_abi::device_number;
use runahead_abi::overlay::Inodes;

use super::call_results::{Call, Done, done, give};
use super::change_filter;
use super::kernel_calls::Stat;
use super::layer::Layer;
use super::lower_layer;
use crate::plane::{self, Verdict};
use crate::sys::{self, Result, nr};

fn all(layer: Layer) -> &'static Inodes {
    &change_filter::filter(layer).inodes
}

/// Device and number, as they are kept.
fn file(stat: &Stat) -> (u64, u64) {
    let [device, inode] = stat.origin().file;
    (device, inode)
}

/// What is at `copy` has just been made of something.
pub(super) fn note(layer: Layer, copy: u64, of: &Stat) {
    if let Ok(copy) = Stat::of(copy) {
        all(layer).add(file(&copy), file(of));
    }
}

/// The last name of something of the upper tree is about to go, or a directory.
pub(super) fn forget(layer: Layer, stat: &Stat) {
    if all(layer).any() && (stat.links == 1 || stat.is_directory()) {
        all(layer).remove(file(stat));
    }
}

/// Where a call of stat(2)'s kin puts its answer, and whether that is of statx(2).
fn answer(call: &Call) -> (u64, bool) {
    match call.nr {
        nr::STATX => (call.args[4], true),
        nr::NEWFSTATAT => (call.args[2], false),
        _ => (call.args[1], false),
    }
}

fn of_program<T: Copy>(at: u64) -> Result<T> {
    match plane::has_threads() {
        // SAFETY: the kernel has just written there, and no other thread can have taken it away; plain data.
        false => Ok(unsafe { (at as *const T).read_unaligned() }),
        true => sys::copy_in(at),
    }
}

/// What the kernel has just told the program of something, perhaps of a copy.
pub(super) fn told(layer: Layer, call: &Call) -> Result<()> {
    if !all(layer).any() {
        return Ok(());
    }
    let (at, extended) = answer(call);
    if extended {
        let told: k::statx = of_program(at)?;
        let device = device_number(told.stx_dev_major, told.stx_dev_minor);
        let Some((device, inode)) = all(layer).of((device, told.stx_ino)) else { return Ok(()) };
        give(&inode.to_ne_bytes(), at + core::mem::offset_of!(k::statx, stx_ino) as u64)?;
        let numbers = ((device >> 32) as u32, device as u32);
        give(&numbers.0.to_ne_bytes(), at + core::mem::offset_of!(k::statx, stx_dev_major) as u64)?;
        return give(
            &numbers.1.to_ne_bytes(),
            at + core::mem::offset_of!(k::statx, stx_dev_minor) as u64,
        );
    }
    let told: k::stat = of_program(at)?;
    let Some((device, inode)) = all(layer).of((numbered(told.st_dev), told.st_ino)) else {
        return Ok(());
    };
    let [a, b] = [encoded(device), inode].map(u64::to_ne_bytes);
    let mut both = [0; 16];
    both[..8].copy_from_slice(&a);
    both[8..].copy_from_slice(&b);
    const _: () = assert!(core::mem::offset_of!(k::stat, st_dev) == 0);
    const _: () = assert!(core::mem::offset_of!(k::stat, st_ino) == 8);
    give(&both, at)
}

/// A device's number as stat(2) has it (makedev(3)), as ours.
fn numbered(device: u64) -> u64 {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    device_number(major as u32, minor as u32)
}

fn encoded(device: u64) -> u64 {
    let (major, minor) = (device >> 32, device & 0xffff_ffff);
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | (minor & 0xff) | (minor & !0xff) << 12
}

/// fstat(2), and its kin where they are given no name.
pub(super) fn of_descriptor(layer: Layer, call: &Call) -> Done {
    if !all(layer).any() {
        return Ok(Verdict::NATIVE);
    }
    // SAFETY: the program asked for exactly this call.
    let ret = unsafe { lower_layer::make(layer, call.nr, call.args) };
    if ret.is_ok() {
        told(layer, call)?;
    }
    done(call, ret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_go_both_ways() {
        for (major, minor) in [(0, 5), (254, 0), (8, 17), (0x12345, 0x54321)] {
            let device = device_number(major, minor);
            assert_eq!(numbered(encoded(device)), device);
        }
        assert_eq!(encoded(device_number(8, 1)), 0x801);
    }
}
