#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of PyTorch's step of training a ViT, for the tables of docs/benchmarks/methods.md.

    bench/peers/vit_train_gpu.py [--layers 24 --width 1024] [--images 128] [--json FILE]

A ViT-L of plain parts with random weights, 224 x 224 pixels in patches of 16, as gpt2_train_gpu.py
has its model: torch.compile, bf16 autocast over f32 weights, gradients clipped to 1, fused AdamW;
images are random and on the GPU. Ours is `sparse24 train` on the same shape, from JPEG files.
"""

import torch
from torch import nn
from torch.nn import functional as f

from gpt2_train_gpu import Block, asked, compiled, timed, told


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.side, self.patches = o.patch, nn.Linear(3 * o.patch**2, o.width)
        self.first = nn.Parameter(torch.zeros(1, 1, o.width))
        self.places = nn.Parameter(torch.zeros(1, 1 + (o.side // o.patch) ** 2, o.width))
        self.blocks = nn.ModuleList(Block(o.width, o.width // 64, False, "none")
                                    for _ in range(o.layers))
        self.norm, self.head = nn.LayerNorm(o.width), nn.Linear(o.width, o.classes)

    def forward(self, pixels, labels):
        images, colours, rows, _ = pixels.shape
        p, across = self.side, rows // self.side
        pieces = pixels.view(images, colours, across, p, across, p).permute(0, 2, 4, 1, 3, 5)
        x = self.patches(pieces.reshape(images, across**2, colours * p**2))
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.loss(x, labels)

    def loss(self, x, labels):
        return f.cross_entropy(self.head(self.norm(x)[:, 0]), labels)


def main():
    o = asked(__doc__, {"layers": 24, "width": 1024, "patch": 16, "side": 224, "classes": 10,
                        "images": 128, "steps": 15})

    def images():
        return (torch.randn(o.images, 3, o.side, o.side, device="cuda"),
                torch.randint(0, o.classes, (o.images,), device="cuda"))

    model = Model(o).cuda()
    told(o, timed(model, compiled(model, o.blocks), images, o.steps))


if __name__ == "__main__":
    main()
