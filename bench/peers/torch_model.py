# SPDX-License-Identifier: Apache-2.0
"""PyTorch's passes of a model of a given shape, random weights, those of the blocks' linear layers
2:4 for everybody: eager, compiled as a whole and block by block, and its semi-structured weights
(eager). A language model's pass is ours too: token ids to states after the last norm, whose mean
over each text is the result; its head is in neither's.

The scripts of this folder import it; `sparse24 bench --model --peers torch` carries it along, starts
it (python -c) and tells it what to do: a JSON object a line on standard input, one a line back.

prepare (shape, dtype, device, threads, batch, seq, include, exclude, ways) makes ways ready for a
shape and names those that are; turn (way, seconds) runs one untimed pass (after one that took a
second: none) and then passes until the seconds are over. On a GPU passes are queued and waited for
at the end. Needs torch and transformers.
"""
import collections
import copy
import fnmatch
import json
import os
import sys
import time

WAYS = ("eager", "compiled", "blocks", "tuned", "graphs", "frozen", "semi", "semi-compiled")

# Of a model: type bert, vit, sam_vision_model, gpt2 or llama; head: answers, classes (images), or none:
# mean vectors. kv_heads: of keys and values, 0: as many as of queries.
Shape = collections.namedtuple(
    "Shape", "type vocabulary positions width layers heads intermediate answers image patch classes "
    "kv_heads", defaults=(30522, 512, 768, 12, 12, 3072, 0, 0, 0, 0, 0))


def global_blocks(layers):
    """Of Segment Anything's encoders: every fourth part ends with a block without windows."""
    step = max(layers // 4, 2)
    return list(range(step - 1, layers, step))


def pooled(model, **always):
    """A module: the model, whose states' mean over each text it gives as vectors of length 1."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask=None):
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, **always)[0]
            if attention_mask is None:
                mean = hidden.mean(1)
            else:
                weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(mean, dim=1)
    return Pooled()


def linear_for_conv1d(model):
    """GPT-2's layers of [in, out] as layers of PyTorch, which it packs and compiles best."""
    import torch
    from transformers.pytorch_utils import Conv1D
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, Conv1D):
                linear = torch.nn.Linear(*layer.weight.shape)
                linear.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous())
                linear.bias = layer.bias
                setattr(module, name, linear)
    return model


