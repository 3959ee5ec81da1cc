#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode the packed 2:4 matrices of a safetensors file, from docs/format.md alone.

    decode_s24.py IN          check IN and list its packed matrices
    decode_s24.py IN OUT      write them, and all other tensors, as dense tensors to OUT

It shares no code with the library: it is what the library is checked against. Exit 1 and one line
on stderr for a file that a reader must refuse. Standard library only.
"""
import json
import re
import struct
import sys

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1}
POSITIONS = {0x4: (0, 1), 0x8: (0, 2), 0x9: (1, 2), 0xC: (0, 3), 0xD: (1, 3), 0xE: (2, 3)}
VERSION, PACKED = "sparse24.version", "sparse24.packed"
VALUES, INDICES, SCALES, STREAM = ".s24_values", ".s24_indices", ".s24_scales", ".s24_stream"
STARTS, INDEX, ROWS = ".s24_starts", ".s24_index", ".s24_rows"
LEFT, RIGHT = ".s24_left", ".s24_right"
TRANSPOSED, DENSE, LOW_RANK, FACTORS = "transposed", "dense", "low-rank", "factors"
CODES = {"F32": "f", "F16": "e"}
SPARSE = {"coo": (VALUES, INDEX, ROWS), "csr": (VALUES, INDEX, STARTS),
          "csc": (VALUES, INDEX, STARTS), "bsr": (VALUES, INDEX, STARTS)}
LIFTS = {f"{m - 2}:{m}": m for m in range(6, 33, 2)}
BLOCKS = [[1, 4], [4, 1]] + [[side, side] for side in (8, 16, 32, 64, 128)]
# Layout: dtype, values in an item
LAYOUTS = {"rows16-f32": ("F32", 1), "rows16-f16": ("F16", 1), "rows16-bf16": ("BF16", 1),
           "rows16-bf16-pairs": ("BF16", 2)}
# And of integers: bits, columns that share a scale (0: all of a row), rows of a block
SCALED = {f"rows{rows}-i{bits}{f'-g{group}' * (group > 0)}": (bits, group, rows)
          for rows in (16, 64) for bits in (8, 4) for group in (0, 64, 128)}


class Refused(Exception):
    pass


def require(condition, sentence):
    if not condition:
        raise Refused(sentence)


def once(pairs):
    """A JSON object in which every name stands once."""
    names = [name for name, _ in pairs]
    require(len(set(names)) == len(names), f"a name stands twice in {sorted(names)}")
    return dict(pairs)


def read(path):
    """Tensors {name: (dtype, shape, bytes)} and the metadata of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    require(len(data) >= 8, "the file is shorter than its header's length")
    (length,) = struct.unpack("<Q", data[:8])
    require(length <= len(data) - 8, f"the header's length {length} is beyond the file")
    header = json.loads(data[8:8 + length].decode(), object_pairs_hook=once)
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        require(0 <= begin <= end <= len(data) - 8 - length, f"{name} lies beyond the file")
        tensors[name] = entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end]
    return tensors, metadata


def described(metadata):
    """The packed matrices {name: [n, k], [n, k, bits, group], [n, k, bits, group, "dense"],
    [n, k, layout], [n, k, format], [n, k, "bsr", rows, columns], these two also with 8, k before
    the format, or of a lifted one [n, k, "6:8"] or [n, k, bits, group, "6:8"], "dense:64" in its
    place, or None of factors alone} of the metadata, the names of those that stand for their
    transpose, and {name: [n, k, rank]} of those with factors."""
    require((VERSION in metadata) == (PACKED in metadata), f"one of {VERSION} and {PACKED} alone")
    if VERSION not in metadata:
        return {}, set(), {}
    version = metadata[VERSION]
    require(version in map(str, range(1, 11)), f"{VERSION} is {version!r}; expected 1 to 10")
    version = int(version)
    sizes = (2,) if version == 1 else (2, 4)
    packed = json.loads(metadata[PACKED], object_pairs_hook=once)
    require(isinstance(packed, dict), f"{PACKED} is not an object")
    turned = {name for name, shape in packed.items()
              if version > 3 and isinstance(shape, list) and shape[-1:] == [TRANSPOSED]}
    for name in turned:
        packed[name].pop()
    require(all(isinstance(shape, list) for shape in packed.values()), f"{PACKED} has no lists")
    factors = take_factors(packed) if version > 7 else {}
    for name, described in packed.items():
        shape = described
        if shape is None:
            continue
        if version > (7 if is_scaled(shape) else 5) and is_sparse(shape):
            check_sparse(name, shape)
            continue
        if version > (8 if lift_of(shape) < 0 else 6) and lift_of(shape):
            check_lifted(name, shape)
            continue
        if version > 2 and len(shape) == 3 and isinstance(shape[2], str):
            require(shape[2] in LAYOUTS or version > 9 and shape[2] in SCALED,
                    f"{PACKED} says an unknown layout {shape[2]!r} of {name!r}")
            shape = shape[:2]
        if version > 4 and len(shape) == 5 and shape[4] == DENSE:
            shape = shape[:4]
        fits = (len(shape) in sizes
                and all(type(size) is int for size in shape)
                and shape[0] >= 1 and shape[1] >= 4 and shape[1] % 4 == 0
                and shape[0] * shape[1] < 2**63
                and (len(shape) == 2 or shape[2] in (8, 4) and shape[3] in (64, 128, shape[1])))
        require(name and fits, f"{PACKED} says {described} of {name!r}")
    return packed, turned, factors


