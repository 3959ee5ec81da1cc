# SPDX-License-Identifier: Apache-2.0
"""2:4 matrices and their products.

One shape convention everywhere: y [m, n] = x [m, k] times w [n, k] transposed, plus b [n]; of every
four consecutive weights along k at most two are not zero.
"""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core
from .arrays import (BITS, NUMPY, Fixed, bits_of, expect_name, handle_of, nothing, operand, sides,
                     tagged, view)

Array = typing.Any  # numpy's, or what has __dlpack__ on the CPU


class Matrix(Fixed):
    """An immutable 2:4 matrix [n, k] of f32, f16, bf16, i8, e4m3 or e5m2, or of quantised integers.

    Any number of threads may use one. `from_dense` makes it, or what is named for the way to
    choose: `strict`, `magnitude`, `mask`, `mvue24`, `tile`. Its parts are pickled and copied.
    """
    __slots__ = ("_handle", "shape", "dtype", "nbytes", "bits", "group", "is_transposed",
                 "__weakref__")
    __array_ufunc__ = None  # so that numpy leaves array @ Matrix to us
    ndim = 2

    shape: tuple[int, int]  #: (n, k)
    dtype: str              #: of the stored values: "f32", "bf16", "i8" …
    nbytes: int             #: of values, positions and scales
    bits: int               #: of a quantised one's integers, 8 or 4; else 0
    group: int              #: columns that share a scale; 0 if there are none
    is_transposed: bool     #: a view made by .T

    def __init__(self, handle: typing.Any):
        rows, cols, *others = _core.matrix_info(handle)
        self._set(_handle=handle, shape=(rows, cols),
                  **dict(zip(("dtype", "is_transposed", "nbytes", "bits", "group"), others)))

    def __repr__(self):
        kind = f"int{self.bits}, {self.group} columns a scale" if self.group else self.dtype
        return f"<sparse24.Matrix {list(self.shape)} {kind}, {self.nbytes} bytes>"

    # ---- made from dense ones

    @classmethod
    def from_dense(cls, w: Array, select: str = "strict", *, dtype: str | None = None,
                   mask: Array | None = None, seed: int = 0, allow_nonfinite: bool = False,
                   transpose: bool = False) -> Matrix:
        """A 2:4 matrix of w [n, k]; nothing of w is kept.

        select: "strict" (w is 2:4 already), "magnitude", "mask", "mvue24" (random and unbiased, by
        seed), "tile-best", "tile-greedy", "tile-signed", "tile-causal1122" (2:4 along n too).
        dtype: of what is stored, the source's by default. transpose: the matrix of w transposed.
        Raises Error (not 2:4, not finite: row, column and group), ValueError, TypeError.
        """
        return cls(_core.matrix_create(operand(w), select, dtype, _mask(mask), seed,
                                       allow_nonfinite, transpose))

    @classmethod
    def strict(cls, w: Array, **options) -> Matrix:
        """w is 2:4 already; anything else is an Error that names the place."""
        return cls.from_dense(w, "strict", **options)

    @classmethod
    def magnitude(cls, w: Array, **options) -> Matrix:
        """The two largest of each four; of equal ones the higher column."""
        return cls.from_dense(w, "magnitude", **options)

    @classmethod
    def mask(cls, w: Array, mask: Array, **options) -> Matrix:
        """What mask [n, k] (bool or uint8) keeps, at most two of each four."""
        return cls.from_dense(w, "mask", mask=mask, **options)

    @classmethod
    def mvue24(cls, w: Array, seed: int = 0, **options) -> Matrix:
        """Random and unbiased: two of each four in proportion to their magnitude, then scaled."""
        return cls.from_dense(w, "mvue24", seed=seed, **options)

    @classmethod
    def tile(cls, w: Array, rule: str = "best", **options) -> Matrix:
        """2:4 along k and along n at once, by a rule for 4x4 tiles: "best", "greedy", "signed",
        "causal1122"."""
        return cls.from_dense(w, f"tile-{rule}", **options)

    @classmethod
    def pair(cls, w: Array, select: str = "tile-best", *, dtype: str | None = None,
             mask: Array | None = None, allow_nonfinite: bool = False) -> tuple[Matrix, Matrix]:
        """From one selection the matrices of w [n, k] and of its transpose [k, n]: what a layer
        multiplies with forward and backward."""
        one, two = _core.matrix_create_pair(operand(w), select, dtype, _mask(mask), 0,
                                            allow_nonfinite)
        return cls(one), cls(two)

    # ---- parts

    def __reduce__(self):
        return _with_parts, (self.pack(), self._stored, self.dtype, self.bits, self.is_transposed)

    @classmethod
    def from_packed(cls, values: Array, indices: Array, *, shape: tuple[int, int] | None = None,
                    dtype: str | None = None, scales: Array | None = None,
                    bits: int = 8) -> Matrix:
        """A matrix of `values`, `indices` and `scales` as `pack` gives them (docs/format.md),
        copied and checked. shape: needed for 4 bits alone. dtype: of values whose bits are
        integers'."""
        values = values if hasattr(values, "__dlpack__") and not dtype else np.asarray(values)
        n, k = shape or sides(values, "values", 2)
        if not shape:
            k *= 4 if scales is not None and bits == 4 else 2
        if scales is not None:
            return cls(_core.matrix_from_quantized(values, operand(indices), operand(scales), bits,
                                                   n, k))
        source = tagged(values, dtype) if dtype else operand(values)
        name = dtype or _dtype_name(values)
        return cls(_core.matrix_from_packed(source, operand(indices), name, n, k))

    def pack(self) -> tuple[np.ndarray, ...]:
        """(values, indices), and scales of a quantised one, read-only and without a copy (values of
        4 bits are two a byte, and a copy): values [n, k/2] in the order of columns, indices
        [n, ceil(k/8)] two positions of 2 bits a group. bf16 and 8-bit floats are shown as integers
        of their size."""
        if self.bits == 4:
            values = np.empty((self._stored[0], self._stored[1] // 4), np.uint8)
            _core.matrix_to_quantized(self._handle, values)
            return values, self.indices, self.scales
        return (self.values, self.indices) + ((self.scales,) if self.bits else ())

    @property
    def _stored(self) -> tuple[int, int]:
        n, k = self.shape
        return (k, n) if self.is_transposed else (n, k)

    @property
    def values(self) -> np.ndarray:
        """The stored values [n, k/2], read-only; of a view by .T the stored matrix's."""
        n, k = self._stored
        address = _core.matrix_memory(self._handle)[0]
        return view(address, (n, k // 2), bits_of(self.dtype), self._handle)

    @property
    def indices(self) -> np.ndarray:
        """A group's two positions in 4 bits: [n, ceil(k/8)] bytes, read-only."""
        n, k = self._stored
        address = _core.matrix_memory(self._handle)[1]
        return view(address, (n, (k + 7) // 8), np.uint8, self._handle)

    @property
    def scales(self) -> np.ndarray | None:
        """Of a quantised matrix [n, ceil(k/group)], read-only; else None."""
        n, k = self._stored
        address = _core.matrix_memory(self._handle)[2]
        if not address:
            return None
        return view(address, (n, -(-k // self.group)), np.float32, self._handle)

    # ---- other forms

    @property
    def T(self) -> Matrix:  # pylint: disable=invalid-name
        """The transpose, a view that shares the storage."""
        return Matrix(_core.matrix_transpose(self._handle))

    def to_dense(self, dtype: str | None = None, *, out: np.ndarray | None = None) -> np.ndarray:
        """The matrix with its zeros. dtype: its own where numpy has it, else f32; "bf16", "e4m3"
        and "e5m2" give the bits as integers. A quantised one counts as scale times integer."""
        if out is None:
            if dtype is None:
                dtype = self.dtype if self.dtype in NUMPY and not self.bits else "f32"
            out = np.empty(self.shape, bits_of(dtype))
        target = tagged(out, dtype) if dtype in BITS else out
        _core.matrix_to_dense(self._handle, target)
        return out

    def quantize(self, scheme: str = "int8") -> Matrix:
        """A quantised copy: "int8", "int8-g64", "int8-g128", "int4", "int4-g64", "int4-g128"."""
        expect_name(scheme, "scheme", "schemes")
        return Matrix(_core.matrix_quantize(self._handle, scheme))

    def to_order(self, order: str) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The bytes in the order of a device or kernel: "cutlass" (values and meta, as PyTorch's
        SparseSemiStructuredTensorCUTLASS has them), "hopper", or a layout of docs/format.md."""
        n, k = self.shape
        if order == "cutlass":
            wide = self.dtype in ("f16", "bf16")
            values = np.empty((n, k // 2), bits_of(self.dtype))
            meta = np.empty((n, k // (16 if wide else 32)), np.int16 if wide else np.int32)
            _core.matrix_to_order(order, self._handle, values, meta)
            return values, meta
        data = np.empty(_core.order_bytes(order, self.dtype, n, k), np.uint8)
        _core.matrix_to_order(order, self._handle, data, None)
        return data

    @classmethod
    def from_order(cls, order: str, values: Array, meta: Array | None = None, *, dtype: str,
                   shape: tuple[int, int]) -> Matrix:
        """The matrix of what `to_order` gives."""
        return cls(_core.matrix_from_order(order, operand(values), meta, dtype, *shape))

    def save(self, path: str | os.PathLike, name: str = "weight", *, force: bool = False) -> None:
        """Writes a .safetensors file of this packed matrix. Raises FileExistsError unless force."""
        _core.checkpoint_save(path, None, force, ((name, self._handle, ()),))

    @classmethod
    def load(cls, path: str | os.PathLike, name: str | None = None) -> Matrix:
        """A packed matrix of a checkpoint; the only one if name is None."""
        from .checkpoint import Checkpoint  # pylint: disable=import-outside-toplevel
        checkpoint = Checkpoint(path)
        if name is None:
            packed = [key for key in checkpoint if checkpoint.info(key).packed]
            if len(packed) != 1:
                raise ValueError(f"{path} has {len(packed)} packed tensors: name one")
            name = packed[0]
        return checkpoint.matrix(name)

    # ---- products

    def __matmul__(self, x: Array) -> np.ndarray:
        return mm(self, x)

    def __rmatmul__(self, x: Array) -> np.ndarray:
        return mm(x, self)


def _with_parts(parts, shape, dtype, bits, is_transposed):
    values, indices, *scales = parts
    matrix = Matrix.from_packed(values, indices, shape=shape, scales=scales[0] if scales else None,
                                bits=bits, dtype=None if scales else dtype)
    return matrix.T if is_transposed else matrix


def _mask(mask: Array | None) -> Array | None:
    """bool and uint8 as they are; numpy's other numbers as whether they are not 0."""
    if mask is None or not isinstance(mask, np.ndarray) or mask.dtype in (np.bool_, np.uint8):
        return mask
    return mask != 0


def _dtype_name(values: Array) -> str:
    names = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8",
             "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
    name = str(values.dtype).rsplit(".", maxsplit=1)[-1]
    if name not in names:
        raise TypeError(f"values: {name} is no dtype of a 2:4 matrix; dtype= names one")
    return names[name]


def linear(x: Array, w: Matrix, bias: Array | None = None, *,
           out: np.ndarray | None = None) -> np.ndarray:
    """y [..., n] = x [..., k] times w transposed, plus bias [n], all f32. Without a copy of x,
    whose leading dimensions count as one; written to out if it is given."""
    handle = handle_of(w, "w", Matrix)
    if not isinstance(x, np.ndarray):
        x = operand(x)
    if out is None:
        out = np.empty((*sides(x, "x")[:-1], w.shape[0]), np.float32)
    if not nothing(x, w.shape[1]):
        _core.linear(out, x, handle, bias)
    return out


def mm(a: Matrix | Array, b: Matrix | Array, *, out: np.ndarray | None = None) -> np.ndarray:
    """The product of a Matrix and an array [·, ·] of f32, in either order: W @ x, x @ W."""
    return addmm(None, a, b, beta=0.0, out=out)


def addmm(y: np.ndarray | None, a: Matrix | Array, b: Matrix | Array, *, alpha: float = 1.0,
          beta: float = 1.0, out: np.ndarray | None = None) -> np.ndarray:
    """beta·y + alpha·(a @ b), one of a and b a Matrix, all f32. y stays unless it is out."""
    if out is None:
        out = np.empty((sides(a, "a", 2)[0], sides(b, "b", 2)[1]), np.float32)
    if y is not None and y is not out:
        np.copyto(out, y)
    if 0 in sides(out, "out") and sides(a, "a", 2)[1] == sides(b, "b", 2)[0]:
        return out
    if isinstance(a, Matrix):
        _core.mm_sparse_dense(out, a._handle, operand(b), alpha, beta)
    elif isinstance(b, Matrix):
        _core.mm_dense_sparse(out, operand(a), b._handle, alpha, beta)
    else:
        raise TypeError("mm: neither operand is a sparse24.Matrix")
    return out


class Plan(Fixed):
    """A matrix in the layout of one kernel: products with bf16 or 8-bit activations, activation,
    gate and residual. Immutable; any number of threads may use one."""
    __slots__ = ("_handle", "shape")

    def __init__(self, w: Matrix, *, kernel: str | None = None, activations: str | None = None):
        """kernel: a row's name instead of the best one. activations: "i8" quantises each row of x
        as it comes, for a quantised w; floats by default."""
        expect_name(kernel, "kernel", "kernels")
        self._set(_handle=_core.plan_create(handle_of(w, "w", Matrix), kernel, activations),
                  shape=w.shape)

    @classmethod
    def of(cls, handle: typing.Any, shape: tuple[int, int]) -> Plan:
        """A plan that was made otherwise."""
        plan = cls.__new__(cls)
        plan._set(_handle=handle, shape=shape)
        return plan

    def kernel(self, m: int = 1) -> str:
        """The name of the kernel that runs for m rows of x."""
        return _core.plan_info(self._handle, m)[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the weight in this layout."""
        return _core.plan_info(self._handle, 1)[1]

    @property
    def takes_bf16(self) -> bool:
        """May x and y be bf16?"""
        return _core.plan_info(self._handle, 1)[2]

    def __call__(self, x: Array, bias: Array | None = None, *, activation: str = "none",
                 gate: Array | None = None, residual: Array | None = None,
                 out: Array | None = None) -> Array:
        """activation(x·wᵀ + bias)·gate + residual; activation: "none", "relu", "gelu", "gelu-tanh",
        "silu", "gelu-quick". x is f32, or bf16 where takes_bf16; the result is f32 unless out is
        bf16."""
        x = operand(x)
        if out is None:
            rows = x[2] if isinstance(x, tuple) else None
            out = np.empty((rows, self.shape[0]) if rows is not None
                           else (*sides(x, "x")[:-1], self.shape[0]), np.float32)
        if not nothing(x, self.shape[1]):
            _core.plan_run(self._handle, operand(out), x, bias, activation,
                           None if gate is None else operand(gate),
                           None if residual is None else operand(residual))
        return out
