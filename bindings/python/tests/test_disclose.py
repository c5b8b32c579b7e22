"""Tests for `python3 -m unittest`, without runahead and under it (RUNAHEAD_LISTENS=1 then)."""

import os
import pathlib
import socket
import tempfile
import unittest

import runahead_disclose
from runahead_disclose import cancel_all, disclose_fd, disclose_path

LISTENS = os.environ.get("RUNAHEAD_LISTENS") == "1"


class Disclosing(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(dir=os.environ.get("W"))
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, "filé")
        self.path.write_bytes(b"x" * 10000)

    def test_a_file_is_taken_if_runahead_listens(self) -> None:
        with open(self.path, "rb") as file:
            for fd in (file, file.fileno()):
                self.assertIs(disclose_fd(fd, 0, 4096), LISTENS)
                self.assertIs(disclose_fd(fd, 4096, 0), LISTENS)
                self.assertIs(disclose_fd(fd, 4096, 2**64 - 1), LISTENS)
            self.assertEqual(file.tell(), 0)
        for path in (str(self.path), bytes(self.path), self.path):
            self.assertIs(disclose_path(path), LISTENS)
            self.assertIs(disclose_path(path, 4096, 100), LISTENS)
        self.assertIs(cancel_all(), LISTENS)

    def test_arguments_without_sense_are_not_taken(self) -> None:
        with open(self.path, "rb") as file:
            for offset, length in ((-1, 1), (0, -1), (2**64, 1), (0, 2**64), (10000, 1), (2**64 - 1, 0)):
                self.assertFalse(disclose_fd(file, offset, length))
            self.assertFalse(disclose_path(self.path, -1, 0))
            self.assertFalse(disclose_path(self.path, 0, 10**30))
        self.assertFalse(disclose_fd(file, 0, 1), "it is closed")
        for fd in (-1, 2**31, 2**40, 10**30):
            self.assertFalse(disclose_fd(fd, 0, 1))
        here, there = socket.socketpair()
        with here, there:
            self.assertFalse(disclose_fd(here, 0, 1))
        for path in ("", b"", "a\0b", b"x" * 5000, "/proc/self/maps"):
            self.assertFalse(disclose_path(path))

    def test_arguments_of_the_wrong_type_raise(self) -> None:
        for wrong in (lambda: disclose_fd(0, 0.5, 1), lambda: disclose_path(3.5),  # type: ignore
                      lambda: disclose_fd(0, None, 1)):  # type: ignore
            self.assertRaises((TypeError, AttributeError), wrong)

    def test_all_lists_every_public_name(self) -> None:
        self.assertEqual(runahead_disclose.__all__, ["cancel_all", "disclose_fd", "disclose_path"])


if __name__ == "__main__":
    unittest.main()
