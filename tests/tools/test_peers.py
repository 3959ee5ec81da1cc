# SPDX-License-Identifier: Apache-2.0
"""The bench with other engines, without them: what is made of samples, and how a run goes on when
an engine refuses, dies, or is not here."""
import argparse
import contextlib
import io
import math
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench" / "peers"))
sys.path.insert(0, str(SOURCE / "tests" / "tools"))
import report  # noqa: E402
import run as bench  # noqa: E402
import tiny_bert  # noqa: E402

PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"


def cell(threads=1, **samples):
    return {"model": "minilm", "batch": 2, "seq": 16, "threads": threads,
            "samples_ms": {name.replace("_", "-"): ms for name, ms in samples.items()}}


def found(cells, notes=None):
    return {"date": "2026-01-02", "machine": {"cpu": "A <CPU>", "cores": 2, "isa": ["avx2"],
                                              "system": "Linux"},
            "rounds": 3, "turn_ms": 1, "command": "run.py", "cells": cells,
            "versions": {"openvino-f32": "1.2"}, "least_cosine": {"openvino-f32": 0.5},
            "notes": notes or {}}


class Reports(unittest.TestCase):
    def test_a_ratio_is_the_median_of_the_rounds_own(self):
        one = cell(sparse24_f32=[1.0, 2.0, 4.0], openvino_f32=[3.0, 2.0, 8.0])
        self.assertEqual(report.ratios(one, "sparse24-f32", "openvino-f32"), (2.0, 1.0, 3.0))
        self.assertIsNone(report.ratios(one, "sparse24-f32", "deepsparse-f32"))

    def test_tables_and_notes(self):
        cells = [cell(sparse24_f32=[1.0, 1.0, 1.0], openvino_f32=[2.0, 2.0, 2.0]),
                 cell(2, sparse24_f32=[1.0, 1.0, 1.0], openvino_f32=[1.2, 1.2, 1.2],
                      deepsparse_f32=[1.0, 1.1, 1.2])]
        text = report.markdown(found(cells, {"torch-f32: no": ["a", "b"]}))
        self.assertIn("| minilm 2 x 16 | 1 | 2000.0 ±0 % | - | 1000.0 ±0 % |", text)
        self.assertIn("| minilm 2 x 16 | 1 | **2.00** (2.00-2.00) | - |", text)
        self.assertIn("| minilm 2 x 16 | 2 | 1.20 (1.20-1.20) | **1.10** (1.00-1.20) |", text)
        self.assertIn("| geometric mean | 2 | 1.20 | 1.10 |", text)
        self.assertIn("- torch-f32: no (a; b)", text)
        self.assertIn("| openvino-f32 | 0.50000 |", text)

    def test_the_chart(self):
        svg = report.chart(found([cell(sparse24_f32=[1.0], openvino_f32=[2.0])]), 1)
        space = "{http://www.w3.org/2000/svg}"
        root = xml.etree.ElementTree.fromstring(svg)
        self.assertEqual(len(list(root.iter(space + "rect"))), 1 + 2)
        self.assertIn("2.00", [t.text for t in root.iter(space + "text")])
        self.assertIsNone(report.chart(found([cell(sparse24_f32=[1.0])]), 1))

    def test_cosine(self):
        self.assertAlmostEqual(report.least_cosine([[1, 0], [3, 4]], [[2, 0], [4, 3]]), 0.96)


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def options(self, *engines):
        environments = self.folder / "environments"
        # An environment in which no engine is installed: its worker cannot even start.
        (environments / "openvino/bin").mkdir(parents=True)
        (environments / "openvino/bin/python").symlink_to(sys.executable)
        tiny_bert.write(self.folder / "minilm/dense")
        bench.run_program(PROGRAM, "prune", self.folder / "minilm/dense", self.folder / "p")
        bench.run_program(PROGRAM, "pack", self.folder / "p", self.folder / "minilm/packed")
        return argparse.Namespace(environments=environments, work=self.folder, program=PROGRAM,
                                  engines=engines, models=["minilm"], threads=[1], rounds=2,
                                  turn_ms=1, cells=0, shapes=[(1, 100000), (1, 4)],
                                  minutes=math.inf)

    def test_who_is_not_here_is_a_note(self):
        options = self.options("sparse24-f32", "openvino-f32", "deepsparse-f32")
        result = bench.measure(options)
        first, second = result["cells"]
        self.assertEqual(set(first["samples_ms"]), {"sparse24-f32", "sparse24-f32-dense"})
        for times in first["samples_ms"].values():
            self.assertEqual(len(times), 2)
            self.assertTrue(all(math.isfinite(t) and t > 0 for t in times))
        self.assertEqual(second["samples_ms"], {})
        text = "\n".join(result["notes"])
        self.assertIn("deepsparse-f32: no environment 'deepsparse'", text)
        self.assertIn("openvino-f32: ", text)
        self.assertIn("option --seq: the model has", text)
        self.assertEqual(set(result["versions"]), {"sparse24-f32"})
        report.write(self.folder, {**found([]), **result})
        self.assertIn("sparse24-f32-dense", (self.folder / "peers.md").read_text())
        options.minutes = 0
        result = bench.measure(options)
        self.assertEqual(result["cells"], [])
        self.assertEqual(result["notes"]["left out after 0 minutes"],
                         ["minilm 1x4 on 1", "minilm 1x100000 on 1"])

    def test_names_are_checked(self):
        common = ["--environments", "e", "--model", "m", "--out", "o"]
        refused = "there is no engine 'luck'; there are openvino-f32"
        with self.assertRaisesRegex(SystemExit, refused):
            bench.parse(common + ["--engines", "sparse24-f32,luck"])
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            bench.parse(["--environments", "e", "--out", "o"])
        self.assertIn("--models minilm needs --model FOLDER", said.getvalue())
        found = bench.parse(["--environments", "e", "--out", "o", "--models", "modernbert"])
        self.assertEqual(len(bench.shapes_of(found, "modernbert")), 16)
        found = bench.parse(["--environments", "e", "--out", "o", "--models", "modernbert",
                             "--shapes", "1x8192,4x16"])
        self.assertEqual(bench.shapes_of(found, "modernbert"), [(4, 16), (1, 8192)])


if __name__ == "__main__":
    unittest.main()
