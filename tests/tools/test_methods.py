# SPDX-License-Identifier: Apache-2.0
"""tools/methods: what it refuses, and a few steps of every method on a text of its own."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"
sys.path.insert(0, str(SOURCE / "tools"))
import methods  # noqa: E402

TINY = {"layers": 1, "heads": 2, "width": 16, "context": 16, "dropout": 0.0, "batch": 4, "steps": 8,
        "rate": 1e-2, "held_out": 4, "every": 4}


class Methods(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("".join(f"Line {i}: to be, or not to be, that is it.\n\n"
                                     for i in range(60)))

    def main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                mock.patch.dict(methods.SIZES, small=TINY):
            code = methods.main(["--out", str(self.folder / "out"), "--text", str(self.text),
                                 "--program", str(PROGRAM), *arguments])
        return code, out.getvalue(), err.getvalue()

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_every_method(self):
        code, out, err = self.main("--threads", "1", "--at-once", "2", "--also",
                                   "fst:mvue=0,tail=0.5", "--also", "cast:masked-decay=4e-6")
        self.assertEqual((code, err), (0, ""))
        result = json.loads((self.folder / "out/result.json").read_text())
        rows = {row["name"]: row for row in result["rows"]}
        self.assertEqual(set(rows), {*methods.RUNS, *methods.PRUNED, "fst:mvue=0,tail=0.5",
                                     "cast:masked-decay=4e-6"})
        kept = (self.folder / "out/rows.jsonl").read_text().splitlines()
        self.assertEqual(sorted(json.loads(line)["name"] for line in kept), sorted(rows))
        dense = ("dense", "dense-relu2", "fst-dense-tail", "fst:mvue=0,tail=0.5",
                 "semi-sparse-activation", "squared-relu")
        for name, row in rows.items():
            self.assertEqual(row["two_four"], name not in dense, name)
            if row["best"] is not None and "activation" not in name and name != "squared-relu":
                self.assertAlmostEqual(row["curve"][-1][1], row["loss"], 4, name)
        self.assertEqual(len(out[out.index("next to dense"):].splitlines()), len(rows) + 2)
        page = (self.folder / "out/report.html").read_text()
        self.assertEqual(page.count("<polyline"), len(methods.RUNS))

    def test_what_cannot_be(self):
        self.assertEqual(self.main("--prepare")[0], 0)
        with self.assertRaises(SystemExit):
            self.main("--methods", "faster")
        for wrong in ("fst", "fst:", "faster:mvue=0"):
            with self.assertRaises(SystemExit):
                self.main("--also", wrong)
        for wrong in ("0", "-1", "x"):
            with self.assertRaises(SystemExit):
                self.main("--at-once", wrong)
        self.assertEqual(methods.other_numbers("fst:mvue=0,tail=0.5")[1],
                         ("fst", "tail=0.5,mvue=0", "s"))
        self.text.write_text("Zwölf Boxkämpfer")
        code, _, err = self.main("--methods", "ste")
        self.assertEqual(code, 1)
        self.assertIn("beyond ASCII", err)
        self.text.unlink()
        code, _, err = self.main("--prepare")
        self.assertEqual(code, 1)
        self.assertRegex(err, "text is not here; --text FILE names one")


if __name__ == "__main__":
    unittest.main()
