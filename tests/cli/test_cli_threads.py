#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads as a user meets them: more than the system gives, other work on the cores, and the limits
of a container."""
import os
import re
import subprocess
import time
import unittest

import cli_case
import tiny_bert


class Threads(cli_case.Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts.txt").write_text("a b c\nb c d\nc\nd\na\nb\n")

    def setUp(self):
        super().setUp()
        self.good("prune", "model", "pruned", "--packed")

    def limited(self, *arguments, kilobytes=400000):
        """Runs with an address space of that size."""
        if os.environ.get("S24_SANITIZE"):
            self.skipTest("a sanitizer needs address space without a limit")
        words = [str(cli_case.PROGRAM), *arguments]
        return subprocess.run(["sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh", *words],
                              cwd=self.folder, env=cli_case.clean_environment(),
                              capture_output=True, text=True, timeout=cli_case.PATIENCE)

    def test_too_few_threads_do_the_work_of_all(self):
        for command in (["check", "pruned"], ["prune", "model", "again"],
                        ["embed", "pruned", "--input", "texts.txt", "--output", "e.safetensors"],
                        ["eval", "pruned", "--task", "retrieval", "--queries", "texts.txt",
                         "--documents", "texts.txt", "--gold", "gold.txt"]):
            with self.subTest(command[0]):
                (self.folder / "gold.txt").write_text("0\n1\n2\n3\n4\n5\n")
                done = self.limited(*command, "-q", "--threads", "160")
                self.assertEqual(done.returncode, 0, done.stderr)
                # A busy machine may say that it could not measure, and nothing else.
                self.assertRegex(done.stderr, r"\A(warning: other work kept this machine .*\n)?\Z")
        left = [name for name in os.listdir(self.folder) if name.startswith(".")]
        self.assertEqual(left, [])

    def test_results_do_not_depend_on_how_many_came(self):
        self.good("embed", "pruned", "--input", "texts.txt", "--output", "all.safetensors",
                  "--threads", "160")
        done = self.limited("embed", "pruned", "--input", "texts.txt", "--output",
                            "few.safetensors", "--threads", "160")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "all.safetensors").read_bytes(),
                         (self.folder / "few.safetensors").read_bytes())

    def test_exactly_as_many_as_asked_for(self):
        if os.environ.get("S24_SANITIZE"):
            self.skipTest("a sanitizer has a thread of its own")
        for count in (1, 2, 5):
            with self.subTest(count), subprocess.Popen(
                    [cli_case.PROGRAM, "embed", "pruned", "--stream", "--quiet", "--sparse",
                     "--threads", str(count)], cwd=self.folder, text=True,
                    env=cli_case.clean_environment(), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE) as child:
                child.stdin.write("a b c\n")
                child.stdin.flush()
                child.stdout.readline()
                self.assertEqual(len(os.listdir(f"/proc/{child.pid}/task")), count)

    def test_busy_cores(self):
        words = ["bench", "--model", "pruned", "--batch", "1", "--seq", "4", "--threads", "1,2",
                 "--rounds", "2", "--min-ms", "1"]
        self.assertEqual(self.json(*words)["machine"]["busy"], 0)
        found = self.json(*words, "--busy", "3")
        self.assertEqual(found["machine"]["busy"], 3)
        for row in found["rows"]:
            self.assertGreater(row["p95_ms"], 0)
        self.refusals([("too busy", [*words, "--busy", "5000"], 2,
                        "--busy: 5000 is more than 4096")])

    def test_nothing_of_the_busy_work_is_left(self):
        """Those processes are of the program's own session, and end with it."""
        with subprocess.Popen([cli_case.PROGRAM, "bench", "--model", "pruned", "--busy", "2",
                               "--rounds", "1000", "--min-ms", "1000", "--batch", "1", "--seq",
                               "4"],
                              cwd=self.folder, env=cli_case.clean_environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as child:
            while not self.children(child.pid):
                self.assertIsNone(child.poll(), "ended too early")
            of_it = self.children(child.pid)
            child.kill()
            child.communicate(timeout=cli_case.PATIENCE)
        for pid in of_it:
            for _ in range(600):
                if self.stat(pid)[0] == "Z":
                    break
                time.sleep(0.1)
            else:
                self.fail(f"process {pid} is still there")

    @staticmethod
    def stat(pid):
        """State and parent of a process; "Z" of one that is gone."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                state, parent = re.sub(r".*\) ", "", file.read()).split()[:2]
            return state, int(parent)
        except OSError:
            return "Z", 0

    def children(self, pid):
        return [int(name) for name in os.listdir("/proc")
                if name.isdigit() and self.stat(name)[1] == pid]


if __name__ == "__main__":
    unittest.main()
