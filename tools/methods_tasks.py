# SPDX-License-Identifier: Apache-2.0
"""What tools/methods trains on: each task is a class, a row of TASKS, which says its sizes, its
runs, its data, the folders that runs begin with, train's options and the score."""
import json
import lzma
import os
import pathlib
import shutil
import tarfile

import demo_inputs
from demo_inputs import ROOT, DemoError

# Method, its numbers, how a run begins: s as the task says, t from the dense model, which teaches
# it, d from the dense model with a rate ten times as large, r as s with squared ReLU.
METHODS = {"dense": ("dense", "", "s"), "dense-relu2": ("dense", "", "r"),
           "ste": ("ste", "", "s"), "sr-ste": ("sr-ste", "", "s"),
           "s-ste": ("s-ste", "", "s"), "fst": ("fst", "tail=0", "s"),
           "fst-dense-tail": ("fst", "", "s"), "step": ("step", "", "s"), "cast": ("cast", "", "t"),
           "semi-sparse": ("semi-sparse", "", "s"),
           "semi-sparse-activation": ("semi-sparse-activation", "", "s"),
           "squared-relu": ("squared-relu", "", "r"), "multimask": ("multimask", "", "s"),
           "maskllm": ("maskllm", "", "d")}


def some_of(*names):
    return {name: METHODS[name] for name in names}


# ---- inputs -------------------------------------------------------------------------------------


def data_file(named, path, option):
    """The file that an option names, or else one of the folder of data."""
    folder = os.environ.get("SPARSE24_DATA")
    folder = pathlib.Path(folder) if folder else ROOT.parent / "shared/data"
    found = named or folder / path
    if not found.exists():
        raise DemoError(f"{found} is not here; {option} names one, the environment variable "
                        f"SPARSE24_DATA the folder with {pathlib.Path(path).parts[0]}/")
    return found


def plain_file(path, folder):
    """The file without .xz, unpacked into the folder."""
    if path.suffix != ".xz":
        return path
    plain = folder / path.stem
    if not plain.exists() or plain.stat().st_mtime < path.stat().st_mtime:
        partial = folder / f"{path.stem}.partial"
        with lzma.open(path) as source, open(partial, "wb") as target:
            shutil.copyfileobj(source, target)
        partial.rename(plain)
    return plain


def contexts(path):
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [p["context"] for article in articles for p in article["paragraphs"]]


