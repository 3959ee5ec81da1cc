# SPDX-License-Identifier: Apache-2.0
"""The GGUF of random weights that llama.cpp is timed with: what a reader of the format finds."""
import importlib.util
import os
import pathlib
import struct
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
LLAMA = {"type": "llama", "vocabulary": 96, "positions": 64, "width": 64, "layers": 2, "heads": 4,
         "kv_heads": 2, "intermediate": 160}
GPT2 = dict(LLAMA, type="gpt2", kv_heads=4)
BYTES = {0: 128, 1: 64, 2: 18, 8: 34, 30: 64}  # of 32 numbers, by GGUF's number of a type


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self):
        kind = self.take("I")
        return self.string() if kind == 8 else self.take({4: "I", 6: "f"}[kind])


def read(data):
    reader = Reader(data)
    assert reader.take("4s") == b"GGUF"
    version, tensors, pairs = reader.take("IQQ")
    assert version == 3
    keys = {reader.string(): reader.value() for _ in range(pairs)}
    found = {}
    for _ in range(tensors):
        name = reader.string()
        sizes = tuple(reader.take("Q") for _ in range(reader.take("I")))
        found[name] = (sizes, *reader.take("IQ"))
    return keys, found, (reader.at + 31) // 32 * 32


@unittest.skipUnless(HAS_NUMPY, "NumPy is not installed")
class Gguf(unittest.TestCase):
    def written(self, shape, dtype):
        script = SOURCE / "bench/peers/llamacpp.py"
        spec = importlib.util.spec_from_file_location("llamacpp", script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.gguf")
            module.write_gguf(path, shape, dtype)
            return pathlib.Path(path).read_bytes()

    def test_tensors_lie_where_the_file_says(self):
        for shape in (LLAMA, GPT2):
            for dtype in ("f32", "f16", "bf16", "i8", "int4"):
                data = self.written(shape, dtype)
                keys, tensors, first = read(data)
                self.assertEqual(keys["general.architecture"], shape["type"])
                self.assertEqual(keys[shape["type"] + ".vocab_size"], 96)
                end = 0
                for sizes, kind, offset in tensors.values():
                    self.assertEqual(offset, (end + 31) // 32 * 32)
                    count = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
                    end = offset + count * BYTES[kind] // 32
                    self.assertEqual(kind == 0, len(sizes) == 1 or dtype == "f32")
                self.assertEqual(len(data), first + (end + 31) // 32 * 32)

    def test_layers_and_their_shapes(self):
        _, llama, _ = read(self.written(LLAMA, "bf16"))
        self.assertEqual(len(llama), 2 + 9 * 2)
        self.assertEqual(llama["token_embd.weight"][0], (64, 96))
        self.assertEqual(llama["blk.1.attn_k.weight"][0], (64, 32))
        self.assertEqual(llama["blk.1.ffn_down.weight"][0], (160, 64))
        self.assertEqual(llama["blk.0.ffn_norm.weight"][0], (64,))
        _, gpt2, _ = read(self.written(GPT2, "bf16"))
        self.assertEqual(gpt2["blk.1.attn_qkv.weight"][0], (64, 192))
        self.assertEqual(gpt2["blk.1.attn_qkv.bias"][0], (192,))
        self.assertEqual(gpt2["position_embd.weight"][0], (64, 64))


if __name__ == "__main__":
    unittest.main()
