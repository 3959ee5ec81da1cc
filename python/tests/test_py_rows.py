# SPDX-License-Identifier: Apache-2.0
"""Models of types that have no golden folder, next to numbers of transformers 5.23 and to kin."""
import json
import pathlib
import random
import shutil
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import golden, tiny_bert

WIDTH, PATCH = 24, 4


def dinov3():
    """Tensors of DINOv3 with registers and a gate, one block, as Meta names them."""
    chance, tensors = random.Random(3), {}

    def add(name, *shape):
        values = [chance.uniform(-0.5, 0.5) for _ in range(int(np.prod(shape)))]
        tensors[name] = (shape, values)

    add("embeddings.cls_token", 1, 1, WIDTH)
    add("embeddings.register_tokens", 1, 2, WIDTH)
    add("embeddings.patch_embeddings.weight", WIDTH, 3, PATCH, PATCH)
    add("embeddings.patch_embeddings.bias", WIDTH)
    for name in ("norm1", "norm2"):
        add(f"layer.0.{name}.weight", WIDTH)
        add(f"layer.0.{name}.bias", WIDTH)
    for name in ("q_proj", "v_proj", "o_proj", "k_proj"):
        add(f"layer.0.attention.{name}.weight", WIDTH, WIDTH)
        if name != "k_proj":
            add(f"layer.0.attention.{name}.bias", WIDTH)
    for name in ("gate_proj", "up_proj"):
        add(f"layer.0.mlp.{name}.weight", 32, WIDTH)
        add(f"layer.0.mlp.{name}.bias", 32)
    add("layer.0.mlp.down_proj.weight", WIDTH, 32)
    add("layer.0.mlp.down_proj.bias", WIDTH)
    add("layer.0.layer_scale1.lambda1", WIDTH)
    add("layer.0.layer_scale2.lambda1", WIDTH)
    add("norm.weight", WIDTH)
    add("norm.bias", WIDTH)
    return tensors


def write(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))


class Rows(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)

    def test_dinov3(self):
        """Its config says 8 pixels, its images come in 12: positions follow these."""
        config = {"model_type": "dinov3_vit", "hidden_size": WIDTH, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "intermediate_size": 32, "hidden_act": "silu",
                  "image_size": 8, "patch_size": PATCH, "num_register_tokens": 2,
                  "use_gated_mlp": True, "rope_theta": 100.0, "layer_norm_eps": 1e-5}
        folder = self.root / "dino"
        write(folder, config, dinov3())
        (folder / "preprocessor_config.json").write_text(json.dumps(
            {"size": {"height": 12, "width": 12}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
        pixels = np.sin(np.arange(3 * 12 * 12, dtype=np.float32) * 0.37).reshape(1, 3, 12, 12)
        states = sparse24.Model(folder).forward_images(pixels, outputs=("hidden",))["hidden"]
        states = states.reshape(12, WIDTH)
        for token, numbers in ((0, [-0.35753, 0.46349, 0.01555, -0.23806]),
                               (1, [-0.13327, 0.78481, -0.47643, -0.41646]),
                               (3, [-0.5775, 0.12096, 0.11207, -0.48859]),
                               (7, [-0.54884, 0.22086, 0.21549, -0.40462]),
                               (11, [-0.39176, 0.34201, 0.2517, -0.35899])):
            np.testing.assert_allclose(states[token, :4], numbers, atol=3e-5)
        sparse24.prune_model(folder, self.root / "pruned")
        vectors = sparse24.Encoder(self.root / "pruned", pooling="cls").encode_pixels(pixels)
        self.assertEqual(vectors.shape, (1, WIDTH))
        config["num_attention_heads"] = 4
        write(self.root / "odd", config, dinov3())
        with self.assertRaisesRegex(sparse24.Error, "heads of 6; a multiple of 4 as width"):
            sparse24.Model(self.root / "odd")

    def longformer(self, name, window):
        """RoBERTa's golden folder with windows."""
        folder = self.root / name
        folder.mkdir()
        place = golden("encoders/roberta")
        shutil.copyfile(place / "model.safetensors", folder / "model.safetensors")
        config = json.loads((place / "config.json").read_text())
        layers = config["num_hidden_layers"]
        config |= {"model_type": "longformer",
                   "attention_window": window if isinstance(window, int) else window(layers)}
        (folder / "config.json").write_text(json.dumps(config))
        return folder, layers

    def test_longformer(self):
        ids = np.arange(5, 45, dtype=np.int32)
        other = ids.copy()
        other[-1] += 7
        whole = sparse24.Model(golden("encoders/roberta")).forward([ids])["hidden"]
        wide = self.longformer("wide", lambda layers: [128] * layers)[0]
        np.testing.assert_allclose(sparse24.Model(wide).forward([ids])["hidden"], whole, atol=2e-5)
        folder, layers = self.longformer("near", 4)
        model = sparse24.Model(folder)
        first, then = model.forward([ids])["hidden"], model.forward([other])["hidden"]
        seen = 40 - 1 - 2 * layers  # tokens that the last one reaches, two a block
        np.testing.assert_array_equal(first[:seen], then[:seen])
        self.assertGreater(np.abs(first[seen:] - then[seen:]).max(axis=1).min(), 0)
        uneven = self.longformer("uneven", lambda layers: [4] * (layers - 1) + [6])[0]
        with self.assertRaisesRegex(sparse24.Error, "attention_window is no list of one number"):
            sparse24.Model(uneven)
        with self.assertRaisesRegex(sparse24.Error, "attention_window is an empty list"):
            sparse24.Model(self.longformer("empty", lambda layers: [])[0])

    def test_tokens_that_see_all(self):
        """is_causal false, as gte-Qwen2's folders have it."""
        ids = np.arange(5, 25, dtype=np.int32)
        other = ids.copy()
        other[-1] += 7
        for place, kind, seen in (("qwen2", None, True), ("qwen3", None, True),
                                  ("llama31", "llama_bidirec", True), ("mistral", None, False)):
            folder = self.root / place
            shutil.copytree(golden(f"language/{place}"), folder)
            config = json.loads((folder / "config.json").read_text())
            config |= {"is_causal": False, "model_type": kind or config["model_type"]}
            if seen:
                config |= {"sliding_window": None, "use_sliding_window": False}
            (folder / "config.json").write_text(json.dumps(config))
            if not seen:
                with self.assertRaisesRegex(sparse24.Error, "sliding_window is on, which is not"):
                    sparse24.Model(folder)
                continue
            model = sparse24.Model(folder)
            states, changed = (model.forward([text])["hidden"] for text in (ids, other))
            self.assertGreater(np.abs(states[0] - changed[0]).max(), 1e-4)
            before = sparse24.Model(golden(f"language/{place}")).forward([ids])["hidden"]
            self.assertGreater(np.abs(states[0] - before[0]).max(), 1e-4)
        config |= {"model_type": "granite", "sliding_window": None}
        (folder / "config.json").write_text(json.dumps(config))
        with self.assertRaisesRegex(sparse24.Error, "is_causal is false, which is not supported"):
            sparse24.Model(folder)


if __name__ == "__main__":
    unittest.main()
