# SPDX-License-Identifier: Apache-2.0
"""Arrays as the extension takes and gives them."""
from __future__ import annotations

import io
import os
import typing

import numpy as np

from . import _core

# The library's dtypes that numpy has. The others' bits are shown as integers, or converted to f32.
NUMPY = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i8": np.int8, "u8": np.uint8,
         "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64,
         "u64": np.uint64, "bool": np.bool_}
BITS = {"bf16": np.uint16, "e4m3": np.uint8, "e5m2": np.uint8}
# What ml_dtypes calls them.
NAMES = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
Ids = typing.Union[typing.Sequence[int], np.ndarray]  # tokens of one text, whole numbers


def operand(x: typing.Any) -> typing.Any:
    """What the extension reads `x` as, without a copy: an array or a DLPack tensor as it is, an
    array of ml_dtypes by its address, anything else by numpy.asarray."""
    if isinstance(x, np.ndarray):
        return tagged(x) if x.dtype.name in NAMES else x
    if hasattr(x, "__dlpack__"):
        return x
    return np.asarray(x)


def tagged(x: np.ndarray, dtype: str | None = None) -> tuple:
    """An array's memory under another dtype of the same size. The array must live on."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"expected an array of numpy, got {type(x)}")
    rows = x.reshape(-1, x.shape[-1] if x.ndim else 1)
    if not np.shares_memory(rows, x) or rows.strides[1] != x.itemsize:
        raise ValueError("an array with gaps: numpy.ascontiguousarray makes a copy")
    return (rows.__array_interface__["data"][0], dtype or NAMES[x.dtype.name], *rows.shape,
            rows.strides[0] // x.itemsize if rows.shape[0] > 1 else rows.shape[1])


def sides(x: typing.Any, name: str, dimensions: int | None = None) -> tuple:
    """An array's shape. Raises TypeError (it is none), ValueError (of other dimensions)."""
    shape = getattr(x, "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError(f"{name}: expected an array or a tensor, got {type(x)}")
    if dimensions is not None and len(shape) != dimensions:
        raise ValueError(f"{name} has {len(shape)} dimensions, expected {dimensions}")
    return shape


class Fixed:
    """What describes an object of the library, and tells numpy how much of its memory to read: set
    once, by `_set`."""
    __slots__ = ()

    def _set(self, **values: typing.Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: typing.Any) -> None:
        raise AttributeError(f"{name}: a sparse24.{type(self).__name__} cannot be changed")


def several(texts: typing.Any, name: str) -> typing.Any:
    """Texts as they are; of an open file its lines without their ends. Raises TypeError for one
    str, whose letters would be texts, and for a path."""
    if isinstance(texts, (str, bytes, os.PathLike)):
        raise TypeError(f"{name}: expected a list of texts, got {type(texts)}; of a file's lines "
                        "open(path) is one")
    return (line.rstrip("\n") for line in texts) if isinstance(texts, io.TextIOBase) else texts


def expect_name(name: typing.Any, option: str, kind: str) -> None:
    """Raises ValueError for a str that is none of the library's names of a kind."""
    names = _core.names(kind)
    if isinstance(name, str) and name not in names:
        raise ValueError(f"{option} {name!r}: expected one of {', '.join(names)}")


def token_ids(ids: typing.Any, name: str = "a text of token ids") -> np.ndarray:
    """Ids of one text, or what `name` says, as i32. Raises TypeError (no whole numbers, no list of
    them), ValueError."""
    given = np.asarray(ids)
    if given.ndim == 0 or (given.size and given.dtype.kind not in "iu"):
        raise TypeError(f"{name}: expected a list of whole numbers, got "
                        f"{type(ids) if given.ndim == 0 else given.dtype}")
    narrow = given.reshape(-1).astype(np.int32)
    if (narrow != given.reshape(-1)).any():
        raise ValueError(f"token id {given.max()}: expected at most 32 bits")
    return narrow


def nothing(x: typing.Any, k: int) -> bool:
    """Has x [..., k] no row? Then there is nothing to multiply. Raises ValueError."""
    shape = x[2:4] if isinstance(x, tuple) else x.shape
    if 0 not in shape[:-1]:
        return False
    if shape[-1] != k:
        raise ValueError(f"x is {list(shape)}; expected [..., {k}]")
    return True


def handle_of(x: typing.Any, name: str, kind: type) -> typing.Any:
    """The library's object in one of this package. Raises TypeError (it is of another class)."""
    if not isinstance(x, kind):
        raise TypeError(f"{name}: expected a sparse24.{kind.__name__}, got {type(x)}")
    return x._handle


class _Memory:
    """Memory of the library for numpy: the array that is made of it keeps this, so the owner."""

    def __init__(self, address: int, shape: tuple, dtype: np.dtype, owner: object, writable: bool):
        self.owner = owner
        self.__array_interface__ = {"data": (address, not writable), "shape": shape, "version": 3,
                                    "typestr": dtype.str}


def view(address: int, shape: tuple, dtype: typing.Any, owner: object,
         writable: bool = False) -> np.ndarray:
    """A read-only array of the library's memory, which `owner` keeps."""
    if not address or 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(address, shape, np.dtype(dtype), owner, writable))


def bits_of(dtype: str) -> typing.Any:
    """numpy's dtype for the library's, integers of its size where numpy has none."""
    found = NUMPY.get(dtype) or BITS.get(dtype) if isinstance(dtype, str) else None
    if found is None:
        raise ValueError(f"dtype {dtype!r}: expected one of {', '.join([*NUMPY, *BITS])}")
    return found
