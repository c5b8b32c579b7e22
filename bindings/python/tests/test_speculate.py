"""Tests for `python3 -m unittest`, without runahead and under it (RUNAHEAD_SPECULATES=1 then)."""

import errno
import os
import unittest

import runahead_speculate
from runahead_speculate import (
    ANSWER_MAX, Begun, Event, NOW, Outcome, Policy, answer, barrier, begin, commit, events, fail, open_ids, set_policy
)

LISTENS = os.environ.get("RUNAHEAD_SPECULATES") == "1"
REFUSED = Begun(Outcome.REFUSED, 0, errno.EBADF)


class Speculating(unittest.TestCase):
    def pipe(self) -> "tuple[int, int]":
        ends = os.pipe()
        for end in ends:
            self.addCleanup(os.close, end)
        return ends

    @unittest.skipIf(LISTENS, "runahead listens")
    def test_without_runahead_every_call_is_refused(self) -> None:
        self.assertEqual((begin(), begin(os.getpid())), (REFUSED, REFUSED))
        self.assertFalse(commit(1) or fail(1, b"x") or barrier())
        self.assertIsNone(answer(1))
        self.assertIsNone(set_policy(1, Policy.ALLOW))
        self.assertEqual(open_ids(), [])
        self.assertEqual(events(), (NOW, []))

    @unittest.skipUnless(LISTENS, "no runahead listens")
    def test_a_prediction_is_committed_or_rolled_back(self) -> None:
        for right in (None, b"", b"right\0answer", b"x" * (ANSWER_MAX + 9)):
            wanted, told = self.pipe()
            set_policy(told, Policy.ALLOW)
            child = os.fork()
            if child == 0:
                id = int.from_bytes(os.read(wanted, 8), "little")
                os._exit(not (commit(id) if right is None else fail(id, right)))
            done = []
            position, _ = events()
            begun = begin(child)
            if begun.outcome is Outcome.SPECULATIVE:
                done.append("something")
                self.assertEqual(open_ids(), [begun.id])
                os.write(told, begun.id.to_bytes(8, "little"))
                barrier()
            self.assertEqual(open_ids(), [])
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            end = Event.COMMITTED if right is None else Event.FAILED
            self.assertEqual(events(position)[1], [(begun.id, Event.BEGUN), (begun.id, end)])
            if right is None:
                self.assertEqual((begun.outcome, done), (Outcome.SPECULATIVE, ["something"]))
            else:
                self.assertEqual((begun.outcome, done), (Outcome.FAILED, []))
                self.assertEqual(answer(begun.id), right[:ANSWER_MAX])
            self.assertGreater(begun.id, 0)
            self.assertFalse(commit(begun.id), "it is settled")

    def test_a_policy_belongs_to_a_descriptor_until_it_is_closed(self) -> None:
        read, _ = self.pipe()
        file = os.fdopen(os.dup(read), "rb")
        before = Policy.DEFAULT
        for policy in Policy:
            self.assertIs(set_policy(file, policy), before if LISTENS else None)
            before = policy
        self.assertIs(set_policy(file.fileno(), Policy.ALLOW), before if LISTENS else None)
        file.close()
        self.assertIsNone(set_policy(file, Policy.ALLOW), "it is closed")

    def test_arguments_without_sense_are_not_taken(self) -> None:
        for id in (-1, 0, 1 << 63, 2**64, 10**30):
            self.assertFalse(commit(id) or fail(id, b"x"))
            self.assertIsNone(answer(id))
        for settler in (-1, 2**31, 2**40, 10**30):
            self.assertEqual(begin(settler), Begun(Outcome.REFUSED, 0, errno.ESRCH))
        for fd in (-1, 2**31, 2**40, 10**30):
            self.assertIsNone(set_policy(fd, Policy.ALLOW))

    def test_arguments_of_the_wrong_type_raise(self) -> None:
        for wrong in (lambda: begin(0.5), lambda: commit(None), lambda: fail(1, "x"),  # type: ignore
                      lambda: answer("x"), lambda: set_policy(None, Policy.ALLOW),  # type: ignore
                      lambda: set_policy(1, 5)):  # type: ignore
            self.assertRaises((TypeError, AttributeError, ValueError), wrong)

    def test_all_lists_every_public_name(self) -> None:
        named = ["ANSWER_MAX", "Begun", "Event", "NOW", "Outcome", "Policy", "answer", "barrier", "begin", "commit",
                 "events", "fail", "open_ids", "set_policy"]
        self.assertEqual(runahead_speculate.__all__, named)


if __name__ == "__main__":
    unittest.main()
