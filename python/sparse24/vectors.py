# SPDX-License-Identifier: Apache-2.0
"""Vectors that are searched often: in memory, or in the folder that `search --index` keeps."""
from __future__ import annotations

import json
import os
import typing

import numpy as np

from . import _core
from .arrays import sides
from .encoder import nearest
from .matrix import Array
from .program import Path, command


def stored(folder: Path) -> tuple[dict, typing.Callable[[str], np.ndarray]]:
    """What the index.json of a folder of `search --index` says, and what maps one of its arrays by
    name. Raises OSError, ValueError (an update that did not end)."""
    def part(name):
        return np.load(os.path.join(folder, name), mmap_mode="r", allow_pickle=False)
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
        about = json.load(file)
    if about.get("whole") is not True:
        raise ValueError(f"{os.fspath(folder)}: an update did not end; search makes it anew")
    return about, part


class Index:
    """Vectors of documents, f16, and next to them integers of 8 bits with a scale each, by which
    the same is found to the bit while half as much is read. Any number of threads may use one."""

    def __init__(self, documents: Array, *, rounded: bool = True):
        """documents [n, width] of f32 or f16 are copied. rounded: keep integers too. Raises
        ValueError, TypeError, Error (a number that is not finite)."""
        rows = np.ascontiguousarray(documents, np.float32)
        sides(rows, "documents", 2)
        integers = scales = None
        self._keep(rows.astype(np.float16), None, None)
        if rounded:
            integers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
            _core.round_rows(integers, scales, self.vectors.astype(np.float32))
            self._keep(self.vectors, integers, scales)

    def _keep(self, vectors, integers, scales):
        self.vectors: np.ndarray = vectors            #: [n, width] f16
        self.integers: np.ndarray | None = integers   #: [n, width] i8
        self.scales: np.ndarray | None = scales       #: [n] f32

    @classmethod
    def load(cls, folder: Path) -> Index:
        """The vectors of a folder that `search` keeps with index=, mapped, in the order of its file
        of documents. Raises OSError, ValueError (files that do not fit together, an update that did
        not end, or an index of weights of words or of vectors of tokens)."""
        about, part = stored(folder)
        for key, kind in (("postings", "weights of words"),
                          ("vectors", "vectors of tokens: TokenIndex.load opens it")):
            if key in about:
                raise ValueError(f"{os.fspath(folder)}: it is an index of {kind}")
        index, shape = cls.__new__(cls), (about["count"], about["width"])
        index._keep(part("vectors.npy"), None, None)
        if about["dtype"] == "i8":
            index._keep(index.vectors, part("integers.npy"), part("scales.npy").reshape(-1))
        found = [(each.shape, each.dtype) for each in (index.vectors, index.integers, index.scales)
                 if each is not None]
        expected = [(shape, np.float16), (shape, np.int8), (shape[:1], np.float32)][:len(found)]
        if found != expected:
            raise ValueError(f"{os.fspath(folder)}: arrays are not those of index.json, {shape}")
        return index

    def __len__(self):
        return len(self.vectors)

    def nearest(self, queries: Array, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """(indices, scores) [queries, k] of the documents with the largest dot products with
        queries [queries, width] of f32, best first; of equal ones the lower index. Raises
        ValueError, TypeError."""
        if self.integers is None or k < 1:
            return nearest(queries, self.vectors, k)
        count, k = sides(queries, "queries", 2)[0], min(k, len(self))
        indices, scores = np.empty((count, k), np.int64), np.empty((count, k), np.float32)
        _core.nearest_rounded(indices, scores, queries, self.vectors, self.integers, self.scales)
        return indices, scores


class Hit(typing.NamedTuple):
    """A line that `search` found."""
    line: int  # from 0
    score: float
    text: str


def search(model: Path, query: str, documents: Path | None = None, k: int = 5, *,
           images: Path | None = None, index: Path | None = None, index_dtype: str | None = None,
           rerank: Path | None = None, candidates: int | None = None,
           **options: typing.Any) -> list[Hit]:
    """The k lines of the file `documents` that are nearest to a query, by an encoder's folder; what
    `sparse24 search` does. images: JPEG and PNG files of this folder in place of lines, by a model
    that has texts and images in one space. index: a folder that keeps the lines' vectors, so that
    only new lines are embedded, "f16" or "i8" by index_dtype; Index.load opens it for many queries.
    rerank: a reranker's folder that orders the `candidates` (50) nearest. Raises what `command`
    does, TypeError (a query that is no text; documents that are no file's name: `nearest` searches
    what Encoder.encode makes of a list)."""
    if not isinstance(query, str):
        raise TypeError(f"query: expected a text, got {type(query)}")
    if documents is not None and not isinstance(documents, (str, os.PathLike)):
        raise TypeError(f"documents: expected the name of a file of lines, got {type(documents)}; "
                        "Encoder.encode and nearest search a list of texts")
    found = command("search", model, query=query, documents=documents, images=images, k=k,
                    index=index, index_dtype=index_dtype, rerank=rerank, candidates=candidates,
                    **options)
    return [Hit(hit["line"], hit["score"], hit["text"]) for hit in found["hits"]]
