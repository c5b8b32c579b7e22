//! Calls that open files.
//!
//! What is opened for reading only is opened where it is. What is opened for writing is first brought into the upper tree: from
//! then on descriptors do what they do, and nobody is asked.

use linux_raw_sys::general as k;
use runahead_abi::overlay::flag;

use super::call_results::{self, Call, Done, answer};
use super::kernel_calls::{self, make};
use super::layer::Layer;
use super::lower_layer;
use super::path_walk::{self, FOLLOWED, ITSELF, Look, NAME, Place, Thing};
use super::{change_filter, copy_up, descriptor_paths, namespace_calls, permission_checks};
use crate::plane::Verdict;
use crate::sys::{self, AT_FDCWD, Errno, Fd, nr};

/// Flags that openat2(2) takes; open(2) does not look at others.
const KNOWN_FLAGS: u32 = k::O_ACCMODE
    | k::O_CREAT
    | k::O_EXCL
    | k::O_NOCTTY
    | k::O_TRUNC
    | k::O_APPEND
    | k::O_NONBLOCK
    | k::O_SYNC
    | k::O_DSYNC
    | k::O_DIRECT
    | k::O_LARGEFILE
    | k::O_DIRECTORY
    | k::O_NOFOLLOW
    | k::O_NOATIME
    | k::O_CLOEXEC
    | k::O_PATH
    | k::O_TMPFILE;

const READ: u32 = 4;
const WRITE: u32 = 2;

/// How a file is to be opened, with flags and mode as openat(2) has them.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub dir: Fd,
    /// Address of the name.
    pub at: u64,
    pub flags: u32,
    pub mode: u32,
    /// Of openat2(2).
    pub resolve: u32,
}

impl How {
    fn accesses(&self) -> u32 {
        self.flags & k::O_ACCMODE
    }

    fn is_place(&self) -> bool {
        self.flags & k::O_PATH != 0
    }

    fn is_temporary(&self) -> bool {
        self.flags & k::__O_TMPFILE != 0 && !self.is_place()
    }

    /// It may make something, or change it.
    fn changes(&self) -> bool {
        let changing = k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE;
        !self.is_place() && (self.accesses() != k::O_RDONLY || self.flags & changing != 0)
    }

    fn no_links(&self) -> bool {
        self.resolve & k::RESOLVE_NO_SYMLINKS != 0
    }

    fn follows(&self) -> bool {
        let makes_new = self.flags & (k::O_CREAT | k::O_EXCL) == k::O_CREAT | k::O_EXCL;
        self.flags & k::O_NOFOLLOW == 0 && (!makes_new || self.is_place())
    }
}

/// openat(2), and its kin.
pub(super) fn open(layer: Layer, call: &Call, how: How) -> Done {
    const ELSEWHERE: u32 = k::RESOLVE_BENEATH | k::RESOLVE_IN_ROOT;
    if how.resolve & ELSEWHERE != 0 {
        // As by a kernel that has no openat2.
        return Err(Errno(sys::ENOSYS));
    }
    if how.resolve & k::RESOLVE_CACHED != 0 {
        return Err(Errno(sys::EAGAIN));
    }
    match how.changes() {
        true if cfg!(feature = "fault-injection") && layer.flags() & flag::PLANT_WRITES != 0 => {
            Ok(Verdict::NATIVE)
        }
        true => open_to_change(layer, call, &how),
        false => open_to_read(layer, call, &how),
    }
}

fn open_to_read(layer: Layer, call: &Call, how: &How) -> Done {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut room = call_results::room();
    let text = call_results::given(how.at, &mut room)?;
    let place = path_walk::find(
        layer,
        how.dir,
        text,
        Look { follow: how.follows(), thing: false, no_links: how.no_links(), ..path_walk::ITSELF },
    )?;
    if let Thing::Unlooked = place.thing {
        if !place.as_named || !how.follows() || how.resolve != 0 {
            if how.follows() {
                let place = path_walk::find(
                    layer,
                    how.dir,
                    text,
                    Look { no_links: how.no_links(), ..FOLLOWED },
                )?;
                return open_seen(layer, call, how, &place);
            }
            return open_seen(layer, call, how, &place);
        }
        // The kernel finds the same, if it meets no symbolic link.
        let flags = how.flags & KNOWN_FLAGS & !(k::O_CREAT | k::O_EXCL);
        let open =
            k::open_how { flags: flags.into(), mode: 0, resolve: k::RESOLVE_NO_SYMLINKS.into() };
        let open = (&raw const open as u64, size_of::<k::open_how>() as u64);
        let args = [how.dir as u64, how.at, open.0, open.1, 0, 0];
        // SAFETY: what the program asked for, as openat2 has it; the structure lives as long as the call.
        let ret = unsafe { lower_layer::attempt(layer, call, nr::OPENAT2, &args) };
        if ret != sys::fail(sys::ELOOP) && ret != sys::fail(sys::EINVAL) {
            return Ok(answer(call, ret));
        }
        let place =
            path_walk::find(layer, how.dir, text, Look { no_links: how.no_links(), ..FOLLOWED })?;
        return open_seen(layer, call, how, &place);
    }
    open_seen(layer, call, how, &place)
}

/// Opens what has been found as it is.
fn open_seen(layer: Layer, call: &Call, how: &How, place: &Place) -> Done {
    match place.thing {
        Thing::Absent => Err(Errno(sys::ENOENT)),
        Thing::Upper(_) => open_at(call, how, place.name.upper()),
        Thing::Lower(_) | Thing::Unlooked | Thing::Outside if place.as_named => Ok(Verdict::NATIVE),
        _ => open_real(layer, call, how, place.name.real()),
    }
}

