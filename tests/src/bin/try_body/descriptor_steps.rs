//! Steps on descriptors that stay open, whatever becomes of their names.

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags};

use crate::name_steps::listed;
use crate::other_owners::{may_be_anothers, owner};
use crate::step_context::{Context, Kind, Result, open};

pub const KINDS: &[Kind] = &[
    Kind { name: "hold-file", run: hold_file },
    Kind { name: "hold-file", run: hold_file },
    Kind { name: "hold-directory", run: hold_directory },
    Kind { name: "hold-directory", run: hold_directory },
    Kind { name: "write-held", run: write },
    Kind { name: "read-held", run: read },
    Kind { name: "truncate-held", run: truncate },
    Kind { name: "chmod-held", run: chmod },
    Kind { name: "chgrp-held", run: group },
    Kind { name: "stat-held", run: stat },
    Kind { name: "link-held", run: link },
    Kind { name: "reopen-held", run: reopen },
    Kind { name: "list-held", run: list },
    Kind { name: "create-below-held", run: create_below },
    Kind { name: "mkdir-below-held", run: make_below },
    Kind { name: "unlink-below-held", run: remove_below },
    Kind { name: "rename-between-held", run: rename_between },
    Kind { name: "chmod-held-directory", run: chmod_directory },
];

/// Short name drawn from those of the tree.
fn name(context: &mut Context) -> &'static str {
    context.one_of(&crate::random_names::NAMES)
}

fn hold_file(context: &mut Context) -> Result {
    let path = context.path();
    let file = open(
        &path,
        OFlags::RDWR | context.random.one_of(&[OFlags::empty(), OFlags::CREATE]),
        0o644,
    )?;
    Context::hold(&mut context.files, file);
    Ok("done".into())
}

fn hold_directory(context: &mut Context) -> Result {
    let path = context.path();
    let directory = open(&path, OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
    Context::hold(&mut context.directories, directory);
    Ok("done".into())
}

fn write(context: &mut Context) -> Result {
    let at = context.number(5000);
    let bytes = context.random.bytes(200);
    let file = Context::held(&mut context.random, &context.files)?;
    Ok(rustix::io::pwrite(file, &bytes, at)?.to_string())
}

fn read(context: &mut Context) -> Result {
    let file = Context::held(&mut context.random, &context.files)?;
    let mut bytes = [0; 64];
    let count = rustix::io::pread(file, &mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).replace('\0', "0"))
}

fn truncate(context: &mut Context) -> Result {
    let length = context.number(7000);
    rustix::fs::ftruncate(Context::held(&mut context.random, &context.files)?, length)?;
    Ok("done".into())
}

fn chmod(context: &mut Context) -> Result {
    let mode = Mode::from_raw_mode(context.one_of(&[0o640, 0o4711, 0o606, 0o400]));
    rustix::fs::fchmod(Context::held(&mut context.random, &context.files)?, mode)?;
    Ok("done".into())
}

fn group(context: &mut Context) -> Result {
    let group = Gid::from_raw(context.one_of(&[2000, 2001, 77]));
    rustix::fs::fchown(Context::held(&mut context.random, &context.files)?, None, Some(group))?;
    Ok("done".into())
}

fn stat(context: &mut Context) -> Result {
    let found = rustix::fs::fstat(Context::held(&mut context.random, &context.files)?)?;
    let (mode, group) = (found.st_mode, found.st_gid);
    Ok(format!("{mode:o} {} {group} {} {}", owner(&found), found.st_size, found.st_nlink))
}

fn link(context: &mut Context) -> Result {
    let path = context.path();
    let file = Context::held(&mut context.random, &context.files)?;
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    if may_be_anothers(&name) {
        return Ok("another user's".into());
    }
    rustix::fs::linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok("done".into())
}

fn reopen(context: &mut Context) -> Result {
    let bytes = context.random.bytes(50);
    let file = Context::held(&mut context.random, &context.files)?;
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let again = open(&name, OFlags::WRONLY | OFlags::APPEND, 0)?;
    Ok(rustix::io::write(&again, &bytes)?.to_string())
}

fn list(context: &mut Context) -> Result {
    listed(Context::held(&mut context.random, &context.directories)?)
}

fn create_below(context: &mut Context) -> Result {
    let name = name(context);
    let bytes = context.random.bytes(50);
    let directory = Context::held(&mut context.random, &context.directories)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(rustix::io::write(&file, &bytes)?.to_string())
}

fn make_below(context: &mut Context) -> Result {
    let name = name(context);
    let directory = Context::held(&mut context.random, &context.directories)?;
    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o750))?;
    Ok("done".into())
}

fn remove_below(context: &mut Context) -> Result {
    let name = name(context);
    let flags = context.one_of(&[AtFlags::empty(), AtFlags::REMOVEDIR]);
    let directory = Context::held(&mut context.random, &context.directories)?;
    let removed = rustix::fs::unlinkat(directory, name, flags);
    if flags == AtFlags::REMOVEDIR {
        context.let_go_of_directories();
    }
    removed.map(|()| "done".into())
}

fn rename_between(context: &mut Context) -> Result {
    let (from, to) = (name(context), name(context));
    let Context { random, directories, .. } = context;
    let (a, b) = (Context::held(random, directories)?, Context::held(random, directories)?);
    rustix::fs::renameat(a, from, b, to)?;
    context.let_go_of_directories();
    Ok("done".into())
}

fn chmod_directory(context: &mut Context) -> Result {
    let mode = Mode::from_raw_mode(context.one_of(&[0o755, 0o700, 0o2770]));
    rustix::fs::fchmod(Context::held(&mut context.random, &context.directories)?, mode)?;
    Ok("done".into())
}
