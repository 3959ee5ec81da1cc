# SPDX-License-Identifier: Apache-2.0
"""2:4 tensors under PyTorch's names, and from and to PyTorch's own."""
from __future__ import annotations

import typing

import torch

from .torch_ops import DTYPES
from .torch_tensor import SparseTensor


#: PyTorch's names for the rules by which 4x4 tiles are pruned.
TILE_RULES = {"": "tile-signed", "largest_values_greedy": "tile-signed",
              "largest_abs_values_greedy": "tile-greedy", "causal1122": "tile-causal1122"}


def tile_rule(algorithm: str) -> str:
    """Ours of one of PyTorch's. Raises ValueError."""
    if algorithm not in TILE_RULES:
        raise ValueError(f"algo {algorithm!r}: expected one of {sorted(TILE_RULES)}")
    return TILE_RULES[algorithm]


class _Least(typing.NamedTuple):
    """The least shape of a 2:4 tensor and of what it is multiplied with."""
    sparse_min_rows: int = 1
    sparse_min_cols: int = 4
    dense_min_rows: int = 1
    dense_min_cols: int = 1


class SparseSemiStructuredTensor(SparseTensor):
    """SparseTensor by PyTorch's name. As there, to_sparse_semi_structured gives one of two classes,
    which _FORCE_CUTLASS chooses; what they hold and how they are multiplied is the same here."""
    _FORCE_CUTLASS = False
    _DTYPE_SHAPE_CONSTRAINTS = {dtype: _Least() for dtype in (*DTYPES, torch.int8)}
    BACKEND = ""

    def _result(self, y):
        """As PyTorch's: of int8 is int8, what is beyond it at its end; `linear` gives the sums."""
        return y.clamp(-128, 127).to(torch.int8) if self.dtype is torch.int8 else y

    @classmethod
    def from_dense(cls, original_tensor: torch.Tensor,  # pylint: disable=arguments-renamed
                   select: str | int = "strict", seed: int = 0) -> SparseSemiStructuredTensor:
        """As SparseTensor's; PyTorch's alg_id in the place of `select` means nothing. Raises
        RuntimeError where PyTorch does: dimensions, dtype, a shape without groups of four."""
        w = original_tensor
        if w.dim() != 2:
            raise RuntimeError(f"Error original_tensor.dim = {w.dim()}: a 2:4 tensor has 2")
        known = DTYPES if w.device.type == "cpu" else (torch.float16, torch.bfloat16, torch.int8,
                                                       torch.float8_e4m3fn)
        if w.dtype not in known:
            raise RuntimeError(f"Error original_tensor.dtype {w.dtype} on {w.device.type}: "
                               f"expected {', '.join(map(str, known))}")
        if w.shape[1] % 4 or not w.numel():
            raise RuntimeError(f"Error original_tensor.shape {list(w.shape)}: expected columns "
                               "in groups of 4")
        if not cls.BACKEND:
            cls = SparseSemiStructuredTensorCUTLASS if cls._FORCE_CUTLASS else \
                SparseSemiStructuredTensorCUSPARSELT
        return super(SparseSemiStructuredTensor, cls).from_dense(
            w, select if isinstance(select, str) else "strict", seed)

    @classmethod
    def prune_dense_static_sort(cls, original_tensor: torch.Tensor,
                                algorithm: str = "") -> SparseSemiStructuredTensor:
        """Of a dense tensor whose 4x4 tiles are made 2:4 along both sides. algorithm: as
        semi_sparse_sparsify's. Raises as from_dense, ValueError (another algorithm)."""
        return cls.from_dense(original_tensor.detach(), tile_rule(algorithm))

    @classmethod
    def from_torch(cls, tensor: torch.Tensor) -> SparseSemiStructuredTensor:
        """Of one of torch.sparse's own. On the CPU those of CUTLASS alone can be read."""
        sparse = cls.from_dense(tensor.to_dense().detach().contiguous())
        return sparse.requires_grad_(tensor.requires_grad)

    def to_torch(self) -> torch.Tensor:
        """torch.sparse's own tensor of this weight: on CUDA of the backend that PyTorch takes, on
        the CPU of CUTLASS, which can be saved, moved and read there. Raises TypeError (f32 on the
        CPU), NotImplementedError (a transpose)."""
        if self.is_transposed:
            raise NotImplementedError("to_torch of a transpose: t() of it gives what is stored")
        if self.is_cuda:
            return torch.sparse.to_sparse_semi_structured(self.to_dense())
        if self.dtype is torch.float32:
            raise TypeError("to_torch of torch.float32: expected torch.float16, torch.bfloat16")
        return torch.sparse.SparseSemiStructuredTensorCUTLASS(
            self.shape, packed=self.values(), meta=self.indices(), packed_t=None, meta_t=None,
            compressed_swizzled_bitmask=None, requires_grad=self.requires_grad)

    def values(self) -> torch.Tensor:  # pylint: disable=invalid-overridden-method
        """The stored values [n, k/2] in the order of columns."""
        values = torch.from_numpy(self.matrix().values.copy())
        return values.view(self.dtype).to(self.device)

    def indices(self) -> torch.Tensor:  # pylint: disable=invalid-overridden-method
        """CUTLASS's metadata: int16 [n, k/16], of 8 bits int32 [n, k/32]. Raises ValueError for a
        shape that it does not take."""
        return torch.from_numpy(self.matrix().to_order("cutlass")[1]).to(self.device)


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """What to_sparse_semi_structured gives with _FORCE_CUTLASS."""
    BACKEND = "cutlass"


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """What to_sparse_semi_structured gives by default."""
    BACKEND = "cusparselt"


def to_sparse_semi_structured(original_tensor: torch.Tensor, transposed: bool = False,
                              alg_id: int = 0, *, mask: torch.Tensor | None = None,
                              MVUE24: bool = False,  # pylint: disable=invalid-name
                              dtype: torch.dtype | None = None) -> SparseSemiStructuredTensor:
    """A 2:4 tensor of a matrix.

    As PyTorch's: nothing is pruned, and what is not 2:4 is an error here (PyTorch drops it).
    With mask, MVUE24 or dtype as 2by4-pretrain's: by the mask, at random and unbiased (seeded by
    torch.manual_seed), or by magnitude, converted to dtype. transposed and alg_id mean nothing.
    Raises RuntimeError (dimensions, dtype, shape), sparse24.Error.
    """
    del transposed, alg_id
    w, made = original_tensor, SparseSemiStructuredTensor.from_dense
    if mask is not None and MVUE24:
        raise RuntimeError("mask and MVUE24 exclude each other")
    if w.dim() != 2 or mask is None and not MVUE24 and dtype is None:
        return made(w.contiguous())
    w = w.detach().to(dtype or torch.float16)
    if MVUE24:
        seed = int(torch.randint(2 ** 62, ()))
        return made(w.contiguous(), "mvue24", seed)
    if mask is not None:
        return made((w * (mask != 0)).contiguous())
    return made(w.contiguous(), "magnitude")
