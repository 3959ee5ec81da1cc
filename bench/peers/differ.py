#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse24 and transformers on random models: the same hidden states and logits, or a refusal.
Not needed by anything else: what it found has become tests.

    python bench/peers/differ.py [--rows bert,llama…] [--models 200] [--seed 0]

Run by a Python that has torch, transformers and sparse24. For every model row it draws
configurations (sizes, heads, activations, windows, positions, ties, biases), makes the model with
random weights, saves it as transformers does, and runs both on texts of several lengths: dense in
f32, and pruned to 2:4 and packed in f32, bf16 and i8, next to transformers with the pruned weights
in f32. A model that sparse24 refuses is counted by its sentence, and is no fault. One that it takes
must agree, as a share of the largest value, in f32 to 1e-4 everywhere, in bf16 to 0.02 and in i8 to
0.05 in the median. Exits with 1 where one does not; --seed and the model's number make it again.

Which experts a token takes is a choice by rank, and where the last that is taken and the first that
is not score alike, rounding decides it, in transformers too. A model that differs is looked at once
more: from the first token on whose scores lie so near each other (TIE), a text's tokens are left
out. What agrees then is told as a tie, with how near the scores lay, and is no fault.

Neither is what rounding alone explains, which is told with both distances. In f32 we may be SLACK
times as far from transformers in f64 as its own f32 is. In bf16 and i8 we may be SLACK times as far
from it as it is from itself once the operands of its products are rounded so, and where the logits
are FEW, as of a head of texts, this and the limit are for the states of all tokens: a median of a
few numbers says little.
"""
import argparse
import collections
import contextlib
import copy
import pathlib
import re
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers
from transformers.models.phimoe import modeling_phimoe

import sparse24

ACTIVATIONS = ["gelu", "relu", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu2",
               "swish", "quick_gelu"]
TIE = 1e-5  # of the largest score: what roundings of f32 come to in some blocks
FEW = 200  # numbers
LIMITS = {"dense": 1e-4, "f32": 1e-4, "bf16": 0.02, "i8": 0.05}
SLACK = {"dense": 4, "f32": 4, "bf16": 2, "i8": 2}


def wide(width):
    """The size of weights that leave what a layer of such a width is given about as large."""
    return 1.2 / width ** 0.5


def common(draw):
    """What BERT's kin call their sizes."""
    heads = draw.choice([1, 2, 3, 4, 6, 12])
    width = heads * draw.choice([8, 16, 20, 32, 64])
    return {"vocab_size": draw.integer(40, 400), "num_hidden_layers": draw.integer(1, 4),
            "hidden_size": width, "num_attention_heads": heads,
            "intermediate_size": draw.integer(1, 60) * 4, "hidden_act": draw.choice(ACTIVATIONS),
            "max_position_embeddings": draw.integer(70, 200), "type_vocab_size": draw.integer(1, 3),
            "layer_norm_eps": draw.choice([1e-12, 1e-5, 1e-2]), "initializer_range": wide(width)}


def bert(draw):
    return transformers.BertConfig(**common(draw)), transformers.BertModel


def roberta(draw):
    return transformers.RobertaConfig(**common(draw), pad_token_id=draw.choice([0, 1, 2])), \
        transformers.RobertaModel


def xlm_roberta(draw):
    return transformers.XLMRobertaConfig(**common(draw)), transformers.XLMRobertaModel


def camembert(draw):
    return transformers.CamembertConfig(**common(draw)), transformers.CamembertModel


def data2vec_text(draw):
    return transformers.Data2VecTextConfig(**common(draw)), transformers.Data2VecTextModel


def ernie(draw):
    return transformers.ErnieConfig(
        **common(draw), use_task_id=draw.choice([False, False, True])), transformers.ErnieModel


def luke(draw):
    return transformers.LukeConfig(**common(draw), entity_vocab_size=9, entity_emb_size=8), \
        transformers.LukeModel


def splinter(draw):
    return transformers.SplinterConfig(**common(draw)), transformers.SplinterModel


def rembert(draw):
    return transformers.RemBertConfig(
        **common(draw), input_embedding_size=draw.choice([8, 24, 100]), output_embedding_size=8), \
        transformers.RemBertModel


def roformer(draw):
    return transformers.RoFormerConfig(
        **common(draw), embedding_size=draw.choice([None, 8, 24]),
        rotary_value=draw.choice([False, False, False, True])), transformers.RoFormerModel


def bert_generation(draw):
    sizes = common(draw)
    del sizes["type_vocab_size"]
    return transformers.BertGenerationConfig(**sizes), transformers.BertGenerationEncoder


def megatron_bert(draw):
    return transformers.MegatronBertConfig(**common(draw)), transformers.MegatronBertModel


def xlm_roberta_xl(draw):
    return transformers.XLMRobertaXLConfig(**common(draw)), transformers.XLMRobertaXLModel


def roberta_prelayernorm(draw):
    return transformers.RobertaPreLayerNormConfig(**common(draw)), \
        transformers.RobertaPreLayerNormModel


def esm(draw):
    sizes = common(draw)
    del sizes["type_vocab_size"], sizes["hidden_act"]
    return transformers.EsmConfig(
        **sizes, position_embedding_type=draw.choice(["rotary", "rotary", "rotary", "absolute"]),
        token_dropout=draw.flag(), mask_token_id=draw.integer(2, 9), pad_token_id=1), \
        transformers.EsmModel


def electra(draw):
    sizes = common(draw)
    sizes["embedding_size"] = draw.choice([sizes["hidden_size"], 8, 24, 100])
    return transformers.ElectraConfig(**sizes), transformers.ElectraModel


def distilbert(draw):
    sizes = common(draw)
    return transformers.DistilBertConfig(
        vocab_size=sizes["vocab_size"], dim=sizes["hidden_size"],
        n_layers=sizes["num_hidden_layers"], n_heads=sizes["num_attention_heads"],
        hidden_dim=sizes["intermediate_size"], activation=draw.choice(["gelu", "relu"]),
        max_position_embeddings=sizes["max_position_embeddings"],
        initializer_range=wide(sizes["hidden_size"]),
        sinusoidal_pos_embds=draw.choice([False, False, True])), transformers.DistilBertModel


def mpnet(draw):
    sizes = common(draw)
    del sizes["type_vocab_size"]
    return transformers.MPNetConfig(
        **sizes, relative_attention_num_buckets=draw.choice([32, 32, 64]),
        pad_token_id=1), transformers.MPNetModel


def modernbert(draw):
    sizes = common(draw)
    del sizes["type_vocab_size"], sizes["layer_norm_eps"]
    sizes["hidden_activation"] = sizes.pop("hidden_act")
    return transformers.ModernBertConfig(
        **sizes, norm_eps=draw.choice([1e-5, 1e-3]), global_attn_every_n_layers=draw.integer(1, 4),
        local_attention=draw.choice([4, 16, 128]), attention_bias=draw.flag(), mlp_bias=draw.flag(),
        norm_bias=draw.flag(), reference_compile=False, bos_token_id=1, eos_token_id=2,
        pad_token_id=0, cls_token_id=1, sep_token_id=2), transformers.ModernBertModel


def nomic_bert(draw):
    sizes = common(draw)
    return transformers.NomicBertConfig(
        **{**sizes, "hidden_act": draw.choice(["silu", "silu", "gelu", "relu"])},
        rope_parameters={"rope_type": "default", "rope_theta": draw.choice([1000.0, 10000.0])}), \
        transformers.NomicBertModel


