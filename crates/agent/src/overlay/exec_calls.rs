//! Programs that are executed by path.
//!
//! The kernel looks up the interpreter of a script in the lower tree and passes it the path it got
//! for the script. So where a script or its interpreter is in the upper tree, the interpreter is
//! executed directly, as the kernel would execute it (execve(2)).

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;

use super::call_results::{self, Call, PathBuffer};
use super::kernel_calls::{self, OpenFile, Stat};
use super::layer::Layer;
use super::link_index::IndexPath;
use super::path_walk::{self, WalkOptions};
use super::view_entry::{Resolved, ViewEntry};
use super::{change_filter, copy_up};
use crate::address_space;
use crate::plane::AddressRange;
use crate::plane::policy::Exec;
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Bytes at the start of a file that the kernel reads (linux/binfmts.h).
const FRONT_BYTES: usize = 256;
/// Depth of interpreters of interpreters that the kernel follows.
const INTERPRETERS: usize = 5;
/// Limit of arguments: more do not fit into the memory that the kernel has for them.
const ARGUMENTS_MAX: usize = 1 << 20;
/// Mode of access(2).
const EXECUTE: u32 = 1;

/// Returns what to execute in place of what the program asks for.
pub(super) fn redirect(layer: Layer, call: &Call) -> Exec {
    redirect_in_layer(layer, call).unwrap_or_else(|errno| Exec::Answer(sys::fail(errno.0)))
}

fn redirect_in_layer(layer: Layer, call: &Call) -> Result<Exec> {
    let below = |call: &Call| match layer.below() {
        Some(below) => redirect_in_layer(below, call),
        None => Ok(Exec::AsItStands),
    };
    if change_filter::filter(layer).is_empty() {
        return below(call);
    }
    let [a, b, c, d, e, _] = call.args;
    let (dir, at, arguments, environment, flags) = match call.nr {
        nr::EXECVE => (AT_FDCWD, a, b, c, 0),
        _ => (a as Fd, b, c, d, e as u32),
    };
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(at, &mut room)?;
    if text.is_empty() && flags & k::AT_EMPTY_PATH != 0 {
        return below(call);
    }
    let follow = flags & k::AT_SYMLINK_NOFOLLOW == 0;
    let mut found =
        path_walk::resolve(layer, dir, text, WalkOptions { follow, ..path_walk::NO_FOLLOW })?;
    if let (ViewEntry::Indexed(_), true) = (&found.entry, layer == Layer::top()) {
        // The program has its name in the view, also where the kernel says it (`/proc/self/exe`).
        let _ = copy_up::copy_up_file(layer, &mut found, true);
    }
    let is_upper = match found.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        ViewEntry::Outside | ViewEntry::Unchecked => return below(call),
        ViewEntry::Upper(_) | ViewEntry::Indexed(_) => true,
        _ => false,
    };
    // The program sees the path by which it was executed: as `$0` of a script, as its name, in its
    // auxiliary vector.
    let is_as_named = found.kernel_agrees || follow && leads_to(layer, (dir, at), &found.entry);
    let indexed = IndexPath::of(&found);
    if let Some(script) = Script::read(&found) {
        let interpreter =
            path_walk::resolve(layer, AT_FDCWD, script.interpreter(), path_walk::FOLLOW)?;
        let is_changed = is_upper
            || !is_as_named
            || interpreter.via_upper_symlink
            || matches!(interpreter.entry, ViewEntry::Upper(_) | ViewEntry::Indexed(_));
        if is_changed {
            let upper = indexed.as_ref().map_or(found.path.upper_address(), IndexPath::address);
            match is_upper {
                true => kernel_calls::access(upper, EXECUTE)?,
                false => kernel_calls::access_lower(&found.path, EXECUTE)?,
            };
            let name =
                if text[0] == b'/' || dir == AT_FDCWD { text } else { found.path.as_bytes() };
            return execute_interpreter(
                layer,
                &script,
                interpreter,
                name,
                (arguments, environment),
            );
        }
    }
    if !is_upper {
        let named = [found.path.lower_address(), arguments, environment, 0, 0, 0];
        let named = if is_as_named { *call } else { call.with(nr::EXECVE, &named) };
        match below(&named)? {
            // Otherwise the path is on the agent's stack.
            Exec::AsItStands if !is_as_named => {}
            exec => return Ok(exec),
        }
    }
    let mut list = ArgumentList::new(0)?;
    let path = match &indexed {
        Some(copy) => list.put(copy.as_bytes())?,
        None if is_upper => list.put(found.path.upper_bytes())?,
        None => list.put(found.path.as_bytes())?,
    };
    Ok(list.execute(path, arguments, environment))
}

