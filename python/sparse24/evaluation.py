# SPDX-License-Identifier: Apache-2.0
"""What a model is worth: answers to questions, perplexity, retrieval."""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core
from .arrays import handle_of
from .encoder import Encoder, Progress, retrieval_accuracy
from .matrix import Array
from .model import Model
from .tokenizer import Tokenizer


class Answers(typing.NamedTuple):
    """What `evaluate_qa` gives."""
    exact_match: float  # percent
    f1: float           # percent
    answers: dict[str, str]  # by the questions' ids


class Questions:
    """The questions of a file in the JSON of SQuAD v1.1, cut into what a model reads."""

    def __init__(self, path: str | os.PathLike, tokenizer: Tokenizer, max_tokens: int = 384,
                 stride: int | None = None, clip: bool = False):
        """max_tokens: of question and context together. stride: tokens that two pieces of a long
        context share, by default 128, a third of max_tokens at most."""
        self._qa = _core.qa_read(path)
        stride = min(128, max_tokens // 3) if stride is None else stride
        self._features = _core.qa_features(self._qa, handle_of(tokenizer, "tokenizer", Tokenizer),
                                            max_tokens, stride, clip)
        self.count, self.tokens = _core.qa_count(self._features)

    def examples(self) -> tuple[np.ndarray | None, ...]:
        """offsets [features + 1], ids, types [tokens], None, starts, ends [features]."""
        offsets = np.empty(self.count + 1, np.int64)
        ids, types = (np.empty(self.tokens, np.int32) for _ in range(2))
        starts, ends = (np.empty(self.count, np.int32) for _ in range(2))
        _core.qa_write(self._features, offsets, ids, types, starts, ends)
        return offsets, ids, types, None, starts, ends


def evaluate_qa(model: Model | str | os.PathLike, path: str | os.PathLike, *, max_tokens: int = 0,
                stride: int | None = None, batch_tokens: int = 0,
                progress: Progress | None = None) -> Answers:
    """Exact match and F1 of a model with a question-answering head, by SQuAD's rules."""
    model = model if isinstance(model, Model) else Model(model)
    most = max_tokens or min(384, model.info["positions"])
    questions = Questions(path, model.tokenizer, most, stride)
    with model._lock:
        return Answers(*_core.qa_evaluate(questions._qa, questions._features, model._handle,
                                          batch_tokens, progress))


def evaluate_lm(model: Model | str | os.PathLike, text: str, *, max_tokens: int = 0,
                stride: int = 0) -> float:
    """The perplexity of a text, read as one stream of tokens: Model.perplexity."""
    model = model if isinstance(model, Model) else Model(model)
    return model.perplexity(model.tokenizer.encode(text).ids, window=max_tokens, stride=stride)


def evaluate_retrieval(encoder: Encoder | str | os.PathLike, queries: typing.Sequence[str],
                       documents: typing.Sequence[str], gold: Array, k: int = 1, *,
                       query_prompt: str | None = None,
                       document_prompt: str | None = None) -> float:
    """The share of queries whose document, gold[i], is among the nearest k."""
    encoder = encoder if isinstance(encoder, Encoder) else Encoder(encoder)
    return retrieval_accuracy(encoder.encode(queries, query_prompt),
                              encoder.encode(documents, document_prompt), gold, k)
