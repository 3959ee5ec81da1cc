# SPDX-License-Identifier: Apache-2.0
"""Makes the graphs that the engines read, in the environment `torch`.

    python export.py graphs DENSE PRUNED OUT     dense.onnx, sparse.onnx, dense-i8.onnx, check.json
    python export.py random NAME OUT             a folder of that shape with random weights

DENSE and PRUNED are Hugging Face folders of the same model, PRUNED with 2:4 weights (`sparse24
prune`). check.json holds texts cut at CHECK_TOKENS tokens, their ids (these alone, where DENSE has
no tokenizer), and the vectors that PyTorch computes of them with either's weights. NAME is one of
CONFIGS, as `sparse24 bench --model` knows it.
"""
import json
import pathlib
import sys

import torch
import transformers

from engines import INPUTS
from reference import Encoder

CONFIGS = {"bert-base": ("bert", {}),
           "mpnet-base": ("mpnet", {"max_position_embeddings": 514}),
           "xlm-r-base": ("xlm-roberta", {"vocab_size": 250002, "max_position_embeddings": 514,
                                          "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
           "modernbert": ("modernbert", {}),
           "distilbert": ("distilbert", {})}
CHECK_TOKENS = 32
CHECK_TEXTS = 16


def export(folder, path):
    ids = torch.ones(2, 16, dtype=torch.long)
    axes = {name: {0: "texts", 1: "tokens"} for name in INPUTS}
    # DeepSparse reads operator sets up to 14; every engine gets the same graph.
    torch.onnx.export(Encoder(folder), (ids, ids, ids * 0), str(path), input_names=list(axes),
                      output_names=["vectors"], dynamic_axes=axes, opset_version=14, dynamo=False)


def quantize(out):
    """Weights i8, activations u8 by their range in each run. The plain graph: quantised after a
    fusion of its attention it was 11 to 25 % slower, and f32 fused 5 to 19 % (ONNX Runtime fuses
    what it can by itself when it loads either)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(out / "dense.onnx"), str(out / "dense-i8.onnx"),
                     weight_type=QuantType.QInt8)


def check_texts():
    """Long stretches of this project's own words."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    words = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split()
    return [" ".join(words[40 * i:40 * i + 40]) for i in range(CHECK_TEXTS)]


def drawn_ids():
    torch.manual_seed(1)
    return torch.randint(1000, 29000, (CHECK_TEXTS, CHECK_TOKENS)).tolist()


def check(dense, pruned):
    texts, ids = None, drawn_ids()
    if (dense / "tokenizer.json").exists():
        tokenizer, texts = transformers.AutoTokenizer.from_pretrained(dense), check_texts()
        ids = [tokenizer(t, truncation=True, max_length=CHECK_TOKENS)["input_ids"] for t in texts]
        assert all(len(i) == CHECK_TOKENS for i in ids)
    inputs = torch.tensor(ids)
    found = {"texts": texts, "ids": ids, "tokens": CHECK_TOKENS}
    for weights, folder in (("dense", dense), ("2:4", pruned)):
        with torch.inference_mode():
            vectors = Encoder(folder)(inputs, torch.ones_like(inputs), torch.zeros_like(inputs))
        found[weights] = vectors.tolist()
    return found


def graphs(dense, pruned, out):
    dense, pruned, out = map(pathlib.Path, (dense, pruned, out))
    out.mkdir(parents=True, exist_ok=True)
    export(dense, out / "dense.onnx")
    export(pruned, out / "sparse.onnx")
    quantize(out)
    (out / "check.json").write_text(json.dumps(check(dense, pruned)), encoding="utf-8")


def random(name, out):
    kind, keys = CONFIGS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **keys)
    transformers.AutoModel.from_config(config).save_pretrained(out)


if __name__ == "__main__":
    {"graphs": graphs, "random": random}[sys.argv[1]](*sys.argv[2:])
