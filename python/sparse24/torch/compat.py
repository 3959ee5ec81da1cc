# SPDX-License-Identifier: Apache-2.0
"""The names of PyTorch's, torchao's and 2by4-pretrain's 2:4 parts, with the same arguments.

    from torch.sparse import to_sparse_semi_structured, SparseSemiStructuredTensor
    from torch.ao.pruning import WeightNormSparsifier
    from torchao.sparsity.training import SemiSparseLinear, swap_linear_with_semi_sparse_linear
    import sparse  # 2by4-pretrain

each become `from sparse24.torch.compat import …`.
"""
from .adamw_step import AdamW_STEP
from .compat_layers import (BlockSparseWeightConfig, MarlinSparseLayout,
                            SemiSparseActivationLinear, SemiSparseLayout, SemiSparseLinear,
                            SemiSparseWeightConfig, apply_fake_sparsity,
                            block_sparse_weight, int4_weight_only,
                            int8_dynamic_activation_int8_semi_sparse_weight,
                            int8_dynamic_activation_int8_weight, masked_add_, quantize_,
                            semi_sparse_sparsify, semi_sparse_weight, semi_structured_sparsify,
                            soft_threshold24, soft_threshold24_torch, soft_threshold24_triton,
                            sparse24, sparse24_torch, sparse24_triton, sparsify_,
                            swap_linear_with_semi_sparse_linear,
                            swap_semi_sparse_linear_with_linear)
from .compat_masks import (GRADIENT_TYPE, FP8SemiSparseActivationLinear, SupermaskLinear,
                           TransposableSparse, semi_structured_sparsify_like)
from .compat_tensors import (SparseSemiStructuredTensor, SparseSemiStructuredTensorCUSPARSELT,
                             SparseSemiStructuredTensorCUTLASS, to_sparse_semi_structured)
from .torch_quantized import ScaledSparseLinear as FP8SparseLinear
from .weight_norm import (BaseSparsifier, FakeSparsity, NearlyDiagonalSparsifier,
                          WandaSparsifier, WeightNormSparsifier)

__all__ = ["AdamW_STEP", "BaseSparsifier", "BlockSparseWeightConfig",
           "FP8SemiSparseActivationLinear", "FP8SparseLinear", "FakeSparsity", "GRADIENT_TYPE",
           "MarlinSparseLayout", "NearlyDiagonalSparsifier", "SemiSparseActivationLinear",
           "SemiSparseLayout", "SemiSparseLinear", "SemiSparseWeightConfig",
           "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT",
           "SparseSemiStructuredTensorCUTLASS", "SupermaskLinear", "TransposableSparse",
           "WandaSparsifier", "WeightNormSparsifier", "apply_fake_sparsity", "block_sparse_weight",
           "int4_weight_only", "int8_dynamic_activation_int8_semi_sparse_weight",
           "int8_dynamic_activation_int8_weight", "masked_add_", "quantize_",
           "semi_sparse_sparsify", "semi_sparse_weight", "semi_structured_sparsify",
           "semi_structured_sparsify_like", "soft_threshold24", "soft_threshold24_torch",
           "soft_threshold24_triton", "sparse24", "sparse24_torch", "sparse24_triton", "sparsify_",
           "swap_linear_with_semi_sparse_linear", "swap_semi_sparse_linear_with_linear",
           "to_sparse_semi_structured"]
