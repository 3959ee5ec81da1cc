# SPDX-License-Identifier: Apache-2.0
"""eval --task qa, lm and image on small models: random weights for questions made of their words,
and weights whose logits are known for a text and for images."""
import collections
import json
import math
import random
import re
import shutil
import string
import unittest

from cli_case import SOURCE, Scratch
import cli_data
import stories
import tiny_bert

CONTEXTS = 6


def questions():
    """SQuAD's JSON: contexts of 30 to 120 words, some of which do not fit one feature."""
    chance = random.Random(5)
    paragraphs = []
    for c in range(CONTEXTS):
        words = chance.choices(tiny_bert.WORDS, k=30 + 18 * c)
        if c == 0:
            words[3] = "caf\u00e9"
        context, asked = " ".join(words) + ".", []
        for q in range(4):
            answers = []
            for _ in range(1 + q % 3):
                begin = chance.randrange(len(words) - 4)
                text = " ".join(words[begin:begin + chance.randint(1, 4)])
                answers.append({"text": text, "answer_start": len(" ".join(words[:begin]))
                                + (begin > 0)})
            asked.append({"id": f"q{c}-{q}", "question": " what is the " + words[q] + "?",
                          "answers": answers})
        paragraphs.append({"context": context, "qas": asked})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def normalise(text):
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def f1(prediction, gold):
    p, g = normalise(prediction).split(), normalise(gold).split()
    common = sum((collections.Counter(p) & collections.Counter(g)).values())
    return 2 * common / (len(p) + len(g)) if common else 0


def make(folder):
    tiny_bert.write(folder / "model", qa=True)
    tiny_bert.write(folder / "encoder")
    (folder / "dev.json").write_text(json.dumps(questions()))
    (folder / "pairs.txt").write_text("read\tthe file\nopen\ta line of the table\n")
    (folder / "latin.json").write_bytes(b'{"data": "caf\xe9"}')
    lost = questions()
    lost["data"][0]["paragraphs"][2]["qas"][1]["answers"][0]["answer_start"] += 1
    (folder / "lost.json").write_text(json.dumps(lost))
    long = questions()
    long["data"][0]["paragraphs"][0]["qas"][0]["question"] = "what " * 200
    (folder / "long.json").write_text(json.dumps(long))
    (folder / "taken.json").write_text("precious")


