# SPDX-License-Identifier: Apache-2.0
"""Memory: how much a header may cost. What is said when there is no more: tests/faults."""
import os
import subprocess
import unittest

import cli_case

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"
MOST = 1 << 20  # members of a header


def many_tensors(path, count):
    """A file of so many empty tensors, none of whose names is longer than it must be. Returns the
    bytes of its header."""
    members = ('"%s%s%s%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' %
               tuple(LETTERS[i >> shift & 63] for shift in (18, 12, 6, 0)) for i in range(count))
    header = ("{" + ",".join(members) + "}").encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return len(header)


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Headers(cli_case.Scratch):
    @staticmethod
    def make(folder):
        many_tensors(folder / "more.safetensors", MOST + 1)

    def peak(self, *arguments):
        """Bytes of memory that the program took at most."""
        child = subprocess.Popen([cli_case.PROGRAM, *arguments], cwd=self.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stderr.close()
        self.assertEqual(child.returncode, 0, error)
        return 1024 * usage.ru_maxrss

    def test_four_times_the_header(self):
        size = many_tensors(self.folder / "many.safetensors", MOST)
        many_tensors(self.folder / "one.safetensors", 1)
        for more in ([], ["--json"]):
            with self.subTest(more):
                least = self.peak("info", "one.safetensors", *more)
                self.assertLessEqual(self.peak("info", "many.safetensors", *more) - least, 4 * size)

    def test_a_limit_on_tensors(self):
        self.refusals([("more", ["info", "more.safetensors"], 4,
                        r"more\.safetensors: the header has more than 1048576 members \(tensors")])


if __name__ == "__main__":
    unittest.main()
