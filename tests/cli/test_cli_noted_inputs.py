# SPDX-License-Identifier: Apache-2.0
"""pack --calibration without --quantize: what layers' inputs reach is stored with the model, and
what does not fit the model is refused by name when it is loaded."""
import json
import unittest

from cli_case import Scratch, run
from cli_data import read, write
import tiny_bert

KEY = "sparse24.inputs"


def make(folder):
    tiny_bert.write(folder / "bert")
    (folder / "texts").write_text("a b\n\nb a c\nc a\n" * 4)
    (folder / "empty").write_text("\n\n")
    assert run("prune", "bert", "half", "--packed", cwd=folder).returncode == 0


class NotedInputs(Scratch):
    make = staticmethod(make)

    def noted(self, folder):
        tensors, metadata = read(self.folder / folder / "model.safetensors")
        return tensors, metadata, json.loads(metadata[KEY])

    def change(self, edit):
        """The folder `noted` with other notes."""
        path = self.folder / "noted/model.safetensors"
        tensors, metadata, notes = self.noted("noted")
        edit(notes)
        metadata[KEY] = json.dumps(notes)
        write(path, {n: {"dtype": d, "shape": s, "data": b} for n, (d, s, b) in tensors.items()},
              metadata)

    def test_stored(self):
        self.good("pack", "half", "noted", "--calibration", "texts")
        before, _ = read(self.folder / "half/model.safetensors")
        tensors, metadata, notes = self.noted("noted")
        self.assertEqual(before, tensors)
        self.assertEqual(notes["version"], 1)
        end = ".s24_values"
        layers = {n[:-len(end)]: t[1][1] * 2 for n, t in tensors.items() if n.endswith(end)}
        self.assertEqual({n: k for n, (_, k) in notes["layers"].items()}, layers)
        self.assertTrue(all(most > 0 for most, _ in notes["layers"].values()))
        # query, key and value read the same
        self.assertEqual(len({tuple(v) for n, v in notes["layers"].items()
                              if ".0.attention.self." in n}), 1)
        # the CPU's vectors are the same with them; copies keep them; new ones take their place
        for name in ("half", "noted"):
            self.good("embed", name, "--input", "texts", "--output", f"{name}.npy", "--force")
        self.assertEqual((self.folder / "half.npy").read_bytes(),
                         (self.folder / "noted.npy").read_bytes())
        self.good("unpack", "noted", "dense")
        self.assertEqual(self.noted("dense")[2], notes)
        self.good("pack", "noted", "again", "--calibration", "texts", "--samples", "1")
        self.assertNotEqual(self.noted("again")[2], notes)

    def test_refused(self):
        self.refusals([
            ("no texts", ("pack", "half", "new", "--calibration", "empty"), 4,
             "empty: no line that is not empty"),
            ("no file", ("pack", "half", "new", "--calibration", "none"), 3, "none"),
            ("a file", ("pack", "half/model.safetensors", "new", "--calibration", "texts"), 2,
             "single file"),
            ("ids", ("pack", "half", "new", "--calibration", "texts", "--ids"), 2, "--quantize"),
            ("length", ("pack", "half", "new", "--calibration", "texts", "--max-tokens", "1"), 2,
             "max_tokens is 1")])

    def test_of_another_model(self):
        self.good("pack", "half", "noted", "--calibration", "texts")
        name = next(n for n in self.noted("noted")[2]["layers"] if "output.dense" in n)

        def put(value, key=name):
            return lambda notes: notes["layers"].update({key: value})
        for edit, words in (
                (put([1.0, 9999]), f"'{name}' was taken of 9999 inputs; this model's layer has"),
                (put([-1.0, 8]), None), (put(["x", 8]), None), (put([1.0]), None),
                (put([1.0, 8], "encoder.layer.99.output.dense.weight"),
                 "a layer 'encoder.layer.99.output.dense.weight', which this model has not"),
                (lambda notes: notes.update(version=2), "of version 2, this build reads 1"),
                (lambda notes: notes.pop("layers"), 'no object "layers"')):
            self.good("pack", "half", "noted", "--calibration", "texts", "--force")
            self.change(edit)
            told = self.json("embed", "noted", "--input", "texts", "--output", "x.npy", exit=4)
            self.assertIn(words or name, told["error"])

    def test_dtypes_by_layer(self):
        """On the CPU: what is named runs in i8, the rest as it is stored."""
        made = {}
        for name, words in (("f32", ()), ("i8", ("--dtype", "i8")), ("all", ("--dtype", "*=i8")),
                            ("some", ("--dtype", "*.output.dense*=i8")),
                            ("none", ("--dtype", "*=i8,*=bf16"))):
            told = self.json("embed", "half", "--input", "texts", "--output", f"{name}.npy",
                             "--sparse", "--force", *words)
            self.assertEqual(told["sparse_layers"], told["layers"])
            made[name] = (self.folder / f"{name}.npy").read_bytes()
        self.assertEqual(made["all"], made["i8"])
        self.assertEqual(made["none"], made["f32"])
        self.assertNotIn(made["some"], (made["i8"], made["f32"]))
        embed = ("embed", "half", "--input", "texts", "--output", "x.npy", "--dtype")
        self.refusals([
            ("a name", (*embed, "*=f32"), 2, "'\\*=f32' is no GLOB=NAME"),
            ("two", (*embed, "a=i8,b=e4m3"), 5, "'b' is e4m3 after i8"),
            ("a GPU's", (*embed, "*=e4m3"), 5, "e4m3 on a GPU only"),
            ("no model", ("bench", "--shapes", "8,8,8", "--dtype", "*=i8"), 2, "is for --model")])
        self.good("bench", "--model", "half", "--batch", "1", "--seq", "8", "--dtype",
                  "*.output.dense*=i8", "--rounds", "1", "--min-ms", "1")


if __name__ == "__main__":
    unittest.main()
