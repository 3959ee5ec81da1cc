#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""padded.safetensors: models of golden/encoders whose positions leave out what pads, on texts in
which some tokens do, as transformers runs them.

    make_padded.py GOLDEN/encoders

hidden.NAME.i are the last states of text i, whose ids are ids.i; positions.NAME is the gradient of
the table of positions by its length and its product with sin(0.7·k + 1), of the loss of
make_encoder_gradients.py. Wants torch, transformers and safetensors; the suite reads the file.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from make_encoder_gradients import loss_of, wave

NAMES = ["roberta", "xlm-roberta", "mpnet"]
PADS = {0: [3, 4, 9], 1: [0, 5], 2: [-1, 1]}
PADDING = 1


def texts_of(folder):
    io = load_file(folder / "io.safetensors")
    texts = [io[f"ids.{i}"].long()[:24] for i in PADS]
    for text, places in zip(texts, PADS.values()):
        text[[place % len(text) for place in places]] = PADDING
    return texts


def main():
    found = {}
    for name in NAMES:
        folder = pathlib.Path(sys.argv[1]) / name
        texts = texts_of(folder)
        models = [AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
                  for _ in range(2)]
        for i, ids in enumerate(texts):
            found[f"ids.{name}.{i}"] = ids.int()
            with torch.no_grad():
                found[f"hidden.{name}.{i}"] = models[0](ids[None]).last_hidden_state[0].clone()
        for p in models[1].parameters():
            p.data += (0.1 * wave(p.numel(), 1, 0)).reshape(p.shape).to(p.dtype)
        loss_of(*models, texts).backward()
        g = models[0].embeddings.position_embeddings.weight.grad.double().flatten()
        found[f"positions.{name}"] = torch.tensor([g.norm(), g @ wave(len(g), 0.7, 1)]).float()
    save_file(found, pathlib.Path(__file__).parent / "padded.safetensors")


if __name__ == "__main__":
    main()
