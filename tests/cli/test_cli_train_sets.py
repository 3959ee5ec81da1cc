# SPDX-License-Identifier: Apache-2.0
"""train --stream and --images: small models of random weights learn what there is to learn, and what
does not fit is refused."""
import json
import random
import shutil
import unittest

from cli_case import Scratch
import test_cli_eval
import tiny_bert
from cli_data import floats, read

LETTERS = test_cli_eval.LETTERS


def randomise(folder, seed, without="nothing"):
    """The folder's matrices drawn anew: with equal weights nothing could be told apart; and without
    those of a name."""
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    chance = random.Random(seed)
    tensors = {}
    for name, entry in sorted(header.items()):
        if without in name:
            continue
        begin, end = entry["data_offsets"]
        values = list(memoryview(raw[8 + size:])[begin:end].cast("f"))
        norm = "ln_" in name or "layernorm" in name
        if norm:
            values = [1.0 if name.endswith("weight") else 0.0] * len(values)
        elif len(entry["shape"]) > 1:
            values = [chance.gauss(0, 0.3) for _ in values]
        tensors[name] = (entry["shape"], values)
    (folder / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))


def write_squares(folder, name, count, seed, side=4):
    """Images that are bright on the left (class 0), on the right (1) or nowhere (2)."""
    chance = random.Random(seed)
    labels = [chance.randrange(3) for _ in range(count)]
    pixels = bytearray()
    for label in labels:
        for i in range(side * side):
            left = i % side < side // 2
            bright = (label == 0 and left) or (label == 1 and not left)
            pixels.append((200 if bright else 0) + chance.randrange(50))
    test_cli_eval.write_idx(folder, name, labels, side)
    path = folder / f"{name}-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:16] + pixels)


def make(folder):
    test_cli_eval.make_others(folder)
    for name in ("gpt2", "vit"):
        randomise(folder / name, 3)
    (folder / "play").write_text("abcb" * 400 + "\n")
    write_squares(folder, "learn", 300, 1)
    write_squares(folder, "other", 100, 2)


