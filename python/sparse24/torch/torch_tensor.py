# SPDX-License-Identifier: Apache-2.0
"""A tensor subclass that stands where a dense weight stood, as PyTorch's
SparseSemiStructuredTensor: F.linear, mm and addmm of it run 2:4."""
from __future__ import annotations

import torch

from .torch_cuda import NAMES, REPORT
from .torch_ops import dtype_of, layout_of

aten = torch.ops.aten


class SparseTensor(torch.Tensor):
    """A 2:4 weight [n, k], or its transpose, in packed bytes. Made by `from_dense`."""
    __slots__ = ("packed", "stored", "layout_name", "is_transposed")
    @staticmethod
    def __new__(cls, packed, stored, layout_name, is_transposed=False, requires_grad=False):
        shape = stored[::-1] if is_transposed else stored
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, torch.Size(shape), dtype=dtype_of(layout_name), device=packed.device,
            requires_grad=requires_grad)
        tensor.packed, tensor.stored = packed, tuple(stored)
        tensor.layout_name, tensor.is_transposed = layout_name, is_transposed
        return tensor

    @classmethod
    def from_dense(cls, w: torch.Tensor, select: str = "strict", seed: int = 0) -> SparseTensor:
        """Of a dense w [n, k] of bf16, f16 or, on the CPU, f32; select as Matrix.from_dense."""
        layout = layout_of(w.dtype, w.device.type)
        packed = torch.ops.sparse24.prune_pack(w.detach(), select, seed)
        return cls(packed, w.shape, layout, requires_grad=w.requires_grad)

    def __tensor_flatten__(self):
        return ["packed"], (self.stored, self.layout_name, self.is_transposed, self.requires_grad)

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, outer_size, outer_stride):
        return cls(inner["packed"], *meta)

    def __repr__(self):
        return f"{type(self).__name__}(shape={list(self.shape)}, dtype={self.dtype})"

    def to_dense(self):  # pylint: disable=arguments-differ
        """The weight with its zeros."""
        dense = torch.ops.sparse24.to_dense(self.packed, *self.stored, self.layout_name)
        return dense.t() if self.is_transposed else dense

    def matrix(self):
        """The same weight as a sparse24.Matrix (of a transpose: of what is stored)."""
        from sparse24 import Matrix  # pylint: disable=import-outside-toplevel
        order, data = self.layout_name, self.packed.cpu().numpy()
        if self.is_cuda:
            order, data = "hopper", data[:-REPORT]
        return Matrix.from_order(order, data, dtype=NAMES[self.dtype], shape=self.stored)

    def __reduce_ex__(self, protocol):
        return (type(self), (self.packed, self.stored, self.layout_name, self.is_transposed,
                             self.requires_grad))

    def _product(self, x, bias=None):
        """x [..., k] times this weight [n, k] transposed."""
        return self._result(torch.ops.sparse24.linear(x, self.packed, bias, *self.stored,
                                                      self.layout_name))

    def _result(self, y):
        """What a product gives of what the operator gave."""
        return y

    # As LayerWeight's: PyTorch asks for this before its fused passes of attention.
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear and len(args) > 1 and not kwargs:
            if not isinstance(args[0], SparseTensor) and not args[1].is_transposed:
                return args[1]._product(args[0], *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        rule = _RULES.get(func._overloadpacket)
        if rule is None:
            raise NotImplementedError(f"{cls.__name__} has no {func}; to_dense() gives the weight")
        return rule(*args, **(kwargs or {}))


def _same(w, packed):
    return type(w)(packed, w.stored, w.layout_name, w.is_transposed)


def _transpose(w):
    return type(w)(w.packed, w.stored, w.layout_name, not w.is_transposed)


def _view(w, shape):
    if tuple(shape) != tuple(w.shape):
        raise NotImplementedError(f"a view {list(shape)} of a 2:4 tensor {list(w.shape)}")
    return _same(w, w.packed)


def _to_copy(w, *, dtype=None, device=None, **_):
    device = w.device if device is None else torch.device(device)
    if device.type == w.device.type and (dtype is None or dtype is w.dtype):
        return _same(w, w.packed.to(device, copy=True))
    stored = torch.ops.sparse24.to_dense(w.packed, *w.stored, w.layout_name).to(device, dtype)
    copy = type(w).from_dense(stored)
    return _transpose(copy) if w.is_transposed else copy


def _dense(w):
    if w.dtype is torch.int8 and w.is_cuda:  # which PyTorch does not multiply there
        raise NotImplementedError(f"`{type(w).__name__}` matmul: operation is not supported of "
                                  "int8 on cuda from this side")
    return w.to_dense()


def _mm(a, b):
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        raise ValueError("a product of two 2:4 tensors; one of them must be dense")
    if isinstance(b, SparseTensor):
        return b._product(a) if b.is_transposed else a @ _dense(b)
    if a.is_transposed:
        return _dense(a) @ b
    return a._result(torch.ops.sparse24.columns(a.packed, b, *a.stored, a.layout_name))


def _addmm(bias, a, b, *, beta=1, alpha=1):
    plain = isinstance(b, SparseTensor) and b.is_transposed and bias.dim() == 1
    if plain and beta == 1 and alpha == 1:
        return b._product(a, bias)
    return torch.add(beta * bias, _mm(a, b), alpha=alpha)


def _linear(x, w, bias=None):
    if not isinstance(w, SparseTensor) or w.is_transposed:
        raise NotImplementedError("linear of a 2:4 input or of a transposed weight")
    return w._product(x, bias)


_RULES = {
    aten.detach: lambda w: _same(w, w.packed),
    aten.clone: lambda w, **_: _same(w, w.packed.clone()),
    aten.alias: lambda w: _same(w, w.packed),
    aten.t: _transpose,
    aten.view: _view,
    aten._to_copy: _to_copy,
    aten.is_same_size: lambda a, b: a.shape == b.shape,
    aten.mm: _mm,
    aten.matmul: _mm,
    aten.addmm: _addmm,
    aten.linear: _linear,
}
