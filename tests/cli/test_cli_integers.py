# SPDX-License-Identifier: Apache-2.0
"""Models whose weights become integers as they are loaded: generate, eval and embed with a scheme
as --dtype, and --quantize-head."""
import unittest

from cli_case import Scratch, run
import test_cli_eval
import tiny_bert
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

SCHEMES = ("int8", "int8-g64", "int8-g128", "int4", "int4-g64", "int4-g128")


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama", width=32)
    for name in ("gpt2", "llama"):
        randomise(folder / name, 3)
    tiny_bert.write(folder / "bert")
    (folder / "text").write_text("abcab bca abba c" * 8)
    (folder / "lines").write_text("a b\nb a c\n")
    assert run("prune", "llama", "llama-24", "--packed", cwd=folder).returncode == 0
    assert run("pack", "llama-24", "llama-w4", "--quantize", "int4-g64",
               cwd=folder).returncode == 0


class Integers(Scratch):
    make = staticmethod(make)

    def loss(self, model, *options):
        return self.json("eval", model, "--task", "lm", "--data", "text", *options)["loss"]

    def test_losses(self):
        for name in ("gpt2", "llama", "llama-24"):
            floats = self.loss(name)
            for scheme in SCHEMES:
                with self.subTest(name + scheme):
                    bound = 0.02 if scheme.startswith("int8") else 0.25
                    loss = self.loss(name, "--dtype", scheme)
                    self.assertNotEqual(loss, floats)
                    self.assertLess(abs(loss / floats - 1), bound)
                    head = self.loss(name, "--quantize-head", scheme)
                    self.assertNotEqual(head, floats)
                    self.assertLess(abs(head / floats - 1), bound)

    def test_packed_integers_are_those_that_loading_makes(self):
        self.assertAlmostEqual(self.loss("llama-w4"),
                               self.loss("llama-24", "--dtype", "int4-g64"), places=5)
        self.assertEqual(self.loss("llama-w4"), self.loss("llama-w4", "--dtype", "int4-g64"))

    def test_texts(self):
        words = ("generate", "llama", "--prompt", "ab", "--max-new", "12")
        plain = self.json(*words)
        found = self.json(*words, "--dtype", "int8", "--quantize-head", "int8")
        self.assertEqual(found["prompts"][0]["tokens"], plain["prompts"][0]["tokens"])
        self.assertEqual(found["prompts"],
                         self.json(*words, "--dtype", "int8", "--quantize-head", "int8")["prompts"])

    def test_vectors(self):
        done = self.good("embed", "bert", "--input", "lines", "--dtype", "int8", "--stream")
        self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_refused(self):
        text = ("eval", "llama-w4", "--task", "lm", "--data", "text")
        self.refusals([
            ("scheme", ("generate", "llama", "--prompt", "a", "--dtype", "int4-g32"), 2,
             "option --dtype: 'int4-g32' is not one of f32.bf16.i8.int8"),
            ("head", ("generate", "llama", "--prompt", "a", "--quantize-head", "i8"), 2,
             "option --quantize-head: 'i8' is not one of int8"),
            ("head and i8", ("generate", "llama", "--prompt", "a", "--quantize-head", "int8",
                             "--dtype", "i8"), 2,
             "option quantize_head of a model excludes the dtype i8"),
            ("other integers", (*text, "--dtype", "int8"), 5,
             r"model.safetensors: tensor '.*q_proj.weight': it holds integers of 4 bits with a "
             r"scale for 64 columns, of which no int8 ones are made")])


if __name__ == "__main__":
    unittest.main()
