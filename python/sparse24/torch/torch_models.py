# SPDX-License-Identifier: Apache-2.0
"""Whole models: 2:4 layers put where they are faster."""
from __future__ import annotations

import inspect
import logging
import time
import typing

import torch
import torch.nn.functional as F

from sparse24 import _core

from .torch_attention import input_weights, make_sparse_
from .torch_modules import SparseLinear, is_conv1d, is_dense, weight_of
from .torch_ops import DTYPES, operand

_log = logging.getLogger("sparse24")
Filter = typing.Callable[[torch.nn.Module, str], bool]


class Choice(typing.NamedTuple):
    """What was done with a layer, and why."""
    name: str
    kind: str  # "2:4", "dense"
    why: str


def linear_layers(model: torch.nn.Module, wanted: Filter | None = None, conv1d: bool = False):
    """(parent, child's name, full name, layer) of every nn.Linear with a dense weight, and with
    conv1d of transformers' Conv1D, that the filter takes; a model that is one itself has no parent
    and the name ""."""
    def takes(layer, name):
        return (is_dense(layer) or conv1d and is_conv1d(layer)) and \
            (wanted is None or wanted(layer, name))
    if takes(model, ""):
        yield None, "", "", model
    for parent_name, parent in list(model.named_modules()):
        for child_name, child in list(parent.named_children()):
            name = f"{parent_name}.{child_name}" if parent_name else child_name
            if takes(child, name):
                yield parent, child_name, name, child


def embedded(model: torch.nn.Module) -> set[int]:
    """Parameters of the model's embeddings, by id."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {id(m.weight) for m in model.modules() if isinstance(m, kinds)}


def is_two_four(w: torch.Tensor) -> bool:
    """Has every group of four at most two that are not 0?"""
    w = w.detach().contiguous()
    if w.is_cuda:
        return bool((torch.count_nonzero(w.view(w.shape[0], -1, 4), -1) <= 2).all())
    return _core.check(operand(w), False) is None


def _graph_seconds(layer, x) -> float:
    """The best of some launches of a graph of calls, so that the host's own time is not in it."""
    graph, calls, best = torch.cuda.CUDAGraph(), 10, float("inf")
    side = torch.cuda.Stream(x.device)
    side.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(side):
        layer(x)
    torch.cuda.current_stream(x.device).wait_stream(side)
    with torch.cuda.graph(graph):
        for _ in range(calls):
            layer(x)
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / calls)
    return best


def _seconds(layer, x) -> float:
    """The best of some calls, after one that prepares what it needs."""
    if x.is_cuda:
        with torch.cuda.device(x.device):
            return _graph_seconds(layer, x)
    best = float("inf")
    layer(x)
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(4):
            layer(x)
        best = min(best, (time.perf_counter() - begin) / 4)
    return best


def _runs(w: torch.Tensor) -> bool:
    """Are there 2:4 products of such a weight?"""
    kinds = {"cpu": tuple(DTYPES), "cuda": (torch.float16, torch.bfloat16)}
    return w.dtype in kinds.get(w.device.type, ()) and w.shape[1] % 4 == 0


def _is_linear(layer: torch.nn.Module) -> bool:
    """Does its forward take x alone and give what F.linear does (as Falcon's)? A class with one of
    its own is asked, with random inputs; this package's train, and are what they are for that."""
    kind = type(layer)
    if is_conv1d(layer) or kind.forward is torch.nn.Linear.forward:
        return True
    if kind.__module__.startswith("sparse24.") or layer._buffers or layer._modules or \
            set(layer._parameters) != {"weight", "bias"} or \
            len(inspect.signature(kind.forward).parameters) != 2:
        return False
    x = torch.randn(2, 3, layer.in_features).to(layer.weight)
    try:
        one, two = kind.forward(layer, x).float(), F.linear(x, layer.weight, layer.bias).float()
        most = float(two.abs().max()) * (1e-5 if x.dtype is torch.float32 else 2e-2)
        return one.shape == two.shape and float((one - two).abs().max()) <= most
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False


def _own(layer: torch.nn.Module) -> str | None:
    """What another layer in its place would not do, if there is something."""
    if not _is_linear(layer):
        return f"{type(layer).__name__} has a forward of its own"
    if "forward" in vars(layer) or layer._forward_hooks or layer._forward_pre_hooks:
        return "it has hooks"
    if "weight" not in layer._parameters:
        return "its weight is computed in each call"
    return None


