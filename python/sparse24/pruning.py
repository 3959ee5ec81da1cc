# SPDX-License-Identifier: Apache-2.0
"""Pruning after training: a matrix by the statistics of its inputs, or a whole model."""
from __future__ import annotations

import os
import threading
import typing

import numpy as np

from . import _core
from .arrays import operand
from .matrix import Array


def criteria() -> list[str]:
    """The criteria of this build: "magnitude", "wanda", "sparsegpt", "tile-best" …"""
    return _core.names("criteria")


class Stats:
    """What a criterion wants of a layer's inputs: the k x k Gram matrix of any number of calls."""

    def __init__(self, k: int):
        self._handle = _core.stats_create(k)
        self._lock = threading.Lock()

    def add(self, x: Array) -> Stats:
        """Adds inputs [tokens, k] of f32; returns itself."""
        with self._lock:
            _core.stats_add(self._handle, operand(x))
        return self


class Pruned(typing.NamedTuple):
    """What `prune` gives."""
    weight: np.ndarray   # f32, 2:4
    kept_l1: float       # Σ|ŵ| / Σ|w|
    output_error: float | None  # ‖X(W−Ŵ)ᵀ‖² / ‖XWᵀ‖² over the inputs; None without stats


def prune(w: Array, criterion: str = "magnitude", inputs: Stats | Array | None = None, *,
          dampening: float = 0.0, block: int = 0, out: np.ndarray | None = None) -> Pruned:
    """Makes w [n, k] of f32 2:4 by a criterion; w stays as it is unless it is out.

    inputs: Stats of the layer, or one array [tokens, k] of f32; `wanda` and `sparsegpt` need them.
    dampening (0.01) and block (128 columns) are sparsegpt's.
    Raises ValueError, TypeError, and Error: not finite, or the Gram matrix has no factor.
    """
    if out is None:
        out = np.array(w, np.float32)
    elif out is not w:
        np.copyto(out, w)
    if inputs is not None and not isinstance(inputs, Stats):
        inputs = Stats(out.shape[1]).add(inputs)
    handle = None if inputs is None else inputs._handle
    kept, error = _core.prune(out, handle, criterion, dampening, block)
    return Pruned(out, kept, None if error < 0 else error)


class Layer(typing.NamedTuple):
    """A layer that `prune_model` has done."""
    name: str
    rows: int
    cols: int
    kept_l1: float
    output_error: float  # −1: not measured
    seconds: float


def prune_model(model: str | os.PathLike, out: str | os.PathLike, criterion: str = "magnitude", *,
                texts: typing.Iterable[str] = (), include: str | None = None,
                exclude: str | None = None, dtype: str | None = None, packed: bool = False,
                force: bool = False, max_tokens: int = 0, dampening: float = 0.0, block: int = 0,
                report: typing.Callable[[Layer], object] | None = None,
                progress: typing.Callable[[str, int, int], object] | None = None) -> list[Layer]:
    """Prunes a Hugging Face folder into a new one at `out`; returns its layers.

    texts: passages to calibrate with, for `wanda` and `sparsegpt`. include, exclude: globs over
    names; by default the linear layers inside the blocks. packed: write the 2:4 weights packed.
    report is called with each layer, progress with (stage, done, total); if that returns something
    true, or Ctrl-C is pressed, KeyboardInterrupt is raised and nothing is left.
    """
    layers: list[Layer] = []

    def on_layer(*row):
        layers.append(Layer(*row))
        if report:
            report(layers[-1])

    options = (criterion, dampening, block, include, exclude, dtype, packed, force, max_tokens)
    _core.model_prune(_core.checkpoint_open(model), out, tuple(texts), on_layer, progress, options)
    return layers
