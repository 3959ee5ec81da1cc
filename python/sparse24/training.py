# SPDX-License-Identifier: Apache-2.0
"""Training of whole models, alone or towards a teacher, on the CPU in f32 or on a GPU; what is 2:4
stays so, or becomes so by a method."""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core
from .arrays import Ids, expect_name, several, token_ids
from .checkpoint import Checkpoint
from .encoder import Progress
from .evaluation import Questions
from .model import lay, open_device
from .ranks import Comm
from .tokenizer import Tokenizer

HEADS = ("none", "qa", "lm", "classes")
Path = typing.Union[str, os.PathLike]
#: [n, channels, side, side], normalised; classes [n], None for an encoder without a classifier
Images = typing.Tuple[typing.Any, typing.Any]
Stream = typing.Union[str, Ids]
# Masked decays that are tried, until masks change at most so many times as often as in dense runs.
_DECAYS, _MOST_FLIPS = (2e-6, 6e-6, 2e-5, 6e-5, 2e-4, 6e-4, 2e-3), 0.95


class Step(typing.NamedTuple):
    """A step of a run, or its last one."""
    step: int
    steps: int
    tokens: int
    epoch: float
    loss: float
    rate: float
    norm: float
    seconds: float
    held_out: float  # NaN where it was not measured now
    sparse_layers: int
    flips: float = 0.0   # the share of its masks that the method changed in this step
    kept: float = 1.0    # the share of Σ|w| that the masks keep
    beta: float = 1.0    # the mean scale of soft thresholds; NaN without
    mask_age: int = -1   # steps since masks were chosen; −1: there are none
    sparse: bool = False  # did this step run in 2:4?
    mask_hash: int = 0    # of several ranks: of the masks, which all have compared
    noise: float = float("nan")     # the share of the gradients' squares that is chance
    overhead: float = float("nan")  # the share of the step's seconds that zeros cost


class Method(typing.NamedTuple):
    """What `method` says of a method."""
    summary: str
    numbers: dict[str, float]  # those that it has, and their defaults


def methods() -> list[str]:
    """The methods of sparse training: "dense", "fixed", "ste", "sr-ste", "s-ste" …"""
    return _core.names("train methods")


def method(name: str) -> Method:
    """What a method is, and its numbers. Raises ValueError."""
    expect_name(name, "method", "train methods")
    summary, numbers = _core.train_method(name)
    pairs = (pair.split("=") for pair in numbers.split(",") if pair)
    return Method(summary, {key: float(value) for key, value in pairs})


def _examples(ids: typing.Sequence[Ids], info: dict) -> tuple:
    """Texts of ids; of a language model each token's target is the next one."""
    offsets, flat = lay(ids)
    if not flat.size:
        raise ValueError("there is no token to learn from: expected a text that is not empty")
    if HEADS[info["head"]] != "lm":
        return offsets, flat, None, None, None, None
    targets = np.append(flat[1:], np.int32(-1))
    targets[offsets[1:] - 1] = -1
    return offsets, flat, None, targets, None, None


def _texts(folder: Path, texts: typing.Iterable[str], info: dict, max_tokens: int) -> tuple:
    """Texts as examples, without empty ones."""
    tokenizer = Tokenizer(folder)
    limit = max_tokens or _own_limit(folder, info)
    rows = (tokenizer.encode(text, max_tokens=limit).ids for text in several(texts, "texts")
            if not isinstance(text, str) or text.strip())
    return _examples([row for row in rows if row.size], info)


def _stream(folder: Path, stream: Stream, info: dict, max_tokens: int) -> tuple:
    """Pieces of one long text, or of its tokens; a piece's last target begins the next."""
    if HEADS[info["head"]] != "lm":
        raise ValueError(f"a stream needs a language model, and this one is {info['model_type']}")
    ids = Tokenizer(folder).encode(stream).ids if isinstance(stream, str) else stream
    ids = token_ids(ids)
    if ids.size < 2:
        raise ValueError("a stream of at least two tokens is expected")
    window = max_tokens or min(512, info["positions"])
    offsets = np.append(np.arange(0, ids.size - 1, window, np.int64), np.int64(ids.size - 1))
    return offsets, ids[:-1].copy(), None, ids[1:].copy(), None, None


