# SPDX-License-Identifier: Apache-2.0
"""pack --layout: what is stored and what every command makes of it; models that run from the
file."""
import json
import shutil
import struct
import subprocess
import sys
import unittest

from cli_case import SOURCE, Scratch, run
import tiny_bert
from cli_data import matrix, read, tensor, write

WEIGHT = "blocks.layer.0.fc.weight"
ROWS, COLS = 21, 44
BLOCKS = 2 * 2  # of 16 rows by 32 columns
# dtype: layouts of this CPU and of any, bytes of a block
LAYOUTS = {"f32": (("rows16-f32",), 1088), "f16": (("rows16-f16",), 576),
           "bf16": (("rows16-bf16", "rows16-bf16-pairs"), 576)}


def make_files(folder):
    for dtype in (*LAYOUTS, "i8"):
        write(folder / f"{dtype}.safetensors", {
            WEIGHT: tensor(dtype, (ROWS, COLS), matrix(dtype, ROWS, COLS)),
            "blocks.layer.0.fc.bias": tensor("f32", (8,), bytes(32))})


def has_layouts(folder):
    """Does this CPU have vector kernels?"""
    run("pack", "f32.safetensors", "probe.safetensors", "--layout", "cpu", cwd=folder)
    return WEIGHT + ".s24_stream" in read(folder / "probe.safetensors")[0]


