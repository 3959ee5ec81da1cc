# SPDX-License-Identifier: Apache-2.0
"""The code that pages show runs."""
import os
import re
import tempfile
import unittest

from py_support import TREE


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (TREE / page).read_text(encoding="utf-8"),
                      re.S | re.M)


class Pages(unittest.TestCase):
    def test_the_code_about_matrices_runs(self):
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            try:
                exec("".join(blocks("docs/guide/python.md")[:2]), {"print": lambda *_: None})
                quick = blocks("README.md")[0].split("encoder =", maxsplit=1)[0]
                exec(quick, {})
            finally:
                os.chdir(before)

    def test_all_code_parses(self):
        for page in ("README.md", "docs/guide/python.md"):
            for code in blocks(page):
                compile(code, page, "exec")


if __name__ == "__main__":
    unittest.main()