fn open_at(call: &Call, how: &How, path: u64) -> Done {
    let args = [AT_FDCWD as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is one of ours.
    let ret = unsafe { call.attempt(nr::OPENAT, &args) };
    Ok(answer(call, ret))
}

/// The same, of a name of the real tree.
fn open_real(layer: Layer, call: &Call, how: &How, path: u64) -> Done {
    let args = [AT_FDCWD as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is one of ours.
    let ret = unsafe { lower_layer::attempt(layer, call, nr::OPENAT, &args) };
    Ok(answer(call, ret))
}

fn open_to_change(layer: Layer, call: &Call, how: &How) -> Done {
    let mut room = call_results::room();
    let text = call_results::given(how.at, &mut room)?;
    let creates = how.flags & k::O_CREAT != 0;
    let look = match how.follows() {
        // What may be made is no directory.
        _ if creates && text.ends_with(b"/") => NAME,
        // Nor is it where a symbolic link leads that has a slash at its end.
        true => Look { name: creates, ..FOLLOWED },
        false => ITSELF,
    };
    let look = Look { no_links: how.no_links(), ..look };
    let is_there = how.resolve == 0 && creates && !how.is_temporary() && !text.ends_with(b"/");
    let mut place = path_walk::find(layer, how.dir, text, Look { but_upper: is_there, ..look })?;
    if let Thing::UnlookedUpper = place.thing {
        // The kernel makes it, or opens what is there, if that is no symbolic link.
        let alike = How { flags: how.flags | k::O_NOFOLLOW, ..*how };
        let opened = open_at(call, &alike, place.name.upper())?;
        if !how.follows() || opened.answered() != Some(sys::fail(sys::ELOOP)) {
            return Ok(opened);
        }
        place = path_walk::find(layer, how.dir, text, look)?;
    }
    match place.thing {
        _ if creates && place.is_directory => return Err(Errno(sys::EISDIR)),
        Thing::Outside => return outside(call, how, &place),
        Thing::Absent if !creates => return Err(Errno(sys::ENOENT)),
        Thing::Absent => {
            if how.flags & k::O_DIRECTORY != 0 {
                return Err(Errno(sys::EINVAL));
            }
            namespace_calls::prepare(layer, &mut place)?;
            return open_at(call, how, place.name.upper());
        }
        _ if how.is_temporary() => {
            place.directory()?;
            return open_temporary(layer, call, how, &place);
        }
        _ if creates && how.flags & k::O_EXCL != 0 => return Err(Errno(sys::EEXIST)),
        _ => {}
    }
    if place.directory().is_ok() {
        // Refused, but to be read, or merely named.
        let is_refused = how.accesses() != k::O_RDONLY || creates || how.flags & k::O_TRUNC != 0;
        return if is_refused {
            Err(Errno(sys::EISDIR))
        } else {
            open_seen(layer, call, how, &place)
        };
    }
    let writes = how.accesses() != k::O_RDONLY || how.flags & k::O_TRUNC != 0;
    match place.thing {
        Thing::Lower(stat) if stat.kind() == k::S_IFREG && writes => {
            if how.flags & k::O_DIRECTORY != 0 {
                return Err(Errno(sys::ENOTDIR));
            }
            let reads = if how.accesses() == k::O_WRONLY { 0 } else { READ };
            kernel_calls::may_real(&place.name, WRITE | reads)?;
            copy_up::bring_file(layer, &mut place, how.flags & k::O_TRUNC == 0)?;
            open_at(call, how, place.name.upper())
        }
        Thing::Upper(_) => open_at(call, how, place.name.upper()),
        // Nothing is made any more, as something is there. (What is no file, the kernel keeps apart, or does not let be opened.)
        _ => {
            let how = How { flags: how.flags & !(k::O_CREAT | k::O_EXCL), ..*how };
            open_real(layer, call, &how, place.name.real())
        }
    }
}

/// A file without a name, in a directory.
fn open_temporary(layer: Layer, call: &Call, how: &How, place: &Place) -> Done {
    if let Thing::Lower(_) | Thing::Merged(..) = place.thing {
        permission_checks::may_write(place)?;
        copy_up::bring_directory(layer, &place.name)?;
    }
    open_at(call, how, place.name.upper())
}

/// Something in `/proc`, `/sys` or `/dev`. The kernel does not let a file be opened for writing by the name of a descriptor
/// that is not in the upper tree; the descriptor itself is another one's, or was opened before.
fn outside(call: &Call, how: &How, place: &Place) -> Done {
    let (dir, path) =
        if place.as_named { (how.dir, how.at) } else { (AT_FDCWD, place.name.real()) };
    let args = [dir as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is the program's, or one of ours.
    let ret = unsafe { call.attempt(nr::OPENAT, &args) };
    let own = match ret == sys::fail(sys::EACCES) {
        true => descriptor_paths::named(place.name.text()),
        false => None,
    };
    let Some(fd) = own else { return Ok(answer(call, ret)) };
    let Ok(has) = sys::fcntl(fd, k::F_GETFL, 0) else { return Ok(answer(call, ret)) };
    if has as u32 & k::O_ACCMODE == k::O_RDONLY {
        return Ok(answer(call, ret));
    }
    let copied = match how.flags & k::O_CLOEXEC {
        0 => k::F_DUPFD,
        _ => k::F_DUPFD_CLOEXEC,
    };
    make!(nr::FCNTL, fd, copied, 0).map(|fd| Verdict::answer(call.performed(fd as i64)))
}
