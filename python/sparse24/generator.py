# SPDX-License-Identifier: Apache-2.0
"""A running batch of texts that go on, which requests join and leave."""
from __future__ import annotations

import threading
import typing

import numpy as np

from . import _core
from .arrays import Ids, handle_of, token_ids
from .language_model import ENDS, Decoder, Token, no_zeros
from .model import Model


class _Text(typing.NamedTuple):
    """A text that goes on."""
    number: int
    decoder: Decoder | None
    kept: tuple  # what the library reads until the text has ended


def _common(one: list[int], other: list[int]) -> int:
    """How many ids two texts begin with alike."""
    most = min(len(one), len(other))
    differ = np.flatnonzero(np.not_equal(one[:most], other[:most]))
    return int(differ[0]) if differ.size else most


class Generator:
    """Texts of a language model that go on together, a token of each in a pass, whoever came first:

        batch = sparse24.Generator(model, texts=8)
        first = batch.join("Once upon a time", max_new=64)
        for token in batch:           # ends when no text goes on; join and leave in between
            print(token.prompt, token.text)

    A text's tokens are those that `generate` gives it alone. A prompt that begins as another text
    does, one that has ended too, takes over what was computed of it. Calls of several threads wait
    for each other.
    """

    def __init__(self, model: Model, *, texts: int = 8, tokens: int = 0, prompt_tokens: int = 0,
                 likeliest: int = 0, cache_dtype: str | None = None):
        """texts: the most at once; tokens: of each with its prompt, by default the model's
        positions; memory is for all of both from the start. prompt_tokens: the most tokens of new
        prompts in a pass that also goes on with texts, so that these do not wait for a long one; 0:
        they wait. likeliest: the most that join may ask for. cache_dtype: "i8" or "e4m3", on the
        CPU: keys and values in bytes, with a scale for each head of each token.
        Raises ValueError (a number out of range), Error (a model without a head for the next
        token)."""
        if texts < 1:
            raise ValueError(f"texts {texts}: expected 1 or more")
        self.model = model
        self._session = _core.session_create(handle_of(model, "model", Model), model.max_tokens)
        self._threads = _core.session_threads()
        self._cache = _core.cache_create(self._session, texts, tokens, cache_dtype)
        self._handle = _core.generator_create(self._session, self._cache, prompt_tokens, likeliest)
        self._live: dict[int, _Text] = {}  # by the cache's text
        self._seen: list[list[int]] = [[] for _ in range(texts)]
        self._numbers = 0
        self._came: list[tuple] = []
        self._lock = threading.Lock()

    def __len__(self):
        """How many texts go on."""
        return len(self._live)

    @property
    def room(self) -> int:
        """How many more may join."""
        return len(self._seen) - len(self._live)

    @property
    def nbytes(self) -> int:
        """Of keys and values."""
        return _core.cache_info(self._cache, 0)[0]

    def join(self, prompt: str | Ids, *, max_new: int = 128,
             temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
             repeat_penalty: float = 1.0, seed: int = 0,
             stops: Ids | None = None, likeliest: int = 0) -> int:
        """A text or its ids go on from the next step; the number that its tokens have as `prompt`.
        Options as `generate` has them; what is drawn is that of `generate` for this prompt alone.
        Raises ValueError (no room, an option out of range, a prompt that is too long)."""
        words = isinstance(prompt, str)
        ids = token_ids(self.model.tokenizer.encode(prompt).ids if words else prompt)
        no_zeros(max_new=max_new, top_p=top_p, repeat_penalty=repeat_penalty)
        ends = token_ids(self.model.end_ids if stops is None else stops, "stops")
        options = (max_new, repeat_penalty, temperature, top_k, top_p, min_p, seed, likeliest)
        came = self._came

        def report(*row):
            came.append(row)
        with self._lock:
            text = self._take_over(ids.tolist())
            _core.generator_join(self._handle, text, ids, ends, options, 0, report)
            self._seen[text] = ids.tolist()
            self._numbers += 1
            decoder = Decoder(self.model.tokenizer) if words else None
            self._live[text] = _Text(self._numbers - 1, decoder, (ends, report))
            return self._numbers - 1

    def _take_over(self, ids: list[int]) -> int:
        """A text of the cache that nobody has, with as much of the ids as any text has."""
        free = [text for text in range(len(self._seen)) if text not in self._live]
        if not free:
            raise ValueError(f"{len(self._live)} texts go on: there is room for no more")
        alike = [min(_common(ids, seen), _core.cache_info(self._cache, text)[1])
                 for text, seen in enumerate(self._seen)]
        best = max(range(len(alike)), key=alike.__getitem__)
        to = best if best in free else min(free, key=alike.__getitem__)
        shared = min(alike[best], max(len(ids) - 1, 0))
        _core.cache_copy(self._cache, to, best, shared)
        self._seen[to] = ids[:shared]
        return to

    def leave(self, number: int) -> None:
        """Ends a text before its end; one that has ended already is let be."""
        with self._lock:
            for text, live in list(self._live.items()):
                if live.number == number:
                    _core.generator_leave(self._handle, text)
                    del self._live[text]

    def step(self) -> list[Token]:
        """One pass: the tokens that it gave, of each text that goes on at most one. Raises Error,
        after which no text goes on, and KeyboardInterrupt, after which all do."""
        with self._lock:
            try:
                _core.generator_step(self._handle, self._threads)
            except _core.Error:
                self._live.clear()
                raise
            tokens = [self._token(*row) for row in self._came]
            self._came.clear()
        return tokens

    def _token(self, text, index, token, log_probability, end, likeliest):
        number, decoder, _ = self._live[text]
        self._seen[text].append(token)
        piece = decoder.add(token, bool(end)) if decoder and end != 1 else ""
        if end:
            del self._live[text]
        return Token(number, index, token, log_probability, ENDS[end], piece, likeliest)

    def __iter__(self) -> typing.Iterator[Token]:
        """Tokens as they come, until no text goes on."""
        while self._live:
            yield from self.step()
