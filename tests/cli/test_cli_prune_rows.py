# SPDX-License-Identifier: Apache-2.0
"""Pruning a tensor some rows at a time: the same bytes as of its rows alone, its own rows named in
errors, and memory that does not grow with the tensor."""
import os
import random
import resource
import struct
import subprocess
import unittest

import cli_case
import cli_data

COLS = 1024
ROWS = 600  # some pieces and a rest
# High bytes of bf16 numbers of 2^-15 to 2^1, either sign.
HIGH = bytes((0x38 + i % 8) | (0x80 if i & 8 else 0) for i in range(256))


def weights(count, seed=1):
    data = bytearray(random.Random(seed).randbytes(2 * count))
    data[1::2] = data[1::2].translate(HIGH)
    return bytes(data)


def size(data):
    """The sum of magnitudes of bf16 numbers."""
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return sum(map(abs, struct.unpack(f"<{len(data) // 2}f", wide)))


def bf16(rows, data):
    return cli_data.tensor("bf16", [rows, COLS], data)


class Rows(cli_case.Scratch):
    @staticmethod
    def make(folder):
        data = weights(ROWS * COLS)
        cli_data.write(folder / "whole.safetensors", {"w": bf16(ROWS, data)})
        cut = {f"w{r:03}": bf16(50, data[2 * r * COLS:2 * (r + 50) * COLS])
               for r in range(0, ROWS, 50)}
        cli_data.write(folder / "cut.safetensors", cut)

    def pruned(self, name, words):
        self.good("prune", f"{name}.safetensors", "out.safetensors", "--include", "*", "--force",
                  *words)
        self.good("check", "out.safetensors", "--verify", "--include", "*", "--pattern",
                  words[words.index("--pattern") + 1] if "--pattern" in words else "2:4")
        tensors, _ = cli_data.read(self.folder / "out.safetensors")
        parts = {}
        for full, (_, _, data) in sorted(tensors.items()):
            kind = full.partition(".")[2]
            parts[kind] = parts.get(kind, b"") + data
        return parts

    def test_the_same_as_of_its_rows_alone(self):
        for words in ([], ["--packed"], ["--packed", "--quantize", "int8"],
                      ["--packed", "--quantize", "int4-g128"], ["--dtype", "f32"],
                      ["--pattern", "6:8"], ["--method", "block-norm", "--pattern", "1:4"]):
            with self.subTest(words):
                self.assertEqual(self.pruned("whole", words), self.pruned("cut", words))

    def test_the_share_that_stays(self):
        words = ("prune", "whole.safetensors", "out.safetensors", "--include", "*", "--force")
        layer, = self.json(*words)["layers"]
        masked = self.masks()
        cli_data.write(self.folder / "masks.safetensors", {"w": masked})
        again, = self.json(*words, "--masks", "masks.safetensors")["layers"]
        self.assertEqual(layer, again)
        (_, _, before), = cli_data.read(self.folder / "whole.safetensors")[0].values()
        (_, _, after), = cli_data.read(self.folder / "out.safetensors")[0].values()
        self.assertAlmostEqual(layer["kept_l1"], size(after) / size(before), 9)

    def test_what_stays_of_each_dtype_is_what_is_larger(self):
        """Ties, zeros of either sign and rows that no vector's width divides, in their own bits."""
        draw = random.Random(5)
        kinds = {"F32": "f", "F16": "e", "BF16": "f"}
        shapes = [(1, 4), (3, 20), (70, 260), (2, 20000)]
        tensors, kept = {}, {}
        for name, letter in kinds.items():
            for rows, cols in shapes:
                values = [draw.choice([0.0, -0.0, 0.25, -0.25, 0.5, -0.5, 1.5])
                          for _ in range(rows * cols)]
                wide = struct.pack(f"<{len(values)}{letter}", *values)
                size = len(wide) // len(values)
                numbers = [wide[size * i + (2 if name == "BF16" else 0):size * (i + 1)]
                           for i in range(len(values))]
                for at in range(0, len(values), 4):
                    order = sorted(range(at, at + 4), key=lambda i: (abs(values[i]), i))
                    for i in order[:2]:
                        values[i] = None
                tensor = f"{name}.{rows}"
                tensors[tensor] = {"dtype": name, "shape": [rows, cols], "data": b"".join(numbers)}
                kept[tensor] = b"".join(bytes(len(x)) if value is None else x
                                        for x, value in zip(numbers, values))
        cli_data.write(self.folder / "ties.safetensors", tensors)
        for threads in ("1", "3"):
            self.good("prune", "ties.safetensors", "out.safetensors", "--include", "*", "--force",
                      "--threads", threads)
            found, _ = cli_data.read(self.folder / "out.safetensors")
            for name, data in kept.items():
                self.assertEqual(found[name][2], data, name)

    def masks(self):
        self.good("prune", "whole.safetensors", "made.safetensors", "--include", "*",
                  "--masks-only", "--force")
        (dtype, shape, data), = cli_data.read(self.folder / "made.safetensors")[0].values()
        return {"dtype": dtype, "shape": shape, "data": data}

    def test_masks_keep_as_many_where_weights_are_zero(self):
        values = [0, 0, 0, 0, 3, 0, 0, 0] * (COLS // 8)
        cli_data.write(self.folder / "zeros.safetensors", {
            "w": {"dtype": "F32", "shape": [1, COLS], "data": struct.pack(f"{COLS}f", *values)}})
        self.good("prune", "zeros.safetensors", "kept.safetensors", "--include", "*",
                  "--masks-only")
        (_, _, data), = cli_data.read(self.folder / "kept.safetensors")[0].values()
        self.assertEqual(data[:8], bytes([0, 0, 1, 1, 1, 0, 0, 1]))
        self.good("prune", "zeros.safetensors", "again.safetensors", "--include", "*", "--masks",
                  "kept.safetensors")

    def test_errors_name_the_tensors_own_row(self):
        data = bytearray(weights(ROWS * COLS))
        at = 2 * (599 * COLS + 7)
        data[at:at + 2] = b"\xc0\x7f"
        cli_data.write(self.folder / "nan.safetensors", {"w": bf16(ROWS, bytes(data))})
        data[at:at + 2] = b"\x80\x7e"  # 2^126
        cli_data.write(self.folder / "large.safetensors", {"w": bf16(ROWS, bytes(data))})
        mask = self.masks()
        mask["data"] = mask["data"][:580 * COLS] + bytes(4) + mask["data"][580 * COLS + 4:]
        cli_data.write(self.folder / "bad.safetensors", {"w": mask})
        self.fixtures = self.folder
        tail = ["out.safetensors", "--include", "*"]
        self.refusals([
            ("NaN", ["prune", "nan.safetensors", *tail], 4, "'w' has NaN at row 599, column 7"),
            ("f16", ["prune", "large.safetensors", *tail, "--dtype", "f16"], 4,
             "row 599, column 7 is beyond f16"),
            ("mask", ["prune", "whole.safetensors", *tail, "--masks", "bad.safetensors",
                      "--pattern", "2:4"], 4,
             "keeps 0 of row 580's columns 0 to 3; expected 2")])


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Memory(cli_case.Scratch):
    """Private memory is bounded by the system (RLIMIT_DATA), which refuses what goes beyond."""
    @staticmethod
    def make(folder):
        rows = 1 << 14
        cli_data.write(folder / "large.safetensors", {"w": bf16(rows, weights(rows * COLS))})

    def test_less_than_the_largest_tensor(self):
        bytes_of = (self.folder / "large.safetensors").stat().st_size  # 32 MB
        for words in ([], ["--packed"], ["--packed", "--quantize", "int8"], ["--masks-only"]):
            with self.subTest(words):
                command = [cli_case.PROGRAM, "prune", "large.safetensors", "out.safetensors",
                           "--include", "*", "--force", "--threads", "1", *words]
                done = subprocess.run(
                    command, cwd=self.folder, env=cli_case.clean_environment(),
                    timeout=cli_case.PATIENCE,
                    capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(
                        resource.RLIMIT_DATA, (bytes_of // 2,) * 2))
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