def take_factors(packed):
    """Takes factors off the descriptions; what they alone stand for is None then."""
    factors = {}
    for name, shape in packed.items():
        if len(shape) < 4 or shape[-2] not in (LOW_RANK, FACTORS):
            continue
        word, rank = shape[-2:]
        sides, alone = shape[:2], word == FACTORS
        require(name and all(type(size) is int and size >= 1 for size in [*sides, rank])
                and rank <= min(sides)
                and (len(shape) == 4 if alone else is_matrix_of_24(shape[:-2])),
                f"{PACKED} says {shape} of {name!r}")
        factors[name] = [*sides, rank]
        packed[name] = None if alone else shape[:-2]
    return factors


def is_matrix_of_24(shape):
    """Whether a description is of a 2:4 or lifted matrix without a layout."""
    return lift_of(shape) or len(shape) in (2, 4) and not is_sparse(shape)


def floats_of(dtype, data):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // (2 if dtype == 'F16' else 4)}{CODES.get(dtype, 'f')}",
                         data)


def added(name, n, k, rank, dense, left, right):
    """The dense f32 bytes of the sum of a matrix, None for zeros, and left times right."""
    dtype = left[0]
    require(dtype in ("F32", "F16", "BF16"), f"{name}{LEFT} is {dtype}")
    require(left[1] == [n, rank] and right[:2] == (dtype, [rank, k]),
            f"{name}: factors are {left[:2]} and {right[:2]}; expected {[n, rank]}, {[rank, k]}")
    sums = list(floats_of(dense[0], dense[2])) if dense else [0.0] * (n * k)
    by, rows = floats_of(dtype, left[2]), floats_of(dtype, right[2])
    for row in range(n):
        for r in range(rank):
            factor = by[row * rank + r]
            for column in range(k):
                sums[row * k + column] += factor * rows[r * k + column]
    return "F32", [n, k], struct.pack(f"<{n * k}f", *sums)


def lift_of(shape):
    """M of a description that ends with a pattern M-2:M, M even and 6 to 32, -D of one with
    dense:D, D a multiple of 4; else 0."""
    pattern = shape[-1] if shape and isinstance(shape[-1], str) else ""
    columns = re.fullmatch("dense:([1-9][0-9]*)", pattern)
    if columns:
        return -int(columns[1]) if int(columns[1]) % 4 == 0 else 0
    return LIFTS.get(pattern, 0)


def check_lifted(name, shape):
    """That a lifted matrix has a shape, and integers if it has four numbers."""
    *sizes, _ = shape
    lift = lift_of(shape)
    require(name and len(sizes) in (2, 4) and all(type(size) is int for size in sizes)
            and sizes[0] >= 1 and sizes[1] >= 1 and lifted_columns(sizes[1], lift)
            and sizes[0] * sizes[1] < 2**63
            and (len(sizes) == 2 or sizes[2] in (8, 4)
                 and sizes[3] in (64, 128, lifted_columns(sizes[1], lift))),
            f"{PACKED} says {shape} of {name!r}")


def lifted_columns(k, lift):
    """Columns of what k are lifted into; 0 where they cannot be."""
    if lift < 0:
        return k - lift if k % 4 == 0 and k > -lift else 0
    return 0 if k % lift else k // lift * (lift // 2 - 1) * 4


