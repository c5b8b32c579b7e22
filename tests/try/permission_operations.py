"""Changes that the kernel may refuse, each in a directory of its own.

Usage: permission_operations.py GROUP TASK USER. The task `prepare`, as root, fills a directory for
each change of the group with entries of USER, of root and of another user, some of them immutable
or append-only. `run` makes each change and prints its error. `look` prints what is there."""

import errno
import os
import socket
import stat
import subprocess
import sys

OTHER = 4321
WRITE, APPEND, CREATE = os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_CREAT


def opened(name, flags, then=None):
    fd = os.open(name, flags, 0o644)
    if then:
        then(fd)
    os.close(fd)


def after_write(name, then):
    """`then` on a file that was written to before."""
    opened(name, APPEND)
    then()


def bound(name):
    socket.socket(socket.AF_UNIX).bind(name)


# Directories and files of chattr(1), of every kind of change.
MARKED = {}
for f in ["im", "ap", "imd", "apd", "imd/f", "apd/f"]:
    MARKED |= {
        f"unlink {f}": lambda f=f: os.unlink(f),
        f"rmdir {f}": lambda f=f: os.rmdir(f),
        f"rename {f}": lambda f=f: os.rename(f, "new"),
        f"link {f}": lambda f=f: os.link(f, "new"),
        f"rename onto {f}": lambda f=f: os.rename("own", f),
        f"write {f}": lambda f=f: opened(f, WRITE),
        f"read and write {f}": lambda f=f: opened(f, os.O_RDWR),
        f"create {f}": lambda f=f: opened(f, CREATE),
        f"empty {f}": lambda f=f: opened(f, APPEND | os.O_TRUNC),
        f"empty to read {f}": lambda f=f: opened(f, os.O_TRUNC),
        f"truncate {f}": lambda f=f: os.truncate(f, 0),
        f"chmod {f}": lambda f=f: os.chmod(f, 0o755),
        f"fchmod {f}": lambda f=f: opened(f, os.O_RDONLY, lambda fd: os.fchmod(fd, 0o755)),
        f"chown {f}": lambda f=f: os.chown(f, os.geteuid(), -1),
        f"times {f}": lambda f=f: os.utime(f, (1, 1)),
        f"touch {f}": lambda f=f: os.utime(f),
        f"set attribute {f}": lambda f=f: os.setxattr(f, "user.new", b"1"),
        f"remove attribute {f}": lambda f=f: os.removexattr(f, "user.old"),
        f"list {f}": lambda f=f: os.listxattr(f),
    }
for d in ["imd", "apd"]:
    MARKED |= {
        f"create in {d}": lambda d=d: opened(d + "/new", CREATE),
        f"create without name in {d}": lambda d=d: opened(d, os.O_TMPFILE | os.O_WRONLY),
        f"mkdir in {d}": lambda d=d: os.mkdir(d + "/new"),
        f"symlink in {d}": lambda d=d: os.symlink("x", d + "/new"),
        f"fifo in {d}": lambda d=d: os.mkfifo(d + "/new"),
        f"bind in {d}": lambda d=d: bound(d + "/new"),
        f"link in {d}": lambda d=d: os.link("own", d + "/new"),
        f"rename into {d}": lambda d=d: os.rename("own", d + "/new"),
        f"rename in {d}": lambda d=d: os.rename(d + "/f", d + "/new"),
        f"remove what was made in {d}": lambda d=d: (opened(d + "/new", CREATE), os.unlink(d + "/new")),
        f"parent of {d}": lambda d=d: (opened(d + "/in/new", CREATE), os.unlink(d + "/in/new")),
    }
# Appends, which a commit must make as appends.
APPENDED = {
    "touch ap": MARKED.pop("touch ap"),
    "touch apd": MARKED.pop("touch apd"),
    "append ap": lambda: opened("ap", APPEND),
    "append, then empty ap": lambda: after_write("ap", lambda: opened("ap", WRITE | os.O_TRUNC)),
    "append, then remove ap": lambda: after_write("ap", lambda: os.unlink("ap")),
    "append, then chmod ap": lambda: after_write("ap", lambda: os.chmod("ap", 0o600)),
    "append, then fchmod ap": lambda: opened("ap", APPEND, lambda fd: os.fchmod(fd, 0o600)),
}

OWNED = {}
for f in ["own", "roots", "all", "others", "suid", "readable", "sticky/root", "sticky/other", "sticky/own", "group/other", "d", "l",
          "p", "sticky/p", "unwritable"]:
    OWNED |= {
        f"unlink {f}": lambda f=f: os.unlink(f),
        f"rmdir {f}": lambda f=f: os.rmdir(f),
        f"rename {f}": lambda f=f: os.rename(f, "new"),
        f"move {f}": lambda f=f: os.rename(f, "d/new"),
        f"rename onto {f}": lambda f=f: os.rename("x", f),
        f"link {f}": lambda f=f: os.link(f, "new", follow_symlinks=False),
        f"truncate {f}": lambda f=f: os.truncate(f, 0),
        f"write {f}": lambda f=f: opened(f, WRITE | os.O_NONBLOCK),
        f"chmod {f}": lambda f=f: os.chmod(f, 0o755),
        f"fchmod {f}": lambda f=f: opened(f, os.O_RDONLY | os.O_NONBLOCK, lambda fd: os.fchmod(fd, 0o755)),
        f"chown {f}": lambda f=f: os.chown(f, os.geteuid(), -1, follow_symlinks=False),
        f"give away {f}": lambda f=f: os.chown(f, OTHER, -1, follow_symlinks=False),
        f"times {f}": lambda f=f: os.utime(f, (1, 1), follow_symlinks=False),
        f"touch {f}": lambda f=f: os.utime(f, follow_symlinks=False),
        f"set attribute {f}": lambda f=f: os.setxattr(f, "user.new", b"1", follow_symlinks=False),
        f"access times {f}": lambda f=f: opened(f, WRITE | os.O_NOATIME | os.O_NONBLOCK),
        f"file there {f}": lambda f=f: opened(f, CREATE | os.O_EXCL),
        f"slash {f}": lambda f=f: os.unlink(f + "/"),
        f"node {f}": lambda f=f: os.mknod(f, stat.S_IFIFO),
    }
