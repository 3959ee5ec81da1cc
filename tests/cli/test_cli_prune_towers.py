# SPDX-License-Identifier: Apache-2.0
"""prune of a model that embeds texts and images: each tower by what it reads."""
import json
import unittest

import cli_data
from cli_case import Scratch
from test_cli_eval import write_idx

WIDTH, INNER, WORDS, SIDE, PATCH = 16, 32, 20, 8, 4
LAYERS = 6  # of a tower's one block


def norm(name):
    return {f"{name}.weight": cli_data.tensor("f32", [WIDTH], b"\0\0\x80\x3f" * WIDTH),
            f"{name}.bias": cli_data.tensor("f32", [WIDTH], bytes(4 * WIDTH))}


def weight(rows, cols, seed):
    return cli_data.tensor("f32", [rows, cols], cli_data.matrix("f32", rows, cols, 4, seed))


def tower(prefix):
    block, out = f"{prefix}.encoder.layers.0.", {}
    shapes = {**{f"self_attn.{x}_proj": (WIDTH, WIDTH) for x in ("q", "k", "v", "out")},
              "mlp.fc1": (INNER, WIDTH), "mlp.fc2": (WIDTH, INNER)}
    for seed, (name, (rows, cols)) in enumerate(shapes.items()):
        out[f"{block}{name}.weight"] = weight(rows, cols, seed)
        out[f"{block}{name}.bias"] = cli_data.tensor("f32", [rows], bytes(4 * rows))
    return {**out, **norm(f"{block}layer_norm1"), **norm(f"{block}layer_norm2")}


def make(folder):
    model = folder / "clip"
    model.mkdir()
    sizes = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 1,
             "num_attention_heads": 2}
    (model / "config.json").write_text(json.dumps({
        "model_type": "clip", "projection_dim": WIDTH,
        "text_config": {**sizes, "vocab_size": WORDS, "max_position_embeddings": 12,
                        "eos_token_id": 2},
        "vision_config": {**sizes, "image_size": SIDE, "patch_size": PATCH, "num_channels": 1}}))
    patches = cli_data.matrix("f32", WIDTH, PATCH * PATCH, 4, 11)
    places = (SIDE // PATCH) ** 2 + 1
    cli_data.write(model / "model.safetensors", {
        **tower("text_model"), **tower("vision_model"),
        **norm("text_model.final_layer_norm"), **norm("vision_model.pre_layrnorm"),
        **norm("vision_model.post_layernorm"),
        "text_model.embeddings.token_embedding.weight": weight(WORDS, WIDTH, 7),
        "text_model.embeddings.position_embedding.weight": weight(12, WIDTH, 8),
        "vision_model.embeddings.position_embedding.weight": weight(places, WIDTH, 9),
        "vision_model.embeddings.class_embedding":
            cli_data.tensor("f32", [WIDTH], cli_data.matrix("f32", 1, WIDTH, 4, 10)),
        "vision_model.embeddings.patch_embedding.weight":
            cli_data.tensor("f32", [WIDTH, 1, PATCH, PATCH], patches),
        "text_projection.weight": weight(WIDTH, WIDTH, 12),
        "visual_projection.weight": weight(WIDTH, WIDTH, 13)})
    (folder / "ids.txt").write_text("".join(f"1 {3 + i % 17} {4 + i % 16} 2\n" for i in range(30)))
    write_idx(folder, "photo", [0] * 20, SIDE)
    return model


class Towers(Scratch):
    make = staticmethod(make)
    texts = ["--calibration", "ids.txt", "--ids"]
    images = ["--images", "photo-images-idx3-ubyte"]

    def prune(self, *more):
        return self.json("prune", "clip", "out", "--force", "--method", "sparsegpt",
                         *more)["layers"]

    def test_each_by_what_it_reads(self):
        both_kinds = [*self.texts, *self.images]
        both = self.prune(*both_kinds, "--refine", "all", "--packed")
        self.json("check", "out")
        self.assertEqual(len(both), 2 * LAYERS)
        self.assertTrue(all(0 < layer["output_error"] < 1 for layer in both))
        words = self.prune(*self.texts, "--include", "text_model.*_proj*,text_model.*fc*")
        pictures = self.prune(*self.images, "--include", "vision_model.*_proj*,vision_model.*fc*")
        self.assertEqual([len(words), len(pictures)], [LAYERS, LAYERS])
        self.assertEqual({layer["name"] for layer in words + pictures},
                         {layer["name"] for layer in both})
        self.prune(*both_kinds, "--permute", "--packed")
        # A tower without passages goes by what needs none.
        rest = self.json("prune", "clip", "out", "--force", *self.images)["layers"]
        self.assertEqual([layer["output_error"] is None for layer in rest].count(True), LAYERS)

    def test_refusals(self):
        def prune(*more):
            return ["prune", "clip", "no", "--method", "wanda", *more]
        both = [*self.texts, *self.images]
        self.refusals([
            ("texts alone", prune(*self.texts), 2,
             r"'vision_model.* come of images, and wanda needs them; calibration images were"),
            ("images alone", prune(*self.images), 2,
             r"'text_model.* come of texts, and wanda needs them; calibration texts were"),
            ("resume", prune(*both, "--resume"), 5, "by texts or by images at a time"),
            ("reconstruct", prune(*both, "--reconstruct", "2"), 5, "calibrate on the CPU alone"),
            ("aim", prune(*both, "--aim", "states"), 5, "without reconstruction or an aim"),
            ("permute", prune(*self.images, "--permute"), 5, "'clip', which reads texts, are not "),
            ("cut images", prune(*self.images, "--max-tokens", "4"), 2, "--max-tokens is of texts"),
        ])


if __name__ == "__main__":
    unittest.main()