class Answers(Scratch):
    make = staticmethod(make)

    def arguments(self, data="dev.json", model="model"):
        return ["eval", model, "--task", "qa", "--data", data]

    def test_scores_are_those_of_the_predictions(self):
        found = self.json(*self.arguments(), "--max-tokens", "96", "--predictions", "p.json")
        self.assertEqual(set(found), {"version", "em", "f1", "examples", "features", "seconds"})
        predictions = json.loads((self.folder / "p.json").read_text(encoding="utf-8"))
        exact = overlap = count = 0
        for paragraph in questions()["data"][0]["paragraphs"]:
            for question in paragraph["qas"]:
                given = predictions.pop(question["id"])
                self.assertIn(given, paragraph["context"])
                golds = [a["text"] for a in question["answers"]]
                exact += max(normalise(given) == normalise(g) for g in golds)
                overlap += max(f1(given, g) for g in golds)
                count += 1
        self.assertEqual(predictions, {})
        self.assertEqual(found["examples"], count)
        self.assertGreater(found["features"], count)
        self.assertAlmostEqual(found["em"], 100 * exact / count)
        self.assertAlmostEqual(found["f1"], 100 * overlap / count)
        self.assertGreater(found["f1"], 0)
        self.assertRegex(self.good(*self.arguments(), "--max-tokens", "96").stdout,
                         rf"exact match .* % +F1 {found['f1']:.2f} %.*{count} questions")

    def test_packed_and_dense_alike(self):
        self.good("prune", "model", "dense")
        self.good("prune", "model", "packed", "--packed")
        for name in ("dense", "packed"):
            self.good(*self.arguments(model=name), "--predictions", name + ".json")
        self.assertEqual((self.folder / "dense.json").read_text(),
                         (self.folder / "packed.json").read_text())

    def test_models_without_types(self):
        """DistilBERT and RoBERTa have no second type, and answer as a BERT of zeros there."""
        config = json.loads((self.folder / "model/config.json").read_text())
        tensors, _ = cli_data.read(self.folder / "model/model.safetensors")
        tensors = {name: (shape, cli_data.floats(raw)) for name, (_, shape, raw) in tensors.items()}
        types = "bert.embeddings.token_type_embeddings.weight"
        tensors[types] = (tensors[types][0], [0.0] * len(tensors[types][1]))
        places = "bert.embeddings.position_embeddings.weight"
        rows, width = tensors[places][0]
        later = {places: ([rows + 1, width], [0.5] * width + tensors[places][1]),
                 types: ([1, width], [0.0] * width)}
        distil = {".attention.self.query": ".attention.q_lin", ".self.key": ".k_lin",
                  ".self.value": ".v_lin", ".attention.output.dense": ".attention.out_lin",
                  ".attention.output.LayerNorm": ".sa_layer_norm",
                  ".intermediate.dense": ".ffn.lin1", ".output.dense": ".ffn.lin2",
                  ".output.LayerNorm": ".output_layer_norm", "bert.encoder.": "bert.transformer.",
                  "bert.": "distilbert."}
        kinds = {
            "bert": (config, {}, tensors),
            "roberta": ({**config, "model_type": "roberta", "type_vocab_size": 1,
                         "pad_token_id": 0, "max_position_embeddings": rows + 1},
                        {"bert.": "roberta."}, {**tensors, **later}),
            "distilbert": ({"model_type": "distilbert", "dim": width, "n_layers": tiny_bert.LAYERS,
                            "n_heads": tiny_bert.HEADS, "hidden_dim": tiny_bert.INTERMEDIATE,
                            "vocab_size": config["vocab_size"], "activation": "gelu",
                            "max_position_embeddings": rows},
                           distil, {k: v for k, v in tensors.items() if k != types})}
        found = {}
        for kind, (keys, names, weights) in kinds.items():
            shutil.copytree(self.folder / "model", self.folder / kind)
            (self.folder / kind / "config.json").write_text(json.dumps(keys))
            renamed = {}
            for name, value in weights.items():
                for old, new in names.items():
                    name = name.replace(old, new, 1)
                renamed[name] = value
            (self.folder / kind / "model.safetensors").write_bytes(tiny_bert.safetensors(renamed))
            self.good(*self.arguments(model=kind), "--predictions", kind + ".json")
            found[kind] = json.loads((self.folder / (kind + ".json")).read_text())
            self.good("prune", kind, kind + "-pruned", "--method", "wanda", "--pairs",
                      "--calibration", "pairs.txt")
            self.good("train", kind, kind + "-trained", "--qa", "dev.json", "--steps", "1",
                      "--batch", "2", "--quiet")
        self.assertEqual(found["distilbert"], found["bert"])
        self.assertEqual(found["roberta"], found["bert"])

    def test_integers_and_their_dense_floats_alike(self):
        self.good("prune", "model", "sparse")
        for scheme in ("int8", "int4-g64"):
            self.good("pack", "sparse", scheme, "--quantize", scheme)
            self.good("unpack", scheme, scheme + "-dense")
            found = []
            for name in (scheme, scheme + "-dense"):
                self.good(*self.arguments(model=name), "--predictions", name + ".json")
                found.append(json.loads((self.folder / (name + ".json")).read_text()))
            self.assertEqual(*found)

    def test_options(self):
        wide = self.json(*self.arguments(), "--max-tokens", "160", "--stride", "1")
        narrow = self.json(*self.arguments(), "--max-tokens", "64", "--stride", "40")
        self.assertGreater(narrow["features"], wide["features"])
        self.good(*self.arguments(), "--predictions", "taken.json", "--force")
        self.assertEqual(len(json.loads((self.folder / "taken.json").read_text())), 4 * CONTEXTS)

    def test_refusals(self):
        base = self.arguments()
        self.refusals([
            ("no data", ["eval", "model", "--task", "qa"], 2, "--task qa needs --data"),
            ("no file", self.arguments("none.json"), 3, "none.json.*No such"),
            ("not UTF-8", self.arguments("latin.json"), 4, "latin.json: JSON is expected"),
            ("not SQuAD", self.arguments("model/config.json"), 4, 'config.json: "data" is missing'),
            ("a lost answer", self.arguments("lost.json"), 4,
             r"lost.json: data\[0\].paragraphs\[2\].qas\[1\].answers\[0\]: the answer .* of "
             r"question q2-1 does not stand at character"),
            ("a long question", self.arguments("long.json"), 2, "long.json: question q0-0 has 800 tokens"),
            ("no head", self.arguments(model="encoder"), 5,
             "encoder has no question-answering head: qa_outputs"),
            ("too long", [*base, "--max-tokens", "999"], 2, "999 tokens.*160 positions"),
            ("documents", [*base, "--documents", "d"], 2,
             "option --documents is not for --task qa, which reads no documents|--task"),
            ("what retrieval does not read", ["eval", "model", "--data", "data.json"], 2,
             "option --data is for --task"),
            ("a stride of retrieval", ["eval", "model", "--stride", "3"], 2,
             "option --stride is for --task"),
            ("predictions of texts", ["eval", "model", "--task", "lm", "--predictions", "p"], 2,
             "option --predictions is for --task qa"),
            ("taken", [*base, "--predictions", "taken.json"], 3, "taken.json exists; --force"),
            ("no folder", [*base, "--predictions", "no/p.json"], 3, "no/p.json: the folder no cannot be written to: No such"),
        ])