def _images(images: Images, info: dict) -> tuple:
    """Pixels, a row an image, and classes."""
    pixels = np.ascontiguousarray(images[0], np.float32)
    classes = np.full(len(pixels), -1) if images[1] is None else np.asarray(images[1])
    side, channels = info["image"], info["channels"]
    if not side:
        raise ValueError(f"a model of type '{info['model_type']}' reads texts, and images were "
                         "given")
    if pixels.shape != (len(pixels), channels, side, side):
        raise ValueError(f"images {pixels.shape}: expected [n, {channels}, {side}, {side}]")
    if classes.shape != (len(pixels),):
        raise ValueError(f"classes {classes.shape}: expected [{len(pixels)}], one an image")
    if not len(pixels):
        raise ValueError("there is no image to learn from")
    return pixels.reshape(len(pixels), -1), np.ascontiguousarray(classes, np.int32)


def _longest(rows: tuple, info: dict) -> int:
    """Tokens of the longest example."""
    return info["positions"] if len(rows) == 2 else int(np.diff(rows[0]).max(initial=1))


def _own_limit(folder: Path, info: dict) -> int:
    """sentence_bert_config.json's max_seq_length, else tokenizer_config.json's model_max_length,
    and no more than the model's positions."""
    import json  # pylint: disable=import-outside-toplevel
    for name, key in (("sentence_bert_config.json", "max_seq_length"),
                      ("tokenizer_config.json", "model_max_length")):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                limit = json.load(file).get(key)
        except FileNotFoundError:
            continue
        if limit:
            return min(int(limit), info["positions"])
    return info["positions"]


def _objective(loss: typing.Mapping[str, float] | None, info: dict, teacher) -> dict[str, float]:
    """The weights of the terms; what `sparse24 train` takes by default."""
    terms = {"labels": 0.0, "logits": 0.0, "hidden": 0.0, "cosine": 0.0}
    if loss is None:
        labelled = HEADS[info["head"]] != "none"
        loss = {"labels": float(labelled)}
        if teacher is not None:
            loss = ({"labels": 1.0, "logits": 1.0, "hidden": 1.0} if labelled
                    else {"cosine": 20.0, "hidden": 1.0})
    unknown = set(loss) - set(terms)
    if unknown:
        raise ValueError(f"loss {sorted(unknown)}: expected some of {list(terms)}")
    if teacher is None and any(loss.get(name, 0) for name in ("logits", "hidden", "cosine")):
        raise ValueError("the losses logits, hidden and cosine need a teacher")
    if not any(loss.values()):
        raise ValueError("there is nothing to learn from: no loss has a weight over 0, and a model "
                         "without a head needs a teacher")
    return {**terms, **loss}


def gradients(model: Path, *, texts: typing.Iterable[str] | None = None,
              questions: Path | None = None,
              ids: typing.Sequence[Ids] | None = None,
              images: Images | None = None, stream: Stream | None = None, examples: int = 0,
              include: str | None = None, exclude: str | None = None, max_tokens: int = 0,
              seed: int = 1, device: str | None = None, dtype: str | None = None,
              progress: Progress | None = None) -> typing.Any:
    """What examples say of a model's weights, for prune_model with "movement", "snip",
    "taylor-first" or "taylor-second": means over the first `examples` (0: all) of gradients of the
    loss on texts or a stream of a language model, questions, ids, or images with their classes, as
    `train` has them. Raises ValueError, OSError, Error."""
    source, where = Checkpoint(model), open_device(device)
    info = _core.transformer_peek(source._handle)
    given = {"texts": texts, "questions": questions, "ids": ids, "images": images,
             "stream": stream}
    info, rows = _source(model, info, given, max_tokens)
    head = HEADS[info["head"]] if questions is not None else "none"
    student = _core.transformer_load(source._handle, _longest(rows, info), True, head, seed, False,
                                     False, where, dtype)
    objective = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, None)
    return _core.model_gradients(student, rows, objective, examples, include, exclude, progress)


def _source(model: Path, info: dict, given: dict[str, typing.Any],
            max_tokens: int) -> tuple[dict, tuple]:
    """What there is to learn from, as examples, and the model's description with its head."""
    named = {name: what for name, what in given.items() if what is not None}
    if len(named) != 1:
        raise ValueError("expected texts, questions, ids, images or stream: one of them")
    (name, what), = named.items()
    if name == "questions":
        info = {**info, "head": HEADS.index("qa")}
        asked = Questions(what, Tokenizer(model), max_tokens or min(384, info["positions"]))
        return info, asked.examples()
    if name == "images":
        labelled = what[1] is not None
        return ({**info, "head": HEADS.index("classes")} if labelled else info), _images(what, info)
    if name == "stream":
        return info, _stream(model, what, info, max_tokens)
    return info, _texts(model, what, info, max_tokens) if name == "texts" else _examples(what, info)


