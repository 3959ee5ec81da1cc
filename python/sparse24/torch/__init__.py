# SPDX-License-Identifier: Apache-2.0
"""2:4 layers in PyTorch (2.4 and later), on the CPU in f32, bf16 and f16, on CUDA in bf16 and f16.

    import sparse24.torch
    sparse24.torch.prune_(model, "sparsegpt", calibration=batches)   # weights 2:4, in place
    sparse24.torch.accelerate_(model)      # 2:4 layers run 2:4 where that is faster here

The operators are torch.ops.sparse24's, with fake implementations and gradients, so that
torch.compile takes them. `sparse24.torch.compat` has the names of PyTorch and torchao.
"""
from .torch_distil import distillation_loss, distillation_trainer, keep_zeros_
from .torch_encoder import NativeEncoder, compile_encoder
from .torch_models import Choice, accelerate_
from .torch_modules import SparseLinear
from .torch_ops import linear, prune_pack, prune_pack_pair, training_linear
from .torch_prune import prune_
from .torch_quantized import QuantizedSparseLinear, ScaledSparseLinear
from .torch_tensor import SparseTensor

__all__ = ["Choice", "NativeEncoder", "QuantizedSparseLinear", "ScaledSparseLinear",
           "SparseLinear", "SparseTensor", "accelerate_", "compile_encoder", "distillation_loss",
           "distillation_trainer", "keep_zeros_", "linear", "prune_", "prune_pack",
           "prune_pack_pair", "training_linear"]
