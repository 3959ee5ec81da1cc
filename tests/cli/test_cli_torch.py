# SPDX-License-Identifier: Apache-2.0
"""convert and info on files of torch.save: tensors and views, 2:4 ones of both backends, torchao's,
folders; and pickles that are refused by what they would do."""
import json
import shutil
import struct
import unittest
import warnings
import zipfile

from cli_case import Scratch
import cli_data
import foreign_data
import tiny_bert
import torch_data as t

SEMI = "torch.sparse.semi_structured"
ROWS, COLS = 64, 128


def two_four():
    """[ROWS][COLS] whole numbers, two of every four not zero."""
    return [[(1 + (r * 7 + c * 5) % 61) if c % 4 in foreign_data.KEPT[(r + c // 4 * 5) % 6] else 0
             for c in range(COLS)] for r in range(ROWS)]


def code(row, group):
    first, second = [i for i in range(4) if row[4 * group + i]]
    return first | second << 2


def cutlass_meta(rows):
    """PyTorch's order of 16-bit words."""
    out = [0] * (ROWS * COLS // 16)
    for r, row in enumerate(rows):
        for c in range(COLS // 16):
            word = sum(code(row, 4 * c + g) << 4 * g for g in range(4))
            y = r // 32 * 32 + r % 8 * 4 + r % 32 // 8
            move = (y % 2 == 0 and c % 2 == 1) - (y % 2 == 1 and c % 2 == 0)
            y, x = y + move, c - move
            out[x // 2 * 2 * ROWS + 2 * y + x % 2] = word
    return struct.pack(f"<{len(out)}H", *out)


def cusparselt_meta(rows):
    """What cuSPARSELt 0.8 writes after 16-bit values."""
    out = bytearray(ROWS * COLS // 8)
    for r, row in enumerate(rows):
        for g in range(COLS // 4):
            at = ((r >> 3 & 1) + 2 * (g >> 2 & 1) + 4 * (g & 3) + 16 * (r & 7)
                  + 128 * (r >> 4 & 3) + 512 * (g >> 3) + (r >> 6) * (COLS // 32) * 512)
            out[at // 2] |= code(row, g) << at % 2 * 4
    return bytes(out)


def kept(rows):
    return foreign_data.halves([float(v) for row in rows for v in row if v])


class Torch(Scratch):
    def converted(self, raw, *more):
        (self.folder / "m.pt").write_bytes(raw)
        self.good("convert", "m.pt", "out.safetensors", "--force", *more)
        return cli_data.read(self.folder / "out.safetensors")

    def test_tensors_views_and_tied_ones(self):
        twelve = struct.pack("<12f", *range(12))
        pickle = t.mapping([
            ("a.weight", t.tensor("Float", 0, [3, 4])),
            ("tied", t.tensor("Float", 0, [3, 4])),
            ("turned", t.tensor("Float", 1, [4, 3], strides=[1, 4])),
            ("part", t.tensor("Long", 2, [2], offset=1)),
            ("scalar", t.tensor("BFloat16", 3, [])),
            ("empty", t.tensor("Half", 3, [0, 5])),
            ("eight", t.byte_tensor("float8_e4m3fn", 4, [3])),
            ("parameter", t.call("torch._utils", "_rebuild_parameter",
                                 t.tensor("Char", 5, [2]), t.TRUE, b"}")),
            ("epoch", t.number(3)), ("rate", b"G" + struct.pack(">d", 0.5)), ("none", t.NONE)])
        records = {0: twelve, 1: twelve, 2: struct.pack("<3q", 7, 8, 9), 3: b"\x80\x3f",
                   4: b"\x38\x39\x3a", 5: b"\xff\x02"}
        tensors, metadata = self.converted(t.archive(pickle, records))
        self.assertEqual(metadata, {"format": "pt"})
        turned = struct.pack("<12f", *[r * 4 + c for c in range(4) for r in range(3)])
        self.assertEqual(tensors, {
            "a.weight": ("F32", [3, 4], twelve), "tied": ("F32", [3, 4], twelve),
            "turned": ("F32", [4, 3], turned), "part": ("I64", [2], struct.pack("<2q", 8, 9)),
            "scalar": ("BF16", [], b"\x80\x3f"), "empty": ("F16", [0, 5], b""),
            "eight": ("F8_E4M3", [3], b"\x38\x39\x3a"), "parameter": ("I8", [2], b"\xff\x02")})
        nested = t.mapping([("state_dict", pickle), ("step", t.number(70000))])
        self.assertEqual(self.converted(t.archive(nested, records))[0], tensors)

    def test_two_four_tensors_of_both_backends(self):
        rows = two_four()
        meta = t.tensor("Short", 1, [ROWS, COLS // 16])
        strided = t.tensor("Short", 1, [ROWS, 2, COLS // 32], strides=[2, 1, 2 * ROWS])
        for order in (meta, strided):
            parts = [("packed", t.tensor("Half", 0, [ROWS, COLS // 2])), ("meta", order),
                     ("packed_t", t.NONE)]
            pickle = t.mapping([("w", t.typed(SEMI, "SparseSemiStructuredTensorCUTLASS",
                                              [ROWS, COLS], parts))])
            raw = t.archive(pickle, {0: kept(rows), 1: cutlass_meta(rows)})
            self.check_rows(raw, rows, "CUTLASS")
        packed = t.tensor("Half", 0, [ROWS * COLS * 9 // 16])
        pickle = t.mapping([("w", t.typed(SEMI, "SparseSemiStructuredTensorCUSPARSELT",
                                          [ROWS, COLS], [("packed", packed)]))])
        self.check_rows(t.archive(pickle, {0: kept(rows) + cusparselt_meta(rows)}), rows,
                        "CUSPARSELT")

    def check_rows(self, raw, rows, backend):
        tensors, _ = self.converted(raw, "--to", "dense", "--dtype", "f32")
        self.assertEqual(cli_data.floats(tensors["w"][2]), [float(v) for row in rows for v in row])
        listed = self.json("info", "m.pt")
        self.assertEqual(listed["scheme"], f"PyTorch SparseSemiStructuredTensor{backend}")
        self.good("convert", "m.pt", "ours.safetensors", "--force")
        found = self.json("info", "ours.safetensors")["tensors"]
        self.assertEqual([(e["name"], e["packed"], e["dtype"]) for e in found],
                         [("w", True, "f16")])

    def test_torchao(self):
        values, by = bytes(range(256)), [0.5, 0.25, 2.0, 1.0]
        parts = [("qdata", t.tensor("Char", 0, [4, 64])),
                 ("scale", t.tensor("Float", 1, [4, 1]))]
        setting = t.name("torchao.quantization", "Kind") + t.together(t.text("auto")) + b"R"
        pickle = t.mapping([("w", t.typed("torchao.quantization", "Int8Tensor", [4, 64],
                                          [*parts, ("kind", setting)]))])
        raw = t.archive(pickle, {0: values, 1: struct.pack("<4f", *by)})
        tensors, _ = self.converted(raw, "--to", "dense")
        signed = struct.unpack("<256b", values)
        self.assertEqual(cli_data.floats(tensors["w"][2]),
                         [q * by[i // 64] for i, q in enumerate(signed)])
        self.assertEqual(self.json("convert", "m.pt", "w.safetensors")["integers"], 1)

    def test_folders(self):
        tiny_bert.write(self.folder / "model")
        (self.folder / "texts").write_text("read the file\n")
        tensors, _ = cli_data.read(self.folder / "model" / "model.safetensors")
        names = sorted(tensors)

        def saved(some):
            return t.archive(t.mapping([
                (name, t.tensor("Float", i, tensors[name][1])) for i, name in enumerate(some)]),
                {i: tensors[name][2] for i, name in enumerate(some)})
        for folder in ("one", "two"):
            shutil.copytree(self.folder / "model", self.folder / folder)
            (self.folder / folder / "model.safetensors").unlink()
        (self.folder / "one" / "pytorch_model.bin").write_bytes(saved(names))
        half = len(names) // 2
        shards = {"pytorch_model-00001-of-00002.bin": names[:half],
                  "pytorch_model-00002-of-00002.bin": names[half:]}
        for file, some in shards.items():
            (self.folder / "two" / file).write_bytes(saved(some))
        index = {"weight_map": {name: file for file, some in shards.items() for name in some}}
        (self.folder / "two" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        self.good("embed", "model", "--input", "texts", "--output", "v.npy")
        for folder in ("one", "two"):
            self.good("convert", folder, f"{folder}-out")
            self.good("embed", f"{folder}-out", "--input", "texts", "--output", "w.npy", "--force")
            self.assertEqual((self.folder / "w.npy").read_bytes(),
                             (self.folder / "v.npy").read_bytes())
        self.assertEqual(cli_data.read(self.folder / "one-out" / "model.safetensors")[0], tensors)
        self.assertTrue((self.folder / "two-out" / "model-00002-of-00002.safetensors").exists())
        self.assertFalse(list((self.folder / "two-out").glob("*.bin*")))


class Refusals(Scratch):
    @staticmethod
    def make(folder):
        good = {0: bytes(48)}

        def put(name, pickle, records=None, **more):
            raw = t.archive(pickle, good if records is None else records, **more)
            (folder / f"{name}.pt").write_bytes(raw)

        def one(tensor):
            return t.mapping([("w", tensor)])
        plain = one(t.tensor("Float", 0, [3, 4]))
        put("system", one(t.call("os", "system", t.text("touch here"))))
        put("eval", one(t.call("builtins", "eval", t.text("1"))))
        put("object", one(t.name("os", "system") + t.together(t.text("x")) + b"\x81"))
        put("instance", b"(" + t.text("x") + b"ios\nsystem\n")
        put("extension", b"\x82\x01")
        put("state", t.number(1) + b"}b")
        put("stack", b"u")
        put("note", b"h\x05")
        put("order", b"}r\x05\0\0\0")
        put("half", plain[:-20])
        put("list", b"]")
        put("nothing", b"}")
        put("missing", one(t.tensor("Float", 7, [1])))
        put("path", one(t.tensor("Float", "../data.pkl", [1])))
        put("beyond", one(t.tensor("Float", 0, [3, 5])))
        put("offset", one(t.tensor("Float", 0, [3, 4], offset=1)))
        put("large", one(t.tensor("Float", 0, [2 ** 40, 2 ** 40])))
        put("stride", one(t.tensor("Float", 0, [2, 2], strides=[2 ** 62, 1])))
        put("expanded", one(t.tensor("Float", 0, [1000, 1000], strides=[0, 0])))
        put("negative", one(t.tensor("Float", 0, [-1])))
        put("kind", one(t.tensor("Complex", 0, [1])))
        put("overlap", t.mapping([("a", t.tensor("Float", 0, [8])),
                                  ("b", t.tensor("Float", 0, [8], offset=4))]))
        put("twice", t.mapping([("w", t.tensor("Float", 0, [1]))] * 2))
        put("class", one(t.typed("torchao.prototype", "OtherTensor", [2, 2], [])))
        put("part", one(t.typed(SEMI, "SparseSemiStructuredTensorCUTLASS", [64, 128], [])))
        put("compressed", plain, compression=zipfile.ZIP_DEFLATED)
        with warnings.catch_warnings(action="ignore"):
            put("records", plain, more=[("model/data/0", b"1")])
        whole = (folder / "overlap.pt").read_bytes()
        (folder / "cut.pt").write_bytes(whole[:-30])
        (folder / "huge.pt").write_bytes(whole[:-12] + b"\xff" * 10 + b"\0\0")

    CASES = (
        ("system", 4, r"would call os.system, which rebuilds no tensor; nothing is run"),
        ("eval", 4, r"would call builtins.eval"), ("object", 4, r"would call os.system"),
        ("instance", 4, r"byte 9 has opcode 0x69, which no tensor needs"),
        ("extension", 4, r"opcode 0x82"), ("state", 4, r"a state is given to what has none"),
        ("stack", 4, r"the stack has too few values"), ("note", 4, r"a note that there is not"),
        ("order", 4, r"notes are not numbered in order"),
        ("half", 4, r"a name has no end"),
        ("list", 4, r"no dict of tensors by their names"),
        ("nothing", 4, r"the pickle has no tensors"),
        ("missing", 4, r'"w": the record of its storage is missing'),
        ("path", 4, r"the record of its storage is missing"),
        ("beyond", 4, r'"w": it goes beyond its storage'), ("offset", 4, r"beyond its storage"),
        ("large", 4, r"more than 2\^63|beyond its storage"),
        ("stride", 4, r"beyond its storage|out of its storage"),
        ("expanded", 4, r"beyond its storage"),
        ("negative", 4, r"offset, shape and strides are expected"),
        ("kind", 4, r"its dtype is none"), ("overlap", 4, r'tensors "a" and "b" overlap'),
        ("twice", 4, r'"w": it is there twice'),
        ("class", 5, r"a class that is not supported, only SparseSemi"),
        ("part", 4, r'"w.packed": it is missing'),
        ("compressed", 4, r"a record is compressed or encrypted"),
        ("records", 4, r'two records "model/data/0"'),
        ("cut", 4, r"no directory \(cut short\?\)"), ("huge", 4, r"lies outside the file"))

    def test_nothing_is_run_or_written(self):
        self.refusals([(name, ("convert", f"{name}.pt", "out.safetensors"), status, sentence)
                       for name, status, sentence in self.CASES])


if __name__ == "__main__":
    unittest.main()
