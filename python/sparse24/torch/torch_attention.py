# SPDX-License-Identifier: Apache-2.0
"""nn.MultiheadAttention with 2:4 input projections."""
from __future__ import annotations

import torch

from .torch_modules import SparseLinear

#: What MultiheadAttention calls the weights of its input projections where they lie apart.
APART = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


class SparseAttention(torch.nn.MultiheadAttention):
    """MultiheadAttention whose input projections are SparseLinears, three also where they were one
    weight: PyTorch's pass multiplies by each apart then. Made of one in place by accelerate_; its
    state dict is what it was."""
    projections: torch.nn.ModuleList
    packed_names: tuple[str, ...]  # of the weights in the state dict, one or three

    q_proj_weight = property(lambda self: self.projections[0].weight)
    k_proj_weight = property(lambda self: self.projections[1].weight)
    v_proj_weight = property(lambda self: self.projections[2].weight)

    def _load_from_state_dict(self, state_dict, prefix, *args):
        given = [state_dict.pop(prefix + name, None) for name in self.packed_names]
        if given[0] is not None and len(given) == 1:
            given = given[0].chunk(3)
        for i, weight in enumerate(given):
            if weight is not None:
                state_dict[f"{prefix}projections.{i}.weight"] = weight
        super()._load_from_state_dict(state_dict, prefix, *args)


def _as_it_was(attention, state, prefix, _):
    weights = [state.pop(f"{prefix}projections.{i}.weight") for i in range(3)]
    if len(attention.packed_names) == 1:
        weights = [torch.cat(weights)]
    for name, weight in zip(attention.packed_names, weights):
        state[prefix + name] = weight


def input_weights(attention: torch.nn.MultiheadAttention) -> list[tuple[str, torch.Tensor]]:
    """The weights of query, key and value, where they lie, by the names of their parameters; none
    of one whose projections are 2:4 already."""
    if isinstance(attention, SparseAttention):
        return []
    if attention._qkv_same_embed_dim:
        return [("in_proj_weight", rows) for rows in attention.in_proj_weight.detach().chunk(3)]
    return [(name, getattr(attention, name).detach()) for name in APART]


def make_sparse_(attention: torch.nn.MultiheadAttention) -> None:
    """Makes it a SparseAttention in place. Raises sparse24.Error (a weight that is not 2:4)."""
    projections = []
    for _, w in input_weights(attention):
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, device="meta")
        linear.weight = torch.nn.Parameter(w, requires_grad=False)
        projections.append(SparseLinear.from_dense(linear))
    names = ("in_proj_weight",) if attention._qkv_same_embed_dim else APART
    for name in APART:
        del attention._parameters[name]
    attention._parameters["in_proj_weight"] = None
    attention.__class__ = SparseAttention
    attention.packed_names, attention._qkv_same_embed_dim = names, False
    attention.projections = torch.nn.ModuleList(projections)
    attention._register_state_dict_hook(_as_it_was)
