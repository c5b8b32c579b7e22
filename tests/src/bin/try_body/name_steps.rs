//! Steps that make, move, remove, list and look up names.

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};

use crate::other_owners::{may_be_anothers, owner};
use crate::step_context::{Context, Kind, Result, done, open};

pub const KINDS: &[Kind] = &[
    Kind { name: "unlink", run: |context| done(rustix::fs::unlink(context.path())) },
    Kind { name: "rmdir", run: remove_directory },
    Kind { name: "mkdir", run: make_directory },
    Kind { name: "mkdir", run: make_directory },
    Kind { name: "rename", run: |context| rename(context, RenameFlags::empty()) },
    Kind { name: "rename", run: |context| rename(context, RenameFlags::empty()) },
    Kind { name: "rename-new", run: |context| rename(context, RenameFlags::NOREPLACE) },
    Kind { name: "exchange", run: |context| rename(context, RenameFlags::EXCHANGE) },
    Kind { name: "link", run: |context| link(context, AtFlags::empty()) },
    Kind { name: "link", run: |context| link(context, AtFlags::empty()) },
    Kind { name: "link-follow", run: |context| link(context, AtFlags::SYMLINK_FOLLOW) },
    Kind { name: "symlink", run: symlink },
    Kind { name: "readlink", run: read_link },
    Kind { name: "pipe", run: |context| node(context, FileType::Fifo) },
    Kind { name: "through-pipe", run: through_pipe },
    Kind { name: "regular-node", run: |context| node(context, FileType::RegularFile) },
    Kind { name: "socket", run: socket },
    Kind { name: "remove-tree", run: remove_tree },
    Kind { name: "list", run: list },
    Kind { name: "list", run: list },
    Kind { name: "access", run: access },
    Kind { name: "stat", run: |context| stat(context, AtFlags::empty()) },
    Kind { name: "lstat", run: |context| stat(context, AtFlags::SYMLINK_NOFOLLOW) },
    Kind { name: "canonical", run: canonical },
    Kind { name: "chdir-and-back", run: change_directory },
];

fn make_directory(context: &mut Context) -> Result {
    let path = context.path();
    let mode = context.one_of(&[0o755, 0o700, 0o2775, 0o1777, 0o555, 0o311]);
    done(rustix::fs::mkdir(path, Mode::from_raw_mode(mode)))
}

fn remove_directory(context: &mut Context) -> Result {
    context.let_go_of_directories();
    done(rustix::fs::rmdir(context.path()))
}

fn rename(context: &mut Context, flags: RenameFlags) -> Result {
    let (from, to) = (context.path(), context.path());
    context.let_go_of_directories();
    done(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
}

fn link(context: &mut Context, flags: AtFlags) -> Result {
    let (from, to) = (context.path(), context.path());
    if may_be_anothers(&from) {
        return Ok("another user's".into());
    }
    done(rustix::fs::linkat(CWD, from, CWD, to, flags))
}

fn symlink(context: &mut Context) -> Result {
    let target = context.path();
    let path = context.path();
    done(rustix::fs::symlink(target, path))
}

fn read_link(context: &mut Context) -> Result {
    let found = rustix::fs::readlink(context.path(), Vec::new())?;
    Ok(found.to_bytes().len().to_string())
}

fn node(context: &mut Context, kind: FileType) -> Result {
    let path = context.path();
    done(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), 0))
}

/// Makes a pipe, writes to it and reads that.
fn through_pipe(context: &mut Context) -> Result {
    let path = context.path();
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = rustix::fs::open(&path, flags, Mode::empty())?;
    let written = rustix::io::write(&pipe, b"through")?;
    let mut bytes = [0; 64];
    let count = rustix::io::read(&pipe, &mut bytes)?;
    Ok(format!("{written} {}", String::from_utf8_lossy(&bytes[..count])))
}

/// Binds a socket, which makes its name.
fn socket(context: &mut Context) -> Result {
    let path = context.path();
    match std::os::unix::net::UnixListener::bind(path) {
        Ok(_) => Ok("done".into()),
        Err(error) => Ok(format!("{:?}", error.raw_os_error())),
    }
}

fn remove_tree(context: &mut Context) -> Result {
    // One component, so that links and `..` are met below it and not on the way.
    let name = context.one_of(&crate::random_names::NAMES);
    context.let_go_of_directories();
    // Goes on past what cannot be removed: std's function stops there, and what is left depends on
    // the order in which the file system lists names.
    let removed = std::process::Command::new("rm").args(["-rf", "--", name]).output();
    Ok(format!("{:?}", removed.map(|output| output.status.code()).map_err(|error| error.kind())))
}

fn list(context: &mut Context) -> Result {
    let directory = open(&context.path(), OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
    listed(&directory)
}

/// Names and kinds of a directory's entries, sorted.
pub fn listed(directory: &std::os::fd::OwnedFd) -> Result {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        names.push(format!("{}:{:?}", entry.file_name().to_string_lossy(), entry.file_type()));
    }
    names.sort();
    Ok(names.join(" "))
}

fn access(context: &mut Context) -> Result {
    let path = context.path();
    let wanted =
        context.one_of(&[Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK, Access::EXISTS]);
    let flags = context.one_of(&[AtFlags::empty(), AtFlags::EACCESS, AtFlags::SYMLINK_NOFOLLOW]);
    done(rustix::fs::accessat(CWD, path, wanted, flags))
}

fn stat(context: &mut Context, flags: AtFlags) -> Result {
    let found = rustix::fs::statat(CWD, context.path(), flags)?;
    let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    // Sizes and numbers of links of directories differ (docs/guide/try.md).
    let (size, links) = if is_directory { (0, 0) } else { (found.st_size, found.st_nlink) };
    Ok(format!("{:o} {} {} {size} {links}", found.st_mode, owner(&found), found.st_gid))
}

/// Length of the path that a descriptor's link in `/proc` names.
fn canonical(context: &mut Context) -> Result {
    let path = context.path();
    match std::fs::canonicalize(path) {
        Ok(path) => Ok(path.as_os_str().len().to_string()),
        Err(error) => Ok(format!("{:?}", error.raw_os_error())),
    }
}

fn change_directory(context: &mut Context) -> Result {
    let back = open(".", OFlags::PATH | OFlags::DIRECTORY, 0)?;
    rustix::process::chdir(context.path())?;
    let name = context.one_of(&crate::random_names::NAMES);
    let made = rustix::fs::open(
        name,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        Mode::from_raw_mode(0o644),
    );
    let there = rustix::process::getcwd(Vec::new());
    rustix::process::fchdir(&back)?;
    let there = there?.to_bytes().len();
    Ok(format!("{there} {:?}", made.map(|_| ())))
}
