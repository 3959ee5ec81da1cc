# SPDX-License-Identifier: Apache-2.0
"""As test_py_hostile, of sparse24.torch: operators, layers, tensors and the names of others, on the
CPU, or on a GPU where the command says so. Skips where there is no PyTorch.

    python3 test_py_hostile_torch.py SEED CALLS FOLDER [cuda]
"""
import sys
import unittest

try:
    import torch
    import torch._dynamo  # what is imported on the way is not to be interrupted
except ImportError as missing:
    raise unittest.SkipTest("no PyTorch here") from missing

import sparse24.torch as st
from sparse24.torch import compat
import test_py_hostile
from test_py_hostile import REFUSALS, World, main, numbers, words

DEVICE = sys.argv[4] if __name__ == "__main__" and len(sys.argv) > 4 else "cpu"
DTYPE = torch.float16 if DEVICE == "cuda" else torch.float32


def tensors(draw):
    """Of every dtype, some layouts, small; now and then on another device."""
    shape = draw.choice([(), (0,), (0, 64), (64, 0), (1,), (3,), (64,), (1, 1), (5, 7), (32, 64),
                         (64, 32), (2, 3, 64), (1, 32, 64), (1,) * 20])
    dtype = draw.choice([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8,
                         torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64,
                         torch.float8_e4m3fn])
    device = draw.choice([DEVICE, DEVICE, DEVICE, "cpu", "meta"])
    t = torch.ones(shape, device=device).to(dtype)
    how = draw.randrange(8)
    if how == 0 and t.dim() == 2:
        t = t.t()
    if how == 1 and t.dim():
        t = t[..., ::2]
    if how == 2 and t.is_floating_point() and dtype.itemsize > 1:
        t = t * float("nan")
    if how == 4 and t.is_floating_point():
        t.requires_grad_()
    return t


class TorchWorld(World):
    # As PyTorch's own modules of Python refuse what is no tensor and no module.
    refusals = (*REFUSALS, RuntimeError, AttributeError)
    memory = 6 << 30 if DEVICE == "cpu" else 0  # CUDA takes addresses for all memory

    def __init__(self, folder, draw):  # pylint: disable=super-init-not-called
        self.draw, self.folder = draw, folder
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.w, self.x = (torch.randn(*s, device=DEVICE).to(DTYPE) for s in ((32, 64), (4, 64)))
        self.bias = torch.randn(32, device=DEVICE).to(DTYPE)
        self.packed = st.prune_pack(self.w)
        self.sparse = st.SparseTensor.from_dense(self.w, "magnitude")
        self.layer = st.SparseLinear.from_dense(self.linear(), "magnitude")
        self.quantised = st.QuantizedSparseLinear.from_dense(self.linear(), "int8")
        self.objects = [self.sparse, self.layer, self.quantised, self.packed, self.layer.weight,
                        torch.nn.ReLU(), torch, object(), len, {}, [], [1, 2], (), None,
                        [self.x], torch.float32, torch.device("meta"), lambda *_: 1 / 0]
        self.calls = [call for part in (self.operators, self.layers, self.names) for call in part()]

    def linear(self):
        return torch.nn.Linear(64, 32).to(DEVICE, DTYPE)

    def hostile(self):
        kind = self.draw.randrange(10)
        if kind < 2:
            return self.draw.choice(numbers())
        if kind < 4:
            return self.draw.choice(words())
        if kind < 8:
            return tensors(self.draw)
        return self.draw.choice(self.objects)

    def operators(self):
        ops, layout = torch.ops.sparse24, self.layer.layout
        shape = (32, 64, layout)
        yield st.linear, (self.x, self.packed, 32, 64), {"bias": self.bias, "dtype": None}
        yield st.training_linear, (self.x, self.w, self.bias), {"select": "tile-signed"}
        yield st.prune_pack, (self.w, "magnitude", 1), {}
        yield st.prune_pack_pair, (self.w, "tile-signed"), {}
        for op in (ops.linear, ops.linear_forward):
            yield op, (self.x, self.packed, self.bias, *shape), {}
        yield ops.to_dense, (self.packed, *shape), {}
        for op in (ops.columns, ops.mm):
            yield op, (self.packed, self.x.t().contiguous(), *shape), {}
        yield ops.addmm, (self.bias[:, None], self.packed, self.x.t().contiguous(), *shape), {
            "beta": 1, "alpha": 1}
        q = self.quantised
        yield ops.quantized_linear, (self.x, q.values, q.indices, q.scales, self.bias, 64, 8,
                                     False), {}

    def layers(self):
        yield st.SparseLinear.from_dense, (self.linear(), "magnitude"), {}
        yield self.layer, (self.x,), {}
        yield self.layer.load_state_dict, ({"weight": self.w, "bias": self.bias},), {}
        yield st.QuantizedSparseLinear.from_dense, (self.linear(), "int8"), {"integers": False}
        yield self.quantised, (self.x,), {}
        yield st.SparseTensor.from_dense, (self.w, "magnitude", 1), {}
        yield torch.nn.functional.linear, (self.x, self.sparse, self.bias), {}
        yield torch.mm, (self.sparse, self.x.t()), {}
        yield torch.addmm, (self.bias, self.x, self.sparse.t()), {}
        yield st.prune_, (self.linear(), "magnitude"), {"calibration": None}
        yield st.prune_, (self.linear(), "wanda"), {"calibration": [self.x]}
        yield st.accelerate_, (self.linear(),), {"measure": False, "tokens": 8}
        yield st.compile_encoder, (self.linear(),), {}
        yield st.distillation_loss, (self.x, self.x), {"labels": 1.0}

    def names(self):
        mask = compat.sparse24(self.w)[1]
        yield compat.to_sparse_semi_structured, (self.w,), {"mask": mask, "MVUE24": False,
                                                            "dtype": DTYPE}
        yield compat.SparseSemiStructuredTensor.from_dense, (self.w * mask,), {}
        yield compat.SparseSemiStructuredTensor.prune_dense_static_sort, (self.w, ""), {}
        for call in (compat.sparse24, compat.soft_threshold24, compat.TransposableSparse()):
            yield call, (self.w,), {}
        yield compat.masked_add_, (self.w.float(), self.w, mask, 0.5), {}
        yield compat.semi_sparse_sparsify, (self.w, ""), {}
        yield compat.semi_structured_sparsify_like, (self.w, self.w), {}
        for cls in (compat.SemiSparseLinear, compat.SemiSparseActivationLinear):
            yield cls.from_dense(self.linear()), (self.x,), {}
        yield compat.block_sparse_weight, (64,), {}
        yield compat.int4_weight_only, (128,), {"layout": compat.MarlinSparseLayout()}


class Hostile(test_py_hostile.Hostile):
    FILE, CALLS = __file__, 500


if __name__ == "__main__":
    sys.exit(main(TorchWorld))
