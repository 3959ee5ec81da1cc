# SPDX-License-Identifier: Apache-2.0
"""tools/mutate finds operators where they are and leaves alone what has no result."""
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
import mutate  # noqa: E402


class Sites(unittest.TestCase):
    def altered(self, path, text):
        return [mutate.altered(text, site) for site in mutate.sites_of(path, text)]

    def test_operators(self):
        for text, new in (("a = b < c;\n", "a = b <= c;\n"), ("a = b * c;\n", "a = b + c;\n"),
                          ("if (a && b) c;\n", "if (a || b) c;\n"),
                          ("x = _mm_add_ps(a);\n", "x = _mm_sub_ps(a);\n"),
                          ("#define A(x) ((x) >> 2)\n", "#define A(x) ((x) << 2)\n")):
            with self.subTest(text):
                self.assertEqual(self.altered("a.c", text), [new])

    def test_no_operators(self):
        for text in ("f(*a, &b, -c, a->b);\n", "char *s = \"a < b\"; // a < b\n", "#if A < B\n",
                     "_mm_prefetch(a + b);\n", "#include <a/b.h>\n"):
            with self.subTest(text):
                self.assertEqual(self.altered("a.c", text), [])

    def test_rows(self):
        self.assertEqual(self.altered("a.def", "// ROW(a, b)\nROW(1, x)\nROW(2, x)\nROW(3, y)\n"),
                         ["// ROW(a, b)\nROW(1, x)\nROW(2, y)\nROW(3, y)\n",
                          "// ROW(a, b)\nROW(1, x)\nROW(2, x)\nROW(3, x)\n"])

    def test_what_this_machine_runs(self):
        for path, flags, runs in (("src/kernel/cpu/x86/linear_avx2.h", {"avx2"}, True),
                                  ("src/kernel/cpu/x86/linear_avx512.h", {"avx2"}, False),
                                  ("src/kernel/cpu/arm/neon.h", {"avx2"}, False),
                                  ("src/kernel/ref/linear_ref.c", set(), True)):
            with self.subTest(path):
                self.assertEqual(mutate.runs_here(path, flags), runs)

    def test_rules_are_files(self):
        for path in mutate.RULES:
            self.assertTrue((SOURCE / path).is_file(), path)

    def test_tests_are_files(self):
        there = {path.stem for path in (SOURCE / "tests").glob("*/test_*.c")}
        self.assertEqual(set(mutate.QUICK + mutate.SLOW) - there, set())


if __name__ == "__main__":
    unittest.main()
