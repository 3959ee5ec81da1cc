# SPDX-License-Identifier: Apache-2.0
"""prune by gradients: what examples of a task say of the weights, and what has none."""
import unittest

from cli_case import Scratch
import test_cli_eval

METHODS = ["movement", "snip", "taylor-first", "taylor-second"]
QA = ["--qa", "dev.json", "--max-tokens", "64"]


class Examples(Scratch):
    make = staticmethod(test_cli_eval.make)

    def test_each_method_makes_its_own_choice(self):
        masks = set()
        for method in METHODS:
            found = self.json("prune", "model", method, "--method", method, *QA)
            self.assertEqual(len(found["layers"]), 12)
            self.json("check", method)
            masks.add((self.folder / method / "model.safetensors").read_bytes())
        self.assertEqual(len(masks), len(METHODS))
        # The first examples alone, and with what calibrated refinements need.
        self.good("prune", "model", "few", "--method", "snip", *QA, "--samples", "2")
        (self.folder / "passages.txt").write_text("the cat sat\nwhat is here\n")
        self.good("prune", "model", "refined", "--method", "snip", *QA,
                  "--calibration", "passages.txt", "--refine", "all")

    def test_refusals(self):
        self.refusals([
            ("no examples", ["prune", "model", "out", "--method", "snip"], 2,
             "--method snip needs examples of a task: --text, --qa or --images"),
            ("no gradients", ["prune", "model", "out", *QA], 2, "--qa is for --method movement"),
            ("two tasks", ["prune", "model", "out", "--method", "snip", *QA, "--text", "x"], 2,
             "--text|--qa"),
            ("no head", ["prune", "encoder", "out", "--method", "snip", *QA], 5,
             "encoder has no head that --qa has labels for"),
            ("another head", ["prune", "model", "out", "--method", "snip", "--text", "x"], 5,
             "model has no head that --text has labels for"),
            ("no file", ["prune", "model", "out", "--method", "snip", "--qa", "none"], 3, "none"),
        ])


if __name__ == "__main__":
    unittest.main()
