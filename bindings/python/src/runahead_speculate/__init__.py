"""Lets a program go on with a predicted answer, and takes it back in place where that was wrong.

A program that knows what it will probably be told need not wait for it. It asks its question, begins a
speculation, and goes on as if the prediction were the answer. What it writes is held. Somebody else,
another process of the session (a child that was forked before), receives the real answer and says with
``commit`` or ``fail`` whether the prediction was right:

    from runahead_speculate import Outcome, answer, begin

    begun = begin(receiver)
    if begun.outcome is Outcome.SPECULATIVE:
        ask(question, begun.id)
        result = prediction
    elif begun.outcome is Outcome.FAILED:
        result = answer(begun.id) or ask_and_wait(question)
    else:
        result = ask_and_wait(question)

``begin`` returns twice where the prediction was wrong: the second time the whole process, the
interpreter with all its objects and threads, is what it was when ``begin`` was called, and nothing
that was done since has been done. What has to outlast that, like an answer that was received, another
process must have. What does no harm, like a question, can be let out at once: ``set_policy``.

In a program with several threads, tell the other process all that it has to know in one call, right
after ``begin``: any call may have to wait for the interpreter's lock afterwards, and that waits for the
outcome.

It takes ``runahead run --speculate``. Otherwise each function makes one system call that fails, and
nothing else: ``begin`` is refused, and the program goes the ordinary way. On systems other than Linux
on x86-64 it makes none. What is of the wrong type raises ``TypeError``, an unknown policy
``ValueError``; nothing else is raised.
"""

import ctypes
import enum
import errno
from typing import List, NamedTuple, Optional, Protocol, Tuple, Union

from _runahead import FADVISE64, MOST, VERSION, find_syscall

__all__ = [
    "ANSWER_MAX", "Begun", "Event", "NOW", "Outcome", "Policy", "answer", "barrier", "begin", "commit", "events", "fail",
    "open_ids", "set_policy",
]

ANSWER_MAX = 4000
"""Most bytes of an answer that are kept."""


class Outcome(enum.Enum):
    """What ``begin`` comes to: perhaps two of these, one after the other."""

    SPECULATIVE = "speculative"
    """The process speculates from here on."""
    FAILED = "failed"
    """It did, the prediction was wrong, and all is as it was."""
    REFUSED = "refused"
    """It does not, and goes on the ordinary way."""


class Begun(NamedTuple):
    """What ``begin`` returns."""

    outcome: Outcome
    id: int
    """The speculation's number, the same in all processes of the session; 0 if it is refused."""
    errno: int
    """Why it is refused: ``errno.EBADF`` if nobody listens. 0 if it is not."""


class Policy(enum.IntEnum):
    """What becomes of what a speculative process writes to a descriptor."""

    DEFAULT = 0
    """``EXPAND`` for pipes, ``DEFER`` for all else."""
    DEFER = 1
    """It is held until all that it depends on is committed."""
    BLOCK = 2
    """The writer waits."""
    ALLOW = 3
    """It goes out at once, and stays where the prediction was wrong."""
    EXPAND = 4
    """It is held, but other processes of the session can read it, and depend on it then (pipes)."""


class Event(enum.IntEnum):
    """What has become of a speculation."""

    BEGUN = 0
    COMMITTED = 1
    FAILED = 2


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


# As `protocol` of the Rust crate runahead-speculate has them.
_MAGIC = 0x9D155BEC - (1 << 32)
_BEGIN = VERSION | 1
_COMMIT = VERSION | 2
_FAIL = VERSION | 3
_ANSWER = VERSION | 4
_SET_POLICY = VERSION | 5
_OPEN = VERSION | 6
_BARRIER = VERSION | 7
_EVENTS = VERSION | 8

# Each has argument types of its own.
_NUMBER = ctypes.c_uint64
_syscall = find_syscall(_NUMBER, _NUMBER, _NUMBER, _NUMBER)
_syscall_with_address = find_syscall(ctypes.c_void_p, _NUMBER, _NUMBER, _NUMBER)
# (Who speculates waits for nothing, and so not for the interpreter's lock, until the outcome is known.
# Were that given up in `begin`, another thread could have it before anybody is told the number.)
_syscall_to_begin = find_syscall(ctypes.c_void_p, _NUMBER, _NUMBER, _NUMBER, keeps_lock=True)
_syscall_with_bytes = find_syscall(_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER)
_syscall_with_room = find_syscall(_NUMBER, ctypes.c_void_p, _NUMBER, _NUMBER)


