//! Sockets with names in the file system (unix(7)).
//!
//! Those that the try made are in the upper tree. Where its path is too long for an address, they
//! are made through a descriptor of their directory. They are found through one of their own.

use linux_raw_sys::general as k;
use runahead_abi::overlay::flag;

use super::call_results::{Call, CallResult, answer_attempt};
use super::change_filter;
use super::kernel_calls::{OpenFile, syscall};
use super::layer::Layer;
use super::lower_layer;
use super::namespace_calls::{self, NewEntry};
use super::path_walk::{self, ENTRY_NAME, FOLLOW};
use super::view_entry::{Resolved, ViewEntry};
use super::view_path::ViewPath;
use crate::path_text::FdPath;
use crate::plane::Verdict;
use crate::sys::{self, AT_FDCWD, Errno, Result, nr};

const AF_UNIX: u16 = 1;
/// Size in bytes of an address (`struct sockaddr_un`), and offset of the path in it.
const ADDRESS_BYTES: usize = 110;
const PATH_AT: usize = 2;
/// Size of a `struct msghdr` in words.
const MESSAGE_WORDS: usize = 7;

struct Address {
    bytes: [u8; ADDRESS_BYTES + 1],
    len: usize,
}

impl Address {
    fn path(&self) -> &[u8] {
        let path = &self.bytes[PATH_AT..self.len];
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        &path[..end]
    }
}

/// Reads an address, if it can be the name of such a socket.
fn read_address(at: u64, len: u64) -> Result<Option<Address>> {
    let len = len as u32 as usize;
    if at == 0 {
        return Ok(None);
    }
    if !(PATH_AT + 1..=ADDRESS_BYTES).contains(&len) {
        return Ok(None);
    }
    let mut bytes = [0u8; ADDRESS_BYTES + 1];
    sys::copy_bytes(at, &mut bytes[..len])?;
    let is_named = u16::from_ne_bytes([bytes[0], bytes[1]]) == AF_UNIX;
    Ok(is_named.then_some(Address { bytes, len }))
}

/// Handles bind(2).
pub(super) fn bind(layer: Layer, call: &Call) -> CallResult {
    let Some(address) = read_address(call.args[1], call.args[2])? else {
        return Ok(Verdict::NATIVE);
    };
    if address.path().is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut found = path_walk::resolve(layer, AT_FDCWD, address.path(), ENTRY_NAME)?;
    match found.entry {
        ViewEntry::Absent => {}
        ViewEntry::Outside => return Ok(Verdict::NATIVE),
        _ => return Err(Errno(sys::EADDRINUSE)),
    }
    namespace_calls::reject_trailing_slash(&found)?;
    namespace_calls::prepare_create(layer, &mut found, NewEntry::Other)?;
    bind_in_directory(call, &mut found)
}

/// Handles connect(2), and sendto(2) and sendmsg(2) to a named socket.
pub(super) fn connect(layer: Layer, call: &Call) -> CallResult {
    let (at, len) = match call.nr {
        nr::CONNECT => (call.args[1], call.args[2]),
        nr::SENDTO => (call.args[4], call.args[5]),
        // The first two words of a `struct msghdr` are the address and its length.
        _ => sys::copy_in::<[u64; 2]>(call.args[1]).map(|[at, len]| (at, len))?,
    };
    let Some(address) = read_address(at, len)? else { return Ok(Verdict::NATIVE) };
    let is_shut =
        layer.flags() & flag::NO_NETWORK != 0 || change_filter::filter(layer).refuses_network();
    if address.path().is_empty() {
        // An abstract name may belong to any process.
        return if is_shut { Err(Errno(sys::EACCES)) } else { Ok(Verdict::NATIVE) };
    }
    let mut found = path_walk::resolve(layer, AT_FDCWD, address.path(), FOLLOW)?;
    match found.entry {
        ViewEntry::Absent => Err(Errno(sys::ENOENT)),
        ViewEntry::Upper(_) => connect_by_descriptor(call, &mut found),
        _ if is_shut => Err(Errno(sys::EACCES)),
        _ if found.kernel_agrees => Ok(Verdict::NATIVE),
        _ => call_with_path(call, &[found.path.as_bytes()], |args| {
            // SAFETY: what the program asked for, with an address of ours.
            unsafe { lower_layer::attempt_lower(layer, call, call.nr, args) }
        }),
    }
}

/// Binds to a name of the upper tree by way of a descriptor of its directory. A name that does not
/// fit behind that is given afterwards.
fn bind_in_directory(call: &Call, found: &mut Resolved) -> CallResult {
    const SHORT: &[u8] = b".runahead-bind";
    // Receivers of messages get this name, and can answer to it.
    if found.path.upper_bytes().len() < ADDRESS_BYTES - PATH_AT - 2 {
        return call_with_path(call, &[found.path.upper_bytes()], |args| {
            // SAFETY: what the program asked for, with an address of ours.
            unsafe { call.attempt(call.nr, args) }
        });
    }
    let open =
        |parent: &mut ViewPath| OpenFile::at(parent.upper_address(), k::O_PATH | k::O_DIRECTORY, 0);
    let directory = found.path.with_parent(open)?;
    let within = FdPath::new(directory.0);
    let within = within.bytes();
    let name = found.path.file_name();
    let fits = within.len() + 1 + name.len() < ADDRESS_BYTES - PATH_AT;
    let first = if fits { name } else { SHORT };
    let bound = call_with_path(call, &[within, b"/", first], |args| {
        // SAFETY: what the program asked for, with an address of ours.
        unsafe { call.attempt(call.nr, args) }
    })?;
    if !fits && bound.answered() == Some(0) {
        let short = c".runahead-bind".as_ptr() as u64;
        syscall!(nr::RENAMEAT2, directory.0, short, AT_FDCWD, found.path.upper_address(), 0)?;
    }
    Ok(bound)
}

/// Connects to a socket of the upper tree by way of a descriptor of it.
fn connect_by_descriptor(call: &Call, found: &mut Resolved) -> CallResult {
    let socket = OpenFile::at(found.path.upper_address(), k::O_PATH, 0)?;
    call_with_path(call, &[FdPath::new(socket.0).bytes()], |args| {
        // SAFETY: what the program asked for, with an address of ours.
        unsafe { call.attempt(call.nr, args) }
    })
}

fn call_with_path(call: &Call, parts: &[&[u8]], make: impl FnOnce(&[u64; 6]) -> i64) -> CallResult {
    let mut bytes = [0u8; ADDRESS_BYTES];
    bytes[..PATH_AT].copy_from_slice(&AF_UNIX.to_ne_bytes());
    let mut at = PATH_AT;
    for part in parts {
        let room = bytes.get_mut(at..at + part.len()).ok_or(Errno(sys::ENAMETOOLONG))?;
        room.copy_from_slice(part);
        at += part.len();
    }
    let (address, len) = (bytes.as_ptr() as u64, (at + 1).min(ADDRESS_BYTES) as u64);
    let mut message = [0u64; MESSAGE_WORDS];
    let [first, second, third, fourth, ..] = call.args;
    let args = match call.nr {
        nr::SENDTO => [first, second, third, fourth, address, len],
        nr::SENDMSG => {
            message = sys::copy_in(second)?;
            message[..2].copy_from_slice(&[address, len]);
            [first, message.as_ptr() as u64, third, 0, 0, 0]
        }
        _ => [first, address, len, 0, 0, 0],
    };
    let ret = make(&args);
    core::hint::black_box(&message);
    Ok(answer_attempt(call, ret))
}
