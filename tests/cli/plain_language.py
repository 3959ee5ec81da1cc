# SPDX-License-Identifier: Apache-2.0
"""GPT-2 and Llama in plain Python, one number at a time, and transformers' recipe of strided
perplexity: what the command line's figures are held against."""
import json
import math

from cli_data import floats, read


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


class Plain:
    """A folder's model, whose tensors may have the prefix of a model with a head, or not."""
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {name.split(".", 1)[1] if name.split(".")[0] in ("transformer", "model")
                        else name: (shape, floats(raw))
                        for name, (_, shape, raw) in read(folder / "model.safetensors")[0].items()}
        self.gpt2 = self.config["model_type"] == "gpt2"
        self.heads = self.config["n_head" if self.gpt2 else "num_attention_heads"]
        self.words = self.matrix("wte" if self.gpt2 else "embed_tokens")
        self.head = self.matrix("lm_head") if "lm_head.weight" in self.tensors else self.words

    def matrix(self, name):
        """Rows of [out, in]; GPT-2's blocks have them the other way."""
        (rows, cols), values = self.tensors[name + ".weight"]
        stored = [values[r * cols:(r + 1) * cols] for r in range(rows)]
        return [list(c) for c in zip(*stored)] if name.startswith("h.") else stored

    def linear(self, name, x):
        weight = self.matrix(name)
        bias = self.tensors.get(name + ".bias", (None, [0.0] * len(weight)))[1]
        return [add([dot(row, v) for row in weight], bias) for v in x]

    def norm(self, name, x):
        weight, out = self.tensors[name + ".weight"][1], []
        eps = self.config["layer_norm_epsilon" if self.gpt2 else "rms_norm_eps"]
        bias = self.tensors[name + ".bias"][1] if self.gpt2 else [0.0] * len(weight)
        for v in x:
            mean = sum(v) / len(v) if self.gpt2 else 0.0
            by = math.sqrt(sum((e - mean) ** 2 for e in v) / len(v) + eps)
            out.append([(e - mean) / by * w + b for e, w, b in zip(v, weight, bias)])
        return out

    def turn(self, v, position):
        half, theta = len(v) // 2, self.config["rope_theta"]
        out = list(v)
        for i in range(half):
            angle = position / theta ** (i / half)
            out[i] = v[i] * math.cos(angle) - v[i + half] * math.sin(angle)
            out[i + half] = v[i + half] * math.cos(angle) + v[i] * math.sin(angle)
        return out

    def attend(self, q, k, v):
        """Lists of rows; as many heads of queries as of keys, or a multiple."""
        d, out = len(q[0]) // self.heads, []
        shared = len(q[0]) // len(k[0])
        cut = [[[row[h * d:(h + 1) * d] for h in range(len(row) // d)] for row in rows]
               for rows in (q, k, v)]
        if not self.gpt2:
            cut[:2] = [[[self.turn(head, i) for head in row] for i, row in enumerate(rows)]
                       for rows in cut[:2]]
        for i, heads in enumerate(cut[0]):
            row = []
            for h, query in enumerate(heads):
                scores = [dot(query, key[h // shared]) / math.sqrt(d) for key in cut[1][:i + 1]]
                weights = [math.exp(s - max(scores)) for s in scores]
                row += [dot(weights, [value[h // shared][e] for value in cut[2]]) / sum(weights)
                        for e in range(d)]
            out.append(row)
        return out

    def block(self, name, x):
        if self.gpt2:
            qkv = self.linear(name + "attn.c_attn", self.norm(name + "ln_1", x))
            parts = [[row[i * len(x[0]):(i + 1) * len(x[0])] for row in qkv] for i in range(3)]
            x = list(map(add, x, self.linear(name + "attn.c_proj", self.attend(*parts))))
            inner = self.linear(name + "mlp.c_fc", self.norm(name + "ln_2", x))
            inner = [[0.5 * e * (1 + math.tanh(math.sqrt(2 / math.pi) * (e + 0.044715 * e ** 3)))
                      for e in row] for row in inner]
            return list(map(add, x, self.linear(name + "mlp.c_proj", inner)))
        normed = self.norm(name + "input_layernorm", x)
        parts = [self.linear(name + f"self_attn.{part}_proj", normed) for part in "qkv"]
        x = list(map(add, x, self.linear(name + "self_attn.o_proj", self.attend(*parts))))
        normed = self.norm(name + "post_attention_layernorm", x)
        inner = [[g / (1 + math.exp(-g)) * u for g, u in zip(*rows)]
                 for rows in zip(self.linear(name + "mlp.gate_proj", normed),
                                 self.linear(name + "mlp.up_proj", normed))]
        return list(map(add, x, self.linear(name + "mlp.down_proj", inner)))

    def losses(self, ids):
        """The negative log-likelihood of every id but the first, of one text."""
        x = [list(self.words[i]) for i in ids]
        if self.gpt2:
            x = list(map(add, x, self.matrix("wpe")))
        for b in range(self.config["n_layer" if self.gpt2 else "num_hidden_layers"]):
            x = self.block(f"h.{b}." if self.gpt2 else f"layers.{b}.", x)
        x, out = self.norm("ln_f" if self.gpt2 else "norm", x), []
        for row, target in zip(x, ids[1:]):
            logits = [dot(row, word) for word in self.head]
            most = max(logits)
            total = math.log(sum(math.exp(e - most) for e in logits)) + most
            out.append(total - logits[target])
        return out


def strided_loss(model, ids, window, stride):
    """transformers' recipe for a stride below the window: each token but the first is scored
    once, in the first window that reaches it. Where windows lie end to end, each also predicts
    the token after it, which otherwise none would."""
    total, before = 0.0, 1
    reach = window if stride < window else window + 1
    for begin in range(0, len(ids), stride):
        end = min(begin + reach, len(ids))
        total += sum(model.losses(ids[begin:end])[before - end:])
        before = end
        if end == len(ids):
            break
    return total / (len(ids) - 1)