def rotated(draw, sizes):
    """Rotary positions of an encoder, static NTK scaling as GTE's linear one among them."""
    theta = draw.choice([10000.0, 160000.0])
    return draw.choice([{"rope_type": "default", "rope_theta": theta},
                        {"rope_type": "linear", "rope_theta": 2 * theta, "factor": 2 ** 0.25}])


def gte(draw):
    sizes = common(draw)
    sizes["type_vocab_size"] = draw.integer(0, 2)
    return transformers.GteConfig(**sizes, rope_parameters=rotated(draw, sizes)), \
        transformers.GteModel


def jina_v3(draw):
    sizes = common(draw)
    return transformers.JinaEmbeddingsV3Config(**sizes, rope_parameters=rotated(draw, sizes)), \
        transformers.JinaEmbeddingsV3Model


def t5_sizes(draw):
    sizes = common(draw)
    return {"vocab_size": sizes["vocab_size"], "num_layers": sizes["num_hidden_layers"],
            "d_model": 4 * draw.integer(2, 60), "num_heads": sizes["num_attention_heads"],
            "d_kv": draw.choice([8, 16, 20, 32, 64]), "d_ff": sizes["intermediate_size"],
            "relative_attention_num_buckets": draw.choice([32, 32, 8, 20]),
            "relative_attention_max_distance": draw.choice([128, 128, 20]),
            "layer_norm_epsilon": draw.choice([1e-6, 1e-3]),
            "initializer_factor": draw.choice([0.3, 1.0])}


def t5(draw):
    return transformers.T5Config(
        **t5_sizes(draw), feed_forward_proj=draw.choice(["relu", "gated-gelu"])), \
        transformers.T5EncoderModel


def mt5(draw):
    return transformers.MT5Config(**t5_sizes(draw)), transformers.MT5EncoderModel


def umt5(draw):
    return transformers.UMT5Config(**t5_sizes(draw)), transformers.UMT5EncoderModel


def albert(draw):
    sizes = common(draw)
    return transformers.AlbertConfig(
        **sizes, embedding_size=draw.choice([sizes["hidden_size"], 8, 24, 100]),
        num_hidden_groups=draw.choice([1, 1, 1, 2]), hidden_dropout_prob=0,
        classifier_dropout_prob=0), transformers.AlbertModel


def deberta_v2(draw):
    sizes = common(draw)
    sizes["type_vocab_size"] = draw.choice([0, 0, 2])
    ways = draw.choice([["p2c", "c2p"], ["c2p"], ["p2c"], "c2p|p2c"])
    return transformers.DebertaV2Config(
        **sizes, relative_attention=True, share_att_key=draw.choice([True, True, True, False]),
        position_buckets=draw.choice([-1, 8, 32, 256]), pos_att_type=ways,
        max_relative_positions=draw.choice([-1, -1, 200]),
        norm_rel_ebd=draw.choice(["layer_norm", "none"]), position_biased_input=False), \
        transformers.DebertaV2Model


def vit(draw):
    sizes = common(draw)
    patch = draw.choice([4, 8, 14, 16])
    return transformers.ViTConfig(
        hidden_size=sizes["hidden_size"], num_hidden_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"], hidden_act=sizes["hidden_act"],
        intermediate_size=sizes["intermediate_size"], layer_norm_eps=sizes["layer_norm_eps"],
        initializer_range=wide(sizes["hidden_size"]), image_size=patch * draw.integer(1, 6),
        patch_size=patch, num_channels=draw.choice([1, 3, 4]), num_labels=draw.integer(2, 9)), \
        transformers.ViTForImageClassification


def imaged(draw):
    """What ViT's kin call their sizes."""
    sizes = common(draw)
    patch = draw.choice([4, 8, 14])
    return {**{key: sizes[key] for key in ("hidden_size", "num_hidden_layers",
                                           "num_attention_heads", "hidden_act",
                                           "intermediate_size", "layer_norm_eps")},
            "image_size": patch * draw.integer(1, 6), "patch_size": patch,
            "num_channels": draw.choice([1, 3, 4])}


def deit(draw):
    return transformers.DeiTConfig(**imaged(draw), initializer_range=0.1), transformers.DeiTModel


def vit_msn(draw):
    return transformers.ViTMSNConfig(**imaged(draw), initializer_range=0.1), \
        transformers.ViTMSNModel


def ijepa(draw):
    return transformers.IJepaConfig(**imaged(draw), initializer_range=0.1), transformers.IJepaModel


def dino(draw):
    sizes = imaged(draw)
    del sizes["intermediate_size"]
    return {**sizes, "mlp_ratio": draw.integer(1, 4), "use_swiglu_ffn": draw.flag(),
            "initializer_range": 0.1, "layerscale_value": draw.choice([1.0, 0.1])}


def dinov2(draw):
    return transformers.Dinov2Config(**dino(draw)), transformers.Dinov2Model


def dinov2_with_registers(draw):
    return transformers.Dinov2WithRegistersConfig(
        **dino(draw), num_register_tokens=draw.integer(0, 5)), transformers.Dinov2WithRegistersModel


def dinov3_vit(draw):
    sizes = imaged(draw)
    heads = sizes["num_attention_heads"]
    return transformers.DINOv3ViTConfig(
        **{**sizes, "hidden_size": heads * draw.choice([8, 16, 20, 64])}, initializer_range=0.1,
        num_register_tokens=draw.integer(0, 5), use_gated_mlp=draw.flag(), key_bias=draw.flag(),
        query_bias=draw.flag(), mlp_bias=draw.flag(), rope_theta=draw.choice([100.0, 10000.0]),
        layerscale_value=draw.choice([1.0, 0.1])), transformers.DINOv3ViTModel


def longformer(draw):
    sizes = common(draw)
    return transformers.LongformerConfig(
        **sizes, attention_window=[2 * draw.integer(1, 40)] * sizes["num_hidden_layers"],
        pad_token_id=1), transformers.LongformerModel


def clip_vision(draw):
    return transformers.CLIPVisionConfig(**imaged(draw), initializer_factor=5.0), \
        transformers.CLIPVisionModel


def siglip_vision(draw):
    return transformers.SiglipVisionConfig(**imaged(draw)), transformers.SiglipVisionModel


def clip_text(draw):
    sizes = common(draw)
    del sizes["type_vocab_size"], sizes["initializer_range"]
    return transformers.CLIPTextConfig(
        **sizes, eos_token_id=draw.choice([2, 9]), initializer_factor=5.0), \
        transformers.CLIPTextModel


def gpt2(draw):
    sizes = common(draw)
    return transformers.GPT2Config(
        vocab_size=sizes["vocab_size"], n_embd=sizes["hidden_size"],
        n_layer=sizes["num_hidden_layers"], n_head=sizes["num_attention_heads"],
        n_inner=draw.choice([None, sizes["intermediate_size"]]),
        n_positions=sizes["max_position_embeddings"],
        activation_function=draw.choice(["gelu_new", "relu", "gelu", "silu", "gelu_pytorch_tanh"]),
        layer_norm_epsilon=sizes["layer_norm_eps"],
        initializer_range=wide(sizes["hidden_size"]),
        scale_attn_weights=draw.choice([True, True, True, False]),
        scale_attn_by_inverse_layer_idx=draw.choice([False, False, False, True]),
        tie_word_embeddings=draw.flag(), bos_token_id=0, eos_token_id=0), \
        transformers.GPT2LMHeadModel


