#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ViT's forward pass on a GPU, ours and PyTorch's, interleaved in one process.

    bench/peers/vit_gpu.py --libraries build/release [--model vit-l] [--batch 256] [--json FILE]

Contestants: this tree's encoder, dense and 2:4 (pixels on the GPU to logits on the host, waiting for
each pass), and transformers' ViTForImageClassification of the same shape with sdpa attention, its
pixels on the GPU, passes queued without waiting: as bert_gpu.py has them. All weights are random;
those of the blocks' linear layers 2:4. Needs torch and transformers.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import bert_gpu
import torch_model

# As src/run/load/presets.def: width, layers, heads, intermediate.
SHAPES = {"vit-tiny": (192, 12, 3, 768), "vit-b": (768, 12, 12, 3072), "vit-l": (1024, 24, 16, 4096)}
CLASSES = 1000


class Ours(bert_gpu.Ours):
    def passes(self, pixels):
        """Two functions that run a pass, dense and 2:4, and the logits that they write."""
        batch = pixels.shape[0]
        self.batch = bert_gpu.Batch(texts=batch, pixels=pixels.data_ptr())
        self.keep, runs = [pixels], []
        for model in self.models:
            session = ctypes.c_void_p()
            self.call(self.nn.s24_session_create, ctypes.byref(session), self.ctx, model,
                      ctypes.c_int64(batch * 197))
            logits = (ctypes.c_float * (batch * CLASSES))()
            outputs = bert_gpu.Outputs(logits=ctypes.addressof(logits))
            self.keep += [logits, outputs]

            def run(session=session, outputs=outputs):
                self.call(self.nn.s24_session_forward, session, self.ctx,
                          ctypes.byref(self.batch), ctypes.byref(outputs))
            runs.append((run, session, logits))
        return runs


def measure(ours, peers, batch, options):
    torch = peers.torch
    pixels = torch.randn(batch, 3, 224, 224, device="cuda")
    torch.cuda.synchronize()
    runs = ours.passes(pixels)
    everyone = {"ours dense": runs[0][0], "ours 2:4": runs[1][0]}
    for run in list(everyone.values()):
        for _ in range(3):
            run()
    some = CLASSES * min(batch, 4)
    off = bert_gpu.distance(runs[1][2][:some], runs[0][2][:some])
    if not off < 0.05:
        raise RuntimeError(f"batch {batch}: dense and 2:4 logits are {off:.3f} apart")
    theirs = bert_gpu.torch_runs(peers, {"pixel_values": pixels.to(peers.kind)}, f"batch {batch}")
    everyone.update(theirs)
    samples = bert_gpu.interleave(everyone, theirs, torch, options.rounds)
    sparse = [ours.nn.s24_session_sparse_layers(session, ctypes.c_int64(batch * 197))
              for _, session, _ in runs]  # of dense and of 2:4
    ours.end(runs)
    return {"batch": batch, "logits_apart": off, "sparse_layers": sparse[1],
            "ms": {name: statistics.median(times) for name, times in samples.items()},
            "least": {name: min(times) for name, times in samples.items()},
            "most": {name: max(times) for name, times in samples.items()}}


def read_options(parser):
    """Of both scripts for images; what is wrong ends the program."""
    parser.add_argument("--libraries", type=pathlib.Path, required=True)
    parser.add_argument("--dtype", choices=("f16", "bf16"), default="f16")
    parser.add_argument("--peers", default="eager,compiled")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.names = [name for name in options.peers.split(",") if name != "none"]
    unknown = set(options.names) - set(bert_gpu.PEERS)
    if unknown:
        parser.error(f"--peers: {', '.join(sorted(unknown))} is none of {bert_gpu.PEERS}")
    return options


def report(ours, peers, options, measure, apart, **more):
    """A line a batch; with --json the rows too. apart: the key of a row's difference."""
    rows, text = [], ours.core.s24_device_text(ours.device).decode()
    print(text, {"torch": peers.torch.__version__})
    for batch in (int(b) for b in options.batch.split(",")):
        row = measure(ours, peers, batch, options)
        rows.append(row)
        ms = row["ms"]
        print(f"{options.model} batch {batch}:",
              "  ".join(f"{name} {t:.3f}" for name, t in ms.items()),
              f"  2:4 {ms['ours dense'] / ms['ours 2:4']:.2f}x of ours dense,",
              f"{row['sparse_layers']} layers 2:4, {row[apart]:.1e} apart", flush=True)
    if options.json:
        options.json.write_text(json.dumps(
            {"model": options.model, "dtype": options.dtype, **more,
             "torch": peers.torch.__version__, "gpu": text, "rows": rows}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=SHAPES, default="vit-l")
    parser.add_argument("--batch", default="256")
    options = read_options(parser)
    ours = Ours(options.libraries.resolve(), options.model, options.dtype)
    width, layers, heads, intermediate = SHAPES[options.model]
    shape = torch_model.Shape("vit", width=width, layers=layers, heads=heads,
                              intermediate=intermediate, image=224, patch=16, classes=CLASSES)
    report(ours, bert_gpu.torch_side(options, options.names, shape), options, measure,
           "logits_apart")


if __name__ == "__main__":
    main()
