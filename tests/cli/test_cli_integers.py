# SPDX-License-Identifier: Apache-2.0
"""Models whose weights are integers: made as they are loaded (a scheme as --dtype, --quantize-head)
by generate, eval and embed, or by pack with --dense and --quantize-head; what info, check, unpack
and prune make of such folders."""
import json
import subprocess
import sys
import unittest

from cli_case import SOURCE, Scratch, run
import test_cli_eval
import tiny_bert
from cli_data import read
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
    (folder / "cal").write_text("abcab bca abba c\nccab a\nb ab bca\n" * 8)
    (folder / "lines").write_text("a b\nb a c\n")
    assert run("prune", "llama", "llama-24", "--packed", cwd=folder).returncode == 0
    assert run("pack", "llama", "llama-i", "--quantize", "int8", "--dense", "--quantize-head",
               "int8", cwd=folder).returncode == 0
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

    def test_packed_dense_integers(self):
        """The model of a folder of integers is that of the numbers that unpack makes of them."""
        for name in ("gpt2", "llama"):
            for scheme, head in (("int8", "int4"), ("int4-g64", "int8"), ("int4", "int8-g64")):
                with self.subTest(name + scheme):
                    out = self.scratch() / "packed"
                    floats = out.with_name("floats")
                    found = self.json("pack", name, str(out), "--quantize", scheme, "--dense",
                                      "--quantize-head", head)
                    self.assertLess(found["bytes_out"], found["bytes_in"])
                    told = {t["name"]: t for t in self.json("info", str(out))["tensors"]}
                    # Of 64 columns one group is the row.
                    self.assertLessEqual({t["quantized"] for t in told.values()},
                                         {None, scheme, head, scheme.split("-")[0]})
                    self.assertFalse(any(t["packed"] for t in told.values()))
                    metadata = read(out / "model.safetensors")[1]
                    self.assertEqual(metadata["sparse24.version"], "5")
                    described = json.loads(metadata["sparse24.packed"])
                    self.assertTrue(all(d[4] == "dense" for d in described.values()))
                    self.good("unpack", str(out), str(floats))
                    self.assertAlmostEqual(self.loss(str(out)), self.loss(str(floats)), places=4)
                    subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                                    out / "model.safetensors", out.with_name("decoded")],
                                   check=True)
                    self.assertEqual(read(out.with_name("decoded"))[0],
                                     read(floats / "model.safetensors")[0])
                    text = self.good("generate", str(out), "--prompt", "ab", "--max-new", "4")
                    self.assertEqual(text.stdout, self.good(
                        "generate", str(floats), "--prompt", "ab", "--max-new", "4").stdout)
        done = run("check", str(out), cwd=self.folder)
        self.assertRegex(done.stdout, r"no +.* i8 integers.*: row 0 has \d non-zeros")

    def test_a_head_alone(self):
        self.good("pack", "llama-24", "llama-24-head", "--quantize-head", "int8")
        told = {t["name"]: t["quantized"] for t in self.json("info", "llama-24-head")["tensors"]}
        self.assertEqual([n for n, q in told.items() if q], ["model.embed_tokens.weight"])
        self.assertLess(abs(self.loss("llama-24-head") / self.loss("llama-24") - 1), 0.02)
        self.good("pack", "llama", "llama-head", "--exclude", "*", "--quantize-head", "int4-g64")
        self.assertLess(abs(self.loss("llama-head") / self.loss("llama") - 1), 0.25)
        self.good("pack", "llama-24-head", "again", "--quantize", "int4", "--quantize-head", "int8")
        told = {t["quantized"] for t in self.json("info", "again")["tensors"]}
        self.assertEqual(told, {None, "int4", "int8"})

    def test_integers_are_pruned_as_floats(self):
        self.good("pack", "llama", "llama-8", "--quantize", "int8", "--dense")
        self.good("prune", "llama-8", "llama-8-24", "--packed")
        told = [t for t in self.json("info", "llama-8-24")["tensors"] if t["packed"]]
        self.assertEqual((len(told), {t["dtype"] for t in told}), (7, {"f32"}))

    def test_rounded_by_inputs(self):
        """pack and prune round where outputs change least; the files are like any others."""
        self.good("prune", "llama", "half", "--method", "sparsegpt", "--calibration", "cal")
        for name, words in (("nearest", ("pack", "half")),
                            ("moved", ("pack", "half", "--calibration", "cal")),
                            ("joint", ("prune", "llama", "--method", "sparsegpt", "--packed",
                                       "--calibration", "cal"))):
            command, model, *more = words
            found = self.json(command, model, name, "--quantize", "int4-g64", *more)
            self.assertEqual(len(found["layers"]), 7)
            told = [t for t in self.json("info", name)["tensors"] if t["packed"]]
            self.assertLessEqual({t["quantized"] for t in told}, {"int4", "int4-g64"})
            self.assertLess(abs(self.loss(name) / self.loss("half") - 1), 0.25)
        sizes = [self.json("info", name)["bytes"] for name in ("nearest", "moved", "joint")]
        self.assertEqual(len(set(sizes)), 1)
        first, second = (read(self.folder / name / "model.safetensors")[0]
                         for name in ("nearest", "moved"))
        name = "model.layers.0.mlp.down_proj.weight"
        for part, same in ((".s24_indices", True), (".s24_values", False)):
            self.assertIs(first[name + part] == second[name + part], same)

    def test_outputs_come_nearer(self):
        """The output error that is reported, of rounding in the same command."""
        words = ("--calibration", "cal", "--packed")
        floats = self.json("prune", "llama-24", "a", *words)["layers"]
        self.assertLess(max(l["output_error"] for l in floats), 1e-6)
        for scheme, most in (("int8", 1e-3), ("int4", 0.05)):
            found = self.json("prune", "llama-24", "b", "--quantize", scheme, "--force", *words)
            errors = [l["output_error"] for l in found["layers"]]
            self.assertLess(max(errors), most)
            self.assertGreater(max(errors), 0)

    def test_calibration_refused(self):
        self.refusals([
            ("not 2:4", ("pack", "llama", "new", "--quantize", "int8", "--calibration", "cal"), 4,
             "src is not 2:4"),
            ("integers", ("pack", "llama-w4", "new", "--quantize", "int4-g64", "--calibration",
                          "cal"), 4, "holds int4(-g64)? integers already; --calibration rounds"),
            ("head", ("pack", "llama-24", "new", "--quantize", "int8", "--calibration", "cal",
                      "--quantize-head", "int8"), 2, "pack once more for it"),
            ("no passages", ("pack", "llama-24", "new", "--quantize", "int8", "--calibration",
                             "none"), 3, "none"),
            ("prune to floats", ("prune", "llama", "new", "--quantize", "int8"), 2,
             "--quantize.*--packed"),
            ("prune with a dtype", ("prune", "llama", "new", "--quantize", "int8", "--packed",
                                    "--dtype", "bf16"), 2, "--quantize")])

    def test_pack_refuses(self):
        self.refusals([
            ("not 2:4", ("pack", "llama", "new", "--quantize", "int8"), 4, "src is not 2:4"),
            ("dense alone", ("pack", "llama", "new", "--dense"), 2, "--dense.*--quantize"),
            ("no head", ("pack", "bert", "new", "--quantize-head", "int8"), 4,
             "--quantize-head: bert is no folder of a language model with a head"),
            ("another head", ("pack", "llama-i", "new", "--quantize-head", "int4"), 4,
             "embed_tokens.weight holds int8 integers, of which --quantize-head makes no int4 "
             "ones; unpack it first, or leave that option out"),
            ("another scheme", ("pack", "llama-i", "new", "--quantize", "int4"), 4,
             "holds int8 integers, of which --quantize makes no int4 ones; unpack it first, or "
             "leave it out with --exclude")])

    def test_refused(self):
        text = ("eval", "llama-w4", "--task", "lm", "--data", "text")
        self.refusals([
            ("scheme", ("generate", "llama", "--prompt", "a", "--dtype", "int4-g32"), 2,
             r"option --dtype: 'int4-g32' is not one of f32\|.*int8\|.*int4-g128"),
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
