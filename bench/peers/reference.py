# SPDX-License-Identifier: Apache-2.0
"""The encoder as PyTorch computes it: what is exported, and what the engines' vectors are held
against."""
import inspect

import torch
import transformers


class Encoder(torch.nn.Module):
    """Token ids to vectors: last hidden state, mean over the tokens that count, L2 norm."""

    def __init__(self, folder):
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.typed = "token_type_ids" in inspect.signature(self.model.forward).parameters

    def forward(self, input_ids, attention_mask, token_type_ids):
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask,
                            **types).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return mean / mean.norm(dim=-1, keepdim=True).clamp_min(1e-12)
