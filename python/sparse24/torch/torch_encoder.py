# SPDX-License-Identifier: Apache-2.0
"""A model of transformers, of texts or images, as one native session: its 2:4 layers run 2:4 where
that is faster, and padding is not computed. Heads stay transformers' own, on top of it."""
from __future__ import annotations

import contextlib
import copy
import functools
import multiprocessing
import tempfile
import types
import typing

import numpy as np
import torch

from sparse24.model import Model

from .torch_cuda import flat as there_operand, stream_of
from .torch_ops import operand

#: Heads whose class names end so are put on a native base: they read no more of it than its states.
_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
          "ForMultipleChoice", "ForNextSentencePrediction", "ForMaskedLM")
_LANGUAGE = ("ForCausalLM", "LMHeadModel")
#: Of images, those whose states or classes are a native pass's.
_IMAGES = ("ViTModel", "ViTForImageClassification", "DeiTModel", "DeiTForImageClassification",
           "Dinov2Model", "Dinov2WithRegistersModel", "CLIPVisionModel", "SiglipVisionModel")


class Output(types.SimpleNamespace):
    """What a pass gives, by attribute, by name, or by number as transformers' outputs do."""
    loss = hidden_states = attentions = cross_attentions = past_key_values = None
    pooler_output = None

    def __getitem__(self, key):
        return vars(self)[key] if isinstance(key, str) else list(vars(self).values())[key]


def _refuse(module: torch.nn.Module, given: dict[str, typing.Any]) -> None:
    """An argument that changes what a pass gives and is not carried out is an error."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, (bool, int)) and not value):
            raise ValueError(f"{name}: {type(module).__name__} of "
                             f"{module.config.model_type} does not take it")


def _given(outputs: Output, return_dict: bool | None):
    return tuple(vars(outputs).values()) if return_dict is False else outputs


def _there(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """x on a device; from the host to a GPU without a wait."""
    if device.type != "cuda" or x.is_cuda:
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


class _Rows:
    """Which tokens of padded texts are run, and where they stand."""

    def __init__(self, ids: torch.Tensor, attention_mask: torch.Tensor | None):
        self.texts, self.longest = ids.shape
        self.mask: torch.Tensor | None = None  # of tokens that are run and not attended to
        #: Where what is run stands among all tokens, and of each text the first; None: all is run.
        self.index = self.firsts = None
        self.lengths = [self.longest] * self.texts if self.longest else []
        if attention_mask is None:
            return
        seen = attention_mask.cpu().numpy() != 0
        if seen.shape != tuple(ids.shape):
            raise ValueError(f"attention_mask is {list(seen.shape)}; expected {list(ids.shape)}")
        if seen.all():
            return
        if self._holes(seen):
            self.mask = torch.from_numpy(seen.astype(np.uint8))
            return
        lengths = seen.sum(1)
        rows = np.flatnonzero(lengths)
        self.lengths = lengths[rows].tolist()
        self.index = torch.from_numpy(np.flatnonzero(seen))
        starts = np.cumsum(lengths[rows]) - lengths[rows]
        self.firsts = (torch.from_numpy(rows), torch.from_numpy(starts))

    @staticmethod
    def _holes(seen: np.ndarray) -> bool:
        """Is there padding inside a text?"""
        turns = (seen[:, 1:] != seen[:, :-1]).sum(1) + seen[:, 0] + seen[:, -1]
        return bool((turns > 2).any())

    def take(self, x: torch.Tensor) -> torch.Tensor:
        """Of a tensor [texts, tokens] what is run, end to end."""
        flat = x.expand(self.texts, self.longest).reshape(-1)
        return flat if self.index is None else flat[_there(self.index, flat.device)]

    def scatter(self, flat: torch.Tensor) -> torch.Tensor:
        """[tokens, …] back to [texts, longest, …], with zeros in the padding."""
        shape = (self.texts, self.longest, *flat.shape[1:])
        if self.index is None:
            return flat.view(shape)
        whole = flat.new_zeros(self.texts * self.longest, *flat.shape[1:])
        return whole.index_copy_(0, _there(self.index, flat.device), flat).view(shape)

    def first(self, flat: torch.Tensor) -> torch.Tensor:
        """The first token's row of each text [texts, 1, …], zeros for a text without one."""
        if self.firsts is None:
            return flat.view(self.texts, self.longest, *flat.shape[1:])[:, :1]
        rows = flat.new_zeros(self.texts, 1, *flat.shape[1:])
        to, at = (_there(index, flat.device) for index in self.firsts)
        return rows.index_copy_(0, to, flat[at].unsqueeze(1))


def _states(native: Model) -> torch.dtype:
    """Of the states that a session on a GPU gives."""
    return torch.float16 if native.info["dtype"] == "f16" else torch.bfloat16


