# SPDX-License-Identifier: Apache-2.0
"""Weights in rows, columns, coordinates and blocks: pack --format, what info, check, unpack and
convert make of such folders, and models that run on them."""
import json
import subprocess
import sys
import unittest

import zeros_case
from cli_case import SOURCE, run
import tiny_bert
from cli_data import read

FORMATS = ("csr", "csc", "coo", "bsr:8x8", "bsr:16x16", "bsr:4x1", "bsr:1x4")


def make(folder):
    zeros_case.make(folder)
    tiny_bert.write(folder / "bert")
    (folder / "lines").write_text("a b\nb a c\n")
    for name in ("gpt2", "llama", "bert"):
        # Tiny BERT's width is no multiple of more than 8.
        block = "8x8" if name == "bert" else "16x16"
        assert run("prune", name, name + "-blocks", "--pattern", f"block:{block}:0.75",
                   cwd=folder).returncode == 0


class Sparse(zeros_case.Zeros):
    make = staticmethod(make)

    def test_every_format_comes_back(self):
        for name in ("gpt2", "llama"):
            for form in FORMATS:
                with self.subTest(name + form):
                    out = self.scratch() / "packed"
                    floats, decoded = out.with_name("floats"), out.with_name("decoded")
                    found = self.json("pack", name + "-blocks", str(out), "--format", form)
                    self.assertLess(found["bytes_out"], found["bytes_in"])
                    told = [t for t in self.json("info", str(out))["tensors"] if "format" in t]
                    self.assertEqual(len(told), len(found["layers"]))
                    self.assertEqual({t["format"] for t in told}, {form})
                    self.assertTrue(all(0 <= t["stored"] <= 0.5 for t in told))
                    metadata = read(out / "model.safetensors")[1]
                    self.assertEqual(metadata["sparse24.version"], "6")
                    described = json.loads(metadata["sparse24.packed"])
                    self.assertEqual({d[2] for d in described.values()}, {form.split(":")[0]})
                    self.good("unpack", str(out), str(floats))
                    self.assertEqual((floats / "model.safetensors").read_bytes(),
                                     (self.folder / (name + "-blocks") /
                                      "model.safetensors").read_bytes())
                    subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                                    out / "model.safetensors", decoded], check=True)
                    self.assertEqual(read(decoded)[0], read(floats / "model.safetensors")[0])
                    self.assertAlmostEqual(self.loss(str(out)), self.loss(str(floats)), places=5)

    def test_integers(self):
        """Integers come back as scale times integer, and models run them with tokens of 8 bits."""
        for name in ("gpt2", "llama"):
            self.good("prune", name, name + "-4x1", "--pattern", "block:4x1:0.75")
            for form in ("bsr:4x1", "csr", "coo", "csc", "bsr:16x16"):
                with self.subTest(name + form):
                    out = self.scratch() / "packed"
                    floats, decoded = out.with_name("floats"), out.with_name("decoded")
                    found = self.json("pack", name + "-4x1", str(out), "--format", form,
                                      "--quantize", "int8")
                    self.assertLess(found["bytes_out"], 0.7 * found["bytes_in"])
                    told = [t for t in self.json("info", str(out))["tensors"] if "format" in t]
                    self.assertEqual({(t["format"], t["quantized"]) for t in told},
                                     {(form, "int8")})
                    metadata = read(out / "model.safetensors")[1]
                    self.assertEqual(metadata["sparse24.version"], "8")
                    described = json.loads(metadata["sparse24.packed"]).values()
                    self.assertEqual({(d[2], d[3] == d[1], d[4]) for d in described},
                                     {(8, True, form.split(":")[0])})
                    self.good("unpack", str(out), str(floats))
                    subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                                    out / "model.safetensors", decoded], check=True)
                    self.assertEqual(read(decoded)[0], read(floats / "model.safetensors")[0])
                    loss = self.loss(str(floats))
                    self.assertAlmostEqual(self.loss(str(out)), loss, places=4)
                    self.assertAlmostEqual(self.loss(str(out), "--dense"), loss, places=4)
                    for dtype in ("bf16", "i8"):
                        self.assertLess(abs(self.loss(str(out), "--dtype", dtype) / loss - 1), 0.05)
            self.good("convert", str(out), str(out) + "-same")
            self.assertEqual(*(read(self.folder / p / "model.safetensors")
                               for p in (out, str(out) + "-same")))

    def test_text_and_vectors(self):
        self.good("pack", "llama-blocks", "llama-bsr", "--format", "bsr:16x16")
        words = ("--prompt", "ab", "--max-new", "8")
        self.assertEqual(self.good("generate", "llama-bsr", *words).stdout,
                         self.good("generate", "llama-blocks", *words).stdout)
        self.good("pack", "bert-blocks", "bert-bsr", "--format", "bsr:8x8")
        rows = [[json.loads(line)["embedding"] for line in self.good(
            "embed", model, "--input", "lines", "--stream").stdout.splitlines()]
            for model in ("bert-bsr", "bert-blocks")]
        for a, b in zip(*(sum(r, []) for r in rows)):
            self.assertAlmostEqual(a, b, places=5)
        for dtype in ("bf16", "int8"):
            self.assertLess(abs(self.loss("llama-bsr", "--dtype", dtype) /
                                self.loss("llama-blocks") - 1), 0.05)

    def test_formats_become_one_another(self):
        self.good("pack", "llama-blocks", "a", "--format", "csr")
        self.good("pack", "a", "b", "--format", "bsr:16x16")
        self.good("pack", "llama-blocks", "c", "--format", "bsr:16x16")
        self.assertEqual((self.folder / "b/model.safetensors").read_bytes(),
                         (self.folder / "c/model.safetensors").read_bytes())
        self.good("convert", "c", "d", "--to", "dense")
        self.assertEqual(read(self.folder / "d/model.safetensors")[0],
                         read(self.folder / "llama-blocks/model.safetensors")[0])

    def test_what_is_not_smaller_stays(self):
        found = self.json("pack", "llama", "out", "--format", "csr")
        self.assertEqual(found["layers"], [])
        self.assertFalse(any("format" in t for t in self.json("info", "out")["tensors"]))

    def test_texts_of_info_and_check(self):
        self.good("pack", "gpt2-blocks", "out", "--format", "bsr:16x16")
        self.assertRegex(self.good("info", "out").stdout,
                         r"f32 +\[32, 96\] +bsr +16x16 25 % as \[96, 32\]")
        done = run("check", "out", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"no +.* f32 bsr:16x16 as \[96, 32\] transposed: ")

    def test_refused(self):
        self.good("pack", "llama-blocks", "bsr", "--format", "bsr:16x16")
        layer = r"tensor model\.layers\.0\.\S+"
        self.refusals((
            ("no format", ("pack", "llama", "x", "--format", "ell"), 2, "'ell' is none; expected"),
            ("no block", ("pack", "llama", "x", "--format", "bsr"), 2, "'bsr' is none"),
            ("odd block", ("pack", "llama", "x", "--format", "bsr:3x3"), 2, "'bsr:3x3' is none"),
            ("a block", ("pack", "llama", "x", "--format", "csr:8x8"), 2, "'csr:8x8' is none"),
            ("a rest", ("pack", "llama", "x", "--format", "bsr:8x8x"), 2, "'bsr:8x8x' is none"),
            ("zero", ("pack", "llama", "x", "--format", "bsr:0x0"), 2, "'bsr:0x0' is none"),
            ("large block", ("pack", "llama", "x", "--format", "bsr:128x128"), 4,
             layer + ": blocks of 128x128 do not divide"),
            ("groups", ("pack", "llama", "x", "--format", "csr", "--quantize", "int8-g64"), 2,
             "is of floats, or of integers of int8, not of --quantize int8-g64"),
            ("rounded", ("pack", "llama", "x", "--format", "csr", "--quantize", "int8",
                         "--calibration", "text"), 2, "--calibration rounds 2:4 alone"),
            ("dense", ("pack", "llama", "x", "--format", "csr", "--quantize", "int8", "--dense"), 2,
             "is of every tensor, none of which --dense leaves"),
        ))

    def test_sparse_ones_are_refused(self):
        self.good("pack", "llama-blocks", "bsr", "--format", "bsr:16x16")
        for words, code, sentence in (
                (("pack", "bsr", "x", "--quantize", "int8"), 4,
                 "is stored as bsr, which is neither 2:4 nor integers; unpack it first"),
                (("train", "bsr", "x", "--stream", "text", "--max-tokens", "8", "--steps", "1"), 5,
                 "is stored as bsr; 'sparse24 unpack' writes what can be trained")):
            done = run(*words, cwd=self.folder)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, sentence)


if __name__ == "__main__":
    unittest.main()
