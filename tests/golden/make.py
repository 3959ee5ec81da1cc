#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes packed.safetensors and dense.safetensors, and quantized and transposed with their dense
ones, by hand from the tables of docs/format.md.

They pin the bytes of versions 1, 2 and 4: they change only together with the version. Every dtype
has one matrix [11, 12], whose rows hold in their first group each of the eleven sets of at most two
non-zeros, in the second a full pair, and in the third (so that k/4 is odd) the set once more turned
around; minus_zero holds the rules about -0, and minus_zero.source what it was packed from.
"""
import json
import struct
from pathlib import Path

CODES = {"0000": 0xE, "1000": 0x8, "0100": 0x9, "0010": 0xE, "0001": 0xE, "1100": 0x4,
         "1010": 0x8, "1001": 0xC, "0110": 0x9, "0101": 0xD, "0011": 0xE}
STORED = {0x4: (0, 1), 0x8: (0, 2), 0x9: (1, 2), 0xC: (0, 3), 0xD: (1, 3), 0xE: (2, 3)}
# dtype: bytes, and bit patterns with every kind of number: normal, subnormal, largest, negative
NUMBERS = {
    "F32": (4, [0x3F800000, 0x00000001, 0x7F7FFFFF, 0xC0490FDB, 0x80000001]),
    "F16": (2, [0x3C00, 0x0001, 0x7BFF, 0xC248, 0x8001]),
    "BF16": (2, [0x3F80, 0x0001, 0x7F7F, 0xC049, 0x8001]),
    "I8": (1, [0x01, 0x7F, 0x80, 0xFF, 0x2A]),
    "F8_E4M3": (1, [0x38, 0x01, 0x7E, 0xC5, 0x81]),
    "F8_E5M2": (1, [0x3C, 0x01, 0x7B, 0xC2, 0x81]),
}


def matrix(numbers):
    """Rows of twelve bit patterns, and the codes of their three groups."""
    rows, codes, turn = [], [], 0
    for mask in CODES:
        row = []
        for part in (mask, "0110", mask[::-1]):
            for bit in part:
                row.append(numbers[turn % len(numbers)] if bit == "1" else 0)
                turn += bit == "1"
        rows.append(row)
        codes.append([CODES[mask], CODES["0110"], CODES[mask[::-1]]])
    return rows, codes


def packed(rows, codes):
    values, indices = [], []
    for row, groups in zip(rows, codes):
        for g, code in enumerate(groups):
            values += [row[4 * g + position] for position in STORED[code]]
        indices += [groups[0] | groups[1] << 4, groups[2]]
    return values, indices


def write(path, tensors, metadata):
    """tensors: {name: (dtype, shape, bit patterns)}; large elements first, so that all are aligned."""
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name in sorted(tensors, key=lambda name: (-NUMBERS.get(tensors[name][0], [1])[0], name)):
        dtype, shape, patterns = tensors[name]
        size = NUMBERS.get(dtype, [1])[0]
        data = b"".join(pattern.to_bytes(size, "little") for pattern in patterns)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    sparse, dense, shapes = {}, {}, {}

    def add(name, dtype, rows, values, indices):
        n, k = len(rows), len(rows[0])
        sparse[f"{name}.s24_values"] = dtype, [n, k // 2], values
        sparse[f"{name}.s24_indices"] = "U8", [n, (k + 7) // 8], indices
        dense[name] = dtype, [n, k], sum(rows, [])
        shapes[name] = [n, k]

    for dtype, (_, numbers) in NUMBERS.items():
        rows, codes = matrix(numbers)
        add(dtype.lower(), dtype, rows, *packed(rows, codes))
    # (3, -0, -0, 0) stores 0 and 2: one -0 is kept as it is, the other becomes +0;
    # (-0, 5, 0, 7) stores 1 and 3.
    three, five, seven, minus = 0x40400000, 0x40A00000, 0x40E00000, 0x80000000
    add("minus_zero", "F32", [[three, 0, minus, 0], [0, five, 0, seven]],
        [three, minus, five, seven], [0x8, 0xD])
    dense["minus_zero.source"] = "F32", [2, 4], [three, minus, minus, 0, minus, five, 0, seven]
    description = json.dumps(dict(sorted(shapes.items())), separators=(",", ":"))
    here = Path(__file__).parent
    write(here / "packed.safetensors", sparse,
          {"sparse24.packed": description, "sparse24.version": "1"})
    write(here / "dense.safetensors", dense, None)
    quantized(here)
    transposed(here)


def quantized(here):
    """A matrix for each number of bits and kind of group, of five rows of scales of every kind."""
    sparse, dense, shapes = {}, {}, {}
    patterns = list(STORED)
    for bits in (8, 4):
        for name, k, group in (("row", 12, 12), ("g64", 68, 64), ("g128", 132, 128)):
            n, groups = 5, -(-k // group)
            scales = [0x3F000000, 0x3DCCCCCD, 0x00000000, 0x00000003, 0x7B000000]  # .5 .1 0 4e-45 7e35
            numbers = ([1, -1, 127, -127, -128, 0, 77] if bits == 8 else [1, -1, 7, -8, 0, 3, -5])
            values, indices, factors, wide, turn = [], [], [], [], 0
            for row in range(n):
                factors += [scales[(row + g) % 5] for g in range(groups)]
                codes = [patterns[(row + g) % 6] for g in range(k // 4)]
                line = [0] * k
                for g, code in enumerate(codes):
                    for position in STORED[code]:
                        q = numbers[turn % len(numbers)]
                        turn += 1
                        values.append(q % 2**bits)
                        column = 4 * g + position
                        factor = struct.unpack("<f", scales[(row + column // group) % 5].to_bytes(
                            4, "little"))[0]
                        line[column] = int.from_bytes(struct.pack("<f", factor * q), "little")
                codes.append(0)
                indices += [codes[2 * i] | codes[2 * i + 1] << 4 for i in range((k // 4 + 1) // 2)]
                wide += line
            tensor = f"int{bits}.{name}"
            if bits == 4:
                values = [values[2 * i] | values[2 * i + 1] << 4 for i in range(len(values) // 2)]
            sparse[f"{tensor}.s24_values"] = ("I8" if bits == 8 else "U8",
                                              [n, k // 2 if bits == 8 else k // 4], values)
            sparse[f"{tensor}.s24_indices"] = "U8", [n, (k + 7) // 8], indices
            sparse[f"{tensor}.s24_scales"] = "F32", [n, groups], factors
            dense[tensor] = "F32", [n, k], wide
            shapes[tensor] = [n, k, bits, group]
    description = json.dumps(dict(sorted(shapes.items())), separators=(",", ":"))
    write(here / "quantized.safetensors", sparse,
          {"sparse24.packed": description, "sparse24.version": "2"})
    write(here / "quantized-dense.safetensors", dense, None)


def transposed(here):
    """A matrix for each dtype that stands for its transpose, next to one that does not, and
    integers of both kinds with a scale a row."""
    sparse, dense, shapes = {}, {}, {}

    def add(name, dtype, rows, parts, description):
        for suffix, part in parts.items():
            sparse[f"{name}.s24_{suffix}"] = part
        dense[name] = dtype, [len(rows[0]), len(rows)], [v for column in zip(*rows) for v in column]
        shapes[name] = description + ["transposed"]

    for dtype, (_, numbers) in NUMBERS.items():
        rows, codes = matrix(numbers)
        n, k = len(rows), len(rows[0])
        values, indices = packed(rows, codes)
        parts = {"values": (dtype, [n, k // 2], values), "indices": ("U8", [n, 2], indices)}
        add(dtype.lower(), dtype, rows, parts, [n, k])
    for suffix, part in parts.items():
        sparse[f"plain.s24_{suffix}"] = part
    dense["plain"], shapes["plain"] = (dtype, [n, k], sum(rows, [])), [n, k]
    halves = [0x3F000000, 0x40000000]  # scales .5 and 2
    rows = [[0, half, 0, 7 * half, -8 * half, 0, 0, half] for half in (0.5, 2)]
    words = [[int.from_bytes(struct.pack("<f", v), "little") for v in row] for row in rows]
    codes = "U8", [2, 1], [0xCD, 0xCD]
    scales = "F32", [2, 1], halves
    add("int4", "F32", words, {"values": ("U8", [2, 2], [0x71, 0x18] * 2), "indices": codes,
                               "scales": scales}, [2, 8, 4, 8])
    add("int8", "F32", words, {"values": ("I8", [2, 4], [1, 7, 0xF8, 1] * 2), "indices": codes,
                               "scales": scales}, [2, 8, 8, 8])
    description = json.dumps(dict(sorted(shapes.items())), separators=(",", ":"))
    write(here / "transposed.safetensors", sparse,
          {"sparse24.packed": description, "sparse24.version": "4"})
    write(here / "transposed-dense.safetensors", dense, None)


if __name__ == "__main__":
    main()