class _Native(torch.nn.Module):
    """What holds a native session. Copies share it: its weights do not change, and its calls wait
    for each other."""
    folder: tempfile.TemporaryDirectory  # of the session's files, for as long as it lives

    def __copy__(self):
        new = type(self).__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __deepcopy__(self, memo):
        new = self.__copy__()
        new._modules = copy.deepcopy(self._modules, memo)
        return new

    def _apply(self, fn, recurse=True):
        """Of what is asked, another dtype is that of the results; the session stays."""
        as_if = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if as_if.device.type != self.device.type:
            raise NotImplementedError(f"{type(self).__name__} runs on {self.device}, where the "
                                      f"model was: compile_encoder of one on {as_if.device} runs "
                                      "there")
        super()._apply(fn, recurse)
        self.dtype = as_if.dtype
        return self

    def save_pretrained(self, *_, **__):
        """Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} holds a native session, which is not "
                                  "saved: save the model that it was made of")

    def __getstate__(self):
        """A process that is spawned opens the session's folder again, as long as this one lives;
        nobody else finds it. Raises TypeError."""
        if multiprocessing.context.get_spawning_popen() is None:
            raise TypeError(f"{type(self).__name__} holds a native session, which is not pickled "
                            "but for a process that is spawned with it: compile_encoder makes one "
                            "in each process")
        return {name: value for name, value in vars(self).items()
                if name not in ("folder", "_numbers", "_kinds")}


class NativeEncoder(_Native):
    """Stands in the place of a model of transformers, for inference where that model was. Made by
    compile_encoder."""

    def __init__(self, native: Model, config, dtype: torch.dtype, device: torch.device, *,
                 pooler: torch.nn.Module | None = None, language: bool = False):
        super().__init__()
        self.native, self.config, self.dtype, self.device = native, config, dtype, device
        self.pooler, self.language = pooler, language

    def forward(self, input_ids: torch.Tensor | None = None,
                attention_mask: torch.Tensor | None = None,
                token_type_ids: torch.Tensor | None = None,
                return_dict: bool | None = None, **other) -> Output:
        """input_ids [texts, tokens]; last_hidden_state [texts, tokens, width] with zeros in the
        padding, and pooler_output where the model has a pooler; or start_logits and end_logits
        [texts, tokens] of a head for answers; or logits [texts, tokens, vocabulary] of a language
        model. Padding, at the left or at the right, is not run: positions count from a text's first
        token. Where attention_mask has zeros inside a text, all of its row is run and what they
        hide is not attended to. On a GPU the pass is enqueued in PyTorch's current stream: the
        call waits for an attention_mask that is there, and of a language model for the logits; and
        ids out of range are an assertion there, as nn.Embedding's. Raises ValueError for any other
        argument, by its name."""
        _refuse(self, other)
        if input_ids is None or input_ids.dim() != 2:
            raise ValueError("input_ids: expected [texts, tokens]")
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(f"attention_mask is {list(attention_mask.shape)}; "
                             f"expected {list(input_ids.shape)}")
        rows = _Rows(input_ids, attention_mask)
        there = self.device.type == "cuda" and not self.language
        results = (self._enqueue if there else self._run)(rows, input_ids, token_type_ids)
        given = {field: rows.scatter(flat) for field, flat in results.items()}
        if self.pooler is not None and "last_hidden_state" in results:
            given["pooler_output"] = self.pooler(rows.first(results["last_hidden_state"]))
        return _given(Output(**given), return_dict)

    def _names(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The session's outputs, by transformers' names, with a token's shape."""
        info = self.native.info
        if self.language:
            return {"logits": ("logits", (info["vocabulary"],))}
        if info["has_qa_head"]:
            return {"start": ("start_logits", ()), "end": ("end_logits", ())}
        return {"hidden": ("last_hidden_state", (info["width"],))}

    def _rooms(self, rows: _Rows, dtype: torch.dtype) -> dict[str, tuple[str, torch.Tensor]]:
        """Memory for the session's outputs, by its names, with transformers'."""
        count = sum(rows.lengths)
        return {name: (field, torch.empty(count, *shape, device=self.device,
                                          dtype=dtype if name == "hidden" else torch.float32))
                for name, (field, shape) in self._names().items()}

    def _run(self, rows: _Rows, ids, kinds) -> dict[str, torch.Tensor]:
        """What passes give. The ids came to the host after all that was enqueued, and a pass waits
        for itself."""
        rooms = self._rooms(rows, torch.float32)
        host = [None if x is None else rows.take(x).cpu().to(torch.int32).numpy()
                for x in (ids, kinds)]
        mask = None if rows.mask is None else rows.mask.numpy().ravel()
        for offsets, piece in self._passes(rows.lengths):
            outputs = {name: operand(room[piece].view(offsets[-1], -1))
                       for name, (_, room) in rooms.items()}
            self.native.forward_into(offsets, *(None if x is None else x[piece] for x in host),
                                     outputs, mask=None if mask is None else mask[piece])
        return {field: room.to(self.dtype) for field, room in rooms.values()}

    @functools.cached_property
    def _numbers(self) -> torch.Tensor:
        """The ids as the session reads them: choosing among them asserts that there is such an id,
        as nn.Embedding does."""
        return torch.arange(self.native.info["vocabulary"], dtype=torch.int32, device=self.device)

    @functools.cached_property
    def _kinds(self) -> torch.Tensor:
        """As _numbers, of types."""
        kinds = max(self.native.info["types"], 1)
        return torch.arange(kinds, dtype=torch.int32, device=self.device)

    def _enqueue(self, rows: _Rows, ids, kinds) -> dict[str, torch.Tensor]:
        """What passes give that are enqueued in PyTorch's current stream."""
        rooms = self._rooms(rows, _states(self.native))
        with torch.cuda.device(self.device):
            given = [None if x is None else known.index_select(0, rows.take(_there(x, self.device)))
                     for x, known in ((ids, self._numbers), (kinds, self._kinds))]
            if rows.mask is not None:
                given.append(_there(rows.mask.view(-1), self.device))
            for offsets, piece in self._passes(rows.lengths):
                self.native.enqueue([None if x is None else there_operand(x[piece]) for x in given],
                                    {name: there_operand(room[piece])
                                     for name, (_, room) in rooms.items()},
                                    stream_of(self.device.index), offsets=offsets)
        return {field: room.to(self.dtype) for field, room in rooms.values()}

    def _passes(self, lengths):
        """(offsets of its texts, slice of the tokens) of each pass into which they fit."""
        first, tokens, begin = 0, 0, 0
        for i, length in enumerate([*lengths, None]):
            full = i > first and (length is None or tokens + length > self.native.max_tokens)
            if full:
                offsets = np.zeros(i - first + 1, np.int64)
                np.cumsum(lengths[first:i], out=offsets[1:])
                yield offsets, slice(begin, begin + tokens)
                first, begin, tokens = i, begin + tokens, 0
            tokens += length or 0


