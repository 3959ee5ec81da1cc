# SPDX-License-Identifier: Apache-2.0
"""Models: a pass over tokens, and what a language model goes on with."""
from __future__ import annotations

import functools
import os
import threading
import typing

import numpy as np

from . import _core
from .arrays import Ids, expect_name, token_ids
from .checkpoint import Checkpoint
from .encoder import Progress
from .images import Image, ImageForm
from .ranks import Comm
from .reopen import Reopens
from .tokenizer import Tokenizer


PLUGIN = "SPARSE24_CUDA_PLUGIN"
OUTPUTS = ("hidden", "blocks", "embeddings", "start", "end", "logits")


def open_device(name: str | None) -> typing.Any:
    """The library's handle of a GPU, "cuda" or "cuda:1"; None for None and "cpu". Its plugin lies
    next to the library, or where SPARSE24_CUDA_PLUGIN says. Raises Error where there is none."""
    if name in (None, "cpu"):
        return None
    return _core.device_open(name, os.environ.get(PLUGIN))


def lay(texts: typing.Sequence[Ids]) -> tuple[np.ndarray, np.ndarray]:
    """Texts of ids laid end to end: offsets [texts + 1], ids."""
    rows = [token_ids(text) for text in texts]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([row.size for row in rows], out=offsets[1:])
    return offsets, np.concatenate(rows) if rows else np.empty(0, np.int32)


