"""Tells runahead which parts of which files this program will read.

A program that is run by ``runahead run`` and knows its future discloses it. Runahead reads what was
disclosed in parallel, while the program works or waits:

    import runahead_disclose

    with open("table", "rb") as table:
        for place in places:
            runahead_disclose.disclose_fd(table, place, 4096)
        for place in places:
            table.seek(place)
            ...

A disclosure changes nothing but what is in memory, and when. Each function returns whether the
disclosure was taken; a program need not look. Numbers of any size, and any path, are safe: what
makes no sense is not taken. Only an argument of the wrong type raises ``TypeError``.

Without runahead each function makes one system call that fails, and nothing else; on systems other
than Linux on x86-64 it makes none.
"""

import ctypes
import os
from typing import Protocol, Union

from _runahead import FADVISE64, MOST, VERSION, find_syscall

__all__ = ["cancel_all", "disclose_fd", "disclose_path"]


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


# Numbers of the calls, as in `protocol` of the Rust crate runahead-client.
_MAGIC = 0x9D15C105 - (1 << 32)
_DISCLOSE_FD = VERSION | 1
_DISCLOSE_PATH = VERSION | 2
_CANCEL_ALL = VERSION | 3

# The same system call with different argument types.
_NUMBER = ctypes.c_uint64
_syscall = find_syscall(_NUMBER, _NUMBER, _NUMBER, _NUMBER)
_syscall_with_path = find_syscall(ctypes.c_char_p, _NUMBER, _NUMBER, _NUMBER)


def _fits(offset: int, length: int) -> bool:
    # Raises TypeError for what is no integer. An integer out of range is no error.
    return 0 <= offset.__index__() <= MOST and 0 <= length.__index__() <= MOST


def disclose_fd(fd: Union[int, HasFileno], offset: int, length: int) -> bool:
    """Discloses ``length`` bytes from byte ``offset`` of an open file; 0: all to its end.

    ``fd`` is a descriptor or an object with a ``fileno()``; a closed file is not taken. What lies
    beyond the end of the file, or more than 1 GiB from ``offset``, does not count.

    True if the disclosure was taken or the data is in memory already. False if no runahead
    listens, if the file is not regular, or if so much is disclosed and not read yet that no more
    fits. Then disclose it again later.
    """
    if not _fits(offset, length):
        return False
    if not isinstance(fd, int):
        try:
            fd = fd.fileno()
        except (OSError, ValueError):
            return False
    if _syscall is None or not 0 <= fd < 1 << 31:
        return False
    return _syscall(FADVISE64, _MAGIC, _DISCLOSE_FD, fd, offset, length, 0) == 0


def disclose_path(
    path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"], offset: int = 0, length: int = 0
) -> bool:
    """Discloses the same for the file at ``path``, which need not be open.

    A relative path is relative to the working directory. Name the file as it will be opened: the
    data comes under any name, but an access counts as foreseen only under the same name.
    """
    name = os.fsencode(path)
    if not _fits(offset, length) or b"\0" in name or _syscall_with_path is None:
        return False
    return _syscall_with_path(FADVISE64, _MAGIC, _DISCLOSE_PATH, name, offset, length, 0) == 0


def cancel_all() -> bool:
    """Cancels all that this process has disclosed and runahead has not begun to read.

    True if runahead listens.
    """
    return _syscall is not None and _syscall(FADVISE64, _MAGIC, _CANCEL_ALL, 0, 0, 0, 0) == 0
