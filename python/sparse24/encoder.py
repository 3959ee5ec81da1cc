# SPDX-License-Identifier: Apache-2.0
"""Texts and images to embeddings, called as sentence-transformers' are."""
from __future__ import annotations

import contextlib
import os
import threading
import typing

import numpy as np

from . import _core
from .arrays import Ids, sides
from .images import Image, ImageForm, is_image
from .matrix import Array
from .ranks import Comm
from .reopen import Reopens

PIECE = 32  # images that are made at once
WORDS = 1 << 22  # weights of words that there is room for at once
Progress = typing.Callable[[str, int, int], object]


class WordWeights(typing.NamedTuple):
    """Weights of words of n texts, as rows of a matrix [n, width] without its zeros; for
    scipy.sparse.csr_array((weights, ids, offsets), (n, width)). Text i has offsets[i] to
    offsets[i + 1], the largest weight first."""
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    width: int

    def row(self, text: int) -> dict[int, float]:
        """A text's weights by token id, the largest first."""
        here = slice(self.offsets[text], self.offsets[text + 1])
        return dict(zip(self.ids[here].tolist(), self.weights[here].tolist()))

    def dense(self) -> np.ndarray:
        """The matrix [n, width] with its zeros."""
        counts = np.diff(self.offsets)
        out = np.zeros((len(counts), self.width), np.float32)
        out[np.repeat(np.arange(len(counts)), counts), self.ids] = self.weights
        return out


