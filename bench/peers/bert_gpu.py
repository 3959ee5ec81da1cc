#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A BERT's forward pass on a GPU, ours and PyTorch's, interleaved in one process.

    bench/peers/bert_gpu.py --libraries build/release [--batch 1,4,16,64,256] [--seq 384] [--json FILE]

Contestants: this tree's encoder, dense and 2:4 (token ids on the host to the answers' logits on the
host, waiting for each pass), and transformers' BertForQuestionAnswering with sdpa attention, its
ids on the GPU, passes queued without waiting: eager, torch.compile of the whole, of each block
("blocks"), of each block with its products searched ("tuned"), torch.compile with CUDA graphs
(mode="reduce-overhead"), and its semi-structured weights (to_sparse_semi_structured). All weights
are random; those of the linear layers 2:4. Each round gives every contestant one window after a
pause; medians over the rounds. Needs torch and transformers.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import torch_model

PAUSE, WINDOW = 0.03, 0.06  # seconds
PEERS = ("eager", "compiled", "blocks", "tuned", "graphs", "semi", "semi-compiled")


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("dtype", ctypes.c_int), ("dense", ctypes.c_int),
                ("sparse", ctypes.c_int), ("device", ctypes.c_void_p),
                ("include", ctypes.c_char_p), ("exclude", ctypes.c_char_p)]


class DeviceOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("library", ctypes.c_char_p),
                ("allocator", ctypes.c_void_p * 3)]


class Batch(ctypes.Structure):
    _fields_ = [("texts", ctypes.c_int64), ("offsets", ctypes.c_void_p), ("ids", ctypes.c_void_p),
                ("types", ctypes.c_void_p), ("mask", ctypes.c_void_p), ("pixels", ctypes.c_void_p)]


class Outputs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in
                ("hidden", "blocks", "embeddings", "start_logits", "end_logits", "logits",
                 "tokens")] + [("token_count", ctypes.c_int64)] + [
                     (name, ctypes.c_void_p) for name in ("targets", "loss", "losses")]


class Ours:
    """libsparse24-nn by ctypes."""

    def __init__(self, libraries, preset, dtype, include=None):
        # Python's own globals would do as well, but the plugin is looked for beside the library.
        self.core = ctypes.CDLL(str(libraries / "libsparse24.so.0"), ctypes.RTLD_GLOBAL)
        self.nn = ctypes.CDLL(str(libraries / "libsparse24-nn.so.0"))
        self.core.s24_ctx_error.restype = self.core.s24_device_text.restype = ctypes.c_char_p
        self.ctx, self.device = ctypes.c_void_p(), ctypes.c_void_p()
        self.core.s24_ctx_create(ctypes.byref(self.ctx), None)
        plugin = str(libraries / "libsparse24-cuda.so.0").encode()
        options = DeviceOptions(ctypes.sizeof(DeviceOptions), None, plugin)
        self.call(self.core.s24_device_create, ctypes.byref(self.device), self.ctx,
                  ctypes.byref(options))
        code = self.core.s24_dtype_parse(dtype.encode())
        self.include = include.encode() if include else None  # the layers that are 2:4
        self.models = [self.model(preset, code, dense) for dense in (1, 0)]

    def call(self, function, *arguments):
        if function(*arguments):
            raise RuntimeError(self.core.s24_ctx_error(self.ctx).decode())

    def model(self, preset, dtype, dense):
        model = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), dtype, dense, 1, self.device.value,
                          self.include)
        self.call(self.nn.s24_model_preset, ctypes.byref(model), self.ctx, preset.encode(),
                  ctypes.byref(options))
        return model

    def passes(self, batch, seq):
        """Two functions that run a pass, dense and 2:4, and the logits that they write."""
        tokens = batch * seq
        offsets = (ctypes.c_int64 * (batch + 1))(*range(0, tokens + 1, seq))
        ids = (ctypes.c_int32 * tokens)(*[(i * 7919) % 28000 + 1000 for i in range(tokens)])
        self.batch = Batch(batch, ctypes.addressof(offsets), ctypes.addressof(ids))
        self.keep, runs = [offsets, ids], []
        for model in self.models:
            session = ctypes.c_void_p()
            self.call(self.nn.s24_session_create, ctypes.byref(session), self.ctx, model,
                      ctypes.c_int64(tokens))
            logits = (ctypes.c_float * (2 * tokens))()
            start = ctypes.addressof(logits)
            outputs = Outputs(start_logits=start, end_logits=start + 4 * tokens)
            self.keep += [logits, outputs]

            def run(session=session, outputs=outputs):
                self.call(self.nn.s24_session_forward, session, self.ctx,
                          ctypes.byref(self.batch), ctypes.byref(outputs))
            runs.append((run, session, logits))
        return runs

    def end(self, runs):
        for _, session, _ in runs:
            self.nn.s24_session_destroy(session)