def gpt_neo(draw):
    sizes = common(draw)
    layers = sizes["num_hidden_layers"]
    types = draw.choice([[[["global", "local"], 2]], [[["local", "local", "global"], 2]],
                         [[["global"], 4]], [[["local"], 4]]])
    return transformers.GPTNeoConfig(
        vocab_size=sizes["vocab_size"], hidden_size=sizes["hidden_size"], num_layers=4
        if layers != 3 else sum(len(names) * times for names, times in types),
        attention_types=types if layers == 3 else [[["global", "local"], 2]],
        num_heads=sizes["num_attention_heads"],
        intermediate_size=draw.choice([None, sizes["intermediate_size"]]),
        max_position_embeddings=sizes["max_position_embeddings"],
        window_size=draw.choice([3, 16, 256]), activation_function=draw.choice(ACTIVATIONS),
        layer_norm_epsilon=sizes["layer_norm_eps"],
        initializer_range=0.3 * wide(sizes["hidden_size"]), bos_token_id=0, eos_token_id=0), \
        transformers.GPTNeoForCausalLM


def sees_all(row, kind):
    """A language model's row whose tokens see later ones too."""
    def draw_all(draw):
        config = row(draw)[0]
        config.is_causal = False
        config.sliding_window = None
        config.use_sliding_window = False
        if getattr(config, "layer_types", None):
            config.layer_types = ["full_attention"] * config.num_hidden_layers
        return config, getattr(transformers, kind)
    draw_all.__name__ = row.__name__ + "_all"
    return draw_all


def opt(draw):
    sizes = common(draw)
    width = sizes["hidden_size"]
    return transformers.OPTConfig(
        vocab_size=sizes["vocab_size"], hidden_size=width, ffn_dim=sizes["intermediate_size"],
        num_hidden_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        max_position_embeddings=sizes["max_position_embeddings"], init_std=wide(width),
        activation_function=draw.choice(["relu", "relu", "gelu"]), enable_bias=draw.flag(),
        word_embed_proj_dim=draw.choice([None, width, width, 8]),
        do_layer_norm_before=draw.choice([True, True, True, False]),
        tie_word_embeddings=draw.flag()), transformers.OPTForCausalLM


