# SPDX-License-Identifier: Apache-2.0
"""Linear layers of quantised 2:4 weights: torch.ops.sparse24.quantized_linear.

A weight is three tensors (docs/format.md, section 3). The plan that multiplies with them is made in
the first call and kept as long as the tensor of values lives and is not written to.
"""
from __future__ import annotations

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from sparse24 import _core
from sparse24.matrix import Matrix

from .torch_ops import operand, _create, _library, _rows

_plans = WeakTensorKeyDictionary()

_library.define("quantized_linear(Tensor x, Tensor values, Tensor indices, Tensor scales, "
                "Tensor? bias, int k, int bits, bool integers) -> Tensor")


def _flat(x):
    """A tensor's memory by its address, as a row."""
    name = {torch.int8: "i8", torch.uint8: "u8", torch.float32: "f32"}[x.dtype]
    return (x.data_ptr(), name, 1, x.numel(), x.numel())


def _matrix(values, indices, scales, k, bits):
    return _core.matrix_from_quantized(_flat(values), _flat(indices), _flat(scales), bits,
                                       values.shape[0], k)


def _plan(values, indices, scales, k, bits, integers):
    version = 0 if values.is_inference() else values._version
    key = (version, integers)
    known = _plans.get(values)
    if known is None or known[0] != key:
        matrix = _matrix(values, indices, scales, k, bits)
        known = (key, _core.plan_create(matrix, None, "i8" if integers else None))
        _plans[values] = known
    return known[1]


def _quantized_linear(x, values, indices, scales, bias, k, bits, integers):
    if x.shape[-1] != k:
        raise ValueError(f"x is {list(x.shape)}; expected [..., {k}]")
    plan = _plan(values, indices, scales, k, bits, integers)
    source = x.float().contiguous()
    out = source.new_empty(*x.shape[:-1], values.shape[0])
    if out.numel():
        bias = None if bias is None else bias.float().contiguous()
        _core.plan_run(plan, operand(out), operand(source),
                       None if bias is None else operand(bias), "none", None, None)
    return out.to(x.dtype)


_library.impl("quantized_linear", _quantized_linear, "CPU")


@torch.library.register_fake("sparse24::quantized_linear", lib=_library)
def _(x, values, indices, scales, bias, k, bits, integers):
    return x.new_empty(*x.shape[:-1], values.shape[0])


def _keep(ctx, inputs, output):
    _, values, indices, scales, bias, ctx.k, ctx.bits, _ = inputs
    ctx.save_for_backward(values, indices, scales)
    ctx.bias = None if bias is None else bias.dtype


def _backward(ctx, grad):
    grad_x = None
    if ctx.needs_input_grad[0]:
        dense = Matrix(_matrix(*ctx.saved_tensors, ctx.k, ctx.bits)).to_dense()
        grad_x = grad @ torch.from_numpy(dense).to(grad.dtype)
    grad_bias = None if ctx.bias is None else _rows(grad).sum(0).to(ctx.bias)
    return grad_x, None, None, None, grad_bias, None, None, None


torch.library.register_autograd("sparse24::quantized_linear", _backward, setup_context=_keep,
                                lib=_library)


class QuantizedSparseLinear(torch.nn.Module):
    """y = x·wᵀ + bias with a 2:4 w of 8- or 4-bit integers. `integers`: tokens are quantised too,
    each by its largest magnitude, and products are of integers."""

    def __init__(self, weight: Matrix, bias: torch.nn.Parameter | None, integers: bool = False):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits, self.integers, self.bias = weight.bits, integers, bias
        for name, part in zip(("values", "indices", "scales"), weight.pack()):
            self.register_buffer(name, torch.from_numpy(part.copy()))

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear, scheme: str = "int8", select: str = "magnitude",
                   *, integers: bool = False) -> QuantizedSparseLinear:
        """Of an nn.Linear, made 2:4 by `select` and quantised by a scheme of Matrix.quantize."""
        handle = _create(linear.weight.detach(), select)
        return cls(Matrix(_core.matrix_quantize(handle, scheme)), linear.bias, integers)

    def dense_weight(self) -> torch.Tensor:
        """scale times integer, with the zeros, f32."""
        handle = _matrix(self.values, self.indices, self.scales, self.in_features, self.bits)
        return torch.from_numpy(Matrix(handle).to_dense())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], of x's dtype."""
        return torch.ops.sparse24.quantized_linear(x, self.values, self.indices, self.scales,
                                                   self.bias, self.in_features, self.bits,
                                                   self.integers)

    def extra_repr(self):
        """Shapes, for print(model)."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, bits={self.bits}, integers={self.integers}")