/// True if the program's path leads to the lower entry in the lower tree as well.
fn leads_to(layer: Layer, (dir, path): (Fd, u64), entry: &ViewEntry) -> bool {
    let ViewEntry::Lower(stat) = entry else { return false };
    Stat::lower_followed(layer, dir, path)
        .is_ok_and(|found| found.origin().file == stat.origin().file)
}

/// First line of a script. The pairs are start and end of a part of `line`.
pub(super) struct Script {
    line: [u8; FRONT_BYTES],
    interpreter: (usize, usize),
    argument: Option<(usize, usize)>,
}

impl Script {
    /// Reads the first line of the entry, if it is a script that can be read.
    pub(super) fn read(found: &Resolved) -> Option<Self> {
        let flags = k::O_RDONLY | k::O_NONBLOCK | k::O_NOCTTY;
        let file = match found.entry {
            ViewEntry::Upper(_) => OpenFile::at(found.path.upper_address(), flags, 0),
            ViewEntry::Indexed(stat) => {
                OpenFile::at(IndexPath::new(found.path.layer(), &stat).address(), flags, 0)
            }
            _ => OpenFile::lower(&found.path, flags),
        };
        let file = file.ok()?;
        let mut line = [0u8; FRONT_BYTES];
        let len = sys::pread(file.0, &mut line, 0).ok()?;
        let text = line[..len].strip_prefix(b"#!")?;
        let end = text.iter().position(|byte| matches!(byte, b'\n' | 0)).unwrap_or(text.len());
        let text = &text[..end];
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = text.iter().position(|byte| !blank(byte))?;
        let stop = text[start..].iter().position(blank).map_or(text.len(), |len| start + len);
        let argument = text[stop..].iter().position(|byte| !blank(byte)).map(|at| {
            let last = text.iter().rposition(|byte| !blank(byte)).unwrap_or(stop + at);
            (2 + stop + at, 2 + last + 1)
        });
        Some(Script { line, interpreter: (2 + start, 2 + stop), argument })
    }

    /// Path of the interpreter.
    pub(super) fn interpreter(&self) -> &[u8] {
        &self.line[self.interpreter.0..self.interpreter.1]
    }

    fn argument(&self) -> Option<&[u8]> {
        self.argument.map(|(from, to)| &self.line[from..to])
    }
}