def lowered_column(column, lift):
    """The column that one of a lifted matrix stands for."""
    window, position = divmod(column, 4)
    if lift < 0:
        return window // 2 * 4 + position if column < -2 * lift else column + lift
    windows = lift // 2 - 1
    return window // windows * lift + window % windows * 2 + position


def lowered(name, shape, *parts):
    """The dense bytes of one lifted matrix, by way of its 2:4 one."""
    (n, k, *integers, _), lift = shape, lift_of(shape)
    columns = lifted_columns(k, lift)
    decoder = multiplied if integers else decode
    dtype, _, data = decoder(name, n, columns, *integers, *parts)
    size = BYTES[dtype]
    dense, sign = bytearray(n * k * size), b"" if dtype == "I8" else b"\0" * (size - 1) + b"\x80"
    for place in range(n * columns):
        value = data[place * size:(place + 1) * size]
        if value in (b"\0" * size, sign):
            continue
        row, column = divmod(place, columns)
        at = row * k + lowered_column(column, lift)
        require(not any(dense[at * size:(at + 1) * size]),
                f"{name}: two windows have a non-zero for row {row}, column {at % k}")
        dense[at * size:(at + 1) * size] = value
    return dtype, [n, k], bytes(dense)


def is_scaled(shape):
    """Whether a description may be of integers in a sparse format: its name comes fifth."""
    return len(shape) > 4 and isinstance(shape[4], str) and shape[4] in SPARSE


def form_of(shape):
    """A sparse description without bits and group."""
    return shape[:2] + shape[4:] if is_scaled(shape) else shape


def is_sparse(shape):
    shape = form_of(shape)
    return len(shape) > 2 and isinstance(shape[2], str) and shape[2] in SPARSE


def check_sparse(name, shape):
    """That a format's description has sides, and blocks that divide them; of integers 8 bits and a
    scale a row."""
    require(not is_scaled(shape) or shape[2:4] == [8, shape[1]] and shape[1] % 4 == 0,
            f"{PACKED} says {shape} of {name!r}")
    shape = form_of(shape)
    numbers, block = shape[:2] + shape[3:], shape[3:] if shape[2] == "bsr" else [1, 1]
    require(name and len(shape) == (5 if shape[2] == "bsr" else 3)
            and all(type(size) is int for size in numbers)
            and all(1 <= size < 2**31 for size in shape[:2])
            and block in [*BLOCKS, [1, 1]][:None if shape[2] != "bsr" else -1]
            and shape[0] % block[0] == 0 and shape[1] % block[1] == 0,
            f"{PACKED} says {shape} of {name!r}")


def scaled(name, shape, *parts):
    """The dense floats of integers in a sparse format, their rows' scales last."""
    dtype, sides, data = scattered(name, *shape, *parts[:-1])
    require(dtype == "I8", f"{name}{VALUES} is {dtype}, expected I8")
    return widened(name, *sides, 8, sides[1], DENSE, (dtype, sides, data), parts[-1])