def _held_out(model: Path, info: dict, held: typing.Any, rows: tuple,
              max_tokens: int) -> tuple | None:
    """What is held out of examples, of their kind."""
    if held is None:
        return None
    if len(rows) == 2:
        return _images(held, info)
    if isinstance(held, str):
        return _stream(model, held, info, max_tokens)
    return _texts(model, held, info, max_tokens)


def _choose_decay(name: str | None, numbers: typing.Mapping[str, float],
                  flips: typing.Callable[[str, dict, int], float]) -> dict[str, float]:
    """Numbers with the least masked decay that keeps masks calm enough (Hu et al., 2024);
    flips(method, numbers, steps) says how much they change in so many first steps."""
    own = {**(method(name).numbers if name else {}), **numbers}
    refresh = own.get("refresh", 0)
    if not own.get("masked-decay") or not refresh:
        raise ValueError(f"choose_masked_decay: method {name} has no masked-decay")
    steps = int(max(20, 5 * refresh + 1))
    most = _MOST_FLIPS * flips("dense", {"watch": refresh, "watch-tiles": int(name == "fst")},
                               steps)
    found: dict[str, float] = dict(numbers)
    for decay in _DECAYS:
        found["masked-decay"] = decay
        if flips(name or "", found, steps) <= most:
            break
    return found


def _first_flips(load: typing.Callable[[], typing.Any], rows: tuple, objective: tuple, run: tuple,
                 steps: int) -> float:
    """The sum of the flips of a run's first steps, on a model that is then let go of."""
    changed, ended = [], []

    def on_step(row):
        step = _step(row)
        changed.append(step.flips if step.flips > 0 else 0.0)
        if step.step >= steps:
            ended.append(True)
        return bool(ended)

    try:
        _core.train(load(), rows, None, objective, run, on_step, None)
    except KeyboardInterrupt:
        if not ended:
            raise
    return sum(changed)


