//! Calls that change what is kept of a file beside its data. Landlock does not deny them; the kernel's filter lets them come
//! from here only.

use linux_raw_sys::general as k;

use super::call_results::{self, Call, Done, done};
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::path_walk::{self, Look, Place, Thing};
use super::{copy_up, descriptor_paths, permission_checks, whiteouts};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Of what the attributes are to be changed.
enum Whose {
    /// Of what has the name at this argument, seen from a directory.
    Name { dir: Fd, argument: usize, follow: bool },
    /// Of a descriptor.
    Descriptor(Fd),
}

/// Any of these calls.
pub(super) fn change(layer: Layer, call: &Call) -> Done {
    let a = call.args;
    let at = |flags: u64| Whose::Name {
        dir: call.fd(0),
        argument: 1,
        follow: flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0,
    };
    let path = |follow| Whose::Name { dir: AT_FDCWD, argument: 0, follow };
    let whose = match call.nr {
        nr::FCHMOD | nr::FCHOWN | nr::FSETXATTR | nr::FREMOVEXATTR => Whose::Descriptor(call.fd(0)),
        nr::CHMOD | nr::CHOWN | nr::UTIME | nr::UTIMES | nr::SETXATTR | nr::REMOVEXATTR => {
            path(true)
        }
        nr::LCHOWN | nr::LSETXATTR | nr::LREMOVEXATTR => path(false),
        nr::UTIMENSAT | nr::FUTIMESAT if a[1] == 0 => Whose::Descriptor(call.fd(0)),
        nr::FCHMODAT | nr::FUTIMESAT => at(0),
        nr::UTIMENSAT | nr::FCHMODAT2 => at(a[3]),
        nr::FCHOWNAT => at(a[4]),
        _ => return Err(Errno(sys::ENOSYS)),
    };
    match whose {
        Whose::Descriptor(fd) => done(call, of_descriptor(layer, call, fd)),
        Whose::Name { dir, argument, follow } => {
            let mut room = call_results::room();
            let text = call_results::given(a[argument], &mut room)?;
            let flags = match call.nr {
                nr::UTIMENSAT | nr::FCHMODAT2 => a[3],
                nr::FCHOWNAT => a[4],
                _ => 0,
            };
            if text.is_empty() && flags as u32 & k::AT_EMPTY_PATH != 0 {
                return done(call, of_descriptor(layer, call, dir));
            }
            let place = path_walk::find(layer, dir, text, Look { follow, ..path_walk::ITSELF })?;
            done(call, of_place(layer, call, argument, place))
        }
    }
}

/// Makes the call with these arguments, by the right of the token.
fn by_right(layer: Layer, number: u64, mut args: [u64; 6]) -> Result<u64> {
    args[5] = layer.token();
    // SAFETY: what the program asked for; a name is one of ours.
    sys::check(unsafe { sys::raw(number, args) })
}

fn of_place(layer: Layer, call: &Call, argument: usize, mut place: Place) -> Result<u64> {
    match place.thing {
        Thing::Absent => return Err(Errno(sys::ENOENT)),
        Thing::Outside if layer.keeps(place.name.text()) => {
            let mut args = call.args;
            args[argument] = place.name.real();
            return by_right(layer, call.nr, args);
        }
        Thing::Outside | Thing::Unlooked => match descriptor_paths::named(place.name.text()) {
            Some(fd) => return of_descriptor(layer, call, fd),
            None => return Err(Errno(sys::EPERM)),
        },
        _ => {}
    }
    bring(layer, call, &mut place)?;
    let mut args = call.args;
    args[argument] = place.name.upper();
    by_right(layer, call.nr, args)
}

