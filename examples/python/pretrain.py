# SPDX-License-Identifier: Apache-2.0
"""2by4-pretrain's layer with its import changed: a transposable mask that is chosen anew now and
then, 2:4 products forward and backward, masked decay, and STEP's optimiser."""
import torch
from torch import autograd, nn

from sparse24.torch import compat as sparse


class Product(autograd.Function):
    """x·Wᵀ with W and its transpose 2:4; the gradient of W from an unbiased 2:4 one of y."""

    @staticmethod
    def forward(ctx, x, weight, packed, packed_t, bias):
        ctx.save_for_backward(x)
        ctx.packed_t = packed_t
        return torch.addmm(bias, x, packed.t())

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        estimate = sparse.to_sparse_semi_structured(grad.t(), MVUE24=True, dtype=grad.dtype)
        return torch.mm(grad, ctx.packed_t.t()), torch.mm(estimate, x), None, None, grad.sum(0)


class SparseLinear(nn.Linear):
    """nn.Linear of FST: `choose` takes new masks, `pack` new weights under them."""

    def choose(self):
        _, self.weight.mask = sparse.TransposableSparse(abs=True)(self.weight)

    def pack(self):
        weight, mask, dtype = self.weight.detach(), self.weight.mask, self.weight.dtype
        self.packed = sparse.to_sparse_semi_structured(weight, mask=mask, dtype=dtype)
        self.packed_t = sparse.to_sparse_semi_structured(weight.T, mask=mask.T, dtype=dtype)

    def forward(self, x):
        return Product.apply(x, self.weight, self.packed, self.packed_t, self.bias)


torch.manual_seed(0)
model = nn.Sequential(SparseLinear(64, 128), nn.GELU(), SparseLinear(128, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x = torch.randn(64, 64)
target = x.roll(1, 1)
for step in range(60):
    for layer in (model[0], model[2]):
        if step % 20 == 0:
            layer.choose()
        layer.pack()
    loss = (model(x) - target).square().mean()
    loss.backward()
    for layer in (model[0], model[2]):
        sparse.masked_add_(layer.weight.grad, layer.weight.data, layer.weight.mask, alpha=2e-4)
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0 or step == 59:
        print(f"step {step}: loss {loss.item():.4f}")