def write_config(folder, config, **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def lines_of(texts):
    """Passages to calibrate with, one a line."""
    long = [" ".join(text.split()) for text in texts if len(text) >= 32]
    return "".join(f"{line}\n" for line in long[:256])


# ---- tasks --------------------------------------------------------------------------------------


class Task:
    measure = "loss"  # what the score is
    from_scratch = True
    runs = METHODS
    pruned = ("magnitude", "sparsegpt")  # of the dense model, without training
    include = None

    def __init__(self, options, size):
        self.options, self.size, self.out = options, size, options.out
        self.starts = {}

    def prepare(self):
        """Finds or fetches what the task needs; says what is missing."""
        raise NotImplementedError

    def write(self):
        """Data and the folders that runs begin with, under options.out."""
        raise NotImplementedError

    def data(self):
        """train's options of the task alone."""
        raise NotImplementedError

    def score(self, tool, folder, common):
        raise NotImplementedError

    def flags(self):
        size, steps = self.size, self.options.steps or self.size["steps"]
        more = ["--include", self.include] if self.include else []
        return [*self.data(), "--batch", size["batch"], "--steps", steps, "--decay", size["decay"],
                "--warmup", "0.02", "--schedule", "cosine", "--held-out", size["held_out"],
                "--checkpoint-steps", size["every"], "--dropout", size["dropout"], *more]


class Language(Task):
    """Next tokens of a text, whose last tenth is held out."""

    def data(self):
        return ["--stream", self.out / "text.txt", "--max-tokens", self.size["context"]]

    def score(self, tool, folder, common):
        return tool("eval", folder, "--task", "lm", "--data", self.out / "held.txt",
                    "--max-tokens", self.size["context"], *common)["loss"]

    def config(self, words, activation):
        size = self.size
        return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
                "n_embd": size["width"], "n_head": size["heads"], "n_layer": size["layers"],
                "n_positions": size["context"], "vocab_size": words,
                "activation_function": activation, "layer_norm_epsilon": 1e-5,
                "resid_pdrop": size["dropout"], "attn_pdrop": size["dropout"],
                "initializer_range": 0.02, "tie_word_embeddings": True}

    def write_texts(self, text, tokens_each, lines):
        used = int(0.9 * len(text))
        window = self.size["context"] * tokens_each  # characters of a piece, about
        held = text[used:used + self.size["held_out"] * window]
        (self.out / "text.txt").write_text(text[:used // window * window] + held, encoding="utf-8")
        (self.out / "held.txt").write_text(held, encoding="utf-8")
        (self.out / "lines.txt").write_text(lines_of(lines), encoding="utf-8")


class Characters(Language):
    """nanoGPT's model of characters on tinyshakespeare."""
    text = "text/tinyshakespeare.txt"
    sizes = {"small": {"layers": 3, "heads": 4, "width": 96, "context": 64, "dropout": 0.0,
                       "batch": 16, "steps": 600, "rate": 3e-3, "decay": 0.1, "held_out": 200,
                       "every": 100},
             "baby": {"layers": 6, "heads": 6, "width": 384, "context": 256, "dropout": 0.2,
                      "batch": 64, "steps": 5000, "rate": 1e-3, "decay": 0.1, "held_out": 400,
                      "every": 250}}

    def prepare(self):
        return data_file(self.options.text, self.text, "--text FILE")

    def write(self):
        names = {" ": "Ġ", "\n": "Ċ"}
        text = self.prepare().read_text(encoding="utf-8")
        chars = sorted(set(text))
        if not all(0x20 <= ord(c) < 0x7f or c == "\n" for c in chars):
            raise DemoError("the text has characters beyond ASCII: tokens are single bytes here")
        self.write_texts(text, 1, text[:int(0.9 * len(text))].split("\n\n"))
        vocabulary = {names.get(c, c): i for i, c in enumerate(chars)}
        files = {"vocab__json": json.dumps(vocabulary, ensure_ascii=False),
                 "merges__txt": "#version: 0.2\n",
                 "tokenizer_config__json": json.dumps({"tokenizer_class": "GPT2Tokenizer"})}
        for how, name, activation in (("s", "gelu", "gelu_new"), ("r", "relu2", "relu2")):
            self.starts[how] = write_config(self.out / f"config-{name}",
                                            self.config(len(chars), activation), **files)


class Prose(Language):
    """GPT-2's shape and tokens on the prose of SQuAD's articles: short curves, and speed."""
    articles, tokenizer = "qa/qa-train.json.xz", "tokenizers/gpt2/encoder.json"
    runs = {**some_of("dense", "s-ste", "fst", "semi-sparse", "sr-ste", "step"),
            "s-ste:mvue=0": ("s-ste", "mvue=0", "s"),
            "fst:mvue=0": ("fst", "tail=0,mvue=0", "s")}
    pruned = ()
    include = "*mlp*"
    sizes = {"small": {"layers": 2, "heads": 4, "width": 128, "context": 64, "dropout": 0.0,
                       "batch": 8, "steps": 80, "rate": 1e-3, "decay": 0.1, "held_out": 32,
                       "every": 40},
             "124m": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "dropout": 0.0,
                      "batch": 64, "steps": 100, "rate": 6e-4, "decay": 0.1, "held_out": 64,
                      "every": 50}}

    def prepare(self):
        return (data_file(self.options.train, self.articles, "--train FILE"),
                data_file(self.options.tokenizer, self.tokenizer, "--tokenizer FILE"))

    def write(self):
        articles, words = self.prepare()
        texts = contexts(plain_file(articles, self.out))
        self.write_texts("\n".join(texts), 4, texts)
        vocabulary = words.read_text(encoding="utf-8")
        merges = (words.parent / "vocab.bpe").read_text(encoding="utf-8")
        config = self.config(1 + max(json.loads(vocabulary).values()), "gelu_new")
        self.starts["s"] = write_config(
            self.out / "config", config, vocab__json=vocabulary, merges__txt=merges,
            tokenizer_config__json=json.dumps({"tokenizer_class": "GPT2Tokenizer"}))

    def flags(self):
        """A step in one part, where there is a GPU."""
        whole = self.size["batch"] * self.size["context"]
        return [*super().flags(), *(["--tokens", whole] if self.options.device else [])]


class Images(Task):
    """A ViT on CIFAR-10 from scratch, with the sparse share of training: so much of the run is in
    2:4, its end is dense. Without augmentation: shares are to be compared, not accuracies won."""
    measure = "top-1"
    archives = {name: f"images/cifar10-jpeg-{name}.tar.xz" for name in ("train", "test")}
    runs = {"dense": METHODS["dense"],
            **{f"sparse-{share}": ("semi-sparse", f"tail={1 - share / 100:g}", "s")
               for share in (40, 60, 70, 80, 90, 100)},
            **some_of("ste", "sr-ste", "s-ste", "fst", "fst-dense-tail", "step",
                      "semi-sparse-activation", "multimask")}
    usual = [name for name in runs if name == "dense" or name.startswith("sparse-")]
    pruned = ("magnitude",)
    sizes = {"small": {"layers": 3, "heads": 3, "width": 96, "patch": 8, "dropout": 0.0,
                       "images": 2000, "batch": 32, "steps": 300, "rate": 1e-3, "decay": 0.05,
                       "held_out": 200, "every": 100},
             "gpu": {"layers": 6, "heads": 6, "width": 192, "patch": 4, "dropout": 0.1,
                     "images": 50000, "batch": 256, "steps": 4000, "rate": 1e-3, "decay": 0.05,
                     "held_out": 1000, "every": 500}}

    def prepare(self):
        named = self.options.images
        if named and all((named / name).is_dir() for name in self.archives):
            return named
        return {name: data_file(None, path, "--images FOLDER")
                for name, path in self.archives.items()}

    def unpack(self, archives):
        """Folders of classes; of those to train on the first so many of each class."""
        for name, archive in archives.items():
            if (self.out / name).is_dir():
                continue
            partial = self.out / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(archive) as tar:
                for member in tar:
                    parts = pathlib.PurePosixPath(member.name).parts[-2:]
                    if member.isfile() and len(parts) == 2 and ".." not in parts:
                        (partial / parts[0]).mkdir(parents=True, exist_ok=True)
                        (partial / parts[0] / parts[1]).write_bytes(tar.extractfile(member).read())
            partial.rename(self.out / name)
        return self.out

    def write(self):
        found = self.prepare()
        folder = found if isinstance(found, pathlib.Path) else self.unpack(found)
        self.test = folder / "test"
        self.images = self.out / f"train-{self.size['images']}"
        classes = sorted(path for path in (folder / "train").iterdir() if path.is_dir())
        for each in classes:
            to = self.images / each.name
            to.mkdir(parents=True, exist_ok=True)
            for path in sorted(each.iterdir())[:self.size["images"] // len(classes)]:
                if not (to / path.name).exists():
                    os.link(path, to / path.name)
        size = self.size
        config = {"model_type": "vit", "architectures": ["ViTForImageClassification"],
                  "hidden_size": size["width"], "num_hidden_layers": size["layers"],
                  "num_attention_heads": size["heads"], "intermediate_size": 4 * size["width"],
                  "image_size": 32, "patch_size": size["patch"], "num_channels": 3,
                  "hidden_act": "gelu", "layer_norm_eps": 1e-6, "initializer_range": 0.02,
                  "hidden_dropout_prob": size["dropout"], "num_labels": len(classes),
                  "attention_probs_dropout_prob": size["dropout"],
                  "id2label": {str(i): each.name for i, each in enumerate(classes)}}
        means = {"image_mean": [0.4913, 0.4821, 0.4465], "image_std": [0.247, 0.2434, 0.2615]}
        self.starts["s"] = write_config(self.out / "config", config,
                                        preprocessor_config__json=json.dumps(means))

    def data(self):
        return ["--images", self.images]

    def score(self, tool, folder, common):
        return tool("eval", folder, "--task", "image", "--data", self.test, *common)["top1"]


class Questions(Task):
    """SQuAD's questions, from a dense MiniLM: 2:4 while it learns them."""
    measure = "F1"
    from_scratch = False
    files = {"train": "qa/qa-train.json.xz", "dev": "qa/squad-dev-v1.1.json.xz"}
    runs = some_of("dense", "ste", "sr-ste", "s-ste", "fst", "step", "cast", "semi-sparse",
                   "multimask", "maskllm")
    sizes = {"small": {"tokens": 128, "questions": 800, "asked": 200, "dropout": 0.0, "batch": 16,
                       "steps": 40, "rate": 1e-4, "decay": 0.01, "held_out": 32, "every": 20},
             "whole": {"tokens": 384, "questions": None, "asked": None, "dropout": 0.1,
                       "batch": 32, "steps": 8298, "rate": 1e-4, "decay": 0.01, "held_out": 256,
                       "every": 2000}}

    def prepare(self):
        if not self.options.model:
            cache = self.out.parent / "cache"
            cache.mkdir(parents=True, exist_ok=True)
            self.options.model = demo_inputs.fetch_model(cache)
        return {name: data_file(getattr(self.options, name), path, f"--{name} FILE")
                for name, path in self.files.items()}

    def first(self, path, count):
        """The file with its first so many questions."""
        if count is None:
            return path
        data = json.loads(path.read_text(encoding="utf-8"))
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][:max(count, 0)]
                count -= len(paragraph["qas"])
            article["paragraphs"] = [p for p in article["paragraphs"] if p["qas"]]
        data["data"] = [article for article in data["data"] if article["paragraphs"]]
        cut = self.out / f"first-{path.name}"
        cut.write_text(json.dumps(data), encoding="utf-8")
        return cut

    def write(self):
        found = {name: plain_file(path, self.out) for name, path in self.prepare().items()}
        (self.out / "lines.txt").write_text(lines_of(contexts(found["train"])), encoding="utf-8")
        self.asked = self.first(found["dev"], self.size["asked"])
        self.learnt = self.first(found["train"], self.size["questions"])
        self.starts["s"] = self.options.model

    def data(self):
        return ["--qa", self.learnt, "--max-tokens", self.size["tokens"]]

    def score(self, tool, folder, common):
        return tool("eval", folder, "--task", "qa", "--data", self.asked, "--max-tokens",
                    self.size["tokens"], *common)["f1"]


TASKS = {"chars": Characters, "gpt2": Prose, "vit": Images, "squad": Questions}
