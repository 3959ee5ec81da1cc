# SPDX-License-Identifier: Apache-2.0
"""PyTorch's decoding of a language model of a given shape on a GPU: transformers, a static cache.

`sparse24 bench --generate --device cuda --peers torch` carries it along, starts it (python -c) and
tells it what to do: a JSON object a line on standard input, one a line back. prepare (shape, dtype,
batch, tokens) makes a model of random weights, once for each dtype, and a cache; turn (prompt, new)
runs prompts of that many tokens and goes on with them greedily, the first new token from the
prompts' pass. Steps are compiled as a whole into CUDA graphs (mode "reduce-overhead"); the prompts'
pass is compiled, too. The head is a tensor of its own, as ours in a preset is.
"""
import json
import os
import sys
import time

import torch
import transformers

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
TYPES = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
         "qwen2": transformers.Qwen2Config}
DEVICE = os.environ.get("TORCH_STATIC_DEVICE", "cuda")


def config_of(shape):
    config = TYPES[shape["type"]](
        vocab_size=shape["vocabulary"], hidden_size=shape["width"],
        intermediate_size=shape["intermediate"], num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
        max_position_embeddings=shape["positions"], tie_word_embeddings=False)
    config._attn_implementation = "sdpa"
    return config


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Decoder:
    """A model of one dtype, with a cache for a number of texts."""

    def __init__(self, shape, dtype):
        self.config = config_of(shape)
        torch.set_default_dtype(DTYPES[dtype])
        with torch.device(DEVICE):
            self.model = transformers.AutoModelForCausalLM.from_config(self.config).eval()
        torch.set_default_dtype(torch.float32)
        self.words = shape["vocabulary"]
        fullgraph = dict(fullgraph=True, dynamic=False)
        self.fill = torch.compile(self.forward, **fullgraph)
        self.step = torch.compile(self.forward, mode="reduce-overhead", **fullgraph)

    def forward(self, ids, places):
        """The likeliest token after each text."""
        logits = self.model(input_ids=ids, position_ids=places[None], cache_position=places,
                            past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def prepare(self, order):
        torch._dynamo.reset()
        self.texts = order["batch"]
        self.cache = transformers.StaticCache(config=self.config, max_cache_len=order["tokens"])
        if hasattr(self.cache, "early_initialization"):
            head = self.config.hidden_size // self.config.num_attention_heads
            self.cache.early_initialization(self.texts, self.config.num_key_value_heads, head,
                                            self.model.dtype, self.model.device)

    @torch.inference_mode()
    def turn(self, prompt, new):
        """Seconds of the prompts' passes, and of a step after them."""
        places = torch.arange(prompt + new, device=DEVICE)
        ids = torch.arange(self.texts * prompt, device=DEVICE).reshape(self.texts, prompt)
        self.cache.reset()
        wait()
        start = time.perf_counter()
        found = self.fill(ids * 37 % self.words, places[:prompt]).clone()
        wait()
        filled = time.perf_counter()
        for at in range(prompt, prompt + new - 1):
            found = self.step(found, places[at:at + 1].clone()).clone()
            found.tolist()  # whoever asks sees each token as it comes
        wait()
        end = time.perf_counter()
        return {"prefill": filled - start, "step": (end - filled) / max(new - 1, 1)}


class Peer:
    def __init__(self):
        self.held, self.decoder, self.shape = None, None, None

    def version(self, order):
        del order
        return {"version": f"{torch.__version__}, transformers {transformers.__version__}"}

    def prepare(self, order):
        shape, dtype = order["shape"], order["dtype"]
        if shape["type"] not in TYPES:
            return {"refused": f"a {shape['type']} model is not made there"}
        if dtype not in DTYPES:
            return {"refused": f"it has nothing like {dtype}"}
        if (self.held, self.shape) != (dtype, shape):
            self.decoder = None
            self.decoder, self.held, self.shape = Decoder(shape, dtype), dtype, shape
        self.decoder.prepare(order)
        for _ in range(2):
            self.decoder.turn(order["prompt"], 4)
        used = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else -1
        return {"type": dtype, "private_bytes": used}

    def turn(self, order):
        return self.decoder.turn(order["prompt"], order["new"])


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    peer = Peer()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(peer, order["do"])(order)
        except Exception as error:  # the other side says it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
