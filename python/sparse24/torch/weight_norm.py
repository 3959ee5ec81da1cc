# SPDX-License-Identifier: Apache-2.0
"""Sparsifiers that mask weights while a model trains, as torch.ao.pruning's: prepare, step,
squash_mask."""
from __future__ import annotations

import typing

import torch
from torch.nn.utils import parametrize

_OWN_KEYS = ("module", "module_fqn", "tensor_name", "tensor_fqn")


class FakeSparsity(torch.nn.Module):
    """A parametrization: the weight times a mask of its shape."""

    def __init__(self, mask: torch.Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """mask·x."""
        if self.mask.shape != x.shape:
            raise AssertionError(f"mask {list(self.mask.shape)} of a weight {list(x.shape)}")
        return self.mask * x

    def state_dict(self, *args, **kwargs):  # pylint: disable=unused-argument
        """Nothing: the sparsifier keeps the masks."""
        return {}


class BaseSparsifier:
    """What every sparsifier does; `update_mask(module, tensor_name, **group)` is its own."""

    def __init__(self, defaults: dict[str, typing.Any] | None = None):
        self.defaults = dict(defaults or {})
        self.groups: list[dict[str, typing.Any]] = []
        self.model: torch.nn.Module | None = None
        self.enable_mask_update = True

    def update_mask(self, module, tensor_name, **group):
        """Writes the new mask into the parametrization's."""
        raise NotImplementedError

    def prepare(self, model: torch.nn.Module, config: list[dict] | None = None) -> None:
        """Puts a mask of ones on each tensor of config, dicts with "tensor_fqn" and options of
        their own; None: the weights of all layers that are nn.Linear and nothing else."""
        self.model = model
        if config is None:
            config = [{"tensor_fqn": f"{name}.weight" if name else "weight"}
                      for name, module in model.named_modules() if type(module) is torch.nn.Linear]
        for row in config:
            if not isinstance(row, dict) or "tensor_fqn" not in row:
                raise AssertionError(f"{row!r}: expected a dict with tensor_fqn")
            self.groups.append(self._attach({**self.defaults, **row}))

    def _attach(self, group: dict) -> dict:
        fqn, _, name = group["tensor_fqn"].rpartition(".")
        module = self.model.get_submodule(fqn)
        for key, value in (("module", module), ("module_fqn", fqn), ("tensor_name", name)):
            if group.setdefault(key, value) != value:
                raise AssertionError(f"{key} of {group['tensor_fqn']} is {value!r}")
        mask = group.pop("mask", None)
        if mask is None:
            mask = torch.ones_like(getattr(module, name).detach())
        parametrize.register_parametrization(module, name, FakeSparsity(mask))
        return group

    def step(self, use_path: bool = True) -> None:  # pylint: disable=unused-argument
        """Chooses every mask anew, unless enable_mask_update is False."""
        if not self.enable_mask_update:
            return
        with torch.no_grad():
            for group in self.groups:
                self.update_mask(**group)

    def mask_of(self, group: dict) -> torch.Tensor:
        """A group's mask, as it is."""
        for each in group["module"].parametrizations[group["tensor_name"]]:
            if isinstance(each, FakeSparsity):
                return each.mask
        raise RuntimeError(f"{group['tensor_fqn']} has no mask: prepare puts one there")

    def squash_mask(self, params_to_keep: tuple[str, ...] | None = None,
                    params_to_keep_per_layer: dict[str, tuple[str, ...]] | None = None) -> None:
        """Writes the masked weights in place of the weights and removes the masks; options named
        stay in module.sparse_params."""
        for group in self.groups:
            module, name = group["module"], group["tensor_name"]
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
            kept = {key: group[key] for key in params_to_keep or ()}
            per_layer = (params_to_keep_per_layer or {}).get(group["module_fqn"]) or ()
            kept.update({key: group[key] for key in per_layer})
            if kept:
                module.sparse_params = kept

    def state_dict(self) -> dict[str, typing.Any]:
        """The masks by tensor_fqn, and the groups' options."""
        return {"state": {g["tensor_fqn"]: {"mask": self.mask_of(g)} for g in self.groups},
                "groups": [{key: value for key, value in group.items()
                            if key == "tensor_fqn" or key not in _OWN_KEYS}
                           for group in self.groups]}

    def load_state_dict(self, state_dict: dict[str, typing.Any], strict: bool = True) -> None:
        """Takes what state_dict gave, onto the model that was prepared."""
        known = {group["tensor_fqn"]: group for group in self.groups}
        options = {row["tensor_fqn"]: row for row in state_dict["groups"]}
        for fqn, state in state_dict["state"].items():
            if fqn not in known:
                if strict:
                    raise RuntimeError(f"{fqn} of the state is not in the model")
                continue
            known[fqn].update(options.get(fqn, {}))
            self.mask_of(known[fqn]).data = state["mask"]

    def convert(self, module: torch.nn.Module, mapping: dict | None = None,
                inplace: bool = False) -> torch.nn.Module:
        """Puts mapping[type].from_dense(child) in the place of children of these types."""
        if mapping is None:
            raise NotImplementedError("convert needs a mapping of types")
        if not inplace:
            import copy  # pylint: disable=import-outside-toplevel
            module = copy.deepcopy(module)
        for name, child in module.named_children():
            target = mapping.get(type(child))
            new = target.from_dense(child) if target else self.convert(child, mapping, True)
            setattr(module, name, new)
        return module


class WeightNormSparsifier(BaseSparsifier):
    """Masks the weights of the smallest norm: of all blocks of sparse_block_shape the share
    sparsity_level, and in each of these zeros_per_block elements. 2:4 is (1.0, (1, 4), 2).

    norm: None or 2 (squares), 1 (magnitudes), or a function of the weight. What is masked once
    scores 0 and stays so.
    """

    def __init__(self, sparsity_level: float = 0.5, sparse_block_shape: tuple[int, int] = (1, 4),
                 zeros_per_block: int | None = None, norm: int | typing.Callable | None = None):
        if zeros_per_block is None:
            zeros_per_block = sparse_block_shape[0] * sparse_block_shape[1]
        super().__init__({"sparsity_level": sparsity_level,
                          "sparse_block_shape": sparse_block_shape,
                          "zeros_per_block": zeros_per_block})
        norms = {None: torch.square, 2: torch.square, 1: torch.abs}
        if not callable(norm) and norm not in norms:
            raise NotImplementedError(f"norm {norm!r}: expected 1, 2 or a function")
        self.norm_fn = norm if callable(norm) else norms[norm]

    def update_mask(self, module, tensor_name, sparsity_level, sparse_block_shape,
                    zeros_per_block, **group):  # pylint: disable=arguments-differ
        """The mask of one weight, by its masked values."""
        size = sparse_block_shape[0] * sparse_block_shape[1]
        if not 0 <= zeros_per_block <= size:
            raise ValueError(f"zeros_per_block {zeros_per_block}: expected 0 to {size}")
        mask = self.mask_of({"module": module, "tensor_name": tensor_name,
                             "tensor_fqn": tensor_name})
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = torch.ones_like(mask)
        elif sparsity_level >= 1 and zeros_per_block == size:
            mask.data = torch.zeros_like(mask)
        else:
            norms = self.norm_fn(getattr(module, tensor_name))
            new = _tensor_mask(norms, sparsity_level, sparse_block_shape)
            if zeros_per_block != size:
                new = torch.logical_or(new, _block_mask(norms, sparse_block_shape,
                                                        zeros_per_block))
            mask.data = new.reshape(mask.shape)


def _tensor_mask(norms, level, block):
    """0 in the share `level` of blocks with the smallest mean."""
    height, width = block
    means = torch.nn.functional.avg_pool2d(norms[None, None], block, block, ceil_mode=True)[0, 0]
    kept = torch.ones_like(means)
    if level >= 1:
        kept.zero_()
    else:
        count = max(0, min(round(level * means.numel()), means.numel() - 1))
        kept.view(-1)[torch.topk(means.reshape(-1), count, largest=False).indices] = 0
    kept = kept.repeat_interleave(height, 0).repeat_interleave(width, 1)
    return kept[:norms.shape[0], :norms.shape[1]]


def _block_mask(norms, block, zeros):
    """0 in the `zeros` smallest elements of each block."""
    (n, k), (height, width) = norms.shape, block
    if n % height or k % width:
        raise AssertionError(f"blocks of {height}x{width} do not tile a weight [{n}, {k}]")
    rows = norms.reshape(n // height, height, k // width, width).permute(0, 2, 1, 3)
    rows = rows.reshape(-1, height * width)
    mask = torch.ones_like(rows)
    mask.scatter_(1, torch.topk(rows, zeros, largest=False).indices, 0)
    mask = mask.reshape(n // height, k // width, height, width).permute(0, 2, 1, 3)
    return mask.reshape(n, k)


class WandaSparsifier(BaseSparsifier):
    """Masks the weights of the smallest |w| times the norm of its input, which the model is shown
    between prepare and step: the share sparsity_level of a weight, or with
    semi_structured_block_size half of each run of so many (4: 2:4)."""

    def __init__(self, sparsity_level: float = 0.5, semi_structured_block_size: int | None = None):
        super().__init__({"sparsity_level": sparsity_level,
                          "semi_structured_block_size": semi_structured_block_size})
        self._squares: dict[torch.nn.Module, torch.Tensor] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def prepare(self, model: torch.nn.Module, config: list[dict] | None = None) -> None:
        """As the others', and from now on the layers' inputs are seen."""
        super().prepare(model, config)
        self._hooks += [group["module"].register_forward_pre_hook(self._see)
                        for group in self.groups]

    def _see(self, module, inputs):
        x = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).float()
        self._squares[module] = self._squares.get(module, 0) + x.square().sum(0)

    def update_mask(self, module, tensor_name, sparsity_level, semi_structured_block_size,
                    **group):  # pylint: disable=arguments-differ
        """The mask of one weight; RuntimeError if its layer has seen nothing."""
        if module not in self._squares:
            raise RuntimeError(f"{group.get('tensor_fqn', tensor_name)}: its layer has seen no "
                               "input: run the model between prepare and step")
        mask = self.mask_of({"module": module, "tensor_name": tensor_name,
                             "tensor_fqn": tensor_name})
        w = getattr(module.parametrizations, tensor_name).original.detach()
        scores = w.abs().float() * self._squares[module].sqrt()
        run = semi_structured_block_size or scores.numel()
        zeros = run // 2 if semi_structured_block_size else int(run * sparsity_level)
        least = scores.view(-1, run).argsort(dim=1)[:, :zeros]
        mask.data = torch.ones_like(scores).view(-1, run).scatter_(1, least, 0).view(
            mask.shape).to(mask.dtype)

    def squash_mask(self, *args, **kwargs) -> None:
        """As the others', and inputs are seen no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        super().squash_mask(*args, **kwargs)


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Keeps a band about the diagonal, `nearliness` elements wide, an odd number."""

    def __init__(self, nearliness: int = 1):
        super().__init__({"nearliness": nearliness})

    def update_mask(self, module, tensor_name, nearliness, **group):
        """The band; ValueError for an even width or one beyond the weight."""
        mask = self.mask_of({"module": module, "tensor_name": tensor_name,
                             "tensor_fqn": tensor_name})
        n, k = mask.shape
        if nearliness % 2 == 0 or nearliness // 2 >= min(n, k):
            raise ValueError(f"nearliness {nearliness}: expected an odd number within the weight")
        rows, columns = (torch.arange(size, device=mask.device) for size in (n, k))
        distance = rows[:, None] - columns[None, :]
        mask.data = (distance.abs() <= nearliness // 2).to(mask.dtype)
