#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""encoder-gradients.safetensors: gradients of golden/encoders' models as PyTorch takes them.

    make_encoder_gradients.py GOLDEN/encoders

The loss is s24_objective's: hidden states pulled to those of a teacher, whose element k of each
tensor is 0.1·sin(k) more, and the cosine of the texts' means. Of each parameter, in the order of
their names, NAME has the gradient's length and its product with sin(0.7·k + 1); loss.NAME is the
loss. Wants torch, transformers and safetensors; the suite reads the file alone.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

NAMES = ["roberta", "distilbert", "electra", "mpnet", "modernbert"]
TEXTS = 3
COSINE = 2.0


def states_of(model, ids):
    out = model(ids[None], output_hidden_states=True)
    return [*out.hidden_states[1:-1], out.last_hidden_state]


def loss_of(student, teacher, texts):
    tokens = sum(len(ids) for ids in texts)
    loss = 0.0
    for ids in texts:
        mine = states_of(student, ids)
        with torch.no_grad():
            wanted = states_of(teacher, ids)
        loss += sum(((a - b) ** 2).sum() for a, b in zip(mine, wanted)) / tokens / mine[0].shape[-1]
        a, b = mine[-1][0].mean(0), wanted[-1][0].mean(0)
        loss += COSINE * (1 - torch.cosine_similarity(a, b, 0)) / len(texts)
    return loss


def wave(count, times, shift):
    return torch.sin(times * torch.arange(count, dtype=torch.float64) + shift)


def gradients_of(folder):
    student = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    teacher = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for p in teacher.parameters():
        p.data += (0.1 * wave(p.numel(), 1, 0)).reshape(p.shape).to(p.dtype)
    io = load_file(folder / "io.safetensors")
    loss = loss_of(student, teacher, [io[f"ids.{i}"].long() for i in range(TEXTS)])
    loss.backward()
    rows = []
    for name, p in sorted(student.named_parameters()):
        if p.grad is None:
            continue
        g = p.grad.double().flatten()
        rows.append([g.norm(), g @ wave(len(g), 0.7, 1)])
    return {folder.name: torch.tensor(rows, dtype=torch.float32),
            f"loss.{folder.name}": torch.tensor([loss.item()])}


def main():
    found = {}
    for name in NAMES:
        found.update(gradients_of(pathlib.Path(sys.argv[1]) / name))
    save_file(found, pathlib.Path(__file__).parent / "encoder-gradients.safetensors")


if __name__ == "__main__":
    main()
