# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: WordPiece and BPE of a model's folder."""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core
from .arrays import Ids
from .reopen import Reopens


class Encoding(typing.NamedTuple):
    """A text's tokens."""
    ids: np.ndarray      # [tokens] i32
    types: np.ndarray    # [tokens] i32: 0 first text, 1 second
    offsets: np.ndarray  # [tokens, 2] code points of the text it came from; 0, 0 for [CLS], [SEP]


class Tokenizer(Reopens):
    """Of a folder or one of its files: tokenizer.json, vocab.txt, vocab.json and merges.txt, or
    tokenizer.model. Any number of threads may use one."""

    def __init__(self, path: str | os.PathLike):
        """Raises OSError, Error (malformed; a part that is not carried out, by its name)."""
        self._keep_call({"folder": path})
        self._handle = _core.tokenizer_load(path)

    def __len__(self):
        return _core.tokenizer_vocabulary(self._handle)

    def encode(self, text: str, pair: str | None = None, *, max_tokens: int = 0) -> Encoding:
        """The tokens of a text, or of two, with those around them ([CLS], [SEP]); at most
        max_tokens of them, 0: all. Raises TypeError (a list: each text has a call)."""
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text: expected str, got {type(text)}; each text has a call")
        tokens = np.array(_core.tokenizer_encode(self._handle, text, pair, max_tokens), np.int32)
        tokens = tokens.reshape(-1, 4)
        return Encoding(np.ascontiguousarray(tokens[:, 0]), np.ascontiguousarray(tokens[:, 1]),
                        tokens[:, 2:])

    def decode(self, ids: Ids) -> str:
        """The text of tokens, without special ones; what ends within a character is U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Ids) -> bytes:
        """The same, as the bytes that the tokens are."""
        return _core.tokenizer_decode(self._handle, np.asarray(ids, np.int32))
