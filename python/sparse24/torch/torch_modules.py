# SPDX-License-Identifier: Apache-2.0
"""A linear layer with a packed 2:4 weight."""
from __future__ import annotations

import torch

from .torch_ops import dtype_of, layout_of, product


class SparseLinear(torch.nn.Module):
    """y = x·wᵀ + bias with a 2:4 w [out_features, in_features] in packed bytes. Its state dict has
    the dense weight, so that it loads into nn.Linear and the other way round."""

    def __init__(self, packed: torch.Tensor, out_features: int, in_features: int,
                 bias: torch.nn.Parameter | None, layout: str):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("packed", packed, persistent=False)
        self.layout = layout
        self.bias = bias
        self._register_state_dict_hook(_add_dense)
        self._register_load_state_dict_pre_hook(self._take_dense)

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear, select: str = "strict") -> SparseLinear:
        """Of an nn.Linear whose weight is 2:4, or made so by `select`. Raises sparse24.Error."""
        w = linear.weight.detach()
        packed = torch.ops.sparse24.prune_pack(w, select)
        return cls(packed, *w.shape, linear.bias, layout_of(w.dtype, w.device.type))

    def dense_weight(self) -> torch.Tensor:
        """The weight with its zeros."""
        return torch.ops.sparse24.to_dense(self.packed, self.out_features, self.in_features,
                                           self.layout)

    def to_dense(self) -> torch.nn.Linear:
        """The same layer as nn.Linear."""
        dense = torch.nn.Linear(self.in_features, self.out_features, self.bias is not None,
                                dtype=dtype_of(self.layout), device="meta")
        dense.weight = torch.nn.Parameter(self.dense_weight())
        dense.bias = self.bias
        return dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], of x's dtype."""
        return product(x, self.packed, self.bias, self.out_features, self.in_features, self.layout)

    def extra_repr(self):
        """Shapes, for print(model)."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, layout={self.layout}")

    def _apply(self, fn, recurse=True):
        before = self.packed
        super()._apply(fn, recurse)
        if self.packed.device.type != before.device.type and self.packed.device.type != "meta":
            self._repack(before, self.packed.device)
        return self

    def _repack(self, packed, device):
        """Each type of device has an order of its own."""
        weight = torch.ops.sparse24.to_dense(packed, self.out_features, self.in_features,
                                             self.layout).to(device)
        self.layout = layout_of(weight.dtype, device.type)
        self.packed = torch.ops.sparse24.prune_pack(weight, "strict")

    def _take_dense(self, state, prefix, *_):
        weight = state.pop(prefix + "weight", None)
        if weight is not None:
            weight = weight.to(self.packed.device, dtype_of(self.layout))
            self.packed = torch.ops.sparse24.prune_pack(weight, "strict")


def _add_dense(module, state, prefix, _):
    state[prefix + "weight"] = module.dense_weight()
