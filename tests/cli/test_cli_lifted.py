# SPDX-License-Identifier: Apache-2.0
"""6:8 and its kin, which are stored and multiplied as 2:4: prune and pack, what info, check, unpack
and convert make of such folders, and models that run on them."""
import json
import subprocess
import sys
import unittest

import zeros_case
from cli_case import SOURCE, has_tiles, run
from cli_data import read

PATTERNS = {"gpt2": ("6:8", "14:16", "30:32", "dense:12"), "llama": ("6:8", "14:16", "dense:16")}


def make(folder):
    zeros_case.make(folder)
    for name in ("gpt2", "llama"):
        assert run("prune", name, name + "-68", "--pattern", "6:8", cwd=folder).returncode == 0
        assert run("pack", name + "-68", name + "-packed", "--format", "6:8",
                   cwd=folder).returncode == 0


def share(pattern, k):
    """Of the values that are stored."""
    keep, group = pattern.split(":")
    return (k + int(group)) / 2 / k if keep == "dense" else int(keep) / int(group)


class Lifted(zeros_case.Zeros):
    make = staticmethod(make)

    def layers(self, model):
        return [t for t in self.json("info", model)["tensors"] if "format" in t]

    def test_every_pattern_comes_back(self):
        for name, patterns in PATTERNS.items():
            for pattern in patterns:
                with self.subTest(name + pattern):
                    pruned = self.scratch() / "pruned"
                    out, floats, decoded = (pruned.with_name(n) for n in ("p", "f", "d"))
                    self.good("prune", name, str(pruned), "--pattern", pattern)
                    found = self.json("pack", str(pruned), str(out), "--format", pattern)
                    self.assertLess(found["bytes_out"], found["bytes_in"])
                    layers = self.layers(str(out))
                    self.assertEqual(len(layers), len(found["layers"]))
                    metadata = read(out / "model.safetensors")[1]
                    self.assertEqual(metadata["sparse24.version"],
                                     "9" if "dense" in pattern else "7")
                    described = json.loads(metadata["sparse24.packed"])
                    self.assertEqual({d[2] for d in described.values()}, {pattern})
                    for layer in layers:
                        self.assertEqual((layer["format"], layer["packed"]), (pattern, False))
                        self.assertAlmostEqual(layer["stored"],
                                               share(pattern, described[layer["name"]][1]))
                    self.good("unpack", str(out), str(floats))
                    self.assertEqual(read(floats / "model.safetensors")[0],
                                     read(pruned / "model.safetensors")[0])
                    subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                                    out / "model.safetensors", decoded], check=True)
                    self.assertEqual(read(decoded)[0], read(floats / "model.safetensors")[0])
                    self.assertAlmostEqual(self.loss(str(out)), self.loss(str(floats)), places=5)

    def test_packed_while_it_is_pruned(self):
        for name in ("gpt2", "llama"):
            self.good("prune", name, name + "-q", "--pattern", "6:8", "--packed")
            self.assertEqual((self.folder / (name + "-q") / "model.safetensors").read_bytes(),
                             (self.folder / (name + "-packed") / "model.safetensors").read_bytes())

    def test_language_and_images(self):
        words = ("--prompt", "ab", "--max-new", "8")
        self.assertEqual(self.good("generate", "llama-packed", *words).stdout,
                         self.good("generate", "llama-68", *words).stdout)
        for name in ("gpt2", "llama"):
            dense = self.loss(name + "-68")
            self.assertAlmostEqual(self.loss(name + "-packed", "--dense"), dense, places=5)
            for dtype in ("bf16", "i8", "int8"):
                self.assertLess(abs(self.loss(name + "-packed", "--dtype", dtype) / dense - 1),
                                0.05, dtype)

    def test_integers(self):
        for scheme in ("int8", "int8-g64", "int4-g64"):
            with self.subTest(scheme):
                out = str(self.scratch() / "out")
                twice, pruned = out + "-twice", out + "-pruned"
                self.good("pack", "gpt2-68", out, "--format", "6:8", "--quantize", scheme)
                self.assertEqual({(t["format"], t["quantized"]) for t in self.layers(out)},
                                 {("6:8", scheme)})
                self.good("pack", "gpt2-packed", twice, "--quantize", scheme)
                self.good("prune", "gpt2", pruned, "--pattern", "6:8", "--packed", "--quantize",
                          scheme)
                for other in (twice, pruned):
                    self.assertEqual(*((self.folder / p / "model.safetensors").read_bytes()
                                       for p in (out, other)))
                self.good("unpack", out, out + "-floats")
                subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                                self.folder / out / "model.safetensors",
                                self.folder / (out + "-decoded")], check=True)
                self.assertEqual(read(self.folder / (out + "-decoded"))[0],
                                 read(self.folder / (out + "-floats") / "model.safetensors")[0])
                self.assertAlmostEqual(self.loss(out), self.loss(out + "-floats"),
                                       places=2 if has_tiles() else 4)
                self.assertLess(abs(self.loss(out, "--dtype", "i8") / self.loss(out) - 1), 0.05)

    def test_with_2_4_beside_it(self):
        self.good("prune", "llama-68", "mixed-a", "--include", "*self_attn*", "--packed")
        found = self.json("pack", "mixed-a", "mixed", "--format", "6:8")
        self.assertTrue(found["layers"])
        kinds = {t["format"] if "format" in t else t["packed"]
                 for t in self.json("info", "mixed")["tensors"] if ".layers." in t["name"]
                 and "norm" not in t["name"]}
        self.assertEqual(kinds, {"6:8", True})
        self.good("unpack", "mixed", "mixed-dense")
        self.assertAlmostEqual(self.loss("mixed"), self.loss("mixed-dense"), places=5)

    def test_formats_and_libraries(self):
        self.good("convert", "llama-packed", "dense", "--to", "dense")
        self.assertEqual(read(self.folder / "dense/model.safetensors")[0],
                         read(self.folder / "llama-68/model.safetensors")[0])
        self.good("convert", "llama-packed", "same")
        self.assertEqual(read(self.folder / "same/model.safetensors"),
                         read(self.folder / "llama-packed/model.safetensors"))
        self.good("pack", "llama-packed", "here", "--layout", "cpu")
        self.assertEqual(read(self.folder / "here/model.safetensors"),
                         read(self.folder / "llama-packed/model.safetensors"))
        self.good("prune", "llama-packed", "both", "--packed")
        self.assertIs(self.json("check", "both")["ok"], True)

    def test_texts_of_info_and_check(self):
        self.assertRegex(self.good("info", "gpt2-packed").stdout,
                         r"f32 +\[32, 96\] +6:8 +75 % as \[96, 32\]")
        done = run("check", "gpt2-packed", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"no +.* f32 6:8 as \[96, 32\] transposed: ")
        for model in ("gpt2-packed", "gpt2-68", "llama-packed"):
            self.assertIn("are 6:8", self.good("check", model, "--pattern", "6:8").stderr)
            tensors = self.json("check", model, "--pattern", "6:8")["tensors"]
            self.assertEqual({t["fits"] for t in tensors if t["selected"]}, {True})
        done = run("check", "llama", "--pattern", "14:16", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r": row 0 has 16 non-zeros in columns 0 to 15")

    def test_refused(self):
        layer = r"tensor model\.layers\.0\.\S+"
        self.refusals((
            ("not 6:8", ("pack", "llama", "x", "--format", "6:8"), 4,
             layer + r".*src is not 6:8: row 0, columns 0 to 7 \(group 0\) have 8 non-zeros"),
            ("no kin", ("pack", "llama", "x", "--format", "4:8"), 2, "'4:8' is none; expected"),
            ("too large", ("pack", "llama", "x", "--format", "32:34"), 2, "'32:34' is none"),
            ("k", ("pack", "llama-68", "x", "--format", "10:12"), 4,
             layer + ": k = 64 is no multiple of 12"),
            ("all dense", ("pack", "llama-68", "x", "--format", "dense:32"), 4,
             layer + ": k = 32 has no columns after 32 dense ones"),
            ("no group", ("pack", "llama", "x", "--format", "dense:16"), 4,
             layer + r".*src is not 2:4: row 0, columns 16 to 19 \(group 4\) have 4 non-zeros"),
            ("layout", ("pack", "llama-68", "x", "--format", "6:8", "--layout", "cpu"), 2,
             "is of floats as they are"),
            ("packed", ("prune", "llama", "x", "--pattern", "4:8", "--packed"), 2,
             "--packed is of --pattern 2:4, 6:8 and its kin, dense:COLUMNS, or low-rank:RANK, not "
             "of 4:8"),
        ))
        self.refusals((
            ("N:M", ("check", "llama", "--pattern", "row:0.5"), 2, "'row:0.5' is no pattern N:M"),
            ("both", ("check", "llama", "--pattern", "6:8", "--both"), 2,
             "--both is of --pattern 2:4, not of 6:8"),
        ))
        done = run("train", "llama-packed", "x", "--stream", "text", "--max-tokens", "8",
                   "--steps", "1", cwd=self.folder)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, "is stored as a lifted matrix; 'sparse24 unpack'")


if __name__ == "__main__":
    unittest.main()
