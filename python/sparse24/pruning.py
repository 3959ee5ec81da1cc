# SPDX-License-Identifier: Apache-2.0
"""Pruning after training: a matrix by the statistics of its inputs, or a whole model."""
from __future__ import annotations

import os
import threading
import typing

import numpy as np

from . import _core
from .arrays import expect_name, handle_of, operand, several, sides, view
from .matrix import Array, Matrix
from .model import open_device
from .ranks import Comm


def criteria() -> list[str]:
    """The criteria of this build: "magnitude", "wanda", "sparsegpt", "tile-best" …"""
    return _core.names("criteria")


def patterns() -> list[str]:
    """The patterns of this build, as they are written: "N:M", "unstructured:SHARE" …"""
    return _core.names("patterns")


def refinements() -> list[str]:
    """What can follow a criterion: "swaps", "least-squares", "all"."""
    return _core.names("refinements")


class Stats:
    """What a criterion wants of a layer's inputs: the k x k Gram matrix of any number of calls."""

    def __init__(self, k: int):
        self._k = k
        self._handle = _core.stats_create(k)
        self._lock = threading.Lock()

    def add(self, x: Array) -> Stats:
        """Adds inputs [tokens, k] of f32; returns itself."""
        with self._lock:
            _core.stats_add(self._handle, operand(x))
        return self

    def add_up(self, comm: Comm) -> Stats:
        """Adds the inputs of all ranks, which all call it; returns itself. Raises OSError (a rank
        that is gone), as Comm.sum does."""
        with self._lock:
            gram, inputs = _core.stats_sums(self._handle)
            count = view(inputs, (1,), np.int64, None, writable=True)
            count[:] = comm.sum(count.astype(np.float64))
            comm.sum(view(gram, (self._k, self._k), np.float64, None, writable=True))
        return self

    def error(self, w: Array, after: Array) -> float:
        """The error of a layer's outputs over these inputs with `after` in place of w, both [n, k]
        f32: ‖X(W−Ŵ)ᵀ‖² / ‖XWᵀ‖². Raises ValueError, TypeError, Error (not finite)."""
        with self._lock:
            return _core.stats_error(self._handle, operand(w), operand(after))


class Pruned(typing.NamedTuple):
    """What `prune` gives."""
    weight: np.ndarray   # f32, of the pattern
    kept_l1: float       # Σ|ŵ| / Σ|w|
    output_error: float | None  # ‖X(W−Ŵ)ᵀ‖² / ‖XWᵀ‖² over the inputs; None without stats


class WeightGradients(typing.NamedTuple):
    """What examples say of a weight [n, k]: means over them, f32."""
    mean: np.ndarray    # of its loss's gradient
    size: np.ndarray    # of that one's magnitude
    square: np.ndarray  # of its square


class ScoreInputs(typing.NamedTuple):
    """What a criterion of your own sees; read-only, and gone when it returns."""
    w: np.ndarray             # [n, k] f32
    norms: np.ndarray | None  # [k] f64: of the layer's inputs, column by column
    gram: np.ndarray | None   # [k, k] f64: the inputs' Gram matrix, its lower triangle
    seed: int
    gradients: WeightGradients | None = None


#: Scores [n, k] of what it is shown; of each group what is larger stays.
Score = typing.Callable[[ScoreInputs], Array]
Criterion = typing.Union[str, Score]


def _scoring(score: Score) -> typing.Callable[..., None]:
    """A function of addresses of one that works on arrays."""
    def call(rows, cols, w, norms, gram, slopes, seed, scores):
        slopes = WeightGradients(*(view(each, (rows, cols), np.float32, None)
                                   for each in slopes)) if slopes[0] else None
        seen = ScoreInputs(view(w, (rows, cols), np.float32, None),
                           view(norms, (cols,), np.float64, None) if norms else None,
                           view(gram, (cols, cols), np.float64, None) if gram else None, seed,
                           slopes)
        given = np.asarray(score(seen), np.float64)
        if given.shape != (rows, cols):
            raise ValueError(f"the criterion gave {list(given.shape)}, expected [{rows}, {cols}]")
        view(scores, (rows, cols), np.float64, None, writable=True)[:] = given
    return call