def rope(draw, positions):
    """rope_parameters of the kinds that published models have."""
    theta = draw.choice([10000.0, 500000.0, 1e6])
    kind = draw.choice(["default", "default", "linear", "llama3", "yarn", "dynamic"])
    found = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        found["factor"] = draw.choice([2.0, 8.0, 1.5])
    if kind == "llama3":
        found.update(low_freq_factor=1.0, high_freq_factor=4.0,
                     original_max_position_embeddings=positions // 2)
    if kind == "yarn":
        found["original_max_position_embeddings"] = positions // 2
    return found


def decoder(draw):
    heads = draw.choice([1, 2, 4, 6, 8])
    kv = draw.choice([h for h in range(1, heads + 1) if heads % h == 0])
    head = draw.choice([8, 16, 32, 64])
    width = draw.choice([heads * head, 4 * draw.integer(2, 40)])
    positions = draw.integer(70, 300)
    sizes = {"vocab_size": draw.integer(40, 400),
             "hidden_size": width, "num_attention_heads": heads,
             "num_key_value_heads": kv, "head_dim": head, "num_hidden_layers": draw.integer(1, 4),
             "intermediate_size": 4 * draw.integer(1, 60), "max_position_embeddings": positions,
             "rms_norm_eps": draw.choice([1e-6, 1e-5, 1e-2]), "initializer_range": wide(width),
             "hidden_act": draw.choice(["silu", "silu", "gelu", "relu", "gelu_pytorch_tanh"]),
             "tie_word_embeddings": draw.flag(), "bos_token_id": 1, "eos_token_id": 2,
             "rope_parameters": rope(draw, positions)}
    return sizes


def llama(draw):
    return transformers.LlamaConfig(**decoder(draw), attention_bias=draw.choice([False, True]),
                                    mlp_bias=draw.choice([False, False, True])), \
        transformers.LlamaForCausalLM


def mistral(draw):
    return transformers.MistralConfig(**decoder(draw), sliding_window=draw.choice(
        [None, 4, 17, 64])), transformers.MistralForCausalLM


def ministral(draw):
    sizes = decoder(draw)
    kinds = ["full_attention"] * draw.integer(0, sizes["num_hidden_layers"])
    kinds += ["sliding_attention"] * (sizes["num_hidden_layers"] - len(kinds))
    return transformers.MinistralConfig(**sizes, sliding_window=draw.choice([4, 17, 64]),
                                        layer_types=kinds), transformers.MinistralForCausalLM


def seed_oss(draw):
    return transformers.SeedOssConfig(
        **decoder(draw), attention_bias=draw.flag(), attention_out_bias=draw.flag(),
        mlp_bias=draw.flag()), transformers.SeedOssForCausalLM


def headed_by_width(draw):
    """Sizes of models whose heads share the width."""
    sizes = decoder(draw)
    sizes["hidden_size"] = sizes["num_attention_heads"] * sizes.pop("head_dim")
    return sizes


def long_rope(draw, sizes):
    """rope_parameters that Phi 3 may have, for texts that are no longer than those at first."""
    positions = sizes["max_position_embeddings"]
    found = {"rope_type": "default", "rope_theta": 10000.0,
             "original_max_position_embeddings": positions}
    if draw.flag():
        pairs = sizes["hidden_size"] // sizes["num_attention_heads"] // 2
        factors = [1 + i * 0.1 for i in range(pairs)]
        found |= {"rope_type": "longrope", "short_factor": factors,
                  "long_factor": [2 * f for f in factors]}
        sizes["max_position_embeddings"] = 4 * positions
    return found


def phi3(draw):
    sizes = headed_by_width(draw)
    sizes["rope_parameters"] = long_rope(draw, sizes)
    return transformers.Phi3Config(
        **sizes, pad_token_id=0,
        sliding_window=draw.choice([None, 4, 33])), transformers.Phi3ForCausalLM


def arcee(draw):
    sizes = decoder(draw)
    sizes["hidden_act"] = draw.choice(["relu2", "relu2", "silu", "gelu"])
    return transformers.ArceeConfig(**sizes, attention_bias=draw.flag(), mlp_bias=draw.flag()), \
        transformers.ArceeForCausalLM


def smollm3(draw):
    sizes = headed_by_width(draw)
    layers = [draw.integer(0, 1) for _ in range(sizes["num_hidden_layers"])]
    return transformers.SmolLM3Config(
        **sizes, pad_token_id=0, attention_bias=draw.flag(), mlp_bias=draw.flag(),
        no_rope_layers=draw.choice([None, layers]),
        no_rope_layer_interval=draw.choice([2, 4])), transformers.SmolLM3ForCausalLM


def starcoder2(draw):
    sizes = headed_by_width(draw)
    sizes["norm_epsilon"] = sizes.pop("rms_norm_eps")
    return transformers.Starcoder2Config(
        **sizes, use_bias=draw.flag(),
        sliding_window=draw.choice([None, 4, 33])), transformers.Starcoder2ForCausalLM


def eurobert(draw):
    return transformers.EuroBertConfig(
        **decoder(draw), pad_token_id=0, mask_token_id=2, attention_bias=draw.flag(),
        mlp_bias=draw.flag()), transformers.EuroBertModel


def slides(draw, sizes):
    return {"use_sliding_window": draw.flag(), "sliding_window": draw.choice([5, 16, 64]),
            "max_window_layers": draw.integer(0, sizes["num_hidden_layers"])}


def qwen2(draw):
    sizes = headed_by_width(draw)
    return transformers.Qwen2Config(**sizes, **slides(draw, sizes)), transformers.Qwen2ForCausalLM


def qwen3(draw):
    sizes = decoder(draw)
    return transformers.Qwen3Config(**sizes, **slides(draw, sizes), attention_bias=draw.flag()), \
        transformers.Qwen3ForCausalLM


def kinds(draw, layers):
    """What each block attends to, or None for the usual order."""
    return draw.choice([None, [draw.choice(["full_attention", "sliding_attention"])
                               for _ in range(layers)]])


def windows(draw, sizes):
    return {"sliding_window": draw.choice([4, 17, 64]),
            "layer_types": kinds(draw, sizes["num_hidden_layers"])}


def gemma(draw):
    """Its first files say gelu and were trained with the other one, which sparse24 takes."""
    sizes = decoder(draw)
    if sizes["hidden_act"] == "gelu":
        sizes["hidden_act"] = "gelu_pytorch_tanh"
    return transformers.GemmaConfig(**sizes), transformers.GemmaForCausalLM


def gemma_since_2(draw):
    sizes = decoder(draw)
    heads = sizes["num_attention_heads"]
    sizes["hidden_size"] = heads * draw.integer(3, 40)
    sizes["num_hidden_layers"] = draw.integer(1, 8)
    sizes["hidden_activation"] = sizes.pop("hidden_act")
    return {**sizes, **windows(draw, sizes), "attention_bias": draw.choice([False, False, True]),
            "query_pre_attn_scalar": draw.choice([16, 256, 7]),
            "attn_logit_softcapping": draw.choice([None, 50.0, 2.0]),
            "final_logit_softcapping": draw.choice([None, 30.0, 1.5])}


def gemma2(draw):
    return transformers.Gemma2Config(**gemma_since_2(draw)), transformers.Gemma2ForCausalLM


def gemma3(draw):
    sizes = gemma_since_2(draw)
    rope_of = {"full_attention": sizes.pop("rope_parameters"),
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    both = draw.choice([False, False, True])
    if both:
        sizes["attn_logit_softcapping"] = None
        sizes["use_bidirectional_attention"] = True
    return transformers.Gemma3TextConfig(**sizes, rope_parameters=rope_of), \
        transformers.Gemma3TextModel if both else transformers.Gemma3ForCausalLM


def granite(draw):
    sizes = headed_by_width(draw)
    return transformers.GraniteConfig(
        **sizes, attention_bias=draw.flag(), mlp_bias=draw.flag(),
        embedding_multiplier=draw.choice([1.0, 12.0]), logits_scaling=draw.choice([1.0, 8.0]),
        residual_multiplier=draw.choice([1.0, 0.22]),
        attention_multiplier=draw.choice([0.0078125, 0.3])), transformers.GraniteForCausalLM


def granitemoehybrid(draw):
    config, _ = granite(draw)
    sizes = {name: value for name, value in config.to_dict().items()
             if name in transformers.GraniteMoeHybridConfig().to_dict() and name != "model_type"}
    return transformers.GraniteMoeHybridConfig(**sizes | {
        "layer_types": ["attention"] * sizes["num_hidden_layers"], "num_local_experts": 0,
        "num_experts_per_tok": 0, "shared_intermediate_size": 4 * draw.integer(1, 40),
        "mamba_n_heads": 1, "mamba_d_head": 2 * sizes["hidden_size"],
        "position_embedding_type": draw.choice(["rope", "nope"])}), \
        transformers.GraniteMoeHybridForCausalLM


def olmo2(draw):
    return transformers.Olmo2Config(**headed_by_width(draw), attention_bias=draw.flag()), \
        transformers.Olmo2ForCausalLM


def olmo3(draw):
    sizes = headed_by_width(draw)
    theta = sizes["rope_parameters"]["rope_theta"]
    sizes["rope_parameters"] = {"full_attention": sizes["rope_parameters"],
                                "sliding_attention": {"rope_type": "default", "rope_theta": theta}}
    return transformers.Olmo3Config(**sizes, **windows(draw, sizes), pad_token_id=0,
                                    attention_bias=draw.flag()), transformers.Olmo3ForCausalLM


def ministral3(draw):
    sizes = decoder(draw)
    sizes["rope_parameters"] = {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 90, "llama_4_scaling_beta": 0.1}
    return transformers.Ministral3Config(**sizes, sliding_window=draw.choice([None, 17])), \
        transformers.Ministral3ForCausalLM


def cwm(draw):
    sizes = decoder(draw)
    return transformers.CwmConfig(**sizes, **windows(draw, sizes)), transformers.CwmForCausalLM


def exaone4(draw):
    sizes = headed_by_width(draw)
    return transformers.Exaone4Config(
        **sizes, sliding_window=draw.choice([None, 5, 40]),
        sliding_window_pattern=draw.choice([2, 4])), transformers.Exaone4ForCausalLM


def vaultgemma(draw):
    return transformers.VaultGemmaConfig(**gemma_since_2(draw)), transformers.VaultGemmaForCausalLM


def hunyuan(draw):
    sizes = decoder(draw)
    if draw.flag():
        sizes["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0,
                                    "factor": 1.0}
    return transformers.HunYuanDenseV1Config(**sizes, attention_bias=draw.flag(), pad_token_id=0), \
        transformers.HunYuanDenseV1ForCausalLM


def helium(draw):
    return transformers.HeliumConfig(
        **headed_by_width(draw), pad_token_id=0, attention_bias=draw.flag(),
        mlp_bias=draw.flag()), transformers.HeliumForCausalLM


def ernie4_5(draw):
    return transformers.Ernie4_5Config(**decoder(draw), use_bias=draw.flag(), pad_token_id=0), \
        transformers.Ernie4_5ForCausalLM


def nemotron(draw):
    sizes = decoder(draw)
    sizes["norm_eps"] = sizes.pop("rms_norm_eps")
    sizes["hidden_act"] = draw.choice(["relu2", "relu2", "gelu"])
    sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0,
                                "partial_rotary_factor": draw.choice([0.5, 1.0])}
    return transformers.NemotronConfig(**sizes, attention_bias=draw.flag(), mlp_bias=draw.flag(),
                                       pad_token_id=0), transformers.NemotronForCausalLM


def partial(draw, sizes):
    """Positions that turn a part of each head."""
    sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0,
                                "partial_rotary_factor": draw.choice([0.25, 0.5, 1.0])}
    return sizes


def normed_by_mean(draw):
    sizes = partial(draw, headed_by_width(draw))
    sizes["layer_norm_eps"] = sizes.pop("rms_norm_eps")
    return sizes


def phi(draw):
    return transformers.PhiConfig(**normed_by_mean(draw)), transformers.PhiForCausalLM


def stablelm(draw):
    return transformers.StableLmConfig(
        **normed_by_mean(draw), use_qkv_bias=draw.flag(),
        use_parallel_residual=draw.choice([False, False, True])), transformers.StableLmForCausalLM


