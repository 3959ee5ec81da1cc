# SPDX-License-Identifier: Apache-2.0
"""Distillation in PyTorch: the terms of s24_objective on outputs of transformers' models, and a
Trainer that makes them small."""
from __future__ import annotations

import typing

import torch
import torch.nn.functional as F

from .torch_models import is_two_four, linear_layers
from .torch_ops import DTYPES


def _rows(outputs) -> list[torch.Tensor]:
    """Logits as rows of choices: of starts and ends those of each text."""
    if getattr(outputs, "start_logits", None) is not None:
        return [outputs.start_logits, outputs.end_logits]
    if getattr(outputs, "logits", None) is not None:
        return [outputs.logits.reshape(-1, outputs.logits.shape[-1])]
    return []


def _divergence(student, teacher, temperature):
    one = F.log_softmax(student / temperature, -1)
    two = F.log_softmax(teacher / temperature, -1)
    return F.kl_div(one, two, reduction="batchmean", log_target=True) * temperature ** 2


def distillation_loss(student: typing.Any, teacher: typing.Any, *, labels: float = 1.0,
                      logits: float = 1.0, hidden: float = 1.0,
                      temperature: float = 2.0) -> torch.Tensor:
    """What a student is to make small, of outputs of transformers' models that were asked for
    hidden states: labels times the student's own loss, where it has one; logits times
    KL(teacher, student) at a temperature, times its square; hidden times the sum over the blocks
    of the mean squared difference of hidden states. The teacher's are without gradients."""
    terms = []
    if labels and getattr(student, "loss", None) is not None:
        terms.append(labels * student.loss)
    pairs = list(zip(_rows(student), _rows(teacher)))
    if logits and pairs:
        terms.append(logits / len(pairs) * sum(_divergence(one, two.detach(), temperature)
                                               for one, two in pairs))
    if hidden:
        if student.hidden_states is None or teacher.hidden_states is None:
            raise ValueError("hidden: both models need output_hidden_states=True")
        terms.append(hidden * sum(F.mse_loss(one, two.detach()) for one, two in
                                  zip(student.hidden_states[1:], teacher.hidden_states[1:])))
    if not terms:
        raise ValueError("there is nothing to learn from: no loss, no logits, hidden=0")
    return sum(terms)


def distillation_trainer(base: type, teacher: torch.nn.Module, **weights: float) -> type:
    """A subclass of transformers' Trainer whose loss is distillation_loss towards a teacher.

        trainer = distillation_trainer(transformers.Trainer, dense)(model=pruned, …)
    """
    teacher.eval()

    class DistillationTrainer(base):
        """Made by distillation_trainer."""

        def compute_loss(self, model, inputs, return_outputs=False, **_):
            """The loss of one batch."""
            student = model(**inputs, output_hidden_states=True)
            with torch.no_grad():
                master = teacher(**inputs, output_hidden_states=True)
            loss = distillation_loss(student, master, **weights)
            return (loss, student) if return_outputs else loss

    return DistillationTrainer


@torch.no_grad()
def keep_zeros_(model: torch.nn.Module) -> list[torch.utils.hooks.RemovableHandle]:
    """Zeros of the model's 2:4 linear layers stay zeros in training: their gradients are masked.
    Returns handles whose remove() ends that. Weight decay leaves zeros zeros, too."""
    handles = []
    for _, _, _, layer in linear_layers(model):
        w = layer.weight
        if w.dtype not in DTYPES or w.shape[1] % 4:
            continue
        if is_two_four(w):
            kept = (w != 0).to(w.dtype)
            handles.append(w.register_hook(lambda grad, kept=kept: grad * kept))
    return handles
