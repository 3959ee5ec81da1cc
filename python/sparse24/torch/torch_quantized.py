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

from .torch_ops import autocast, layout_of, operand, prune_pack, _create, _library, _rows
from .torch_weight import FloatLayer

_plans = WeakTensorKeyDictionary()

_library.define("quantized_linear(Tensor x, Tensor values, Tensor indices, Tensor scales, "
                "Tensor? bias, int k, int bits, bool integers) -> Tensor")


def _flat(x):
    """A tensor's memory by its address, as a row."""
    name = {torch.int8: "i8", torch.uint8: "u8", torch.float32: "f32"}.get(x.dtype)
    if name is None:
        raise TypeError(f"{x.dtype} of a quantised weight; expected 8-bit integers and f32 scales")
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
    if not x.dim() or x.shape[-1] != k:
        raise ValueError(f"x is {list(x.shape)}; expected [..., {k}]")
    plan = _plan(values, indices, scales, k, bits, integers)
    source = x.float().contiguous()
    out = source.new_empty(*x.shape[:-1], values.shape[0])
    if out.numel():
        bias = None if bias is None else bias.float().contiguous()
        _core.plan_run(plan, operand(out), operand(source),
                       None if bias is None else operand(bias), "none", None, None)
    return out.to(x.dtype)


def _unpacked(values, indices, scales, k, bits):
    return torch.from_numpy(Matrix(_matrix(*(t.cpu() for t in (values, indices, scales)), k,
                                           bits)).to_dense())


def _cuda_weight(values, indices, scales, k, bits, dtype):
    """(packed, layout): integers of 8 bits as they are where `dtype` is int8, else what they stand
    for. Made in the first call and kept as plans are."""
    key = (0 if values.is_inference() else values._version, dtype)
    known = _plans.get(values)
    if known is None or known[0] != key:
        dense = _unpacked(values, indices, scales, k, bits)
        if dtype is torch.int8:
            dense = (dense / scales.cpu()).round()
        packed = prune_pack(dense.to(values.device, dtype), "strict")
        known = (key, packed)
        _plans[values] = known
    return known[1], layout_of(dtype, "cuda")


def _cuda_quantized_linear(x, values, indices, scales, bias, k, bits, integers):
    """Integers with integers where a row has one scale of 8 bits; anything else in 16 bits."""
    if not x.dim() or x.shape[-1] != k:
        raise ValueError(f"x is {list(x.shape)}; expected [..., {k}]")
    n, narrow = values.shape[0], integers and bits == 8 and scales.shape[1] == 1 and k % 16 == 0
    dtype = torch.int8 if narrow else torch.float16 if x.dtype is torch.float16 else torch.bfloat16
    packed, layout = _cuda_weight(values, indices, scales, k, bits, dtype)
    if narrow:
        factors = scales.float().view(-1)
        return torch.ops.sparse24.scaled_linear(x, packed, factors, bias, n, k, layout)
    return torch.ops.sparse24.linear_forward(x, packed, bias, n, k, layout)


_library.impl("quantized_linear", _quantized_linear, "CPU")
_library.impl("quantized_linear", _cuda_quantized_linear, "CUDA")


autocast("quantized_linear", 1)  # scales stay what they are


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
        grad_x = grad @ _unpacked(*ctx.saved_tensors, ctx.k, ctx.bits).to(grad)
    grad_bias = None if ctx.bias is None else _rows(grad).sum(0).to(ctx.bias)
    return grad_x, None, None, None, grad_bias, None, None, None


torch.library.register_autograd("sparse24::quantized_linear", _backward, setup_context=_keep,
                                lib=_library)


class QuantizedSparseLinear(FloatLayer):
    """y = x·wᵀ + bias with a 2:4 w of 8- or 4-bit integers. `integers`: tokens are quantised too,
    each by its largest magnitude, and products are of integers; on CUDA so with 8 bits and a scale
    a row, where other integers are multiplied as 16-bit floats, which are made of them once."""

    floats = "scales"

    def __init__(self, weight: Matrix, bias: torch.nn.Parameter | None, integers: bool = False,
                 dtype: torch.dtype = torch.float32):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits, self.integers, self.bias, self.dtype = weight.bits, integers, bias, dtype
        for name, part in zip(("values", "indices", "scales"), weight.pack()):
            self.register_buffer(name, torch.from_numpy(part.copy()))

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear, scheme: str = "int8", select: str = "magnitude",
                   *, integers: bool = False) -> QuantizedSparseLinear:
        """Of an nn.Linear, made 2:4 by `select` and quantised by a scheme of Matrix.quantize."""
        weight = linear.weight.detach()
        matrix = Matrix(_core.matrix_quantize(_create(weight.cpu(), select), scheme))
        return cls(matrix, linear.bias, integers, weight.dtype).to(weight.device)

    def dense_weight(self) -> torch.Tensor:
        """scale times integer, with the zeros, f32."""
        return _unpacked(self.values, self.indices, self.scales, self.in_features, self.bits)

    def _product(self, x, bias):
        return torch.ops.sparse24.quantized_linear(x, self.values, self.indices, self.scales, bias,
                                                   self.in_features, self.bits, self.integers)

    def extra_repr(self):
        """Shapes, for print(model)."""
        return f"{super().extra_repr()}, bits={self.bits}, integers={self.integers}"


class ScaledSparseLinear(FloatLayer):
    """y = x·wᵀ + bias on CUDA with a 2:4 w of 8-bit floats (e4m3) and a scale an output; tokens
    are quantised as they come, each by its largest magnitude."""

    floats = "scale"

    def __init__(self, packed: torch.Tensor, scale: torch.Tensor, in_features: int,
                 bias: torch.nn.Parameter | None, dtype: torch.dtype = torch.float16):
        super().__init__()
        self.in_features, self.out_features, self.bias = in_features, scale.shape[0], bias
        self.dtype = dtype
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale)

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear, select: str = "magnitude") -> ScaledSparseLinear:
        """Of an nn.Linear on CUDA of f16 or bf16, made 2:4 by `select`. Raises TypeError,
        ValueError (inputs that 16 does not divide), sparse24.Error."""
        w = linear.weight.detach()
        if w.shape[1] % 16:
            raise ValueError(f"{w.shape[1]} inputs of 8 bits: expected a multiple of 16")
        kept = torch.ops.sparse24.to_dense(prune_pack(w, select), *w.shape,
                                           layout_of(w.dtype, w.device.type)).float()
        scale = kept.abs().amax(1).clamp(min=1e-12) / 448
        narrow = (kept / scale[:, None]).to(torch.float8_e4m3fn)
        return cls(prune_pack(narrow, "strict"), scale, w.shape[1], linear.bias, w.dtype)

    def dense_weight(self) -> torch.Tensor:
        """scale times what is stored, with the zeros, f32."""
        stored = torch.ops.sparse24.to_dense(self.packed, self.out_features, self.in_features,
                                             "hopper-e4m3")
        return stored.float() * self.scale[:, None]

    def _product(self, x, bias):
        return torch.ops.sparse24.scaled_linear(x, self.packed, self.scale, bias,
                                                self.out_features, self.in_features, "hopper-e4m3")