class Files(Scratch):
    make = staticmethod(make_files)

    def setUp(self):
        super().setUp()
        if not has_layouts(self.folder):
            self.skipTest("this CPU has no layout of its own")

    def test_every_dtype(self):
        for dtype, (names, block) in LAYOUTS.items():
            with self.subTest(dtype):
                self.good("pack", f"{dtype}.safetensors", "canonical.safetensors", "--force")
                found = self.json("pack", f"{dtype}.safetensors", "cpu.safetensors", "--force",
                                  "--layout", "cpu")
                self.assertEqual(found["layers"][0]["bytes_out"], BLOCKS * block)
                tensors, metadata = read(self.folder / "cpu.safetensors")
                self.assertEqual(metadata["sparse24.version"], "3")
                layout = json.loads(metadata["sparse24.packed"])[WEIGHT][2]
                self.assertIn(layout, names)
                self.assertEqual(tensors[WEIGHT + ".s24_stream"][:2], ("U8", [BLOCKS * block]))
                told = {t["name"]: t for t in self.json("info", "cpu.safetensors")["tensors"]}
                self.assertEqual(told[WEIGHT], {"name": WEIGHT, "dtype": dtype, "packed": True,
                                                "shape": [ROWS, COLS], "quantized": None,
                                                "layout": layout})
                self.assertRegex(self.good("info", "cpu.safetensors").stdout,
                                 rf"2:4 +{layout} .*fc\.weight")
                self.assertIs(self.json("check", "cpu.safetensors")["ok"], True)
                self.there_and_back()

    def there_and_back(self):
        """unpack of both forms, the decoder of the format, and the canonical form again."""
        self.good("unpack", "cpu.safetensors", "dense.safetensors", "--force")
        self.good("unpack", "canonical.safetensors", "expected.safetensors", "--force")
        expected = read(self.folder / "expected.safetensors")[0]
        self.assertEqual(read(self.folder / "dense.safetensors")[0], expected)
        subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                        self.folder / "cpu.safetensors", self.folder / "decoded.safetensors"],
                       check=True)
        self.assertEqual(read(self.folder / "decoded.safetensors")[0], expected)
        for source, out, options in (("cpu", "again", []),
                                     ("canonical", "moved", ["--layout", "cpu"]),
                                     ("cpu", "same", ["--layout", "cpu"])):
            self.good("pack", f"{source}.safetensors", f"{out}.safetensors", *options, "--force")
        for out, like in (("again", "canonical"), ("moved", "cpu"), ("same", "cpu")):
            self.assertEqual((self.folder / f"{out}.safetensors").read_bytes(),
                             (self.folder / f"{like}.safetensors").read_bytes(), out)

    def test_streams_begin_at_64_bytes(self):
        self.good("pack", "f32.safetensors", "cpu.safetensors", "--layout", "cpu")
        data = (self.folder / "cpu.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        self.assertEqual((8 + length + header[WEIGHT + ".s24_stream"]["data_offsets"][0]) % 64, 0)

    def test_what_has_no_layout_stays_canonical(self):
        self.good("pack", "i8.safetensors", "a.safetensors", "--layout", "cpu")
        self.good("pack", "f32.safetensors", "b.safetensors", "--layout", "cpu", "--isa",
                  "baseline")
        for out, like in (("a", "i8"), ("b", "f32")):
            self.good("pack", f"{like}.safetensors", "canonical.safetensors", "--force")
            self.assertEqual(read(self.folder / f"{out}.safetensors"),
                             read(self.folder / "canonical.safetensors"))

    def test_integers_from_a_layout(self):
        self.good("pack", "f32.safetensors", "cpu.safetensors", "--layout", "cpu")
        self.good("pack", "cpu.safetensors", "a.safetensors", "--quantize", "int8")
        self.good("pack", "f32.safetensors", "b.safetensors", "--quantize", "int8")
        self.assertEqual(read(self.folder / "a.safetensors"), read(self.folder / "b.safetensors"))

    def test_every_scheme(self):
        """Integers, made with the layout or put into it later, and what takes them."""
        write(self.folder / "wide.safetensors", {
            WEIGHT: tensor("f32", (70, 300), matrix("f32", 70, 300))})
        for source, scheme in ((name, scheme) for name in ("f32", "wide")
                               for scheme in ("int8", "int8-g64", "int8-g128",
                                              "int4", "int4-g64", "int4-g128")):
            with self.subTest(source=source, scheme=scheme):
                self.good("pack", f"{source}.safetensors", "canonical.safetensors", "--force",
                          "--quantize", scheme)
                found = self.json("pack", f"{source}.safetensors", "cpu.safetensors", "--force",
                                  "--quantize", scheme, "--layout", "cpu")
                tensors, metadata = read(self.folder / "cpu.safetensors")
                self.assertEqual(metadata["sparse24.version"], "10")
                layout = json.loads(metadata["sparse24.packed"])[WEIGHT][2]
                self.assertRegex(layout, rf"^rows(16|64)-{scheme.replace('nt', '')}$")
                stream = tensors[WEIGHT + ".s24_stream"]
                self.assertEqual(found["layers"][0]["bytes_out"], len(stream[2]))
                told = {t["name"]: t for t in self.json("info", "cpu.safetensors")["tensors"]}
                self.assertEqual((told[WEIGHT]["quantized"], told[WEIGHT]["layout"]),
                                 (scheme, layout))
                self.assertIs(self.json("check", "cpu.safetensors")["ok"], True)
                self.good("check", "cpu.safetensors", "--verify")
                self.there_and_back()

    def test_bad_integers(self):
        self.good("pack", "f32.safetensors", "cpu.safetensors", "--layout", "cpu",
                  "--quantize", "int8")
        data = (self.folder / "cpu.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        negative = bytearray(data)
        negative[8 + length + 3] |= 0x80
        older = data.replace(b'"sparse24.version":"10"', b'"sparse24.version":"9" ')
        for folder in (self.folder, self.fixtures):
            (folder / "scale.safetensors").write_bytes(negative)
            (folder / "older.safetensors").write_bytes(older)
        self.refusals([
            ("a scale", ["info", "scale.safetensors"], 4,
             rf"scale.safetensors: packed tensor \"{WEIGHT}\": the scale of row 0, column 0 is "
             "negative or not finite"),
            ("a version", ["info", "older.safetensors"], 5,
             r"in the layout \"rows\d\d-i8\", which this build does not know"),
        ])

    def test_prune_of_a_layout_writes_the_canonical_form(self):
        self.good("pack", "f32.safetensors", "cpu.safetensors", "--layout", "cpu")
        for options in ([], ["--packed"]):
            self.good("prune", "cpu.safetensors", "a.safetensors", *options, "--force")
            self.good("prune", "f32.safetensors", "b.safetensors", *options, "--force")
            self.assertEqual(read(self.folder / "a.safetensors"),
                             read(self.folder / "b.safetensors"))

    def test_bad_input(self):
        self.good("pack", "f32.safetensors", "cpu.safetensors", "--layout", "cpu")
        data = bytearray((self.folder / "cpu.safetensors").read_bytes())
        (length,) = struct.unpack("<Q", data[:8])
        data[8 + length + 5] = 0x77
        for folder in (self.folder, self.fixtures):
            (folder / "code.safetensors").write_bytes(data)
        self.refusals([
            ("no such layout", ["pack", "f32.safetensors", "new", "--layout", "gpu"], 2,
             "--layout.*gpu"),
            ("a bad code", ["unpack", "code.safetensors", "new"], 4,
             rf"code.safetensors: packed tensor \"{WEIGHT}\": the code of row 1, column 8"),
        ])


class Models(Scratch):
    """A model's vectors are the same bits from either form, in place or not."""

    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("open the file\n\nread\n", encoding="utf-8")
        write(folder / "f32.safetensors", {
            WEIGHT: tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS))})

    def vectors(self, model, *options):
        self.good("embed", model, "--input", "texts", "--output", "out.safetensors", "--force",
                  *options)
        return (self.folder / "out.safetensors").read_bytes()

    def test_vectors(self):
        if not has_layouts(self.folder):
            self.skipTest("this CPU has no layout of its own")
        for dtype in ("f32", "bf16"):
            self.good("prune", "model", "packed", "--packed", "--dtype", dtype, "--force")
            self.good("pack", "packed", "cpu", "--layout", "cpu", "--force")
            move_query(self.folder / "cpu", self.folder / "moved")
            for options in ([], ["--dtype", "f32"], ["--dtype", "i8"], ["--isa", "baseline"],
                            ["--isa", "avx2"]):
                if options == ["--isa", "avx2"] and run("info", "packed", *options,
                                                        cwd=self.folder).returncode:
                    continue
                with self.subTest(dtype=dtype, options=options):
                    expected = self.vectors("packed", "--sparse", *options)
                    self.assertEqual(self.vectors("cpu", "--sparse", *options), expected)
                    self.assertEqual(self.vectors("moved", "--sparse", *options), expected)


    def test_vectors_of_integers(self):
        """Of every scheme in the layout and not, with tokens in floats, bf16 and 8 bits, here and
        where kernels have another layout or none."""
        if not has_layouts(self.folder):
            self.skipTest("this CPU has no layout of its own")
        self.good("prune", "model", "packed", "--packed", "--force")
        for scheme in ("int8", "int8-g128", "int4-g64"):
            self.good("pack", "packed", "integers", "--quantize", scheme, "--force")
            self.good("pack", "packed", "cpu", "--quantize", scheme, "--layout", "cpu", "--force")
            move_query(self.folder / "cpu", self.folder / "moved")
            for options in ([], ["--dtype", "bf16"], ["--dtype", "i8"], ["--isa", "baseline"],
                            ["--isa", "avx2"], ["--dense"]):
                if options == ["--isa", "avx2"] and run("info", "packed", *options,
                                                        cwd=self.folder).returncode:
                    continue
                with self.subTest(scheme=scheme, options=options):
                    sparse = ["--sparse"] if options != ["--dense"] else []
                    expected = self.vectors("integers", *sparse, *options)
                    self.assertEqual(self.vectors("cpu", *sparse, *options), expected)
                    self.assertEqual(self.vectors("moved", *sparse, *options), expected)


def move_query(source, out):
    """A copy in which query, key and value of each layer lie one after the other in another order
    (layer 0), and in which they do not (layer 1)."""
    shutil.copytree(source, out, dirs_exist_ok=True)
    data = (source / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    names = sorted(header, key=lambda name: header[name]["data_offsets"][0])
    key, query = (f"encoder.layer.0.attention.self.{part}.weight.s24_stream"
                  for part in ("key", "query"))
    i, j = names.index(key), names.index(query)
    names[i], names[j] = query, key
    late = "encoder.layer.1.attention.self.query.weight.s24_stream"
    names.insert(0, names.pop(names.index(late)))
    body, offset = b"", 0
    ordered = {"__metadata__": metadata}
    for name in names:
        begin, end = header[name]["data_offsets"]
        body += data[8 + length + begin:8 + length + end]
        ordered[name] = header[name] | {"data_offsets": [offset, offset + end - begin]}
        offset += end - begin
    text = json.dumps(ordered).encode()
    text += b" " * (-(8 + len(text)) % 64)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    unittest.main()
