# SPDX-License-Identifier: Apache-2.0
"""Layers under the names that PyTorch, torchao and 2by4-pretrain have for them."""
from __future__ import annotations

import typing

import torch

from sparse24 import _core

from .compat_tensors import tile_rule, to_sparse_semi_structured
from .torch_blocks import BlockSparseLinear
from .torch_models import linear_layers
from .torch_modules import is_dense
from .torch_ops import operand, select_mask, training_linear
from .torch_quantized import QuantizedSparseLinear
from .weight_norm import WeightNormSparsifier


# ---- training as torchao's

class SemiSparseLinear(torch.nn.Linear):
    """nn.Linear whose weight is made 2:4 along both sides in each forward pass, by signed greedy
    4x4 tiles; gradients go straight through to all of the weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-renamed
        """[..., in_features] to [..., out_features]."""
        return training_linear(x, self.weight, self.bias)

    @classmethod
    def from_dense(cls, linear: torch.nn.Linear) -> torch.nn.Linear:
        """The same layer with the same parameters."""
        return _turned(linear, cls)

    @classmethod
    def to_dense(cls, semi_sparse_linear: torch.nn.Linear) -> torch.nn.Linear:
        """The same parameters in nn.Linear."""
        return _turned(semi_sparse_linear, torch.nn.Linear)


class SemiSparseActivationLinear(SemiSparseLinear):
    """nn.Linear whose input is made 2:4 in each forward pass; the gradient of the input goes
    straight through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features]."""
        rows = semi_sparse_sparsify(x.reshape(-1, self.in_features))
        return torch.nn.functional.linear(rows, self.weight, self.bias).reshape(*x.shape[:-1], -1)


def _turned(linear, cls):
    new = cls.__new__(cls)
    torch.nn.Module.__init__(new)
    new.in_features, new.out_features = linear.in_features, linear.out_features
    new.weight, new.bias = linear.weight, linear.bias
    return new.train(linear.training)


class _StraightThrough(torch.autograd.Function):
    """A choice forward, the identity backward."""

    @staticmethod
    def forward(ctx, x, choose):  # pylint: disable=arguments-differ
        return choose(x.detach())

    @staticmethod
    def backward(ctx, grad):  # pylint: disable=arguments-differ
        return grad, None


def semi_sparse_sparsify(x: torch.Tensor, algo: str = "",
                         backend: str = "cutlass") -> torch.Tensor:
    """x [m, k] with the zeros of 2:4 along both sides, as a dense tensor; gradients go straight
    through. algo: PyTorch's names for the rules of tiles."""
    del backend
    rule = tile_rule(algo)

    def choose(dense):
        return dense * select_mask(dense, rule)
    return _StraightThrough.apply(x, choose)


semi_structured_sparsify = semi_sparse_sparsify


def swap_linear_with_semi_sparse_linear(model: torch.nn.Module,
                                        config: dict[str, type], current: str = "") -> None:
    """Puts config[name].from_dense(layer) in the place of each nn.Linear that is named."""
    for name, child in list(model.named_children()):
        fqn = f"{current}.{name}" if current else name
        if is_dense(child):
            if fqn in config:
                setattr(model, name, config[fqn].from_dense(child))
        else:
            swap_linear_with_semi_sparse_linear(child, config, fqn)


def swap_semi_sparse_linear_with_linear(model: torch.nn.Module) -> None:
    """And back."""
    for name, child in list(model.named_children()):
        if isinstance(child, SemiSparseLinear):
            setattr(model, name, type(child).to_dense(child))
        else:
            swap_semi_sparse_linear_with_linear(child)


# ---- torchao's functions over a model

def semi_sparse_weight(**config) -> typing.Callable[[torch.nn.Linear], None]:
    """For sparsify_: the layer's weight becomes a 2:4 tensor."""
    if config.get("alg_id", 0) != 0:
        raise ValueError(f"alg_id {config['alg_id']}: there is one algorithm")

    def turn(layer):
        sparse = to_sparse_semi_structured(layer.weight.detach())
        layer.weight = torch.nn.Parameter(sparse, requires_grad=False)
    return turn


SemiSparseWeightConfig = semi_sparse_weight


def block_sparse_weight(blocksize: int = 64) -> typing.Callable:
    """For sparsify_: of the weight only the square blocks that are not zero stay, in f32, on the
    CPU. Layers whose sides the blocks do not divide are left alone."""
    def turn(layer):
        if layer.in_features % blocksize or layer.out_features % blocksize:
            return None
        return BlockSparseLinear.from_dense(layer, blocksize)
    return turn


