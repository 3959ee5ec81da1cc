# SPDX-License-Identifier: Apache-2.0
"""2:4 semi-structured sparsity: prune, pack, run and train, on numpy arrays and DLPack tensors.

    import numpy, sparse24
    w = sparse24.Matrix.magnitude(numpy.random.randn(384, 384).astype("f4"))
    y = sparse24.linear(x, w)                          # x [m, k] times w [n, k] transposed

    encoder = sparse24.Encoder("all-MiniLM-L6-v2-2of4")
    vectors = encoder.encode(["a text", "another one"])

Parts load when they are first used, so that `import sparse24` takes no time; `sparse24.torch` is
imported by name. What the library refuses is a ValueError (shapes, values), a TypeError (dtypes),
an OSError (FileNotFoundError, where it is not there), a MemoryError, or sparse24.Error, always with
the library's own sentence.
"""
import importlib as _importlib
import typing as _typing

from ._core import Error, machine, set_threads, threads
from ._core import version as _version

if _typing.TYPE_CHECKING:
    from .checkpoint import Checkpoint, Tensor, Verified, save_checkpoint
    from .classifier import Classifier, Tag
    from .conversion import (Converted, Exported, convert, convert_gguf, export_onnx, forms,
                             quantization_of, scheme_of)
    from .encoder import Encoder, WordWeights, nearest, retrieval_accuracy
    from .evaluation import Answers, Questions, evaluate_lm, evaluate_qa, evaluate_retrieval
    from .generator import Generator
    from .language_model import Chat, Token, generate
    from .late import MultiVectorEncoder, TokenIndex, max_sim
    from .lifted import LiftedMatrix
    from .masks import (BadGroup, apply_mask, check, magnitude_mask, mask_flips, masked_decay,
                        mvue24, soft_threshold, soft_threshold_scale, tile_mask)
    from .matrix import Matrix, Plan, addmm, linear, mm
    from .model import Model
    from .program import bench, command, plan, propose, run
    from .pruning import (Factors, Layer, Pruned, ScoreInputs, Stats, WeightGradients, criteria,
                          low_rank, patterns, permute_model, prune, prune_model, prune_scores,
                          refinements, round_matrix, sensitivity)
    from .ranks import Comm, comm_kinds
    from .sparse import SparseMatrix, sparse_kernels
    from .tokenizer import Encoding, Tokenizer
    from .training import Method, Step, distil, gradients, method, methods, train
    from .vectors import Hit, Index, search

__version__ = _version()

# Where each name is made; the module is imported when the name is first asked for.
_HOMES = {
    "checkpoint": ("Checkpoint", "Tensor", "Verified", "save_checkpoint"),
    "classifier": ("Classifier", "Tag"),
    "conversion": ("Converted", "Exported", "convert", "convert_gguf", "export_onnx", "forms",
                   "quantization_of", "scheme_of"),
    "encoder": ("Encoder", "WordWeights", "nearest", "retrieval_accuracy"),
    "evaluation": ("Answers", "Questions", "evaluate_lm", "evaluate_qa", "evaluate_retrieval"),
    "generator": ("Generator",),
    "language_model": ("Chat", "Token", "generate"),
    "late": ("MultiVectorEncoder", "TokenIndex", "max_sim"),
    "lifted": ("LiftedMatrix",),
    "masks": ("BadGroup", "apply_mask", "check", "magnitude_mask", "mask_flips", "masked_decay",
              "mvue24", "soft_threshold", "soft_threshold_scale", "tile_mask"),
    "matrix": ("Matrix", "Plan", "addmm", "linear", "mm"),
    "model": ("Model",),
    "program": ("bench", "command", "plan", "propose", "run"),
    "pruning": ("Factors", "Layer", "Pruned", "ScoreInputs", "Stats", "WeightGradients", "criteria",
                "low_rank", "patterns", "permute_model", "prune", "prune_model", "prune_scores",
                "refinements", "round_matrix", "sensitivity"),
    "ranks": ("Comm", "comm_kinds"),
    "sparse": ("SparseMatrix", "sparse_kernels"),
    "tokenizer": ("Encoding", "Tokenizer"),
    "training": ("Method", "Step", "distil", "gradients", "method", "methods", "train"),
    "vectors": ("Hit", "Index", "search"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

# Written out, since type checkers read it.
__all__ = [
    "Error", "machine", "set_threads", "threads", "Checkpoint", "Tensor", "Verified",
    "save_checkpoint", "Classifier", "Tag", "Converted", "Exported", "convert", "convert_gguf",
    "export_onnx", "forms", "quantization_of", "scheme_of", "Encoder", "WordWeights", "nearest",
    "retrieval_accuracy", "Answers", "Questions", "evaluate_lm", "evaluate_qa",
    "evaluate_retrieval", "Generator", "Chat", "Token", "generate", "MultiVectorEncoder",
    "TokenIndex", "max_sim", "LiftedMatrix", "BadGroup", "apply_mask", "check", "magnitude_mask",
    "mask_flips",
    "masked_decay", "mvue24", "soft_threshold", "soft_threshold_scale", "tile_mask", "Matrix",
    "Plan", "addmm", "linear", "mm", "Model", "bench", "command", "plan", "propose", "run",
    "Factors", "Layer", "Pruned", "ScoreInputs", "Stats", "WeightGradients", "criteria", "low_rank",
    "patterns", "permute_model", "prune", "prune_model", "prune_scores", "refinements",
    "round_matrix", "sensitivity", "Comm", "comm_kinds", "SparseMatrix", "sparse_kernels",
    "Encoding", "Tokenizer", "Method", "Step", "distil", "gradients", "method", "methods", "train",
    "Hit", "Index", "search"
]


if not _typing.TYPE_CHECKING:  # to type checkers every name would be one
    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module 'sparse24' has no attribute {name!r}")
        value = getattr(_importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__():
    return sorted([*globals(), *_HOME_OF])
