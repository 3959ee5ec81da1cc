# SPDX-License-Identifier: Apache-2.0
"""Low-rank factors next to 2:4, and alone: what prune writes, what info, check, unpack, pack and
convert make of it, models that run on it, and the files that a reader refuses."""
import array
import json
import shutil
import subprocess
import sys
import unittest

from cli_case import SOURCE, Scratch, run
import test_cli_eval
from cli_data import read
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

MODELS = ("gpt2", "llama")


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=32)
    write_llama(folder / "llama", width=32)
    for name in MODELS:
        randomise(folder / name, 3)
        assert run("prune", name, name + "-low", "--packed", "--low-rank", "4",
                   cwd=folder).returncode == 0
        assert run("unpack", name + "-low", name + "-dense", cwd=folder).returncode == 0
    (folder / "text").write_text("abcab bca abba c" * 8)


def floats(dtype, _, data):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return array.array("f", data)


def describe(folder, change):
    """Rewrites what a folder's file says of its tensors, and leaves the hashes out."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header["__metadata__"]
    del metadata["sparse24.xxh3"]
    described = json.loads(metadata["sparse24.packed"])
    change(described, header)
    metadata["sparse24.packed"] = json.dumps(described)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:])


class LowRank(Scratch):
    make = staticmethod(make)

    def loss(self, model, *options):
        return self.json("eval", model, "--task", "lm", "--data", "text", *options)["loss"]

    def layers(self, model):
        return [t for t in self.json("info", model)["tensors"] if "low_rank" in t]

    def distance(self, one, other):
        a, b = (read(self.folder / m / "model.safetensors")[0] for m in (one, other))
        total = 0.0
        for name in a:
            x, y = (array.array("f", t[name][2]) for t in (a, b))
            total += sum((p - q) ** 2 for p, q in zip(x, y))
        return total

    def test_what_is_stored(self):
        for name in MODELS:
            layers = self.layers(name + "-low")
            self.assertTrue(layers)
            self.assertEqual({(t["packed"], t["low_rank"]) for t in layers}, {(True, 4)})
            metadata = read(self.folder / (name + "-low") / "model.safetensors")[1]
            self.assertEqual(metadata["sparse24.version"], "8")
            for described in json.loads(metadata["sparse24.packed"]).values():
                self.assertEqual(described[2:4], ["low-rank", 4])
            self.assertRegex(self.good("info", name + "-low").stdout, r"2:4 +rank 4")
            self.assertIs(self.json("check", name + "-low")["ok"], True)
            self.good("check", name + "-low", "--verify")

    def test_models_run_on_the_sum(self):
        for name in MODELS:
            dense = self.loss(name + "-dense")
            self.assertAlmostEqual(self.loss(name + "-low"), dense, places=5)
            self.assertAlmostEqual(self.loss(name + "-low", "--dense"), dense, places=5)
            for dtype in ("bf16", "i8", "int8"):
                self.assertLess(abs(self.loss(name + "-low", "--dtype", dtype) / dense - 1), 0.05)
        words = ("--prompt", "ab", "--max-new", "8")
        self.assertEqual(self.good("generate", "llama-low", *words).stdout,
                         self.good("generate", "llama-dense", *words).stdout)

    def test_a_higher_rank_is_nearer(self):
        last = None
        for rank in (0, 2, 8, 32):
            out = str(self.scratch() / "out")
            self.good("prune", "llama", out, "--packed", "--exclude", "*k_proj*,*v_proj*",
                      *(("--low-rank", str(rank)) if rank else ()))
            self.good("unpack", out, out + "-dense")
            now = self.distance("llama", out + "-dense")
            self.assertTrue(last is None or now < last, (rank, now, last))
            last = now
        self.assertLess(last, 1e-6)

    def test_by_bytes_with_integers_and_6_8(self):
        for options, layout in ((("--low-rank", "bytes=0.2"), (None, True)),
                                (("--low-rank", "3", "--quantize", "int8"), ("int8", True)),
                                (("--low-rank", "3", "--pattern", "6:8"), (None, False)),
                                (("--low-rank", "3", "--dtype", "bf16"), (None, True))):
            with self.subTest(options):
                out = str(self.scratch() / "out")
                self.good("prune", "llama", out, "--packed", *options)
                for t in self.layers(out):
                    rows, cols = t["shape"]
                    expected = (int(0.2 * rows * cols / (rows + cols))
                                if options[1] != "3" else 3)
                    self.assertEqual(t["low_rank"], expected)
                    self.assertEqual((t["quantized"], t["packed"]), layout)
                self.good("unpack", out, out + "-dense")
                # Unpacked bf16 is a sum rounded once more.
                dense = self.loss(out + "-dense")
                most = 0.01 if "bf16" in options else 1e-3
                self.assertLess(abs(self.loss(out) / dense - 1), most)

    def test_factors_alone(self):
        for name in MODELS:
            out = name + "-factors"
            self.good("prune", name, out, "--packed", "--pattern", "low-rank:4")
            self.assertEqual({(t["packed"], t["low_rank"]) for t in self.layers(out)}, {(False, 4)})
            self.assertRegex(self.good("info", out).stdout, r"factors +rank 4")
            self.good("unpack", out, out + "-dense")
            self.assertAlmostEqual(self.loss(out), self.loss(out + "-dense"), places=5)
            described = json.loads(
                read(self.folder / out / "model.safetensors")[1]["sparse24.packed"])
            self.assertEqual({tuple(d[2:4]) for d in described.values()}, {("factors", 4)})

    def test_the_description_alone_says_what_is_stored(self):
        for options in (("--low-rank", "3"), ("--low-rank", "3", "--quantize", "int8"),
                        ("--low-rank", "3", "--pattern", "6:8"), ("--pattern", "low-rank:3"),
                        ("--low-rank", "3", "--dtype", "bf16")):
            for name in MODELS:
                with self.subTest(name, options=options):
                    out = self.scratch() / "out"
                    dense, decoded = out.with_name("dense"), out.with_name("decoded")
                    self.good("prune", name, str(out), "--packed", *options)
                    self.good("unpack", str(out), str(dense))
                    command = [sys.executable, SOURCE / "tools/decode_s24.py",
                               out / "model.safetensors"]
                    listed = subprocess.run(command, check=True, text=True, capture_output=True)
                    self.assertEqual(listed.stdout.count(" rank 3"), len(self.layers(str(out))))
                    subprocess.run([*command, decoded], check=True)
                    ours, theirs = read(dense / "model.safetensors")[0], read(decoded)[0]
                    for layer in self.layers(str(out)):
                        a, b = ours[layer["name"]], theirs[layer["name"]]
                        self.assertEqual((a[1], b[0]), (b[1], "F32"))
                        # Unpacked bf16 is that sum rounded.
                        for p, q in zip(floats(*a), floats(*b)):
                            self.assertAlmostEqual(p, q, delta=1e-6 + (a[0] != b[0]) * abs(q) / 256)

    def test_formats_and_libraries(self):
        self.good("convert", "llama-low", "to-dense", "--to", "dense")
        self.assertEqual(read(self.folder / "to-dense/model.safetensors")[0],
                         read(self.folder / "llama-dense/model.safetensors")[0])
        for command in (("convert", "llama-low", "same"),
                        ("pack", "llama-low", "here", "--layout", "cpu")):
            self.good(*command)
            self.assertEqual(read(self.folder / command[2] / "model.safetensors"),
                             read(self.folder / "llama-low/model.safetensors"))
        self.good("prune", "llama-low", "again", "--packed")
        self.assertEqual(self.layers("again"), [])
        self.assertIs(self.json("check", "again")["ok"], True)

    def test_refused(self):
        self.refusals((
            ("rank", ("prune", "llama", "x", "--packed", "--low-rank", "0"), 2,
             'the low rank is "0"; expected a rank of 1 or more'),
            ("too large", ("prune", "llama", "x", "--packed", "--low-rank", "5000"), 4,
             r"the low rank is 5000; tensor '[^']+' \[\d+, \d+\] has at most \d+"),
            ("too large alone", ("prune", "llama", "x", "--packed", "--pattern", "low-rank:5000"),
             4, "has at most 32"),
            ("share", ("prune", "llama", "x", "--packed", "--low-rank", "bytes=2"), 2,
             'the low rank is "bytes=2"'),
            ("packed", ("prune", "llama", "x", "--low-rank", "4"), 2, "--low-rank"),
            ("pattern", ("prune", "llama", "x", "--pattern", "low-rank:4"), 2,
             "--pattern low-rank:4 needs --packed"),
            ("both", ("prune", "llama", "x", "--packed", "--pattern", "low-rank:4", "--low-rank",
                      "2"), 2, "the pattern low-rank:4 chooses no weights"),
            ("pack", ("pack", "llama-low", "x", "--quantize", "int8"), 4,
             "is stored with low-rank factors"),
        ))
        done = run("train", "llama-low", "x", "--stream", "text", "--max-tokens", "8", "--steps",
                   "1", cwd=self.folder)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, "is stored as low-rank factors; 'sparse24 unpack'")

    def test_files_that_are_none(self):
        def first(described):
            return sorted(described)[0]

        def rank(of):
            def change(described, header):
                described[first(described)][3] = of
            return change

        def dense(described, header):
            described[first(described)][2:2] = [8, 64, "dense"]

        def gone(described, header):
            name = first(described)
            header[name + ".other"] = header.pop(name + ".s24_right")

        def plain(described, header):
            described[first(described)][2:4] = []

        for change, sentence in (
                (rank(0), "has factors of rank 0, expected 1 to 32"),
                (rank(33), "has factors of rank 33, expected 1 to 32"),
                (rank("4"), "does not give tensor .* a shape"),
                (rank(5), r"s24_left.* has shape \[\d+, 4\], expected \[\d+, 5\]"),
                (dense, "is no 2:4 or lifted matrix that they can be added to"),
                (gone, r"lacks its part .*s24_right"),
                (plain, r"s24_left.* is part of a packed tensor that .* does not describe")):
            with self.subTest(sentence):
                out = self.scratch() / "out"
                shutil.copytree(self.folder / "llama-low", out)
                describe(out, change)
                done = run("info", str(out), cwd=self.folder)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stderr, sentence)


if __name__ == "__main__":
    unittest.main()
