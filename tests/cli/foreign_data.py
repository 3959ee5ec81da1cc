# SPDX-License-Identifier: Apache-2.0
"""Weights as compressed-tensors and PyTorch store them, byte by byte, and the numbers that they
stand for. HASHES are of the bytes that those packages wrote of the same numbers
(tests/golden/make_foreign.py)."""
import hashlib
import struct

import cli_data

ROWS, COLS = 64, 512
KEPT = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
LAYER = "model.layers.0.mlp.up_proj"


def two_four(bits=4):
    """Integers [ROWS][COLS] of which two of every four are not zero."""
    times = 1 if bits == 4 else 17
    return [[(1 + (r * 7 + c * 5) % 7) * (1 if (r + c) % 2 else -1) * times
             if c % 4 in KEPT[(r + c // 4 * 5) % 6] else 0 for c in range(COLS)]
            for r in range(ROWS)]


def dense(bits=4):
    """All integers of so many bits."""
    return [[(r * 37 + c * 11 + c // 16) % 2 ** bits - 2 ** (bits - 1) for c in range(COLS)]
            for r in range(ROWS)]


def scales(group):
    """Powers of two [ROWS][COLS / group], so that every product is exact."""
    return [[2.0 ** -(3 + (r + g) % 4) for g in range(COLS // group)] for r in range(ROWS)]


def numbers(integers, by):
    group = COLS // len(by[0])
    return [[q * by[r][c // group] for c, q in enumerate(row)] for r, row in enumerate(integers)]


# ---- bytes --------------------------------------------------------------------------------------

def flat(rows):
    return [x for row in rows for x in row]


def halves(values):
    return struct.pack(f"<{len(values)}e", *values)


def brains(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def words(codes, bits):
    """Integers from 0 on, so many bits each, in words of 32, the first lowest."""
    each = 32 // bits
    return b"".join(struct.pack("<I", sum(q << bits * i for i, q in enumerate(codes[at:at + each])))
                    for at in range(0, len(codes), each))


def entry(dtype, shape, data):
    return {"dtype": dtype, "shape": list(shape), "data": data}


def whole(values, count=2):
    return entry("I64", [count] if count == 2 else [2, 1], struct.pack("<2q", *values))


def mask_of(rows):
    return bytes(sum((row[c + i] != 0) << i for i in range(8)) for row in rows
                 for c in range(0, COLS, 8))


# ---- schemes: name of a part to entry ------------------------------------------------------------

def sparse_24_bitmask():
    rows = numbers(two_four(), scales(COLS))
    kept = [v for v in flat(rows) if v]
    return rows, {f"{LAYER}.compressed": entry("BF16", [ROWS, COLS // 2], brains(kept)),
                  f"{LAYER}.bitmask": entry("U8", [ROWS, COLS // 8], mask_of(rows)),
                  f"{LAYER}.shape": whole([ROWS, COLS], 1)}


def sparse_bitmask():
    rows = numbers(dense(), scales(COLS))
    kept, offsets = [v for v in flat(rows) if v], [0]
    for row in rows:
        offsets.append(offsets[-1] + sum(v != 0 for v in row))
    return rows, {f"{LAYER}.compressed": entry("BF16", [len(kept)], brains(kept)),
                  f"{LAYER}.bitmask": entry("U8", [ROWS, COLS // 8], mask_of(rows)),
                  f"{LAYER}.shape": whole([ROWS, COLS]),
                  f"{LAYER}.row_offsets": entry("I64", [ROWS],
                                                struct.pack(f"<{ROWS}q", *offsets[:-1]))}


def pack_quantized(bits, group):
    integers, by = dense(bits), scales(group)
    codes = [q + 2 ** (bits - 1) for q in flat(integers)]
    return numbers(integers, by), {
        f"{LAYER}.weight_packed": entry("I32", [ROWS, COLS * bits // 32], words(codes, bits)),
        f"{LAYER}.weight_scale": entry("BF16", [ROWS, COLS // group], brains(flat(by))),
        f"{LAYER}.weight_shape": whole([ROWS, COLS])}


def order_in_run(bits):
    """Where in four tiles of 16x16 what Marlin stores one after another comes from."""
    order = []
    for lane in range(32):
        column = lane // 4
        eight = [16 * row + column // 2 * 256 + 8 * (column % 2) + 4 * block for block in (0, 1)
                 for row in (2 * (lane % 4), 2 * (lane % 4) + 1,
                             2 * (lane % 4) + 8, 2 * (lane % 4) + 9)]
        for shift in range(4):
            order += [place + shift for place in eight]
    mixed = (0, 2, 4, 6, 1, 3, 5, 7) if bits == 4 else (0, 2, 1, 3)
    return [order[at + i] for at in range(0, 1024, len(mixed)) for i in mixed]


def marlin_meta(integers):
    out = [0] * (ROWS * COLS // 16)
    for r, row in enumerate(integers):
        for c in range(COLS // 16):
            word = 0
            for g in range(4):
                first, second = [i for i in range(4) if row[16 * c + 4 * g + i]]
                word |= (first | second << 2) << 4 * g
            y = r // 64 * 64 + r % 2 * 2 + r % 8 // 4 + r % 4 // 2 * 32 + r % 64 // 8 * 4
            move = (y % 2 == 0 and c % 2 == 1) - (y % 2 == 1 and c % 2 == 0)
            y, x = y + move, c - move
            out[x // 2 * 2 * ROWS + y * 2 + x % 2] = word
    return struct.pack(f"<{len(out)}H", *out)


def marlin_24(bits, group):
    integers, by = two_four(bits), scales(group)
    kept = [[q for q in row if q] for row in integers]
    codes = []
    for tile in range(COLS // 32):
        line = [kept[n * 16 + j][tile * 16 + i] + 2 ** (bits - 1) for n in range(ROWS // 16)
                for i in range(16) for j in range(16)]
        codes += [line[at + place] for at in range(0, len(line), 1024)
                  for place in order_in_run(bits)]
    mixed = (0, 4, 1, 5, 2, 6, 3, 7) if COLS // group > 2 else range(8)
    packed = [by[n + i][g] for g in range(COLS // group) for n in range(0, ROWS, 8) for i in mixed]
    return numbers(integers, by), {
        f"{LAYER}.weight_packed": entry("I32", [COLS // 32, ROWS * bits // 2], words(codes, bits)),
        f"{LAYER}.scale_packed": entry("F16", [COLS // group, ROWS], halves(packed)),
        f"{LAYER}.meta": entry("I16", [COLS // 32, 2 * ROWS], marlin_meta(integers))}


def e4m3(value):
    """A whole number of at most 8 in eight bits."""
    if not value:
        return 0
    size = abs(value)
    power = size.bit_length() - 1
    return (0x80 if value < 0 else 0) | (power + 7) << 3 | (size << 3 >> power) & 7


def float_quantized():
    integers, by = dense(), scales(COLS)
    return numbers(integers, by), {
        f"{LAYER}.weight": entry("F8_E4M3", [ROWS, COLS], bytes(map(e4m3, flat(integers)))),
        f"{LAYER}.weight_scale": entry("BF16", [ROWS, 1], brains(flat(by)))}


def int_quantized():
    integers, by = dense(8), scales(COLS)
    return numbers(integers, by), {
        f"{LAYER}.weight": entry("I8", [ROWS, COLS], bytes(q & 255 for q in flat(integers))),
        f"{LAYER}.weight_scale": entry("BF16", [ROWS, 1], brains(flat(by)))}


def fp8_blocks():
    """float-quantized with a scale for each 128x128, of rows that are fewer."""
    integers, by = dense(), [scales(128)[0]]
    return numbers(integers, by * ROWS), {
        f"{LAYER}.weight": entry("F8_E4M3", [ROWS, COLS], bytes(map(e4m3, flat(integers)))),
        f"{LAYER}.weight_scale": entry("BF16", [1, COLS // 128], brains(by[0]))}


def sparse_24_bytes():
    """Integers of 2:4 with a scale of all."""
    integers = two_four()
    kept = bytes(q & 255 for q in flat(integers) if q)
    return numbers(integers, [[0.25]] * ROWS), {
        f"{LAYER}.compressed": entry("I8", [ROWS, COLS // 2], kept),
        f"{LAYER}.bitmask": entry("U8", [ROWS, COLS // 8], mask_of(integers)),
        f"{LAYER}.shape": whole([ROWS, COLS], 1),
        f"{LAYER}.weight_scale": entry("BF16", [1], brains([0.25]))}


def zero_of_all(packed):
    """Integers with one scale and one zero point, which is never packed."""
    integers = dense(4)
    raw = flat(integers)
    parts = {
        f"{LAYER}.weight_packed": entry("I32", [ROWS, COLS // 8], words([q + 8 for q in raw], 4)),
        f"{LAYER}.weight_shape": whole([ROWS, COLS])} if packed else {
        f"{LAYER}.weight": entry("I8", [ROWS, COLS], bytes(q & 255 for q in raw))}
    return numbers([[q + 3 for q in row] for row in integers], [[0.5]] * ROWS), {
        **parts, f"{LAYER}.weight_scale": entry("F32", [1], struct.pack("<f", 0.5)),
        f"{LAYER}.weight_zero_point": entry("I8", [1], b"\xfd")}


def bytes_in_order(column):
    """Integers of a byte in groups of 128 columns, which stand in another order."""
    integers, by = dense(8), scales(128)
    group = [column(c) for c in range(COLS)]
    return [[q * by[r][group[c]] for c, q in enumerate(row)] for r, row in enumerate(integers)], {
        f"{LAYER}.weight": entry("I8", [ROWS, COLS], bytes(q & 255 for q in flat(integers))),
        f"{LAYER}.weight_scale": entry("F32", [ROWS, 4], struct.pack(f"<{4 * ROWS}f", *flat(by))),
        f"{LAYER}.weight_g_idx": entry("I32", [COLS], struct.pack(f"<{COLS}i", *group))}


def of_bytes(values, scale, kind="I8"):
    """Elements and scales by those names, as torchao and optimum-quanto have them."""
    integers, by = dense(4), scales(COLS)
    code = e4m3 if kind != "I8" else lambda q: q & 255
    return numbers(integers, by), {
        f"{LAYER}.{values}": entry(kind, [ROWS, COLS], bytes(map(code, flat(integers)))),
        f"{LAYER}.{scale}": entry("F32", [ROWS, 1], struct.pack(f"<{ROWS}f", *flat(by))),
        f"{LAYER}.output_scale": entry("F32", [], struct.pack("<f", 1))}


# Kin of the schemes above: what convert says of them, and their numbers.
KIN = {
    "fp8 in blocks": ("compressed-tensors float-quantized in blocks", fp8_blocks),
    "bytes of 2:4": ("compressed-tensors sparse-24-bitmask", sparse_24_bytes),
    "one zero, packed": ("compressed-tensors pack-quantized", lambda: zero_of_all(True)),
    "one zero": ("compressed-tensors int-quantized", lambda: zero_of_all(False)),
    "mixed columns": ("compressed-tensors int-quantized",
                      lambda: bytes_in_order(lambda c: c * 7 % 4)),
    "columns in order": ("compressed-tensors int-quantized",
                         lambda: bytes_in_order(lambda c: c // 128)),
    "torchao": ("torchao", lambda: of_bytes("_weight_qdata", "_weight_scale")),
    "torchao fp8": ("torchao", lambda: of_bytes("_weight_qdata", "_weight_scale", "F8_E4M3")),
    "quanto": ("optimum-quanto", lambda: of_bytes("weight._data", "weight._scale")),
    "quanto fp8": ("optimum-quanto", lambda: of_bytes("weight._data", "weight._scale", "F8_E4M3")),
}

SCHEMES = {
    "sparse-24-bitmask": sparse_24_bitmask,
    "sparse-bitmask": sparse_bitmask,
    "float-quantized": float_quantized,
    "int-quantized": int_quantized,
    **{f"pack-quantized {bits} {group}": lambda b=bits, g=group: pack_quantized(b, g)
       for bits in (4, 8) for group in (128, COLS)},
    **{f"marlin-24 {bits} {group}": lambda b=bits, g=group: marlin_24(b, g)
       for bits in (4, 8) for group in (128, COLS)},
}


def digest(parts):
    """Of names, dtypes, shapes and bytes."""
    out = hashlib.sha256()
    for name in sorted(parts):
        e = parts[name]
        out.update(f"{name} {e['dtype']} {e['shape']} ".encode() + e["data"])
    return out.hexdigest()[:16]


HASHES = {
    "sparse-24-bitmask": "6ece3b90f51e2ddd",
    "sparse-bitmask": "1bed1bfe5ff7295e",
    "float-quantized": "7cd8f93ad4d1413d",
    "int-quantized": "9fe493533a14bd2c",
    "pack-quantized 4 128": "5b28a030c275494f",
    "pack-quantized 4 512": "f10d404d2c4a9406",
    "pack-quantized 8 128": "a14e417f44a612c2",
    "pack-quantized 8 512": "4f2beb998afe6ef4",
    "marlin-24 4 128": "312210812df7d677",
    "marlin-24 4 512": "c657d4becb2a29a5",
    "marlin-24 8 128": "ed527cd24590cb8b",
    "marlin-24 8 512": "2501058ae54aff91",
}


def many_rows(parts, times):
    """A weight that is stored as its transpose, with all of its rows so many times."""
    made = {}
    for name, part in parts.items():
        count, step = part["shape"][0], len(part["data"]) // part["shape"][0]
        lines = [part["data"][i * step:(i + 1) * step] for i in range(count)]
        made[name] = part if len(part["shape"]) == 1 else entry(
            part["dtype"], [count, part["shape"][1] * times], b"".join(x * times for x in lines))
    return made


def write(path, parts):
    norm = entry("BF16", [8], brains([1.0] * 8))
    cli_data.write(path, {**parts, "model.norm.weight": norm}, {"format": "pt"})