def train(model: Path, out: Path, *, texts: typing.Iterable[str] | None = None,
          questions: Path | None = None,
          ids: typing.Sequence[Ids] | None = None,
          images: Images | None = None, stream: Stream | None = None,
          held_out: typing.Any = None, teacher: Path | None = None,
          loss: typing.Mapping[str, float] | None = None, temperature: float = 2.0,
          dropout: float | None = None, epochs: float = 0.0, steps: int = 0, seconds: float = 0.0,
          batch: int = 0, rate: float = 0.0, warmup: float = 0.06, schedule: str = "linear",
          decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
          clip: float = 1.0, fixed: bool = True, refresh: int = 0, refresh_until: float = 0.5,
          method: str | None = None,  # pylint: disable=redefined-outer-name
          numbers: typing.Mapping[str, float] | None = None, choose_masked_decay: bool = False,
          include: str | None = None, exclude: str | None = None,
          from_scratch: bool = False, device: str | None = None,
          dtype: str | None = None, max_tokens: int = 0, tokens: int = 4096, seed: int = 1,
          recompute: bool = False,
          checkpoint: Path | None = None, resume: bool = False, force: bool = False,
          comm: Comm | None = None,
          report: typing.Callable[[Step], object] | None = None,
          progress: Progress | None = None) -> Step:
    """Trains the model of a folder and writes it to `out`; returns the last step. One of texts,
    questions (a file in the JSON of SQuAD v1.1; an encoder without a head gets one), ids (texts of
    token ids), images (a pair of [n, channels, side, side], normalised, and n classes, None for an
    encoder without a classifier) and stream
    (one long text, or its ids, in pieces of max_tokens, by default 512) is what it learns from;
    held_out, of the same kind, is measured: texts, a pair of images, or a str as a stream. teacher:
    the folder of the dense model that `model` was pruned from, whose outputs it learns to give.
    loss: weights of "labels", "logits", "hidden", "cosine"; by default cosine=20, hidden=1 for
    embeddings with a teacher, labels=1, logits=1, hidden=1 for all else, labels=1 without a
    teacher. How long: epochs (1), or steps, or seconds. method: one of `methods`, with `numbers` in
    place of its defaults, for the layers that include and exclude (globs) leave, whose masked-decay
    choose_masked_decay finds by the run's first steps (the run then begins anew);
    without one, fixed: zeros of 2:4 layers stay zeros, if there are such layers; refresh: new masks
    every so many steps. from_scratch: weights are drawn anew from seed. device: "cuda", with dtype
    "bf16" or "f16" between layers. checkpoint: a file to go on from, with resume. comm: the ranks
    that train together, all of which make this call; batch is a step's examples on all of them, and
    rank 0 writes. report is called with each Step, progress with (stage, done, total); something
    true that they return, or Ctrl-C, stops the run with KeyboardInterrupt. Raises ValueError,
    OSError, Error.
    """
    if not force and os.path.lexists(out):
        raise FileExistsError(f"{os.fspath(out)} exists and may not be replaced without force")
    expect_name(method, "method", "train methods")
    source = Checkpoint.of_config(model) if from_scratch else Checkpoint(model)
    where = open_device(device)
    info = _core.transformer_peek(source._handle)
    given = {"texts": texts, "questions": questions, "ids": ids, "images": images,
             "stream": stream}
    info, examples = _source(model, info, given, max_tokens)
    held = _held_out(model, info, held_out, examples, max_tokens)
    terms = _objective(loss, info, teacher)
    room = max(tokens, *(_longest(rows, info) for rows in (examples, held) if rows))
    head = HEADS[info["head"]] if questions is not None else "none"

    def load():
        return _core.transformer_load(source._handle, room, True, head, seed, recompute,
                                      from_scratch, where, dtype)

    master = None if teacher is None else _core.transformer_load(
        Checkpoint(teacher)._handle, room, False, head, seed, False, False, where, dtype)
    drop = (0.0, 0.0) if master else (info["dropout"], info["attention_dropout"])
    if dropout is not None:
        drop = (dropout, dropout)
    embeds = HEADS[info["head"]] == "none"
    rate = rate or (1e-4 if master is None else 3e-4 if embeds else 2e-4)
    path = None if checkpoint is None else os.fspath(checkpoint)
    keeps = not method and fixed and (refresh > 0 or _has_two_four(source))

    def run(method, numbers, path):
        listed = ",".join(f"{key}={value!r}" for key, value in numbers.items())
        return (0.0 if steps or seconds else epochs or 1.0, steps, seconds,
                batch or (64 if embeds else 32), 0, seed, rate, warmup, schedule, decay, *betas,
                eps, clip, keeps, refresh, refresh_until, path, 0, 30.0, resume and bool(path),
                200, method, listed or None, include, exclude,
                None if comm is None else comm._handle)

    objective = (terms["labels"], terms["logits"], temperature, terms["hidden"], terms["cosine"],
                 *drop, master)
    numbers = dict(numbers or {})
    if choose_masked_decay:
        numbers = _choose_decay(method, numbers, lambda name, own, first: _first_flips(
            load, examples, objective, run(name, own, None), first))
    student = load()
    last = _core.train(student, examples, held, objective, run(method, numbers, path),
                       (lambda row: report(_step(row))) if report else None, progress)
    if comm is None or comm.rank == 0:
        _core.transformer_save(student, source._handle, out, force)
    if comm is not None:
        comm.barrier()  # none goes on before the model is there
    return _step(last)


def _step(row: tuple) -> Step:
    return Step(*row)._replace(sparse=bool(row[14]))


def _has_two_four(source: Checkpoint) -> bool:
    """Has the model a 2:4 layer, packed or as zeros?"""
    for name in source:
        if not source.selects(name):
            continue
        tensor = source.info(name)
        if tensor.packed:
            return True
        w = source.array(name)
        if any(w.shape[1 - side] % 4 == 0 and _core.check(
                np.ascontiguousarray(w if side == 0 else w.T), False) is None for side in (0, 1)):
            return True
    return False


def distil(student: Path, teacher: Path, out: Path, texts: typing.Iterable[str],
           **options: typing.Any) -> Step:
    """train(student, out, texts=texts, teacher=teacher): what pruning took from a model comes back,
    from any texts without labels."""
    return train(student, out, texts=texts, teacher=teacher, **options)