# ---- language models and images ------------------------------------------------------------------

WIDTH, LETTERS, BIAS = 4, "abc \n", [0.5, -1.0, 2.0, 0.25]


def write_model(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))


def constant(name, shape, value=0.0):
    return {name: (shape, [value] * math.prod(shape))}


def words(width=WIDTH):
    """The embeddings of the letters: rows of distinct numbers."""
    return [[0.1 * i - 0.2 * j for j in range(width)] for i in range(len(LETTERS))]


def write_gpt2(folder, width=WIDTH):
    """A GPT-2 whose last norm gives BIAS for every token: the logits are words() times BIAS."""
    tensors = {"transformer.wte.weight": ([len(LETTERS), width], sum(words(width), [])),
               "transformer.ln_f.bias": ([width], BIAS * (width // WIDTH))}
    tensors |= constant("transformer.wpe.weight", [16, width])
    tensors |= constant("transformer.ln_f.weight", [width])
    for name, rows, cols in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                             ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
        tensors |= constant(f"transformer.h.0.{name}.weight", [rows, cols], 0.1)
        tensors |= constant(f"transformer.h.0.{name}.bias", [cols])
    for name in ("ln_1", "ln_2"):
        tensors |= constant(f"transformer.h.0.{name}.weight", [width], 1.0)
        tensors |= constant(f"transformer.h.0.{name}.bias", [width])
    write_model(folder, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width,
                         "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": len(LETTERS),
                         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                         "tie_word_embeddings": True}, tensors)
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(LETTERS)}, "merges": []}}))


