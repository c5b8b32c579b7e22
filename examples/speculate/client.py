"""Client of a slow service that does not wait for answers: it predicts each one and continues.

    client.py SOCKET CALLS MICROSECONDS PERCENT

Asks service.c CALLS questions, one after another, each of which depends on the answer before, and
computes for MICROSECONDS after each. PERCENT of its predictions are right. Prints every hundredth
answer, and at the end the last.

Under ``runahead run --speculate`` the client need not wait for the service. Without runahead, or
where it cannot speculate, it waits for each answer. It prints the same either way. client.c and
client.rs do the same in C and Rust.

There are two processes: the client, and a receiver. The receiver is a child that gets the
answers, knows the predictions, and settles each. It has to be another process, because a process
that is rolled back forgets what it has received.
"""

import os
import socket
import struct
import sys
import time
from typing import NamedTuple, NoReturn, Optional, Tuple

from runahead_speculate import Outcome, Policy, answer, barrier, begin, commit, fail, set_policy

# Bit of a tag that is not the number of a speculation: a question whose answer is waited for.
WAITS = 1 << 63
WORD = (1 << 64) - 1
# A question, or the answer to the question with that tag: a tag and a number, as in service.h.
MESSAGE = struct.Struct("=QQ")


def answer_of(number: int) -> int:
    """Answer of the service, as in service.h."""
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & WORD
    return number ^ number >> 31


def die(what: str) -> NoReturn:
    sys.exit(what)


def get(fd: int) -> Optional[Tuple[int, int]]:
    """Returns the next message; None if the other end has closed."""
    message = b""
    while len(message) < MESSAGE.size:
        try:
            part = os.read(fd, MESSAGE.size - len(message))
        except OSError:
            return None
        if not part:
            return None
        message += part
    tag, number = MESSAGE.unpack(message)
    return tag, number


def put(fd: int, tag: int, number: int) -> None:
    try:
        written = os.write(fd, MESSAGE.pack(tag, number))
    except OSError:
        written = 0
    if written != MESSAGE.size:
        die("the service has gone")


def receive(service: int, predictions: int, answers: int) -> None:
    """Body of the receiver: settles predictions, and passes on other answers."""
    predicted = (0, 0)
    while True:
        message = get(service)
        if message is None:
            return
        tag, number = message
        if tag & WAITS:
            put(answers, tag, number)
            continue
        # Predictions come in the order of questions. If one has no question, the client was rolled
        # back in between.
        while predicted[0] != tag:
            following = get(predictions)
            if following is None:
                return
            predicted = following
        # False means that the client has been rolled back since.
        if predicted[1] == number:
            commit(tag)
        else:
            fail(tag, struct.pack("=Q", number))


class Client(NamedTuple):
    service: int
    predictions: int
    answers: int
    receiver: int

    def ask(self, number: int) -> int:
        """Asks, and waits for the answer."""
        # A counter would be rolled back with the process; time is not.
        tag = WAITS | time.monotonic_ns()
        put(self.service, tag, number)
        while True:
            # Answers to questions that were rolled back come first.
            message = get(self.answers)
            if message is None:
                die("the service has gone")
            if message[0] == tag:
                return message[1]

    def ask_ahead(self, number: int, prediction: int) -> int:
        """Returns the answer to a number, or its prediction."""
        begun = begin(self.receiver)
        if begun.outcome is Outcome.SPECULATIVE:
            put(self.predictions, begun.id, prediction)
            put(self.service, begun.id, number)
            return prediction
        if begun.outcome is Outcome.FAILED:
            right = answer(begun.id)
            if right:
                return int.from_bytes(right, sys.byteorder)
            # It failed without an answer.
        return self.ask(number)


def predict(number: int, call: int, percent: int) -> int:
    """Predicts the answer, right in PERCENT of calls."""
    return (answer_of(number) + (answer_of(call) % 100 >= percent)) & WORD


def compute(number: int, microseconds: int) -> None:
    """Work between two questions."""
    until = time.monotonic_ns() + microseconds * 1000
    while True:
        for n in range(10):
            number ^= answer_of((number + n) & WORD)
        if time.monotonic_ns() >= until:
            return


def main() -> None:
    try:
        path, *numbers = sys.argv[1:]
        calls, microseconds, percent = map(int, numbers)
        if min(calls, microseconds, percent) < 0:
            raise ValueError
    except ValueError:
        print("usage: client SOCKET CALLS MICROSECONDS PERCENT", file=sys.stderr)
        sys.exit(2)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        die(f"{path}: {error.strerror or error}")
    service = connection.fileno()
    predicted, predictions = os.pipe()
    answers, answered = os.pipe()
    receiver = os.fork()
    if receiver == 0:
        os.close(predictions)
        os.close(answers)
        receive(service, predicted, answered)
        # The client does what is to be done at the end.
        os._exit(0)
    # The other ends are the receiver's alone, so that they close when it ends.
    os.close(predicted)
    os.close(answered)
    # Questions do no harm, and the receiver ignores predictions without a question. All other
    # output of the client is held until it is certain.
    set_policy(service, Policy.ALLOW)
    set_policy(predictions, Policy.ALLOW)
    client = Client(service, predictions, answers, receiver)
    number = 1
    for call in range(calls):
        number = client.ask_ahead(number, predict(number, call, percent))
        compute(number, microseconds)
        if call % 100 == 99:
            print(f"{call + 1}: {number:016x}")
    print(f"last: {number:016x}", flush=True)
    barrier()
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It is no error if the service has ended by now.
        pass
    os.close(predictions)
    os.waitpid(receiver, 0)


if __name__ == "__main__":
    main()
