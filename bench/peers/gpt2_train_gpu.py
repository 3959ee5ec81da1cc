#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of PyTorch's step of training a GPT-2, for the tables of docs/benchmarks/methods.md.

    bench/peers/gpt2_train_gpu.py [--layers 12 --width 768 --words 50304] [--texts 64] [--blocks]
        [--json FILE]

A model of GPT-2's parts, its head tied, with random weights: flash attention through
scaled_dot_product_attention, torch.compile, bf16 autocast over f32 weights, gradients clipped to 1,
fused AdamW; texts are random words on the GPU, of --tokens each. Ours is `sparse24 train` on the
same shape.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as f


class Block(nn.Module):
    def __init__(self, width, heads, causal=True, approximate="tanh"):
        super().__init__()
        self.heads, self.causal, self.approximate = heads, causal, approximate
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attention = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        texts, tokens, width = x.shape
        q, k, v = (part.view(texts, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(width, dim=2))
        context = f.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.attention(context.transpose(1, 2).reshape(x.shape))
        return x + self.down(f.gelu(self.up(self.norm_2(x)), approximate=self.approximate))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.words, self.places = nn.Embedding(o.words, o.width), nn.Embedding(o.tokens, o.width)
        self.blocks = nn.ModuleList(Block(o.width, o.width // 64) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.words(ids) + self.places.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = f.linear(self.norm(x), self.words.weight)
        return f.cross_entropy(logits.flatten(0, 1), targets.flatten())


def compiled(model, by_blocks):
    """The whole, or each block and the loss, which takes a large model seconds in place of
    minutes."""
    if not by_blocks:
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
    model.loss = torch.compile(model.loss)
    return model


def timed(model, run, examples, steps):
    """Milliseconds of each step but the first three, waited for one by one; examples() gives the
    model's two arguments."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(steps):
        given = examples()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(*given)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times[3:]


def asked(about, sizes):
    """The options: whole numbers by name with what they are else, --blocks and --json."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    for name, usual in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--blocks", action="store_true", help="compile blocks, not the whole")
    parser.add_argument("--json")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    return parser.parse_args()


def told(options, times):
    """Prints what was found, and writes it where --json says."""
    found = {"torch": torch.__version__, "median_ms": statistics.median(times),
             "least_ms": min(times), "most_ms": max(times),
             "gib": torch.cuda.max_memory_allocated() / 2**30, **vars(options)}
    print(json.dumps(found))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def main():
    o = asked(__doc__, {"layers": 12, "width": 768, "words": 50304, "texts": 64, "tokens": 1024,
                        "steps": 15})

    def texts():
        ids = torch.randint(0, o.words, (o.texts, o.tokens + 1), device="cuda")
        return ids[:, :-1], ids[:, 1:]

    model = Model(o).cuda()
    told(o, timed(model, compiled(model, o.blocks), texts, o.steps))


if __name__ == "__main__":
    main()
