# SPDX-License-Identifier: Apache-2.0
"""train --method: a dense model, or none at all, becomes 2:4 while it learns."""
import json
import shutil
import unittest

from cli_case import Scratch, run
from cli_data import floats
from test_cli_train import make_model, weights


class Methods(Scratch):
    make = staticmethod(make_model)
    SHORT = ("--text", "texts", "--teacher", "model", "--steps", "12", "--batch", "8",
             "--threads", "1")

    def ends(self, code, *arguments):
        done = run(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_methods_make_a_dense_model_two_four(self):
        for method, numbers in (("sr-ste", "refresh=2"), ("s-ste", "mvue=0"), ("s-ste", "fp8=1"),
                                ("cast", ""), ("semi-sparse", "tail=0")):
            metrics = f"m-{method}-{numbers}"
            options = ("--numbers", numbers) if numbers else ()
            loss = ("--loss", "cosine=1") if method == "cast" else ()
            found = self.json("train", "model", "out", *self.SHORT, "--method", method, *options,
                              *loss, "--force", "--metrics", metrics, "--held-out", "6")
            self.assertTrue(self.json("check", "out")["ok"], method)
            self.assertIs(found["sparse"], True)
            lines = (self.folder / metrics).read_text().splitlines()
            lines = [json.loads(line) for line in lines]
            self.assertEqual(len(lines), 12)
            self.assertGreaterEqual(lines[5]["mask_age"], 0)
            self.assertEqual(lines[5]["beta"] is None, method != "s-ste")
            self.assertEqual(lines[5]["noise"] is None, method == "cast")
            self.assertTrue(0 < lines[4]["overhead"] < 1 or method == "cast", method)
            self.good("pack", "out", "packed", "--force")
            self.good("embed", "packed", "--input", "texts", "--output", "v.safetensors", "--force")

    def test_zeros_of_any_pattern_stay(self):
        for pattern in ("block:8x8:0.5", "unstructured:0.7"):
            with self.subTest(pattern):
                self.good("prune", "model", "pruned", "--method", "magnitude", "--pattern", pattern,
                          "--force")
                found = self.json("train", "pruned", "out", *self.SHORT, "--rate", "1e-3",
                                  "--force", "--held-out", "6")
                self.assertIs(found["sparse"], True)
                before, after = weights(self.folder / "pruned"), weights(self.folder / "out")
                for name, raw in before.items():
                    if name.startswith("encoder") and name.endswith("dense.weight"):
                        zeros = [[v == 0 for v in floats(r)] for r in (raw, after[name])]
                        self.assertEqual(*zeros, name)
                        self.assertGreater(sum(zeros[0]) * 3, len(zeros[0]))
                        self.assertNotEqual(raw, after[name])

    def test_a_masked_decay_is_found(self):
        options = ("train", "model", "out", *self.SHORT, "--choose-masked-decay", "--method")
        done = self.good(*options, "sr-ste")
        self.assertRegex(done.stderr, r"masked-decay 2e-06: masks change \d\.\d\d times as often")
        self.assertTrue(self.json("check", "out")["ok"])
        done = self.ends(2, *options, "ste", "--force")
        self.assertIn("--choose-masked-decay: method ste has no masked-decay", done.stderr)

    def test_bad_methods_are_named(self):
        for code, options, sentence in (
                (2, ("--method", "faster"), "faster"),
                (2, ("--numbers", "refresh=2"), "--numbers"),
                (2, ("--method", "ste", "--refresh", "2"), "--refresh"),
                (2, ("--method", "ste", "--numbers", "speed=2"), "has no number 'speed'"),
                (2, ("--method", "ste", "--include", "*none*"), "is one of '*none*'"),
                (5, ("--method", "squared-relu"), "squared ReLU")):
            done = self.ends(code, "train", "model", "out", *self.SHORT, *options)
            self.assertIn(sentence, done.stderr)
        text = self.good("train", "--help").stdout
        self.assertIn("Methods, and after them their numbers:", text)
        self.assertIn("refresh=40,until=1", text)

    def test_from_scratch(self):
        shutil.copytree(self.folder / "model", self.folder / "config",
                        ignore=shutil.ignore_patterns("*.safetensors"))
        self.ends(3, "train", "config", "out", *self.SHORT)
        options = ("train", "config", "out", *self.SHORT, "--from-scratch", "--method", "ste",
                   "--force")
        self.good(*options)
        self.assertTrue(self.json("check", "out")["ok"])
        first = weights(self.folder / "out")
        self.good("embed", "out", "--input", "texts", "--output", "v.safetensors")
        self.good(*options)
        self.assertEqual(first, weights(self.folder / "out"))
        self.good(*options, "--seed", "2")
        self.assertNotEqual(first, weights(self.folder / "out"))


if __name__ == "__main__":
    unittest.main()
