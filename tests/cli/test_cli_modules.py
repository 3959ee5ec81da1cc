# SPDX-License-Identifier: Apache-2.0
"""What modules.json may say after the transformer, and --pooling and --dimensions: against vectors
that are made here of the states of tokens."""
import json
import math
import os
import pathlib
import shutil
import struct
import unittest

from cli_case import Scratch, run

GOLDEN = pathlib.Path(os.environ.get("SPARSE24_GOLDEN") or
                      pathlib.Path(os.environ["S24_SOURCE"]).parent / "shared/golden")
WIDTH, TEXTS = 64, ["5 9 17 40 3", "7", "250 12 12 8"]


def tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    for name, of in header.items():
        begin, end = of["data_offsets"]
        yield name, of["shape"], struct.unpack(f"<{(end - begin) // 4}f",
                                               data[8 + size + begin:8 + size + end])


def write_tensors(path, named):
    header, rest = {}, b""
    for name, (shape, values) in named.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(rest), len(rest) + len(raw)]}
        rest += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def unit(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


class Modules(Scratch):
    @staticmethod
    def make(folder):
        shutil.copytree(GOLDEN / "encoders" / "roberta", folder / "model")
        (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def modules(self, mode, *more, dense=None):
        model = self.folder / "model"
        kinds = ["Transformer", "Pooling", *more]
        listed = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
                   "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
        (model / "modules.json").write_text(json.dumps(listed))
        (model / "1_Pooling").mkdir(exist_ok=True)
        (model / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
        if dense:
            place = model / "2_Dense"
            place.mkdir(exist_ok=True)
            (place / "config.json").write_text(json.dumps(dense))

    def vectors(self, *options):
        done = self.good("embed", "model", "--ids", "--input", "texts.txt", "--output",
                         "v.safetensors", "-f", "--quiet", *options)
        self.assertEqual(done.stdout, "")
        ((_, shape, values),) = tensors(self.folder / "v.safetensors")
        return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]

    def close(self, got, want, places=5):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, places=places)

    def test_pooling(self):
        """Of a text of n tokens mean_sqrt_len is √n times the mean, and so on."""
        self.modules("mean_tokens")
        mean = self.vectors()
        for key, name, factor in (("mean_sqrt_len_tokens", "mean_sqrt_len", math.sqrt(5)),
                                  ("mean_tokens", "mean", 1)):
            self.modules(key)
            self.close(self.vectors()[0], [factor * x for x in mean[0]])
            self.modules("cls_token")
            self.close(self.vectors("--pooling", name)[0], [factor * x for x in mean[0]])
        first, last = self.vectors("--pooling", "cls"), self.vectors("--pooling", "lasttoken")
        for ways in (first, last, self.vectors("--pooling", "weightedmean"),
                     self.vectors("--pooling", "max")):
            self.close(ways[1], mean[1])
            self.assertGreater(max(abs(a - b) for a, b in zip(ways[0], mean[0])), 1e-3)
        self.modules("weightedmean_tokens")
        self.close(self.vectors("--pooling", "cls")[0], first[0])

    def test_weights_of_tokens(self):
        """Two tokens: their states from first and last, and what is between."""
        (self.folder / "texts.txt").write_text("11 200\n")
        self.modules("weightedmean_tokens")
        first = self.vectors("--pooling", "cls")[0]
        last = self.vectors("--pooling", "lasttoken")[0]
        self.close(self.vectors()[0], [(a + 2 * b) / 3 for a, b in zip(first, last)])

    def test_dense(self):
        self.modules("cls_token")
        plain = self.vectors()
        weight = [((i * 37) % 101 - 50) / 500 for i in range(24 * WIDTH)]
        bias = [i / 100 for i in range(24)]
        dense = {"in_features": WIDTH, "out_features": 24, "bias": True,
                 "activation_function": "torch.nn.modules.activation.Tanh"}
        self.modules("cls_token", "Dense", "Normalize", dense=dense)
        write_tensors(self.folder / "model/2_Dense/model.safetensors",
                      {"linear.weight": ([24, WIDTH], weight), "linear.bias": ([24], bias)})
        want = [[math.tanh(sum(x * w for x, w in zip(row, weight[o * WIDTH:])) + bias[o])
                 for o in range(24)] for row in plain]
        for got, row in zip(self.vectors(), want):
            self.close(got, unit(row))
        for got, row in zip(self.vectors("--dimensions", "8"), want):
            self.close(got, unit(row[:8]))
        self.modules("cls_token", "Dense", dense=dense)
        for got, row in zip(self.vectors(), want):
            self.close(got, row)

    def test_dimensions(self):
        whole = self.vectors()
        for got, row in zip(self.vectors("--dimensions", "10"), whole):
            self.close(got, unit(row[:10]))
        self.modules("mean_tokens")
        whole = self.vectors()
        for got, row in zip(self.vectors("--dimensions", "10"), whole):
            self.close(got, row[:10])

    def test_refusals(self):
        dense = {"in_features": WIDTH, "out_features": 8,
                 "activation_function": "torch.nn.modules.activation.SELU"}
        arguments = ("embed", "model", "--ids", "--input", "texts.txt", "--output", "v.npy")
        self.modules("cls_token", "Dense", dense=dense)
        for change, code, sentence in (({}, 5, "activation_function is 'torch.*SELU'"),
                                       ({"activation_function": "x.Identity"}, 3,
                                        "2_Dense/model.safetensors"),
                                       ({"in_features": 32}, 3, "in_features is 32; 64 was")):
            dense.update(change)
            self.modules("cls_token", "Dense", dense=dense)
            done = run(*arguments, cwd=self.folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, sentence)
        self.modules("cls_token", "Normalize", "Dense", dense=dense)
        self.assertIn("Dense after Normalize", run(*arguments, cwd=self.folder).stderr)
        self.modules("cls_token", "LSTM")
        self.assertIn("models.LSTM' is not supported; Transformer, Pooling, Dense and Normalize",
                      run(*arguments, cwd=self.folder).stderr)
        self.modules("cls_token")
        done = run(*arguments, "--dimensions", "65", cwd=self.folder)
        self.assertIn("dimensions is 65; 1 to 64", done.stderr)
        self.assertEqual(run(*arguments, "--pooling", "first", cwd=self.folder).returncode, 2)


if __name__ == "__main__":
    unittest.main()
