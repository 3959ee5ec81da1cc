# SPDX-License-Identifier: Apache-2.0
"""pack --quantize: what is stored, what info, check and unpack say of it, and models that run
it."""
import json
import math
import shutil
import struct
import subprocess
import sys
import unittest

from cli_case import SOURCE, Scratch, run
import tiny_bert
from cli_data import floats, matrix, read, tensor, write

WEIGHT = "blocks.layer.0.fc.weight"
ROWS, COLS = 6, 200
# Name: bits, columns that share a scale
SCHEMES = {"int8": (8, COLS), "int8-g64": (8, 64), "int8-g128": (8, 128),
           "int4": (4, COLS), "int4-g64": (4, 64), "int4-g128": (4, 128)}


def make_files(folder):
    write(folder / "sparse.safetensors", {
        WEIGHT: tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS)),
        "blocks.layer.0.fc.bias": tensor("f32", (8,), bytes(32))})
    write(folder / "bytes.safetensors", {
        WEIGHT: tensor("i8", (ROWS, COLS), matrix("i8", ROWS, COLS))})
    data = bytearray(matrix("f32", ROWS, COLS))
    data[(2 * COLS + 4) * 4:(2 * COLS + 8) * 4] = struct.pack("<4f", float("inf"), 0, 0, 0)
    write(folder / "inf.safetensors", {WEIGHT: tensor("f32", (ROWS, COLS), data)})
    write(folder / "dense.safetensors",
          {WEIGHT: tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS, kept=3))})


