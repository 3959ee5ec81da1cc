# SPDX-License-Identifier: Apache-2.0
"""What modules.json may say of the transformer and after it, as sentence-transformers wrote it
until 5.3 and writes it since, and --pooling and --dimensions: against vectors that are made here of
the states of tokens."""
import json
import math
import struct
import unittest

from cli_case import Scratch, copy_golden, run

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


# What sentence-transformers 6.2 writes.
NEW_TYPES = {"Transformer": "sentence_transformers.base.modules.transformer.Transformer",
             "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
             "Dense": "sentence_transformers.base.modules.dense.Dense",
             "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
             "LayerNorm": "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm",
             "Dropout": "sentence_transformers.sentence_transformer.modules.dropout.Dropout"}


class Modules(Scratch):
    @staticmethod
    def make(folder):
        copy_golden("encoders/roberta", folder / "model")
        (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def new_modules(self, pooling, *more, **configs):
        """A folder as 6.2 writes it, of which configs has the modules' own config.json."""
        model = self.folder / "model"
        kinds = ["Transformer", "Pooling", *more]
        (model / "modules.json").write_text(json.dumps(
            [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
              "type": NEW_TYPES[kind]} for i, kind in enumerate(kinds)], indent=2))
        configs = {"Pooling": {"embedding_dimension": WIDTH, "pooling_mode": pooling,
                               "include_prompt": True},
                   "Normalize": {"module_input_name": "sentence_embedding",
                                 "module_output_name": "sentence_embedding"},
                   "Dropout": {"dropout": 0.2}, **configs}
        for i, kind in enumerate(kinds):
            if i:
                (model / f"{i}_{kind}").mkdir(exist_ok=True)
                (model / f"{i}_{kind}/config.json").write_text(json.dumps(configs[kind]))
        (model / "sentence_bert_config.json").write_text(json.dumps(
            {"transformer_task": "feature-extraction", "modality_config": {
                "text": {"method": "forward", "method_output_name": "last_hidden_state"}},
             "module_output_name": "token_embeddings"}))

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

    def fails(self, code, sentence, *arguments):
        done = run(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)

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

    def test_training_holds_them(self):
        """A student learns the teacher's vectors, which its own Dense ends too."""
        dense = {"in_features": 2 * WIDTH, "out_features": 8, "bias": False}
        self.new_modules(["mean", "weightedmean"], "Dense", "Normalize", Dense=dense)
        weight = [((i * 37) % 101 - 50) / 500 for i in range(16 * WIDTH)]
        write_tensors(self.folder / "model/2_Dense/model.safetensors",
                      {"linear.weight": ([8, 2 * WIDTH], weight)})
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *" ".join(TEXTS).split()]
        (self.folder / "model/vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n")
        self.addCleanup((self.folder / "model/vocab.txt").unlink)
        self.good("prune", "model", "pruned")
        self.good("train", "pruned", "out", "--text", "texts.txt", "--teacher", "model", "--steps",
                  "20", "--rate", "0.001", "--loss", "cosine=20", "--metrics", "steps")
        losses = [json.loads(line)["loss"]
                  for line in (self.folder / "steps").read_text().splitlines()]
        self.assertLess(losses[-1], losses[0])
        for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json",
                     "2_Dense/model.safetensors"):
            self.assertEqual((self.folder / "out" / name).read_bytes(),
                             (self.folder / "model" / name).read_bytes(), name)

    def test_names_of_pooling(self):
        """Each name of 6.2 is what the older key says; legacy keys next to it count nothing, and
        all of them off are the mean."""
        for key, name in (("cls_token", "cls"), ("max_tokens", "max"), ("mean_tokens", "mean"),
                          ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
                          ("weightedmean_tokens", "weightedmean"), ("lasttoken", "lasttoken")):
            with self.subTest(name):
                self.modules(key)
                old = self.vectors()
                for mode in (name, [name]):
                    self.new_modules(mode)
                    self.assertEqual(self.vectors(), old)
        self.modules("mean_tokens")
        mean, place = self.vectors(), self.folder / "model/1_Pooling/config.json"
        old = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False,
               "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False,
               "pooling_mode_mean_sqrt_len_tokens": False}
        place.write_text(json.dumps(old))
        self.assertEqual(self.vectors(), mean)
        place.write_text(json.dumps({**old, "pooling_mode_cls_token": True,
                                     "pooling_mode": "mean"}))
        self.assertEqual(self.vectors(), mean)

    def test_ways_side_by_side(self):
        single = {}
        for name in ("cls", "max", "mean"):
            self.new_modules(name)
            single[name] = self.vectors()
        want = [m + c for m, c in zip(single["mean"], single["cls"])]
        self.new_modules(["mean", "cls"])
        self.assertEqual(self.vectors(), want)
        for got, row in zip(self.vectors("--dimensions", "70"), want):
            self.close(got, row[:70])
        for got, row in zip(self.vectors("--pooling", "max"), single["max"]):
            self.close(got, row)
        self.new_modules(["mean", "cls"], "Normalize")
        for got, row in zip(self.vectors(), want):
            self.close(got, unit(row))
        # Older folders: the keys that are on, in sentence-transformers' order.
        self.modules("mean_tokens")
        (self.folder / "model/1_Pooling/config.json").write_text(json.dumps(
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}))
        self.assertEqual(self.vectors(), [c + m for m, c in zip(single["mean"], single["cls"])])

    def test_modules_in_their_order(self):
        """Normalize before Dense, Dropout as nothing, a norm at the end."""
        self.new_modules("mean")
        plain = self.vectors()
        weight = [((i * 29) % 97 - 48) / 100 for i in range(16 * WIDTH)]
        self.new_modules("mean", "Normalize", "Dropout", "Dense", "LayerNorm",
                         Dense={"in_features": WIDTH, "out_features": 16, "bias": False,
                                "activation_function": "torch.nn.modules.activation.SiLU",
                                "module_input_name": "sentence_embedding",
                                "module_output_name": "sentence_embedding"},
                         LayerNorm={"dimension": 16})
        write_tensors(self.folder / "model/4_Dense/model.safetensors",
                      {"linear.weight": ([16, WIDTH], weight)})
        gamma, beta = [1 + i / 16 for i in range(16)], [i / 8 for i in range(16)]
        write_tensors(self.folder / "model/5_LayerNorm/model.safetensors",
                      {"norm.weight": ([16], gamma), "norm.bias": ([16], beta)})
        for got, row in zip(self.vectors(), plain):
            row = unit(row)
            x = [sum(a * w for a, w in zip(row, weight[o * WIDTH:])) for o in range(16)]
            x = [v / (1 + math.exp(-v)) for v in x]
            mean = sum(x) / 16
            spread = math.sqrt(sum((v - mean) ** 2 for v in x) / 16 + 1e-5)
            self.close(got, [(v - mean) / spread * g + b for v, g, b in zip(x, gamma, beta)], 4)

    def test_activations(self):
        self.modules("cls_token")
        plain = self.vectors()[0]
        weight = [((i * 37) % 101 - 50) / 50 for i in range(8 * WIDTH)]
        made = [sum(x * w for x, w in zip(plain, weight[o * WIDTH:])) for o in range(8)]
        for name, function in (("activation.Tanh", math.tanh), ("linear.Identity", lambda x: x),
                               ("activation.ReLU", lambda x: max(x, 0)),
                               ("activation.GELU",
                                lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
                               ("activation.SiLU", lambda x: x / (1 + math.exp(-x))),
                               ("activation.Sigmoid", lambda x: 1 / (1 + math.exp(-x))),
                               ("activation.LeakyReLU", lambda x: x if x > 0 else x / 100)):
            with self.subTest(name):
                self.modules("cls_token", "Dense", dense={
                    "in_features": WIDTH, "out_features": 8, "bias": False,
                    "activation_function": f"torch.nn.modules.{name}"})
                write_tensors(self.folder / "model/2_Dense/model.safetensors",
                              {"linear.weight": ([8, WIDTH], weight)})
                self.close(self.vectors()[0], [function(x) for x in made], 4)

    def test_dense_that_adds_its_input(self):
        self.modules("cls_token")
        plain = self.vectors()[0]
        for out in (8, WIDTH):
            weights = {name: ([out, WIDTH], [((i * step) % 101 - 50) / 50
                                             for i in range(out * WIDTH)])
                       for name, step in (("linear.weight", 37), ("residual.weight", 29))}
            made, added = ([sum(x * w for x, w in zip(plain, weight[o * WIDTH:]))
                            for o in range(out)] for _, weight in weights.values())
            if out == WIDTH:
                added = plain
                del weights["residual.weight"]
            self.modules("cls_token", "Dense", dense={
                "in_features": WIDTH, "out_features": out, "bias": False, "use_residual": True,
                "activation_function": "torch.nn.modules.activation.Tanh"})
            write_tensors(self.folder / "model/2_Dense/model.safetensors", weights)
            self.close(self.vectors()[0], [math.tanh(x) + y for x, y in zip(made, added)], 4)

    def test_transformer_in_a_folder_of_its_own(self):
        """As sentence-transformers wrote before 2.0."""
        self.modules("mean_tokens", "Normalize")
        want, model = self.vectors(), self.folder / "model"
        (model / "0_Transformer").mkdir()
        for path in list(model.iterdir()):
            if path.is_file() and path.name != "modules.json":
                path.rename(model / "0_Transformer" / path.name)
        listed = json.loads((model / "modules.json").read_text())
        for place in ("0_Transformer", "0_Transformer/"):
            listed[0]["path"] = place
            (model / "modules.json").write_text(json.dumps(listed))
            self.assertEqual(self.vectors(), want)

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
                                       ({"activation_function": "x.Identity"}, 5,
                                        "activation_function is 'x.Identity'; torch's Tanh"),
                                       ({"activation_function": "torch.nn.Identity"}, 3,
                                        "2_Dense: .*model.safetensors"),
                                       ({"in_features": 32}, 3, "in_features is 32; 64 was")):
            dense.update(change)
            self.modules("cls_token", "Dense", dense=dense)
            done = run(*arguments, cwd=self.folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, sentence)
        dense = {"in_features": WIDTH, "out_features": 8}
        self.modules("cls_token", "Dense", dense={**dense, "module_input_name": "token_embeddings"})
        self.fails(5, "module_input_name is 'token_embeddings'; sentence_embedding", *arguments)
        self.modules("cls_token", "LSTM")
        self.fails(5, "models.LSTM' is not supported; sentence_transformers' Transformer, "
                   "CLIPModel, Pooling", *arguments)
        (self.folder / "model/modules.json").write_text(json.dumps(
            [{"path": "", "type": NEW_TYPES["Transformer"]}]))
        self.fails(5, "modules.json: no module is Pooling", *arguments)
        self.modules("cls_token")
        done = run(*arguments, "--dimensions", "65", cwd=self.folder)
        self.assertIn("dimensions is 65; 1 to 64", done.stderr)
        self.assertEqual(run(*arguments, "--pooling", "first", cwd=self.folder).returncode, 2)


if __name__ == "__main__":
    unittest.main()