class Sets(Scratch):
    make = staticmethod(make)

    def loss(self, model):
        return self.json("eval", model, "--task", "lm", "--data", "play", "--max-tokens", "8")["loss"]

    def test_a_stream(self):
        found = self.json("train", "gpt2", "out", "--stream", "play", "--max-tokens", "8", "--steps",
                          "120", "--batch", "8", "--rate", "0.02", "--held-out", "20", "--metrics",
                          "m.jsonl")
        lines = [json.loads(line) for line in (self.folder / "m.jsonl").read_text().splitlines()]
        # Of 1,600 predictions 20 pieces of 8 are held out; a step has 8 pieces.
        self.assertAlmostEqual(lines[0]["epoch"], 8 / 180, places=2)
        self.assertLess(found["held_out"], 0.6)
        self.assertLess(self.loss("out"), 0.6)
        self.assertGreater(self.loss("gpt2"), 1)

    def test_a_pruned_language_model_stays_pruned(self):
        """GPT-2's matrices lie transposed."""
        options = ("--stream", "play", "--max-tokens", "8", "--steps", "10", "--batch", "8",
                   "--rate", "0.02", "--threads", "1")
        for method in ("magnitude", "tile-best"):
            with self.subTest(method):
                self.good("prune", "gpt2", method, "--method", method, "--include",
                          "*.h.0.*.weight", "--exclude", "*ln_*")
                done = self.good("train", method, method + "-out", *options)
                self.assertNotIn("every weight is trained", done.stderr)
                before, after = (read(self.folder / f / "model.safetensors")[0]
                                 for f in (method, method + "-out"))
                for name in before:
                    if ".h.0." in name and len(before[name][1]) == 2:
                        old, new = floats(before[name][2]), floats(after[name][2])
                        self.assertGreaterEqual(old.count(0), len(old) // 2)
                        self.assertEqual([v == 0 for v in old], [v == 0 for v in new], name)
                self.assertNotEqual(before, after)
        done = self.good("train", "gpt2", "dense-out", *options)
        self.assertIn("no layer has been pruned: every weight is trained", done.stderr)

    def test_images(self):
        data = ["--images", "learn-images-idx3-ubyte"]
        found = self.json("train", "vit", "out", *data, "--steps", "150", "--batch", "16", "--rate",
                          "0.02", "--held-out", "30")
        self.assertLess(found["held_out"], 0.3)
        score = self.json("eval", "out", "--task", "image", "--data", "other-images-idx3-ubyte")
        self.assertGreater(score["top1"], 90)

    def test_an_encoder_of_images_learns_a_teachers_vectors(self):
        for name, seed in (("student", 5), ("teacher", 6)):
            shutil.copytree(self.folder / "vit", self.folder / name)
            randomise(self.folder / name, seed, without="classifier")
        data = ["--images", "learn-images-idx3-ubyte", "--steps", "20", "--batch", "16"]
        found = self.json("train", "student", "out", *data, "--teacher", "teacher", "--rate",
                          "0.01", "--metrics", "steps")
        first = json.loads((self.folder / "steps").read_text().splitlines()[0])
        self.assertLess(found["loss"], 0.7 * first["loss"])
        alone = ["train", self.folder / "student", "out2", "--images",
                 self.folder / "learn-images-idx3-ubyte"]
        self.refusals([("no teacher", alone, 5, "with a classifier")])

    def test_a_pruned_classifier_stays_pruned(self):
        self.good("prune", "vit", "sparse")
        self.good("train", "sparse", "out", "--images", "learn-images-idx3-ubyte", "--steps", "3")
        self.assertTrue(self.json("check", "out")["ok"])

    def test_images_calibrate(self):
        data = ["--images", "learn-images-idx3-ubyte", "--samples", "50"]
        errors = {}
        for method, more in (("magnitude", []), ("sparsegpt", []),
                             ("wanda", ["--refine", "all", "--reconstruct", "5"]),
                             ("snip", ["--refine", "all", "--permute"])):
            found = self.json("prune", "vit", method, "--method", method, *data, *more)
            self.assertTrue(self.json("check", method)["ok"])
            errors[method] = sum(layer["output_error"] for layer in found["layers"])
        self.assertLess(errors["sparsegpt"], errors["magnitude"])
        budget = [*data, "--budget", "bytes=0.8"]
        found = self.json("sensitivity", "vit", *budget, "--recipe", "r.yaml")
        self.assertGreater(len(found["layers"]), 0)
        self.assertIn("images: 'learn-images-idx3-ubyte'", (self.folder / "r.yaml").read_text())
        shown = self.good("sensitivity", "vit", *budget).stdout
        self.assertIn("--images learn-images-idx3-ubyte", shown)

    def test_what_images_do_not_calibrate(self):
        def prune(*more, model="vit"):
            return ["prune", model, "out", *more]
        images = ["--images", "learn-images-idx3-ubyte"]
        self.refusals([
            ("texts too", prune(*images, "--calibration", "play"), 2, "--calibration is of texts"),
            ("cut", prune(*images, "--max-tokens", "4"), 2, "--max-tokens is of texts"),
            ("a text model", prune(*images, model="gpt2"), 5,
             r"images need an image model, and this one \(gpt2\) is none"),
            ("texts", prune("--calibration", "play", "--method", "wanda"), 5,
             "'vit' reads images, which texts cannot calibrate"),
            ("size", prune("--images", "large-images-idx3-ubyte"), 4, "images of 5 x 5 pixels"),
            ("a file", prune(*images, model="vit/model.safetensors"), 2,
             "--images runs the whole model, but .* is a single file"),
            ("neither", ["sensitivity", "vit"], 2,
             "sensitivity needs --calibration FILE, or --images PATH"),
        ])
        # Labels are not read, so there may be more classes than the model has.
        self.good("prune", "vit", "many", "--method", "wanda", "--images", "many-images-idx3-ubyte")

    def test_refusals(self):
        def train(*more, model="gpt2"):
            return ["train", model, "out", *more]
        self.refusals([
            ("two", train("--stream", "play", "--text", "play"), 2, "one of them"),
            ("foreign", train("--stream", "foreign"), 4, "foreign: line 1: .* no token for the"),
            ("wide", train("--stream", "play", "--max-tokens", "17"), 2, "--max-tokens: 17; gpt2 has 16 positions"),
            ("held out", train("--stream", "play", "--held-out", "500"), 4,
             "play: 100 examples; --held-out 500"),
            ("images to a text model", train("--images", "good-images-idx3-ubyte"), 5,
             r"this one \(gpt2\) is none"),
            ("a text to an image model", train("--stream", "play", model="vit"), 3, "tokenizer.json"),
            ("size", train("--images", "large-images-idx3-ubyte", model="vit"), 4,
             "images of 5 x 5 pixels"),
            ("classes", train("--images", "many-images-idx3-ubyte", model="vit"), 4,
             "images of 8 classes, but the model has 3"),
            ("cut", train("--images", "cut-images-idx3-ubyte", model="vit"), 4, "idx file of bytes"),
        ])


if __name__ == "__main__":
    unittest.main()
