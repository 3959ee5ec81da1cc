# SPDX-License-Identifier: Apache-2.0
"""convert: GGUF files whose values are known, of each type of tensor and each kind of model, into
folders; a trained Llama of 260,000 weights on its way through GGUF; and files that are refused."""
import json
import os
import pathlib
import struct
import unittest

from cli_case import Scratch, run
import cli_data
import gguf_data
from gguf_data import F32, I32, STRING
import stories

DATA = pathlib.Path(os.environ.get(
    "SPARSE24_DATA", pathlib.Path(os.environ["S24_SOURCE"]).parent / "shared" / "data"))
LLAMA = {"token_embd.weight": "model.embed_tokens.weight",
         "output_norm.weight": "model.norm.weight",
         "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
         "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
         "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
         "blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight",
         "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
         "blk.0.attn_output.weight": "model.layers.0.self_attn.o_proj.weight",
         **{f"blk.0.attn_{x}.{s}": f"model.layers.0.self_attn.{x}_proj.{s}"
            for x in "qkv" for s in ("weight", "bias")},
         **{f"blk.0.attn_{x}_norm.weight": f"model.layers.0.self_attn.{x}_norm.weight"
            for x in "qk"}}


def apart(values, rows, heads):
    """Rows that lie pairwise, half a head apart."""
    cols, head = len(values) // rows, rows // heads
    order = [h * head + 2 * i + part for h in range(heads) for part in (0, 1)
             for i in range(head // 2)]
    return [v for row in order for v in values[row * cols:(row + 1) * cols]]


def turned(values, rows):
    cols = len(values) // rows
    return [values[r * cols + c] for c in range(cols) for r in range(rows)]


def write(folder, name, architecture="llama", kind="F32", keys=None, **more):
    tensors, values = gguf_data.model(architecture, kind)
    (folder / name).write_bytes(gguf_data.file(
        gguf_data.keys(architecture, **more) if keys is None else keys, tensors))
    return values


class Convert(Scratch):
    def folder_of(self, name, *more):
        done = self.json("convert", name, "out", "--force", *more)
        tensors, metadata = cli_data.read(self.folder / "out" / "model.safetensors")
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(done["tensors"], len(tensors))
        return tensors, json.loads((self.folder / "out" / "config.json").read_text())

    def test_each_type_of_tensor_stands_for_its_values(self):
        for kind in gguf_data.TYPES:
            with self.subTest(kind):
                values = write(self.folder, "m.gguf", kind=kind)
                tensors, _ = self.folder_of("m.gguf")
                for name, expected in values.items():
                    rows = {"blk.0.attn_q.weight": (64, 4), "blk.0.attn_k.weight": (32, 2)}
                    if name in rows:
                        expected = apart(expected, *rows[name])
                    self.assertEqual(cli_data.floats(tensors[LLAMA[name]][2]), expected, name)
                self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def test_blocks_of_256_stand_for_their_values(self):
        keys = gguf_data.keys("llama", **{"embedding_length": 256, "feed_forward_length": 512,
                                          "attention.head_count": 8, "attention.head_count_kv": 4,
                                          "rope.dimension_count": 32})
        for kind, number in gguf_data.LARGE_TYPES.items():
            with self.subTest(kind):
                values = {}
                for name, shape in gguf_data.shapes("llama").items():
                    shape = [{12: 12, 32: 128, 64: 256, 96: 512}[side] for side in shape]
                    values[name] = gguf_data.tensor(kind, shape, number)
                raw = gguf_data.file(keys, {name: given for name, (given, _) in values.items()})
                (self.folder / "m.gguf").write_bytes(raw)
                tensors, _ = self.folder_of("m.gguf")
                for name, (_, expected) in values.items():
                    rows = {"blk.0.attn_q.weight": (256, 8), "blk.0.attn_k.weight": (128, 4)}
                    if name in rows:
                        expected = apart(expected, *rows[name])
                    self.assertEqual(cli_data.floats(tensors[LLAMA[name]][2]), expected, name)

    def test_dtypes_round_the_values(self):
        for kind in ("F32", "BF16", "Q8_0"):
            values = write(self.folder, "m.gguf", kind=kind)["blk.0.attn_v.weight"]
            exact, _ = self.folder_of("m.gguf")
            for dtype, label in (("bf16", "BF16"), ("f16", "F16")):
                name = "model.layers.0.self_attn.v_proj.weight"
                tensors, config = self.folder_of("m.gguf", "--dtype", dtype)
                self.assertEqual(tensors[name][:2], (label, [32, 64]))
                raw = tensors[name][2]
                for i, value in enumerate(values):
                    if dtype == "f16":
                        got = struct.unpack_from("<e", raw, 2 * i)[0]
                    else:
                        got = struct.unpack("<f", b"\0\0" + raw[2 * i:2 * i + 2])[0]
                    self.assertAlmostEqual(got, value, delta=abs(value) / 256 + 1e-7)
                self.assertEqual(config["torch_dtype"],
                                 {"BF16": "bfloat16", "F16": "float16"}[label])
            self.assertEqual(exact[name][0], "F32")

    def test_config_says_what_the_keys_do(self):
        write(self.folder, "m.gguf")
        _, config = self.folder_of("m.gguf")
        self.assertEqual(config, {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "vocab_size": 12, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 5000, "tie_word_embeddings": True,
            "attention_bias": False,
            "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 0})
        out = self.folder / "out"
        generation = json.loads((out / "generation_config.json").read_text())
        self.assertEqual((generation["bos_token_id"], generation["eos_token_id"]), (1, 0))

    def test_several_ends_a_window_and_a_scaling(self):
        tokenizer = gguf_data.byte_tokenizer(eot_token_id=3, eom_token_id=0)
        write(self.folder, "m.gguf", tokenizer=tokenizer, **{
            "attention.sliding_window": 8, "rope.scaling.type": "linear",
            "rope.scaling.factor": 2.5, "expert_count": 0})
        _, config = self.folder_of("m.gguf")
        self.assertEqual(config["eos_token_id"], [0, 3])
        self.assertEqual((config["model_type"], config["sliding_window"]), ("mistral", 8))
        self.assertEqual(config["rope_scaling"], {"rope_type": "linear", "factor": 2.5})
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "12")

    def test_llama3_frequencies_are_known_by_their_values(self):
        def divisor(i, factor):
            turns = 8192 * 5000.0 ** (-i / 8) / 6.283185307179586
            smooth = (turns - 1) / 3
            return 1 if turns > 4 else factor if turns < 1 else 1 / ((1 - smooth) / factor + smooth)

        tensors, _ = gguf_data.model("llama")
        for factor, scale in ((8, 1), (32, 1), (8, 1.01)):
            raw = gguf_data.floats([divisor(i, factor) for i in range(7)] + [factor * scale])
            given = tensors | {"rope_freqs.weight": ("F32", [8], raw)}
            (self.folder / "m.gguf").write_bytes(gguf_data.file(gguf_data.keys("llama"), given))
            if scale == 1 and divisor(7, factor) == factor:
                _, config = self.folder_of("m.gguf")
                self.assertEqual(config["rope_scaling"], {
                    "rope_type": "llama3", "factor": factor, "low_freq_factor": 1,
                    "high_freq_factor": 4, "original_max_position_embeddings": 8192})
                self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")
            else:
                done = run("convert", "m.gguf", "no", cwd=self.folder)
                self.assertEqual(done.returncode, 5)
                self.assertIn("rope_freqs.weight", done.stderr)

    def test_qwen_has_biases_norms_and_its_rows_in_order(self):
        for architecture in ("qwen2", "qwen3"):
            values = write(self.folder, "m.gguf", architecture, "Q4_1")
            tensors, config = self.folder_of("m.gguf")
            self.assertEqual(config["model_type"], architecture)
            for name, expected in values.items():
                self.assertEqual(cli_data.floats(tensors[LLAMA[name]][2]), expected, name)
            self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def test_gpt2_is_turned(self):
        values = write(self.folder, "m.gguf", "gpt2", "Q8_0",
                       tokenizer=gguf_data.byte_tokenizer(pre=None))
        tensors, config = self.folder_of("m.gguf")
        self.assertEqual((config["n_positions"], config["n_inner"]), (64, 96))
        for name, place, rows in (("attn_qkv", "attn.c_attn", 192), ("ffn_up", "mlp.c_fc", 96),
                                  ("attn_output", "attn.c_proj", 64),
                                  ("ffn_down", "mlp.c_proj", 64)):
            found = tensors[f"transformer.h.0.{place}.weight"]
            expected = values[f"blk.0.{name}.weight"]
            self.assertEqual(found[1], [len(expected) // rows, rows])
            self.assertEqual(cli_data.floats(found[2]), turned(expected, rows))
        self.assertEqual(cli_data.floats(tensors["transformer.wpe.weight"][2]),
                         values["position_embd.weight"])
        self.good("generate", "out", "--prompt", "ab c", "--max-new", "3")

    def test_tokenizers_by_their_names(self):
        for pre, parts, first in (("gpt-2", ["ByteLevel"], 0),
                                  ("smollm", ["Digits", "ByteLevel"], 0),
                                  ("qwen2", ["Split", "ByteLevel"], 0),
                                  ("llama-bpe", ["Split", "ByteLevel"], 1)):
            write(self.folder, "m.gguf", tokenizer=gguf_data.byte_tokenizer(pre))
            self.folder_of("m.gguf")
            made = json.loads((self.folder / "out" / "tokenizer.json").read_text())
            self.assertEqual([p["type"] for p in made["pre_tokenizer"]["pretokenizers"]], parts)
            self.assertEqual(made["normalizer"], {"type": "NFC"} if pre == "qwen2" else None)
            self.assertEqual(made["model"]["ignore_merges"], bool(first))
            self.assertEqual([(t["content"], t["special"]) for t in made["added_tokens"]],
                             [("<|end|>", True), ("<|go|>", False)])
            found = self.json("generate", "out", "--prompt", "ab<|go|>ab", "--max-new", "1")
            self.assertEqual(found["prompts"][0]["prompt_tokens"], 3 + first)

    def test_the_chat_template_goes_along(self):
        tokenizer = gguf_data.byte_tokenizer() | {"tokenizer.chat_template": "{{ 'a\n\"' }}"}
        write(self.folder, "m.gguf", tokenizer=tokenizer)
        self.folder_of("m.gguf")
        made = json.loads((self.folder / "out" / "tokenizer_config.json").read_text())
        self.assertEqual(made["chat_template"], "{{ 'a\n\"' }}")
        self.assertEqual((made["bos_token"], made["eos_token"]), ("<|go|>", "<|end|>"))

    def test_what_is_there_is_replaced_with_force_alone(self):
        write(self.folder, "m.gguf")
        self.good("convert", "m.gguf", "out")
        self.assertEqual(run("convert", "m.gguf", "out", cwd=self.folder).returncode, 3)
        self.good("convert", "m.gguf", "out", "--force")
        (self.folder / "m.gguf").rename(self.folder / "out" / "m.gguf")
        done = run("convert", "out/m.gguf", "out", "--force", cwd=self.folder)
        self.assertEqual(done.returncode, 3)
        self.assertIn("holds the model that is read", done.stderr)


@unittest.skipUnless((DATA / "weights" / "stories260K.bin").exists(), "no stories260K.bin")
class Stories(Scratch):
    """llama2.c's rows are GGUF's: pairs side by side."""

    @staticmethod
    def make(folder):
        model, tokens = DATA / "weights" / "stories260K.bin", DATA / "weights" / "tok512.bin"
        stories.write(folder / "stories", model, tokens)
        (folder / "stories.gguf").write_bytes(stories.gguf(model, tokens))

    def test_it_tells_its_story(self):
        self.good("convert", "stories.gguf", "converted")
        for name in ("config.json", "model.safetensors"):
            self.assertTrue((self.folder / "converted" / name).exists())
        plain, _ = cli_data.read(self.folder / "stories" / "model.safetensors")
        found, _ = cli_data.read(self.folder / "converted" / "model.safetensors")
        self.assertEqual(found, plain)
        told = [self.good("generate", folder, "--prompt", "Once upon a time, Ben", "--max-new",
                          "60").stdout for folder in ("stories", "converted")]
        self.assertEqual(told[0], told[1])
        self.assertRegex(told[0], "[a-z]+ .*\\.")


class Refused(Scratch):
    @staticmethod
    def make(folder):
        tensors, _ = gguf_data.model("llama")
        good = gguf_data.keys("llama")

        def keys(**more):
            return {k: v for k, v in (good | more).items() if v is not None}

        def put(name, given=None, tensors=tensors, **more):
            (folder / name).write_bytes(gguf_data.file(given or keys(), tensors, **more))

        def token(key):
            return f"tokenizer.ggml.{key}"

        whole = gguf_data.file(good, tensors)
        (folder / "empty.gguf").write_bytes(b"")
        (folder / "other.gguf").write_bytes(b"GGML" + whole[4:])
        (folder / "cut.gguf").write_bytes(whole[:-33])
        (folder / "header.gguf").write_bytes(whole[:500])
        (folder / "counts.gguf").write_bytes(whole[:8] + b"\xff" * 8 + whole[16:])
        put("old.gguf", version=1)
        put("big.gguf", version=3 << 24)
        put("model.gguf", keys(**{"general.architecture": "mamba"}))
        put("experts.gguf", keys(**{"llama.expert_count": 8}))
        put("unknown.gguf", keys(**{"llama.attention.sinks": 8}))
        put("missing.gguf", keys(**{"llama.block_count": None}))
        put("text.gguf", keys(**{"llama.block_count": "one"}))
        put("partial.gguf", keys(**{"llama.rope.dimension_count": 8}))
        put("scaling.gguf", keys(**{"llama.rope.scaling.type": "mrope"}))
        put("alignment.gguf", keys(**{"general.alignment": 24}))
        put("pre.gguf", keys(**{token("pre"): "viking"}))
        put("kind.gguf", keys(**{token("model"): "t5"}))
        put("twice.gguf", keys(**{token("tokens"): (STRING, ["a"] * 12)}))
        put("utf8.gguf", keys(**{token("tokens"): (STRING, [b"\xff"] + ["a"] * 11)}))
        put("types.gguf", keys(**{token("token_type"): (I32, [1] * 3)}))
        put("more.gguf", keys(**{token("tokens"): (STRING, list("abcdefghijklm"))}))
        put("numbers.gguf", keys(**{token("tokens"): (F32, [1.0] * 12)}))
        put("bool.gguf", keys(**{token("add_bos_token"): 7}))
        put("first.gguf", keys(**{token("bos_token_id"): 99}))
        put("type.gguf", tensors=tensors | {"output.weight": (22, [12, 64], b"\0" * 640)})
        put("strange.gguf", tensors=tensors | {"output.weight": (99, [12, 64], b"\0" * 640)})
        put("row.gguf", tensors=tensors | {"output.weight": ("Q8_0", [12, 40], b"\0" * 640)})
        put("large.gguf", tensors=tensors | {"output.weight": (14, [12, 64], b"\0" * 640)})
        put("name.gguf", tensors=tensors | {"blk.0.ssm_a.weight": ("F32", [1], b"\0" * 4)})
        put("block.gguf", tensors=tensors | {"blk.1.attn_q.weight": tensors["blk.0.attn_q.weight"]})
        put("words.gguf", tensors={k: v for k, v in tensors.items() if "embd" not in k})
        (folder / "there").mkdir()

    CASES = (
        ("strange", 5, r'"output.weight" is of type 99, which is not supported, only F32 F16'),
        ("empty", 4, "the beginning at byte 0"),
        ("other", 4, "does not begin with GGUF"),
        ("cut", 4, r'tensor "blk.0.ffn_gate.weight" has 24576 bytes'),
        ("header", 4, "goes beyond the file's 500 bytes"),
        ("counts", 4, "number of tensors is 18446744073709551615"),
        ("old", 5, "version 1"), ("big", 5, "order of bytes"),
        ("model", 5, r"'mamba', which is not supported, only llama, mistral3, .*, gpt2"),
        ("experts", 4, r'llama.expert_used_count" is missing'),
        ("unknown", 5, r'key "llama.attention.sinks" of a llama model'),
        ("missing", 4, r'key "llama.block_count" is missing'),
        ("text", 4, r'key "llama.block_count" at byte \d+ is a text, expected a whole number'),
        ("partial", 5, r'rope.dimension_count" is 8; only that of all 16'),
        ("scaling", 5, r'scaling.type" is not supported, only none, linear, yarn and longrope'),
        ("alignment", 4, r'general.alignment" is 24, a power of two'),
        ("pre", 5, r'tokenizer.ggml.pre" is not supported, only gpt-2, phi-2, .*, deepseek-v3'),
        ("kind", 5, r'tokenizer.ggml.model" is not supported, only gpt2 and llama'),
        ("twice", 4, r'element 1 of "tokenizer.ggml.tokens", "a", stands there twice'),
        ("utf8", 4, r'element 0 of "tokenizer.ggml.tokens" is no text'),
        ("types", 4, r'token_type" has 3 elements, for 12 tokens'),
        ("more", 4, r'tokens" has 13 elements, for a table of 12 words'),
        ("numbers", 4, r'tokens" has elements that are a real number, expected a text'),
        ("bool", 4, r'add_bos_token" at byte \d+ is a number of 32 bits, expected true'),
        ("first", 4, r'bos_token_id" at byte \d+ is 99, 0 to 11 is expected'),
        ("type", 5, r'weight" is of type 22, IQ2_S, which is not supported, only F32 F16.*Q8_0'),
        ("row", 4, r'tensor "output.weight" has rows of 40; of Q8_0 a multiple of 32'),
        ("large", 4, r"rows of 64; of Q6_K a multiple of 256"),
        ("name", 5, r'tensor "blk.0.ssm_a.weight" is none that a llama model of 1 blocks has'),
        ("block", 5, r'tensor "blk.1.attn_q.weight" is none'),
        ("words", 4, r'tensor "token_embd.weight" is missing'))

    def test_by_name_and_nothing_is_written(self):
        self.refusals([(name, ("convert", f"{name}.gguf", "out"), code, sentence)
                       for name, code, sentence in self.CASES])

    def test_the_command_line(self):
        self.refusals((
            ("absent", ("convert", "absent.gguf", "out"), 3, "absent.gguf"),
            ("dtype", ("convert", "cut.gguf", "out", "--dtype", "i8"), 2, "dtype"),
            ("there", ("convert", "pre.gguf", "there"), 3, "there exists"),
            ("a file of ONNX", ("convert", "cut.gguf", "m.onnx"), 2,
             r"m\.onnx: --to onnx writes a folder with model\.onnx"),
            ("GGUF is not written", ("convert", "there", "m.gguf"), 2,
             r"m\.gguf: GGUF is read and not written"),
            ("operands", ("convert", "cut.gguf"), 2, "OUT")))


if __name__ == "__main__":
    unittest.main()
