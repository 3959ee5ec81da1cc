# SPDX-License-Identifier: Apache-2.0
"""What layers of packed weights share, and the `weight` that models read of them."""
from __future__ import annotations

import torch
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten


class PackedLayer(torch.nn.Linear):
    """y = x·wᵀ + bias of a w [out_features, in_features] that is not held as a dense tensor. It is
    an nn.Linear to those who look for one, as adapters do (LoRA). A subclass has `dtype`,
    `dense_weight` and `_product`."""
    bias: torch.nn.Parameter | None
    dtype: torch.dtype  # of the weight that this one stands for

    def __init__(self):
        torch.nn.Module.__init__(self)  # nn.Linear's makes a dense weight

    def dense_weight(self) -> torch.Tensor:
        """The weight with its zeros."""
        raise NotImplementedError

    def _product(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError

    @property
    def weight(self) -> LayerWeight:
        """The weight as those see it who read a layer's: its dtype, shape and device, and
        F.linear of it runs as the layer does. It is not in the state dict by itself."""
        return LayerWeight(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], of x's dtype."""
        return self._product(x, self.bias)

    def _dtype_after(self, fn, device: torch.device) -> torch.dtype:
        """What fn of Module._apply makes of the weight's dtype."""
        return fn(torch.empty(0, dtype=self.dtype, device=device)).dtype

    def extra_repr(self):
        """Shapes, for print(model)."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class FloatLayer(PackedLayer):
    """A layer whose weight is made with a buffer of f32, which stays so whatever dtype the model is
    given: that only says which dtype the weight stands for."""
    floats: str  # the buffer's name

    def _apply(self, fn, recurse=True):
        before = getattr(self, self.floats)
        dtype = self._dtype_after(fn, before.device)
        super()._apply(fn, recurse)
        after = getattr(self, self.floats)
        if after.dtype is not before.dtype:
            setattr(self, self.floats, before.to(after.device))
        self.dtype = dtype
        return self


class LayerWeight(torch.Tensor):
    """The weight [n, k] of a PackedLayer, or its transpose. Products with x [..., k] run as the
    layer's do; whatever else reads it sees the dense weight, made anew; writing is refused."""
    __slots__ = ("layer", "is_transposed")

    @staticmethod
    def __new__(cls, layer: PackedLayer, is_transposed: bool = False):
        shape = (layer.out_features, layer.in_features)
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, shape[::-1] if is_transposed else shape, dtype=layer.dtype,
            device=next(layer.buffers()).device)
        tensor.layer, tensor.is_transposed = layer, is_transposed
        return tensor

    def __repr__(self):
        return f"LayerWeight(shape={list(self.shape)}, dtype={self.dtype})"

    def to_dense(self):  # pylint: disable=arguments-differ
        """The weight with its zeros."""
        dense = self.layer.dense_weight().to(self.dtype)
        return dense.t() if self.is_transposed else dense

    def __reduce_ex__(self, protocol):
        return self.to_dense().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return self.to_dense()

    # PyTorch asks for this before its fused passes of attention, which would read the memory.
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in _TO_HOST:
            args = (args[0].to_dense(), *args[1:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        rule = _RULES.get(func._overloadpacket)
        if rule is not None:
            result = rule(*args, **kwargs)
            if result is not NotImplemented:
                return result
        for argument, given in zip(func._schema.arguments, args):
            if isinstance(given, LayerWeight) and argument.alias_info is not None and \
                    argument.alias_info.is_write:
                raise NotImplementedError(f"{func} writes to the weight of a packed layer; "
                                          "load_state_dict gives it another one")
        dense = tree_map_only(LayerWeight, LayerWeight.to_dense, (args, kwargs))
        return func(*dense[0], **dense[1])


_TO_HOST = (torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__)


def _mm(a, b, bias=None):
    """a times b plus bias, where b is the transpose of a layer's weight."""
    if isinstance(a, LayerWeight) or not (isinstance(b, LayerWeight) and b.is_transposed):
        return NotImplemented
    return b.layer._product(a, bias)


def _addmm(bias, a, b, *, beta=1, alpha=1):
    plain = beta == 1 and alpha == 1 and bias.dim() == 1 and bias.shape[0] == b.shape[1]
    return _mm(a, b, bias) if plain else NotImplemented


def _linear(x, w, bias=None):
    if isinstance(x, LayerWeight) or not isinstance(w, LayerWeight) or w.is_transposed:
        return NotImplemented
    return w.layer._product(x, bias)


_RULES = {
    aten.detach: lambda w: LayerWeight(w.layer, w.is_transposed),
    aten.alias: lambda w: LayerWeight(w.layer, w.is_transposed),
    aten.t: lambda w: LayerWeight(w.layer, not w.is_transposed),
    aten.mm: _mm,
    aten.matmul: _mm,
    aten.addmm: _addmm,
    aten.linear: _linear,
}