for f in ["own", "all", "sticky/root", "sticky/other", "group/other"]:
    OWNED |= {
        f"open or create {f}": lambda f=f: opened(f, CREATE),
        f"open or create to read {f}": lambda f=f: opened(f, os.O_CREAT),
        f"write, then unlink {f}": lambda f=f: after_write(f, lambda: os.unlink(f)),
        f"write, then rename {f}": lambda f=f: after_write(f, lambda: os.rename(f, "new")),
        f"write, then chmod {f}": lambda f=f: after_write(f, lambda: os.chmod(f, 0o600)),
        f"write, then times {f}": lambda f=f: after_write(f, lambda: os.utime(f, (1, 1))),
        f"write, then fchmod {f}": lambda f=f: opened(f, APPEND, lambda fd: os.fchmod(fd, 0o600)),
        f"write, then link {f}": lambda f=f: after_write(f, lambda: os.link(f, "new")),
    }
# A try opens no named pipe that was there to write to it.
for f in ["p", "sticky/p"]:
    del OWNED[f"write {f}"], OWNED[f"access times {f}"]
OWNED |= {
    "open or create to read sticky/p": lambda: opened("sticky/p", os.O_CREAT | os.O_NONBLOCK),
    "follow sticky/l": lambda: opened("sticky/l", WRITE),
    "attributes by sticky/l": lambda: os.chmod("sticky/l", 0o600),
    "list sticky/ld/": lambda: os.unlink("sticky/ld/new"),
    "attribute of sticky": lambda: os.setxattr("sticky", "user.new", b"1"),
    "create in unwritable": lambda: opened("unwritable/new", CREATE),
    "make a directory by mknod": lambda: os.mknod("new", stat.S_IFDIR),
    "make a node of no kind": lambda: os.mknod("new", 0o170000),
    "make a device that is there": lambda: os.mknod("own", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "make a device in unwritable": lambda: os.mknod("unwritable/x/y", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "link to another mount": lambda: os.link("/proc/self/status", "new"),
}

GROUPS = {"marked": MARKED, "appended": APPENDED, "owned": OWNED}


def prepare(user):
    def make(name, owner, mode, text="one\n"):
        with open(name, "w") as file:
            file.write(text)
        os.chown(name, owner, owner)
        os.chmod(name, mode)

    def directory(name, owner, mode):
        os.mkdir(name)
        os.chown(name, owner, owner)
        os.chmod(name, mode)

    directory("imd", user, 0o755)
    directory("apd", user, 0o755)
    for name in ["im", "ap", "imd/f", "apd/f", "own", "x"]:
        make(name, user, 0o644)
    for name in ["im", "ap", "imd", "apd"]:
        os.setxattr(name, "user.old", b"1")
    for name in ["imd/in", "apd/in", "d"]:
        directory(name, user, 0o755)
    directory("unwritable", user, 0o555)
    directory("sticky", 0, 0o1777)
    directory("group", 0, 0o1775)
    os.chown("group", 0, user)
    make("roots", 0, 0o644)
    make("all", 0, 0o666)
    make("others", OTHER, 0o666)
    make("suid", OTHER, 0o4777)
    make("readable", user, 0o444)
    make("sticky/root", 0, 0o666)
    make("sticky/other", OTHER, 0o666)
    make("sticky/own", user, 0o666)
    make("group/other", OTHER, 0o666)
    for name, to in [("l", "own"), ("sticky/l", "../own"), ("sticky/ld", "../d")]:
        os.symlink(to, name)
        os.lchown(name, OTHER, OTHER)
    for name in ["p", "sticky/p"]:
        os.mkfifo(name)
        os.chown(name, OTHER, OTHER)
        os.chmod(name, 0o666)


def look(name):
    found = os.lstat(name)
    is_directory = stat.S_ISDIR(found.st_mode)
    kind = (found.st_uid, found.st_gid, is_directory or found.st_size)
    attributes = [(n, os.getxattr(name, n, follow_symlinks=False)) for n in os.listxattr(name, follow_symlinks=False)]
    print(name, oct(found.st_mode), *kind, sorted(attributes))
    for inner in sorted(os.listdir(name)) if is_directory else []:
        look(os.path.join(name, inner))


def main(group, task, user):
    operations = GROUPS[group]
    if task == "look":
        look(".")
        return
    top = os.getcwd()
    marked = {"+i": [], "+a": []}
    for number, (name, change) in enumerate(operations.items()):
        place = os.path.join(top, f"{number:03}")
        if task == "prepare":
            os.mkdir(place)
            os.chown(place, user, user)
        os.chdir(place)
        if task == "prepare":
            prepare(user)
            marked["+i"] += [place + "/im", place + "/imd"]
            marked["+a"] += [place + "/ap", place + "/apd"]
            continue
        try:
            change()
            print(number, name, "done")
        except OSError as error:
            print(number, name, errno.errorcode[error.errno])
    if task == "prepare" and group != "owned":
        for mark, names in marked.items():
            subprocess.run(["chattr", mark] + names, check=True)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