def make_language(shape):
    """GPT2Model or LlamaModel, which have no head."""
    import transformers
    if shape.type == "gpt2":
        from transformers.models.gpt2 import modeling_gpt2 as code
        config = transformers.GPT2Config(
            vocab_size=shape.vocabulary, n_positions=shape.positions, n_embd=shape.width,
            n_layer=shape.layers, n_head=shape.heads, n_inner=shape.intermediate)
    else:
        from transformers.models.llama import modeling_llama as code
        config = transformers.LlamaConfig(
            vocab_size=shape.vocabulary, max_position_embeddings=shape.positions,
            hidden_size=shape.width, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads or shape.heads,
            intermediate_size=shape.intermediate,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    config._attn_implementation = "sdpa"
    # No text is padded: without a mask attention is causal by its flag and takes the fast kernel.
    # Compiled, some versions of transformers make a mask of zeros all the same.
    code.create_causal_mask = lambda *args, **named: None
    model = transformers.AutoModel.from_config(config)
    return pooled(linear_for_conv1d(model), use_cache=False)


def make(shape):
    """transformers' model of that shape, in f32, with random weights."""
    import torch
    import transformers
    if shape.type in ("gpt2", "llama"):
        return make_language(shape)
    common = {"hidden_size": shape.width, "num_hidden_layers": shape.layers,
              "num_attention_heads": shape.heads}
    if shape.type == "bert":
        config = transformers.BertConfig(
            vocab_size=shape.vocabulary, max_position_embeddings=shape.positions,
            intermediate_size=shape.intermediate, **common)
        config._attn_implementation = "sdpa"
        if shape.answers:
            return transformers.BertForQuestionAnswering(config)
        return pooled(transformers.BertModel(config, add_pooling_layer=False))
    if shape.type == "vit":
        config = transformers.ViTConfig(image_size=shape.image, patch_size=shape.patch,
                                        intermediate_size=shape.intermediate,
                                        num_labels=shape.classes, **common)
        config._attn_implementation = "sdpa"
        return transformers.ViTForImageClassification(config)
    if shape.type != "sam_vision_model":
        raise ValueError(f"PyTorch's side has no model of type '{shape.type}'")
    config = transformers.SamVisionConfig(
        mlp_dim=shape.intermediate, global_attn_indexes=global_blocks(shape.layers),
        image_size=shape.image, patch_size=shape.patch, window_size=14, **common)
    config._attn_implementation = "sdpa"
    model = transformers.SamVisionModel(config)
    model.vision_encoder.neck = torch.nn.Identity()
    for name, weight in model.named_parameters():  # which are zeros, or would be
        if "rel_pos" in name or "pos_embed" in name or "bias" in name:
            torch.nn.init.normal_(weight, std=0.02)
    return model


def is_layer(name):
    """Of a block, whose linear layers are 2:4."""
    return ".layer." in name or ".layers." in name or ".h." in name


def is_selected(name, include, exclude):
    """As --include and --exclude mean it."""
    name += ".weight"
    return (not include or fnmatch.fnmatchcase(name, include)) and \
        not (exclude and fnmatch.fnmatchcase(name, exclude))


class Torch:
    """A model and the ways to run it, by name."""

    def __init__(self, shape, dtype, ways, device="cuda", prunes=is_layer):
        import torch
        self.torch, self.shape, self.device = torch, shape, device
        self.kind = {"f32": torch.float32, "f16": torch.float16}.get(dtype, torch.bfloat16)
        torch.manual_seed(0)
        # A graph for each shape: one for any shape is slower.
        torch._dynamo.config.recompile_limit = 64
        self.prunes = prunes
        dense = self.sparse(False)
        makers = {
            "eager": lambda: dense,
            "compiled": lambda: torch.compile(dense, dynamic=False),
            "blocks": lambda: self.by_blocks(dense),
            "tuned": lambda: self.by_blocks(dense, mode="max-autotune-no-cudagraphs"),
            "graphs": lambda: torch.compile(dense, mode="reduce-overhead", dynamic=False),
            "frozen": lambda: torch.compile(dense, dynamic=False, options={"freezing": True}),
            "semi": lambda: self.sparse(True),
            "semi-compiled": lambda: torch.compile(self.sparse(True), dynamic=False)}
        self.models, self.refused = {}, {}
        for name in ways:
            try:
                self.models[name] = makers[name]()
            except Exception as error:  # one that cannot be made is a line of the report
                self.refused[name] = f"{type(error).__name__}: {error}"[:200]

    def sparse(self, semi):
        """The model with 2:4 weights, stored as such or with their zeros."""
        with self.torch.device(self.device):
            model = make(self.shape).to(self.kind).eval()
        for name, layer in model.named_modules():
            if isinstance(layer, self.torch.nn.Linear) and self.prunes(name):
                layer.weight = self.torch.nn.Parameter(self.pruned(layer.weight.detach(), semi),
                                                       requires_grad=False)
        return model

    def pruned(self, weight, semi):
        torch = self.torch
        groups = weight.float().abs().reshape(-1, 4)
        mask = torch.zeros_like(groups).scatter_(1, groups.topk(2, dim=1).indices, 1)
        weight = (weight * mask.reshape(weight.shape).to(weight.dtype)).contiguous()
        return torch.sparse.to_sparse_semi_structured(weight) if semi else weight

    def by_blocks(self, model, **how):
        """A copy compiled block by block: alike blocks are compiled once."""
        model = copy.deepcopy(model)
        for module in model.modules():
            if isinstance(module, self.torch.nn.ModuleList):
                for block in module:
                    block.compile(dynamic=False, **how)
        return model

    def inputs(self, batch, seq):
        torch, shape = self.torch, self.shape
        if shape.image:
            pixels = torch.randn(batch, 3, shape.image, shape.image, device=self.device)
            return {"pixel_values": pixels.to(self.kind)}
        least = min(1000, shape.vocabulary // 2)
        ids = torch.randint(least, shape.vocabulary, (batch, seq), device=self.device)
        if shape.type in ("gpt2", "llama"):
            return {"input_ids": ids}
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def wait(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def runs(self, inputs):
        """A function for each way that can run them, ready; the others' reasons in refused."""
        torch, runs = self.torch, {}
        for name, model in self.models.items():
            def run(model=model):
                with torch.no_grad():
                    return model(**inputs)
            try:
                for _ in range(3):
                    run()
                self.wait()
                runs[name] = run
            except Exception as error:
                self.refused[name] = f"{type(error).__name__}: {error}"[:200]
        return runs


def window(run, wait, seconds, pause=0, warms=True):
    """Milliseconds a run: one that is not timed, a pause, and runs until the seconds are over."""
    if warms:
        run()
        wait()
    time.sleep(pause)
    passes, start = 0, time.perf_counter()
    while True:
        run()
        passes += 1
        # A queue is not allowed to grow beyond the window.
        if time.perf_counter() - start >= seconds or passes % 16 == 0:
            wait()
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return 1000 * elapsed / passes


class Worker:
    """What `bench` tells to do."""

    def __init__(self):
        self.key = self.torch = None
        self.ready, self.last = {}, {}

    def version(self):
        import torch
        import transformers
        return {"version": torch.__version__, "transformers": transformers.__version__,
                "cuda": torch.cuda.is_available(), "ways": WAYS}

    def prepare(self, shape, dtype, device, threads, batch, seq, include, exclude, ways):
        key = (json.dumps(shape), dtype, device, include, exclude)
        import torch
        torch.set_num_threads(threads)
        self.ready, self.last = {}, {}  # the shape before gives its memory back first
        if key != self.key:
            self.torch = None
            self.torch = Torch(Shape(**shape), dtype, ways, device,
                               lambda name: is_layer(name) and is_selected(name, include, exclude))
            self.key = key
        self.torch.refused = {name: why for name, why in self.torch.refused.items()
                              if name not in self.torch.models}
        self.ready = self.torch.runs(self.torch.inputs(batch, seq))
        return {"ways": list(self.ready), "refused": self.torch.refused}

    def turn(self, way, seconds):
        # As ours: before a run of a second none goes untimed but in the first round.
        warms = self.last.get(way, 0) < 1000
        self.last[way] = window(self.ready[way], self.torch.wait, seconds, warms=warms)
        return {"ms": self.last[way]}


def main():
    # What libraries print on standard output is talk; answers keep the descriptor to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
