# SPDX-License-Identifier: Apache-2.0
"""A linear layer with a packed 2:4 weight."""
from __future__ import annotations

import sys

import torch
import torch.fx

from sparse24 import Error

from .torch_ops import dtype_of, layout_of, product
from .torch_weight import LayerWeight, PackedLayer

torch.fx.wrap("product")  # symbolic tracing takes it as it is


def is_dense(layer: torch.nn.Module) -> bool:
    """Is it an nn.Linear that holds a dense weight?"""
    return isinstance(layer, torch.nn.Linear) and not isinstance(layer, PackedLayer)


def is_conv1d(layer: torch.nn.Module) -> bool:
    """Is it transformers' Conv1D, a linear layer with a weight [in_features, out_features]?"""
    kind = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    return kind is not None and isinstance(layer, kind)


def weight_of(layer: torch.nn.Module) -> torch.Tensor:
    """The weight [out_features, in_features] of an nn.Linear or a Conv1D, where it lies."""
    weight = layer.weight.detach()
    return weight.t() if is_conv1d(layer) else weight


class SparseLinear(PackedLayer):
    """y = x·wᵀ + bias with a 2:4 w [out_features, in_features] in packed bytes. Its state dict has
    the dense weight, so that it loads into nn.Linear and the other way round. `transposed`: it
    stands for transformers' Conv1D, whose weight is [in_features, out_features]."""

    def __init__(self, packed: torch.Tensor, out_features: int, in_features: int,
                 bias: torch.nn.Parameter | None, layout: str, *, transposed: bool = False):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("packed", packed, persistent=False)
        self.layout, self.transposed = layout, transposed
        self.bias = bias
        self._register_state_dict_hook(_add_dense)
        self._register_load_state_dict_pre_hook(self._take_dense)

    @classmethod
    def from_dense(cls, linear: torch.nn.Module, select: str = "strict") -> SparseLinear:
        """Of an nn.Linear, or transformers' Conv1D, whose weight is 2:4, or made so by `select`.
        Raises sparse24.Error."""
        w = weight_of(linear)
        packed = torch.ops.sparse24.prune_pack(w, select)
        layer = cls(packed, *w.shape, linear.bias, layout_of(w.dtype, w.device.type),
                    transposed=is_conv1d(linear))
        return layer.train(linear.training)

    @property
    def dtype(self) -> torch.dtype:
        """The weight's."""
        return dtype_of(self.layout)

    @property
    def weight(self) -> LayerWeight:
        """As PackedLayer's; of a layer that stands for Conv1D its transpose."""
        return LayerWeight(self, self.transposed)

    def dense_weight(self) -> torch.Tensor:
        """The weight [out_features, in_features] with its zeros."""
        return torch.ops.sparse24.to_dense(self.packed, self.out_features, self.in_features,
                                           self.layout)

    def to_dense(self) -> torch.nn.Linear:
        """The same layer as nn.Linear."""
        dense = torch.nn.Linear(self.in_features, self.out_features, self.bias is not None,
                                dtype=self.dtype, device="meta")
        dense.weight = torch.nn.Parameter(self.dense_weight())
        dense.bias = self.bias
        return dense

    def _product(self, x, bias):
        return product(x, self.packed, bias, self.out_features, self.in_features, self.layout)

    def extra_repr(self):
        """Shapes, for print(model)."""
        return f"{super().extra_repr()}, layout={self.layout}"

    def _apply(self, fn, recurse=True):
        before, dtype = self.packed, self._dtype_after(fn, self.packed.device)
        if dtype is not self.dtype and before.device.type != "meta":
            layout_of(dtype, before.device.type)  # refuses a dtype before anything is changed
        super()._apply(fn, recurse)
        device = self.packed.device
        moved = device.type != before.device.type or dtype is not self.dtype
        if moved and "meta" not in (device.type, before.device.type):
            self._repack(before, device, dtype)
        return self

    def _repack(self, packed, device, dtype):
        """Each type of device and each dtype has an order of its own."""
        weight = torch.ops.sparse24.to_dense(packed, self.out_features, self.in_features,
                                             self.layout).to(device, dtype)
        self.layout = layout_of(dtype, device.type)
        self.packed = torch.ops.sparse24.prune_pack(weight, "strict")

    def _take_dense(self, state, prefix, _, __, missing, ___, errors):
        key = prefix + "weight"
        weight = state.pop(key, None)
        if weight is None:
            missing.append(key)
        elif weight.shape != self.weight.shape:
            errors.append(f"size mismatch for {key}: {list(weight.shape)} in the checkpoint, "
                          f"{list(self.weight.shape)} here.")
        else:
            weight = weight.t() if self.transposed else weight
            weight = weight.to(self.packed.device, self.dtype)
            try:
                self.packed = torch.ops.sparse24.prune_pack(weight, "strict")
            except Error as error:
                errors.append(f"{key}: {error}")


def _add_dense(module, state, prefix, _):
    weight = module.dense_weight()
    state[prefix + "weight"] = weight.t().contiguous() if module.transposed else weight
