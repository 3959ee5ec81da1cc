# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other libraries: llama.cpp's GGUF, compressed-tensors, PyTorch's, torchao's; and
encoders as graphs of ONNX."""
from __future__ import annotations

import os
import typing

from . import _core
from .arrays import expect_name

Path = typing.Union[str, os.PathLike]


class Converted(typing.NamedTuple):
    """What `convert` wrote."""
    scheme: str | None  # how another library had stored the weights
    tensors: int        # written; parts of a weight count as one
    weights: int        # that were stored in parts
    two_four: int       # written as 2:4
    integers: int       # written as integers
    dropped: int        # tensors that only said how inputs were quantised


def forms() -> list[str]:
    """What `convert` writes: "sparse24", "dense", "compressed-tensors", "torch"."""
    return _core.names("forms")


def scheme_of(path: Path) -> str | None:
    """How another library stored a checkpoint's weights, or None. Raises OSError, Error."""
    return _core.checkpoint_scheme(_core.checkpoint_open_foreign(path))


def quantization_of(path: Path) -> str | None:
    """The quant_method that a checkpoint's config.json names ("gptq", "bitsandbytes" …), known here
    or not; "" where it names none, None where the weights are not quantised. Raises OSError,
    Error."""
    return _core.checkpoint_quantization(_core.checkpoint_open_foreign(path))


def convert(path: Path, out: Path, to: str = "sparse24", *, dtype: str | None = None,
            force: bool = False) -> Converted:
    """Writes a checkpoint, ours or another library's, anew in one of `forms`; dtype: of floats,
    "f32", "f16" or "bf16". Pickles of torch.save are read, not run. The output appears whole or not
    at all. Raises ValueError, FileExistsError unless force, OSError, Error (by its tensor)."""
    expect_name(to, "to", "forms")
    source = _core.checkpoint_open_foreign(path)
    return Converted(**_core.checkpoint_convert(source, out, to, dtype, force))


class Exported(typing.NamedTuple):
    """What `export_onnx` wrote."""
    tensors: int     # that the graph has
    bytes: int       # of model.onnx and model.onnx_data
    dimensions: int  # of sentence_embedding; 0: there is none
    external: bool   # there is a model.onnx_data


def export_onnx(path: Path, out: Path, *, external: bool = False, force: bool = False) -> Exported:
    """Writes an encoder's folder for ONNX Runtime and OpenVINO: model.onnx, dense with its zeros,
    next to the model's other files; external: weights in model.onnx_data, as those of more than
    2 GB are in any case. The output appears whole or not at all. Raises ValueError,
    FileExistsError unless force, OSError, Error (a model type or a step of its block by name)."""
    source = _core.checkpoint_open_foreign(path)
    return Exported(**_core.onnx_export(source, out, external, force))


def convert_gguf(file: Path, out: Path, *, dtype: str = "f32", force: bool = False) -> None:
    """Writes a Hugging Face folder of a GGUF file of llama.cpp: weights, configuration, tokenizer
    and chat template (docs/guide/models.md says which models and types). Raises FileExistsError
    unless force, OSError, Error (by the file's key or tensor)."""
    _core.gguf_convert(file, out, dtype, force)