BlockSparseWeightConfig = block_sparse_weight


def sparsify_(model: torch.nn.Module,
              config: typing.Callable[[torch.nn.Linear], torch.nn.Module | None],
              filter_fn: typing.Callable[[torch.nn.Module, str], bool] | None = None
              ) -> torch.nn.Module:
    """Applies a configuration to the linear layers that the filter takes, in place, and
    returns the model. It changes a layer, or gives what shall stand in its place."""
    for parent, name, _, layer in list(linear_layers(model, filter_fn)):
        new = config(layer)
        if parent is None and new is not None:
            return new
        if new is not None:
            setattr(parent, name, new)
    return model


quantize_ = sparsify_


class SemiSparseLayout:
    """For int8_dynamic_activation_int8_weight: 2:4 by magnitude."""


class MarlinSparseLayout:
    """For int4_weight_only: 2:4 by magnitude."""


def int8_dynamic_activation_int8_weight(layout: typing.Any = None, **_) -> typing.Callable:
    """For quantize_: 2:4 weights of 8 bits with a scale a row, and tokens that are quantised as
    they come. Layers of 16 inputs or fewer are left alone."""
    if not isinstance(layout, SemiSparseLayout):
        raise NotImplementedError("int8_dynamic_activation_int8_weight without SemiSparseLayout")

    def turn(layer):
        if layer.in_features <= 16:
            return None
        return QuantizedSparseLinear.from_dense(layer, "int8", integers=True)
    return turn


def int8_dynamic_activation_int8_semi_sparse_weight() -> typing.Callable:
    """int8_dynamic_activation_int8_weight(layout=SemiSparseLayout())."""
    return int8_dynamic_activation_int8_weight(layout=SemiSparseLayout())


def int4_weight_only(group_size: int = 128, layout: typing.Any = None, **_) -> typing.Callable:
    """For quantize_: 2:4 weights of 4 bits with a scale for 64 or 128 columns, or a row (-1)."""
    schemes = {-1: "int4", 64: "int4-g64", 128: "int4-g128"}
    if not isinstance(layout, MarlinSparseLayout) or group_size not in schemes:
        raise NotImplementedError(f"int4_weight_only(group_size={group_size}) with {layout}")
    return lambda layer: QuantizedSparseLinear.from_dense(layer, schemes[group_size])


def apply_fake_sparsity(model: torch.nn.Module, filter_fn=None, **options) -> None:
    """Makes the weights of the linear layers 2:4 by magnitude, in place, as one step of
    WeightNormSparsifier does."""
    names = [f"{name}.weight" for _, _, name, _ in linear_layers(model, filter_fn)]
    sparsifier = WeightNormSparsifier(1.0, (1, 4), 2, **options)
    sparsifier.prepare(model, [{"tensor_fqn": name} for name in names])
    sparsifier.step()
    sparsifier.squash_mask()


# ---- 2by4-pretrain's

def sparse24(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(sparse, mask): the two largest of each four."""
    mask = select_mask(x, "magnitude")
    return x.detach() * mask, mask


def soft_threshold24(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(S(x), mask): the two largest of each four less the third, and which two these are."""
    _, mask = sparse24(x)
    dense = x.detach().contiguous()
    if dense.is_cuda:
        third = dense.abs().view(-1, 4).sort(-1).values[:, 1:2].expand(-1, 4).reshape(dense.shape)
        return (dense - dense.sign() * third) * mask, mask
    out = torch.empty_like(dense)
    _core.soft_threshold(operand(out), None, operand(dense), 1.0)
    return out, mask


sparse24_torch = sparse24_triton = sparse24
soft_threshold24_torch = soft_threshold24_triton = soft_threshold24


def masked_add_(grad: torch.Tensor, p: torch.Tensor, mask: torch.Tensor,
                alpha: float = 0.0) -> torch.Tensor:
    """grad += alpha·p where mask drops the weight; grad is f32 without gaps."""
    if grad.dtype is not torch.float32 or not grad.is_contiguous():
        raise ValueError("grad: expected f32 without gaps")
    if grad.is_cuda:
        return grad.add_(p.detach() * (mask == 0), alpha=alpha)
    kept, w = (mask != 0).contiguous(), p.detach().contiguous()
    shape = (-1, w.shape[-1])
    _core.masked_decay(operand(grad.view(shape)), operand(w.view(shape)),
                       operand(kept.view(shape)), alpha)
    return grad
