# SPDX-License-Identifier: Apache-2.0
"""Weights of a whole model made 2:4 in place, by the inputs that calibration gives each layer."""
from __future__ import annotations

import contextlib
import logging
import re
import typing

import torch
import torch.nn.functional as F

from sparse24 import _core
from sparse24.pruning import Criterion, Stats, _how

from .torch_attention import input_weights
from .torch_modules import weight_of
from .torch_models import Filter, embedded, linear_layers
from .torch_ops import operand

_log = logging.getLogger("sparse24")
_SIDES = ("query", "key", "value")  # arguments of MultiheadAttention's forward


class Weight(typing.NamedTuple):
    """A matrix to prune, and whose inputs it multiplies."""
    name: str               # the layer's, or of an attention's input projection the parameter's
    module: torch.nn.Module  # whose forward is watched
    part: str               # "": the module's own; of an attention "query" …, "out"
    values: torch.Tensor    # [n, k], where it lies


class _Done(Exception):
    """All of a group's inputs have been seen: the rest of the pass is of no use."""


def _host(x: torch.Tensor) -> torch.Tensor:
    """x as f32 without gaps in host memory."""
    return x.detach().to("cpu", torch.float32).contiguous()


# ---- which weights

def _heads(model: torch.nn.Module) -> set[torch.nn.Module]:
    """What models of transformers call their output embeddings."""
    heads = set()
    for part in model.modules():
        ask = getattr(part, "get_output_embeddings", None)
        with contextlib.suppress(AttributeError, NotImplementedError):
            heads.add(ask() if callable(ask) else None)
    return heads - {None}


def _attention_weights(model, wanted):
    """The input projections of each MultiheadAttention."""
    for name, part in model.named_modules():
        if isinstance(part, torch.nn.MultiheadAttention):
            for side, (own, values) in zip(_SIDES, input_weights(part)):
                full = f"{name}.{own}" if name else own
                if wanted is None or wanted(part, full):
                    yield Weight(full, part, side, values)


def weights(model: torch.nn.Module, wanted: Filter | None, group: int) -> list[Weight]:
    """What is to be pruned; what is not, and why, goes to the log."""
    shared = set() if wanted else embedded(model)
    heads = set() if wanted else _heads(model)
    found, seen = [], set()
    for parent, _, name, layer in linear_layers(model, wanted, conv1d=True):
        if layer in heads or id(layer.weight) in shared:
            why = "it is the output embedding" if layer in heads else \
                "its weight is an embedding's too"
            _log.info("%s: dense, %s", name, why)
            continue
        attention = isinstance(parent, torch.nn.MultiheadAttention)
        found.append(Weight(name, parent if attention else layer, "out" if attention else "",
                            weight_of(layer)))
    found += _attention_weights(model, wanted)
    kept = []
    for weight in found:
        at = weight.values.data_ptr()
        if weight.values.shape[1] % group:
            _log.info("%s: dense, %d columns are not groups of %d", weight.name,
                      weight.values.shape[1], group)
        elif at not in seen:
            kept.append(weight)
        seen.add(at)
    return kept


# ---- what they multiply

def _watch_output(attention, see, stack):
    """Shows what an attention's output projection multiplies. Its weight is read, its forward not
    called: with the identity in its place the attention gives just that, and a hook goes on."""
    out = attention.out_proj
    weight, bias = out.weight, out.bias

    def restore():
        out.weight, out.bias = weight, bias

    def go_on(_, inputs, result):
        see(result[0])
        return (F.linear(result[0], weight, bias), *result[1:])
    stack.callback(restore)
    out.weight = torch.nn.Parameter(torch.eye(out.in_features).to(weight), requires_grad=False)
    out.bias = None
    stack.callback(attention.register_forward_hook(go_on).remove)


def _watch(weight, see, stack):
    if weight.part == "out":
        return _watch_output(weight.module, see, stack)
    at = _SIDES.index(weight.part) if weight.part else 0

    def hook(_, args, kwargs):
        given = (*args, *kwargs.values())
        see(args[at] if at < len(args) else kwargs.get(weight.part, given[0]))
    return stack.callback(weight.module.register_forward_pre_hook(hook, with_kwargs=True).remove)


@contextlib.contextmanager
def _watching(group: list[Weight], see: typing.Callable[[Weight, torch.Tensor], None]):
    """While it is open, see(weight, x) is called with what each weight multiplies. PyTorch's fused
    passes of attention call no layer, so they wait."""
    with contextlib.ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled,
                       torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        for weight in group:
            _watch(weight, lambda x, weight=weight: see(weight, x), stack)
        yield


def _call(model, batch):
    if isinstance(batch, dict):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def _calls(model, found, batch) -> dict[tuple, int]:
    """How often a pass multiplies by each weight, in the order of the first times."""
    calls: dict[tuple, int] = {}

    def see(weight, _):
        calls[_key(weight)] = calls.get(_key(weight), 0) + 1
    with _watching(found, see):
        _call(model, batch)
    return calls


def _key(weight: Weight) -> tuple[str, str]:
    return weight.name, weight.part


