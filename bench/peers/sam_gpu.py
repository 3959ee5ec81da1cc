#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image encoder of Segment Anything on a GPU, ours and PyTorch's, interleaved in one process.

    bench/peers/sam_gpu.py --libraries build/release [--model sam-vit-h] [--batch 8] [--json FILE]
    bench/peers/sam_gpu.py --libraries build/release --check

Contestants: this tree's encoder, dense and with the MLP 2:4 (pixels on the GPU to mean vectors on the
host, waiting for each pass), and transformers' SamVisionModel of the same shape without its neck,
eager and compiled, its pixels on the GPU, passes queued without waiting. All weights are random; those
of the MLP 2:4. --check instead loads a small random SamVisionModel into ours and compares their last
hidden states. Needs torch and transformers.
"""
import argparse
import ctypes
import statistics
import tempfile

import bert_gpu
import torch_model
import vit_gpu

IMAGE, TOKENS = 1024, 4096
# As src/run/load/presets.def: width, layers, heads, intermediate.
SHAPES = {"sam-tiny": (160, 2, 2, 320), "sam-vit-b": (768, 12, 12, 3072),
          "sam-vit-h": (1280, 32, 16, 5120)}


def torch_shape(name):
    width, layers, heads, intermediate = SHAPES[name]
    return torch_model.Shape("sam_vision_model", width=width, layers=layers, heads=heads,
                             intermediate=intermediate, image=IMAGE, patch=16)


class Ours(bert_gpu.Ours):
    def passes(self, pixels, width):
        """Two functions that run a pass, dense and 2:4, and the vectors that they write."""
        batch = pixels.shape[0]
        self.batch = bert_gpu.Batch(texts=batch, pixels=pixels.data_ptr())
        self.keep, runs = [pixels], []
        for model in self.models:
            session = ctypes.c_void_p()
            self.call(self.nn.s24_session_create, ctypes.byref(session), self.ctx, model,
                      ctypes.c_int64(batch * TOKENS))
            vectors = (ctypes.c_float * (batch * width))()
            outputs = bert_gpu.Outputs(embeddings=ctypes.addressof(vectors))
            self.keep += [vectors, outputs]

            def run(session=session, outputs=outputs):
                self.call(self.nn.s24_session_forward, session, self.ctx,
                          ctypes.byref(self.batch), ctypes.byref(outputs))
            runs.append((run, session, vectors))
        return runs

    def hidden(self, folder, pixels, dtype):
        """The last hidden state of a folder's model, [images, tokens, width] as a list."""
        checkpoint, model, session = (ctypes.c_void_p() for _ in range(3))
        code = self.core.s24_dtype_parse(dtype.encode())
        options = bert_gpu.Options(ctypes.sizeof(bert_gpu.Options), code, 0, 0, self.device.value)
        self.call(self.nn.s24_checkpoint_open, ctypes.byref(checkpoint), self.ctx,
                  str(folder).encode())
        self.call(self.nn.s24_model_load, ctypes.byref(model), self.ctx, checkpoint,
                  ctypes.byref(options))
        images = pixels.shape[0]
        self.call(self.nn.s24_session_create, ctypes.byref(session), self.ctx, model,
                  ctypes.c_int64(images * TOKENS))
        values = (ctypes.c_float * (images * TOKENS * SHAPES["sam-tiny"][0]))()
        outputs = bert_gpu.Outputs(hidden=ctypes.addressof(values))
        batch = bert_gpu.Batch(texts=images, pixels=pixels.data_ptr())
        self.call(self.nn.s24_session_forward, session, self.ctx, ctypes.byref(batch),
                  ctypes.byref(outputs))
        self.nn.s24_session_destroy(session)
        self.nn.s24_model_destroy(model)
        self.nn.s24_checkpoint_close(checkpoint)
        return values


def check(ours):
    """Distances of ours to transformers' last hidden state in f32."""
    import torch
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = torch_model.make(torch_shape("sam-tiny")).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "rel_pos" in name:  # large enough to be seen
                weight.normal_(std=0.3)
    pixels = torch.randn(2, 3, IMAGE, IMAGE, device="cuda")
    with torch.no_grad():
        expected = model(pixels).last_hidden_state.reshape(-1).cpu()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for dtype in ("f16", "bf16"):
            got = torch.tensor(ours.hidden(folder, pixels, dtype)[:])
            print(f"sam-tiny beside transformers, {dtype}: "
                  f"{((got - expected).norm() / expected.norm()).item():.2e} off")


def measure(ours, peers, batch, options):
    torch = peers.torch
    width = SHAPES[options.model][0]
    pixels = torch.randn(batch, 3, IMAGE, IMAGE, device="cuda")
    torch.cuda.synchronize()
    runs = ours.passes(pixels, width)
    everyone = {"ours dense": runs[0][0], "ours 2:4": runs[1][0]}
    for run in list(everyone.values()):
        for _ in range(3):
            run()
    off = bert_gpu.distance(runs[1][2], runs[0][2])
    if not off < 0.05:
        raise RuntimeError(f"batch {batch}: dense and 2:4 vectors are {off:.3f} apart")
    theirs = bert_gpu.torch_runs(peers, {"pixel_values": pixels.to(peers.kind)}, f"batch {batch}")
    everyone.update(theirs)
    samples = bert_gpu.interleave(everyone, theirs, torch, options.rounds)
    sparse = ours.nn.s24_session_sparse_layers(runs[1][1], ctypes.c_int64(batch * TOKENS))
    ours.end(runs)
    return {"batch": batch, "vectors_apart": off, "sparse_layers": sparse,
            "ms": {name: statistics.median(times) for name, times in samples.items()},
            "least": {name: min(times) for name, times in samples.items()},
            "most": {name: max(times) for name, times in samples.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", choices=SHAPES, default="sam-vit-h")
    parser.add_argument("--batch", default="8")
    parser.add_argument("--include", default="*.mlp.*", help="the layers that are 2:4")
    options = vit_gpu.read_options(parser)
    ours = Ours(options.libraries.resolve(), "sam-tiny" if options.check else options.model,
                options.dtype, options.include)
    if options.check:
        check(ours)
        return
    peers = bert_gpu.torch_side(
        options, options.names, torch_shape(options.model),
        lambda name: torch_model.is_layer(name) and
        torch_model.is_selected(name, options.include, None))
    vit_gpu.report(ours, peers, options, measure, "vectors_apart", include=options.include)


if __name__ == "__main__":
    main()
