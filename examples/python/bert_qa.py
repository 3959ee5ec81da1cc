# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tutorial of 2:4 BERT with its imports changed: mask, train on, squash, accelerate.

    python3 bert_qa.py [FOLDER]      a BERT with a head for answers; without one a small random one
"""
import sys

import torch
import transformers
from torch import nn

from sparse24.torch import compile_encoder
from sparse24.torch.compat import WeightNormSparsifier, to_sparse_semi_structured

torch.manual_seed(0)
if len(sys.argv) > 1:
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(sys.argv[1])
else:
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256))

sparsifier = WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4), zeros_per_block=2)
sparsifier.prepare(model, [{"tensor_fqn": f"{fqn}.weight"} for fqn, module in model.named_modules()
                           if isinstance(module, nn.Linear) and "layer" in fqn])
sparsifier.step()

# In the place of the tutorial's fine-tuning: a few steps on questions without a meaning.
ids = torch.randint(1, 200, (8, 48))
where = torch.randint(0, 48, (2, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    loss = model(ids, start_positions=where[0], end_positions=where[1]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")

sparsifier.squash_mask()
model.eval()
with torch.inference_mode():
    dense = model(ids).start_logits
    native = compile_encoder(model)(ids).start_logits
    for fqn, module in model.named_modules():
        if isinstance(module, nn.Linear) and "layer" in fqn:
            module.weight = nn.Parameter(to_sparse_semi_structured(module.weight.detach()))
    sparse = model(ids).start_logits
assert torch.allclose(sparse, dense, atol=1e-3) and torch.allclose(native, dense, atol=1e-3)
print("2:4 in PyTorch and as a native session: the same logits")
