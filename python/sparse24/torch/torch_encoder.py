# SPDX-License-Identifier: Apache-2.0
"""An encoder of transformers as one native session: its 2:4 layers run 2:4 where that is faster,
and padding is not computed."""
from __future__ import annotations

import tempfile
import types

import numpy as np
import torch

from sparse24.model import Model


class Output(types.SimpleNamespace):
    """What a pass gives, by attribute, by name, or by number as transformers' outputs do."""

    def __getitem__(self, key):
        return vars(self)[key] if isinstance(key, str) else list(vars(self).values())[key]


class NativeEncoder(torch.nn.Module):
    """Stands in the place of a model of transformers, for inference on the CPU. Made by
    compile_encoder."""

    def __init__(self, native: Model, config, dtype: torch.dtype):
        super().__init__()
        self.native, self.config, self.dtype = native, config, dtype
        self.device = torch.device("cpu")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None,
                token_type_ids: torch.Tensor | None = None, **_) -> Output:
        """input_ids [texts, tokens], padded at the right as attention_mask says; last_hidden_state
        [texts, tokens, width] with zeros in the padding, or start_logits and end_logits [texts,
        tokens] of a model with a head for answers."""
        texts, longest = input_ids.shape
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = mask.bool()
        lengths = mask.sum(1)
        if not torch.equal(mask, torch.arange(longest)[None, :] < lengths[:, None]):
            raise ValueError("attention_mask: expected padding at the right alone")
        ids = [row[:n].numpy() for row, n in zip(input_ids.int(), lengths.tolist())]
        kinds = None
        if token_type_ids is not None:
            kinds = [row[:n].numpy() for row, n in zip(token_type_ids.int(), lengths.tolist())]
        answers = self.native.info["has_qa_head"]
        names = {"start": "start_logits", "end": "end_logits"} if answers else {
            "hidden": "last_hidden_state"}
        parts: dict[str, list] = {name: [] for name in names}
        for first, last in self._passes(lengths.tolist()):
            result = self.native.forward(ids[first:last], outputs=tuple(names),
                                         types=kinds and kinds[first:last])
            for name, values in result.items():
                parts[name].append(values)
        given = {}
        for name, field in names.items():
            flat = torch.from_numpy(np.concatenate(parts[name])).to(self.dtype)
            given[field] = flat.new_zeros(texts, longest, *flat.shape[1:])
            given[field][mask] = flat
        return Output(**given)

    def _passes(self, lengths):
        """Ranges of texts whose tokens fit into one pass."""
        first, tokens = 0, 0
        for i, length in enumerate(lengths):
            if i > first and tokens + length > self.native.max_tokens:
                yield first, i
                first, tokens = i, 0
            tokens += length
        yield first, len(lengths)


def compile_encoder(model: torch.nn.Module, *, dtype: str | None = None,
                    max_tokens: int = 4096) -> NativeEncoder:
    """A native session of a model of transformers (one of docs/guide/models.md), whose weights are
    copied; layers that are 2:4 run so where that is faster. dtype: "f32", "bf16" or "i8".

        sentences[0].auto_model = compile_encoder(sentences[0].auto_model)

    Raises sparse24.Error for a model type that is not carried out, by its name.
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        native = Model(folder, dtype=dtype, sparse=True, max_tokens=max_tokens)
    return NativeEncoder(native, model.config, next(model.parameters()).dtype)
