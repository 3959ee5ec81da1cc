# SPDX-License-Identifier: Apache-2.0
"""Linear layers of weights with whole blocks of zeros: torch.ops.sparse24.block_linear, on the CPU
in f32. The plan that multiplies is made in the first call and kept as long as the tensor of values
lives and is not written to."""
from __future__ import annotations

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from sparse24.matrix import Plan
from sparse24.sparse import SparseMatrix

from .torch_ops import autocast, _library, _rows
from .torch_weight import FloatLayer

_kept = WeakTensorKeyDictionary()

_library.define("block_to_dense(Tensor values, Tensor starts, Tensor index, int k) -> Tensor")
_library.define("block_linear(Tensor x, Tensor values, Tensor starts, Tensor index, Tensor? bias, "
                "int k) -> Tensor")


def _shape(values, starts, k):
    return (starts.shape[0] - 1) * values.shape[1], k


def _matrix_and_plan(values, starts, index, k) -> tuple[SparseMatrix, Plan]:
    version = 0 if values.is_inference() else values._version
    known = _kept.get(values)
    if known is None or known[0] != version:
        matrix = SparseMatrix.from_parts("bsr", _shape(values, starts, k), index.numpy(),
                                         values.detach().numpy(), starts=starts.numpy(),
                                         block=tuple(values.shape[1:]))
        known = (version, matrix, matrix.plan())
        _kept[values] = known
    return known[1:]


def _block_linear(x, values, starts, index, bias, k):
    if not x.dim() or x.shape[-1] != k:
        raise ValueError(f"x is {list(x.shape)}; expected [..., {k}]")
    _, plan = _matrix_and_plan(values, starts, index, k)
    out = x.new_empty(*x.shape[:-1], plan.shape[0], dtype=torch.float32)
    if out.numel():
        plan(x.detach().float().contiguous().numpy(),
             None if bias is None else bias.detach().float().numpy(), out=out.numpy())
    return out.to(x.dtype)


def _block_to_dense(values, starts, index, k):
    return torch.from_numpy(_matrix_and_plan(values, starts, index, k)[0].to_dense())


_library.impl("block_linear", _block_linear, "CPU")
_library.impl("block_to_dense", _block_to_dense, "CPU")
autocast("block_linear", 1)


@torch.library.register_fake("sparse24::block_to_dense", lib=_library)
def _(values, starts, index, k):
    return values.new_empty(_shape(values, starts, k))


@torch.library.register_fake("sparse24::block_linear", lib=_library)
def _(x, values, starts, index, bias, k):
    return x.new_empty(*x.shape[:-1], _shape(values, starts, k)[0])


def _keep(ctx, inputs, output):
    _, values, starts, index, bias, ctx.k = inputs
    ctx.save_for_backward(values, starts, index)
    ctx.bias = None if bias is None else bias.dtype


def _backward(ctx, grad):
    grad_x = grad @ torch.ops.sparse24.block_to_dense(*ctx.saved_tensors, ctx.k).to(grad.dtype)
    grad_bias = None if ctx.bias is None else _rows(grad).sum(0).to(ctx.bias)
    return grad_x, None, None, None, grad_bias, None


torch.library.register_autograd("sparse24::block_linear", _backward, setup_context=_keep,
                                lib=_library)


class BlockSparseLinear(FloatLayer):
    """y = x·wᵀ + bias with a w of f32 of which only the square blocks that are not zero are kept
    and multiplied."""
    floats = "values"

    def __init__(self, weight: SparseMatrix, bias: torch.nn.Parameter | None,
                 dtype: torch.dtype = torch.float32):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias, self.dtype = bias, dtype
        for name in ("values", "starts", "index"):
            self.register_buffer(name, torch.from_numpy(getattr(weight, name).copy()))

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear, block: int = 64) -> BlockSparseLinear:
        """Of an nn.Linear on the CPU; block: 8, 16, 32, 64 or 128, which divides both sides.
        Raises ValueError."""
        w = linear.weight.detach().float().contiguous().numpy()
        matrix = SparseMatrix.from_dense(w, "bsr", (block, block))
        return cls(matrix, linear.bias, linear.weight.dtype)

    def dense_weight(self) -> torch.Tensor:
        """The weight with its zeros, f32."""
        return torch.ops.sparse24.block_to_dense(self.values, self.starts, self.index,
                                                 self.in_features)

    def _product(self, x, bias):
        return torch.ops.sparse24.block_linear(x, self.values, self.starts, self.index, bias,
                                               self.in_features)

    def extra_repr(self):
        """Shapes, for print(model)."""
        return f"{super().extra_repr()}, blocks={self.values.shape[0]}"