class Encoder(Reopens):
    """A sentence encoder of a Hugging Face folder: tokenizes, runs, pools and normalises as its
    files say; or an encoder of images, or of both in one space (CLIP). Calls of several threads
    wait for each other; `share` gives each its own. Pickled, it is opened again from its folder."""

    def __init__(self, folder: str | os.PathLike, *, dtype: str | None = None, dense: bool = False,
                 sparse: bool = False, all_sparse: bool = False, max_tokens: int = 0,
                 batch_tokens: int = 0, prompt_name: str | None = None,
                 device: str | None = None, pooling: str | None = None, dimensions: int = 0,
                 ids: bool = False, images: bool | None = None, layer_dtypes: str | None = None,
                 verify: bool = False, comm: Comm | None = None,
                 progress: Progress | None = None):
        """dtype: "f32", "bf16" or "i8"; on a GPU (device="cuda") "f16", "bf16", "i8" or "e4m3".
        dense: multiply packed weights as dense ones. sparse: pack
        what is 2:4 already. all_sparse: run 2:4 even where dense is faster. max_tokens: of a text;
        by default the model's. batch_tokens: the most of one pass, default 4096. pooling: "mean",
        "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len" in place of what the folder says,
        or "splade" of a masked language model, for encode_sparse.
        dimensions: so many numbers of each embedding, its first (Matryoshka); 0: all. ids: texts
        come by encode_ids alone, and the folder needs no tokenizer. images: True: of a folder with
        a model of texts and one of images the second alone; False: texts alone; None: texts, and
        images by the second, which is opened when the first image comes.
        layer_dtypes, verify, comm: as Model has them.
        Raises OSError, ValueError, Error (what the model has that is not carried out)."""
        self._keep_call(locals())
        from .model import open_device  # pylint: disable=import-outside-toplevel,cyclic-import
        options = (dtype, dense, sparse, None, None, all_sparse, None, None, layer_dtypes,
                   verify, open_device(device), comm and comm._handle)
        def opened(which):
            return _core.encoder_open(folder, options, None if which > 0 else prompt_name,
                                      max_tokens, batch_tokens, ids, False, which, pooling,
                                      dimensions, progress)
        self._open(opened(0 if ids or images is False else 1 if images else -1))
        if images is None and not ids and self._images is None:
            self._open_tower = lambda: opened(1)

    def _open(self, handle: typing.Any):
        self._handle = handle
        self._open_tower: typing.Callable[[], typing.Any] | None = None
        self._tower: Encoder | None = None  # of the folder's images
        self._threads = _core.session_threads()
        self._lock = threading.Lock()
        self.info: dict = _core.encoder_info(handle)
        self._images = ImageForm(_core.encoder_image_form(handle), self.info) \
            if self.info["image"] else None
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
        other._opened = self._opened
        with self._lock:
            other._open(_core.encoder_share(self._handle))
            if self._tower is not None:
                other._tower = self._tower.share()
        other._open_tower = self._open_tower
        return other

    def encode(self, sentences: str | Image | typing.Sequence[str | Image],
               prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, *, convert_to_numpy: bool = True,
               convert_to_tensor: bool = False, normalize_embeddings: bool = False,
               progress: Progress | None = None) -> np.ndarray:
        """Embeddings [n, width] of f32 in the order of the texts; [width] of a single text.

        Images are paths of files (JPEG, PNG, and what Pillow reads where it is installed),
        Pillow's images and arrays of bytes [height, width, 3], made as preprocessor_config.json
        says. A str is a text, but where the model reads images alone it is a path. Texts and images
        of a folder that has a model of each (CLIP) may stand in one list.

        prompt_name: one of the folder's prompts; prompt: a text of your own, before every text.
        normalize_embeddings: to length 1, also where the folder does not say so.
        convert_to_tensor: a tensor of PyTorch instead. progress is called with (stage, done, total)
        and may stop by returning something true. batch_size, show_progress_bar and convert_to_numpy
        are there for callers of sentence-transformers and change nothing: batches go by tokens.
        Raises TypeError, ValueError (no such prompt, images for a model of texts), OSError, Error
        (a damaged file), KeyboardInterrupt.
        """
        del batch_size, show_progress_bar, convert_to_numpy
        single = isinstance(sentences, str) or is_image(sentences)
        given = (sentences,) if single else tuple(sentences)
        pictures = [i for i, one in enumerate(given)
                    if self._images is not None or not isinstance(one, str) and is_image(one)]
        out = np.empty((len(given), self.width), np.float32)
        if not pictures:
            self._embed_texts(out, given, prompt_name, prompt, progress)
        elif len(pictures) == len(given):
            self._of_images()._embed_images(out, given, progress)
        else:
            words = [i for i, one in enumerate(given) if isinstance(one, str)]
            for rows in (pictures, words):
                out[rows] = self.encode([given[i] for i in rows], prompt_name, prompt,
                                        progress=progress)
        if normalize_embeddings:
            out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
        out = out[0] if single else out
        if not convert_to_tensor:
            return out
        import torch  # pylint: disable=import-outside-toplevel
        return torch.from_numpy(out)

    def _embed_texts(self, out, texts, prompt_name, prompt, progress):
        with self._lock, self._prompted(prompt_name, prompt):
            if texts:
                _core.encoder_embed(self._handle, self._threads, out, texts, progress)

    def encode_sparse(self, sentences: str | typing.Sequence[str], prompt_name: str | None = None,
                      prompt: str | None = None, *, top: int = 0,
                      progress: Progress | None = None) -> WordWeights:
        """Weights of words (SPLADE) of texts, of a folder with SpladePooling or an encoder with
        pooling="splade"; a single text is one row. top: keep so many of each text, the largest; 0:
        all. Raises ValueError (an encoder of vectors), what encode raises."""
        if top < 0:
            raise ValueError(f"top is {top}; 0 or more is expected")
        texts = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        most = min(top or self.width, self.width)
        piece = max(WORDS // most, 1)
        parts = [self._weigh(texts[at:at + piece], most, prompt_name, prompt, progress)
                 for at in range(0, len(texts), piece)]
        counts, ids, weights = (np.concatenate([np.empty(0, dtype), *(part[i] for part in parts)])
                                for i, dtype in enumerate((np.int64, np.int32, np.float32)))
        return WordWeights(np.concatenate(([0], np.cumsum(counts))), ids, weights, self.width)

    def _weigh(self, texts, most, prompt_name, prompt, progress):
        ids = np.empty((len(texts), most), np.int32)
        weights = np.empty((len(texts), most), np.float32)
        counts = np.empty(len(texts), np.int64)
        with self._lock, self._prompted(prompt_name, prompt):
            _core.encoder_weigh(self._handle, self._threads, ids, weights, counts, texts, progress)
        kept = np.arange(most) < counts[:, None]
        return counts, ids[kept], weights[kept]

    @contextlib.contextmanager
    def _prompted(self, name, text):
        """The prompt of one call, before the encoder has its own again."""
        if text is None and name is None:
            yield
            return
        _core.encoder_prompt(self._handle, name, text)
        try:
            yield
        finally:
            _core.encoder_prompt(self._handle, None, self._prompt)

    def _of_images(self) -> Encoder:
        """This encoder, or that of the folder's images, opened once."""
        if self._images is not None:
            return self
        with self._lock:
            if self._tower is None and self._open_tower is not None:
                tower = Encoder.__new__(Encoder)
                tower._opened = (self._opened[0], {**self._opened[1], "images": True})
                tower._open(self._open_tower())
                self._tower = tower
        if self._tower is None:
            raise ValueError("images were given to an encoder of texts")
        if self._tower.width != self.width:
            raise ValueError(f"the folder's images have vectors of {self._tower.width} numbers and "
                             f"its texts of {self.width}: Encoder(…, images=True) has the former")
        return self._tower

    def _embed_images(self, out, images, progress):
        for begin in range(0, len(images), PIECE):
            end = min(begin + PIECE, len(images))
            self._embed_pixels(out[begin:end], self._images.pixels(images[begin:end]))
            if progress is not None and progress("images", end, len(images)):
                raise KeyboardInterrupt("stopped by progress")

    def _embed_pixels(self, out, pixels):
        with self._lock:
            _core.encoder_embed_pixels(self._handle, self._threads, out, pixels)

    def encode_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Embeddings [n, width] of f32 of images [n, channels, side, side] of f32 that are
        normalised already. Raises ValueError, TypeError."""
        of = self._of_images()
        out = np.empty((len(pixels), of.width), np.float32)
        if len(out):
            of._embed_pixels(out, pixels)
        return out

    def encode_ids(self, texts: typing.Sequence[Ids], *,
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
    (count, width), (most, of) = sides(queries, "queries", 2), sides(documents, "documents", 2)
    if k < 1 and most:
        raise ValueError(f"k is {k}: expected 1 or more")
    k = min(k, most)
    indices, scores = np.empty((count, k), np.int64), np.empty((count, k), np.float32)
    if count and most or width != of:
        _core.nearest(indices, scores, queries, documents)
    return indices, scores


def retrieval_accuracy(queries: Array, documents: Array, gold: Array, k: int = 1) -> float:
    """The share of queries whose gold document is among the best k."""
    return _core.retrieval_accuracy(queries, documents, np.asarray(gold, np.int64), k)
