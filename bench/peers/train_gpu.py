#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of training on a GPU, ours and PyTorch's, taking turns.

    bench/peers/train_gpu.py --program build/release/sparse24 [--rounds 3] [--steps 30] [--json FILE]

The model is MiniLM's shape (6 blocks of 384, 12 heads, 1,536 intermediate, 30,522 words) with random
weights and a head for answers; the questions are random words, of 384 tokens with their context ("full")
or of 40 to 384 ("mixed"), 32 a step. Ours is `sparse24 train` itself, timed by the seconds in its
--metrics; PyTorch is transformers' BertModel with sdpa attention, torch.compile, bf16 autocast over
f32 weights, fused AdamW, clipping, its examples padded to 384 on the GPU beforehand. With a teacher
the student's linear layers are 2:4 with fixed masks, and the loss has labels, the teacher's logits
and hidden states. Needs torch and transformers; without them (or with --ours) our side alone.
"""
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time

SHAPE = {"vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6,
         "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512,
         "type_vocab_size": 2}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BATCH, LENGTH, QUESTION = 32, 384, 12


# ---- a folder and questions ---------------------------------------------------------------------


def tensors(shape):
    width, wide = shape["hidden_size"], shape["intermediate_size"]
    yield "embeddings.word_embeddings.weight", (shape["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (shape["max_position_embeddings"], width)
    yield "embeddings.token_type_embeddings.weight", (2, width)
    yield "embeddings.LayerNorm.weight", (width,)
    yield "embeddings.LayerNorm.bias", (width,)
    for block in range(shape["num_hidden_layers"]):
        for name, rows, cols in (("attention.self.query", width, width),
                                 ("attention.self.key", width, width),
                                 ("attention.self.value", width, width),
                                 ("attention.output.dense", width, width),
                                 ("intermediate.dense", wide, width),
                                 ("output.dense", width, wide)):
            yield f"encoder.layer.{block}.{name}.weight", (rows, cols)
            yield f"encoder.layer.{block}.{name}.bias", (rows,)
        for name in ("attention.output", "output"):
            yield f"encoder.layer.{block}.{name}.LayerNorm.weight", (width,)
            yield f"encoder.layer.{block}.{name}.LayerNorm.bias", (width,)
    yield "qa_outputs.weight", (2, width)
    yield "qa_outputs.bias", (2,)


def write_model(folder, shape, numbers):
    """A Hugging Face folder of random weights; a word of the tokenizer is a token."""
    folder.mkdir(parents=True)
    config = dict(shape, model_type="bert", architectures=["BertForQuestionAnswering"],
                  hidden_act="gelu", layer_norm_eps=1e-12, hidden_dropout_prob=0.1,
                  attention_probs_dropout_prob=0.1, pad_token_id=0)
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = SPECIAL + [f"w{i}" for i in range(shape["vocab_size"] - len(SPECIAL))]
    ids = {word: i for i, word in enumerate(vocabulary)}
    part = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    pair = part + [{"Sequence": {"id": "B", "type_id": 1}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    special = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": ids[t], "content": t, "single_word": False, "lstrip": False,
                                   "rstrip": False, "normalized": False, "special": True}
                                  for t in SPECIAL],
                 "normalizer": {"type": "BertNormalizer", "clean_text": True,
                                "handle_chinese_chars": True, "strip_accents": None,
                                "lowercase": True},
                 "pre_tokenizer": {"type": "BertPreTokenizer"},
                 "post_processor": {"type": "TemplateProcessing", "single": part, "pair": pair,
                                    "special_tokens": special},
                 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                 "model": {"type": "WordPiece", "unk_token": "[UNK]",
                           "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                           "vocab": ids}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    header, blobs, at = {}, [], 0
    for name, size in tensors(shape):
        count = 1
        for n in size:
            count *= n
        blob = numbers(count, 1.0 if name.endswith("LayerNorm.weight") else 0.0)
        header[name] = {"dtype": "F32", "shape": list(size), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)


def write_questions(path, count, mixed, shape, seed):
    """Questions of QUESTION words about contexts of as many as make LENGTH tokens, or fewer."""
    draw = random.Random(seed)
    words = shape["vocab_size"] - len(SPECIAL)
    paragraphs = []
    for i in range(count):
        length = draw.randint(40, LENGTH) if mixed else LENGTH
        context = [f"w{draw.randrange(words)}" for _ in range(length - 3 - QUESTION)]
        begin = draw.randrange(len(context))
        answer = " ".join(context[begin:begin + 3])
        start = len(" ".join(context[:begin])) + (begin > 0)
        question = " ".join(f"w{draw.randrange(words)}" for _ in range(QUESTION))
        paragraphs.append({"context": " ".join(context), "qas": [
            {"id": str(i), "question": question,
             "answers": [{"text": answer, "answer_start": start}]}]})
    data = {"version": "1.1", "data": [{"title": "random", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data))


# ---- ours ---------------------------------------------------------------------------------------


def ours(options, place, task, turn):
    """Milliseconds of each step but the first ones, and tokens a step."""
    metrics = place / f"metrics-{task['name']}-{turn}.jsonl"
    words = [options.program, "train", place / ("pruned" if task["teacher"] else "model"),
             place / "out", "--qa", place / f"{task['lengths']}.json", "--steps", options.steps,
             "--batch", BATCH, "--max-tokens", LENGTH, "--decay", 0.01, "--dropout", 0.1, "--force",
             "--quiet", "--device", options.device, "--metrics", metrics,
             "--checkpoint-steps", 10 * options.steps, *options.more]
    if task["teacher"]:
        words += ["--teacher", place / "model"]
    metrics.unlink(missing_ok=True)
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    times = [1e3 * (b["seconds"] - a["seconds"]) for a, b in zip(rows, rows[1:])]
    return times[len(times) // 3:], rows[-1]["tokens"] / len(rows), rows[-1]["loss"]


# ---- PyTorch ------------------------------------------------------------------------------------


class Peer:
    """A step without or with a teacher, compiled once for both kinds of questions."""

    def __init__(self, shape, teacher, device):
        import torch
        import torch.nn.functional as f
        from transformers import BertConfig, BertModel
        self.torch, self.f = torch, f
        self.device = device.split(":")[0]

        def model():
            config = BertConfig(**shape, attn_implementation="sdpa")
            body = BertModel(config, add_pooling_layer=False).to(self.device)
            head = torch.nn.Linear(shape["hidden_size"], 2).to(self.device)
            return torch.nn.ModuleDict({"body": body, "head": head})
        self.student = model().train()
        self.teacher = model().eval() if teacher else None
        self.layers = [layer for layer in self.student["body"].encoder.modules()
                       if isinstance(layer, torch.nn.Linear)]
        self.masks = [self.mask(layer.weight.data) for layer in self.layers] if teacher else None
        self.optimiser = torch.optim.AdamW(self.student.parameters(), lr=1e-4, weight_decay=0.01,
                                           fused=True)

        def forward(net, ids, types, mask):
            out = net["body"](input_ids=ids, token_type_ids=types, attention_mask=mask,
                              output_hidden_states=teacher)
            logits = net["head"](out.last_hidden_state).float()
            return logits[..., 0], logits[..., 1], out.hidden_states
        self.run = torch.compile(lambda *a: forward(self.student, *a))
        self.teach = torch.compile(lambda *a: forward(self.teacher, *a))
        self.words, self.batches = shape["vocab_size"], []

    def read(self, mixed):
        torch = self.torch
        self.batches = []
        draw = random.Random(3)
        for _ in range(8):
            lengths = torch.tensor([draw.randint(40, LENGTH) if mixed else LENGTH
                                    for _ in range(BATCH)])
            mask = (torch.arange(LENGTH)[None] < lengths[:, None]).long()
            ids = torch.randint(5, self.words, (BATCH, LENGTH)) * mask
            ends = torch.randint(0, 40, (2, BATCH))
            self.batches.append([x.to(self.device)
                                 for x in (ids, mask * 0, mask, ends[0], ends[1])])

    def mask(self, w):
        groups = w.abs().reshape(w.shape[0], -1, 4)
        zero = self.torch.zeros_like(groups)
        return zero.scatter_(-1, groups.topk(2, -1).indices, 1).reshape(w.shape)

    def step(self, number):
        torch, f = self.torch, self.f
        ids, types, mask, starts, ends = self.batches[number % len(self.batches)]
        with torch.autocast(self.device, torch.bfloat16):
            s, e, states = self.run(ids, types, mask)
            if self.teacher is not None:
                with torch.no_grad():
                    ts, te, wanted = self.teach(ids, types, mask)
        loss = (f.cross_entropy(s, starts) + f.cross_entropy(e, ends)) / 2
        if self.teacher is not None:
            def kl(p, q):
                return f.kl_div(f.log_softmax(p / 2, -1), f.softmax(q / 2, -1),
                                reduction="batchmean") * 4
            inside = mask.bool()
            loss = loss + (kl(s, ts) + kl(e, te)) / 2
            loss = loss + sum(((x.float() - y.float())[inside] ** 2).mean()
                              for x, y in zip(states[1:], wanted[1:]))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimiser.step()
        if self.masks is not None:
            with torch.no_grad():
                torch._foreach_mul_([layer.weight.data for layer in self.layers], self.masks)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def time(self, steps):
        """Steps enqueued one after the other, waited for at the end."""
        self.wait()
        start = time.perf_counter()
        for i in range(steps):
            self.step(i)
        self.wait()
        return 1e3 * (time.perf_counter() - start) / steps


# ---- the run ------------------------------------------------------------------------------------


def normal_numbers():
    try:
        import torch
        torch.manual_seed(1)
        return lambda count, mean: (mean + 0.02 * torch.randn(count)).numpy().tobytes()
    except ImportError:
        draw = random.Random(1)
        return lambda count, mean: struct.pack(f"<{count}f", *(draw.gauss(mean, 0.02)
                                                               for _ in range(count)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tasks", default="dense-full,distil-full,dense-mixed,distil-mixed")
    parser.add_argument("--ours", action="store_true", help="without PyTorch")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the script")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("more", nargs="*", help="further words for sparse24 train, after --")
    options = parser.parse_args()
    options.program = options.program.resolve()
    return options


def show(name, ms, peer, tokens, loss):
    line = f"{name:13} ours {ms:7.2f} ms, {1e3 * BATCH / ms:6.0f} features/s ({tokens:.0f} tokens)"
    if peer:
        line += f"; PyTorch {peer:7.2f} ms, {1e3 * BATCH / peer:6.0f}; ratio {peer / ms:.2f}"
    print(f"{line}; loss {loss:.3f}", flush=True)


def main():
    options = arguments()
    shape = dict(SHAPE)
    if options.small:
        shape.update(vocab_size=600, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                     intermediate_size=128)
    rows, made = [], {}
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write_model(place / "model", shape, normal_numbers())
        for lengths in ("full", "mixed"):
            write_questions(place / f"{lengths}.json", BATCH * 24, lengths == "mixed", shape, 1)
        subprocess.run([str(options.program), "prune", str(place / "model"), str(place / "pruned"),
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for name in options.tasks.split(","):
            kind, lengths = name.split("-")
            task = {"name": name, "teacher": kind == "distil", "lengths": lengths}
            if not options.ours and kind not in made:
                made[kind] = Peer(shape, task["teacher"], options.device)
            peer = made.get(kind)
            if peer:
                peer.read(lengths == "mixed")
                peer.time(6)
            times, peers = [], []
            for turn in range(options.rounds):
                one, tokens, loss = ours(options, place, task, turn)
                times.append(statistics.median(one))
                if peer:
                    peers.append(peer.time(options.steps))
            ms = statistics.median(times)
            theirs = statistics.median(peers) if peers else None
            show(name, ms, theirs, tokens, loss)
            rows.append({"task": name, "ms": ms, "all": times, "torch_ms": theirs,
                         "torch_all": peers, "tokens": tokens})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