/// The place is in the upper tree when this returns, if the program may change what it asks for.
fn bring(layer: Layer, call: &Call, place: &mut Place) -> Result<()> {
    let (Thing::Lower(stat) | Thing::Merged(stat, _)) = place.thing else { return Ok(()) };
    let is_to_now = match call.nr {
        nr::UTIME | nr::UTIMES => call.args[1] == 0,
        nr::UTIMENSAT | nr::FUTIMESAT => call.args[2] == 0,
        nr::SETXATTR | nr::LSETXATTR | nr::FSETXATTR => true,
        nr::REMOVEXATTR | nr::LREMOVEXATTR | nr::FREMOVEXATTR => true,
        _ => false,
    };
    match permission_checks::owns(&stat) {
        // Whoever may write may do these.
        Err(_) if is_to_now => permission_checks::may_write(place)?,
        owns => owns?,
    }
    if !stat.is_directory() {
        return copy_up::bring_file(layer, place, true);
    }
    whiteouts::record(layer, &place.name, &stat.origin())?;
    copy_up::bring_directory(layer, &place.name)
}

/// What a descriptor refers to is changed where it is, if it is in the upper tree or has no name; else in the upper tree, by
/// its name.
fn of_descriptor(layer: Layer, call: &Call, fd: Fd) -> Result<u64> {
    let mut room = call_results::room();
    let path = match fd {
        AT_FDCWD => sys::getcwd(&mut room).map(|len| len.saturating_sub(1)),
        fd => descriptor_paths::path_of(fd, &mut room),
    };
    let len = path.map_err(|_| Errno(sys::EBADF))?.min(room.len() - 1);
    let path = &room[..len];
    let same = |stat: &Stat, other: &Stat| stat.origin().file == other.origin().file;
    let is_elsewhere = |place: &Place| {
        let of_fd = Stat::of_fd(layer, fd);
        match (&place.thing, of_fd) {
            (Thing::Lower(stat) | Thing::Merged(stat, _), Ok(of_fd)) => !same(stat, &of_fd),
            _ => true,
        }
    };
    if path.first() == Some(&b'/') && layer.is_upper(path).is_none() && !layer.keeps(path) {
        if let Ok(mut place) = path_walk::find(layer, AT_FDCWD, path, path_walk::ITSELF)
            && !matches!(place.thing, Thing::Outside)
        {
            if let Thing::Upper(_) = place.thing {
                // Copied since it was opened.
                return by_name(layer, call, place.name.upper());
            }
            if !is_elsewhere(&place) {
                bring(layer, call, &mut place)?;
                return by_name(layer, call, place.name.upper());
            }
        }
        if path.starts_with(b"/proc/") || path.starts_with(b"/sys/") {
            return Err(Errno(sys::EPERM));
        }
        // Removed or replaced in the view, and not in the real tree, which is to stay as it is: nobody else sees what becomes of it here.
        if let (Ok(there), Ok(of_fd)) = (Stat::of(path.as_ptr() as u64), Stat::of_open(fd))
            && same(&there, &of_fd)
        {
            return Ok(0);
        }
    }
    by_right(layer, call.nr, call.args)
}

/// The call of a descriptor as one of a name.
fn by_name(layer: Layer, call: &Call, path: u64) -> Result<u64> {
    let token = layer.token();
    let [_, b, c, d, e, _] = call.args;
    match call.nr {
        nr::FCHMOD => kernel_calls::chmod(path, b as u32, token),
        nr::FCHMODAT2 => kernel_calls::chmod(path, c as u32, token),
        nr::FCHOWN => kernel_calls::chown(path, b as u32, c as u32, token),
        nr::FCHOWNAT => kernel_calls::chown(path, c as u32, d as u32, token),
        nr::FSETXATTR => by_right(layer, nr::LSETXATTR, [path, b, c, d, e, 0]),
        nr::FREMOVEXATTR => by_right(layer, nr::LREMOVEXATTR, [path, b, 0, 0, 0, 0]),
        number => {
            let flags = match number {
                nr::UTIMENSAT => u64::from(k::AT_SYMLINK_NOFOLLOW),
                _ => 0,
            };
            by_right(layer, number, [AT_FDCWD as u64, path, c, flags, 0, 0])
        }
    }
}