def begin(settler: int = 0) -> Begun:
    """Begins a speculation: all that this process does from here on depends on it.

    Returns ``Outcome.SPECULATIVE``; and, should the prediction turn out to be wrong, a second time, in
    the same place, ``Outcome.FAILED``.

    ``settler`` is the process that will settle it: should that end first, it has failed, without an
    answer. 0: nobody knows which.
    """
    if not 0 <= settler.__index__() < 1 << 31:
        return Begun(Outcome.REFUSED, 0, errno.ESRCH)
    if _syscall_to_begin is None:
        return Begun(Outcome.REFUSED, 0, errno.EBADF)
    number = ctypes.c_uint64()
    result = _syscall_to_begin(FADVISE64, _MAGIC, _BEGIN, ctypes.addressof(number), settler, 0, 0)
    if result < 0:
        return Begun(Outcome.REFUSED, 0, ctypes.get_errno())
    return Begun(Outcome.FAILED if result else Outcome.SPECULATIVE, number.value, 0)


def commit(id: int) -> bool:
    """The prediction was right. Any process of the session may say so.

    False: no such speculation is open (it has been settled, or its process has been taken back to before
    it); or nobody listens.
    """
    if not 0 <= id.__index__() <= MOST or _syscall is None:
        return False
    return _syscall(FADVISE64, _MAGIC, _COMMIT, id, 0, 0, 0) == 0


def fail(id: int, answer: bytes = b"") -> bool:
    """The prediction was wrong, and ``answer``, of which ``ANSWER_MAX`` bytes count, is what is right.

    False: as of ``commit``.
    """
    if not isinstance(answer, bytes):
        raise TypeError(f"an answer is bytes, not {type(answer).__name__}")
    if not 0 <= id.__index__() <= MOST or _syscall_with_bytes is None:
        return False
    return _syscall_with_bytes(FADVISE64, _MAGIC, _FAIL, id, answer, len(answer), 0) == 0


def answer(id: int) -> Optional[bytes]:
    """Of a speculation that this process was just told to have failed: what is right.

    Empty if nobody could say. None if it is not known (any more), which is so for all but the last few.
    """
    if not 0 <= id.__index__() <= MOST or _syscall_with_room is None:
        return None
    room = ctypes.create_string_buffer(ANSWER_MAX)
    length = _syscall_with_room(FADVISE64, _MAGIC, _ANSWER, id, ctypes.addressof(room), ANSWER_MAX, 0)
    return room.raw[:length] if length >= 0 else None


def set_policy(fd: Union[int, HasFileno], policy: Policy) -> Optional[Policy]:
    """What is to become of what is written to an open file, until its descriptor is closed.

    ``fd`` is a descriptor or whatever has a ``fileno()``. Returns what was to become of it before; None
    if nobody listens, or if it is not open.
    """
    policy = Policy(policy)
    if not isinstance(fd, int):
        try:
            fd = fd.fileno()
        except (OSError, ValueError):
            return None
    if _syscall is None or not 0 <= fd < 1 << 31:
        return None
    before = _syscall(FADVISE64, _MAGIC, _SET_POLICY, fd, policy, 0, 0)
    return Policy(before) if before >= 0 else None


def open_ids() -> List[int]:
    """The speculations that this process depends on, the oldest first."""
    if _syscall_with_address is None:
        return []
    room = 64
    while True:
        ids = (ctypes.c_uint64 * room)()
        count = _syscall_with_address(FADVISE64, _MAGIC, _OPEN, ctypes.addressof(ids), room, 0, 0)
        if count <= room:
            return ids[: max(count, 0)]
        room = count


NOW = MOST
"""In place of a position among events: behind all that has happened so far."""


def events(position: int = NOW) -> Tuple[int, List[Tuple[int, Event]]]:
    """What has become of the session's speculations from ``position`` on: a new position, and ids with what happened.

    Nothing is told twice; who is slow misses some: a thousand are kept.
    """
    if not 0 <= position.__index__() <= MOST or _syscall_with_address is None:
        return position, []
    room = 256
    at = ctypes.c_uint64(position)
    words = (ctypes.c_uint64 * (2 * room))()
    count = _syscall_with_address(
        FADVISE64, _MAGIC, _EVENTS, ctypes.addressof(at), ctypes.addressof(words), room, 0
    )
    pairs = [(words[2 * n], Event(words[2 * n + 1])) for n in range(max(count, 0))]
    return at.value, pairs


def barrier() -> bool:
    """Waits until this process depends on nothing any more.

    True if somebody listens.
    """
    return _syscall is not None and _syscall(FADVISE64, _MAGIC, _BARRIER, 0, 0, 0, 0) == 0