def gpt_neox(draw):
    sizes = normed_by_mean(draw)
    del sizes["num_key_value_heads"]
    return transformers.GPTNeoXConfig(
        **sizes, attention_bias=draw.flag(),
        use_parallel_residual=draw.choice([True, True, False])), transformers.GPTNeoXForCausalLM


def glm(draw):
    return transformers.GlmConfig(**partial(draw, decoder(draw)), pad_token_id=0,
                                  attention_bias=draw.flag()), transformers.GlmForCausalLM


def glm4(draw):
    return transformers.Glm4Config(**partial(draw, decoder(draw)), pad_token_id=0,
                                   attention_bias=draw.flag()), transformers.Glm4ForCausalLM


def cohere_sizes(draw):
    sizes = headed_by_width(draw)
    sizes["layer_norm_eps"] = sizes.pop("rms_norm_eps")
    return {**sizes, "logit_scale": draw.choice([0.0625, 1.0]), "attention_bias": draw.flag()}


def cohere(draw):
    return transformers.CohereConfig(**cohere_sizes(draw)), transformers.CohereForCausalLM


def cohere2(draw):
    sizes = cohere_sizes(draw)
    return transformers.Cohere2Config(**sizes, **windows(draw, sizes)), \
        transformers.Cohere2ForCausalLM


def experts(draw, sizes, count, used):
    """How many experts, by their names in a configuration, and how many a token takes."""
    sizes[count] = draw.choice([1, 2, 5, 8, 17])
    sizes[used] = draw.integer(1, min(sizes[count], 6))
    return sizes


def some_blocks(draw, sizes):
    """Experts of a width of their own, in some of the blocks."""
    layers = sizes["num_hidden_layers"]
    sizes |= {"moe_intermediate_size": 4 * draw.integer(1, 30),
              "decoder_sparse_step": draw.choice([1, 1, 2]),
              "mlp_only_layers": draw.choice([[], [], [layers - 1]]),
              "norm_topk_prob": draw.flag()}
    return sizes


def mixtral(draw):
    return transformers.MixtralConfig(
        **experts(draw, decoder(draw), "num_local_experts", "num_experts_per_tok"),
        sliding_window=draw.choice([None, 4, 17])), transformers.MixtralForCausalLM


def qwen2_moe(draw):
    sizes = some_blocks(draw, headed_by_width(draw))
    return transformers.Qwen2MoeConfig(
        **experts(draw, sizes, "num_experts", "num_experts_per_tok"), qkv_bias=draw.flag(),
        shared_expert_intermediate_size=4 * draw.integer(1, 40)), \
        transformers.Qwen2MoeForCausalLM


def qwen3_moe(draw):
    return transformers.Qwen3MoeConfig(
        **experts(draw, some_blocks(draw, decoder(draw)), "num_experts", "num_experts_per_tok"),
        attention_bias=draw.flag()), transformers.Qwen3MoeForCausalLM


def olmoe(draw):
    return transformers.OlmoeConfig(
        **experts(draw, headed_by_width(draw), "num_experts", "num_experts_per_tok"),
        norm_topk_prob=draw.flag()), transformers.OlmoeForCausalLM


def flex_olmo(draw):
    return transformers.FlexOlmoConfig(
        **experts(draw, headed_by_width(draw), "num_experts", "num_experts_per_tok"),
        norm_topk_prob=draw.flag(), pad_token_id=None), transformers.FlexOlmoForCausalLM


def granitemoe(draw):
    return transformers.GraniteMoeConfig(
        **experts(draw, headed_by_width(draw), "num_local_experts", "num_experts_per_tok"),
        embedding_multiplier=draw.choice([1.0, 12.0]), residual_multiplier=draw.choice([1.0, 0.22]),
        attention_multiplier=draw.choice([0.25, 0.0625]), logits_scaling=draw.choice([1.0, 6.0])), \
        transformers.GraniteMoeForCausalLM


def granitemoeshared(draw):
    config, _ = granitemoe(draw)
    return transformers.GraniteMoeSharedConfig(
        **{name: value for name, value in config.to_diff_dict().items() if name != "model_type"},
        shared_intermediate_size=4 * draw.integer(0, 40)), \
        transformers.GraniteMoeSharedForCausalLM


def ernie4_5_moe(draw):
    sizes = experts(draw, headed_by_width(draw), "moe_num_experts", "moe_k")
    return transformers.Ernie4_5_MoeConfig(
        **sizes, moe_intermediate_size=4 * draw.integer(1, 30),
        moe_num_shared_experts=draw.integer(0, 2), moe_layer_start_index=draw.integer(0, 2),
        moe_layer_interval=draw.choice([1, 1, 2])), transformers.Ernie4_5_MoeForCausalLM


def scored(draw, sizes):
    """Experts that are scored by a sigmoid, from some block on."""
    sizes = experts(draw, sizes, "n_routed_experts", "num_experts_per_tok")
    sizes["n_routed_experts"] += sizes["n_routed_experts"] == 1  # two make a group's score
    return sizes | {
        "moe_intermediate_size": 4 * draw.integer(1, 30), "n_shared_experts": draw.integer(1, 2),
        "first_k_dense_replace": draw.integer(0, 2), "norm_topk_prob": draw.flag(),
        "routed_scaling_factor": draw.choice([1.0, 2.5]), "attention_bias": draw.flag()}


def glm4_moe(draw):
    return transformers.Glm4MoeConfig(**scored(draw, decoder(draw)), use_qk_norm=draw.flag()), \
        transformers.Glm4MoeForCausalLM


def dots1(draw):
    return transformers.Dots1Config(**scored(draw, decoder(draw)),
                                    sliding_window=draw.choice([None, 17])), \
        transformers.Dots1ForCausalLM


def latents(draw, sizes):
    """Attention over latents, of queries too or not, with positions that turn faster or louder."""
    sizes.pop("head_dim", None)
    sizes |= {"num_key_value_heads": sizes["num_attention_heads"],
              "q_lora_rank": draw.choice([None, 12, 32]), "kv_lora_rank": draw.choice([8, 20, 48]),
              "qk_rope_head_dim": draw.choice([2, 8, 16]), "qk_nope_head_dim": draw.choice([4, 16]),
              "v_head_dim": draw.choice([4, 12, 16])}
    if draw.flag():
        sizes["rope_parameters"] = {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": draw.choice([4.0, 40.0]),
            "original_max_position_embeddings": 16, "mscale": draw.choice([0.707, 1.0]),
            "mscale_all_dim": draw.choice([0.707, 1.0])}
    return sizes


def grouped(draw, sizes):
    """Groups of experts, of which a token's are taken."""
    groups = draw.choice([1, 2, 4])
    sizes |= {"n_routed_experts": groups * draw.choice([2, 4]), "n_group": groups,
              "topk_group": draw.integer(1, groups)}
    each = sizes["n_routed_experts"] // groups
    sizes["num_experts_per_tok"] = draw.integer(1, min(6, each * sizes["topk_group"]))
    return sizes


def deepseek_v2(draw):
    sizes = grouped(draw, latents(draw, scored(draw, headed_by_width(draw))))
    sizes["norm_topk_prob"] = False
    return transformers.DeepseekV2Config(
        **sizes, topk_method=draw.choice(["greedy", "group_limited_greedy"])), \
        transformers.DeepseekV2ForCausalLM


