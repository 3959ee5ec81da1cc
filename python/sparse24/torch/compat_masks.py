# SPDX-License-Identifier: Apache-2.0
"""Masks under the names that torchao and 2by4-pretrain have for them: a pattern that is another's,
scores of blocks that are learnt, tiles that are 2:4 both ways; and 2:4 inputs of 8 bits."""
from __future__ import annotations

import enum
import functools
import itertools
import math
import typing

import torch

from .torch_ops import select_mask
from .torch_tensor import SparseTensor

GRADIENT_TYPE = enum.Enum("GRADIENT_TYPE", ["DENSE", "SPARSE", "STE"])


class _Masked(torch.autograd.Function):
    """x where a mask keeps it; its gradient likewise, or straight through."""

    @staticmethod
    def forward(ctx, x, mask, straight):  # pylint: disable=arguments-differ
        ctx.mask = None if straight else mask
        return x.detach() * mask

    @staticmethod
    def backward(ctx, grad):  # pylint: disable=arguments-differ
        return grad if ctx.mask is None else grad * ctx.mask, None, None


def semi_structured_sparsify_like(x: torch.Tensor, pattern: torch.Tensor,
                                  gradient: enum.Enum = GRADIENT_TYPE.SPARSE) -> torch.Tensor:
    """x [n, k] with the zeros of `pattern`, a 2:4 tensor or a dense one with zeros, as a dense
    tensor. Its gradient has these zeros too, but for STE. Raises ValueError (another shape)."""
    dense = pattern.to_dense() if isinstance(pattern, SparseTensor) else pattern
    if dense.shape != x.shape:
        raise ValueError(f"a pattern {list(dense.shape)} of a tensor {list(x.shape)}")
    return _Masked.apply(x, (dense.detach() != 0).to(x.dtype), gradient.name == "STE")


# ---- superblock

class _Chosen(torch.autograd.Function):
    """1 where a score is not among the share of the smallest; the gradient goes straight
    through."""

    @staticmethod
    def forward(ctx, scores, share):  # pylint: disable=arguments-differ
        rank = 1 + round(share * (scores.numel() - 1))
        return (scores >= scores.reshape(-1).kthvalue(rank).values).to(scores.dtype)

    @staticmethod
    def backward(ctx, grad):  # pylint: disable=arguments-differ
        return grad, None


class _Product(torch.autograd.Function):
    """weight·mask; both gradients go straight through."""

    @staticmethod
    def forward(ctx, weight, mask):  # pylint: disable=arguments-differ
        return weight * mask

    @staticmethod
    def backward(ctx, grad):  # pylint: disable=arguments-differ
        return grad, grad


class SupermaskLinear(torch.nn.Linear):
    """nn.Linear whose weight is masked by tiles of tile_size x tile_size: those with the smallest
    of the learnt `scores`, a share `sparsity` of them, are 0. One tile stays at least."""

    def __init__(self, sparsity: float, fixed_mask: bool, fixed_weight: bool,
                 bitwidth: int | None = None, transform: typing.Any = None,
                 fixed_transform: typing.Any = None, *args, tile_size: int = 1, **options):
        """fixed_mask, fixed_weight: do not learn that. What follows goes to nn.Linear."""
        if bitwidth is not None:
            raise NotImplementedError(f"SupermaskLinear(bitwidth={bitwidth})")
        del transform, fixed_transform  # of weights of few bits
        super().__init__(*args, **options)
        tiles = [max(1, math.ceil(side / tile_size)) for side in self.weight.shape]
        self.sparsity = min(sparsity, 1 - 1 / math.prod(tiles))
        self.tile_size, self.sparsify_weights = tile_size, False
        self.scores = torch.nn.Parameter(torch.empty(tiles), requires_grad=not fixed_mask)
        torch.nn.init.kaiming_uniform_(self.scores, a=math.sqrt(5))
        self.weight.requires_grad = not fixed_weight

    def get_mask(self) -> torch.Tensor:
        """[out_features, in_features], 1 where a weight counts."""
        mask = _Chosen.apply(self.scores, self.sparsity)
        if self.tile_size == 1:
            return mask
        n, k = self.weight.shape
        wide = mask.repeat_interleave(self.tile_size, 0).repeat_interleave(self.tile_size, 1)
        return wide[:n, :k]

    def sparsify_offline(self) -> None:
        """Writes the masked weight in place of the weight, for good."""
        self.weight.data = self.weight.detach() * self.get_mask().detach()
        self.sparsify_weights = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-renamed
        """[..., in_features] to [..., out_features]."""
        weight = self.weight
        if not self.sparsify_weights:
            weight = _Product.apply(weight, self.get_mask())
        return torch.nn.functional.linear(x, weight, self.bias)

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear, sparsity_level: float = 0.0, blocksize: int = 1,
                    inference: bool = True) -> SupermaskLinear:
        """Of a layer's weight and bias; inference: masked at once."""
        new = cls(sparsity_level, False, False, None, None, None, linear.in_features,
                  linear.out_features, bias=linear.bias is not None, tile_size=blocksize)
        new = new.to(device=linear.weight.device, dtype=linear.weight.dtype)
        new.weight.data.copy_(linear.weight.data)
        if linear.bias is not None:
            new.bias.data.copy_(linear.bias.data)
        if inference:
            new.sparsify_offline()
        return new