class Model(Reopens):
    """A model of a Hugging Face folder, planned for this machine. Calls of several threads wait for
    each other; `Model` of the same folder twice holds its weights twice."""

    def __init__(self, folder: str | os.PathLike, *, dtype: str | None = None, dense: bool = False,
                 sparse: bool = False, include: str | None = None, exclude: str | None = None,
                 all_sparse: bool = False, max_tokens: int = 4096, quantize: str | None = None,
                 quantize_head: str | None = None, layer_dtypes: str | None = None,
                 verify: bool = False, device: str | None = None, comm: Comm | None = None,
                 images: bool = False, progress: Progress | None = None):
        """dtype: "f32", "bf16" or "i8"; on a GPU "f16", "bf16", "i8" or "e4m3". sparse: pack dense
        weights that are 2:4 already, of the layers that include and exclude (globs) leave.
        max_tokens: the most of one pass. quantize, quantize_head: a scheme of Matrix.quantize, to
        which the blocks' weights and a language model's head are rounded as they are loaded (on the
        CPU). layer_dtypes: "GLOB=i8,GLOB=bf16": which layers run in 8 bits. verify:
        Checkpoint.verify comes first. device: "cuda", "cuda:1"; the CPU by default. comm: its ranks
        hold the model together ("mpi": on the CPU; "nccl": on the GPU that it has), each a share of
        its heads and layers: all load the same folder with the same options and make the same
        calls, with the same texts, and get the same bits. images: of a folder with a model of texts
        and one of images (CLIP) the second.
        Raises OSError, ValueError, TypeError, Error (a model type or a part that is not carried
        out, by its name)."""
        self._keep_call(locals())
        expect_name(quantize, "quantize", "schemes")
        expect_name(quantize_head, "quantize_head", "schemes")
        checkpoint = Checkpoint(folder)
        options = (dtype, dense, sparse, include, exclude, all_sparse, quantize, quantize_head,
                   layer_dtypes, verify, open_device(device), comm and comm._handle, images)
        self._handle = _core.model_load(checkpoint._handle, options, progress)
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self.folder = folder
        self.max_tokens = max_tokens
        self.info: dict = _core.model_info(self._handle)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer."""
        return Tokenizer(self.folder)

    @functools.cached_property
    def end_ids(self) -> list[int]:
        """The ids with which the model ends a text; empty where the folder does not say."""
        return _core.end_ids(self._checkpoint._handle)

    @functools.cached_property
    def _session(self) -> tuple:
        """A session, and the threads that it was made for."""
        return _core.session_create(self._handle, self.max_tokens), _core.session_threads()

    def forward(self, texts: typing.Sequence[Ids], *,
                types: typing.Sequence[Ids] | None = None,
                outputs: str | typing.Sequence[str] = ("hidden",)) -> dict[str, np.ndarray]:
        """A pass over texts of ids, laid end to end without padding: a dict of f32 arrays.

        outputs: "hidden" [tokens, width], "blocks" [layers + 1, tokens, width], "embeddings"
        [texts, width], "start" and "end" [tokens] (a head for questions), "logits" [tokens,
        vocabulary] (a language model) or [texts or tokens, classes] (a head that classifies).
        types: of every token, 0 if there are none.
        """
        offsets, ids = lay(texts)
        count, width = int(offsets[-1]), self.info["width"]
        shapes = {"hidden": (count, width), "blocks": (self.info["layers"] + 1, count, width),
                  "embeddings": (len(offsets) - 1, width), "start": (count,), "end": (count,),
                  "logits": (count, self.info["vocabulary"])}
        if self.info["classes"]:
            rows = count if self.info["classifies_tokens"] else len(offsets) - 1
            shapes["logits"] = (rows, self.info["classes"])
        outputs = (outputs,) if isinstance(outputs, str) else outputs
        unknown = set(outputs) - set(shapes)
        if unknown:
            raise ValueError(f"outputs {sorted(unknown)}: expected some of {list(shapes)}")
        arrays = {name: np.empty(shapes[name], np.float32) for name in outputs}
        flat_types = None if types is None else lay(types)[1]
        self.forward_into(offsets, ids, flat_types, arrays)
        return arrays

    @functools.cached_property
    def image_form(self) -> ImageForm:
        """How the model wants images, by the folder's preprocessor_config.json."""
        return ImageForm(_core.image_form(self.folder), self.info)

    def forward_images(self, pixels: np.ndarray | typing.Sequence[Image], *,
                       outputs: str | typing.Sequence[str] = ("logits",)) -> dict[str, np.ndarray]:
        """A pass over images [n, channels, side, side] of f32, normalised, or a list of images as
        Encoder.encode takes them: a dict of f32 arrays.

        outputs: "logits" [n, classes], "hidden" [n, positions, width], "embeddings" [n, width], as
        the model pools, of length 1. Raises ValueError (pixels that are no whole images; a model of
        texts), TypeError.
        """
        if isinstance(pixels, (list, tuple)):
            pixels = self.image_form.pixels(pixels)
        count = len(pixels)
        shapes = {"hidden": (count, self.info["positions"], self.info["width"]),
                  "logits": (count, self.info["classes"]),
                  "embeddings": (count, self.info["width"])}
        outputs = (outputs,) if isinstance(outputs, str) else outputs
        unknown = set(outputs) - set(shapes)
        if unknown:
            raise ValueError(f"outputs {sorted(unknown)}: expected some of {list(shapes)}")
        arrays = {name: np.empty(shapes[name], np.float32) for name in outputs}
        self.forward_images_into(pixels, arrays)
        return arrays

    def forward_images_into(self, pixels: typing.Any, outputs: dict[str, typing.Any]) -> None:
        """`forward_images` from and into memory that is there (of the model's device, too)."""
        with self._lock:
            _core.session_images(*self._session, self._handle, pixels, outputs.get("hidden"),
                                 outputs.get("logits"), outputs.get("embeddings"))

    def forward_into(self, offsets: np.ndarray, ids: np.ndarray, types: np.ndarray | None,
                     outputs: dict[str, typing.Any], *, mask: np.ndarray | None = None) -> None:
        """`forward` of texts that are laid end to end, into memory that is there (of the model's
        device, too), by the names of its outputs. mask: u8, of every token; none attends to one
        whose mask is 0."""
        with self._lock:
            _core.session_forward(*self._session, self._handle, offsets, ids, types, mask,
                                  tuple(outputs.get(name) for name in OUTPUTS))

    def enqueue(self, inputs: typing.Sequence[typing.Any], outputs: dict[str, typing.Any],
                stream: int, *, offsets: np.ndarray | None = None) -> None:
        """A pass of a model on a GPU between what is in a stream and what comes there later. inputs
        (ids, types, mask, pixels) and outputs ("hidden" in f16 of a model of f16, else bf16;
        "start", "end", "logits" in f32) are there; offsets, of texts, are on the host. It waits for
        nothing once it has met a number of tokens, if texts have the lengths of the pass before."""
        given = (*inputs, *(None,) * (4 - len(inputs)))
        with self._lock:
            _core.session_enqueue(self._session[0], self._handle, offsets, given,
                                  tuple(outputs.get(name)
                                        for name in ("hidden", "start", "end", "logits")), stream)

    def perplexity(self, ids: Ids, *, window: int = 0,
                   stride: int = 0) -> float:
        """exp of the mean loss of each next token of a long text of ids, in windows of at most
        `window` tokens (default: the model's positions) that begin `stride` apart (default: no
        overlap); a token counts once, with all of its window before it. Raises ValueError (fewer
        than two ids, windows of one token or that leave some out)."""
        ids = token_ids(ids)
        if len(ids) < 2:
            raise ValueError(f"a text of {len(ids)} tokens has none to predict: expected 2 or more")
        window = min(window or self.info["positions"], self.max_tokens)
        stride = stride or window
        if window < 2 or not 1 <= stride <= window:
            raise ValueError(f"windows of {window} tokens, {stride} apart: expected 2 tokens or "
                             "more, and at most as many apart")
        total, counted, done = 0.0, 0, 1
        for begin in range(0, len(ids) - 1, stride):
            end = min(begin + window, len(ids))
            logits = self.forward([ids[begin:end]], outputs=("logits",))["logits"]
            first = max(done - begin, 1)
            rows = logits[first - 1:end - begin - 1].astype(np.float64)
            top = rows.max(axis=1)
            logs = np.log(np.exp(rows - top[:, None]).sum(axis=1)) + top
            total += float((logs - rows[np.arange(len(rows)), ids[begin + first:end]]).sum())
            counted += len(rows)
            done = end
            if end == len(ids):
                break
        return float(np.exp(total / counted))
