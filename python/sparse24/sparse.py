# SPDX-License-Identifier: Apache-2.0
"""Sparse matrices that are not 2:4: coordinates, rows, columns, blocks."""
from __future__ import annotations

import typing

import numpy as np

from . import _core
from .arrays import NUMPY, Fixed, bits_of, operand, tagged, view
from .matrix import Array, Plan


def sparse_kernels() -> list[str]:
    """The kernels of this build that `SparseMatrix.plan` and plan_integers may be told."""
    return _core.names("sparse kernels")


class SparseMatrix(Fixed):
    """An immutable matrix [n, k] in a format "coo", "csr", "csc" or "bsr" of f32, f16, bf16, i8,
    e4m3 or e5m2. Made by `from_dense` or `from_parts`; any number of threads may use one."""
    __slots__ = ("_handle", "format", "dtype", "shape", "block", "stored", "_starts", "_addresses",
                 "__weakref__")
    __array_ufunc__ = None
    ndim = 2

    format: str                    #: "coo", "csr", "csc", "bsr"
    dtype: str                     #: of the stored values
    shape: tuple[int, int]         #: (n, k)
    block: tuple[int, int] | None  #: rows and columns of a block of "bsr"
    stored: int                    #: how many values, or blocks, are stored

    def __init__(self, handle: typing.Any):
        kind, dtype, rows, cols, block, stored, starts, addresses = _core.sparse_get(handle)
        self._set(_handle=handle, format=kind, dtype=dtype, shape=(rows, cols), stored=stored,
                  block=block if block[0] else None, _starts=starts, _addresses=addresses)

    def __reduce__(self):
        values = np.array(self.values)
        return _with_parts, (self.format, self.dtype, (*self.shape, *(self.block or (0, 0))),
                             self.starts, self.index, self.rows, values)

    def __repr__(self):
        return (f"<sparse24.SparseMatrix {list(self.shape)} {self.dtype}, {self.format}, "
                f"{self.stored} stored>")

    @classmethod
    def from_dense(cls, w: Array, format: str = "csr",  # pylint: disable=redefined-builtin
                   block: tuple[int, int] = (0, 0)) -> SparseMatrix:
        """What of w [n, k] is not 0; of "bsr" every block (1x4, 4x1, or a square of 8, 16, 32, 64,
        128) that has such an element. Raises ValueError, TypeError."""
        return cls(_core.sparse_create(operand(w), format, *block))

    @classmethod
    def from_parts(cls, format: str, shape: tuple[int, int],  # pylint: disable=redefined-builtin
                   index: Array, values: Array, *, starts: Array | None = None,
                   rows: Array | None = None, block: tuple[int, int] = (0, 0)) -> SparseMatrix:
        """A copy of arrays as SciPy and PyTorch have them. index [stored]: columns ("coo", "csr"),
        rows ("csc") or columns of blocks ("bsr"); starts: where each row (column, row of blocks)
        begins, and the end; rows [stored]: of "coo"; values [stored], or [stored, *block].
        Raises Error (the first place that is not as it must be), ValueError, TypeError."""
        source = np.asarray(values)
        dtype = next((name for name, kind in NUMPY.items() if source.dtype == kind), None)
        starts, index, rows = (
            None if part is None else np.ascontiguousarray(part, kind)
            for part, kind in ((starts, np.int64), (index, np.int32), (rows, np.int32)))
        return cls(_core.sparse_from_parts(format, dtype, (*shape, *block), starts, index, rows,
                                           np.ascontiguousarray(source)))

    def to(self, format: str,  # pylint: disable=redefined-builtin
           block: tuple[int, int] = (0, 0)) -> SparseMatrix:
        """The same matrix in another format."""
        return SparseMatrix(_core.sparse_convert(self._handle, format, *block))

    def to_dense(self, dtype: str | None = None) -> np.ndarray:
        """The matrix with its zeros, of its dtype where numpy has it, else f32."""
        dtype = dtype or (self.dtype if self.dtype in NUMPY else "f32")
        out = np.empty(self.shape, bits_of(dtype))
        _core.sparse_to_dense(self._handle, out if dtype in NUMPY else tagged(out, dtype))
        return out

    def _part(self, which: int, shape: tuple, dtype: typing.Any) -> np.ndarray | None:
        address = self._addresses[which]
        return view(address, shape, dtype, self._handle) if address else None

    @property
    def starts(self) -> np.ndarray | None:
        """Where each row, column or row of blocks begins, and the end; None of "coo"."""
        return self._part(0, (self._starts,), np.int64)

    @property
    def index(self) -> np.ndarray:
        """Columns, rows or columns of blocks [stored], read-only."""
        return self._part(1, (self.stored,), np.int32)

    @property
    def rows(self) -> np.ndarray | None:
        """Rows [stored] of "coo"; else None."""
        return self._part(2, (self.stored,), np.int32)

    @property
    def values(self) -> np.ndarray:
        """[stored], or [stored, *block], read-only; bf16 and 8-bit floats as integers."""
        return self._part(3, (self.stored, *(self.block or ())), bits_of(self.dtype))

    def plan(self, kernel: str | None = None) -> Plan:
        """A Plan for x · wᵀ in f32: "bsr" of square blocks and of 4x1 as it is, all else by
        rows."""
        return Plan.of(_core.sparse_plan(self._handle, kernel), self.shape)

    def plan_integers(self, scales: Array | None = None, kernel: str | None = None) -> Plan:
        """A Plan with integers throughout, of i8 whose rows are a multiple of four, multiplied as
        blocks of 4x1: each row of x becomes integers as it comes; scales [n] of f32 (ones) multiply
        the exact sums. Raises TypeError (not i8), ValueError, Error."""
        return Plan.of(_core.sparse_plan_integers(self._handle, scales, kernel), self.shape)

    def linear(self, x: Array, bias: Array | None = None) -> np.ndarray:
        """x [m, k] times w transposed, and bias [n]: [m, n]. What is multiplied often is a plan."""
        return self.plan()(x, bias)

    def __matmul__(self, x: Array) -> np.ndarray:
        """w [n, k] times x [k, m]: [n, m]."""
        return self.plan()(np.ascontiguousarray(np.asarray(x).T)).T

    def __rmatmul__(self, x: Array) -> np.ndarray:
        raise TypeError("x @ SparseMatrix sums along n; linear(x) is x times w transposed")


def _with_parts(kind, dtype, sides, starts, index, rows, values):
    source = values if dtype in NUMPY else tagged(values.reshape(1, -1), dtype)
    return SparseMatrix(_core.sparse_from_parts(kind, dtype, sides, starts, index, rows, source))