def _how(criterion: Criterion, dampening: float, block: int, refine: str | None,
         pattern: str | None, seed: int) -> tuple:
    expect_name(criterion, "criterion", "criteria")
    own = _scoring(criterion) if callable(criterion) else None
    return (None if own else criterion, dampening, block, refine, pattern, seed, own)


def prune(w: Array, criterion: Criterion = "magnitude", inputs: Stats | Array | None = None, *,
          pattern: str | None = None, refine: str | None = None, dampening: float = 0.0,
          block: int = 0, seed: int = 0, gradients: WeightGradients | None = None,
          out: np.ndarray | None = None) -> Pruned:
    """Makes w [n, k] of f32 2:4, or of another of `patterns`, by a criterion; w stays as it is
    unless it is out.

    criterion: one of `criteria`, or a function of ScoreInputs that gives scores [n, k]. inputs:
    Stats of the layer, or one array [tokens, k] of f32; `wanda`, `sparsegpt` and others need them,
    and so does refine, which names `refinements` separated by commas. dampening (0.01) and block
    (128 columns) are of those that use the Gram matrix, seed is of "random"; gradients [n, k] are
    needed by "movement", "snip", "taylor-first" and "taylor-second".
    Raises ValueError (what does not go together, by name), TypeError, and Error: not finite, or the
    Gram matrix has no factor. On an error out is unchanged.
    """
    if out is None:
        out = np.array(w, np.float32)
    elif out is not w:
        np.copyto(out, w)
    if inputs is not None and not isinstance(inputs, Stats):
        inputs = Stats(sides(out, "w", 2)[1]).add(inputs)
    handle = None if inputs is None else inputs._handle
    kept, error = _core.prune(out, handle, _how(criterion, dampening, block, refine, pattern, seed),
                              gradients)
    return Pruned(out, kept, None if error < 0 else error)


class Factors(typing.NamedTuple):
    """What `low_rank` gives."""
    left: np.ndarray            # [n, rank] f32, columns orthonormal
    right: np.ndarray           # [rank, k] f32
    output_error: float | None  # of pruned + left @ right, as Pruned has it


def low_rank(w: Array, rank: int, pruned: Array | None = None,
             inputs: Stats | Array | None = None, *, dampening: float = 0.0,
             seed: int = 0) -> Factors:
    """Factors of a rank whose product, added to pruned [n, k], comes nearest to w [n, k], f32.

    pruned: None for a product in place of w. inputs: as `prune` has them; then it is the outputs
    that come near, else the weights. dampening (0.01) is of the inputs' Gram matrix, seed of the
    subspace that the search begins with. Raises ValueError (a rank beyond n or k, shapes),
    TypeError, and Error (not finite).
    """
    w = np.asarray(w, np.float32)
    if w.ndim != 2:
        raise ValueError(f"w has {w.ndim} dimensions, expected [n, k]")
    if not 1 <= rank <= min(w.shape):
        raise ValueError(f"rank {rank}: expected 1 to {min(w.shape)}, the smaller side of w")
    if inputs is not None and not isinstance(inputs, Stats):
        inputs = Stats(w.shape[1]).add(inputs)
    left, right = np.empty((w.shape[0], rank), np.float32), np.empty((rank, w.shape[1]), np.float32)
    error = _core.low_rank(left, right, w, None if pruned is None else operand(pruned),
                           None if inputs is None else inputs._handle, rank, dampening, seed)
    return Factors(left, right, None if error < 0 else error)


def prune_scores(w: Array, criterion: Criterion = "magnitude",
                 inputs: Stats | Array | None = None, *, seed: int = 0,
                 gradients: WeightGradients | None = None) -> np.ndarray:
    """What a criterion gives each weight, [n, k] of f64, of which the largest would stay. Raises
    what `prune` does, and Error for one that chooses weights together."""
    w = np.ascontiguousarray(w, np.float32)
    scores = np.empty(w.shape, np.float64)
    if inputs is not None and not isinstance(inputs, Stats):
        inputs = Stats(sides(w, "w", 2)[1]).add(inputs)
    _core.prune_scores(scores, w, None if inputs is None else inputs._handle,
                       _how(criterion, 0.0, 0, None, None, seed), gradients)
    return scores