# ---- inputs of 8 bits

def _rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as 8-bit floats with a scale each, the largest magnitude being 448."""
    rows = x.detach().float()
    scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / 448.0
    return (rows / scale).to(torch.float8_e4m3fn), scale


class FP8SemiSparseActivationLinear(torch.nn.Module):
    """nn.Linear without bias for inference, after a squared ReLU: its input becomes 2:4 by
    magnitude and 8-bit floats with a scale a row, the weight is 8-bit floats with a scale a row."""

    def __init__(self, weight: torch.Tensor, config: typing.Any = None):
        super().__init__()
        del config
        values, scale = _rounded(weight)
        self.register_buffer("W", values)
        self.register_buffer("W_scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., k] to [..., n], of x's dtype."""
        rows = torch.relu(x.reshape(-1, x.shape[-1])).square()
        values, scale = _rounded(rows * select_mask(rows.contiguous(), "magnitude"))
        y = (values.float() @ self.W.float().t()) * scale * self.W_scale.t()
        return y.to(x.dtype).reshape(*x.shape[:-1], -1)

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear,
                   config: typing.Any = None) -> FP8SemiSparseActivationLinear:
        """Of a layer's weight; a bias is an error."""
        if linear.bias is not None:
            raise ValueError("FP8SemiSparseActivationLinear has no bias")
        return cls(linear.weight.data, config)


# ---- 2by4-pretrain's

@functools.lru_cache(maxsize=None)
def _patterns(device: torch.device) -> torch.Tensor:
    """The 90 choices of two of each row and column of a 4x4 tile, [90, 16]."""
    rows = [row for row in itertools.product((0.0, 1.0), repeat=4) if sum(row) == 2]
    tiles = [sum(four, ()) for four in itertools.product(rows, repeat=4)
             if all(sum(column) == 2 for column in zip(*four))]
    return torch.tensor(tiles, device=device)


class TransposableSparse:
    """The best of the 90 patterns of each 4x4 tile, by the sum of |x|, or of x with abs=False:
    called with x [n, k] it gives (sparse, mask). Sides are multiples of four."""

    def __init__(self, abs: bool = True):  # pylint: disable=redefined-builtin
        self.abs = abs

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = select_mask(x, "tile-best") if self.abs else self._signed(x.detach())
        return x.detach() * mask, mask

    @staticmethod
    def _signed(x: torch.Tensor) -> torch.Tensor:
        n, k = x.shape
        if n % 4 or k % 4:
            raise ValueError(f"[{n}, {k}]: tiles of 4x4 do not divide it")
        tiles = x.float().reshape(n // 4, 4, k // 4, 4).transpose(1, 2).reshape(-1, 16)
        patterns = _patterns(x.device)
        best = patterns[(tiles @ patterns.t()).argmax(1)]
        mask = best.reshape(n // 4, k // 4, 4, 4).transpose(1, 2).reshape(n, k)
        return mask.bool()
