# SPDX-License-Identifier: Apache-2.0
"""tools/abi tells what callers survive from what breaks them, on libraries of its own."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
HEADER = """
struct options { int threads; const char *isa; };
int s24_run(const struct options *options, int n);
int s24_stop(void);
"""
CODE = """
#include "sparse24/sparse24.h"
int s24_run(const struct options *options, int n) { return options->threads + n; }
int s24_stop(void) { return 0; }
"""


@unittest.skipUnless(shutil.which("abidw") and os.uname().machine == "x86_64",
                     "libabigail is not installed, or this is not x86-64")
class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in ("tools", "include/sparse24", "build"):
            (self.tree / name).mkdir(parents=True)
        shutil.copy(SOURCE / "tools/abi", self.tree / "tools/abi")
        self.build(HEADER, CODE)
        self.assertEqual(self.abi("renew").returncode, 0)

    def build(self, header, code):
        (self.tree / "include/sparse24/sparse24.h").write_text(header)
        (self.tree / "code.c").write_text(code)
        for library in ("libsparse24", "libsparse24-nn"):
            subprocess.run([os.environ.get("CC", "cc"), "-g", "-shared", "-fPIC", "-Iinclude",
                            "code.c", "-o", f"build/{library}.so"], cwd=self.tree, check=True)

    def abi(self, command):
        return subprocess.run(["sh", self.tree / "tools/abi", command, self.tree / "build"],
                              capture_output=True, text=True)

    def check(self, header, code):
        self.build(header, code)
        return self.abi("check")

    def test_the_same_and_more_pass(self):
        self.assertEqual(self.check(HEADER, CODE).returncode, 0)
        more = self.check(HEADER + "int s24_more(void);", CODE + "int s24_more(void) { return 1; }")
        self.assertEqual(more.returncode, 0, more.stdout)

    def test_what_breaks_callers_fails(self):
        for what, header, code in (
                ("a field", HEADER.replace("int threads;", "int threads, cores;"), CODE),
                ("a type", HEADER.replace("int n)", "long n)"), CODE.replace("int n)", "long n)")),
                ("a function", HEADER, CODE.replace("s24_stop", "s24_halt"))):
            with self.subTest(what):
                found = self.check(header, code)
                self.assertEqual(found.returncode, 1, found.stdout)
                self.assertIn("callers of the last release would break", found.stderr)

    def test_usage(self):
        for words in ([], ["check"], ["bless", str(self.tree / "build")]):
            with self.subTest(words):
                found = subprocess.run(["sh", self.tree / "tools/abi", *words],
                                       capture_output=True, text=True)
                self.assertEqual((found.returncode, "usage" in found.stderr), (2, True))


if __name__ == "__main__":
    unittest.main()