def round_matrix(matrix: Matrix, inputs: Stats | Array, scheme: str = "int8", *,
                 target: Array | None = None,
                 dampening: float = 0.0) -> tuple[Matrix, float]:
    """Matrix.quantize by a layer's inputs: (a matrix of the scheme's integers, its output error).
    Integers and scales move to where the outputs over the inputs differ least from those of target
    [n, k] of f32, which is the matrix itself by default. Raises ValueError, TypeError, Error."""
    source = handle_of(matrix, "matrix", Matrix)
    if not isinstance(inputs, Stats):
        inputs = Stats(matrix.shape[1]).add(inputs)
    handle, _, error = _core.matrix_round(source, scheme, inputs._handle, target, dampening)
    return Matrix(handle), error


class Layer(typing.NamedTuple):
    """A layer that `prune_model` has done, or `sensitivity` has tried."""
    name: str
    rows: int
    cols: int
    kept_l1: float
    output_error: float  # −1: not measured
    seconds: float
    pattern: str  # or, of `sensitivity`, what it was tried as
    #: layers that `sensitivity` gives the same number read the same input, and run as one product
    #: where they are alike; −1: not known
    input: int
    #: of `sensitivity` with price="model": how far what the model gives moves with this layer alone
    #: so, of texts' vectors their cosines to the nearest ones, else its states; −1: not measured
    model_error: float = -1.0


Path = typing.Union[str, os.PathLike]
Passages = typing.Iterable[typing.Any]  # of str, or each a sequence of token ids
Report = typing.Callable[[Layer], object]
Progress = typing.Callable[[str, int, int], object]


def _passages(model: Path, texts: Passages, images: Array | None) -> tuple:
    rows = tuple(text for text in several(texts, "texts")
                 if not isinstance(text, str) or text.strip())
    if images is not None:
        if rows:
            raise ValueError("texts and images exclude each other")
        return _images(model, np.ascontiguousarray(images, np.float32))
    if not rows or isinstance(rows[0], str):
        return rows
    from .model import lay  # pylint: disable=import-outside-toplevel
    return lay(rows)


def _images(model: Path, pixels: np.ndarray) -> tuple:
    info = _core.transformer_peek(_core.checkpoint_open(model))
    if not info["image"]:
        from .model import Model  # pylint: disable=import-outside-toplevel
        try:
            info = Model(model, images=True).info
        except _core.Error as error:
            raise ValueError(f"a model of type '{info['model_type']}' reads texts, and images "
                             "were given") from error
    side, channels = info["image"], info["channels"]
    if pixels.shape != (len(pixels), channels, side, side):
        raise ValueError(f"images {pixels.shape}: expected [n, {channels}, {side}, {side}]")
    return pixels.reshape(len(pixels), -1), len(pixels)


def _collecting(report: Report | None) -> tuple[list[Layer], typing.Callable[..., None]]:
    layers: list[Layer] = []

    def on_layer(*row):
        layers.append(Layer(*row))
        if report:
            report(layers[-1])
    return layers, on_layer


