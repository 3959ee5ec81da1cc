# SPDX-License-Identifier: Apache-2.0
"""Memory: how much a header may cost, and what is said when there is no more. The second needs an
allocator that is preloaded (tests/support/failing_malloc.c), which builds with sanitizers do not
have."""
import concurrent.futures
import os
import pathlib
import subprocess
import unittest

import cli_case
import tiny_bert

ALLOCATOR = os.environ.get("S24_FAILING_MALLOC", "")
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


@unittest.skipUnless(ALLOCATOR, "a sanitizer's own memory would be measured")
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


COMMANDS = (("info", "in", "--json"), ("check", "in", "--json"),
            ("prune", "dense", "out", "--packed", "--json"), ("pack", "in", "out", "--json"),
            # All 2:4: oneDNN, which multiplies what is dense, ends a process without memory.
            ("embed", "in", "--input", "texts", "--output", "out.safetensors", "--sparse",
             "--quiet"))
NUMBERS = [*range(1, 101), *range(103, 1000, 13), *range(1009, 5000, 61)]


@unittest.skipUnless(ALLOCATOR, "a sanitizer has its own allocator, in whose place no other goes")
class Allocations(cli_case.Scratch):
    """The n-th allocation of a command fails, alone or with all that come after it."""

    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "dense")
        cli_case.run("prune", "dense", "in", "--packed", cwd=folder)
        (folder / "texts").write_text("read the file\nopen a signal\n")

    def outcome(self, command, folder, environment):
        done = subprocess.run([cli_case.PROGRAM, *command, "--threads", "2"], cwd=folder,
                              capture_output=True, timeout=60, env=cli_case.clean_environment(
                                  {"LD_PRELOAD": ALLOCATOR, "TMPDIR": str(folder), **environment}))
        made = {name: data for name, data in cli_case.listing(folder).items()
                if name.startswith("out") or name.startswith(".")}
        for name in sorted(made, reverse=True):
            path = pathlib.Path(folder, name)
            path.unlink() if path.is_file() else path.rmdir()
        return done, made

    def one(self, command, folder, n, is_all):
        """What is wrong with the n-th run; None: nothing. The second: that was its last
        allocation."""
        count = folder / "count"
        environment = {"S24_FAIL_AT": str(n), "S24_FAIL_COUNT": str(count)}
        if is_all:
            environment["S24_FAIL_ALL"] = "1"
        done, made = self.outcome(command, folder, environment)
        was_last = count.exists() and int(count.read_text()) < n
        count.unlink(missing_ok=True)
        error = done.stderr.decode("utf-8", "replace")
        if done.returncode == 0:
            is_same = made == self.made and done.stdout == self.stdout
            return None if is_same else f"n = {n}: exit 0, but another output: {error}", was_last
        if done.returncode != 3 or "memory" not in error.lower():
            return f"n = {n}, all later {is_all}: exit {done.returncode}: {error}", was_last
        if made and made != self.made:  # whole is what was done before its report had no memory
            return f"n = {n}: {sorted(made)} left", was_last
        return None, was_last

    def sweep(self, command, is_all):
        """Every tried n of one command; the sentences of what went wrong."""
        folder, wrong = self.scratch(), []
        for n in NUMBERS:
            found, was_last = self.one(command, folder, n, is_all)
            if found:
                wrong.append(found)
            if was_last or len(wrong) > 20:
                break
        return wrong

    def test_every_command(self):
        for command in COMMANDS:
            first, self.made = self.outcome(command, self.folder, {})
            self.stdout = first.stdout
            self.assertEqual(first.returncode, 0, first.stderr)
            with self.subTest(command[0]), concurrent.futures.ThreadPoolExecutor(2) as pool:
                found = list(pool.map(lambda is_all: self.sweep(command, is_all), (False, True)))
                self.assertEqual(found, [[], []])


if __name__ == "__main__":
    unittest.main()
