# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: safetensors files and the folders of models."""
from __future__ import annotations

import collections.abc
import os
import typing

import numpy as np

from . import _core
from .arrays import BITS, NUMPY, bits_of, handle_of, operand, tagged, view
from .lifted import LiftedMatrix
from .matrix import Array, Matrix
from .sparse import SparseMatrix


Progress = typing.Callable[[str, int, int], object]


class Tensor(typing.NamedTuple):
    """What a checkpoint says of a tensor."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    packed: bool  # a 2:4 matrix
    bits: int    # of a quantised one's integers; else 0
    group: int   # columns that share a scale
    layout: str | None  # of a packed one that is stored in a kernel's order
    transposed: int     # 1: the weight of a linear layer that is stored [k, n]
    bytes: int
    file: str
    # "2:4", "integers" (dense ones), "sparse" (rows, columns, blocks), "lifted" (6:8, dense:64),
    # "low-rank" (2:4 or lifted, and factors to add), "factors" (alone)
    kind: str = "dense"
    lift: int = 0  # of "lifted", M of M-2:M, -D of dense:D; else 0


class Verified(typing.NamedTuple):
    """What `Checkpoint.verify` held against its hash."""
    tensors: int  # as they are stored: a packed one has several parts
    files: int    # of the folder's others
    bytes: int


class Checkpoint(collections.abc.Mapping):
    """A .safetensors file or a Hugging Face folder, mapped: a mapping of names to arrays, and to
    Matrix where a tensor is packed. Everything about its headers is checked when it is opened."""

    def __init__(self, path: str | os.PathLike):
        """Raises OSError, Error (a malformed file, with file, tensor and expectation)."""
        self._take(_core.checkpoint_open(path))

    @classmethod
    def of_config(cls, folder: str | os.PathLike) -> Checkpoint:
        """A folder with config.json whose weights are still to be made: without tensors."""
        checkpoint = cls.__new__(cls)
        checkpoint._take(_core.checkpoint_open_config(folder))
        return checkpoint

    def _take(self, handle: typing.Any):
        self._handle = handle
        self._names = _core.checkpoint_names(self._handle)
        self.folder, self.model_type = _core.checkpoint_info(self._handle)

    def __len__(self):
        return len(self._names)

    def __iter__(self):
        return iter(self._names)

    def __contains__(self, name):
        return isinstance(name, str) and _core.checkpoint_tensor(self._handle, name) is not None

    def __getitem__(self, name: str) -> np.ndarray | Matrix:
        """A read-only array without a copy (bf16 and 8-bit floats are converted to f32), or a
        Matrix."""
        return self.matrix(name) if self.info(name).packed else self.array(name)

    def _row(self, name: str) -> dict:
        if name not in self:
            raise KeyError(name)
        return _core.checkpoint_tensor(self._handle, name)

    def info(self, name: str) -> Tensor:
        """What there is under a name. Raises KeyError."""
        row = self._row(name)
        row.pop("data")
        return Tensor(name, **row)

    def bits(self, name: str) -> np.ndarray:
        """A dense tensor as it is stored, read-only; bf16 and 8-bit floats as integers."""
        row = self._row(name)
        if row["kind"] != "dense":
            raise TypeError(f"{name} is packed ({row['kind']}): matrix(), sparse() or array() "
                            "gives it")
        return view(row["data"], row["shape"], bits_of(row["dtype"]), self._handle)

    def array(self, name: str) -> np.ndarray:
        """A dense tensor; f32 where numpy has no such dtype, and of what is packed: with its
        zeros, scale times integer."""
        row = self._row(name)
        if row["kind"] != "dense":
            out = np.empty(row["shape"], np.float32)
            _core.checkpoint_dense(self._handle, name, out)
            return out
        stored, dtype = self.bits(name), self._row(name)["dtype"]
        if dtype not in BITS or not stored.size:
            return stored
        out = np.empty(stored.shape, np.float32)
        _core.convert(out.reshape(1, -1), tagged(stored.reshape(1, -1), dtype))
        return out

    def matrix(self, name: str) -> Matrix:
        """The 2:4 matrix of a packed tensor; of one with low-rank factors without them, where
        array() gives the sum. Raises KeyError, ValueError (it is not packed)."""
        matrix = Matrix(_core.checkpoint_matrix(self._handle, name))
        return matrix.T if self.info(name).transposed == 1 else matrix

    def sparse(self, name: str) -> SparseMatrix:
        """A copy of a tensor that is stored in rows, columns, coordinates or blocks. Raises
        KeyError, ValueError (it is not)."""
        return SparseMatrix(_core.checkpoint_sparse(self._handle, name))

    def lifted(self, name: str) -> LiftedMatrix:
        """A tensor of M-2:M, such as 6:8, that is stored as 2:4. Raises KeyError, ValueError (it is
        not)."""
        lift = self.info(name).lift
        if not lift:
            raise ValueError(f"{name} is not lifted")
        matrix = Matrix(_core.checkpoint_matrix(self._handle, name))
        return LiftedMatrix.of(matrix, _core.lift_pattern(lift))

    def verify(self, whole: bool = True, *, progress: Progress | None = None) -> Verified:
        """Reads everything and holds it against the hashes in its metadata; whole: all must have
        them, and the folder's other files are held against theirs, too. Raises Error (file, tensor,
        both hashes; or that there is none), OSError, KeyboardInterrupt."""
        return Verified(*_core.checkpoint_verify(self._handle, whole, progress))

    def metadata(self, key: str) -> str | None:
        """The value of a key in the first file's __metadata__."""
        return _core.checkpoint_metadata(self._handle, key)

    def selects(self, name: str, include: str | None = None, exclude: str | None = None) -> bool:
        """Would the 2:4 commands touch it? By default: the linear layers inside the blocks."""
        return _core.checkpoint_selects(self._handle, name, include, exclude)


def save_checkpoint(path: str | os.PathLike,
                    tensors: typing.Mapping[str, Matrix | LiftedMatrix | SparseMatrix | Array], *,
                    model: Checkpoint | None = None, force: bool = False) -> None:
    """Writes tensors, arrays as they are and matrices packed or in their sparse format, to a
    .safetensors file, or to a folder if `model` is one, whose side files and metadata go along.
    Nothing appears before all of it is on disk. Raises FileExistsError unless force."""
    rows = []
    if not isinstance(tensors, collections.abc.Mapping):
        raise TypeError(f"tensors: expected a mapping of names, got {type(tensors)}")
    for name, data in tensors.items():
        if isinstance(data, Matrix):
            rows.append((name, data._handle, ()))
        elif isinstance(data, LiftedMatrix):
            rows.append(data._row(name))
        elif isinstance(data, SparseMatrix):
            rows.append((name, data._handle, None))
        else:
            data = np.asarray(data) if not hasattr(data, "__dlpack__") else data
            rows.append((name, _flat(data), tuple(data.shape)))
    side_files = None if model is None else handle_of(model, "model", Checkpoint)
    _core.checkpoint_save(path, side_files, force, tuple(rows))


def _flat(data: Array) -> typing.Any:
    if isinstance(data, np.ndarray) and data.dtype.name not in {np.dtype(t).name
                                                                 for t in NUMPY.values()}:
        return operand(np.ascontiguousarray(data).reshape(1, -1))
    return data