def scattered(name, n, k, form, *more):
    """The dense bytes of one matrix in a sparse format."""
    (rows, cols), (values, index, others) = (more[:2] if form == "bsr" else (1, 1)), more[-3:]
    dtype, shape, stored = values
    require(dtype in BYTES and len(shape) == (3 if form == "bsr" else 1)
            and shape[1:] == ([rows, cols] if form == "bsr" else []),
            f"{name}{VALUES} is {values[:2]}")
    count, size = shape[0], BYTES[dtype]
    lines = {"coo": 0, "csr": n, "csc": k, "bsr": n // rows}[form]
    expected = ("I32", [count]) if form == "coo" else ("I64", [lines + 1])
    require(index[:2] == ("I32", [count]), f"{name}{INDEX} is {index[:2]}")
    require(others[:2] == expected, f"{name}{SPARSE[form][2]} is {others[:2]}")
    across = struct.unpack(f"<{count}i", index[2])
    if form == "coo":
        places = list(zip(struct.unpack(f"<{count}i", others[2]), across))
    else:
        starts = struct.unpack(f"<{lines + 1}q", others[2])
        require(starts[0] == 0 and starts[-1] == count and list(starts) == sorted(starts),
                f"{name}{STARTS} does not rise from 0 to {count}")
        places = [(line, across[i]) for line in range(lines)
                  for i in range(starts[line], starts[line + 1])]
    sides = (k, n) if form == "csc" else (n // rows, k // cols)
    require(all(0 <= at < side for place in places for at, side in zip(place, sides))
            and all(a < b for a, b in zip(places, places[1:])), f"{name}: places are not in order")
    dense = bytearray(n * k * size)
    for i, (line, at) in enumerate(places):
        row, col = (at, line) if form == "csc" else (line * rows, at * cols)
        for r in range(rows):
            source, target = (i * rows + r) * cols * size, ((row + r) * k + col) * size
            dense[target:target + cols * size] = stored[source:source + cols * size]
    return dtype, [n, k], bytes(dense)


def decode(name, n, k, values, indices):
    """The dense bytes of one packed matrix, and its dtype."""
    dtype, shape, stored = values
    stride = (k + 7) // 8
    require(dtype in BYTES, f"{name}{VALUES} is {dtype}")
    require(shape == [n, k // 2], f"{name}{VALUES} is {shape}; expected {[n, k // 2]}")
    require(indices[:2] == ("U8", [n, stride]),
            f"{name}{INDICES} is {indices[0]} {indices[1]}; expected U8 {[n, stride]}")
    size, codes = BYTES[dtype], indices[2]
    require(len(stored) == n * (k // 2) * size, f"{name}{VALUES} has {len(stored)} bytes")
    require(len(codes) == n * stride, f"{name}{INDICES} has {len(codes)} bytes")
    dense = bytearray(n * k * size)
    for row in range(n):
        for group in range(2 * stride):
            code = codes[row * stride + group // 2] >> 4 * (group % 2) & 15
            at = f"row {row}, column {4 * group}"
            if 4 * group >= k:
                require(code == 0, f"{name}{INDICES}: unused bits are set at {at}")
                continue
            require(code in POSITIONS, f"{name}{INDICES}: code {code:#x} at {at}")
            for i, position in enumerate(POSITIONS[code]):
                source = (row * (k // 2) + 2 * group + i) * size
                target = (row * k + 4 * group + position) * size
                dense[target:target + size] = stored[source:source + size]
    return dtype, [n, k], bytes(dense)


def factors_of(name, n, k, group, scales):
    groups = -(-k // group)
    require(scales[:2] == ("F32", [n, groups]) and len(scales[2]) == 4 * n * groups,
            f"{name}{SCALES} is {scales[0]} {scales[1]}; expected F32 {[n, groups]}")
    factors = struct.unpack(f"<{n * groups}f", scales[2])
    for i, factor in enumerate(factors):
        require(0 <= factor < float("inf"), f"{name}{SCALES}: {factor} at row {i // groups}")
    return factors


def integers_of(stored, bits):
    if bits == 4:
        stored = bytes(half for byte in stored for half in (byte & 15, byte >> 4))
    return [q - 2**bits if q >= 2**(bits - 1) else q for q in stored]


def multiplied(name, n, k, bits, group, values, indices, scales):
    """The dense f32 bytes of one quantised matrix."""
    dtype, shape, stored = values
    expected = ("I8", [n, k // 2]) if bits == 8 else ("U8", [n, k // 4])
    require((dtype, shape) == expected, f"{name}{VALUES} is {dtype} {shape}; expected {expected}")
    factors, groups = factors_of(name, n, k, group, scales), -(-k // group)
    integers = integers_of(stored, bits)
    # Each stored place, in order: positions ascend in a group.
    marks = decode(name, n, k, ("I8", [n, k // 2], b"\1" * (n * k // 2)), indices)[2]
    dense, following = bytearray(4 * n * k), iter(integers)
    for place in (i for i, mark in enumerate(marks) if mark):
        product = factors[place // k * groups + place % k // group] * next(following)
        dense[4 * place:4 * place + 4] = struct.pack("<f", product)
    return "F32", [n, k], bytes(dense)


def widened(name, n, k, bits, group, _, values, scales):
    """The dense f32 bytes of one dense matrix of integers."""
    dtype, shape, stored = values
    expected = ("I8", [n, k]) if bits == 8 else ("U8", [n, k // 2])
    require((dtype, shape) == expected, f"{name}{VALUES} is {dtype} {shape}; expected {expected}")
    factors = factors_of(name, n, k, group, scales)
    dense, groups = bytearray(4 * n * k), -(-k // group)
    for place, q in enumerate(integers_of(stored, bits)):
        product = factors[place // k * groups + place % k // group] * q
        dense[4 * place:4 * place + 4] = struct.pack("<f", product)
    return "F32", [n, k], bytes(dense)


def laid_out_integers(name, n, k, layout, stream):
    """The dense f32 bytes of one matrix of integers in a layout, by way of its canonical form."""
    bits, group, rows = SCALED[layout]
    whole = group in (0, k) or group > k
    group, quarters, blocks = k if whole else group, rows // 16, -(-k // 32)
    run, block, data = 2 if group == 64 < k else 4, 64 + 32 * bits, stream[2]
    segments = 0 if whole else -(-blocks // run)
    bytes_of_block = quarters * (64 * whole + 64 * segments + blocks * block)
    require(stream[:2] == ("U8", [-(-n // rows) * bytes_of_block])
            and len(data) == stream[1][0], f"{name}{STREAM} is {stream[0]} {stream[1]}")
    groups, stride = -(-k // group), -(-k // 8)
    values, codes = [0] * (n * (k // 2)), bytearray(n * stride)
    scales = [b""] * (n * groups)
    for row in range(-(-n // rows) * rows):
        quarter, lane = row // 16 % quarters, row % 16
        start = row // rows * bytes_of_block
        for q in range(blocks):
            first, here = q // run * run, min(run, blocks - q // run * run)
            head = 0 if whole else 64
            at = (start + 64 * quarters * whole + quarters * (first // run * head + first * block)
                  + quarter * (head + here * block))
            factor = start + 64 * quarter if whole else at
            scale = data[factor + 4 * lane:factor + 4 * lane + 4]
            at += head + (q - first) * block
            word, kept = data[at + 4 * lane:at + 4 * lane + 4], data[at + 64:at + block]
            require(row < n or not any(scale), f"{name}{STREAM}: row {row} past the matrix")
            if row < n:
                scales[row * groups + 32 * q // group] = scale
            for g in range(8):
                if quarters == 1:
                    code = word[g // 2] >> 4 * (g % 2) & 15
                else:
                    code = sum((word[g % 2 * 2 + i] >> g // 2 * 2 & 3) << 2 * i for i in (0, 1))
                pair = [integer_at(kept, lane, 2 * g + i, bits, quarters) for i in (0, 1)]
                if row < n and 32 * q + 4 * g < k:
                    codes[row * stride + 4 * q + g // 2] |= code << 4 * (g % 2)
                    place = row * (k // 2) + 16 * q + 2 * g
                    values[place:place + 2] = pair
                else:
                    require(code == 4 and pair == [0, 0],
                            f"{name}{STREAM}: row {row}, group {8 * q + g} is past the matrix")
    stored = ("I8", [n, k // 2], bytes(value & 255 for value in values))
    if bits == 4:
        stored = ("U8", [n, k // 4], bytes(values[i] & 15 | (values[i + 1] & 15) << 4
                                           for i in range(0, len(values), 2)))
    return multiplied(name, n, k, bits, group, stored, ("U8", [n, stride], bytes(codes)),
                      ("F32", [n, groups], b"".join(scales)))


def integer_at(kept, lane, i, bits, quarters):
    """Integer i of a row among the bytes of 16 rows of a k block."""
    if bits == 8:
        value = kept[i // 4 * 64 + 4 * lane + i % 4 if quarters > 1 else 16 * i + lane]
    elif quarters > 1:
        value = kept[i // 8 * 64 + 4 * lane + i % 4] >> 4 * (i % 8 < 4) & 15
    else:
        value = kept[i // 2 * 16 + lane] >> 4 * (i % 2) & 15
    return value - 2**bits if value >= 2**(bits - 1) else value


def laid_out(name, n, k, layout, stream):
    """The dense bytes of one matrix in a layout, by way of its canonical form."""
    if layout in SCALED:
        return laid_out_integers(name, n, k, layout, stream)
    dtype, together = LAYOUTS[layout]
    size = BYTES[dtype]
    blocks, block = -(-k // 32), 64 + 16 * 16 * size
    require(stream[:2] == ("U8", [-(-n // 16) * blocks * block]) and len(stream[2]) == stream[1][0],
            f"{name}{STREAM} is {stream[0]} {stream[1]}")
    data, values, codes = stream[2], bytearray(n * k // 2 * size), bytearray(n * (-(-k // 8)))
    for row in range(-(-n // 16) * 16):
        for group in range(8 * blocks):
            start = (row // 16 * blocks + group // 8) * block
            code = data[start + 4 * (row % 16) + group % 8 // 2] >> 4 * (group % 2) & 15
            places = [start + 64 + (16 * (2 * (group % 8) + i) + row % 16) * size for i in (0, 1)]
            if together == 2:
                first = start + 64 + (16 * (group % 8) + row % 16) * 2 * size
                places = [first, first + size]
            pair = b"".join(data[place:place + size] for place in places)
            if row < n and 4 * group < k:
                codes[row * (-(-k // 8)) + group // 2] |= code << 4 * (group % 2)
                at = (row * (k // 2) + 2 * group) * size
                values[at:at + 2 * size] = pair
            else:
                require(code == 4 and not any(pair),
                        f"{name}{STREAM}: row {row}, column {4 * group} is past the matrix")
    return decode(name, n, k, (dtype, [n, k // 2], bytes(values)),
                  ("U8", [n, -(-k // 8)], bytes(codes)))


def transpose(dtype, shape, data):
    """The tensor [k, n] that a transposed matrix [n, k] stands for."""
    (n, k), size = shape, BYTES[dtype]
    elements = [data[i:i + size] for i in range(0, len(data), size)]
    return dtype, [k, n], b"".join(b"".join(elements[column::k]) for column in range(k))


def suffixes_of(described):
    if described is None:
        return ()
    if is_scaled(described):
        return (*SPARSE[described[4]], SCALES)
    if is_sparse(described):
        return SPARSE[described[2]]
    described = described[:-1] if lift_of(described) else described
    if len(described) == 3:
        return (STREAM,)
    if len(described) == 5:
        return (VALUES, SCALES)
    return (VALUES, INDICES) if len(described) == 2 else (VALUES, INDICES, SCALES)


def unpack(tensors, metadata):
    """All tensors of the file, dense; the packed ones' descriptions, and which of them are
    transposed."""
    packed, turned, factors = described(metadata)
    dense = {}
    for name, shape in packed.items():
        suffixes = suffixes_of(shape) + (LEFT, RIGHT) * (name in factors)
        for suffix in suffixes:
            require(name + suffix in tensors, f"{name}{suffix} is missing")
        require(name not in tensors, f"{name} is there packed and plain")
        kinds = {2: decode, 3: laid_out, 4: multiplied, 5: widened}
        parts = [tensors[name + suffix] for suffix in suffixes_of(shape)]
        if shape is None:
            dense[name] = None
        elif lift_of(shape):
            dense[name] = lowered(name, shape, *parts)
        elif is_scaled(shape):
            dense[name] = scaled(name, form_of(shape), *parts)
        else:
            dense[name] = (scattered if is_sparse(shape) else kinds[len(shape)])(
                name, *shape, *parts)
        if name in factors:
            dense[name] = added(name, *factors[name], dense[name], tensors[name + LEFT],
                                tensors[name + RIGHT])
        if name in turned:
            dense[name] = transpose(*dense[name])
    for name, tensor in tensors.items():
        version = int(metadata.get(VERSION, "1"))
        for suffix in ((VALUES, INDICES) + (SCALES,) * (version > 1) + (STREAM,) * (version > 2)
                       + (STARTS, INDEX, ROWS) * (version > 5)
                       + (LEFT, RIGHT) * (version > 7)):
            if name.endswith(suffix):
                logical = name[:-len(suffix)]
                known = logical in packed and suffix in (
                    *suffixes_of(packed[logical]), *(LEFT, RIGHT) * (logical in factors))
                require(known, f"{name} is not described")
                break
        else:
            dense[name] = tensor
    return dense, packed, turned, factors


def write(path, tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}, large elements first."""
    order = sorted(tensors, key=lambda name: (-BYTES.get(tensors[name][0], 8), name))
    header, offset = {}, 0
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name][2])


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        dense, packed, turned, factors = unpack(*read(arguments[0]))
    except (Refused, ValueError, KeyError, TypeError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    if len(arguments) == 2:
        write(arguments[1], dense)
    else:
        for name in sorted(packed):
            shape, lifted = packed[name] or dense[name][1], ""
            if lift_of(shape):
                *shape, lifted = shape
            bits, last = "".join(map(str, shape[2:3])), shape[-1]
            form = {2: "", 3: f" in {last}", 4: f" of {bits} bits by {last}",
                    5: f" of {bits} bits by {shape[-2]}, dense"}
            stored = "x".join(map(str, dense[name][1]))
            order = f" rank {factors[name][2]}" if name in factors else ""
            order += " transposed" * (name in turned)
            text = f" in {form_of(shape)[2]}" if is_sparse(shape) else form[len(shape)]
            print(f"{name} {dense[name][0]} {stored}{text}"
                  f"{' ' * bool(lifted)}{lifted}{order}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
