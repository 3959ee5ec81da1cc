# SPDX-License-Identifier: Apache-2.0
"""prune --permute: every model gives what it gave, and 2:4 keeps more of it."""
import array
import random
import shutil
import unittest

from cli_case import Scratch, copy_golden

ENCODERS = ["distilbert", "electra", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta"]
LANGUAGE = ["gpt2", "llama2", "mistral", "qwen2", "qwen3"]


def kept(report):
    return sum(layer["kept_l1"] for layer in report["layers"])


class Permute(Scratch):
    @staticmethod
    def make(folder):
        order = random.Random(7)
        for kind, names in ("encoders", ENCODERS), ("language", LANGUAGE):
            for name in names:
                copy_golden(f"{kind}/{name}", folder / name)
        (folder / "ids.txt").write_text("".join(
            " ".join(str(order.randrange(5, 90)) for _ in range(12)) + "\n" for _ in range(6)))

    def permuted(self, name, *more):
        """The dense model in another order, after it was seen that 2:4 gains by it."""
        method = ["--method", "wanda"] if more else []
        before = self.json("prune", name, "before", "--force", *method, *more)
        after = self.json("prune", name, "after", "--force", "--permute", *method, *more)
        if not more:  # else inputs of later blocks are others
            self.assertGreater(kept(after), kept(before), name)
        self.good("prune", name, "dense", "--force", "--permute", "--pattern", "unstructured:0",
                  *more)

    def test_encoders(self):
        for name in ENCODERS:
            self.permuted(name, *(["--calibration", "ids.txt", "--ids"] if name < "f" else []))
            vectors = []
            for folder in name, "dense":
                self.good("embed", folder, "--ids", "--input", "ids.txt", "--output", "v.npy",
                          "--force")
                data = (self.folder / "v.npy").read_bytes()
                vectors.append(array.array("f", data[len(data) % 128 or 128:]))
            with self.subTest(name):
                self.assertEqual(len(vectors[0]), len(vectors[1]))
                for a, b in zip(*vectors):
                    self.assertAlmostEqual(a, b, delta=1e-6)
                self.assertNotEqual((self.folder / "dense/model.safetensors").read_bytes(),
                                    (self.folder / name / "model.safetensors").read_bytes())

    def test_language_models(self):
        for name in LANGUAGE:
            self.permuted(name)
            loss = [self.json("eval", folder, "--task", "lm", "--data", "ids.txt", "--ids",
                              "--max-tokens", "8")["loss"] for folder in (name, "dense")]
            with self.subTest(name):
                self.assertAlmostEqual(*loss, delta=1e-5)

    def test_refusals(self):
        shutil.copy(self.fixtures / "gpt2/model.safetensors", self.fixtures / "w.safetensors")
        self.refusals([
            ("a single file", ["prune", "w.safetensors", "out", "--permute"], 2,
             "config.json|is a single file"),
            ("masks", ["prune", "gpt2", "out", "--permute", "--masks-only"], 2, "--permute"),
        ])


if __name__ == "__main__":
    unittest.main()
