# SPDX-License-Identifier: Apache-2.0
"""safetensors files for the tests, dtype by dtype, as raw little-endian bytes."""
import json
import random
import struct

# Name on the command line: name in the file, bytes, the bytes of a non-zero number for
# 0.1 <= |v| <= 1.
DTYPES = {
    "f32": ("F32", 4, lambda v: struct.pack("<f", v)),
    "f16": ("F16", 2, lambda v: struct.pack("<e", v)),
    "bf16": ("BF16", 2, lambda v: struct.pack("<f", v)[2:]),
    "i8": ("I8", 1, lambda v: struct.pack("<b", int(v * 100))),
    "e4m3": ("F8_E4M3", 1, lambda v: bytes([(0x80 if v < 0 else 0) | (8 + int(abs(v) * 40))])),
    "e5m2": ("F8_E5M2", 1, lambda v: bytes([(0x80 if v < 0 else 0) | (4 + int(abs(v) * 40))])),
}


def matrix(dtype, rows, cols, kept=2, seed=1):
    """The bytes of [rows, cols] with at most `kept` non-zeros in every group of four."""
    chance = random.Random(seed)
    _, size, element = DTYPES[dtype]
    out = bytearray()
    for _ in range(rows):
        for begin in range(0, cols, 4):
            places = chance.sample(range(4), kept)
            for c in range(min(4, cols - begin)):
                value = chance.uniform(0.1, 1) * chance.choice((-1, 1))
                out += element(value) if c in places else bytes(size)
    return bytes(out)


def tensor(dtype, shape, data):
    return {"dtype": DTYPES[dtype][0], "shape": list(shape), "data": data}


def write(path, tensors, metadata=None):
    """A file of name to tensor()."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name in sorted(tensors):
        entry = tensors[name]
        header[name] = {"dtype": entry["dtype"], "shape": entry["shape"],
                        "data_offsets": [len(data), len(data) + len(entry["data"])]}
        data += entry["data"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    """Name to (dtype, shape, bytes) of a file, and its metadata less the hashes, which hold of that
    very file alone."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    metadata.pop("sparse24.xxh3", None)
    body = raw[8 + size:]
    return {name: (e["dtype"], e["shape"], body[e["data_offsets"][0]:e["data_offsets"][1]])
            for name, e in header.items()}, metadata


def floats(raw):
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))
