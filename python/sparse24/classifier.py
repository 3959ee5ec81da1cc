# SPDX-License-Identifier: Apache-2.0
"""Heads that classify: of texts, of pairs of texts (rerankers), of tokens."""
from __future__ import annotations

import os
import threading
import typing

import numpy as np

from . import _core
from .arrays import several
from .encoder import Progress
from .reopen import Reopens


class Tag(typing.NamedTuple):
    """A token of `Classifier.tag`."""
    id: int
    begin: int          # code points of the text; both 0 for what stands around it
    end: int
    label: str          # the likeliest
    logits: np.ndarray  # [classes] f32


class Classifier(Reopens):
    """A model of a Hugging Face folder with the head that it was trained for. Calls of several
    threads wait for each other."""

    def __init__(self, folder: str | os.PathLike, *, dtype: str | None = None, dense: bool = False,
                 sparse: bool = False, all_sparse: bool = False, max_tokens: int = 0,
                 batch_tokens: int = 0, verify: bool = False,
                 progress: Progress | None = None):
        """Options as Encoder's. Raises OSError, ValueError, Error (no head that classifies)."""
        self._keep_call(locals())
        options = (dtype, dense, sparse, None, None, all_sparse, None, None, None, verify, None,
                   None)
        self._handle = _core.encoder_open(folder, options, None, max_tokens, batch_tokens, False,
                                          True, 0, None, 0, progress)
        self._threads, self._lock = _core.session_threads(), threading.Lock()
        self.labels: list[str]       #: the classes' names
        self.of_tokens: bool         #: classes are of tokens: `tag`
        self.several: bool           #: a text may have several classes, or none
        self.plain: bool             #: a reranker's score is its logit, not the logit's sigmoid
        (self.labels, self.of_tokens, self.several, self.max_tokens,
         self.plain) = _core.encoder_head(self._handle)

    def logits(self, texts: str | typing.Sequence[str],
               pairs: typing.Sequence[str] | None = None) -> np.ndarray:
        """[n, classes] of f32 as the head gives them. pairs: what is read after each text, or after
        the one text. Raises ValueError, Error (a head of tokens)."""
        single = isinstance(texts, str)
        rows = (texts,) if single else tuple(texts)
        others = None if pairs is None else tuple(pairs)
        out = np.empty((len(rows if others is None else others), len(self.labels)), np.float32)
        if len(out):
            with self._lock:
                _core.encoder_classify(self._handle, self._threads, out, rows, others,
                                       single and others is not None)
        return out

    def classify(self, texts: str | typing.Sequence[str]) -> list[dict[str, float]]:
        """The probability of each class of each text, the likeliest first: they sum to 1, or stand
        each for itself where a text may have several."""
        logits = self.logits(texts).astype(np.float64)
        if self.several or logits.shape[1] == 1:
            shares = 1 / (1 + np.exp(-logits))
        else:
            shares = np.exp(logits - logits.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
        return [{self.labels[i]: float(row[i]) for i in np.argsort(-row, kind="stable")}
                for row in shares]

    def rerank(self, query: str, documents: typing.Sequence[str],
               k: int | None = None) -> list[tuple[int, float]]:
        """(index, logit) of the k documents that a reranker finds to answer the query best, best
        first; `plain` says whether a logit is the score, or its sigmoid is. Raises ValueError for a
        head with several classes."""
        if len(self.labels) != 1:
            raise ValueError(f"a reranker has one class, this model {len(self.labels)}")
        scores = self.logits(query, several(documents, "documents"))[:, 0]
        order = np.argsort(-scores, kind="stable")[:k]
        return [(int(i), float(scores[i])) for i in order]

    def tag(self, text: str) -> list[Tag]:
        """The tokens of a text with their classes, those around it too. Raises Error for a head of
        texts."""
        tokens = np.empty((self.max_tokens, 4), np.int32)
        logits = np.empty((self.max_tokens, len(self.labels)), np.float32)
        with self._lock:
            count = _core.encoder_tag(self._handle, self._threads, tokens, logits, text)
        return [Tag(int(row[0]), int(row[2]), int(row[3]), self.labels[int(out.argmax())], out)
                for row, out in zip(tokens[:count], logits[:count])]