def deepseek_v3(draw):
    return transformers.DeepseekV3Config(
        **grouped(draw, latents(draw, scored(draw, headed_by_width(draw)))),
        rope_interleave=draw.choice([True, True, False])), transformers.DeepseekV3ForCausalLM


def glm4_moe_lite(draw):
    sizes = latents(draw, scored(draw, headed_by_width(draw)))
    layers = sizes["num_hidden_layers"]
    kinds = [draw.choice(["dense", "sparse"]) for _ in range(layers)]
    return transformers.Glm4MoeLiteConfig(**sizes, mlp_layer_types=kinds), \
        transformers.Glm4MoeLiteForCausalLM


def youtu(draw):
    return transformers.YoutuConfig(**latents(draw, headed_by_width(draw)),
                                    attention_bias=draw.flag()), transformers.YoutuForCausalLM


def gpt_oss(draw):
    sizes = experts(draw, decoder(draw), "num_local_experts", "num_experts_per_tok")
    if draw.flag():
        sizes["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                                    "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                    "original_max_position_embeddings": 16}
    return transformers.GptOssConfig(**sizes, sliding_window=draw.choice([5, 40])), \
        transformers.GptOssForCausalLM


def minicpm3(draw):
    return transformers.MiniCPM3Config(
        **latents(draw, headed_by_width(draw)), scale_emb=draw.choice([1, 12]),
        scale_depth=draw.choice([1.0, 1.4]), dim_model_base=draw.choice([16, 256])), \
        transformers.MiniCPM3ForCausalLM


def hyperclovax(draw):
    return transformers.HyperCLOVAXConfig(
        **decoder(draw), use_post_norm=draw.flag(), embedding_multiplier=draw.choice([1.0, 10.0]),
        residual_multiplier=draw.choice([1.0, 0.3]), logits_scaling=draw.choice([1.0, 0.125]),
        attention_multiplier=draw.choice([None, 0.0625])), transformers.HyperCLOVAXForCausalLM


def solar_open(draw):
    sizes = scored(draw, decoder(draw))
    for name in ("intermediate_size", "first_k_dense_replace"):
        del sizes[name]
    return transformers.SolarOpenConfig(**sizes), transformers.SolarOpenForCausalLM


def hunyuan_v1_moe(draw):
    return transformers.HunYuanMoEV1Config(
        **experts(draw, decoder(draw), "num_experts", "moe_topk"), pad_token_id=0), \
        transformers.HunYuanMoEV1ForCausalLM


def minimax_m2(draw):
    sizes = partial(draw, decoder(draw))
    return transformers.MiniMaxM2Config(
        **experts(draw, sizes, "num_local_experts", "num_experts_per_tok")), \
        transformers.MiniMaxM2ForCausalLM


def phimoe(draw):
    sizes = experts(draw, headed_by_width(draw), "num_local_experts", "num_experts_per_tok")
    sizes |= {"num_local_experts": draw.choice([2, 5, 16]), "num_experts_per_tok": 2}
    sizes["rope_parameters"] = long_rope(draw, sizes)
    if sizes["rope_parameters"]["rope_type"] == "longrope":
        sizes["rope_parameters"] |= {"short_mscale": 1.25, "long_mscale": 1.4}
    return transformers.PhimoeConfig(
        **sizes, attention_bias=draw.flag(), lm_head_bias=draw.flag(),
        router_jitter_noise=draw.choice([0.01, 0.2]), sliding_window=draw.choice([None, 17])), \
        transformers.PhimoeForCausalLM


def sighted(texts):
    """A model of images and texts, of whose texts the row draws the configuration."""
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    wholes = {"gemma3_text": ("Gemma3Config", "Gemma3ForConditionalGeneration"),
              "mistral": ("Mistral3Config", "Mistral3ForConditionalGeneration"),
              "llama": ("LlavaConfig", "LlavaForConditionalGeneration"),
              "qwen2": ("InternVLConfig", "InternVLForConditionalGeneration"),
              "cohere2": ("AyaVisionConfig", "AyaVisionForConditionalGeneration")}

    def draw_sighted(draw):
        inner = texts(draw)[0]
        inner.use_bidirectional_attention = False
        # transformers forgets these in models of images; ours carry them out
        inner.final_logit_softcapping = None
        inner.logit_scale = 1.0
        config, kind = wholes[inner.model_type]
        if inner.model_type in ("mistral", "llama"):
            vision["model_type"] = "pixtral" if inner.model_type == "mistral" else \
                "clip_vision_model"
        sizes = {"text_config": inner.to_dict(), "tie_word_embeddings": inner.tie_word_embeddings}
        made = getattr(transformers, config)(
            **sizes, vision_config={**vision, "projection_dim": 32})
        made.initializer_range = inner.initializer_range
        return made, getattr(transformers, kind)
    draw_sighted.__name__ = texts.__name__ + "_sighted"
    return draw_sighted


