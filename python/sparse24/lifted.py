# SPDX-License-Identifier: Apache-2.0
"""Matrices with M-2 of every M weights, such as 6:8, and those whose first columns are dense, which
are stored and multiplied as 2:4."""
from __future__ import annotations

import typing

import numpy as np

from . import _core
from .arrays import NUMPY, Fixed, bits_of, operand, tagged
from .matrix import Array, Matrix, Plan


class LiftedMatrix(Fixed):
    """An immutable matrix [n, k] with at most M-2 non-zeros of every M columns, M even, 6 to 32:
    each group is M/2-1 overlapping windows of a 2:4 matrix, `matrix`, of 2(M-2)/M times the
    columns. Or, of the pattern "dense:D", one whose first D columns are dense, D a multiple of 4,
    and whose others are 2:4; its `matrix` has D columns more. Any number of threads may use one."""
    __slots__ = ("matrix", "pattern", "shape", "_lift", "__weakref__")

    matrix: Matrix          #: [n, 2(M-2)/M·k] or [n, k + D], 2:4
    pattern: str            #: "6:8", "dense:64"
    shape: tuple[int, int]  #: (n, k)

    def __init__(self, w: Array, pattern: str = "6:8"):
        """w [n, k] of the pattern already (`prune` makes it so); nothing of w is kept. Raises Error
        (a group with more non-zeros: row and columns), ValueError (another pattern, a k that M does
        not divide or that D leaves nothing of), TypeError."""
        lift = _core.pattern_lift(pattern)
        self._take(Matrix(_core.matrix_lift(operand(w), lift)), lift)

    def _take(self, matrix: Matrix, lift: int):
        n, wide = matrix.shape
        self._set(matrix=matrix, _lift=lift, pattern=_core.lift_pattern(lift),
                  shape=(n, _core.lowered_cols(wide, lift)))

    @classmethod
    def of(cls, matrix: Matrix, pattern: str) -> LiftedMatrix:
        """Of its 2:4 matrix, as `matrix` gives it."""
        lifted = cls.__new__(cls)
        lifted._take(matrix, _core.pattern_lift(pattern))
        return lifted

    def __reduce__(self):
        return LiftedMatrix.of, (self.matrix, self.pattern)

    def __repr__(self):
        return f"<sparse24.LiftedMatrix {list(self.shape)} {self.pattern}, {self.matrix!r}>"

    @property
    def dtype(self) -> str:
        """Of the stored values."""
        return self.matrix.dtype

    @property
    def nbytes(self) -> int:
        """Of values, positions and scales."""
        return self.matrix.nbytes

    def to_dense(self, dtype: str | None = None) -> np.ndarray:
        """[n, k] with its zeros, of its dtype where numpy has it, else f32."""
        if dtype is None:
            dtype = self.dtype if self.dtype in NUMPY and not self.matrix.bits else "f32"
        out = np.empty(self.shape, bits_of(dtype))
        _core.lifted_to_dense(self.matrix._handle, out if dtype in NUMPY else tagged(out, dtype),
                              self._lift)
        return out

    def quantize(self, scheme: str = "int8") -> LiftedMatrix:
        """A quantised copy, as Matrix.quantize; columns of a group are the lifted ones."""
        return LiftedMatrix.of(self.matrix.quantize(scheme), self.pattern)

    def plan(self, *, kernel: str | None = None, activations: str | None = None) -> Plan:
        """A Plan that takes x [m, k] and lifts its columns as it runs."""
        handle = _core.plan_create(self.matrix._handle, kernel, activations, self._lift)
        return Plan.of(handle, self.shape)

    def linear(self, x: Array, bias: Array | None = None) -> np.ndarray:
        """x [m, k] times w transposed, and bias [n]: [m, n]. What is multiplied often is a plan."""
        return self.plan()(x, bias)

    def _row(self, name: str) -> tuple[typing.Any, ...]:
        """As save_checkpoint wants it."""
        return name, self.matrix._handle, self._lift