class NativeImages(_Native):
    """Stands in the place of a model of images of transformers. Made by compile_encoder."""

    def __init__(self, native: Model, config, dtype: torch.dtype, device: torch.device, *,
                 norm: torch.nn.Module | None = None, pooler: torch.nn.Module | None = None):
        super().__init__()
        self.native, self.config, self.dtype, self.device = native, config, dtype, device
        self.norm, self.pooler = norm, pooler  # after the last block, where no class is wanted

    def forward(self, pixel_values: torch.Tensor | None = None, return_dict: bool | None = None,
                **other) -> Output:
        """pixel_values [n, channels, side, side], normalised; logits [n, classes] of a classifier,
        or last_hidden_state [n, positions, width] and, where the model has a pooler, pooler_output.
        Raises ValueError for any other argument, by its name."""
        _refuse(self, other)
        if pixel_values is None:
            raise ValueError("pixel_values: expected [n, channels, side, side]")
        pixels = pixel_values.to(self.device, torch.float32).contiguous()
        info, there = self.native.info, self.device.type == "cuda"
        name, shape = ("logits", (info["classes"],)) if info["classes"] else \
            ("hidden", (info["positions"], info["width"]))
        result = torch.empty(len(pixels), *shape, device=self.device,
                             dtype=_states(self.native) if there and name == "hidden" else None)
        most = max(1, self.native.max_tokens // info["positions"])
        for one, two in zip(pixels.split(most), result.split(most)):
            if there and len(one):
                self.native.enqueue([None] * 3 + [there_operand(one)], {name: there_operand(two)},
                                    stream_of(self.device.index))
            elif len(one):
                self.native.forward_images_into(operand(one),
                                                {name: operand(two.view(len(two), -1))})
        result = result.to(self.dtype)
        if info["classes"]:
            return _given(Output(logits=result), return_dict)
        result = result if self.norm is None else self.norm(result)
        given = {"last_hidden_state": result}
        if self.pooler is not None:
            given["pooler_output"] = self.pooler(result)
        return _given(Output(**given), return_dict)


class _First(torch.nn.Module):
    """The state of the first token, normed where there is a norm."""

    def __init__(self, norm: torch.nn.Module | None = None):
        super().__init__()
        self.norm = norm

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[n, positions, width] to [n, width]."""
        first = states[:, 0]
        return first if self.norm is None else self.norm(first)


def _pooler(model: torch.nn.Module) -> torch.nn.Module | None:
    """What makes a model's pooler_output of its last states, a copy; None: it has none."""
    parts = {**getattr(model, "vision_model", model)._modules, **model._modules}
    if type(model).__name__.startswith("Dinov2"):
        return _First()
    if type(model).__name__ == "CLIPVisionModel":
        return _First(copy.deepcopy(parts["post_layernorm"]))
    return copy.deepcopy(parts.get("pooler") or parts.get("head"))


def _part_of_sentences(model: torch.nn.Module) -> tuple[torch.nn.Module, str] | None:
    """The part of a SentenceTransformer that holds a model of transformers, and as what."""
    part = model[0] if isinstance(model, torch.nn.Sequential) and len(model) else None
    if not hasattr(part, "auto_model"):
        return None
    return part, "auto_model" if "auto_model" in part._modules else "model"


def _with_head(model: torch.nn.Module, base: torch.nn.Module) -> torch.nn.Module:
    """A model with a copy of its head, and another base; the model itself stays as it is."""
    new = copy.copy(model)
    new._modules = {name: base if name == model.base_model_prefix else copy.deepcopy(part)
                    for name, part in model._modules.items()}
    return new.eval()


def _native(model: torch.nn.Module, options: dict[str, typing.Any],
            language: bool) -> torch.nn.Module:
    """One session of all of a model that the library carries out."""
    folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
    module = _opened(model, folder.name, options, language)
    module.folder = folder
    return module


def _opened(model: torch.nn.Module, folder: str, options: dict[str, typing.Any],
            language: bool) -> torch.nn.Module:
    """The same, from a folder that it is written to."""
    first = next(model.parameters())
    device = str(first.device) if first.is_cuda else None
    if device and options["dtype"] is None and first.dtype is not torch.bfloat16:
        options = {**options, "dtype": "f16"}
    current = torch.cuda.device(first.device) if device else contextlib.nullcontext()
    with current:
        model.save_pretrained(folder)
        native = Model(folder, sparse=True, device=device, **options)
    norm, pooler = (copy.deepcopy(model._modules.get(name)) for name in ("layernorm", "pooler"))
    place = (native, model.config, first.dtype, first.device)
    if native.info["image"]:
        if type(model).__name__ not in _IMAGES:
            raise NotImplementedError(f"{type(model).__name__}: of images {', '.join(_IMAGES)} are "
                                      "carried out")
        norm = norm if native.info["model_type"] == "vit" else None  # others' states are normed
        return NativeImages(*place, norm=norm, pooler=_pooler(model))
    if language:
        native.forward([[0]], outputs=("logits",))  # says so where there is no such head
    return NativeEncoder(*place, pooler=pooler, language=language)


def compile_encoder(model: torch.nn.Module, *, dtype: str | None = None,
                    max_tokens: int = 4096) -> torch.nn.Module:
    """A native session of a model of transformers (of docs/guide/models.md one of texts or images,
    with or without a head), whose weights are copied, on the CPU or the GPU where it is; layers
    that are 2:4 run so where that is faster.

    Heads for sequences, tokens, answers, choices, next sentences and masked words are a copy of
    transformers' own on a native base; ViT's for classes, BERT's for answers and those of language
    models (ForCausalLM) run natively with the rest.

    dtype: "f32", "bf16" or "i8", on a GPU "f16", "bf16", "i8" or "e4m3"; max_tokens: of one pass.

        model.auto_model = compile_encoder(model.auto_model)
        sentences = compile_encoder(SentenceTransformer(…))     # in place, its encoder alone

    Raises sparse24.Error for a model type that is not carried out, NotImplementedError for another
    head, by its name.
    """
    sentences = _part_of_sentences(model)
    options = {"dtype": dtype, "max_tokens": max_tokens}
    if sentences:
        part, name = sentences
        setattr(part, name, compile_encoder(getattr(part, name), **options))
        return model
    kind = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise NotImplementedError(f"{kind}: its decoder is not carried out; of such models "
                                  "an encoder alone is, as T5EncoderModel")
    if hasattr(model.config, "text_config") and hasattr(model.config, "vision_config"):
        raise NotImplementedError(f"{kind} has a model of texts and one of images: compile_encoder("
                                  "model.vision_model) takes the latter")
    base = model._modules.get(getattr(model, "base_model_prefix", ""))
    if base is None or kind.endswith(_LANGUAGE) or kind.endswith("ForImageClassification"):
        return _native(model, options, kind.endswith(_LANGUAGE))
    if not kind.endswith(_HEADS):
        raise NotImplementedError(f"{kind}: its head is not carried out; compile_encoder("
                                  f"model.{model.base_model_prefix}) takes its base")
    if kind.endswith("ForQuestionAnswering"):
        whole = _native(model, options, False)
        if whole.native.info["has_qa_head"]:
            return whole
    return _with_head(model, _native(base, options, False))