def torch_side(options, names, shape, prunes=torch_model.is_layer):
    """Torch's contestants, and on standard error who cannot be one."""
    return torch_model.Torch(shape, options.dtype, names, prunes=prunes)


def torch_runs(peers, inputs, what):
    runs = peers.runs(inputs)
    for name, why in peers.refused.items():
        print(f"{name}, {what}: {why[:150]}", file=sys.stderr)
    return runs


def interleave(everyone, theirs, torch, rounds):
    """Windows of every contestant; those of torch are waited for."""
    samples = {name: [] for name in everyone}
    for _ in range(rounds):
        for name, run in everyone.items():
            wait = torch.cuda.synchronize if name in theirs else lambda: None
            samples[name].append(torch_model.window(run, wait, WINDOW, PAUSE))
    return samples


def distance(a, b):
    squares = sum((x - y) ** 2 for x, y in zip(a, b))
    return (squares / sum(y * y for y in b)) ** 0.5


def measure(ours, peers, batch, options):
    runs = ours.passes(batch, options.seq)
    everyone = {"ours dense": runs[0][0], "ours 2:4": runs[1][0]}
    for run in list(everyone.values()):
        for _ in range(3):
            run()
    off = distance(runs[1][2], runs[0][2])
    if not off < 0.05:
        raise RuntimeError(f"batch {batch}: dense and 2:4 logits are {off:.3f} apart")
    theirs = torch_runs(peers, peers.inputs(batch, options.seq), f"batch {batch}") if peers else {}
    everyone.update(theirs)
    samples = interleave(everyone, theirs, peers.torch if peers else None, options.rounds)
    ours.end(runs)
    return {"batch": batch, "seq": options.seq, "logits_apart": off,
            "ms": {name: statistics.median(times) for name, times in samples.items()},
            "least": {name: min(times) for name, times in samples.items()},
            "most": {name: max(times) for name, times in samples.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--libraries", type=pathlib.Path, required=True)
    parser.add_argument("--batch", default="1,4,16,64,256")
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--dtype", choices=("f16", "bf16"), default="f16")
    parser.add_argument("--peers", default=",".join(PEERS), help="or none")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    names = [] if options.peers == "none" else options.peers.split(",")
    unknown = set(names) - set(PEERS)
    if unknown:
        parser.error(f"--peers: {', '.join(sorted(unknown))} is none of {', '.join(PEERS)}")
    ours = Ours(options.libraries.resolve(), "bert-base", options.dtype)
    shape = torch_model.Shape("bert", answers=1)
    peers = torch_side(options, names, shape) if names else None
    versions = {}
    if peers:
        import transformers
        versions = {"torch": peers.torch.__version__, "transformers": transformers.__version__}
    rows = []
    print(ours.core.s24_device_text(ours.device).decode(), versions)
    for batch in (int(b) for b in options.batch.split(",")):
        row = measure(ours, peers, batch, options)
        rows.append(row)
        ms = row["ms"]
        print(f"batch {batch:4d}:", "  ".join(f"{name} {t:.3f}" for name, t in ms.items()),
              f"  2:4 {ms['ours dense'] / ms['ours 2:4']:.2f}x of ours dense", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"dtype": options.dtype, "versions": versions,
                                            "gpu": ours.core.s24_device_text(ours.device).decode(),
                                            "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
