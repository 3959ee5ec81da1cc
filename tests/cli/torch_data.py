# SPDX-License-Identifier: Apache-2.0
"""Archives as torch.save writes them, opcode by opcode."""
import io
import struct
import zipfile

STOP, NONE, TRUE = b".", b"N", b"\x88"
BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -2 ** 31 <= value < 2 ** 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def name(module, what):
    return b"c" + module.encode() + b"\n" + what.encode() + b"\n"


def together(*members):
    return b"(" + b"".join(members) + b"t"


def sides(values):
    return together(*map(number, values))


def mapping(pairs):
    """pairs of text and opcodes."""
    return b"}(" + b"".join(text(k) + v for k, v in pairs) + b"u"


def call(module, what, *arguments):
    return name(module, what) + together(*arguments) + b"R"


def storage(kind, key, count):
    return together(text("storage"), name("torch", f"{kind}Storage"), text(str(key)), text("cpu"),
                    number(count)) + b"Q"


def dense_strides(shape):
    out, step = [], 1
    for side in reversed(shape):
        out.insert(0, step)
        step *= side
    return out


def tensor(kind, key, shape, offset=0, strides=None, count=0):
    """A view of the storage of that key."""
    return call("torch._utils", "_rebuild_tensor_v2", storage(kind, key, count), number(offset),
                sides(shape), sides(dense_strides(shape) if strides is None else strides),
                b"\x89", name("collections", "OrderedDict") + b")R")


def byte_tensor(dtype, key, shape):
    """Of a dtype that has no class of storages."""
    held = together(text("storage"), name("torch.storage", "UntypedStorage"), text(str(key)),
                    text("cpu"), number(0)) + b"Q"
    return call("torch._utils", "_rebuild_tensor_v3", held, number(0), sides(shape),
                sides(dense_strides(shape)), b"\x89", name("collections", "OrderedDict") + b")R",
                name("torch", dtype))


def typed(module, kind, shape, parts, dtype="float16"):
    """A tensor of a class of its own, with parts."""
    wrapped = together(name(module, kind), name("torch", dtype), sides(shape),
                       sides(dense_strides(shape)), number(0),
                       call("torch.serialization", "_get_layout", text("torch.strided")),
                       call("torch", "device", text("cpu")), b"\x89")
    return call("torch._tensor", "_rebuild_from_type_v2",
                name("torch._utils", "_rebuild_wrapper_subclass"), name(module, kind), wrapped,
                together(mapping([("alg_id", number(0))]), mapping(parts)))


def archive(pickle, records, compression=zipfile.ZIP_STORED, more=()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as zipped:
        zipped.writestr("model/data.pkl", b"\x80\x02" + pickle + STOP)
        zipped.writestr("model/byteorder", "little")
        for key, raw in records.items():
            zipped.writestr(f"model/data/{key}", raw)
        for record, raw in more:
            zipped.writestr(record, raw)
    return out.getvalue()