def qwen_sighted(kind):
    """Qwen's models of images and texts, whose positions have three parts."""
    def draw_qwen(draw):
        sizes = decoder(draw) if kind.startswith("Qwen3VL") else headed_by_width(draw)
        if kind == "Qwen3VLMoe":
            sizes = experts(draw, sizes, "num_experts", "num_experts_per_tok")
            sizes["moe_intermediate_size"] = 4 * draw.integer(1, 30)
        head = sizes.get("head_dim", sizes["hidden_size"] // sizes["num_attention_heads"])
        thirds = [head // 2 - 2 * (head // 6), head // 6, head // 6]
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0,
                                    "mrope_section": thirds}
        tied = sizes["tie_word_embeddings"]
        vision = {"depth": 1, "hidden_size": 32, "embed_dim": 32, "num_heads": 2,
                  "intermediate_size": 32, "out_hidden_size": sizes["hidden_size"],
                  "deepstack_visual_indexes": [0]}
        config = getattr(transformers, kind + "Config")(
            text_config=sizes, vision_config=vision, tie_word_embeddings=tied)
        return config, getattr(transformers, kind + "ForConditionalGeneration")
    draw_qwen.__name__ = kind
    return draw_qwen


def classes(row, head):
    """The row's configurations with a head that classifies texts or tokens, in place of its own."""
    def draw_classes(draw):
        config, _ = row(draw)
        config.num_labels = draw.integer(1, 5)
        config.pad_token_id = draw.choice([None, 4, 5])
        if hasattr(config, "classifier_pooling"):
            config.classifier_pooling = draw.choice(["bos", "mean", "late"])
        return config, getattr(transformers, head)
    draw_classes.__name__ = head
    return draw_classes


ROWS = [bert, roberta, xlm_roberta, camembert, electra, distilbert, mpnet, modernbert, gpt2,
        gpt_neo, llama,
        mistral, qwen2, qwen3, nomic_bert, gte, jina_v3, t5, mt5, umt5, albert, deberta_v2, vit,
        deit, vit_msn, ijepa, dinov2, dinov2_with_registers, dinov3_vit, clip_vision, siglip_vision,
        clip_text, longformer, data2vec_text, ernie, luke, splinter, rembert, roformer,
        bert_generation, megatron_bert,
        xlm_roberta_xl, roberta_prelayernorm, esm, eurobert, opt, ministral,
        phi3, seed_oss, arcee, starcoder2, smollm3, gemma, gemma2, gemma3, granite,
        granitemoehybrid, olmo2, phi,
        olmo3, helium, ernie4_5, nemotron, ministral3, cwm, exaone4, vaultgemma, hunyuan,
        stablelm, gpt_neox, glm, glm4, cohere, cohere2,
        mixtral, qwen2_moe, qwen3_moe, olmoe, flex_olmo, granitemoe, granitemoeshared,
        ernie4_5_moe, glm4_moe, dots1, minimax_m2, phimoe, deepseek_v2,
        deepseek_v3, glm4_moe_lite, youtu, gpt_oss, minicpm3, hyperclovax, solar_open,
        hunyuan_v1_moe,
        *(sighted(row) for row in (gemma3, mistral, llama, qwen2, cohere2)),
        *(qwen_sighted(kind) for kind in ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3VLMoe")),
        *(sees_all(row, kind) for row, kind in (
            (llama, "LlamaModel"), (mistral, "MistralModel"), (qwen2, "Qwen2Model"),
            (qwen3, "Qwen3Model"))),
        *(classes(row, head) for row, head in (
            (llama, "LlamaForSequenceClassification"), (qwen2, "Qwen2ForSequenceClassification"),
            (qwen3, "Qwen3ForTokenClassification"), (gpt2, "GPT2ForSequenceClassification"),
            (opt, "OPTForSequenceClassification"),
            (eurobert, "EuroBertForSequenceClassification"),
            (eurobert, "EuroBertForTokenClassification"),
            (nomic_bert, "NomicBertForSequenceClassification"),
            (albert, "AlbertForSequenceClassification"),
            (deberta_v2, "DebertaV2ForSequenceClassification"),
            (deberta_v2, "DebertaV2ForTokenClassification"),
            (gte, "GteForSequenceClassification"), (gte, "GteForTokenClassification"),
            (jina_v3, "JinaEmbeddingsV3ForSequenceClassification")))]


class Draw:
    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def integer(self, low, high):
        return int(self.random.integers(low, high + 1))

    def choice(self, values):
        return values[self.integer(0, len(values) - 1)]

    def flag(self):
        return bool(self.integer(0, 1))


def stir(model, draw):
    """Biases and norms that are not the zeros and ones that they begin as."""
    torch.manual_seed(draw.integer(0, 1 << 30))
    for value in model.parameters():
        if value.dim() == 1:
            with torch.no_grad():
                value.add_(torch.randn_like(value) * 0.1)
    for name, value in [*model.named_buffers(), *model.named_parameters()]:
        with torch.no_grad():
            if name.endswith("correction_bias"):
                value.copy_(torch.randn_like(value) * 0.1)
            elif value.is_floating_point() and value.dim() == 2 and not value.any():
                # a router of equal scores
                value.copy_(torch.randn_like(value) * wide(value.shape[1]))


POOLED = {"clip_vision_model", "clip_text_model", "siglip_vision_model"}


def pooled_of(model, texts):
    """The vectors that towers of texts and images make, of length 1."""
    rows = []
    for text in texts:
        given = {"pixel_values": torch.tensor(text[None])} if isinstance(text, numpy.ndarray) \
            else {"input_ids": torch.tensor([text])}
        with torch.no_grad():
            rows.append(torch.nn.functional.normalize(model(**given).pooler_output))
    return rows


@contextlib.contextmanager
def put(*places):
    """Other values of attributes for a while: of (object, name, value) each."""
    before = [getattr(of, name) for of, name, _ in places]
    try:
        for of, name, value in places:
            setattr(of, name, value)
        yield
    finally:
        for (of, name, _), value in zip(places, before):
            setattr(of, name, value)


def watched_ranks(near):
    """Notes in `near`, {token of the text: distance}, how near a token's last expert that is taken
    is to the first that is not, as a share of the largest score: the least of all blocks."""
    plain, mixed = torch.topk, modeling_phimoe.sparsemixer

    def note(gaps):
        for token, gap in enumerate(gaps.tolist()):
            near[token] = min(near.get(token, 1.0), gap)

    def watched(scores, k, *rest, **more):
        if scores.is_floating_point() and scores.dim() == 2 and k < scores.shape[-1]:
            best = plain(scores.detach().double(), k + 1).values
            note((best[:, k - 1] - best[:, k]) / best.abs().amax(1).clamp_min(1e-30))
        return plain(scores, k, *rest, **more)

    def watched_borders(scores, jitter_eps, *rest, **more):
        note(borders_of(scores.detach().double(), jitter_eps))
        return mixed(scores, jitter_eps, *rest, **more)
    return put((torch, "topk", watched), (torch.Tensor, "topk", watched),
               (modeling_phimoe, "sparsemixer", watched_borders))


def borders_of(scores, jitter):
    """phimoe's two experts, one after the other: how near the best one is to the next, and how near
    any is to the border within which it counts in the weight of the best one."""
    near = torch.ones(len(scores), dtype=scores.dtype)
    for _ in range(2):
        best, chosen = scores.max(-1, keepdim=True)
        scores = scores.scatter(-1, chosen, float("-inf"))
        size = scores.abs().clamp(min=best)
        shares = ((best - scores) / size).where(scores.isfinite(), torch.inf)
        for gap in (shares, (shares - 2 * jitter).abs()):
            near = torch.minimum(near, gap.amin(-1))
    return near


def ties_of(model, texts):
    """Of each text how many tokens come before the first whose experts are a tie, and the least
    distance between scores."""
    clear, least = [], 1.0
    for text in texts:
        near = {}
        with watched_ranks(near), torch.no_grad():
            model(input_ids=torch.tensor([text]))
        tied = [token for token, gap in near.items() if gap < TIE]
        clear.append(min(tied, default=len(text)))
        least = min(least, *near.values(), 1.0)
    return clear, least


def expected_of(model, texts):
    """Hidden states and logits of each text alone; of images their logits, or their last states."""
    rows = []
    for text in texts:
        with torch.no_grad():
            if isinstance(text, numpy.ndarray):
                out = model(pixel_values=torch.tensor(text[None]).to(model.dtype))
                states = None if "logits" in out else out.last_hidden_state[0]
                rows.append((states, out.get("logits")))
                continue
            out = model(input_ids=torch.tensor([text]), output_hidden_states=True)
            if model.config.model_type in POOLED:
                rows.append((out.last_hidden_state[0], None))
                continue
        logits = out.logits.reshape(-1, out.logits.shape[-1]) if "logits" in out else None
        rows.append((out.hidden_states[-1][0], logits))
    return rows


def found_by(model, texts, name):
    if isinstance(texts[0], numpy.ndarray):
        found = model.forward_images(numpy.stack(texts), outputs=(name,))[name]
        return found.reshape(-1, found.shape[-1])
    return model.forward(texts, outputs=(name,))[name]


def joined(rows):
    return numpy.concatenate([row.double().numpy() for row in rows])


def distance(ours, theirs, middle):
    """The largest difference, or the median one, as a share of the largest value."""
    theirs = joined(theirs)
    far = numpy.abs(ours - theirs)
    return float((numpy.median(far) if middle else far.max()) / max(numpy.abs(theirs).max(), 1e-6))


def is_tie(way, found, rows, model, texts):
    """Does a model that differs agree with transformers before the first tie of each text? Then how
    near scores lay, else None."""
    if isinstance(texts[0], numpy.ndarray) or len(found) != sum(map(len, texts)):
        return None
    clear, least = ties_of(model, texts)
    if clear == list(map(len, texts)):
        return None
    starts = numpy.cumsum([0] + [len(text) for text in texts])
    ours = numpy.concatenate([found[start:start + n] for start, n in zip(starts, clear)])
    theirs = [row[:n] for row, n in zip(rows, clear)]
    if len(ours) and not distance(ours, theirs, way not in ("dense", "f32")) < LIMITS[way]:
        return None
    return least


def rounded(values, way):
    """A matrix's rows as products in bf16 or i8 read them."""
    if way == "bf16":
        return values.bfloat16().to(values.dtype)
    scales = (values.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
    return (values / scales).round() * scales


def rounding_products(way):
    """Products of transformers whose operands are rounded, and whose results are bf16."""
    linear, addmm = torch.nn.functional.linear, torch.addmm

    def rounded_linear(x, weight, bias=None):
        return rounded(linear(rounded(x, way), rounded(weight, way), bias), "bf16")

    def rounded_addmm(bias, x, weight):
        return rounded_linear(x, weight.T, bias)
    return put((torch.nn.functional, "linear", rounded_linear), (torch, "addmm", rounded_addmm))


def is_rounding(way, ours, name, model, texts):
    """How far a model that differs is from transformers, and how far rounding moves transformers,
    where that explains the first, else None."""
    found = found_by(ours, texts, name)
    exactly = way in ("dense", "f32")
    if found.size < FEW and not exactly and not isinstance(texts[0], numpy.ndarray):
        name, found = "hidden", found_by(ours, texts, "hidden")

    def rows_of(model):
        return [row[name == "logits"] for row in expected_of(model, texts)]
    theirs = rows_of(model)
    if exactly:
        exact = rows_of(copy.deepcopy(model).double())
        far, moved = (distance(values, exact, False) for values in (found, joined(theirs)))
        return (far, moved) if far <= SLACK[way] * moved else None
    with rounding_products(way):
        moved = distance(joined(rows_of(model)), theirs, True)
    far = distance(found, theirs, True)
    return (far, moved) if far < max(LIMITS[way], SLACK[way] * moved) else None


def texts_for(config, positions, draw):
    """Ids, or images, [channels, side, side] each."""
    if hasattr(config, "image_size"):
        shape = (config.num_channels, config.image_size, config.image_size)
        return [draw.random.standard_normal(shape).astype("f4")
                for _ in range(draw.integer(1, 4))]
    longest = min(positions, 260)
    lengths = [draw.integer(1, longest) for _ in range(draw.integer(1, 4))] + [longest]
    vocabulary = config.get_text_config().vocab_size
    texts = [[draw.integer(3, vocabulary - 1) for _ in range(n)] for n in lengths]
    padding = getattr(config.get_text_config(), "pad_token_id", None)
    if draw.choice([False, False, False, True]) and isinstance(padding, int) and padding >= 0:
        for text in texts:
            text[draw.integer(0, len(text) - 1)] = padding
    return texts


def stack_experts(folder):
    """Granite's and gpt-oss's experts are one tensor to transformers, one each to sparse24."""
    path = folder / "model.safetensors"
    stacks, tensors = collections.defaultdict(dict), {}
    for name, value in safetensors.torch.load_file(path).items():
        match = re.fullmatch(r"(.*block_sparse_moe\.\w+_linear)\.(\d+)\.weight", name)
        if match:
            stacks[match[1] + ".weight"][int(match[2])] = value
            continue
        match = re.fullmatch(r"(.*mlp\.experts)\.(\d+)\.(gate_up_proj|down_proj)\.weight", name)
        if match:
            stacks[f"{match[1]}.{match[3]}"][int(match[2])] = value
        else:
            tensors[name] = value
    for name, parts in stacks.items():
        tensors[name] = torch.stack([parts[i] for i in range(len(parts))])
    if stacks:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def compare(config, kind, draw, folder):
    """Returns the distance of each way to run, and where that is no fault of ours what explains it:
    how near scores lay where a tie parts them, or two distances where rounding does."""
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    torch.manual_seed(draw.integer(0, 1 << 30))
    model = kind._from_config(config, **eager).eval()
    stir(model, draw)
    model.save_pretrained(folder / "dense")
    ours = sparse24.Model(folder / "dense", dtype="f32", dense=True)
    texts, far, explained = texts_for(config, ours.info["positions"], draw), {}, {}

    def judge(way, ours, rows, model):
        found = found_by(ours, texts, name)
        far[way] = distance(found, rows, way not in ("dense", "f32"))
        if far[way] < LIMITS[way]:
            return
        cause = is_tie(way, found, rows, model, texts)
        if cause is None:
            cause = is_rounding(way, ours, name, model, texts)
        if cause is not None:
            explained[way] = cause
    expected = expected_of(model, texts)
    is_language = expected[0][1] is not None
    name = "logits" if is_language else "hidden"
    rows = [row[is_language] for row in expected]
    judge("dense", ours, rows, model)
    if config.model_type in POOLED:
        pooled = distance(found_by(ours, texts, "embeddings"), pooled_of(model, texts), False)
        far["dense"] = max(far["dense"], pooled)
    if draw.flag():
        return far, explained
    sparse24.prune_model(folder / "dense", folder / "pruned")
    sparse24.prune_model(folder / "dense", folder / "packed", packed=True)
    stack_experts(folder / "pruned")
    pruned = kind.from_pretrained(folder / "pruned", **eager).eval()
    rows = [row[is_language] for row in expected_of(pruned, texts)]
    for dtype in ("f32", "bf16", "i8"):
        sparse = sparse24.Model(folder / "packed", dtype=dtype, all_sparse=True)
        judge(dtype, sparse, rows, pruned)
    return far, explained


def run_row(row, options):
    refused, told, worst, faults = collections.Counter(), collections.Counter(), {}, 0
    for number in range(options.first, options.first + options.models):
        draw = Draw((options.seed, ROWS.index(row), number))
        with tempfile.TemporaryDirectory() as folder:
            try:
                config, kind = row(draw)
                far, explained = compare(config, kind, draw, pathlib.Path(folder))
            except Exception as error:  # of either; what Python says is not ours
                refused[f"{type(error).__name__}: {error}".replace(folder, "…")[:150]] += 1
                continue
            for way, distance_of_way in far.items():
                if way not in explained:
                    worst[way] = max(worst.get(way, 0), distance_of_way)
            for cause in {"rounding" if isinstance(of, tuple) else "a tie"
                          for of in explained.values()}:
                told[cause] += 1
            if explained:
                print(f"{row.__name__} {number}: {far}, explained by {explained}", flush=True)
            if any(not of < LIMITS[way] and way not in explained for way, of in far.items()):
                faults += 1
                print(f"{row.__name__} {number}: {far}\n{config.to_diff_dict()}", flush=True)
    count = options.models - sum(refused.values())
    farthest = ", ".join(f"{way} {of:.2g}" for way, of in worst.items())
    print(f"{row.__name__}: {count} ran, farthest {farthest}; {faults} differ, "
          f"{told['a tie']} tied, {told['rounding']} by rounding", flush=True)
    for sentence, times in refused.most_common():
        print(f"    {times} refused: {sentence}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(row.__name__ for row in ROWS))
    parser.add_argument("--models", type=int, default=200, help="of each row")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    wanted = options.rows.split(",")
    sys.exit(any([run_row(row, options) for row in ROWS if row.__name__ in wanted]))


if __name__ == "__main__":
    main()
