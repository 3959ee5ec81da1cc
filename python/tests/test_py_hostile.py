# SPDX-License-Identifier: Apache-2.0
"""Every public function with arguments that nobody meant: wrong types, dtypes and shapes, negative
and huge numbers, NaN, handles of another kind, what was closed. It is carried out or refused with a
sentence; the process goes on. The calls are made in another process, so that a crash names its
call:

    python3 test_py_hostile.py SEED CALLS FOLDER
"""
import faulthandler
import itertools
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import unittest
import warnings

import numpy as np
import sparse24
from py_support import tiny_bert

PATIENCE = 1.0  # seconds
REFUSALS = (TypeError, ValueError, OSError, MemoryError, OverflowError, NotImplementedError,
            sparse24.Error)


class Capsules:
    """An array only by what it says."""

    def __init__(self, given):
        self.given = given

    @property
    def __array_struct__(self):
        return self.given

    def __dlpack__(self, **_):
        return self.given


class Opaque:
    """An array that has no length and no items, for it has too many."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    @property
    def __array_struct__(self):
        return self.array.__array_struct__


class Sullen:
    """An array that fails when it is looked at."""
    shape = (4, 8)

    @property
    def __array_struct__(self):
        raise ValueError("not today")


def numbers():
    whole = [0, 1, 2, 3, 4, 7, 8, 31, 64, 255, 2 ** 16, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 40,
             2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64, 10 ** 30]
    floats = [0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan")]
    return [*whole, *(-n for n in whole), *floats, True, False, np.float32(0.5), np.int64(-3),
            2 + 1j]


def words():
    """No path among them leads out of the folder in which all is called."""
    return ["", " ", "nope", "f32", "bf16", "i8", "int8", "2:4", "3:7", "0:0", "-1:2", "magnitude",
            "tile-best", "wanda", "csr", "bsr", "hopper", "cutlass", "rows16-f32", "a\0b", "\ud800",
            "é" * 300, "%s%n", "no/such/folder", b"f32", b"\xff", pathlib.Path("x")]


def arrays(draw):
    """Of every dtype, some layouts, small."""
    shape = draw.choice([(), (0,), (0, 0), (0, 32), (16, 0), (1,), (3,), (32,), (1, 1), (4, 4),
                         (5, 7), (16, 32), (32, 16), (2, 3, 32), (1, 16, 32), (1,) * 33])
    dtype = draw.choice("f4 f4 f4 f2 f8 i1 i2 i4 i8 u1 u2 u8 ?  >f4 c8 O U3 M8[s]".split())
    shape = shape[:32]
    try:
        a = np.ones(shape, dtype) if dtype in ("O", "U3") else \
            (np.arange(np.prod(shape, dtype=int)) % 5 - 2).reshape(shape).astype(dtype)
    except (TypeError, ValueError):
        return np.zeros(shape)
    how = draw.randrange(12)
    if how == 0 and a.dtype.kind == "f" and a.size:
        a.flat[draw.randrange(a.size)] = draw.choice([np.nan, np.inf])
    if how == 1:
        a = a.T
    if how == 2 and a.ndim:
        a = a[::-1]
    if how == 3 and a.ndim:
        a = a[..., ::2]
    if how == 4:
        a.flags.writeable = False
    if how == 5:
        return Opaque(np.broadcast_to(a, (2 ** 40, *a.shape)[:32]))
    return a


def tokens_of(*args, **options):
    """What generate would begin with."""
    return list(itertools.islice(sparse24.generate(*args, **options), 3))


class World:
    """What is called, with what it was meant to be called with, and what comes in its place."""
    refusals: tuple = REFUSALS
    memory = 6 << 30  # bytes of addresses

    def __init__(self, folder, draw):
        self.draw, self.folder = draw, folder
        sparse24.set_threads(1)
        rng = np.random.default_rng(1)
        self.w = rng.standard_normal((16, 32)).astype(np.float32)
        self.x = rng.standard_normal((4, 32)).astype(np.float32)
        self.model = str(folder / "dense")
        self.matrix = sparse24.Matrix.magnitude(self.w)
        self.wide = sparse24.Matrix.magnitude(rng.standard_normal((64, 128)).astype(np.float32))
        self.sparse = sparse24.SparseMatrix.from_dense(self.w)
        self.stats = sparse24.Stats(32).add(self.x)
        self.plan = sparse24.Plan(self.matrix)
        self.tokenizer = sparse24.Tokenizer(self.model)
        self.encoder = sparse24.Encoder(self.model, max_tokens=16)
        self.net = sparse24.Model(self.model)
        self.checkpoint = sparse24.Checkpoint(self.model)
        self.index = sparse24.Index(rng.standard_normal((8, 16)).astype(np.float32))
        self.objects = [self.matrix, self.wide, self.sparse, self.stats, self.plan, self.tokenizer,
                        self.encoder, self.net, self.checkpoint, self.index, self.matrix._handle,
                        self.tokenizer._handle, self.net._handle, sparse24, object(), type, len,
                        lambda *_: 1 / 0, lambda *_: True, Sullen(), Capsules(None),
                        Capsules(self.matrix._handle), Capsules(3), {}, {"a": 1}, [], [1, 2],
                        [[1, 2], [3]], ["a", None], (), (1,), (0, "f32", -1, 4, 4), ((), ()), None,
                        iter("ab"), {3}]
        self.calls = [call for part in (self.matrices, self.products, self.pruning,
                                        self.checkpoints, self.models, self.whole_models)
                      for call in part()]

    def hostile(self):
        kind = self.draw.randrange(10)
        if kind < 3:
            return self.draw.choice(numbers())
        if kind < 5:
            return self.draw.choice(words())
        if kind < 8:
            return arrays(self.draw)
        return self.draw.choice(self.objects)

    def matrices(self):
        s, w, m = sparse24, self.w, self.matrix
        new = str(self.folder / "new")
        mask = s.magnitude_mask(w)
        for name in ("strict", "magnitude", "mask", "mvue24", "tile-best"):
            yield s.Matrix.from_dense, (w,), {"select": name, "dtype": None, "mask": mask,
                                              "seed": 1, "allow_nonfinite": False,
                                              "transpose": False}
        yield s.Matrix.pair, (w,), {"select": "tile-best", "mask": None, "dtype": "f16"}
        yield s.Matrix.tile, (w, "best"), {}
        yield s.Matrix, (m._handle,), {}
        yield s.Matrix.from_packed, m.pack(), {"shape": (16, 32), "dtype": "f32", "scales": None,
                                               "bits": 8}
        four = self.wide.quantize("int4")
        yield s.Matrix.from_packed, four.pack()[:2], {"shape": (64, 128), "scales": four.scales,
                                                      "bits": 4}
        yield m.to_dense, (), {"dtype": "f32", "out": np.zeros((16, 32), np.float32)}
        yield m.quantize, ("int8",), {}
        yield m.to_order, ("hopper",), {}
        order = s.Matrix.magnitude(w, dtype="f16").to_order("hopper")
        yield s.Matrix.from_order, ("hopper", order), {"dtype": "f16", "shape": (16, 32),
                                                       "meta": None}
        yield m.save, (new + ".safetensors", "weight"), {"force": True}
        yield s.Matrix.load, (new + ".safetensors",), {"name": None}
        for call, args in ((s.check, (w, "k")), (s.magnitude_mask, (w,)),
                           (s.tile_mask, (w, "best")), (s.apply_mask, (w, mask)),
                           (s.mask_flips, (mask, mask)), (s.soft_threshold, (w, 1.0)),
                           (s.masked_decay, (w.copy(), w, mask, 0.1)),
                           (s.soft_threshold_scale, (w,)), (s.mvue24, (w, 1))):
            yield call, args, {}
        parts = self.sparse
        yield s.SparseMatrix.from_dense, (w,), {"format": "csr"}
        yield s.SparseMatrix.from_dense, (w, "bsr", (4, 4)), {}
        yield s.SparseMatrix.from_parts, ("csr", (16, 32)), {
            "starts": parts.starts, "index": parts.index, "values": parts.values, "rows": None}
        yield parts.to, ("coo",), {}
        yield parts.to_dense, ("f32",), {}
        yield s.LiftedMatrix, (w, "6:8"), {}

    def products(self):
        s, w, x, m = sparse24, self.w, self.x, self.matrix
        out, bias = np.zeros((4, 16), np.float32), np.zeros(16, np.float32)
        yield m.__matmul__, (w.T.copy(),), {}
        yield s.linear, (x, m), {"bias": bias, "out": out}
        yield s.mm, (x, m.T), {"out": None}
        yield s.addmm, (out, x, m.T), {"alpha": 1.0, "beta": 1.0, "out": None}
        yield s.Plan, (m,), {"kernel": None, "activations": None}
        yield self.plan, (x,), {"bias": bias, "activation": "relu", "gate": out, "residual": out,
                                "out": None}
        yield self.plan.kernel, (3,), {}
        yield self.sparse.plan, (None,), {}
        yield self.sparse.plan_integers, (np.ones(16, np.float32), None), {}
        yield self.sparse.linear, (x,), {"bias": bias}
        yield s.nearest, (x, x, 2), {}
        yield s.retrieval_accuracy, (x, x, np.arange(4), 1), {}
        yield s.Index, (x,), {"rounded": True}
        yield self.index.nearest, (x[:, :16].copy(), 3), {}
        yield s.Encoder.similarity, (x, x), {}
        yield s.set_threads, (1,), {}

    def pruning(self):
        s, w, x = sparse24, self.w, self.x
        yield s.Stats, (32,), {}
        yield s.Stats(32).add, (x,), {}
        yield self.stats.error, (w, w), {}
        for criterion in ("magnitude", "wanda", "sparsegpt"):
            yield s.prune, (w, criterion, x), {"pattern": "2:4", "dampening": 0.01, "block": 0,
                                               "seed": 1, "refine": None}
            yield s.prune_scores, (w, criterion, x), {}
        yield s.round_matrix, (self.matrix, x), {"scheme": "int8"}
        yield s.low_rank, (w, 2), {"pruned": None}
        yield s.method, ("sr-ste",), {}

    def checkpoints(self):
        s, new, file = sparse24, str(self.folder / "new"), self.checkpoint
        name = next(iter(file))
        yield s.Checkpoint, (self.model,), {}
        for call in (file.array, file.bits, file.info, file.matrix, file.sparse, file.lifted,
                     file.__getitem__, file.__contains__, file.metadata):
            yield call, (name,), {}
        yield file.selects, (name,), {"include": "*", "exclude": None}
        yield file.verify, (True,), {"progress": None}
        yield s.save_checkpoint, (new + "2.safetensors", {"a": self.w, "b": self.matrix}), {
            "force": True, "model": None}
        for call in (s.scheme_of, s.quantization_of):
            yield call, (self.model,), {}
        yield s.convert, (self.model, new + "3", "sparse24"), {"force": True}
        yield s.export_onnx, (self.model, new + "4.onnx"), {"force": True}
        yield s.convert_gguf, (self.model, new + "5"), {}
        yield s.Tokenizer, (self.model,), {}
        yield self.tokenizer.encode, ("a text", "b"), {"max_tokens": 8}
        yield self.tokenizer.decode, ([1, 2, 3],), {}

    def models(self):
        s, net = sparse24, self.net
        yield s.Encoder, (self.model,), {"max_tokens": 16, "dtype": None, "prompt": None}
        yield self.encoder.encode, (["a text", "another"],), {"prompt": None, "batch_size": 2}
        yield self.encoder.encode_ids, ([[1, 2], [3]],), {}
        yield self.encoder.encode_sparse, ("a",), {}
        yield self.encoder.encode_pixels, (self.w,), {}
        yield s.Model, (self.model,), {"dtype": None, "dense": False}
        yield net.forward, ([[1, 2, 3], [4]],), {}
        yield net.forward_images, (self.w,), {}
        yield net.perplexity, ([1, 2, 3],), {"window": 0}
        yield s.Classifier, (self.model,), {}
        yield s.Chat, (self.model,), {}
        yield s.Generator, (net,), {"texts": 2, "tokens": 16}
        yield tokens_of, (net, [[1, 2]]), {"max_new": 2}
        yield s.Comm, ("tcp",), {"rank": 0, "world": 1}
        yield s.evaluate_lm, (self.model, "a text"), {"max_tokens": 4, "stride": 0}
        yield s.evaluate_retrieval, (self.encoder, ["a"], ["a", "b"], [0]), {}

    def whole_models(self):
        s, texts, out = sparse24, ["a text", "another"] * 4, str(self.folder / "out")
        yield s.prune_model, (self.model, out, "magnitude"), {
            "texts": texts, "pattern": None, "dtype": None, "force": True, "max_tokens": 8,
            "block": 0, "dampening": 0.0, "seed": 1, "report": None, "include": "*query*"}
        yield s.permute_model, (self.model, out), {"texts": texts, "force": True, "max_tokens": 8}
        yield s.sensitivity, (self.model, texts, ("2:4",), "wanda"), {"include": "*query*"}
        yield s.gradients, (self.model,), {"texts": texts, "max_tokens": 8, "examples": 2}
        yield s.train, (self.model, out), {"texts": texts, "teacher": self.model, "steps": 1,
                                           "batch": 2, "max_tokens": 8, "force": True}
        yield s.distil, (self.model, self.model, out, texts), {"steps": 1, "force": True}
        yield s.plan, (1, 64, 64), {"dtype": "f32", "threads": 1}

    def one(self):
        """A call, some of whose arguments are not what they were."""
        call, args, options = self.draw.choice(self.calls)
        args, options = list(args), dict(options)
        places = [*range(len(args)), *options]
        for place in self.draw.sample(places, min(len(places), self.draw.choice([1, 1, 2, 3]))):
            (options if isinstance(place, str) else args)[place] = self.hostile()
        if not places:
            args = [self.hostile()]
        return call, args, options


def told(call, args, options):
    """A call as text, of which parts may be anything."""
    def short(value):
        value = getattr(value, "array", value)
        if isinstance(value, np.ndarray):
            return f"array{list(value.shape)}.{value.dtype}.{value.strides}"
        return f"{type(value).__name__} {value!r}"[:90].encode("ascii", "replace").decode()
    name = getattr(call, "__qualname__", type(call).__name__)
    parts = [short(a) for a in args] + [f"{k}={short(v)}" for k, v in options.items()]
    return f"{name}({', '.join(parts)})"


def patiently(call, args, options):
    """The call, which Ctrl-C ends if it takes long."""
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        call(*args, **options)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def failures(world_of, seed, count, folder):
    """What is neither carried out nor refused with a sentence, and the call."""
    if world_of.memory:
        resource.setrlimit(resource.RLIMIT_AS, (world_of.memory, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    draw = random.Random(seed)
    world, wrong = world_of(folder, draw), {}
    with open(folder / "last", "wb", buffering=0) as last:
        for _ in range(count):
            call, args, options = world.one()
            text = told(call, args, options)
            os.pwrite(last.fileno(), text.encode() + b"\n" + b" " * 4096, 0)
            try:
                patiently(call, args, options)
            except (ZeroDivisionError, KeyboardInterrupt):
                pass  # a callback's own, and what it asked for
            except BaseException as error:  # pylint: disable=broad-exception-caught
                place = traceback.extract_tb(error.__traceback__)[-1]
                known = isinstance(error, KeyError) and place.filename.endswith("checkpoint.py")
                if not known and (not isinstance(error, world.refusals) or " " not in str(error)):
                    wrong[f"{place.filename}:{place.lineno}: {type(error).__name__}"] = \
                        f"{error}\n    {text}"
    return wrong


def main(world_of):
    """The command: 1 if there is such a call."""
    found = failures(world_of, int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]))
    for sentence, made in found.items():
        print(f"{sentence}\n    {made}")
    return int(bool(found))


class Hostile(unittest.TestCase):
    FILE, CALLS = __file__, 1200

    def test_every_function(self):
        with tempfile.TemporaryDirectory() as place:
            tiny_bert.write(pathlib.Path(place) / "dense")
            ran = subprocess.run([sys.executable, "-B", self.FILE, "1", str(self.CALLS), place],
                                 capture_output=True, text=True, check=False)
            last = pathlib.Path(place) / "last"
            at = last.read_text().splitlines()[0] if last.exists() else "before the first call"
        self.assertEqual(ran.returncode, 0, f"{at}\n{ran.stdout}{ran.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main(World))
