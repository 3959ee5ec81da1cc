# SPDX-License-Identifier: Apache-2.0
"""torchao's training with 2:4 weights with its imports changed: swap the layers, train, swap back,
run what is 2:4 as such."""
import torch

from sparse24.torch import accelerate_, prune_
from sparse24.torch.compat import (SemiSparseLinear, swap_linear_with_semi_sparse_linear,
                                   swap_semi_sparse_linear_with_linear)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128))
swap_linear_with_semi_sparse_linear(model, {"0": SemiSparseLinear, "2": SemiSparseLinear})

x = torch.randn(64, 128)
target = x.roll(1, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    loss = (model(x) - target).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0 or step == 59:
        print(f"step {step}: loss {loss.item():.4f}")

swap_semi_sparse_linear_with_linear(model)
prune_(model, "tile-signed")  # the weights that the layers chose in every step
with torch.inference_mode():
    expected = model(x)
    for choice in accelerate_(model, tokens=64, measure=False):
        print(choice.name, choice.kind, choice.why)
    assert torch.allclose(model(x), expected, atol=1e-4)
