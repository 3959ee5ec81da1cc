# SPDX-License-Identifier: Apache-2.0
"""STEP's AdamW: the second moment is frozen once it has settled, and masks are learned after."""
from __future__ import annotations

import collections
import math

import torch


class AdamW_STEP(torch.optim.Optimizer):  # pylint: disable=invalid-name
    """AdamW in two phases. Parameters with an attribute `mask` ("dense") take part: once the mean
    change of their second moments over a window of int(1/(1−β2)) steps is below eps, or as
    clipping=(T_min, T_max) says, that moment is frozen and `mask` becomes "sparse".

    option: 1 the arithmetic mean of |v_t − v_(t−1)|, 2 the geometric one.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2,
                 amsgrad=False, clipping=(None, None), option=1):
        if amsgrad:
            raise NotImplementedError("AdamW_STEP(amsgrad=True)")
        if option not in (1, 2):
            raise ValueError(f"option {option!r}: expected 1 or 2")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})
        self.clipping, self.option, self.sparse_phase, self.steps = clipping, option, False, 0
        window = int(1 / (1 - self.param_groups[0]["betas"][1]))
        self._changes: collections.deque = collections.deque(maxlen=window)

    @torch.no_grad()
    def step(self, closure=None):
        """One step; returns what the closure does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.steps += 1
        moved = [self._update(p, group) for group in self.param_groups for p in group["params"]
                 if p.grad is not None]
        if not self.sparse_phase:
            self._judge([change for change in moved if change is not None])
        return loss

    def _update(self, p, group):
        """One parameter; the change of its second moment if it takes part and is not frozen."""
        (beta1, beta2), state = group["betas"], self.state[p]
        if not state:
            state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
        takes_part = hasattr(p, "mask")
        before = state["v"].clone() if takes_part and not self.sparse_phase else None
        p.mul_(1 - group["lr"] * group["weight_decay"])
        state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
        state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        if takes_part and self.sparse_phase:
            denominator = state["frozen"].sqrt().add_(group["eps"] ** 0.75)
        else:
            denominator = state["v"].sqrt() / math.sqrt(1 - beta2 ** self.steps) + group["eps"]
        p.addcdiv_(state["m"], denominator, value=-group["lr"] / (1 - beta1 ** self.steps))
        return None if before is None else (state["v"] - before).abs_()

    def _judge(self, changes):
        if not changes:
            return
        count = sum(change.numel() for change in changes)
        if self.option == 1:
            mean = sum(float(change.sum()) for change in changes) / count
        else:
            mean = math.exp(sum(float(change.log().sum()) for change in changes) / count)
        self._changes.append(mean)
        settled = sum(self._changes) / len(self._changes) < self.param_groups[0]["eps"]
        least, most = self.clipping
        if least is not None:
            settled = settled and self.steps > least
        if most is not None:
            settled = settled or self.steps > most
        if settled:
            self._freeze()

    def _freeze(self):
        self.sparse_phase = True
        for group in self.param_groups:
            for p in group["params"]:
                if hasattr(p, "mask"):
                    self.state[p]["frozen"] = self.state[p]["v"].clone()
                    p.mask = "sparse"
