# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face folder of stories260K, a trained Llama of 260,000 weights in llama2.c's
first file format, and of its 512 pieces in SentencePiece's. With nothing but the standard
library."""
import array
import json
import struct

import gguf_data
import tiny_bert


def halves(matrix, rows, cols, heads):
    """Rotary pairs stand side by side there, and half a head apart in a Hugging Face folder."""
    head = rows // heads
    out = array.array("f")
    for h in range(heads):
        for part in (0, 1):
            for i in range(head // 2):
                row = h * head + 2 * i + part
                out.extend(matrix[row * cols:(row + 1) * cols])
    return out


def weights(raw, paired=False):
    """config.json and the tensors: name to (shape, values); paired: rows stay side by side."""
    width, inner, layers, heads, kv_heads, vocabulary, positions = struct.unpack("<7i", raw[:28])
    numbers = memoryview(raw)[28:].cast("f")
    at = 0

    def take(count):
        nonlocal at
        at += count
        return numbers[at - count:at]

    kv = width // heads * kv_heads
    tensors = {"model.embed_tokens.weight": ([vocabulary, width], take(vocabulary * width))}
    for name, rows, cols in (
            ("input_layernorm", width, 0), ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", kv, width), ("self_attn.v_proj", kv, width),
            ("self_attn.o_proj", width, width), ("post_attention_layernorm", width, 0),
            ("mlp.gate_proj", inner, width), ("mlp.down_proj", width, inner),
            ("mlp.up_proj", inner, width)):
        for layer in range(layers):
            values = take(rows * max(cols, 1))
            if name.endswith(("q_proj", "k_proj")) and not paired:
                values = halves(values, rows, cols, rows * heads // width)
            tensors[f"model.layers.{layer}.{name}.weight"] = ([rows, cols] if cols else [rows],
                                                              values)
    tensors["model.norm.weight"] = ([width], take(width))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "hidden_act": "silu",
              "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": True}
    return config, tensors


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def pieces(raw):
    """tokenizer.model of llama2.c's file of scores and texts."""
    out, at, number = b"", 4, 0
    special = {0: ("<unk>", 2), 1: ("<s>", 3), 2: ("</s>", 3)}
    while at < len(raw):
        score, size = struct.unpack("<fi", raw[at:at + 8])
        text = raw[at + 8:at + 8 + size].decode()
        text, kind = special.get(number, (text.replace(" ", "\u2581"), 6 if number < 259 else 1))
        text = text.encode()
        piece = b"\x0a" + varint(len(text)) + text + b"\x15" + struct.pack("<f", score)
        piece += b"\x18" + bytes([kind])
        out += b"\x0a" + varint(len(piece)) + piece
        at += 8 + size
        number += 1
    # BPE with bytes for what is unknown; white space is kept.
    return out + b"\x12\x05\x18\x02\x98\x02\x01" + b"\x1a\x02\x20\x00"


def write(folder, model, tokens):
    config, tensors = weights(model.read_bytes())
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))
    (folder / "tokenizer.model").write_bytes(pieces(tokens.read_bytes()))


def gguf(model, tokens):
    """The same model as a GGUF file; llama2.c's rows lie as GGUF's do."""
    config, tensors = weights(model.read_bytes(), paired=True)
    raw, at, given = tokens.read_bytes(), 4, []
    while at < len(raw):
        score, size = struct.unpack("<fi", raw[at:at + 8])
        given.append((raw[at + 8:at + 8 + size].decode().replace(" ", "\u2581"), score))
        at += 8 + size
    texts = ["<unk>", "<s>", "</s>", *(text for text, _ in given[3:])]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(texts) - 259)
    keys = {"general.architecture": "llama", "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": (gguf_data.STRING, texts),
            "tokenizer.ggml.scores": (gguf_data.F32, [score for _, score in given]),
            "tokenizer.ggml.token_type": (gguf_data.I32, kinds), "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}
    keys |= {f"llama.{key}": config[name] for key, name in (
        ("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"),
        ("block_count", "num_hidden_layers"), ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("context_length", "max_position_embeddings"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta"))}
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "o_proj": "attn_output", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v",
             "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    out = {}
    for name, (shape, values) in tensors.items():
        stem = name.removesuffix(".weight")
        place = names.get(stem) or f"blk.{stem.split('.')[2]}.{parts[stem.split('.')[-1]]}"
        out[place + ".weight"] = ("F32", shape, bytes(memoryview(values).cast("B")))
    return gguf_data.file(keys, out)
