# SPDX-License-Identifier: Apache-2.0
"""Checks and masks of dense matrices, and the steps of training in 2:4. Dense matrices are [n, k]
of f32, f16, bf16, i8, e4m3 or e5m2; masks are [n, k] of bool, True where a weight is kept."""
from __future__ import annotations

import typing

import numpy as np

from . import _core
from .arrays import operand, sides
from .matrix import Array, Matrix


class BadGroup(typing.NamedTuple):
    """The first group that is not 2:4."""
    row: int
    col: int  # the group's first column; along n the column
    nonzeros: int


def check(w: Array, along: str = "k") -> BadGroup | None:
    """None if w is 2:4 along "k" (rows) or "n" (columns), else the first group that is not."""
    if along not in ("k", "n"):
        raise ValueError(f"along {along!r}: expected 'k' or 'n'")
    bad = _core.check(operand(w), along == "n")
    return None if bad is None else BadGroup(*bad)


def magnitude_mask(w: Array, *, allow_nonfinite: bool = False) -> np.ndarray:
    """Exactly two a group, the largest; of equal ones the higher column."""
    mask = np.empty(sides(w, "w"), np.bool_)
    _core.magnitude_mask(mask, operand(w), allow_nonfinite)
    return mask


def tile_mask(w: Array, rule: str = "best", *, allow_nonfinite: bool = False) -> np.ndarray:
    """At most two of four along k and along n, by a rule for 4x4 tiles: "best", "greedy", "signed",
    "causal1122"."""
    mask = np.empty(sides(w, "w"), np.bool_)
    _core.tile_mask(mask, operand(w), rule, allow_nonfinite)
    return mask


def apply_mask(w: Array, mask: Array, *, out: Array | None = None) -> Array:
    """w where mask keeps it, else +0; out may be w itself."""
    out = np.empty_like(w) if out is None else out
    _core.mask_apply(operand(out), operand(w), mask)
    return out


def mask_flips(before: Array, after: Array) -> int:
    """In how many places only one of two masks keeps."""
    return _core.mask_flips(before, after)


def masked_decay(grad: np.ndarray, w: Array, mask: Array, decay: float) -> np.ndarray:
    """Adds decay·w to grad (f32, in place) where mask drops the weight: SR-STE."""
    _core.masked_decay(grad, operand(w), mask, decay)
    return grad


def soft_threshold(w: Array, scale: float = 1.0, *, out: Array | None = None,
                   mask: np.ndarray | None = None) -> Array:
    """scale·S(w): the two largest of each four less the third; mask, if given, is written."""
    out = np.empty_like(w) if out is None else out
    _core.soft_threshold(operand(out), mask, operand(w), scale)
    return out


def soft_threshold_scale(w: Array) -> float:
    """The scale that S-STE takes once and keeps: the least squares of w against S(w)."""
    return _core.soft_threshold_scale(operand(w))


def mvue24(w: Array, seed: int = 0) -> np.ndarray:
    """The random, unbiased 2:4 estimate of w, dense: Matrix.mvue24(w, seed).to_dense()."""
    return Matrix.mvue24(w, seed).to_dense()
