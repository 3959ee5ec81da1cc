# SPDX-License-Identifier: Apache-2.0
"""Writes a small BERT of random weights as a Hugging Face folder, with nothing but the standard
library: enough for a tool to read, prune, pack and run."""
import array
import json
import pathlib
import random

WIDTH, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 32, 2, 2, 64, 160
WORDS = ("the a of to read write open close file directory memory process signal network time "
         "string number lock thread map sort find copy user group table line").split()
SPARSE = "sentence_transformers.sparse_encoder.models."
LATE_QUERY = 12  # tokens of a query of make_late


def vocabulary():
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    return (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters]
            + [w for w in WORDS if len(w) > 1])


def shapes(qa=False, words=False):
    """Name to shape of every tensor, as sentence-transformers stores a BertModel, or transformers
    a BertForQuestionAnswering or BertForMaskedLM."""
    found = {"embeddings.word_embeddings.weight": [len(vocabulary()), WIDTH],
             "embeddings.position_embeddings.weight": [POSITIONS, WIDTH],
             "embeddings.token_type_embeddings.weight": [2, WIDTH]}

    def linear(name, rows, cols):
        found[name + ".weight"], found[name + ".bias"] = [rows, cols], [rows]

    def norm(name):
        found[name + ".LayerNorm.weight"], found[name + ".LayerNorm.bias"] = [WIDTH], [WIDTH]

    norm("embeddings")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{layer}.attention.output")
        linear(f"{layer}.intermediate.dense", INTERMEDIATE, WIDTH)
        linear(f"{layer}.output.dense", WIDTH, INTERMEDIATE)
        norm(f"{layer}.output")
    if qa or words:
        found = {"bert." + name: shape for name, shape in found.items()}
    if qa:
        linear("qa_outputs", 2, WIDTH)
    elif words:
        linear("cls.predictions.transform.dense", WIDTH, WIDTH)
        norm("cls.predictions.transform")
        found["cls.predictions.bias"] = [len(vocabulary())]
    else:
        linear("pooler.dense", WIDTH, WIDTH)
    return found


def safetensors(tensors):
    """The bytes of a file with these f32 tensors: name to (shape, values)."""
    header, data = {}, b""
    for name in sorted(tensors):
        shape, values = tensors[name]
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def write(folder, seed=1, qa=False, fill=None, words=False):
    """Makes the folder, with a question-answering head in place of the pooler if so asked, or that
    of masked words, and SpladePooling; returns its path. fill: gives so many
    weights, in place of random ones."""
    folder = pathlib.Path(folder)
    (folder / "1_Pooling").mkdir(parents=True)
    chance = random.Random(seed)
    tensors = {}
    for name, shape in shapes(qa, words).items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        scale = 0.02 if len(shape) == 1 else 0.3
        tensors[name] = (shape, fill(count) if fill else
                         [chance.gauss(centre, scale) for _ in range(count)])
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    config = {"architectures": ["BertForQuestionAnswering" if qa else
                                "BertForMaskedLM" if words else "BertModel"],
              "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "intermediate_size": INTERMEDIATE, "max_position_embeddings": POSITIONS,
              "type_vocab_size": 2, "vocab_size": len(vocabulary()), "layer_norm_eps": 1e-12,
              "pad_token_id": 0, "position_embedding_type": "absolute"}
    modules = [{"idx": 0, "name": "0", "path": "",
                "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling"},
               {"idx": 2, "name": "2", "path": "2_Normalize",
                "type": "sentence_transformers.models.Normalize"}]
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False,
               "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    if words:
        modules = [{**modules[0], "type": SPARSE + "MLMTransformer"},
                   {**modules[1], "type": SPARSE + "SpladePooling"}]
        pooling = {"pooling_strategy": "max", "activation_function": "relu",
                   "word_embedding_dimension": None}
    for name, value in (("config.json", config), ("modules.json", modules),
                        ("1_Pooling/config.json", pooling),
                        ("sentence_bert_config.json", {"max_seq_length": 48}),
                        ("tokenizer_config.json", {"do_lower_case": True})):
        (folder / name).write_text(json.dumps(value))
    (folder / "vocab.txt").write_text("\n".join(vocabulary()) + "\n")
    return folder


def make_late(folder, out, seed=3):
    """Turns such a folder into PyLate's, of vectors of `out` numbers for each token."""
    chance = random.Random(seed)
    (folder / "1_Dense").mkdir()
    (folder / "1_Dense/model.safetensors").write_bytes(safetensors(
        {"linear.weight": ([out, WIDTH], [chance.gauss(0, 1) for _ in range(out * WIDTH)])}))
    dense = {"in_features": WIDTH, "out_features": out, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}
    modules = [{"idx": 0, "name": "0", "path": "",
                "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}]
    theirs = {"model_type": "ColBERT", "query_prefix": "z", "document_prefix": "the ",
              "query_length": LATE_QUERY, "document_length": 40, "similarity_fn_name": "MaxSim"}
    for name, value in (("1_Dense/config.json", dense), ("modules.json", modules),
                        ("config_sentence_transformers.json", theirs)):
        (folder / name).write_text(json.dumps(value))


def sentences(count, seed=2):
    """Distinct lines of known and unknown words."""
    chance = random.Random(seed)
    return [f"line {i}: " + " ".join(chance.choices(WORDS, k=chance.randint(3, 12)))
            for i in range(count)]