def write_vit(folder, patches=0.1, width=WIDTH, image=4, channels=1):
    """A ViT for so many pixels a side, in four patches, with three classes, of which it always says the
    second."""
    tensors = {"classifier.bias": ([3], [0.0, 1.0, -1.0])}
    tensors |= constant("classifier.weight", [3, width])
    tensors |= constant("vit.embeddings.cls_token", [1, 1, width], 0.1)
    tensors |= constant("vit.embeddings.position_embeddings", [1, 5, width], 0.1)
    tensors |= constant("vit.embeddings.patch_embeddings.projection.weight",
                        [width, channels, image // 2, image // 2], patches)
    tensors |= constant("vit.embeddings.patch_embeddings.projection.bias", [width])
    layer = "vit.encoder.layer.0."
    for name, rows, cols in (("attention.attention.query", width, width),
                             ("attention.attention.key", width, width),
                             ("attention.attention.value", width, width),
                             ("attention.output.dense", width, width),
                             ("intermediate.dense", 8, width), ("output.dense", width, 8)):
        tensors |= constant(layer + name + ".weight", [rows, cols], 0.1)
        tensors |= constant(layer + name + ".bias", [rows])
    for name in (layer + "layernorm_before", layer + "layernorm_after", "vit.layernorm"):
        tensors |= constant(name + ".weight", [width], 1.0) | constant(name + ".bias", [width])
    write_model(folder, {"model_type": "vit", "architectures": ["ViTForImageClassification"],
                         "hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 2,
                         "intermediate_size": 8, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                         "image_size": image, "patch_size": image // 2, "num_channels": channels,
                         "qkv_bias": True,
                         "id2label": {"0": "x", "1": "y", "2": "z"}}, tensors)


def write_idx(folder, name, labels, side=4):
    count = len(labels).to_bytes(4, "big")
    (folder / f"{name}-images-idx3-ubyte").write_bytes(
        b"\0\0\x08\x03" + count + 2 * side.to_bytes(4, "big") + bytes(len(labels) * side * side))
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + count + bytes(labels))


TEXT = "abc cab\nbaac " * 9


def make_others(folder):
    tiny_bert.write(folder / "encoder")
    write_gpt2(folder / "gpt2")
    write_vit(folder / "vit")
    write_vit(folder / "nan", patches=math.nan)
    (folder / "text").write_text(TEXT)
    (folder / "one").write_text("a")
    (folder / "empty").write_text("")
    (folder / "foreign").write_text("ab\nx")
    (folder / "bytes").write_bytes(b"ab\n\xff")
    write_idx(folder, "good", [1, 0, 1, 2] * 50)
    write_idx(folder, "many", [7])
    write_idx(folder, "large", [1], 5)
    (folder / "cut-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03\0\0")


class Texts(Scratch):
    make = staticmethod(make_others)

    def expected(self):
        """Cross-entropy of every token but the first against the constant logits."""
        logits = [sum(w * b for w, b in zip(row, BIAS)) for row in words()]
        total = math.log(sum(map(math.exp, logits)))
        return sum(total - logits[LETTERS.index(c)] for c in TEXT[1:]) / (len(TEXT) - 1)

    def test_loss_whatever_the_window(self):
        for window in ((), ("--max-tokens", "7"), ("--max-tokens", "1")):
            found = self.json("eval", "gpt2", "--task", "lm", "--data", "text", *window)
            self.assertEqual(set(found), {"version", "loss", "perplexity", "bits_per_byte",
                                          "stride", "tokens", "bytes", "seconds"})
            self.assertAlmostEqual(found["loss"], self.expected(), places=5)
            self.assertAlmostEqual(found["perplexity"], math.exp(found["loss"]))
            self.assertEqual((found["tokens"], found["bytes"]), (len(TEXT), len(TEXT)))
            self.assertAlmostEqual(found["bits_per_byte"], found["loss"] * (len(TEXT) - 1)
                                   / len(TEXT) / math.log(2))
        self.assertRegex(self.good("eval", "gpt2", "--task", "lm", "--data", "text").stdout,
                         rf"loss {self.expected():.4f}  perplexity")

    def test_refusals(self):
        def lm(data, *more, model="gpt2"):
            return ["eval", model, "--task", "lm", "--data", data, *more]
        self.refusals([
            ("no data", ["eval", "gpt2", "--task", "lm"], 2, "--task lm needs --data"),
            ("no file", lm("none"), 3, "none.*No such"),
            ("not UTF-8", lm("bytes"), 4, "bytes: line 1 is not UTF-8 at byte 3"),
            ("foreign", lm("foreign"), 4, r"foreign: line 1: .* no token for the character U\+0078"),
            ("empty", lm("empty"), 4, "empty: there is no text"),
            ("one", lm("one"), 4, "one has one token"),
            ("wide", lm("text", "--max-tokens", "17"), 2, "--max-tokens 17: the most here are 16"),
            *((dtype, lm("text", "--dtype", dtype), 5, f"a model runs in {dtype} on a GPU only")
              for dtype in ("f16", "e4m3")),
            ("both", lm("text", "--sparse", "--dense"), 2, "--sparse and --dense exclude each other"),
            ("an encoder", lm("text", model="encoder"), 5, "no head for this task; a language model"),
            ("images", lm("text", model="vit"), 5, r"vit \(vit\) has no head for this task"),
        ])


class Stories(Scratch):
    """A real Llama: what it says when it is asked for the likeliest words."""
    TEXT = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the "
            "park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.")

    def test_its_own_words_surprise_it_little(self):
        weights = SOURCE / "../shared/data/weights"
        if not (weights / "stories260K.bin").exists():
            self.skipTest(f"{weights}/stories260K.bin is not here")
        stories.write(self.folder / "model", weights / "stories260K.bin", weights / "tok512.bin")
        words = self.TEXT.split()
        (self.folder / "own").write_text(self.TEXT)
        (self.folder / "shuffled").write_text(" ".join(sorted(words)))
        losses = [self.json("eval", "model", "--task", "lm", "--data", name)
                  for name in ("own", "shuffled")]
        self.assertLess(losses[0]["loss"], 0.45)
        self.assertGreater(losses[1]["loss"], 2)


