# SPDX-License-Identifier: Apache-2.0
"""Texts that go on, token by token."""
from __future__ import annotations

import json
import os
import queue
import threading
import typing

import numpy as np

from . import _core
from .arrays import Ids, handle_of, token_ids
from .model import Model, lay
from .tokenizer import Tokenizer

ENDS = (None, "stop", "length")


class Token(typing.NamedTuple):
    """A token as it comes."""
    prompt: int  # which prompt it goes on with
    index: int   # 0: the first after the prompt
    id: int
    log_probability: float
    end: str | None  # why the text ends with it: "stop", "length"
    text: str        # what it adds to the text; "" while a character is not complete
    likeliest: tuple[tuple[int, float], ...] = ()  # (id, log probability), as many as asked for


Message = typing.Union[typing.Mapping[str, typing.Any], typing.Tuple[str, str]]


class Chat:
    """How a model was trained on conversations: the chat template of its folder, a program in
    Jinja2 that runs as transformers runs it."""

    def __init__(self, folder: str | os.PathLike, tokenizer: Tokenizer | None = None, *,
                 thinking: bool = True):
        """thinking: whether answers think first, where the model does. Raises Error (no template,
        one with what is not carried out, by name, or that has no answers without thoughts),
        OSError."""
        self.tokenizer = tokenizer or Tokenizer(folder)
        self._handle = _core.chat_load(folder, self.tokenizer._handle)
        if not thinking:
            _core.chat_set_thinking(self._handle, False)
        end, *marks = _core.chat_info(self._handle)
        self.end: int | None = None if end < 0 else end  #: the id that ends an answer
        #: what stands before and after what an answer thinks, None: nothing is known
        self.thoughts: tuple[str, str] | None = tuple(marks) if marks[0] is not None else None

    def reads(self, name: str) -> bool:
        """Whether the template reads a variable of that name."""
        return _core.chat_reads(self._handle, name)

    def encode(self, messages: str | typing.Sequence[Message], **variables: typing.Any
               ) -> list[int]:
        """The ids of a conversation up to where the answer begins. messages: a user's text, or
        dicts as transformers has them, or pairs (role, text). variables: what else the template
        reads, of what JSON has: tools, documents, enable_thinking … What looks like a special token
        in a text is text. Raises ValueError (what the template refuses, with its line), Error,
        TypeError (a value that JSON does not have)."""
        return _core.chat_encode(self._handle, _request(messages, variables))

    def render(self, messages: str | typing.Sequence[Message], **variables: typing.Any) -> str:
        """The text of which encode makes ids."""
        return _core.chat_write(self._handle, _request(messages, variables))


def _request(messages: str | typing.Sequence[Message], variables: dict) -> str:
    """JSON of the template's variables."""
    rows = [("user", messages)] if isinstance(messages, str) else messages
    rows = [dict(row) if isinstance(row, typing.Mapping)
            else dict(zip(("role", "content"), row, strict=True)) for row in rows]
    return json.dumps({**variables, "messages": rows}, ensure_ascii=False)


class Decoder:
    """Tokens of one text to pieces of text, whole characters alone."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.sent = 0

    def add(self, token: int, last: bool) -> str:
        self.ids.append(token)
        data = self.tokenizer.decode_bytes(self.ids)
        text = data.decode("utf-8", "replace" if last else "ignore")
        piece, self.sent = text[self.sent:], len(text)
        return piece


def no_zeros(**options: float) -> None:
    """Raises ValueError for what is not over 0: the library takes 0 for its default."""
    for name, value in options.items():
        if value <= 0:
            raise ValueError(f"{name} {value}: expected " +
                             ("1 or more" if name == "max_new" else "a number over 0"))


def generate(model: Model, prompts: str | typing.Sequence[typing.Any], *, max_new: int = 128,
             temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
             repeat_penalty: float = 1.0, seed: int = 0,
             stops: Ids | None = None, likeliest: int = 0,
             cache_dtype: str | None = None, texts: int = 16) -> typing.Iterator[Token]:
    """Goes on with a prompt, or with several; an iterator of Token, as they come.

    prompts: texts, or ids (Chat.encode gives those of a conversation). The next token is the
    likeliest with temperature 0, else drawn by seed, prompt and index. stops: ids that end a text;
    by default the folder's. likeliest: so many of the likeliest tokens are told with each, at most
    1000. cache_dtype: "i8" or "e4m3", on the CPU: keys and values in bytes, with a scale for each
    head of each token. texts: the most prompts that go on at once, for which there is memory from
    the start; the next joins where one has ended. Leaving the loop ends the work. Raises ValueError
    (an option out of range, a prompt that is too long), Error.
    """
    handle_of(model, "model", Model)
    no_zeros(max_new=max_new, top_p=top_p, repeat_penalty=repeat_penalty)
    if texts < 1:
        raise ValueError(f"texts {texts}: expected 1 or more")
    rows = [prompts] if isinstance(prompts, str) else list(prompts)
    words = any(isinstance(row, str) for row in rows)
    ids = [model.tokenizer.encode(row).ids if isinstance(row, str) else row for row in rows]
    offsets, flat = lay(ids)
    ends = token_ids(model.end_ids if stops is None else stops, "stops")
    options = (max_new, repeat_penalty, temperature, top_k, top_p, min_p, seed, likeliest)
    room = int(min(np.diff(offsets).max(initial=1) + max_new, model.info["positions"]))
    decoders = [Decoder(model.tokenizer) if words else None for _ in rows]
    work = (offsets, flat, ends, options)
    for row in _stream(model, work, (min(len(rows), texts), room, cache_dtype)):
        prompt, index, token, log_probability, end, others = row
        decoder = decoders[prompt]
        piece = decoder.add(token, bool(end)) if decoder and end != 1 else ""
        yield Token(prompt, index, token, log_probability, ENDS[end], piece, others)


def _stream(model: Model, work: tuple, room: tuple) -> typing.Iterator[tuple]:
    """Runs the loop in a thread of its own and gives what it reports as it comes."""
    came: queue.SimpleQueue = queue.SimpleQueue()
    stopped = threading.Event()

    def report(*row):
        came.put(row)
        return stopped.is_set()

    def run():
        try:
            with model._lock:
                cache = _core.cache_create(model._session[0], *room)
                _core.generate(*model._session, cache, *work, report,
                               lambda *_: stopped.is_set())
            came.put(None)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            came.put(error)

    thread = threading.Thread(target=run, name="sparse24.generate", daemon=True)
    thread.start()
    try:
        while (row := came.get()) is not None:
            if isinstance(row, BaseException):
                raise row
            yield row
    finally:
        stopped.set()
        thread.join()
