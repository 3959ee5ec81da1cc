#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention for training on a GPU, forward and both ways, ours and PyTorch's fused backends by turns.

    bench/peers/attention_gpu.py --program build/release/sparse24 [--rounds 3] [--json FILE]
        [--shapes 'TEXTS,TOKENS,HEADS,D[,causal][,dropout=X];...']

Ours is `sparse24 bench --attention`; PyTorch is scaled_dot_product_attention with the backends flash and
cuDNN, its queries, keys and values tensors of their own, its gradients by torch.autograd.grad, each
20 times in a CUDA graph. Every round each side has its turn on every shape; medians of the rounds.
Needs torch; without it our side alone.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

SHAPES = ("32,384,12,32;32,384,12,64;8,1024,12,64,causal;2,4096,12,64;8,1024,12,128,causal;"
          "32,384,12,32,dropout=0.1;32,384,12,64,dropout=0.1")
RUNS = 20


def parse(text):
    shapes = []
    for item in text.split(";"):
        words = item.split(",")
        sizes = tuple(int(w) for w in words[:4])
        dropout = [float(w.split("=")[1]) for w in words[4:] if w.startswith("dropout=")]
        shapes.append((sizes, "causal" in words[4:], dropout[0] if dropout else 0.0))
    return shapes


def ours(options, shape):
    """Microseconds forward, and both ways."""
    sizes, causal, dropout = shape
    words = [options.program, "bench", "--attention", ",".join(map(str, sizes)), "--dtype",
             options.dtype, "--device", options.device, "--rounds", "3", "--min-ms", "5",
             "--dropout", str(dropout), "--json", "--quiet"] + (["--causal"] if causal else [])
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    row = found["rows"][0]
    return {"forward": 1e3 * row["forward_ms"],
            "both": 1e3 * (row["forward_ms"] + row["back_ms"])}, found["gpu"]


class Torch:
    def __init__(self, dtype):
        import torch
        from torch.nn.attention import SDPBackend
        self.torch = torch
        self.dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
        self.backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}

    def timed(self, step):
        """Microseconds of one step, of a graph of RUNS."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(RUNS):
                step()
        samples = []
        for _ in range(6):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(1e3 * begin.elapsed_time(end) / RUNS)
        return statistics.median(samples[1:])

    def times(self, name, shape):
        (texts, tokens, heads, d), causal, dropout = shape
        torch = self.torch
        # Heads lie side by side within a token, as a layer's product leaves them.
        q, k, v, slope = (torch.randn(texts, tokens, heads, d, device="cuda", dtype=self.dtype)
                          .transpose(1, 2) for _ in range(4))
        for x in (q, k, v):
            x.requires_grad_(True)

        def forward():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                                    dropout_p=dropout)

        def both():
            return torch.autograd.grad(forward(), (q, k, v), slope)

        with torch.nn.attention.sdpa_kernel(self.backends[name]):
            return {"forward": self.timed(forward), "both": self.timed(both)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--shapes", type=parse, default=parse(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.program = options.program.resolve()
    return options


def open_torch(dtype):
    try:
        return Torch(dtype)
    except ImportError:
        print("torch is not here: our side alone")
        return None


def main():
    options = arguments()
    torch, gpu = open_torch(options.dtype), ""
    samples = [{} for _ in options.shapes]
    for _ in range(options.rounds):
        for shape, taken in zip(options.shapes, samples):
            found, gpu = ours(options, shape)
            taken.setdefault("ours", []).append(found)
            for name in torch.backends if torch else ():
                taken.setdefault(name, []).append(torch.times(name, shape))
    print(gpu, {"torch": torch.torch.__version__} if torch else "")
    rows = []
    for (sizes, causal, dropout), taken in zip(options.shapes, samples):
        us = {who: {key: statistics.median(one[key] for one in all_of) for key in ("forward", "both")}
              for who, all_of in taken.items()}
        rows.append({"shape": sizes, "causal": causal, "dropout": dropout, "us": us, "all": taken})
        line = f"{sizes}{' causal' if causal else ''}{f' dropout {dropout}' if dropout else ''}:"
        for who, one in us.items():
            line += f"  {who} {one['forward']:.1f} / {one['both']:.1f}"
            if who != "ours":
                line += f" ({one['forward'] / us['ours']['forward']:.2f} / " \
                        f"{one['both'] / us['ours']['both']:.2f})"
        print(line, flush=True)
    if options.json:
        options.json.write_text(json.dumps(
            {"dtype": options.dtype, "gpu": gpu, "rounds": options.rounds,
             "torch": torch.torch.__version__ if torch else None, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