class Images(Scratch):
    make = staticmethod(make_others)

    def test_accuracy(self):
        found = self.json("eval", "vit", "--task", "image", "--data", "good-images-idx3-ubyte")
        self.assertEqual(set(found), {"version", "top1", "loss", "images", "classes", "seconds"})
        self.assertEqual((found["top1"], found["images"], found["classes"]), (50, 200, 3))
        total = math.log(1 + math.e + 1 / math.e)
        self.assertAlmostEqual(found["loss"], total - (2 * 1 + 0 - 1) / 4, places=5)

    def test_refusals(self):
        def image(data, model="vit"):
            return ["eval", model, "--task", "image", "--data", data]
        self.refusals([
            ("no data", ["eval", "vit", "--task", "image"], 2, "--task image needs --data"),
            ("no file", image("none"), 3, "none.*No such"),
            ("texts", ["embed", "vit", "--input", "good-labels-idx1-ubyte", "--output", "x.npy"], 5,
             "vit: a model of type 'vit' reads images, and texts were given"),
            ("cut", image("cut-images-idx3-ubyte"), 4, "cut-images.*idx file of bytes with 3"),
            ("size", image("large-images-idx3-ubyte"), 4,
             "images of 5 x 5 pixels and 1 channel, but the model reads 4 x 4 and 1"),
            ("classes", image("many-images-idx3-ubyte"), 4, "images of 8 classes, but the model has 3"),
            ("a text model", image("good-images-idx3-ubyte", "gpt2"), 5,
             r"gpt2 \(gpt2\) has no head for this task; an image model with a classifier"),
            ("not finite", image("good-images-idx3-ubyte", "nan"), 4,
             "patch_embeddings.projection.weight' has NaN at row 0, column 0"),
        ])


if __name__ == "__main__":
    unittest.main()