class Files(Scratch):
    make = staticmethod(make_files)

    def test_scales_that_are_none(self):
        """Zero is one; what is not finite, or negative, is refused by name and place."""
        self.good("pack", "sparse.safetensors", "good.safetensors", "--quantize", "int4")
        tensors, metadata = read(self.folder / "good.safetensors")
        name = WEIGHT + ".s24_scales"
        for scale, code in ((0.0, 0), (math.nan, 4), (math.inf, 4), (-0.5, 4)):
            raw = bytearray(tensors[name][2])
            raw[8:12] = struct.pack("<f", scale)
            write(self.folder / "bad.safetensors", {
                n: {"dtype": t[0], "shape": t[1], "data": bytes(raw) if n == name else t[2]}
                for n, t in tensors.items()}, metadata)
            done = run("unpack", "bad.safetensors", "new.safetensors", "--force", cwd=self.folder)
            self.assertEqual(done.returncode, code, done.stderr)
            if code:
                self.assertRegex(done.stderr,
                                 rf'bad.safetensors: .*"{WEIGHT}".* the scale at row 2, '
                                              rf"column 0 is {scale}")
        rows = floats(read(self.folder / "new.safetensors")[0][WEIGHT][2])
        self.assertEqual(set(rows[2 * COLS:3 * COLS]), {0.0})

    def test_every_scheme(self):
        source = floats(read(self.folder / "sparse.safetensors")[0][WEIGHT][2])
        for scheme, (bits, group) in SCHEMES.items():
            with self.subTest(scheme):
                out = f"{scheme}.safetensors"
                found = self.json("pack", "sparse.safetensors", out, "--quantize", scheme)
                groups = -(-COLS // group)
                size = ROWS * (COLS * bits // 16 + (COLS + 7) // 8 + 4 * groups)
                self.assertEqual(found["layers"], [
                    {"name": WEIGHT, "bytes_in": 4 * ROWS * COLS, "bytes_out": size}])
                tensors, metadata = read(self.folder / out)
                self.assertEqual(metadata["sparse24.version"], "2")
                self.assertEqual(json.loads(metadata["sparse24.packed"]),
                                 {WEIGHT: [ROWS, COLS, bits, group]})
                self.assertEqual({name: t[:2] for name, t in tensors.items() if "weight" in name}, {
                    WEIGHT + ".s24_values": ("I8", [ROWS, COLS // 2]) if bits == 8 else
                                            ("U8", [ROWS, COLS // 4]),
                    WEIGHT + ".s24_indices": ("U8", [ROWS, COLS // 8]),
                    WEIGHT + ".s24_scales": ("F32", [ROWS, groups])})
                told = {t["name"]: t for t in self.json("info", out)["tensors"]}[WEIGHT]
                self.assertEqual(told, {"name": WEIGHT, "dtype": "i8", "shape": [ROWS, COLS],
                                        "packed": True, "quantized": scheme, "layout": None})
                self.assertRegex(self.good("info", out).stdout, rf"2:4 +{scheme} .*fc\.weight")
                self.assertIs(self.json("check", out)["ok"], True)
                self.there_and_back(scheme, out, source, bits)

    def there_and_back(self, scheme, out, source, bits):
        """unpack against the decoder of the format, and near what was packed."""
        self.good("unpack", out, f"{scheme}-dense.safetensors")
        ours = read(self.folder / f"{scheme}-dense.safetensors")[0][WEIGHT]
        subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py", self.folder / out,
                        self.folder / "decoded.safetensors"], check=True)
        self.assertEqual(ours, read(self.folder / "decoded.safetensors")[0][WEIGHT])
        self.assertEqual(ours[:2], ("F32", [ROWS, COLS]))
        worst = max(abs(a - b) for a, b in zip(floats(ours[2]), source))
        self.assertLess(worst, 0.005 if bits == 8 else 0.2)
        self.assertGreater(worst, 0)
        self.assertIs(self.json("check", f"{scheme}-dense.safetensors")["ok"], True)

    def test_packed_floats_become_the_same_integers(self):
        self.good("pack", "sparse.safetensors", "packed.safetensors")
        self.good("pack", "packed.safetensors", "a.safetensors", "--quantize", "int4-g64")
        self.good("pack", "sparse.safetensors", "b.safetensors", "--quantize", "int4-g64")
        self.assertEqual(read(self.folder / "a.safetensors"), read(self.folder / "b.safetensors"))

    def test_integers_pass_through(self):
        self.good("pack", "sparse.safetensors", "a.safetensors", "--quantize", "int8")
        found = self.json("pack", "a.safetensors", "b.safetensors", "--quantize", "int8")
        self.assertEqual(found["layers"], [])
        self.assertEqual(read(self.folder / "a.safetensors"), read(self.folder / "b.safetensors"))

    def test_integers_of_another_scheme_are_refused(self):
        self.good("pack", "sparse.safetensors", "int8.safetensors", "--quantize", "int8")
        for scheme in ("int4", "int8-g64"):
            done = run("pack", "int8.safetensors", "new", "--quantize", scheme, cwd=self.folder)
            self.assertEqual(done.returncode, 4)
            self.assertRegex(done.stderr, rf"fc.weight holds int8 integers.* no {scheme} ones")
            self.assertFalse((self.folder / "new").exists())

    def test_prune_of_integers_writes_floats(self):
        self.good("pack", "sparse.safetensors", "a.safetensors", "--quantize", "int8")
        self.good("unpack", "a.safetensors", "dense.safetensors", "--force")
        for more in ([], ["--packed"]):
            self.good("prune", "a.safetensors", "p.safetensors", "--force", *more)
            if more:
                self.good("unpack", "p.safetensors", "p.safetensors", "--force")
            self.assertEqual(read(self.folder / "p.safetensors")[0][WEIGHT],
                             read(self.folder / "dense.safetensors")[0][WEIGHT])

    def test_bad_input(self):
        self.refusals([
            ("no such scheme", ["pack", "sparse.safetensors", "new", "--quantize", "int3"], 2,
             "--quantize.*int3"),
            ("integers already", ["pack", "bytes.safetensors", "new", "--quantize", "int8"], 4,
             "fc.weight: src holds integers already"),
            ("not finite", ["pack", "inf.safetensors", "new", "--quantize", "int8"], 4,
             "fc.weight: .*Inf"),
            ("not 2:4", ["pack", "dense.safetensors", "new", "--quantize", "int8"], 4,
             "fc.weight: src is not 2:4: row 0"),
            ("unpack has none", ["unpack", "sparse.safetensors", "new", "--quantize", "int8"], 2,
             "--quantize")])


def make_model(folder):
    tiny_bert.write(folder / "model")
    (folder / "texts").write_text("\n".join(tiny_bert.sentences(12)) + "\n", encoding="utf-8")


class Models(Scratch):
    make = staticmethod(make_model)

    def vectors(self, model, *more):
        self.good("embed", model, "--input", "texts", "--output", "v.safetensors", "--force",
                  "--sparse",
                  *more)
        _, (rows, width), raw = read(self.folder / "v.safetensors")[0]["embeddings"]
        values = floats(raw)
        return [values[i * width:(i + 1) * width] for i in range(rows)]

    def worst(self, a, b):
        return max(abs(x - y) for u, v in zip(a, b) for x, y in zip(u, v))

    def test_models_of_integers(self):
        self.good("prune", "model", "sparse", "--packed")
        want = self.vectors("sparse")
        for scheme, most in (("int8", 0.02), ("int8-g64", 0.02), ("int4-g64", 0.3), ("int4", 0.3)):
            with self.subTest(scheme):
                self.good("pack", "sparse", scheme, "--quantize", scheme)
                self.good("unpack", scheme, f"{scheme}-dense")
                got = self.vectors(scheme)
                self.assertGreater(self.worst(got, want), 0)
                self.assertLess(self.worst(got, want), most)
                # What runs is scale times integer.
                self.assertLess(self.worst(got, self.vectors(f"{scheme}-dense")), 1e-5)
                self.assertLess(self.worst(self.vectors(scheme, "--isa", "baseline"), got), 1e-5)
                self.assertLess(self.worst(self.vectors(scheme, "--dtype", "bf16"), got), 0.05)
        hits = self.json("search", "int4-g64", "--documents", "texts", "--query", "line 3")["hits"]
        self.assertEqual(len(hits), 5)
        row = self.json("bench", "--model", "int4-g64", "--batch", 1, "--seq", 8, "--rounds", 1,
                        "--min-ms", 1, "--threads", 1, "--sparse")["rows"][0]
        self.assertEqual(row["sparse_layers"], 6 * tiny_bert.LAYERS)

    def test_a_folder_of_shards(self):
        self.good("prune", "model", "sparse", "--packed")
        self.good("pack", "sparse", "whole", "--quantize", "int4")
        tensors, metadata = read(self.folder / "whole/model.safetensors")
        described = json.loads(metadata["sparse24.packed"])
        names = sorted({name.split(".s24_")[0] for name in tensors})
        shutil.copytree(self.folder / "whole", self.folder / "shards")
        (self.folder / "shards/model.safetensors").unlink()
        places = {}
        for i in range(2):
            part = f"model-{i + 1:05}-of-00002.safetensors"
            mine = {n: t for n, t in tensors.items() if n.split(".s24_")[0] in names[i::2]}
            write(self.folder / "shards" / part,
                  {n: {"dtype": t[0], "shape": t[1], "data": t[2]} for n, t in mine.items()},
                  {"sparse24.version": "2", "sparse24.packed": json.dumps(
                      {n: described[n] for n in names[i::2] if n in described})})
            places.update(dict.fromkeys(mine, part))
        index = self.folder / "shards/model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
        self.assertEqual(self.vectors("shards"), self.vectors("whole"))
        self.assertIs(self.json("check", "shards")["ok"], True)
        for folder in ("whole", "shards"):
            self.good("unpack", folder, folder + "-dense")
        self.assertEqual(self.vectors("shards-dense"), self.vectors("whole-dense"))
        lost = next(name for name in places if name.endswith(".s24_scales"))
        del places[lost]
        index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
        done = run("check", "shards", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, rf'"{lost.split(".s24_")[0]}" .* not in the "weight_map"')

    def test_i8_runs_the_stored_integers(self):
        self.good("prune", "model", "sparse", "--packed")
        self.good("pack", "sparse", "int8", "--quantize", "int8")
        self.assertEqual(self.vectors("int8", "--dtype", "i8"),
                         self.vectors("sparse", "--dtype", "i8"))
        # Groups have no place there: their numbers are quantised anew, a row at a time.
        self.good("pack", "sparse", "groups", "--quantize", "int8-g64")
        self.assertLess(self.worst(self.vectors("groups", "--dtype", "i8"),
                                   self.vectors("sparse", "--dtype", "i8")), 0.05)


if __name__ == "__main__":
    unittest.main()
