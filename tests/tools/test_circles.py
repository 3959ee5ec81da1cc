# SPDX-License-Identifier: Apache-2.0
"""tools/circles.py finds the circles that are planted, lets tables and rows need one another, and
this build has no other."""
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
sys.path.insert(0, str(SOURCE / "tools"))
import circles  # noqa: E402

# (file, symbol, whether the file defines it)
PLANTED = [("a.c", "a", True), ("a.c", "b", False), ("b.c", "b", True), ("b.c", "c", False),
           ("c.c", "c", True), ("c.c", "a", False), ("d.c", "d", True), ("d.c", "a", False),
           ("a.c", "libc", False)]


class Circles(unittest.TestCase):
    def found(self, symbols, rows=()):
        return circles.components(circles.judged(circles.needs(symbols), rows))

    def test_a_circle_of_three(self):
        self.assertEqual(self.found(PLANTED), [["a.c", "b.c", "c.c"]])

    def test_a_chain_is_none(self):
        self.assertEqual(self.found([row for row in PLANTED if row[0] != "c.c"]), [])

    def test_two_circles(self):
        twice = PLANTED + [("e.c", "e", True), ("e.c", "f", False), ("f.c", "f", True),
                           ("f.c", "e", False), ("f.c", "a", False)]
        self.assertEqual(self.found(twice), [["a.c", "b.c", "c.c"], ["e.c", "f.c"]])

    def test_table_and_row(self):
        pair = [("table.c", "find", True), ("table.c", "row", False), ("row_1.c", "row", True),
                ("row_1.c", "find", False)]
        self.assertEqual(self.found(pair), [["row_1.c", "table.c"]])
        self.assertEqual(self.found(pair, [("table.c", "row_*.c")]), [])
        self.assertEqual(self.found(pair, [("row_1.c", "other.c")]), [["row_1.c", "table.c"]])

    def test_symbols_of_an_object(self):
        build = [path for path, _ in circles.objects(BUILD, SOURCE) if path.name == "main.c.o"]
        if not build:
            self.skipTest("no object of the command line in this build")
        found = {(name, defined) for _, name, defined in circles.symbols(build)}
        self.assertIn(("main", True), found)
        self.assertIn(("cli_context", False), found)

    def test_this_build(self):
        count, found = circles.circles(BUILD, SOURCE)
        if not count:
            self.skipTest("no objects in this build")
        self.assertEqual(found, [], "\n".join(" ".join(files) for files, _ in found))


if __name__ == "__main__":
    unittest.main()
