# SPDX-License-Identifier: Apache-2.0
"""GGUF files for the tests, byte by byte: keys with values, and tensors of each type with the
values that they stand for."""
import random
import struct

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
# Types of tensors: number. K-quants have blocks of 256 elements, and want models of such sides.
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "IQ4_NL": 20,
         "BF16": 30, "MXFP4": 39}
LARGE_TYPES = {"Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_XS": 23,
               "TQ1_0": 34, "TQ2_0": 35}
NOT_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, given):
    if kind == STRING:
        return text(given)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind], given)


def entry(key, given):
    """A key with its value, whose kind its Python type says; (kind, list) is an array."""
    if isinstance(given, tuple):
        kind, elements = given
        raw = struct.pack("<IIQ", ARRAY, kind, len(elements))
        return text(key) + raw + b"".join(value(kind, e) for e in elements)
    kind = {bool: BOOL, int: U32, float: F32, str: STRING, bytes: STRING}[type(given)]
    return text(key) + struct.pack("<I", kind) + value(kind, given)


def info(name, shape, type_number, offset):
    raw = text(name) + struct.pack("<I", len(shape))
    raw += b"".join(struct.pack("<Q", side) for side in reversed(shape))
    return raw + struct.pack("<IQ", type_number, offset)


def file(keys, tensors, version=3, alignment=32):
    """tensors: name to (type, shape, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    out += b"".join(entry(k, v) for k, v in keys.items())
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        out += info(name, shape, (TYPES | LARGE_TYPES).get(kind, kind), len(data))
        data += raw + b"\0" * (-len(raw) % alignment)
    return out + b"\0" * (-len(out) % alignment) + data


def half(number):
    return struct.unpack("<e", struct.pack("<e", number))[0]


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def brain(number):
    return struct.unpack("<f", b"\0\0" + struct.pack("<f", number)[2:])[0]


def block(kind, chance):
    """32 elements: their bytes and what they stand for."""
    scale, base = half(chance.uniform(-0.1, 0.1)), half(chance.uniform(-1, 1))
    if kind == "Q8_0":
        numbers = [chance.randint(-128, 127) for _ in range(32)]
        return struct.pack("<e32b", scale, *numbers), [single(q * scale) for q in numbers]
    five = kind.startswith("Q5")
    numbers = [chance.randint(0, 31 if five else 15) for _ in range(32)]
    bits = bytes(numbers[i] & 15 | (numbers[16 + i] & 15) << 4 for i in range(16))
    if five:
        bits = struct.pack("<I", sum((q >> 4) << i for i, q in enumerate(numbers))) + bits
    if kind == "MXFP4":
        power = chance.choice([0, 1, 2, 100, 127, 150])
        return bytes([power]) + bits, [(-1) ** (q >> 3) * E2M1[q & 7] * 2.0 ** (power - 127)
                                       for q in numbers]
    if kind == "IQ4_NL":
        return struct.pack("<e", scale) + bits, [single(NOT_LINEAR[q] * scale) for q in numbers]
    if kind == "Q5_0":
        return struct.pack("<e", scale) + bits, [single((q - 16) * scale) for q in numbers]
    if kind == "Q4_0":
        return struct.pack("<e", scale) + bits, [single((q - 8) * scale) for q in numbers]
    return struct.pack("<ee", scale, base) + bits, \
        [single(single(q * scale) + base) for q in numbers]


def six_bits(scales, minima):
    """Eight scales and eight minima of 6 bits in 12 bytes."""
    raw = bytearray(12)
    for i in range(4):
        raw[i] = scales[i] | scales[4 + i] >> 4 << 6
        raw[4 + i] = minima[i] | minima[4 + i] >> 4 << 6
        raw[8 + i] = scales[4 + i] & 15 | (minima[4 + i] & 15) << 4
    return bytes(raw)


def few_bits(numbers):
    """The low two bits of 256 elements, of each half 32 bytes."""
    out = bytearray(64)
    for i, q in enumerate(numbers):
        out[i // 128 * 32 + i % 32] |= (q & 3) << i // 32 % 4 * 2
    return bytes(out)


def small_block(kind, chance):
    """256 elements of two or three bits: their bytes and what they stand for."""
    scale, base = half(chance.uniform(-0.01, 0.01)), half(chance.uniform(-0.01, 0.01))
    numbers = [chance.randrange(4 if kind == "Q2_K" else 8) for _ in range(256)]
    if kind == "Q2_K":
        scales, minima = ([chance.randrange(16) for _ in range(16)] for _ in range(2))
        raw = bytes(a | b << 4 for a, b in zip(scales, minima)) + few_bits(numbers)
        parts = [(single(scale * a), single(base * b)) for a, b in zip(scales, minima)]
        return raw + struct.pack("<ee", scale, base), \
            [single(single(parts[i // 16][0] * q) - parts[i // 16][1])
             for i, q in enumerate(numbers)]
    scales = [chance.randrange(64) for _ in range(16)]
    third = bytearray(32)
    for i, q in enumerate(numbers):
        third[i % 32] |= (q >> 2) << i // 32
    six = bytearray(12)
    for i, s in enumerate(scales):
        six[i % 8] |= (s & 15) << (4 if i >= 8 else 0)
        six[8 + i % 4] |= (s >> 4) << i // 4 * 2
    return bytes(third) + few_bits(numbers) + bytes(six) + struct.pack("<e", scale), \
        [single(single(scale * (scales[i // 16] - 32)) * (q - 4)) for i, q in enumerate(numbers)]


def ternary_block(kind, chance):
    """256 of −1, 0 and 1: their bytes and what they stand for."""
    scale = half(chance.uniform(-0.1, 0.1))
    numbers = [chance.randrange(3) for _ in range(256)]
    if kind == "TQ2_0":
        raw = few_bits(numbers)
    else:
        raw, left = b"", numbers
        for count, digits in ((32, 5), (16, 5), (4, 4)):
            for j in range(count):
                of = [left[j + count * d] for d in range(digits)] + [0] * (5 - digits)
                raw += bytes([-(-sum(q * 3 ** (4 - d) for d, q in enumerate(of)) * 256 // 243)])
            left = left[count * digits:]
    return raw + struct.pack("<e", scale), [(q - 1) * scale for q in numbers]


def not_linear_block(chance):
    """Eight parts of 32 numbers that are not linear, with scales of 6 bits."""
    scale, scales = half(chance.uniform(-0.001, 0.001)), [chance.randrange(64) for _ in range(8)]
    numbers = [chance.randrange(16) for _ in range(256)]
    high = sum((s >> 4) << 2 * i for i, s in enumerate(scales))
    low = sum((s & 15) << 4 * i for i, s in enumerate(scales))
    bits = bytes(numbers[32 * (i // 16) + i % 16] | numbers[32 * (i // 16) + 16 + i % 16] << 4
                 for i in range(128))
    return struct.pack("<eHI", scale, high, low) + bits, \
        [single(single(scale * (scales[i // 32] - 32)) * NOT_LINEAR[q])
         for i, q in enumerate(numbers)]


def large_block(kind, chance):
    """256 elements of a K-quant or its kin: their bytes and what they stand for."""
    if kind in ("Q2_K", "Q3_K"):
        return small_block(kind, chance)
    if kind == "IQ4_XS":
        return not_linear_block(chance)
    if kind in ("TQ1_0", "TQ2_0"):
        return ternary_block(kind, chance)
    scale, base = half(chance.uniform(-0.01, 0.01)), half(chance.uniform(-0.01, 0.01))
    numbers = [chance.randrange({"Q4_K": 16, "Q5_K": 32, "Q6_K": 64}[kind]) for _ in range(256)]
    if kind == "Q6_K":
        parts = [chance.randint(-128, 127) for _ in range(16)]
        low, high = bytearray(128), bytearray(64)
        for i, q in enumerate(numbers):
            at, quarter = i % 32, i // 32 % 4
            low[i // 128 * 64 + quarter % 2 * 32 + at] |= (q & 15) << quarter // 2 * 4
            high[i // 128 * 32 + at] |= q >> 4 << 2 * quarter
        raw = bytes(low) + bytes(high) + struct.pack("<16be", *parts, scale)
        return raw, [single(single(scale * parts[i // 16]) * (q - 32))
                     for i, q in enumerate(numbers)]
    scales, minima = ([chance.randrange(64) for _ in range(8)] for _ in range(2))
    low, high = bytearray(128), bytearray(32)
    for i, q in enumerate(numbers):
        low[i // 64 * 32 + i % 32] |= (q & 15) << i // 32 % 2 * 4
        high[i % 32] |= q >> 4 << i // 32
    raw = struct.pack("<ee", scale, base) + six_bits(scales, minima)
    raw += (bytes(high) if kind == "Q5_K" else b"") + bytes(low)
    parts = [(single(scale * a), single(base * b)) for a, b in zip(scales, minima)]
    return raw, [single(single(parts[i // 32][0] * q) - parts[i // 32][1])
                 for i, q in enumerate(numbers)]


def tensor(kind, shape, seed):
    """A random one: (type, shape, bytes), and the values that they stand for."""
    chance = random.Random(seed)
    count = 1
    for side in shape:
        count *= side
    if kind in ("F32", "F16", "BF16"):
        rounded = {"F32": single, "F16": half, "BF16": brain}[kind]
        values = [rounded(chance.uniform(-0.3, 0.3)) for _ in range(count)]
        form, size = ("<e", 2) if kind == "F16" else ("<f", 2 if kind == "BF16" else 4)
        raw = b"".join(struct.pack(form, v)[-size:] for v in values)
        return (kind, shape, raw), values
    large = kind in LARGE_TYPES
    blocks = [(large_block if large else block)(kind, chance)
              for _ in range(count // (256 if large else 32))]
    return (kind, shape, b"".join(raw for raw, _ in blocks)), [v for _, b in blocks for v in b]


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


# ---- models -----------------------------------------------------------------------------------

LETTERS = "abcdefgh\u0120"  # and the last one is a blank at byte level


def byte_tokenizer(pre="smollm", **more):
    """Letters, a merge, two special tokens."""
    tokens = ["<|end|>", "<|go|>", *LETTERS, "ab"]
    keys = {"model": "gpt2", "pre": pre, "tokens": (STRING, tokens),
            "token_type": (I32, [3, 4] + [1] * (len(tokens) - 2)), "merges": (STRING, ["a b"]),
            "bos_token_id": 1, "eos_token_id": 0, **more}
    return {f"tokenizer.ggml.{k}": v for k, v in keys.items() if v is not None}


# What a model of each architecture has besides that of a llama: keys (None: not that one).
MEAN = {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 1e-5}
WINDOW = {"attention.sliding_window": 8}
HEADS = {"attention.key_length": 16, "attention.value_length": 16}
EXPERTS = {"expert_count": 3, "expert_used_count": 2}
KEYS = {
    "gpt2": MEAN | {"attention.head_count_kv": None, "rope.freq_base": None,
                    "rope.dimension_count": None},
    "phi3": WINDOW | {"rope.scaling.original_context_length": 64, "rope.dimension_count": 8},
    "seed_oss": HEADS, "starcoder2": MEAN, "gemma": HEADS,
    "gemma2": HEADS | WINDOW | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": HEADS | WINDOW | {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    "granite": {"attention.scale": 0.125, "embedding_scale": 12.0, "residual_scale": 0.25,
                "logit_scale": 8.0},
    "phi2": MEAN | {"attention.head_count_kv": 4, "rope.dimension_count": 8,
                    "rope.freq_base": None},
    "gptneox": MEAN | {"attention.head_count_kv": None, "rope.dimension_count": 4,
                       "use_parallel_residual": True},
    "nemotron": MEAN | {"rope.dimension_count": 8, "rope.scaling.type": "none"},
    "stablelm": MEAN | {"rope.dimension_count": 4, "use_parallel_residual": False},
    "chatglm": {"rope.dimension_count": 8}, "glm4": {"rope.dimension_count": 8},
    "command-r": MEAN | {"logit_scale": 0.0625, "rope.scaling.type": "none"},
    "cohere2": MEAN | WINDOW | {"logit_scale": 0.0625, "vocab_size": 12},
    "mixtral": EXPERTS, "olmoe": EXPERTS,
    "qwen2moe": EXPERTS | {"expert_feed_forward_length": 32,
                           "expert_shared_feed_forward_length": 64},
    "qwen3moe": HEADS | EXPERTS | {"expert_feed_forward_length": 32},
    "dots1": HEADS | EXPERTS | {"expert_feed_forward_length": 32, "leading_dense_block_count": 0,
                                "expert_shared_count": 2, "expert_weights_scale": 2.5,
                                "expert_weights_norm": True},
    "ernie4_5-moe": HEADS | EXPERTS | {"expert_feed_forward_length": 32,
                                       "leading_dense_block_count": 0, "expert_shared_count": 2,
                                       "interleave_moe_layer_step": 1},
    "glm4moe": HEADS | EXPERTS | {"rope.dimension_count": 8, "expert_feed_forward_length": 32,
                                  "leading_dense_block_count": 0, "expert_shared_count": 2,
                                  "expert_weights_scale": 2.5, "expert_weights_norm": True,
                                  "expert_gating_func": 2, "nextn_predict_layers": 0},
    "deepseek2": EXPERTS | {
        "attention.head_count_kv": 1, "attention.q_lora_rank": 24, "attention.kv_lora_rank": 32,
        "attention.key_length": 40, "attention.value_length": 32, "attention.key_length_mla": 24,
        "attention.value_length_mla": 12, "rope.dimension_count": 8, "vocab_size": 12,
        "expert_feed_forward_length": 32, "leading_dense_block_count": 0, "expert_shared_count": 2,
        "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.0707},
    "granitemoe": EXPERTS | {"attention.scale": 0.125, "embedding_scale": 12.0,
                             "residual_scale": 0.25, "logit_scale": 8.0,
                             "expert_shared_feed_forward_length": 64},
    "gpt-oss": HEADS | WINDOW | EXPERTS | {
        "expert_feed_forward_length": 96, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 16}}
NAMED = {"mixtral": "llama"}  # architectures of GGUF that are several models


def keys(architecture, tokenizer=None, **more):
    given = {"block_count": 1, "context_length": 64, "embedding_length": 64,
             "feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": 2,
             "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 5000.0,
             "rope.dimension_count": 16}
    given |= KEYS.get(architecture, {}) | more
    architecture = NAMED.get(architecture, architecture)
    out = {"general.architecture": architecture,
           **{f"{architecture}.{k}": v for k, v in given.items() if v is not None}}
    return out | (byte_tokenizer() if tokenizer is None else tokenizer)


QUERY, GATE = ["attn_q", "attn_k", "attn_v"], ["ffn_gate", "ffn_up"]
SIDES = {"attn_qkv": [128, 64], "attn_q": [64, 64], "attn_k": [32, 64], "attn_v": [32, 64],
         "attn_output": [64, 64], "ffn_gate": [96, 64], "ffn_up": [96, 64], "ffn_down": [64, 96],
         "attn_q_norm": [16], "attn_k_norm": [16], "attn_norm": [64], "ffn_norm": [64],
         "post_attention_norm": [64], "post_ffw_norm": [64], "ffn_gate_inp": [3, 64],
         "ffn_gate_exps": [3, 96, 64], "ffn_up_exps": [3, 96, 64], "ffn_down_exps": [3, 64, 96],
         "ffn_gate_inp_shexp": [64], "ffn_gate_shexp": [64, 64], "ffn_up_shexp": [64, 64],
         "ffn_down_shexp": [64, 64], "exp_probs_b": [3], "attn_sinks": [4],
         "attn_q_a": [24, 64], "attn_q_a_norm": [24], "attn_q_b": [96, 24],
         "attn_kv_a_mqa": [40, 64], "attn_kv_a_norm": [32], "attn_k_b": [4, 32, 16],
         "attn_v_b": [4, 12, 32], "attn_kv_b": [112, 32]}
MIXED = ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]
SHARED = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]
SUMS = ["post_attention_norm", "post_ffw_norm"]
# Layers and norms of a block besides attn_output and ffn_down; what of them has biases; a head.
BLOCKS = {
    "llama": ([*QUERY, *GATE, "attn_norm", "ffn_norm"], (), 0),
    "qwen2": ([*QUERY, *GATE, "attn_norm", "ffn_norm"], QUERY, 0),
    "qwen3": ([*QUERY, *GATE, "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"], (), 0),
    "gpt2": (["attn_qkv", "ffn_up", "attn_norm", "ffn_norm"], "all", 0),
    "phi3": (["attn_qkv", "ffn_up", "attn_norm", "ffn_norm"], (), 1),
    "seed_oss": ([*QUERY, *GATE, "attn_norm", "post_attention_norm"], QUERY, 1),
    "arcee": ([*QUERY, "ffn_up", "attn_norm", "ffn_norm"], ("ffn_up", "ffn_down"), 1),
    "starcoder2": ([*QUERY, "ffn_up", "attn_norm", "ffn_norm"], "all", 0),
    "gemma2": ([*QUERY, *GATE, "attn_norm", "ffn_norm", *SUMS], (), 0),
    "gemma3": ([*QUERY, *GATE, "attn_norm", "ffn_norm", *SUMS, "attn_q_norm", "attn_k_norm"], (),
               0),
    "olmo2": ([*QUERY, *GATE, *SUMS, "attn_q_norm", "attn_k_norm"], (), 1),
    "phi2": ([*QUERY, "ffn_up", "attn_norm"], "all", 1),
    "gptneox": (["attn_qkv", "ffn_up", "attn_norm", "ffn_norm"], "all", 1),
    "nemotron": ([*QUERY, "ffn_up", "attn_norm", "ffn_norm"], ("attn_norm", "ffn_norm"), 1),
    "stablelm": ([*QUERY, *GATE, "attn_norm", "ffn_norm"], ("attn_norm", "ffn_norm"), 1),
    "chatglm": ([*QUERY, "ffn_up", "attn_norm", "ffn_norm"], QUERY, 1),
    "glm4": ([*QUERY, "ffn_up", "attn_norm", "ffn_norm", *SUMS], QUERY, 1),
    "command-r": ([*QUERY, *GATE, "attn_norm"], (), 0),
    "mixtral": ([*QUERY, *MIXED, "attn_norm", "ffn_norm"], (), 1),
    "olmoe": ([*QUERY, *MIXED, "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"], (), 1),
    "qwen2moe": ([*QUERY, *MIXED, "ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp",
                  "ffn_down_shexp", "attn_norm", "ffn_norm"], QUERY, 1),
    "qwen3moe": ([*QUERY, *MIXED, "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"], (), 1),
    "dots1": ([*QUERY, *MIXED, *SHARED, "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"],
              (), 1),
    "ernie4_5-moe": ([*QUERY, *MIXED, *SHARED, "attn_norm", "ffn_norm"], (), 1),
    "glm4moe": ([*QUERY, *MIXED, *SHARED, "attn_norm", "post_attention_norm", "attn_q_norm",
                 "attn_k_norm"], QUERY, 1),
    "deepseek2": (["attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_kv_a_mqa", "attn_kv_a_norm",
                   "attn_k_b", "attn_v_b", *MIXED, *SHARED, "attn_norm", "ffn_norm"], (), 1),
    "granitemoe": ([*QUERY, *MIXED, *SHARED, "attn_norm", "ffn_norm"], (), 0),
    "gpt-oss": ([*QUERY, *MIXED, "attn_norm", "post_attention_norm", "attn_sinks"],
                [*QUERY, *MIXED, "attn_output"], 1)}
AS = {"mistral3": "llama", "smollm3": "llama", "granite": "llama", "gemma": "llama",
      "cohere2": "command-r", "ernie4_5": "llama"}


def shapes(architecture, words=12):
    """Name to shape of a model of one block, as GGUF spells them."""
    layers, biased, head = BLOCKS[AS.get(architecture, architecture)]
    sides = dict(SIDES)
    if architecture in ("gpt2", "gptneox"):
        sides["attn_qkv"] = [192, 64]
    if architecture == "phi2":
        sides["attn_k"] = sides["attn_v"] = [64, 64]
    if architecture in ("phi3", "chatglm", "glm4"):
        sides["ffn_up"] = [192, 64]
    if architecture == "deepseek2":
        sides["attn_output"] = [64, 48]
    if architecture in ("qwen2moe", "qwen3moe", "dots1", "ernie4_5-moe", "glm4moe", "deepseek2"):
        sides |= {"ffn_gate_exps": [3, 32, 64], "ffn_up_exps": [3, 32, 64],
                  "ffn_down_exps": [3, 64, 32]}
    if architecture in ("olmo2", "olmoe"):
        sides |= {"attn_q_norm": [64], "attn_k_norm": [32]}
    out = {"token_embd.weight": [words, 64], "output_norm.weight": [64]}
    if architecture in ("dots1", "ernie4_5-moe", "glm4moe", "deepseek2"):
        out["blk.0.exp_probs_b.bias"] = sides["exp_probs_b"]
    outside = ["output_norm"]
    if head:
        out["output.weight"] = [words, 64]
    if architecture == "phi2":
        out["output.bias"] = [words]
    if architecture == "gpt2":
        out["position_embd.weight"] = [64, 64]
    # The order gives each its random numbers.
    first = [n for n in ("attn_norm", "ffn_norm", "attn_output", "ffn_up", "ffn_down")
             if n in layers or n == "attn_output" or (n == "ffn_down" and MIXED[0] not in layers)]
    for name in first + [n for n in [*QUERY, *layers] if n in layers and n not in first]:
        out[f"blk.0.{name}.weight"] = sides[name]
        if biased == "all" or name in biased:
            out[f"blk.0.{name}.bias"] = sides[name][:-1] or sides[name]
    if biased == "all" or architecture in ("stablelm", "nemotron"):
        out |= {f"{name}.bias": [64] for name in outside}
    return out


def model(architecture, kind="F32", seed=1, words=12):
    """Tensors of a model, matrices of that type and the rest F32; and name to values."""
    tensors, values = {}, {}
    for number, (name, shape) in enumerate(shapes(architecture, words).items()):
        of = kind if len(shape) > 1 and "gate_inp" not in name and "bias" not in name else "F32"
        tensors[name], values[name] = tensor(of, shape, 100 * seed + number)
    return tensors, values