/// Executes the interpreter of `script`, which the program named `name`.
fn execute_interpreter(
    layer: Layer,
    script: &Script,
    found: Resolved,
    name: &[u8],
    (arguments, environment): (u64, u64),
) -> Result<Exec> {
    let mut count = 0;
    while count < ARGUMENTS_MAX
        && arguments != 0
        && sys::copy_in::<u64>(arguments + 8 * count as u64)? != 0
    {
        count += 1;
    }
    // Arguments in front of the script's own, in reverse.
    let mut front = [0u64; 2 * INTERPRETERS + 1];
    let mut used = 0;
    let mut list = ArgumentList::new(count + front.len() + 1)?;
    let mut add = |list: &mut ArgumentList, text: &[u8]| {
        let slot = front.get_mut(used).ok_or(Errno(sys::ELOOP))?;
        *slot = list.put(text)?;
        used += 1;
        Ok(())
    };
    add(&mut list, name)?;
    let (mut found, mut inner) = (found, None);
    for _ in 0..INTERPRETERS {
        let script = inner.as_ref().unwrap_or(script);
        if let Some(argument) = script.argument() {
            add(&mut list, argument)?;
        }
        add(&mut list, script.interpreter())?;
        if let ViewEntry::Absent = found.entry {
            return Err(Errno(sys::ENOENT));
        }
        let Some(next) = Script::read(&found) else {
            let path = put_kernel_path(&mut list, &found)?;
            for argument in front[..used].iter().rev() {
                list.push(*argument)?;
            }
            for n in 1..count {
                list.push(sys::copy_in(arguments + 8 * n as u64)?)?;
            }
            list.push(0)?;
            let arguments = list.pointers;
            return Ok(list.execute(path, arguments, environment));
        };
        found = path_walk::resolve(layer, AT_FDCWD, next.interpreter(), path_walk::FOLLOW)?;
        inner = Some(next);
    }
    Err(Errno(sys::ELOOP))
}

/// Puts the path by which the kernel finds the entry.
fn put_kernel_path(list: &mut ArgumentList, found: &Resolved) -> Result<u64> {
    if let Some(copy) = IndexPath::of(found) {
        return list.put(copy.as_bytes());
    }
    match (&found.entry, found.path.layer().below()) {
        (ViewEntry::Upper(_), _) => list.put(found.path.upper_bytes()),
        (_, None) => list.put(found.path.as_bytes()),
        (_, Some(below)) => {
            let found =
                path_walk::resolve(below, AT_FDCWD, found.path.as_bytes(), path_walk::NO_FOLLOW)?;
            put_kernel_path(list, &found)
        }
    }
}

/// Mapping with a list of arguments and the texts that it points to.
struct ArgumentList {
    memory: AddressRange,
    pointers: u64,
    count: usize,
    capacity: usize,
    texts: u64,
    is_handed_over: bool,
}

/// Size in bytes of the part for texts.
const TEXT_BYTES: usize = (2 * INTERPRETERS + 2) * FRONT_BYTES + 3 * PATH_MAX;

impl ArgumentList {
    fn new(capacity: usize) -> Result<Self> {
        let bytes = (8 * capacity + TEXT_BYTES).next_multiple_of(sys::PAGE as usize) as u64;
        let pointers = address_space::map_private(bytes)?;
        let texts = pointers + 8 * capacity as u64;
        Ok(ArgumentList {
            memory: AddressRange::of_bytes(pointers, bytes),
            pointers,
            count: 0,
            capacity,
            texts,
            is_handed_over: false,
        })
    }

    fn put(&mut self, text: &[u8]) -> Result<u64> {
        let at = self.texts;
        let end = self.memory.end;
        if at + text.len() as u64 + 1 > end {
            return Err(Errno(sys::E2BIG));
        }
        // SAFETY: within the mapping, which is ours, and new, so that a NUL is behind it.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len()) };
        self.texts += text.len() as u64 + 1;
        Ok(at)
    }

    fn push(&mut self, pointer: u64) -> Result<()> {
        if self.count == self.capacity {
            return Err(Errno(sys::E2BIG));
        }
        // SAFETY: one of the words at the front of the mapping.
        unsafe { ((self.pointers as *mut u64).add(self.count)).write(pointer) };
        self.count += 1;
        Ok(())
    }

    fn execute(mut self, path: u64, arguments: u64, environment: u64) -> Exec {
        self.is_handed_over = true;
        let args = [path, arguments, environment, 0, 0, 0];
        Exec::Instead { nr: nr::EXECVE, args, memory: self.memory }
    }
}

impl Drop for ArgumentList {
    fn drop(&mut self) {
        if !self.is_handed_over {
            // SAFETY: the mapping was not handed over.
            unsafe { address_space::give_back(self.memory.start, self.memory.bytes()) };
        }
    }
}

const _: () = assert!(size_of::<PathBuffer>() == PATH_MAX);
