"""System call by which programs talk to runahead, for the packages beside this one."""

import ctypes
import platform
import sys
from typing import Any, Callable, Optional

FADVISE64 = 221
# Version of the interface, in the upper half of the second argument.
VERSION = 1 << 32
# Largest number that an argument holds.
MOST = (1 << 64) - 1

Syscall = Callable[..., int]


def find_syscall(*types: Any, keeps_lock: bool = False) -> Optional[Syscall]:
    """Returns ``syscall(2)`` with its last four arguments of these types; None on other platforms.

    ``keeps_lock``: no other thread of Python runs meanwhile. After a call that returns -1,
    ``ctypes.get_errno()`` says why.
    """
    is_known = sys.platform == "linux" and platform.machine() == "x86_64"
    if not is_known or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.PyDLL if keeps_lock else ctypes.CDLL
        syscall = library(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_uint64, *types]
    return syscall
