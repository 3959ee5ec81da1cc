# SPDX-License-Identifier: Apache-2.0
"""Texts to embeddings, called as sentence-transformers' are."""
from __future__ import annotations

import os
import threading
import typing

import numpy as np

from . import _core
from .matrix import Array
from .ranks import Comm

Progress = typing.Callable[[str, int, int], object]


class Encoder:
    """A sentence encoder of a Hugging Face folder: tokenizes, runs, pools and normalises as its
    files say. Calls of several threads wait for each other; `share` gives each its own."""

    def __init__(self, folder: str | os.PathLike, *, dtype: str | None = None, dense: bool = False,
                 sparse: bool = False, all_sparse: bool = False, max_tokens: int = 0,
                 batch_tokens: int = 0, prompt_name: str | None = None,
                 device: str | None = None, pooling: str | None = None, dimensions: int = 0,
                 ids: bool = False, layer_dtypes: str | None = None, verify: bool = False,
                 comm: Comm | None = None, progress: Progress | None = None):
        """dtype: "f32", "bf16" or "i8"; on a GPU (device="cuda") "f16", "bf16", "i8" or "e4m3".
        dense: multiply packed weights as dense ones. sparse: pack
        what is 2:4 already. all_sparse: run 2:4 even where dense is faster. max_tokens: of a text;
        by default the model's. batch_tokens: the most of one pass, default 4096. pooling: "mean",
        "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len" in place of what the folder says.
        dimensions: so many numbers of each embedding, its first (Matryoshka); 0: all. ids: texts
        come by encode_ids alone, and the folder needs no tokenizer.
        layer_dtypes, verify, comm: as Model has them.
        Raises OSError, ValueError, Error (what the model has that is not carried out)."""
        from .model import open_device  # pylint: disable=import-outside-toplevel,cyclic-import
        options = (dtype, dense, sparse, None, None, all_sparse, None, None, layer_dtypes,
                   verify, open_device(device), comm and comm._handle)
        self._open(_core.encoder_open(folder, options, prompt_name, max_tokens, batch_tokens, ids,
                                      False, pooling, dimensions, progress))

    def _open(self, handle: typing.Any):
        self._handle = handle
        self._threads = _core.session_threads()
        self._lock = threading.Lock()
        self.info: dict = _core.encoder_info(handle)
        self.prompts: dict[str, str]
        self.prompts, self._prompt, _ = _core.encoder_prompts(handle)

    @property
    def width(self) -> int:
        """Elements of an embedding."""
        return self.info["width"]

    def get_sentence_embedding_dimension(self) -> int:
        """Elements of an embedding, by the name that sentence-transformers has for it."""
        return self.width

    def share(self) -> Encoder:
        """Another encoder on the same weights, for another thread."""
        other = Encoder.__new__(Encoder)
        with self._lock:
            other._open(_core.encoder_share(self._handle))
        return other

    def encode(self, sentences: str | typing.Sequence[str], prompt_name: str | None = None,
               prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, *, convert_to_numpy: bool = True,
               convert_to_tensor: bool = False, normalize_embeddings: bool = False,
               progress: Progress | None = None) -> np.ndarray:
        """Embeddings [n, width] of f32 in the order of the texts; [width] of a single text.

        prompt_name: one of the folder's prompts; prompt: a text of your own, before every text.
        normalize_embeddings: to length 1, also where the folder does not say so.
        convert_to_tensor: a tensor of PyTorch instead. progress is called with (stage, done, total)
        and may stop by returning something true. batch_size, show_progress_bar and convert_to_numpy
        are there for callers of sentence-transformers and change nothing: batches go by tokens.
        Raises TypeError, ValueError (no such prompt), KeyboardInterrupt.
        """
        del batch_size, show_progress_bar, convert_to_numpy
        single = isinstance(sentences, str)
        texts = (sentences,) if single else tuple(sentences)
        out = np.empty((len(texts), self.width), np.float32)
        with self._lock:
            if prompt is not None or prompt_name is not None:
                _core.encoder_prompt(self._handle, prompt_name, prompt)
            try:
                if texts:
                    _core.encoder_embed(self._handle, self._threads, out, texts, progress)
            finally:
                if prompt is not None or prompt_name is not None:
                    _core.encoder_prompt(self._handle, None, self._prompt)
        if normalize_embeddings:
            out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
        out = out[0] if single else out
        if not convert_to_tensor:
            return out
        import torch  # pylint: disable=import-outside-toplevel
        return torch.from_numpy(out)

    def encode_ids(self, texts: typing.Sequence[typing.Sequence[int]], *,
                   progress: Progress | None = None) -> np.ndarray:
        """Embeddings [n, width] of f32 of texts of token ids as they are: nothing is put around
        them, and of a longer one than max_tokens the first are taken. Raises ValueError (an id out
        of range, a text without one)."""
        from .model import lay  # pylint: disable=import-outside-toplevel,cyclic-import
        offsets, ids = lay(texts)
        out = np.empty((len(offsets) - 1, self.width), np.float32)
        if len(out):
            with self._lock:
                _core.encoder_embed_ids(self._handle, self._threads, out, offsets, ids, progress)
        return out

    def encode_query(self, sentences: str | typing.Sequence[str], **options) -> np.ndarray:
        """encode with the folder's prompt "query", where it has one."""
        return self.encode(sentences, "query" if "query" in self.prompts else None, **options)

    def encode_document(self, sentences: str | typing.Sequence[str], **options) -> np.ndarray:
        """encode with the folder's prompt "document" or "passage", where it has one."""
        names = [name for name in ("document", "passage") if name in self.prompts]
        return self.encode(sentences, names[0] if names else None, **options)

    @staticmethod
    def similarity(one: Array, two: Array) -> np.ndarray:
        """Cosines [n, m] of embeddings [n, width] and [m, width]."""
        def unit(x):
            x = np.atleast_2d(np.asarray(x, np.float32))
            return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return unit(one) @ unit(two).T


def nearest(queries: Array, documents: Array, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """(indices, scores) [queries, k] of the documents with the largest dot products, best first; of
    equal ones the lower index."""
    k = min(k, documents.shape[0])
    indices = np.empty((queries.shape[0], k), np.int64)
    scores = np.empty((queries.shape[0], k), np.float32)
    _core.nearest(indices, scores, queries, documents)
    return indices, scores


def retrieval_accuracy(queries: Array, documents: Array, gold: Array, k: int = 1) -> float:
    """The share of queries whose gold document is among the best k."""
    return _core.retrieval_accuracy(queries, documents, np.asarray(gold, np.int64), k)
