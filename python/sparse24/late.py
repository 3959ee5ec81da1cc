# SPDX-License-Identifier: Apache-2.0
"""Late interaction (ColBERT): a vector for each token of a text."""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core
from .encoder import Encoder, Progress
from .matrix import Array
from .program import Path
from .vectors import stored

VECTORS = 1 << 15  # that there is room for at once


class MultiVectorEncoder(Encoder):
    """An encoder of a folder of late interaction: PyLate's, Stanford's ColBERT's, or what
    sentence-transformers' class of this name writes. Texts are queries or documents, by the prompt
    "query" or "document", which is the default."""

    def __init__(self, folder: str | os.PathLike, **options):
        """Options as Encoder's, but pooling, dimensions, ids, images, device and comm. Raises
        ValueError for a folder whose model gives a vector for each text, what Encoder raises."""
        super().__init__(folder, images=False, **options)

    def _open(self, handle: typing.Any):
        super()._open(handle)
        late, self._by_mean, _ = _core.encoder_late(handle)
        if not late:
            raise ValueError("the folder's model gives a vector for each text: Encoder opens it")

    def encode(self, sentences, prompt_name: str | None = None,  # type: ignore[override]
               prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, *, convert_to_numpy: bool = True,
               convert_to_tensor: bool = False, progress: Progress | None = None):
        """A list of arrays [vectors, width] of f32 in the order of the texts; the array of a single
        text. Arguments as Encoder.encode's. Raises TypeError, ValueError (no such prompt), Error,
        KeyboardInterrupt."""
        del batch_size, show_progress_bar, convert_to_numpy
        single = isinstance(sentences, str)
        texts = (sentences,) if single else tuple(sentences)
        found: list[typing.Any] = []
        with self._lock, self._prompted(prompt_name, prompt):
            most = _core.encoder_late(self._handle)[2]
            piece = max(VECTORS // most, 1)
            for at in range(0, len(texts), piece):
                found += self._embed(texts[at:at + piece], most, progress)
        if convert_to_tensor:
            import torch  # pylint: disable=import-outside-toplevel
            found = [torch.from_numpy(one) for one in found]
        return found[0] if single else found

    def _embed(self, texts, most, progress):
        out = np.empty((len(texts) * most, self.width), np.float32)
        offsets = np.empty(len(texts) + 1, np.int64)
        _core.encoder_embed_tokens(self._handle, self._threads, out, offsets, texts, progress)
        return [out[begin:end].copy() for begin, end in zip(offsets, offsets[1:])]

    def similarity(self, one, two) -> np.ndarray:  # type: ignore[override]
        """Scores [n, m] of n queries' and m documents' vectors, as the folder says: MaxSim, or that
        divided by the number of the query's."""
        return max_sim(one, two, by_mean=self._by_mean)


def max_sim(queries: typing.Sequence[Array], documents: typing.Sequence[Array], *,
            by_mean: bool = False) -> np.ndarray:
    """Scores [n, m]: the sum, over the vectors of query n, of the largest dot product with one of
    document m's; by_mean: divided by their number. Each is an array [vectors, width]; documents may
    be f16. Raises ValueError, TypeError."""
    (one, starts), (two, ends) = _laid(queries, np.float32), _laid(documents, None)
    scores = np.zeros((len(queries), len(documents)), np.float32)
    if scores.size:
        _core.late_scores(scores, one, starts, two, ends, by_mean)
    return scores


class TokenIndex:
    """Vectors of documents' tokens, f16. Any number of threads may use one."""

    def __init__(self, documents: typing.Sequence[Array], *, by_mean: bool = False):
        """documents: arrays [vectors, width] as MultiVectorEncoder gives them, copied. by_mean:
        scores are divided by the number of the query's vectors. Raises ValueError, TypeError."""
        vectors, offsets = _laid(documents, None)
        self.vectors: np.ndarray = vectors.astype(np.float16)  #: [vectors, width]
        self.offsets: np.ndarray = offsets  #: [n + 1]: where each document's begin
        self.by_mean = by_mean

    @classmethod
    def load(cls, folder: Path) -> TokenIndex:
        """The vectors of a folder that `search` keeps with index= for a model of late interaction,
        mapped, in the order of its file of documents. Raises OSError, ValueError (files that do not
        fit together, an update that did not end, or an index of something else)."""
        about, part = stored(folder)
        if "vectors" not in about:
            raise ValueError(f"{os.fspath(folder)}: it is no index of vectors of tokens")
        index = cls.__new__(cls)
        index.vectors, index.by_mean = part("vectors.npy"), about["by_mean"]
        index.offsets = part("starts.npy").reshape(-1)
        found = [(each.shape, each.dtype) for each in (index.vectors, index.offsets)]
        if found != [((about["vectors"], about["width"]), np.float16),
                     ((about["count"] + 1,), np.int64)]:
            raise ValueError(f"{os.fspath(folder)}: arrays are not those of index.json")
        return index

    def __len__(self):
        return len(self.offsets) - 1

    def nearest(self, queries: typing.Sequence[Array], k: int = 10
                ) -> tuple[np.ndarray, np.ndarray]:
        """(indices, scores) [queries, k] of the documents with the highest scores, best first; of
        equal ones the lower index. queries: arrays [vectors, width]. Raises ValueError,
        TypeError."""
        vectors, starts = _laid(queries, np.float32)
        scores = np.zeros((len(queries), len(self)), np.float32)
        if scores.size:
            _core.late_scores(scores, vectors, starts, self.vectors, self.offsets, self.by_mean)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return best, np.take_along_axis(scores, best, 1)


def _laid(texts, dtype):
    """Texts' vectors end to end, and where each begins."""
    arrays = [np.asarray(text) for text in texts]
    for one in arrays:
        if one.ndim != 2:
            raise ValueError(f"a text's vectors are an array [vectors, width], not {[*one.shape]}; "
                             "one text is a list of one")
    half = dtype is None and bool(arrays) and all(one.dtype == np.float16 for one in arrays)
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in arrays]))).astype(np.int64)
    if not arrays:
        return np.empty((0, 1), np.float32), offsets
    return np.ascontiguousarray(np.concatenate(arrays),
                                np.float16 if half else np.float32), offsets
