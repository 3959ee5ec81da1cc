# SPDX-License-Identifier: Apache-2.0
"""What is run with faults in it: models and files made for it, and a row for each command line.
Models are tiny, so that a run takes some milliseconds."""
import base64
import json
import os
import shutil

import cli_data
import gguf_data
import test_cli_eval
import test_cli_images
import tiny_bert
import torch_data
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise, write_squares

IMAGE = test_cli_images.png(10, 12, bytes(range(120)) * 3)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}b"
LINES = ["read the file", "open a signal", "a line of the table", "sort and find"]
RECIPE = """\
stages:
- prune: {method: magnitude}
- pack
measure:
- sensitivity: {calibration: texts, patterns: '2:4'}
"""


def write_head(folder):
    """A reranker: tiny_bert with a pooler and one class."""
    tiny_bert.write(folder, qa=True)
    path = folder / "model.safetensors"
    tensors, _ = cli_data.read(path)
    tensors = {name: (shape, cli_data.floats(raw)) for name, (_, shape, raw) in tensors.items()}
    for old, new in (("qa_outputs", "classifier"),):
        shape, values = tensors.pop(f"{old}.weight")
        tensors[f"{new}.weight"] = ([1, shape[1]], values[:shape[1]])
        tensors[f"{new}.bias"] = ([1], tensors.pop(f"{old}.bias")[1][:1])
    width = tiny_bert.WIDTH
    tensors["bert.pooler.dense.weight"] = ([width, width], [0.01 * (i % 17) for i in
                                                            range(width * width)])
    tensors["bert.pooler.dense.bias"] = ([width], [0.0] * width)
    path.write_bytes(tiny_bert.safetensors(tensors))
    config = json.loads((folder / "config.json").read_text())
    config.update(architectures=["BertForSequenceClassification"], id2label={"0": "good"})
    (folder / "config.json").write_text(json.dumps(config))
    shutil.rmtree(folder / "1_Pooling")
    (folder / "modules.json").unlink()


def write_pickled(folder, dense):
    """A folder of torch.save's."""
    shutil.copytree(dense, folder)
    (folder / "model.safetensors").unlink()
    tensors, _ = cli_data.read(dense / "model.safetensors")
    pickle = torch_data.mapping([(name, torch_data.tensor("Float", i, shape))
                                 for i, (name, (_, shape, _)) in enumerate(tensors.items())])
    records = {i: raw for i, (_, _, raw) in enumerate(tensors.values())}
    (folder / "pytorch_model.bin").write_bytes(torch_data.archive(pickle, records))