def _dense_because(layer: torch.nn.Module, shared: set[int]) -> str | None:
    """Why a layer stays as it is, if it must."""
    why = _own(layer)
    if why:
        return why
    w = weight_of(layer)
    if id(layer.weight) in shared:
        return "its weight is an embedding's too"
    if not _runs(w):
        return f"{w.dtype} {list(w.shape)} on {w.device}"
    return None if is_two_four(w) else "its weight is not 2:4"


def _put(model: torch.nn.Module, made: dict[torch.nn.Module, SparseLinear]) -> None:
    """Puts layers in the places of others, wherever these stand. TransformerEncoder nests tensors
    for its layers' fused passes, which layers of packed weights do not take."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                parent._modules[name] = made[child]
    for part in model.modules():
        if isinstance(part, torch.nn.TransformerEncoder) and \
                any(isinstance(m, SparseLinear) for m in part.modules()):
            part.use_nested_tensor = False


class _Race:
    """Which of a layer and its 2:4 twin is faster, measured once for each shape."""

    def __init__(self, tokens: int, measure: bool):
        self.tokens, self.measure, self.known = tokens, measure, {}

    def choose(self, layer: torch.nn.Module, sparse: SparseLinear) -> tuple[str, str]:
        """(kind, why) of a Choice."""
        if not self.measure:
            return "2:4", "not measured"
        w = weight_of(layer)
        shape = (*w.shape, w.dtype, layer.bias is not None, is_conv1d(layer))
        if shape not in self.known:
            x = torch.randn(self.tokens, w.shape[1], dtype=w.dtype, device=w.device)
            self.known[shape] = _seconds(layer, x) / _seconds(sparse, x)
        ratio = self.known[shape]
        return "2:4" if ratio > 1 else "dense", f"{ratio:.2f}x dense at {self.tokens} tokens"


def _accelerate_attention(attention: torch.nn.MultiheadAttention, race: _Race) -> tuple[str, str]:
    """(kind, why) of an attention's input projections, which become 2:4 together or not at all."""
    weights = [w for _, w in input_weights(attention)]
    if type(attention).forward is not torch.nn.MultiheadAttention.forward:
        return "dense", f"{type(attention).__name__} has a forward of its own"
    if not all(_runs(w) for w in weights):
        return "dense", f"{weights[0].dtype} {list(weights[0].shape)} on {weights[0].device}"
    if not all(is_two_four(w) for w in weights):
        return "dense", "its weight is not 2:4"
    w = weights[0]
    layer = torch.nn.Linear(w.shape[1], w.shape[0], attention.in_proj_bias is not None,
                            dtype=w.dtype, device=w.device)
    layer.weight = torch.nn.Parameter(w, requires_grad=False)
    kind, why = race.choose(layer, SparseLinear.from_dense(layer))
    if kind == "2:4":
        make_sparse_(attention)
    return kind, why


@torch.no_grad()
def accelerate_(model: torch.nn.Module, *, tokens: int = 128, measure: bool = True,
                filter_fn: Filter | None = None) -> list[Choice]:
    """Puts a SparseLinear in the place of each nn.Linear, of transformers' Conv1D and of
    MultiheadAttention's input projections, whose weight is 2:4 already, where it is faster on this
    machine with so many tokens a call (measured once for each shape, on CUDA inside graphs;
    measure=False: everywhere). Layers with hooks or a forward of their own stay, and so do those
    that share an embedding's weight unless filter_fn takes them. Returns what was done with each
    layer and why; the logger sparse24 has it too."""
    choices, race, made = [], _Race(tokens, measure), {}
    shared = set() if filter_fn else embedded(model)
    attentions = [(f"{name}.{weights[0][0]}".lstrip("."), part)
                  for name, part in model.named_modules()
                  if isinstance(part, torch.nn.MultiheadAttention)
                  and (weights := input_weights(part))]
    for parent, _, name, layer in list(linear_layers(model, filter_fn, True)):
        kind, why = "dense", _dense_because(layer, shared)
        if parent is None:
            why = "it is the whole model: SparseLinear.from_dense makes a layer of it"
        elif why is None:
            sparse = SparseLinear.from_dense(layer)
            kind, why = race.choose(layer, sparse)
            if kind == "2:4":
                made[layer] = sparse
        choices.append(Choice(name, kind, why))
    for name, part in attentions:
        if filter_fn is None or filter_fn(part, name):
            choices.append(Choice(name, *_accelerate_attention(part, race)))
    for choice in choices:
        _log.info("%s: %s, %s", *choice)
    _put(model, made)
    return choices
