# SPDX-License-Identifier: Apache-2.0
"""prune --masks: files of other libraries, NumPy's archives and PyTorch's, and what they may not
be."""
import io
import shutil
import struct
import unittest
import zipfile

from cli_case import Scratch
from cli_data import floats, read
import tiny_bert
import torch_data


def array(descr, shape, data, version=1, order=False):
    """A .npy as NumPy writes it, its header filled up to 64 bytes."""
    head = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    first = 10 if version == 1 else 12
    head += " " * (-(first + len(head) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes([version, 0]) + length + head.encode() + bytes(data)


def archive(arrays, method=zipfile.ZIP_DEFLATED, level=6):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, compresslevel=level) as file:
        for key, data in arrays.items():
            file.writestr(key + ".npy", data)
    return out.getvalue()


def bits(mask):
    """Eight in a byte, the first one highest; what is missing are zeros."""
    mask = list(mask) + [0] * (-len(mask) % 8)
    return bytes(sum(bool(mask[i + b]) << 7 - b for b in range(8)) for i in range(0, len(mask), 8))


def in_bits(mask, version=1):
    data = bits(mask)
    return array("|u1", f"({len(data)},)", data, version)


class Masks(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")

    def masks(self, pattern):
        self.good("prune", "model", "m.safetensors", "--masks-only", "--pattern", pattern,
                  "--force")
        return {key: (shape, data)
                for key, (_, shape, data) in read(self.folder / "m.safetensors")[0].items()}

    def made(self, masks, *more):
        self.good("prune", "model", "out", "--masks", masks, "--force", *more)
        return read(self.folder / "out/model.safetensors")[0]

    def test_archives_of_numpy_keep_what_they_say(self):
        for pattern in ("2:4", "unstructured:0.7"):
            masks = self.masks(pattern)
            expected = self.made("m.safetensors")
            for i, (method, level) in enumerate(((zipfile.ZIP_STORED, None),
                                                 (zipfile.ZIP_DEFLATED, 1),
                                                 (zipfile.ZIP_DEFLATED, 9),
                                                 (zipfile.ZIP_DEFLATED, 0))):
                packed = {f"{key}.mask": in_bits(data, 1 + i % 3)
                          for key, (_, data) in masks.items()}
                (self.folder / "m.npz").write_bytes(archive(packed, method, level))
                self.assertEqual(self.made("m.npz"), expected)
            whole = {key: array("|b1", f"({shape[0]}, {shape[1]})", data)
                     for key, (shape, data) in masks.items()}
            (self.folder / "m.npz").write_bytes(archive(whole))
            self.assertEqual(self.made("m.npz"), expected)
        packed = self.json("prune", "model", "packed", "--packed", "--masks", "m.npz")["layers"]
        self.assertEqual(len(packed), 6 * tiny_bert.LAYERS)
        self.assertFalse(any(t["packed"] for t in self.json("info", "packed")["tensors"]))

    def test_files_of_pytorch_hold_floats(self):
        masks = self.masks("2:4")
        expected = self.made("m.safetensors")
        pairs, records = [], {}
        for i, (key, (shape, data)) in enumerate(masks.items()):
            pairs.append((key + ".mask", torch_data.tensor("Float", i, shape, count=len(data))))
            records[i] = b"".join(struct.pack("<f", bool(b)) for b in data)
        (self.folder / "m.pt").write_bytes(torch_data.archive(torch_data.mapping(pairs), records))
        self.assertEqual(self.made("m.pt", "--pattern", "2:4"), expected)
        kept = floats(expected[next(iter(masks))][2])
        self.assertEqual(kept.count(0), len(kept) // 2)

    def test_columns_that_are_dense(self):
        masks = self.masks("dense:4")
        expected = self.made("m.safetensors")
        self.assertEqual(self.made("m.safetensors", "--pattern", "dense:4"), expected)
        self.good("prune", "model", "packed", "--packed", "--masks", "m.safetensors", "--pattern",
                  "dense:4")
        stored = {t["name"]: t.get("format") for t in self.json("info", "packed")["tensors"]}
        self.assertEqual({stored[name] for name in masks}, {"dense:4"})
        self.good("unpack", "packed", "back")
        self.assertEqual(read(self.folder / "back/model.safetensors")[0], expected)
        (self.folder / "texts").write_text("a b c\nb a\n" * 8)
        refined = self.made("m.safetensors", "--pattern", "dense:4", "--refine", "least-squares",
                            "--calibration", "texts")
        for key, (_, data) in masks.items():
            kept = [value != 0 for value in floats(refined[key][2])]
            self.assertTrue(all(bool(m) or not k for m, k in zip(data, kept)), key)
        self.masks("2:4")
        shutil.copy(self.folder / "m.safetensors", self.fixtures / "half.safetensors")
        self.refusals([("two of four", ["prune", "model", "x", "--masks", "half.safetensors",
                                        "--pattern", "dense:4"], 4,
                        "keeps 2 of row 0's columns 0 to 3; expected 4")])

    def test_refusals(self):
        masks = self.masks("2:4")
        good = {f"{key}.mask": in_bits(data) for key, (_, data) in masks.items()}
        first = next(iter(good))
        count = len(bits(masks[first[:-5]][1]))

        def broken(change):
            return archive(dict(good, **{first: change}))
        whole, nothing = archive(good), io.BytesIO()
        with zipfile.ZipFile(nothing, "w") as file:
            file.writestr("a.txt", "a")
        at = whole.index(first.encode()) + len(first) + 40
        cases = (
            ("cut", whole[:-40], 4, "has no directory"),
            ("damaged", whole[:at] + b"\xff" * 9 + whole[at + 9:], 4, "deflated bytes are damaged"),
            ("bzip2", archive(good, zipfile.ZIP_BZIP2), 4, "compressed otherwise than by deflate"),
            ("no arrays", nothing.getvalue(), 4, "has no arrays of NumPy"),
            ("doubles", broken(array("<f8", "(2,)", bytes(16))), 5, "is of dtype '<f8'"),
            ("turned", broken(array("|u1", "(4, 2)", bytes(8), order=True)), 5, "Fortran's order"),
            ("no array", broken(b"x" * 40), 4, "does not begin as NumPy's arrays do"),
            ("a long header", broken(b"\x93NUMPY\x01\0\xff\xff" + bytes(64)), 4, "longer than it"),
            ("too short", broken(array("|u1", "(9,)", bytes(8))), 4, "its shape has 9"),
            ("no shape", broken(array("|u1", "x", bytes(8))), 4, "says no shape"),
            ("another shape", broken(array("|u1", f"({count - 1},)", bytes(count - 1))), 4,
             r"is not \[\d+, \d+\], as the tensor"),
            ("integers", broken(array("|i1", f"({count},)", bytes(count))), 4,
             "is i8; expected u8 or bool"),
            ("missing", archive({k: v for k, v in good.items() if k != first}), 4,
             "the file of masks has none for this tensor"),
        )
        for name, data, _, _ in cases:
            (self.fixtures / f"{name}.npz").write_bytes(data)
        self.refusals([(name, ["prune", "model", "new", "--masks", f"{name}.npz"], code, sentence)
                       for name, _, code, sentence in cases])
        # What is no file of masks is opened as nothing else is.
        self.refusals([("info", ["info", "another shape.npz"], 4, "NumPy arrays|zip")])


if __name__ == "__main__":
    unittest.main()