def _collect(model, group, batches, once) -> dict[tuple, Stats]:
    """The statistics of a group's inputs. once: each is called once a pass, which ends with the
    last of them."""
    stats: dict[tuple, Stats] = {}
    left: set[tuple] = set()

    def see(weight, x):
        if x.dim() and x.numel():
            if _key(weight) not in stats:
                stats[_key(weight)] = Stats(x.shape[-1])
            stats[_key(weight)].add(_host(x.reshape(-1, x.shape[-1])).numpy())
        left.discard(_key(weight))
        if once and not left:
            raise _Done
    with _watching(group, see):
        for batch in batches:
            left.update(map(_key, group))
            with contextlib.suppress(_Done):
                _call(model, batch)
    return stats


def _block(name: str) -> str:
    """The name up to its first number: "encoder.layer.3" of "encoder.layer.3.output.dense"."""
    found = re.match(r"(?:.*?\.)?\d+(?=\.|$)", name)
    return found.group() if found else name


def _groups(found: list[Weight], memory: int, sequential: bool):
    """Weights whose Gram matrices fit into `memory`, at least one; of one block if asked."""
    group: list[Weight] = []
    room = 0
    for weight in found:
        size = 8 * weight.values.shape[1] ** 2
        apart = sequential and group and _block(group[0].name) != _block(weight.name)
        if group and (apart or room + size > memory):
            yield group
            group, room = [], 0
        group.append(weight)
        room += size
    if group:
        yield group


def _groups_of_inputs(model, found, calibration, memory, sequential):
    """(weights, their statistics), group by group: what comes after sees what was done before."""
    batches = list(calibration) if iter(calibration) is calibration else calibration
    first = next(iter(batches), None)
    if first is None:
        raise ValueError("calibration: expected a batch at least, for a method that needs inputs")
    calls = _calls(model, found, first) if sequential else {}
    order = {key: i for i, key in enumerate(calls)}
    found = sorted(found, key=lambda weight: order.get(_key(weight), len(order)))
    for group in _groups(found, memory, sequential):
        once = bool(calls) and all(calls.get(_key(weight)) == 1 for weight in group)
        yield group, _collect(model, group, batches, once)


def _prune(weight: Weight, stats: Stats | None, how: tuple) -> tuple[torch.Tensor, float, float]:
    """What becomes of it, Σ|w| after and before."""
    w = _host(weight.values).clone()
    size = float(w.abs().sum())
    share, _ = _core.prune(operand(w), None if stats is None else stats._handle, how, None)
    return w.to(weight.values.dtype), share * size, size


@torch.no_grad()
def prune_(model: torch.nn.Module, method: Criterion = "magnitude", *,
           calibration: typing.Iterable[typing.Any] = (), filter_fn: Filter | None = None,
           sequential: bool = False, memory: int = 4 << 30, pattern: str | None = None,
           refine: str | None = None, dampening: float = 0.0, block: int = 0,
           seed: int = 0) -> dict[str, float]:
    """Makes the weights of a model's linear layers 2:4, in place; returns the share of Σ|w| that
    each keeps, by name. Layers are nn.Linear, transformers' Conv1D, and MultiheadAttention's
    projections, whose names are those of its parameters.

    method: a criterion of sparse24.criteria(), or a function as sparse24.prune takes. pattern,
    refine, dampening, block, seed: as there. calibration: batches for what needs every layer's
    inputs (`wanda`, `sparsegpt`, refine …): a tensor, a tuple of arguments or a dict of them, each
    a call of the model. They are gone through once for each `memory` bytes of Gram matrices (8·k²
    for a layer of k inputs), and new weights wait until the last of them, so that all inputs are
    the dense model's; or with sequential once for each block at least, whose inputs then are what
    the blocks that were pruned before give. filter_fn(layer, name) says which layers; without it
    output embeddings and weights that an embedding shares stay. Layers whose in_features the
    pattern's group does not divide, and those that calibration never reaches, are left alone; the
    logger sparse24 has the reasons. Raises ValueError (no calibration, an unknown method),
    sparse24.Error.
    """
    found = weights(model, filter_fn, _core.pattern_group(pattern))
    how = _how(method, dampening, block, refine, pattern, seed)
    needed = refine or (calibration if callable(method) else _core.criterion_needs_stats(method))
    groups = [(found, None)]
    if needed and found:
        groups = _groups_of_inputs(model, found, calibration, memory, sequential)
    sums: dict[str, list[float]] = {}
    waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
    for group, stats in groups:
        for weight in group:
            if stats is not None and _key(weight) not in stats:
                _log.warning("%s: dense, no batch of the calibration reaches it", weight.name)
                continue
            w, *one = _prune(weight, None if stats is None else stats.pop(_key(weight)), how)
            total = sums.setdefault(weight.name, [0.0, 0.0])
            total[:] = (a + b for a, b in zip(total, one))
            if sequential or stats is None:
                weight.values.copy_(w)
            else:
                waiting.append((weight.values, w))
    for values, w in waiting:
        values.copy_(w)
    return {name: kept / size if size else 1.0 for name, (kept, size) in sums.items()}
