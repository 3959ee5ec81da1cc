# SPDX-License-Identifier: Apache-2.0
"""An encoder of transformers, of texts or images, as one native session: its 2:4 layers run 2:4
where that is faster, and padding is not computed."""
from __future__ import annotations

import contextlib
import tempfile
import types

import numpy as np
import torch

from sparse24.model import Model

from .torch_ops import operand


class Output(types.SimpleNamespace):
    """What a pass gives, by attribute, by name, or by number as transformers' outputs do."""

    def __getitem__(self, key):
        return vars(self)[key] if isinstance(key, str) else list(vars(self).values())[key]


class NativeEncoder(torch.nn.Module):
    """Stands in the place of a model of transformers, for inference where that model was. Made by
    compile_encoder."""

    def __init__(self, native: Model, config, dtype: torch.dtype, device: torch.device):
        super().__init__()
        self.native, self.config, self.dtype, self.device = native, config, dtype, device

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None,
                token_type_ids: torch.Tensor | None = None, **_) -> Output:
        """input_ids [texts, tokens], padded at the right as attention_mask says; last_hidden_state
        [texts, tokens, width] with zeros in the padding, or start_logits and end_logits [texts,
        tokens] of a model with a head for answers."""
        texts, longest = input_ids.shape
        lengths, seen = [longest] * texts, None
        if attention_mask is not None:
            seen = attention_mask.bool().cpu().numpy()
            lengths = seen.sum(1).tolist()
            if not np.array_equal(seen, np.arange(longest) < np.array(lengths)[:, None]):
                raise ValueError("attention_mask: expected padding at the right alone")
        full = min(lengths) == longest
        ids, kinds = (None if x is None else
                      (x.cpu().numpy().ravel() if full else x.cpu().numpy()[seen]).astype(np.int32)
                      for x in (input_ids, token_type_ids))
        results = self._run(ids, kinds, lengths)
        given = {}
        for field, parts in results.items():
            flat = (torch.cat(parts) if len(parts) > 1 else parts[0]).to(self.dtype)
            if full:
                given[field] = flat.view(texts, longest, *flat.shape[1:])
            else:
                given[field] = flat.new_zeros(texts, longest, *flat.shape[1:])
                given[field][attention_mask.bool()] = flat
        return Output(**given)

    def _run(self, ids, kinds, lengths) -> dict[str, list[torch.Tensor]]:
        """What passes give, by transformers' names, a tensor of f32 for each pass. The ids came to
        the host after all that was enqueued, and a pass waits for itself."""
        width = self.native.info["width"]
        names = {"hidden": ("last_hidden_state", (width,))}
        if self.native.info["has_qa_head"]:
            names = {"start": ("start_logits", ()), "end": ("end_logits", ())}
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        parts: dict[str, list] = {field: [] for field, _ in names.values()}
        for first, last in self._passes(lengths):
            begin, end = offsets[first], offsets[last]
            outputs = {}
            for name, (field, shape) in names.items():
                room = torch.empty(end - begin, *shape, device=self.device)
                parts[field].append(room)
                outputs[name] = operand(room)
            self.native.forward_into(offsets[first:last + 1] - begin, ids[begin:end],
                                     None if kinds is None else kinds[begin:end], outputs)
        return parts

    def _passes(self, lengths):
        """Ranges of texts whose tokens fit into one pass."""
        first, tokens = 0, 0
        for i, length in enumerate(lengths):
            if i > first and tokens + length > self.native.max_tokens:
                yield first, i
                first, tokens = i, 0
            tokens += length
        yield first, len(lengths)


class NativeClassifier(torch.nn.Module):
    """Stands in the place of a classifier of images of transformers. Made by compile_encoder."""

    def __init__(self, native: Model, config, dtype: torch.dtype, device: torch.device):
        super().__init__()
        self.native, self.config, self.dtype, self.device = native, config, dtype, device

    def forward(self, pixel_values: torch.Tensor, **_) -> Output:
        """pixel_values [n, channels, side, side], normalised; logits [n, classes]."""
        pixels = pixel_values.to(self.device, torch.float32).contiguous()
        logits = torch.empty(len(pixels), self.native.info["classes"], device=self.device)
        most = max(1, self.native.max_tokens // self.native.info["positions"])
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        for one, two in zip(pixels.split(most), logits.split(most)):
            if len(one):
                self.native.forward_images_into(operand(one), {"logits": operand(two)})
        return Output(logits=logits.to(self.dtype))


def _part_of_sentences(model: torch.nn.Module) -> tuple[torch.nn.Module, str] | None:
    """The part of a SentenceTransformer that holds a model of transformers, and as what."""
    part = model[0] if isinstance(model, torch.nn.Sequential) and len(model) else None
    if not hasattr(part, "auto_model"):
        return None
    return part, "auto_model" if "auto_model" in part._modules else "model"


def compile_encoder(model: torch.nn.Module, *, dtype: str | None = None,
                    max_tokens: int = 4096) -> torch.nn.Module:
    """A native session of a model of transformers (of docs/guide/models.md an encoder of texts, one
    with a head for answers, or a classifier of images), whose weights are copied, on the CPU or the
    GPU where it is; layers that are 2:4 run so where that is faster.

    dtype: "f32", "bf16" or "i8", on a GPU "f16", "bf16", "i8" or "e4m3"; max_tokens: of one pass.

        model.auto_model = compile_encoder(model.auto_model)
        sentences = compile_encoder(SentenceTransformer(…))     # in place, its encoder alone

    Raises sparse24.Error for a model type that is not carried out, by its name.
    """
    sentences = _part_of_sentences(model)
    if sentences:
        part, name = sentences
        setattr(part, name, compile_encoder(getattr(part, name), dtype=dtype,
                                            max_tokens=max_tokens))
        return model
    first = next(model.parameters())
    device = str(first.device) if first.is_cuda else None
    if device and dtype is None and first.dtype is not torch.bfloat16:
        dtype = "f16"
    current = torch.cuda.device(first.device) if device else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, current:
        model.save_pretrained(folder)
        native = Model(folder, dtype=dtype, sparse=True, max_tokens=max_tokens, device=device)
    kind = NativeClassifier if native.info["classes"] else NativeEncoder
    return kind(native, model.config, first.dtype, first.device)
