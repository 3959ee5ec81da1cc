# SPDX-License-Identifier: Apache-2.0
"""convert: a GGUF file of each architecture that is read, whose tensors lie in the folder where
that model type has them, whose config.json says what the keys do, and which runs; and tokenizers
by the name of how they cut words."""
import json
import unittest

from cli_case import Scratch, run
import cli_data
import gguf_data
from gguf_data import BOOL

ATTENTION = {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"} | {
    "attn_output": "self_attn.o_proj"}
GATED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
JOINED = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
FIRST = {"attn_norm": "input_layernorm"}
NORMS = FIRST | {"ffn_norm": "post_attention_layernorm"}
SUMS = {"post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm"}
MIXED = {"ffn_gate_inp": "mlp.gate"} | {
    f"ffn_{x}_exps": f"mlp.experts.%d.{x}_proj" for x in ("gate", "up", "down")}
SHARED = {f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}
HEADS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
LLAMA = NORMS | ATTENTION | GATED
GEMMA = FIRST | SUMS | {"ffn_norm": "pre_feedforward_layernorm"} | ATTENTION | GATED | HEADS
OUTSIDE = {"token_embd": "embed_tokens", "output_norm": "norm"}
ROPE = {"rope_theta": 5000}
HALF = {"partial_rotary_factor": 0.5}
# model_type, names of a block's tensors, what config.json says besides sizes.
MODELS = {
    "mistral3": ("mistral", LLAMA, ROPE | {"sliding_window": None, "hidden_act": "silu"}),
    "phi3": ("phi3", NORMS | JOINED | {"attn_qkv": "self_attn.qkv_proj",
                                       "attn_output": "self_attn.o_proj"},
             ROPE | HALF | {"sliding_window": 8}),
    "seed_oss": ("seed_oss", FIRST | ATTENTION | GATED | {
        "post_attention_norm": "post_attention_layernorm"},
        ROPE | {"attention_bias": True, "head_dim": 16}),
    "arcee": ("arcee", NORMS | ATTENTION | GATED,
              {"hidden_act": "relu2", "attention_bias": False, "mlp_bias": True}),
    "starcoder2": ("starcoder2", NORMS | ATTENTION | {"ffn_up": "mlp.c_fc",
                                                      "ffn_down": "mlp.c_proj"},
                   {"norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None,
                    "hidden_act": "gelu_pytorch_tanh"}),
    "smollm3": ("smollm3", LLAMA, ROPE | {"no_rope_layer_interval": 4}),
    "gemma": ("gemma", LLAMA, {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 16}),
    "gemma2": ("gemma2", GEMMA, {"attn_logit_softcapping": 50, "final_logit_softcapping": 30,
                                 "sliding_window": 8, "query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", GEMMA, {
        "sliding_window": 8, "sliding_window_pattern": 6, "rope_local_base_freq": 10000,
        "query_pre_attn_scalar": 16, "rope_scaling": {"rope_type": "linear", "factor": 8}}),
    "granite": ("granite", LLAMA, {"attention_multiplier": 0.125, "embedding_multiplier": 12,
                                   "residual_multiplier": 0.25, "logits_scaling": 8}),
    "olmo2": ("olmo2", SUMS | ATTENTION | GATED | HEADS, ROPE),
    "ernie4_5": ("ernie4_5", LLAMA, ROPE | {"use_bias": False}),
    "nemotron": ("nemotron", NORMS | ATTENTION | {"ffn_up": "mlp.up_proj",
                                                  "ffn_down": "mlp.down_proj"},
                 HALF | {"norm_eps": 1e-5, "hidden_act": "relu2"}),
    "phi2": ("phi", FIRST | ATTENTION | {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1",
                                         "ffn_down": "mlp.fc2"},
             HALF | {"hidden_act": "gelu_new", "rope_theta": 10000}),
    "gptneox": ("gpt_neox", NORMS | {"attn_qkv": "attention.query_key_value",
                                     "attn_output": "attention.dense",
                                     "ffn_up": "mlp.dense_h_to_4h",
                                     "ffn_down": "mlp.dense_4h_to_h"},
                {"use_parallel_residual": True, "rotary_pct": 0.25, "rotary_emb_base": 5000}),
    "stablelm": ("stablelm", LLAMA, {"use_parallel_residual": False, "use_qkv_bias": False,
                                     "partial_rotary_factor": 0.25}),
    "chatglm": ("glm", NORMS | ATTENTION | JOINED, HALF | {"attention_bias": True}),
    "glm4": ("glm4", NORMS | ATTENTION | JOINED | {
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm"}, HALF),
    "command-r": ("cohere", FIRST | ATTENTION | GATED, {"logit_scale": 0.0625}),
    "cohere2": ("cohere2", FIRST | ATTENTION | GATED,
                {"logit_scale": 0.0625, "sliding_window": 8, "sliding_window_pattern": 4}),
    "mixtral": ("mixtral", NORMS | ATTENTION | {
        "ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.%d.w1",
        "ffn_up_exps": "block_sparse_moe.experts.%d.w3",
        "ffn_down_exps": "block_sparse_moe.experts.%d.w2"},
        ROPE | {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None}),
    "olmoe": ("olmoe", NORMS | ATTENTION | MIXED | HEADS,
              ROPE | {"num_experts": 3, "num_experts_per_tok": 2, "norm_topk_prob": False}),
    "qwen2moe": ("qwen2_moe", NORMS | ATTENTION | MIXED | {
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj"},
        {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 64,
         "norm_topk_prob": False}),
    "qwen3moe": ("qwen3_moe", NORMS | ATTENTION | MIXED | HEADS,
                 {"moe_intermediate_size": 32, "num_experts": 3, "norm_topk_prob": True}),
    "dots1": ("dots1", NORMS | ATTENTION | MIXED | HEADS | SHARED | {
        "exp_probs_b": "mlp.gate.e_score_correction_bias"},
        ROPE | {"n_routed_experts": 3, "n_shared_experts": 2, "first_k_dense_replace": 0,
                "routed_scaling_factor": 2.5, "norm_topk_prob": True}),
    "ernie4_5-moe": ("ernie4_5_moe", NORMS | ATTENTION | MIXED | SHARED | {
        "exp_probs_b": "mlp.moe_statics.e_score_correction_bias"},
        ROPE | {"moe_num_experts": 3, "moe_k": 2, "moe_num_shared_experts": 2,
                "moe_layer_start_index": 0, "moe_layer_interval": 1, "use_bias": False}),
    "glm4moe": ("glm4_moe", FIRST | ATTENTION | MIXED | HEADS | SHARED | {
        "post_attention_norm": "post_attention_layernorm",
        "exp_probs_b": "mlp.gate.e_score_correction_bias"},
        ROPE | HALF | {"n_routed_experts": 3, "use_qk_norm": True, "attention_bias": True,
                       "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5})}
EXPERTS = 3


def pairs_apart(values, rows, heads):
    """Rows that lie pairwise, half a head apart."""
    cols, head = len(values) // rows, rows // heads
    order = [h * head + 2 * i + part for h in range(heads) for part in (0, 1)
             for i in range(head // 2)]
    return [v for row in order for v in values[row * cols:(row + 1) * cols]]


def head_by_head(values, rows, heads):
    """All queries, all keys, all values: of each head the three."""
    cols, head = len(values) // rows, rows // (3 * heads)
    order = [(part * heads + h) * head + i for h in range(heads) for part in range(3)
             for i in range(head)]
    return [v for row in order for v in values[row * cols:(row + 1) * cols]]


def expected(architecture, name, values):
    """What the folder has of a tensor."""
    place = name.split(".")[-2]
    paired = ("mistral3", "arcee", "smollm3", "granite", "mixtral")
    if architecture in paired and place in ("attn_q", "attn_k"):
        rows, heads = (64, 4) if place == "attn_q" else (32, 2)
        return pairs_apart(values, rows, heads)
    if architecture == "gptneox" and place == "attn_qkv":
        return head_by_head(values, 192, 4)
    grown = architecture.startswith("gemma") or architecture == "nemotron"
    if grown and name.endswith("norm.weight"):
        return [gguf_data.single(v - 1) for v in values]
    return values


class Models(Scratch):
    def convert(self, architecture, **more):
        tensors, values = gguf_data.model(architecture)
        (self.folder / "m.gguf").write_bytes(gguf_data.file(
            gguf_data.keys(architecture, **more), tensors))
        self.good("convert", "m.gguf", "out", "--force")
        found, _ = cli_data.read(self.folder / "out" / "model.safetensors")
        return values, found, json.loads((self.folder / "out" / "config.json").read_text())

    def test_each_lies_where_its_type_has_it_and_runs(self):
        for architecture, (model_type, block, says) in MODELS.items():
            with self.subTest(architecture):
                values, found, config = self.convert(architecture)
                before = "gpt_neox." if architecture == "gptneox" else "model."
                outside = OUTSIDE | {"output": "lm_head"}
                if architecture == "gptneox":
                    outside = {"token_embd": "embed_in", "output_norm": "final_layer_norm",
                               "output": "embed_out"}
                if architecture == "phi2":
                    outside["output_norm"] = "final_layernorm"
                stacks = sum(name.endswith("_exps.weight") for name in values)
                self.assertEqual(len(found), len(values) + (EXPERTS - 1) * stacks)
                for name, given in values.items():
                    place, suffix = name.split(".")[-2:]
                    if name.startswith("blk"):
                        to = f"{before}layers.0.{block[place]}.{suffix}"
                        if place == "exp_probs_b":
                            to = to[:-len(".bias")]
                    else:
                        to = ("" if place == "output" else before) + f"{outside[place]}.{suffix}"
                    parts = EXPERTS if "%d" in to else 1
                    for e in range(parts):
                        each = given[len(given) // parts * e:len(given) // parts * (e + 1)]
                        self.assertEqual(cli_data.floats(found[to.replace("%d", str(e))][2]),
                                         expected(architecture, name, each), name)
                self.assertEqual(config["model_type"], model_type)
                self.assertEqual(config["tie_word_embeddings"], "output.weight" not in values)
                self.assertEqual({k: config[k] for k in says}, says)
                self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def join(self, values, name, e, count, in_turns):
        """An expert's gate and what it multiplies, [count, 64] each, as one matrix or bias."""
        gate, up = (values[name.replace("gate", part)][e * count:(e + 1) * count]
                    for part in ("gate", "up"))
        if not in_turns:
            return gate + up
        cols = 64 if name.endswith(".weight") else 1
        return [v for i in range(0, count, cols) for part in (gate, up)
                for v in part[i:i + cols]]

    def test_gates_are_joined_with_what_they_multiply(self):
        for architecture, kind in (("granitemoe", "F32"), ("gpt-oss", "F32"), ("gpt-oss", "MXFP4")):
            with self.subTest(architecture + kind):
                tensors, values = gguf_data.model(architecture, kind)
                (self.folder / "m.gguf").write_bytes(gguf_data.file(
                    gguf_data.keys(architecture), tensors))
                self.good("convert", "m.gguf", "out", "--force")
                found, _ = cli_data.read(self.folder / "out" / "model.safetensors")
                config = json.loads((self.folder / "out" / "config.json").read_text())
                got = {name[len("model.layers.0."):]: cli_data.floats(raw)
                       for name, (_, _, raw) in found.items()}
                is_oss = architecture == "gpt-oss"
                up, down = (("mlp.experts.%d.gate_up_proj", "mlp.experts.%d.down_proj") if is_oss
                            else ("block_sparse_moe.input_linear.%d",
                                  "block_sparse_moe.output_linear.%d"))
                for e in range(EXPERTS):
                    self.assertEqual(got[up % e + ".weight"], self.join(
                        values, "blk.0.ffn_gate_exps.weight", e, 96 * 64, is_oss))
                    self.assertEqual(got[down % e + ".weight"],
                                     values["blk.0.ffn_down_exps.weight"][e * 6144:][:6144])
                if is_oss:
                    name = "blk.0.ffn_gate_exps.bias"
                    self.assertEqual(got["mlp.experts.gate_up_proj_bias"], sum(
                        (self.join(values, name, e, 96, True) for e in range(EXPERTS)), []))
                    self.assertEqual(got["mlp.experts.down_proj_bias"],
                                     values["blk.0.ffn_down_exps.bias"])
                    self.assertEqual(got["mlp.router.bias"], values["blk.0.ffn_gate_inp.bias"])
                    self.assertEqual(got["self_attn.sinks"], values["blk.0.attn_sinks.weight"])
                    self.assertEqual(config["rope_scaling"], {
                        "rope_type": "yarn", "factor": 32, "truncate": False,
                        "original_max_position_embeddings": 16})
                    self.assertEqual((config["model_type"], config["sliding_window"],
                                      config["swiglu_limit"]), ("gpt_oss", 8, 7))
                else:
                    self.assertEqual(got["shared_mlp.input_linear.weight"],
                                     self.join(values, "blk.0.ffn_gate_shexp.weight", 0, 4096, 0))
                    self.assertEqual(
                        (config["model_type"], config["shared_intermediate_size"],
                         config["residual_multiplier"]), ("granitemoeshared", 64, 0.25))
                self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def latent(self, **more):
        """What convert makes of a deepseek2 file: values, tensors of its block, config.json."""
        tensors, values = gguf_data.model("deepseek2", more.pop("kind", "F32"))
        leave = more.pop("leave", ())
        tensors = {k: v for k, v in tensors.items() if k.split(".")[-2] not in leave}
        tensors |= more.pop("tensors", {})
        (self.folder / "m.gguf").write_bytes(gguf_data.file(
            gguf_data.keys("deepseek2", **more), tensors))
        self.good("convert", "m.gguf", "out", "--force")
        found, _ = cli_data.read(self.folder / "out" / "model.safetensors")
        config = json.loads((self.folder / "out" / "config.json").read_text())
        got = {name[len("model.layers.0."):]: cli_data.floats(raw)
               for name, (_, _, raw) in found.items()}
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
        return values, got, config

    def heads_together(self, values):
        """Each head's keys, which the file has turned, and then its values."""
        keys, made = values["blk.0.attn_k_b.weight"], values["blk.0.attn_v_b.weight"]
        return sum((
            [keys[(h * 32 + r) * 16 + p] for p in range(16) for r in range(32)]
            + made[h * 12 * 32:(h + 1) * 12 * 32] for h in range(4)), [])

    def test_latents_of_deepseek_are_put_together(self):
        values, got, config = self.latent()
        self.assertEqual(got["self_attn.kv_b_proj.weight"], self.heads_together(values))
        self.assertEqual(got["self_attn.kv_a_proj_with_mqa.weight"],
                         values["blk.0.attn_kv_a_mqa.weight"])
        self.assertEqual(got["mlp.gate.e_score_correction_bias"],
                         values["blk.0.exp_probs_b.bias"])
        self.assertEqual(got["mlp.experts.1.up_proj.weight"],
                         values["blk.0.ffn_up_exps.weight"][2048:4096])
        mixed = gguf_data.model("deepseek2")[0] | {
            "blk.0.attn_v_b.weight": gguf_data.tensor("Q8_0", [4, 12, 32], 9)[0]}
        narrow = gguf_data.tensor("Q8_0", [4, 12, 32], 9)[1]
        _, got, _ = self.latent(tensors=mixed)
        self.assertEqual(got["self_attn.kv_b_proj.weight"],
                         self.heads_together(values | {"blk.0.attn_v_b.weight": narrow}))
        says = {"model_type": "deepseek_v3", "q_lora_rank": 24, "kv_lora_rank": 32,
                "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
                "num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
                "rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 0.707,
                                 "mscale_all_dim": 0.707, "original_max_position_embeddings": 16}}
        self.assertEqual({k: config[k] for k in says}, says)
        self.assertNotIn("topk_method", config)

    def test_a_deepseek_2_of_old_has_a_softmax_and_one_tensor(self):
        kv_b, given = gguf_data.tensor("F32", [112, 32], 5)
        plain, queries = gguf_data.tensor("F32", [96, 64], 6)
        _, got, config = self.latent(**{
            "leave": ("attn_k_b", "attn_v_b", "attn_q_a", "attn_q_a_norm", "attn_q_b",
                      "exp_probs_b"),
            "tensors": {"blk.0.attn_kv_b.weight": kv_b, "blk.0.attn_q.weight": plain},
            "attention.key_length_mla": None, "attention.value_length_mla": None,
            "attention.key_length": 24, "attention.value_length": 12, "attention.head_count_kv": 4,
            "attention.q_lora_rank": None, "expert_gating_func": None,
            "expert_weights_norm": None, "rope.scaling.yarn_log_multiplier": None})
        self.assertEqual(got["self_attn.kv_b_proj.weight"], given)
        self.assertEqual(got["self_attn.q_proj.weight"], queries)
        says = {"model_type": "deepseek_v2", "q_lora_rank": None, "topk_method": "greedy",
                "norm_topk_prob": False}
        self.assertEqual({k: config[k] for k in says}, says)
        self.assertEqual(config["rope_scaling"]["attention_factor"], 1)

    def test_latents_without_experts_are_a_youtu(self):
        dense = {f"blk.0.ffn_{x}.weight": gguf_data.tensor("F32", sides, 7)[0] for x, sides in
                 (("gate", [96, 64]), ("up", [96, 64]), ("down", [64, 96]))}
        _, _, config = self.latent(**{
            "leave": ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps",
                      "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "exp_probs_b"),
            "tensors": dense, "expert_count": None, "expert_used_count": None,
            "expert_weights_scale": None, "expert_weights_norm": None, "expert_gating_func": None,
            "expert_shared_count": 0, "leading_dense_block_count": 1})
        self.assertEqual(config["model_type"], "youtu")

    def test_latents_that_do_not_fit_are_refused(self):
        tensors, _ = gguf_data.model("deepseek2")
        for change, what in (
                ({"blk.0.attn_v_b.weight": None}, 'and "blk.0.attn_v_b.weight" are not there as '
                 "[4, 32, 16] and [4, 12, 32]"),
                ({"blk.0.attn_k_b.weight": gguf_data.tensor("F32", [4, 16, 32], 1)[0]},
                 "are not there as [4, 32, 16]")):
            with self.subTest(what):
                given = {k: v for k, v in (tensors | change).items() if v}
                (self.folder / "m.gguf").write_bytes(gguf_data.file(
                    gguf_data.keys("deepseek2"), given))
                done = run("convert", "m.gguf", "no", cwd=self.folder)
                self.assertEqual(done.returncode, 4)
                self.assertIn(what, done.stderr)
        (self.folder / "m.gguf").write_bytes(gguf_data.file(
            gguf_data.keys("deepseek2", **{"rope.dimension_count": 24}), tensors))
        done = run("convert", "m.gguf", "no", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertIn("4 heads whose keys have 24 elements, of which 24 turn", done.stderr)

    def test_a_granite_without_a_shared_expert_runs(self):
        tensors, _ = gguf_data.model("granitemoe")
        few = {k: v for k, v in tensors.items() if "shexp" not in k}
        (self.folder / "m.gguf").write_bytes(gguf_data.file(gguf_data.keys(
            "granitemoe", **{"expert_shared_feed_forward_length": None}), few))
        self.good("convert", "m.gguf", "out")
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
        del few["blk.0.ffn_up_exps.weight"]
        (self.folder / "m.gguf").write_bytes(gguf_data.file(gguf_data.keys(
            "granitemoe", **{"expert_shared_feed_forward_length": None}), few))
        done = run("convert", "m.gguf", "no", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertIn('tensor "blk.0.ffn_up_exps.weight" is missing, or of another', done.stderr)

    def test_blocks_that_draft_are_left_out(self):
        tensors, _ = gguf_data.model("glm4moe")
        more = {"blk.1.nextn.eh_proj.weight": ("F32", [2], gguf_data.floats([1, 2])),
                "blk.1.attn_norm.weight": ("F32", [64], gguf_data.floats([1] * 64))}
        keys = gguf_data.keys("glm4moe", block_count=2, nextn_predict_layers=1)
        (self.folder / "m.gguf").write_bytes(gguf_data.file(keys, tensors | more))
        self.good("convert", "m.gguf", "out")
        config = json.loads((self.folder / "out" / "config.json").read_text())
        self.assertEqual(config["num_hidden_layers"], 1)
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
        keys["glm4moe.expert_gating_func"] = 1
        (self.folder / "m.gguf").write_bytes(gguf_data.file(keys, tensors | more))
        done = run("convert", "m.gguf", "no", cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn('"glm4moe.expert_gating_func" is 1; only 2 is supported', done.stderr)

    def test_large_gemmas_divide_scores_by_a_narrower_width(self):
        # That of 46 and of 62 blocks; the file has the tensors of one, which suffices here.
        for architecture, layers in (("gemma2", 46), ("gemma3", 62)):
            _, _, config = self.convert(architecture, **{
                "block_count": layers, "attention.head_count": 2})
            self.assertEqual(config["query_pre_attn_scalar"], 32)
            _, _, config = self.convert(architecture, **{
                "block_count": layers - 1, "attention.head_count": 2})
            self.assertEqual(config["query_pre_attn_scalar"], 16)

    def test_an_olmo2_with_windows_is_an_olmo3(self):
        more = {"block_count": 1, "attention.sliding_window": 8,
                "attention.sliding_window_pattern": (BOOL, [True])}
        _, _, config = self.convert("olmo2", **more)
        self.assertEqual((config["model_type"], config["sliding_window"], config["layer_types"]),
                         ("olmo3", 8, ["sliding_attention"]))
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
        tensors, _ = gguf_data.model("olmo2")
        more["attention.sliding_window_pattern"] = (BOOL, [True, False])
        (self.folder / "m.gguf").write_bytes(gguf_data.file(
            gguf_data.keys("olmo2", **more), tensors))
        done = run("convert", "m.gguf", "no", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertIn("has 2 elements, for 1 blocks", done.stderr)

    def test_yarn_goes_along_with_its_range(self):
        _, _, config = self.convert("qwen2", **{
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16, "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.yarn_beta_slow": 2.0, "rope.scaling.yarn_attn_factor": 1.25})
        self.assertEqual(config["rope_scaling"], {
            "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16,
            "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.25})
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def test_longrope_has_its_divisors_as_tensors(self):
        tensors, _ = gguf_data.model("phi3")
        short, long = [1.0, 1.25, 1.5, 2.0], [1.0, 2.0, 4.0, 8.0]
        factors = {f"rope_factors_{name}.weight": ("F32", [4], gguf_data.floats(given))
                   for name, given in (("short", short), ("long", long))}
        more = {"context_length": 128, "rope.scaling.original_context_length": 32,
                "rope.scaling.attn_factor": 1.25}
        (self.folder / "m.gguf").write_bytes(gguf_data.file(
            gguf_data.keys("phi3", **more), tensors | factors))
        self.good("convert", "m.gguf", "out", "--force")
        config = json.loads((self.folder / "out" / "config.json").read_text())
        self.assertEqual(config["rope_scaling"], {
            "rope_type": "longrope", "original_max_position_embeddings": 32,
            "attention_factor": 1.25, "short_factor": short, "long_factor": long})
        self.assertEqual((config["max_position_embeddings"],
                          config["original_max_position_embeddings"]), (128, 32))
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
        for missing in factors:
            given = {k: v for k, v in factors.items() if k != missing}
            (self.folder / "m.gguf").write_bytes(gguf_data.file(
                gguf_data.keys("phi3", **more), tensors | given))
            done = run("convert", "m.gguf", "no", cwd=self.folder)
            self.assertEqual(done.returncode, 4)
            self.assertIn(f'"{missing}" is missing, or has not one number for each of 4 pairs',
                          done.stderr)

    def test_what_a_row_has_not_is_refused(self):
        def write(name, architecture, more_tensors=None, **more):
            tensors, _ = gguf_data.model(architecture)
            (self.folder / name).write_bytes(gguf_data.file(
                gguf_data.keys(architecture, **more), tensors | (more_tensors or {})))

        factors = {"rope_factors_long.weight": ("F32", [8], gguf_data.floats([1] * 8))}
        write("whole.gguf", "gemma2", **{"rope.dimension_count": 8})
        write("wide.gguf", "phi2", **{"rope.dimension_count": 18})
        write("norms.gguf", "command-r", {
            "blk.0.attn_q_norm.weight": ("F32", [16], gguf_data.floats([1] * 16))})
        write("long.gguf", "arcee", factors)
        write("rows.gguf", "gptneox", **{"attention.head_count": 5, "attention.key_length": None})
        write("mixed.gguf", "qwen2", **{"expert_count": 8})
        write("plain.gguf", "olmoe", **{"expert_count": 0})
        write("stack.gguf", "olmoe", **{"expert_count": 4})
        for name, code, sentence in (
                ("mixed", 5, r'"qwen2.expert_count" is 8; a model of experts is not'),
                ("plain", 5, r'"olmoe.expert_count" is 0; a model without experts is not'),
                ("stack", 4, r'exps.weight" is no stack of the matrices of 4 experts'),
                ("whole", 5, r"rope.dimension_count\" is 8; only that of all 16 of a head"),
                ("wide", 5, r"rope.dimension_count\" is 18; only that of all 16 of a head"),
                ("norms", 5, r'tensor "blk.0.attn_q_norm.weight" is none that a command-r'),
                ("long", 4, r'tensor "rope_factors_short.weight" is missing'),
                ("rows", 4, r'"blk.0.attn_qkv.weight" has 192 rows, a multiple of 15')):
            done = run("convert", f"{name}.gguf", "no", cwd=self.folder)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.assertFalse((self.folder / "no").exists())


class Words(Scratch):
    # How many parts of the pre-tokenizer cut a text.
    CUTS = {"phi-2": 1, "olmo": 1, "refact": 2, "command-r": 2, "smaug-bpe": 2, "dbrx": 2,
            "glm4": 2, "chatglm-bpe": 2, "seed-coder": 2, "tekken": 2, "gpt-4o": 2,
            "deepseek-coder": 6, "deepseek-v3": 4}

    def test_each_is_read_as_it_is_written(self):
        for pre, parts in self.CUTS.items():
            with self.subTest(pre):
                tensors, _ = gguf_data.model("llama")
                (self.folder / "m.gguf").write_bytes(gguf_data.file(
                    gguf_data.keys("llama", gguf_data.byte_tokenizer(pre)), tensors))
                self.good("convert", "m.gguf", "out", "--force")
                made = json.loads((self.folder / "out" / "tokenizer.json").read_text())
                self.assertEqual(len(made["pre_tokenizer"]["pretokenizers"]), parts)
                found = self.json("generate", "out", "--prompt", "abab ab", "--max-new", "1")
                first = pre == "tekken"
                self.assertEqual(found["prompts"][0]["prompt_tokens"], 4 + first)


if __name__ == "__main__":
    unittest.main()