def write_talk(folder, llama):
    """A Llama that chats."""
    shutil.copytree(llama, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def make(folder, run):
    """The inputs of all rows; run(*words) runs the program there."""
    tiny_bert.write(folder / "dense")
    tiny_bert.write(folder / "words", words=True)
    tiny_bert.write(folder / "late")
    tiny_bert.make_late(folder / "late", 6)
    tiny_bert.write(folder / "qa", qa=True)
    write_head(folder / "head")
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama", width=32)
    test_cli_eval.write_vit(folder / "vit")
    for name, seed in (("gpt2", 3), ("llama", 3), ("vit", 3)):
        randomise(folder / name, seed)
    write_talk(folder / "talk", folder / "llama")
    test_cli_images.write_model(folder / "eyes")
    (folder / "photos").mkdir()
    for name in ("a.png", "b.png"):
        (folder / "photos" / name).write_bytes(IMAGE)
    write_pickled(folder / "pickled", folder / "dense")
    write_squares(folder, "images", 6, 1)
    (folder / "texts").write_text("\n".join(LINES) + "\n")
    (folder / "pairs").write_text("read\tthe file\nopen\ta line of the table\n")
    (folder / "gold").write_text("0\n1\n2\n3\n")
    (folder / "play").write_text("abcb" * 20 + "\n")
    questions = test_cli_eval.questions()
    paragraphs = questions["data"][0]["paragraphs"]
    questions["data"][0]["paragraphs"] = [{**paragraphs[0], "qas": paragraphs[0]["qas"][:2]}]
    (folder / "qa.json").write_text(json.dumps(questions))
    tensors, _ = gguf_data.model("llama", "Q8_0")
    (folder / "m.gguf").write_bytes(gguf_data.file(gguf_data.keys("llama"), tensors))
    (folder / "recipe.yaml").write_text(RECIPE)
    shutil.copy(folder / "dense/model.safetensors", folder / "single.safetensors")
    (folder / "temporary").mkdir()
    run("prune", "dense", "in", "--packed")
    run("prune", "single.safetensors", "sparse.safetensors")
    run("prune", "dense", "pruned")
    run("embed", "dense", "--input", "texts", "--output", "kept.npy", "--quiet")
    run("convert", "in", "foreign", "--to", "compressed-tensors")
    for i in ("1", "2"):
        run("embed", "dense", "--input", "texts", "--shard", f"{i}/2", "--output",
            f"vectors-{i}.safetensors", "--quiet")
        run("sensitivity", "dense", "--calibration", "texts", "--patterns", "2:4", "--shard",
            f"{i}/2", "--output", f"measured-{i}.json", "--quiet")


class Row:
    """name: of the row; words: the command line; out: what it writes.
    between: what else may stand there when it is stopped, from which the next run goes on: with
        --resume, if it is in resumes.
    loose: outputs that hold times or measurements, so that bytes differ.
    stdout: is what it prints the same each time?
    before: the command line that made what is replaced, if that is not just any.
    force: is it replaced by --force? stages: does it run processes that say things, too?
    slow: it is run less often, and calls come in another number each time.
    fake: on the device that is none.
    asks: what is sent to it while it listens at the socket "listens", see fault_client.py.
    api: it is this example of examples/, over the C API, and not a command."""
    MORE = {"between": (), "loose": (), "resumes": (), "before": "", "force": True, "stdout": True,
            "stages": False, "slow": False, "fake": False, "api": False,
            "asks": ()}

    def __init__(self, name, words, out=(), **more):
        self.name, self.words, self.out = name, words.split(), tuple(out)
        assert more.keys() <= self.MORE.keys()
        self.__dict__.update({**self.MORE, **more})

    def writes(self):
        return bool(self.out)

    def starts(self):
        """Whether an output that is there is replaced: the ways to begin."""
        return (False, True) if self.writes() and not self.api else (False,)


TUTORIAL = ("qa out --train qa.json --dev qa.json --steps 1 --method magnitude --max-tokens 64 "
            "--batch 1 --seq 8 --rounds 1 --threads 1 --quiet")
# Of each route of serve a request, in one of the two lists, and two that are refused.
ASKS = [("/health", None), ("/v1/models", None), ("/embed", {"inputs": LINES}),
        ("/v1/embeddings", {"model": "in", "input": "sort and find", "encoding_format": "base64"}),
        ("/similarity", {"inputs": {"source_sentence": "read", "sentences": LINES[:2]}}),
        ("/tokenize", {"inputs": LINES[0]}), ("/search", {"inputs": "find", "k": 2}),
        ("/rerank", {"query": "read", "texts": LINES[:2]}),
        ("/v1/rerank", {"query": "read", "documents": LINES[:2], "return_documents": True}),
        ("/v2/rerank", {"query": "read", "documents": LINES[:2], "top_n": 1}),
        ("/predict", {"inputs": LINES[0]}),
        ("/v1/completions", {"model": "llama", "prompt": "abc", "max_tokens": 4,
                             "temperature": 0}),
        ("/embed", {"inputs": 1}), ("/nowhere", None)]
CHAT = {"model": "talk", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 4,
        "temperature": 0}
MORE_ASKS = [("/", None), ("/info", None), ("/metrics", None), ("/v1/models/talk", None),
             ("/embed_sparse", {"inputs": LINES[:2]}), ("/search", {"inputs": "find", "k": 2}),
             ("/embed", {"model": "eyes", "inputs": [
                 "data:image/png;base64," + base64.b64encode(IMAGE).decode()] * 2}),
             ("/rerank", {"model": "late", "query": "read", "texts": LINES[:2]}),
             ("/v1/chat/completions", CHAT), ("/v1/chat/completions", {**CHAT, "stream": True}),
             ("/v1/completions", {"model": "talk", "prompt": "abc", "max_tokens": 4,
                                  "temperature": 0, "logprobs": 2, "stream": True})]
TRAIN = "--text texts --teacher dense --batch 2 --steps 2 --threads 1"
ROWS = [
    Row("help", "help prune"),
    Row("info", "info in --json"),
    Row("info-plain", "info in"),
    Row("check", "check in --json"),
    Row("prune", "prune dense out --packed", ["out"]),
    Row("prune-file", "prune single.safetensors out.safetensors --json", ["out.safetensors"]),
    Row("prune-calibrated", "prune dense out --method sparsegpt --calibration texts --packed "
        "--quantize int8 --threads 2", ["out"]),
    Row("prune-aim", "prune dense out --method sparsegpt --calibration texts --aim states "
        "--threads 2", ["out"]),
    Row("prune-pairs", "prune dense out --method wanda --calibration pairs --pairs --threads 1",
        ["out"]),
    Row("prune-lift", "prune dense out --pattern dense:16 --packed --threads 2", ["out"]),
    Row("prune-permute", "prune dense out --permute --calibration texts", ["out"]),
    Row("prune-masks", "prune dense out.safetensors --masks-only", ["out.safetensors"]),
    Row("sensitivity", "sensitivity dense --calibration texts --patterns 2:4 --budget bytes=0.7 "
        "--recipe out.yaml --report out.html --threads 1", ["out.yaml", "out.html"]),
    Row("train", f"train dense out {TRAIN} --metrics out.metrics --report out.html --quiet",
        ["out", "out.metrics", "out.html"], between=["out.training", "out.metrics"],
        loose=["out.metrics", "out.html"], resumes=["out.training"], slow=True),
    Row("run", "run recipe.yaml dense out --threads 1 --quiet --json", ["out"], between=["out"],
        loose=["out"], before="run recipe.yaml dense out --quiet", stdout=False, slow=True,
        stages=True),
    Row("tutorial", f"tutorial {TUTORIAL}", ["out"], between=["out"], loose=["out"],
        before=f"tutorial {TUTORIAL}", stdout=False, slow=True, stages=True),
    Row("convert-gguf", "convert m.gguf out", ["out"]),
    Row("convert", "convert in out --to compressed-tensors", ["out"]),
    Row("convert-foreign", "convert foreign out", ["out"]),
    Row("convert-pickle", "convert pickled out", ["out"]),
    Row("convert-torch", "convert in out --to torch --dtype bf16", ["out"]),
    Row("convert-onnx", "convert in out --to onnx --external", ["out"]),
    Row("pack", "pack sparse.safetensors out.safetensors --json", ["out.safetensors"]),
    Row("pack-layout", "pack in out --layout cpu", ["out"]),
    Row("pack-layout-integers", "pack in out --layout cpu --quantize int4-g64", ["out"]),
    Row("unpack", "unpack in out", ["out"]),
    Row("embed", "embed in --input texts --output out.safetensors --sparse --quiet --threads 2",
        ["out.safetensors"]),
    Row("embed-dense", "embed dense --input texts --output out.npy --quiet --threads 1",
        ["out.npy"]),
    Row("embed-measured", "embed in --input texts --output out.npy --threads 1", ["out.npy"],
        loose=["out.npy", "cache"], stdout=False),
    Row("embed-stream", "embed in --input texts --stream --sparse --threads 1 --quiet"),
    Row("embed-words", "embed words --input texts --output out.safetensors --quiet --threads 1",
        ["out.safetensors"]),
    Row("embed-late", "embed late --input texts --output out.safetensors --quiet --threads 1",
        ["out.safetensors"]),
    Row("embed-images", "embed eyes --images photos --output out.npy --quiet --threads 2",
        ["out.npy"]),
    Row("join", "join out.safetensors vectors-2.safetensors vectors-1.safetensors",
        ["out.safetensors"]),
    Row("join-measured", "join out.json measured-1.json measured-2.json --json", ["out.json"]),
    Row("search", "search in --documents texts --query read --sparse --threads 1"),
    Row("search-words", "search words --documents texts --query read --threads 1"),
    Row("search-index", "search in --documents texts --query read --sparse --threads 1 --index out "
        "--index-dtype i8 --json", ["out"], between=["out"], force=False,
        before="search in --documents gold --query read --index out"),
    Row("search-index-words", "search words --documents texts --query read --threads 1 --index out "
        "--json", ["out"], between=["out"], force=False,
        before="search words --documents gold --query read --index out"),
    Row("rerank", "rerank head --documents texts --query read --threads 1 --json"),
    Row("rerank-late", "rerank late --documents texts --query read --threads 1 --json"),
    Row("classify", "classify head --input texts --threads 1"),
    Row("eval-retrieval", "eval in --task retrieval --queries texts --documents texts --gold gold "
        "--sparse --threads 1 --json"),
    Row("eval-qa", "eval qa --task qa --data qa.json --predictions out.json --threads 1",
        ["out.json"], stdout=False),
    Row("eval-lm", "eval gpt2 --task lm --data play --threads 1", stdout=False),
    Row("eval-image", "eval vit --task image --data images-images-idx3-ubyte --threads 1",
        stdout=False),
    Row("generate", "generate llama --prompt abc --max-new 4 --threads 1 --quiet"),
    Row("generate-cache", "generate llama --prompt abc --max-new 4 --cache-dtype i8 --threads 1 "
        "--quiet"),
    Row("generate-chat", "generate talk --chat --prompt abc --max-new 4 --threads 1 --quiet"),
    Row("serve", "serve in head llama --documents texts --socket listens --sparse --threads 1 "
        "--json", between=["listens"], stdout=False, slow=True, asks=ASKS),
    Row("serve-threads", "serve in head llama --documents texts --socket listens --sparse "
        "--threads 1 --http-threads 4 --json", between=["listens"], stdout=False, slow=True,
        asks=ASKS),
    Row("serve-more", "serve words eyes talk late --documents texts --socket listens --threads 1 "
        "--json", between=["listens"], stdout=False, slow=True, asks=MORE_ASKS),
    Row("plan", "plan 4 64 64 --threads 1", stdout=False, slow=True),
    Row("bench", "bench --model in --batch 1 --seq 8 --rounds 1 --min-ms 1 --threads 1 --json",
        stdout=False, slow=True),
    Row("device-embed", "embed dense --input texts --output out.npy --device cuda --quiet",
        ["out.npy"], fake=True, slow=True),
    Row("device-generate", "generate llama --prompt abc --max-new 4 --device cuda --quiet",
        fake=True, slow=True),
    Row("api-prune", "dense out texts", ["out"], stdout=False, api=True),
    Row("api-embed", "in read write", stdout=False, api=True),
    Row("api-save", "out.safetensors", ["out.safetensors"], stdout=False, api=True),
    Row("api-multiply", "", stdout=False, api=True),
    Row("api-layer", "", stdout=False, api=True),
    Row("api-threads", "", stdout=False, api=True),
    Row("api-fork", "", stdout=False, api=True),
    Row("api-distil", "dense pruned out texts 2", ["out"], stdout=False, api=True, slow=True),
]
