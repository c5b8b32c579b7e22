"""Lets a program continue on a predicted answer, and rolls it back in place if that was wrong.

A program that knows the probable answer need not wait for it. It asks its question, begins a
speculation, and continues as if the prediction were the answer. Its output is held. Another
process of the session (a child that was forked before) receives the real answer and says with
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

``begin`` returns twice if the prediction was wrong. The second time the whole process, the
interpreter with all its objects and threads, is what it was when ``begin`` was called, and nothing
that was done since has been done. What has to survive a rollback, like an answer that was
received, must be in another process. Output that does no harm, like a question, can be written at
once: ``set_policy``.

In a program with several threads, send the other process all that it needs in one call, right
after ``begin``. Any call may have to wait for the interpreter's lock afterwards, and that waits
for the outcome.

The functions need ``runahead run --speculate``. Otherwise each makes one system call that fails,
and nothing else: ``begin`` is refused, and the program has to wait for the answer. On systems
other than Linux on x86-64 it makes none. An argument of the wrong type raises ``TypeError``, an
unknown policy ``ValueError``; nothing else is raised.
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
    """Outcomes of ``begin``; it may return two of these, one after the other."""

    SPECULATIVE = "speculative"
    """The process speculates from now on."""
    FAILED = "failed"
    """The prediction was wrong, and the process was rolled back."""
    REFUSED = "refused"
    """The process does not speculate, and has to wait for the answer."""


class Begun(NamedTuple):
    """Result of ``begin``."""

    outcome: Outcome
    id: int
    """Number of the speculation, the same in all processes of the session; 0 if it is refused."""
    errno: int
    """Reason of a refusal: ``errno.EBADF`` if no runahead listens. 0 if it is not refused."""


class Policy(enum.IntEnum):
    """Policies for the output of a speculative process to a descriptor."""

    DEFAULT = 0
    """``EXPAND`` for pipes, ``DEFER`` for all else."""
    DEFER = 1
    """The output is held until all that it depends on is committed."""
    BLOCK = 2
    """The writer waits."""
    ALLOW = 3
    """The output is written at once, and stays if the prediction was wrong."""
    EXPAND = 4
    """Like ``DEFER``, but other processes of the session can read and depend on it (pipes)."""


class Event(enum.IntEnum):
    """Events of a speculation."""

    BEGUN = 0
    COMMITTED = 1
    FAILED = 2


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


# Numbers of the calls, as in `protocol` of the Rust crate runahead-client.
_MAGIC = 0x9D155BEC - (1 << 32)
_BEGIN = VERSION | 1
_COMMIT = VERSION | 2
_FAIL = VERSION | 3
_ANSWER = VERSION | 4
_SET_POLICY = VERSION | 5
_OPEN = VERSION | 6
_BARRIER = VERSION | 7
_EVENTS = VERSION | 8

# The same system call with different argument types.
_NUMBER = ctypes.c_uint64
_syscall = find_syscall(_NUMBER, _NUMBER, _NUMBER, _NUMBER)
_syscall_with_address = find_syscall(ctypes.c_void_p, _NUMBER, _NUMBER, _NUMBER)
# `begin` keeps the interpreter's lock. A process that speculates waits for the outcome before it
# waits for anything else, the lock included. If `begin` released the lock, another thread could
# take it before the number is sent to the settling process.
_syscall_to_begin = find_syscall(ctypes.c_void_p, _NUMBER, _NUMBER, _NUMBER, keeps_lock=True)
_syscall_with_bytes = find_syscall(_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER)
_syscall_with_room = find_syscall(_NUMBER, ctypes.c_void_p, _NUMBER, _NUMBER)


def begin(settler: int = 0) -> Begun:
    """Begins a speculation: all that this process does from now on depends on it.

    Returns ``Outcome.SPECULATIVE``. If the prediction turns out to be wrong, returns a second
    time, in the same place, ``Outcome.FAILED``.

    ``settler`` is the process that will settle the speculation, 0 if that is unknown. If it ends
    first, the speculation has failed, without an answer.
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
    """Commits a speculation: the prediction was right. Any process of the session may do so.

    False if no such speculation is open (it has been settled, or its process has been rolled back
    to before it), or if no runahead listens.
    """
    if not 0 <= id.__index__() <= MOST or _syscall is None:
        return False
    return _syscall(FADVISE64, _MAGIC, _COMMIT, id, 0, 0, 0) == 0


def fail(id: int, answer: bytes = b"") -> bool:
    """Fails a speculation: the prediction was wrong.

    ``answer``, of which ``ANSWER_MAX`` bytes count, is the right one. False as for ``commit``.
    """
    if not isinstance(answer, bytes):
        raise TypeError(f"an answer is bytes, not {type(answer).__name__}")
    if not 0 <= id.__index__() <= MOST or _syscall_with_bytes is None:
        return False
    return _syscall_with_bytes(FADVISE64, _MAGIC, _FAIL, id, answer, len(answer), 0) == 0


def answer(id: int) -> Optional[bytes]:
    """Returns the right answer of a speculation of this process that has just failed.

    Empty if it failed without an answer. None if the answer is not known (any more): the answers
    of the last few speculations are kept.
    """
    if not 0 <= id.__index__() <= MOST or _syscall_with_room is None:
        return None
    room = ctypes.create_string_buffer(ANSWER_MAX)
    length = _syscall_with_room(FADVISE64, _MAGIC, _ANSWER, id, ctypes.addressof(room), ANSWER_MAX, 0)
    return room.raw[:length] if length >= 0 else None


def set_policy(fd: Union[int, HasFileno], policy: Policy) -> Optional[Policy]:
    """Sets the policy for output to an open file, until its descriptor is closed.

    ``fd`` is a descriptor or an object with a ``fileno()``. Returns the policy before; None if no
    runahead listens, or if the file is not open.
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
    """Returns the speculations that this process depends on, the oldest first."""
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
"""Position behind all events so far."""


def events(position: int = NOW) -> Tuple[int, List[Tuple[int, Event]]]:
    """Returns a new position, and the events of the session from ``position`` on, each with its id.

    No event is returned twice. A caller that is slow misses some: a thousand are kept.
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
    """Waits until this process depends on no speculation any more.

    True if runahead listens.
    """
    return _syscall is not None and _syscall(FADVISE64, _MAGIC, _BARRIER, 0, 0, 0, 0) == 0
