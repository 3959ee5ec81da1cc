# SPDX-License-Identifier: Apache-2.0
"""torchao's three lines for 2:4 weights with their imports changed: 2:4 alone, with 8-bit weights
and tokens, with 4-bit weights."""
import torch

from sparse24.torch.compat import (MarlinSparseLayout, SemiSparseLayout, apply_fake_sparsity,
                                   int4_weight_only, int8_dynamic_activation_int8_weight,
                                   quantize_, semi_sparse_weight, sparsify_)

torch.manual_seed(0)
x = torch.randn(16, 512)


def model():
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(),
                                 torch.nn.Linear(1024, 512))
    apply_fake_sparsity(layers)  # semi_sparse_weight wants weights that are 2:4
    return layers.eval()


ways = {"2:4": lambda m: sparsify_(m, semi_sparse_weight()),
        "2:4, int8 weights and tokens": lambda m: quantize_(
            m, int8_dynamic_activation_int8_weight(layout=SemiSparseLayout())),
        "2:4, int4 weights": lambda m: quantize_(m, int4_weight_only(layout=MarlinSparseLayout()))}
with torch.inference_mode():
    expected = model()(x)
    for name, way in ways.items():
        error = (way(model())(x) - expected).norm() / expected.norm()
        print(f"{name}: relative error {error:.4f}")