def prune_model(model: Path, out: Path, criterion: Criterion = "magnitude", *,
                texts: Passages = (), images: Array | None = None, pattern: str | None = None,
                refine: str | None = None, reconstruct: int = 0, include: str | None = None,
                exclude: str | None = None, dtype: str | None = None, packed: bool = False,
                quantize: str | None = None, masks: Path | None = None, masks_only: bool = False,
                gradients: typing.Any = None, scope: str = "local", normalize: bool = False,
                low_rank: str | int | None = None, device: str | None = None,
                keep: Path | None = None, aim: str = "weights", comm: Comm | None = None,
                force: bool = False, max_tokens: int = 0, dampening: float = 0.0, block: int = 0,
                seed: int = 0, report: Report | None = None,
                progress: Progress | None = None) -> list[Layer]:
    """Prunes a Hugging Face folder into a new one at `out`; returns its layers.

    criterion, pattern, refine, dampening, block, seed: as `prune` has them. texts: passages to
    calibrate with, str or token ids, for `wanda`, `sparsegpt` and others; images: of a model of
    images, in their place, [n, channels, side, side], normalised; of one that embeds both its tower
    for them is calibrated. reconstruct: steps of training
    for each half of a block after its layers are pruned, towards the dense model's states, without
    labels. device: "cuda" runs the texts in bf16, and the products of what prunes; else the CPU
    does. keep: a folder in which each block is kept as it is done: a run of the same that was
    stopped goes on after those, to the same bits, and the folder goes. aim: before a layer is
    pruned it comes near, on the pruned model's inputs, to what the dense model's layer gives on its
    own ("outputs"), or to that and what states lack of the dense model's ("states"), as far as that
    holds on the last eighth of the texts. comm: its ranks prune the model together, each with its
    share of the texts; rank 0 writes, and all come back once it has. include, exclude: globs over
    names; by default the linear layers inside the blocks. packed: write the 2:4 weights packed;
    quantize: and as integers of a scheme. masks: a file of masks, MaskLLM's too, of any form
    without a pattern, in place of a criterion; masks_only: `out` is such a file and nothing else.
    gradients: of training.gradients, for criteria that need them. scope="global": the share of a
    pattern unstructured:SHARE is of all layers together, each layer's scores divided by their mean
    with normalize. low_rank: the rank of factors next to each packed weight, or "bytes=SHARE" of
    its dense bytes.
    report is called with each layer, progress with (stage, done, total); if that returns something
    true, or Ctrl-C is pressed, KeyboardInterrupt is raised and nothing is left.
    Raises ValueError, OSError, Error.
    """
    if scope not in ("local", "global"):
        raise ValueError(f"scope {scope!r}: expected local or global")
    expect_name(quantize, "quantize", "schemes")
    layers, on_layer = _collecting(report)
    how = _how(criterion, dampening, block, refine, pattern, seed)
    chosen = None if masks is None else _core.masks_open(masks)
    written = (include, exclude, dtype, packed, force, max_tokens, quantize, reconstruct, chosen,
               masks_only, gradients, scope == "global", normalize,
               None if low_rank is None else str(low_rank), open_device(device),
               None if keep is None else os.fspath(keep), aim,
               None if comm is None else comm._handle)
    _core.model_prune(_core.checkpoint_open(model), out, _passages(model, texts, images), on_layer,
                      progress, how, written)
    return layers


def permute_model(model: Path, out: Path, *, texts: Passages = (), images: Array | None = None,
                  include: str | None = None, exclude: str | None = None, force: bool = False,
                  max_tokens: int = 0, progress: Progress | None = None) -> None:
    """Writes a folder's model with channels between its layers in another order, one in which 2:4
    keeps more |w|, with texts or images, as `prune_model` has them, times the norm of its input. It
    gives the same but for the order of sums, and is what `prune_model` then takes. include,
    exclude: globs of the layers whose columns move. Raises ValueError, FileExistsError unless
    force, OSError, Error, KeyboardInterrupt."""
    _core.model_permute(_core.checkpoint_open(model), out, _passages(model, texts, images),
                        max_tokens, include, exclude, force, progress)


def sensitivity(model: Path, texts: Passages = (), patterns: str | typing.Sequence[str] = "2:4",
                criterion: Criterion = "sparsegpt", *, images: Array | None = None,
                refine: str | None = None, include: str | None = None, exclude: str | None = None,
                max_tokens: int = 0, dampening: float = 0.0, block: int = 0, seed: int = 0,
                price: str = "layer", memory: int = 0, report: Report | None = None,
                progress: Progress | None = None) -> list[Layer]:
    """What each pattern would cost each linear layer of a model's blocks by itself, on the inputs
    that the dense model gives for texts or images, as `prune_model` has them: a Layer for each of
    both, with its output_error. Integers stand for patterns, too: "int8" rounds all weights,
    "2:4+int8" what stays. Nothing is written. A pattern that does not fit a layer is left out
    there. price="model" measures the model_error, too, which takes a pass from the layer's block
    on for each layer, and the weights of all blocks in f32, at most `memory` bytes, by default nine
    tenths of what is free; "model-or-layer" measures it where they stay within that.
    Raises ValueError (neither, an unknown pattern or price), MemoryError (they take more), OSError,
    Error, KeyboardInterrupt."""
    layers, on_layer = _collecting(report)
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    _core.model_sensitivity(_core.checkpoint_open(model), _passages(model, texts, images), on_layer,
                            progress, _how(criterion, dampening, block, refine, None, seed),
                            tuple(patterns), include, exclude, max_tokens, price, memory)
    return layers
