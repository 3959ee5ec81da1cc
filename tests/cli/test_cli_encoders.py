# SPDX-License-Identifier: Apache-2.0
"""Every text encoder of models.def goes through the commands: pruned with calibration, packed,
checked, run dense, 2:4 and in integers, timed, refined and trained."""
import json
import random
import unittest

from cli_case import Scratch, copy_golden

MODELS = {"roberta": 18, "xlm-roberta": 18, "distilbert": 18, "electra": 18, "mpnet": 18,
          "modernbert": 12, "nomic_bert": 15}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "river", "runs", "to", "sea", "slow"]


class Encoders(Scratch):
    @staticmethod
    def make(folder):
        order = random.Random(7)
        for name in MODELS:
            copy_golden(f"encoders/{name}", folder / name)
            (folder / name / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        (folder / "ids.txt").write_text("".join(
            " ".join(str(order.randrange(5, 300)) for _ in range(order.randrange(8, 60))) + "\n"
            for _ in range(24)))
        (folder / "texts.txt").write_text("the river runs\nslow the sea\nto the river\n" * 4)

    def test_pruned(self):
        for name, layers in MODELS.items():
            for method in ("wanda", "sparsegpt"):
                with self.subTest(name, method=method):
                    report = self.json("prune", name, "out", "--method", method, "--calibration",
                                       "ids.txt", "--ids", "--packed", "--force")
                    self.assertEqual(len(report["layers"]), layers)
            self.json("prune", name, "out", "--method", "sparsegpt", "--calibration", "ids.txt",
                      "--ids", "--packed", "--force", "--refine", "all", "--reconstruct", "2")
            self.good("check", "out")
            for dtype in ("f32", "bf16", "i8"):
                told = self.json("embed", "out", "--ids", "--input", "ids.txt", "--output",
                                 f"{dtype}.npy", "--dtype", dtype, "--sparse", "--force")
                self.assertEqual((told["layers"], told["sparse_layers"]), (layers, layers))
            told = self.json("embed", name, "--ids", "--input", "ids.txt", "--output", "int8.npy",
                             "--dtype", "int8", "--force")
            self.assertEqual(told["sparse_layers"], 0)
        self.good("bench", "--model", "out", "--batch", "1", "--seq", "16")

    def test_nomic_keys(self):
        """Folders from before transformers had the model spell their keys as GPT-2's."""
        path = self.folder / "nomic_bert/config.json"
        new = json.loads(path.read_text())
        arguments = ("embed", "nomic_bert", "--ids", "--input", "ids.txt", "--force", "--output")
        self.good(*arguments, "new.npy")
        old = {"model_type": "nomic_bert", "vocab_size": new["vocab_size"], "n_positions": 128,
               "n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 160, "type_vocab_size": 2,
               "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "prenorm": False,
               "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_scaling_factor": None,
               "rotary_emb_interleaved": False, "causal": False}
        path.write_text(json.dumps(old))
        self.good(*arguments, "old.npy")
        self.assertEqual((self.folder / "old.npy").read_bytes(),
                         (self.folder / "new.npy").read_bytes())
        for key, value, sentence in (("prenorm", True, "prenorm is on"),
                                     ("moe_every_n_layers", 2, "moe_every_n_layers is on")):
            path.write_text(json.dumps({**old, key: value}))
            self.assertIn(sentence, self.json(*arguments, "bad.npy", exit=5)["error"])

    def test_other_functions(self):
        """Keys that make another function of the same weights."""
        for name, key, value, sentence in (
                ("roberta", "is_decoder", True, "is_decoder is on, which is not supported"),
                ("electra", "add_cross_attention", True, "add_cross_attention is on")):
            path = self.folder / name / "config.json"
            text = path.read_text()
            path.write_text(json.dumps({**json.loads(text), key: value}))
            told = self.json("embed", name, "--ids", "--input", "ids.txt", "--output", "bad.npy",
                             exit=5)
            self.assertIn(sentence, told["error"])
            path.write_text(text)

    def test_trained(self):
        for name in MODELS:
            with self.subTest(name):
                self.good("prune", name, "pruned", "--force")
                arguments = ("train", "pruned", "trained", "--teacher", name, "--text",
                             "texts.txt", "--steps", "2", "--batch", "4", "--force")
                self.good(*arguments)
                self.good("check", "trained")
                self.good("search", "trained", "--documents", "texts.txt", "--query", "the sea")


if __name__ == "__main__":
    unittest.main()
