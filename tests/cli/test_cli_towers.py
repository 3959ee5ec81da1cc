# SPDX-License-Identifier: Apache-2.0
"""Folders of models with towers of texts and images: their texts are those of the same language
model alone, in generate, eval, prune, pack and serve, by every way in which names are written; the
other towers stay as they are."""
import json
import shutil
import unittest

from cli_case import Scratch
from cli_data import read, tensor, write
import test_cli_eval
from test_cli_serve import Server
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

LETTERS = test_cli_eval.LETTERS
# Where the layers of the texts stand, and where their head does.
WAYS = {"old": ("language_model.model.", "language_model."), "new": ("model.language_model.", ""),
        "third": ("model.text_model.", ""), "flat": ("model.", "")}
TOWER = {name: tensor("f32", [32, 32], b"\0\0\0\x3f" * 1024) for name in (
    "vision_tower.encoder.layers.0.self_attn.q_proj.weight",
    "vision_tower.encoder.layers.0.mlp.up_proj.weight", "multi_modal_projector.linear.weight")}


def of(folder, name, ways, **more):
    """The llama in a folder of its own, as the texts' tower of a model of images."""
    where, head = ways
    out = folder / name
    shutil.copytree(folder / "llama", out)
    config = json.loads((out / "config.json").read_text())
    config.pop("architectures")
    if where == "model.":
        config |= {"model_type": "qwen2_vl", "vision_config": {"depth": 1}}
    else:
        tied = config.pop("tie_word_embeddings")
        config.pop("hidden_act")  # which is llama's usual one
        config = {"model_type": "llava", "text_config": config, "tie_word_embeddings": tied,
                  "vision_config": {"model_type": "clip_vision_model"}}
    (out / "config.json").write_text(json.dumps(config | more))
    tensors = {}
    for old, (dtype, shape, raw) in read(out / "model.safetensors")[0].items():
        begin = head if old.startswith("lm_head") else where
        tensors[begin + old.removeprefix("model.")] = {"dtype": dtype, "shape": shape, "data": raw}
    write(out / "model.safetensors", tensors | TOWER)


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama")
    randomise(folder / "llama", 3)
    for name, ways in WAYS.items():
        of(folder, name, ways)
    of(folder, "prefixed", WAYS["old"], model_type="paligemma")
    of(folder, "unknown", WAYS["old"])
    config = json.loads((folder / "unknown/config.json").read_text())
    config["text_config"]["model_type"] = "llama4_text"
    (folder / "unknown/config.json").write_text(json.dumps(config | {"model_type": "llama4"}))
    (folder / "text").write_text(LETTERS * 3)


class Towers(Scratch):
    make = staticmethod(make)

    def text(self, model, *more):
        return self.json("generate", model, "--prompt", "abca", "--max-new", "9",
                         *more)["prompts"][0]["text"]

    def test_texts_are_those_of_the_model_alone(self):
        data = ("--task", "lm", "--data", "text")
        for name in WAYS:
            with self.subTest(name):
                self.assertEqual(self.text(name), self.text("llama"))
                self.assertEqual(self.json("eval", name, *data)["loss"],
                                 self.json("eval", "llama", *data)["loss"])
                self.assertIn("the part for texts is run; images and sounds are left out",
                              self.good("generate", name, "--prompt", "a").stderr)

    def test_the_texts_layers_alone_are_pruned(self):
        for way in (("--method", "magnitude"), ("--method", "wanda", "--calibration", "text")):
            packed = f"llama-{way[1]}"
            self.good("prune", "llama", packed, *way, "--packed")
            for name in WAYS:
                with self.subTest(name, way=way):
                    out = f"{name}-{way[1]}"
                    done = self.good("prune", name, out, *way, "--packed")
                    self.assertIn("images and sounds are left out", done.stderr)
                    tensors = read(self.folder / out / "model.safetensors")[0]
                    for tower, entry in TOWER.items():
                        self.assertEqual(tensors[tower][2], entry["data"])
                    self.assertFalse([t for t in tensors if t.endswith("q_proj.weight")
                                      and "vision" not in t])
                    self.assertEqual(self.text(out), self.text(packed))

    def test_pack_and_check(self):
        self.good("prune", "old", "pruned")
        self.good("pack", "pruned", "packed")
        self.good("check", "packed")
        self.assertEqual(self.text("packed"), self.text("pruned"))

    def test_serve(self):
        server = Server(self, "old")
        answer = server.good("/v1/completions", {"prompt": "abca", "max_tokens": 9,
                                                 "temperature": 0})
        self.assertEqual(answer["choices"][0]["text"], self.text("llama"))

    def test_refusals(self):
        self.refusals([
            ("a prompt that attends to later tokens", ["generate", "prefixed", "--prompt", "a"], 5,
             "model_type 'paligemma' lets tokens of a prompt attend to later ones"),
            ("texts of an unknown type", ["generate", "unknown", "--prompt", "a"], 5,
             "model_type 'llama4' is not supported, and neither is 'llama4_text' of its "
             "text_config")])


if __name__ == "__main__":
    unittest.main()
