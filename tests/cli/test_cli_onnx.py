# SPDX-License-Identifier: Apache-2.0
"""convert --to onnx: a graph that gives the vectors of embed, run here by its nodes; weights with
their zeros; the model's other files; what is refused."""
import json
import shutil
import unittest

from cli_case import GOLDEN, Scratch, copy_golden
import cli_data
import onnx_data
import tiny_bert

MODELS = ("roberta", "distilbert", "electra", "mpnet")
TEXTS = [[5, 9, 17, 40, 3], [7, 12], [52, 12, 12, 8]]
WIDTH, BOUND = 64, 1e-5


def batch(texts, pad):
    """The inputs of a graph, padded to one length."""
    length = max(map(len, texts))
    ids = [token for text in texts for token in text + [pad] * (length - len(text))]
    mask = [int(i < len(text)) for text in texts for i in range(length)]
    shape = [len(texts), length]
    return {"input_ids": (shape, ids), "attention_mask": (shape, mask),
            "token_type_ids": (shape, [0] * len(ids))}


def pool(folder, mode, *more):
    """Writes what sentence-transformers says of pooling, and modules after it."""
    kinds = ["Transformer", "Pooling", *more]
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
          "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))


class Onnx(Scratch):
    @staticmethod
    def make(folder):
        for name in MODELS:
            copy_golden(f"encoders/{name}", folder / name)
            pool(folder / name, "mean_tokens", "Normalize")
        copy_golden("encoders/modernbert", folder / "modernbert")
        copy_golden("models/vit", folder / "vit")
        tiny_bert.write(folder / "tiny")
        (folder / "ids.txt").write_text("".join(" ".join(map(str, t)) + "\n" for t in TEXTS))

    def vectors(self, model):
        self.good("embed", model, "--input", "ids.txt", "--ids", "--output", "v.safetensors",
                  "--force", "--quiet")
        (_, shape, raw), = cli_data.read(self.folder / "v.safetensors")[0].values()
        return shape, cli_data.floats(raw)

    def same_vectors(self, model, out="out", texts=TEXTS):
        graph = onnx_data.Graph(self.folder / out)
        pad = json.loads((self.folder / model / "config.json").read_text()).get("pad_token_id")
        found = graph.run(batch(texts, pad or 0))["sentence_embedding"]
        shape, wanted = self.vectors(model)
        self.assertEqual(found[0], shape)
        for ours, theirs in zip(wanted, found[1]):
            self.assertAlmostEqual(ours, theirs, delta=BOUND)
        return graph

    def test_every_model_type_gives_the_vectors_of_embed(self):
        for name in MODELS:
            with self.subTest(name):
                done = self.json("convert", name, "out", "--to", "onnx", "--force")
                graph = self.same_vectors(name)
                self.assertEqual((done["tensors"], done["dimensions"], done["external"]),
                                 (sum(len(s) > 0 and n.find("constant") < 0
                                      for n, (s, _) in graph.tensors.items()), WIDTH, False))
                names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (name == "electra")
                both = ["batch_size", "sequence_length"]
                self.assertEqual(graph.inputs, {n: (7, both) for n in names})
                self.assertEqual(graph.outputs, {"last_hidden_state": (1, both + [WIDTH]),
                                                 "sentence_embedding": (1, ["batch_size", WIDTH])})

    def test_every_way_of_pooling(self):
        for mode in ("cls_token", "max_tokens", "lasttoken", "weightedmean_tokens",
                     "mean_sqrt_len_tokens"):
            with self.subTest(mode):
                pool(self.folder / "roberta", mode)
                self.good("convert", "roberta", "out", "--to", "onnx", "--force")
                self.same_vectors("roberta")

    def test_dense_modules(self):
        for activation in ("Tanh", "GELU", "ReLU", "Identity", "SiLU", "Sigmoid", "LeakyReLU"):
            with self.subTest(activation):
                pool(self.folder / "roberta", "mean_tokens", "Dense", "Normalize")
                place = self.folder / "roberta/2_Dense"
                place.mkdir(exist_ok=True)
                place.joinpath("config.json").write_text(json.dumps(
                    {"in_features": WIDTH, "out_features": 12, "bias": True,
                     "activation_function": f"torch.nn.modules.activation.{activation}"}))
                cli_data.write(place / "model.safetensors", {
                    "linear.weight": cli_data.tensor("f32", [12, WIDTH],
                                                     cli_data.matrix("f32", 12, WIDTH)),
                    "linear.bias": cli_data.tensor("f32", [12], cli_data.matrix("f32", 1, 12))})
                self.good("convert", "roberta", "out", "--to", "onnx", "--force")
                graph = self.same_vectors("roberta")
                self.assertEqual(graph.outputs["sentence_embedding"][1], ["batch_size", 12])

    def test_modules_in_their_order(self):
        """Two ways of pooling side by side, and a norm before the length of 1."""
        pool(self.folder / "roberta", "mean_tokens", "Normalize", "LayerNorm", "Normalize")
        (self.folder / "roberta/1_Pooling/config.json").write_text(
            '{"pooling_mode": ["lasttoken", "max"]}')
        place = self.folder / "roberta/3_LayerNorm"
        place.mkdir()
        place.joinpath("config.json").write_text(json.dumps({"dimension": 2 * WIDTH}))
        cli_data.write(place / "model.safetensors", {
            f"norm.{name}": cli_data.tensor("f32", [2 * WIDTH],
                                            cli_data.matrix("f32", 1, 2 * WIDTH))
            for name in ("weight", "bias")})
        self.good("convert", "roberta", "out", "--to", "onnx", "--force")
        graph = self.same_vectors("roberta")
        self.assertEqual(graph.outputs["sentence_embedding"][1], ["batch_size", 2 * WIDTH])

    def test_zeros_and_files_of_a_packed_model_go_along(self):
        self.good("prune", "tiny", "pruned")
        self.good("pack", "pruned", "packed")
        said = self.good("convert", "packed", "out", "--to", "onnx", "--external").stdout
        self.assertIn("model.onnx with model.onnx_data gives last_hidden_state and "
                      "sentence_embedding of 32", said)
        graph = onnx_data.Graph(self.folder / "out")
        pruned = cli_data.read(self.folder / "pruned/model.safetensors")[0]
        for name, (shape, values) in graph.tensors.items():
            if name.startswith("constant"):
                continue
            _, sides, raw = pruned[name]
            wanted = cli_data.floats(raw)
            if name.startswith("encoder") and len(sides) == 2:
                self.assertEqual(sides, shape[::-1])
                wanted = [wanted[r * sides[1] + c] for c in range(sides[1])
                          for r in range(sides[0])]
                self.assertEqual(sum(v == 0 for v in values) * 2, len(values))
            self.assertEqual(values, wanted, name)
        self.assertEqual({p.name for p in (self.folder / "out").iterdir()},
                         {p.name for p in (self.folder / "packed").iterdir()}
                         - {"model.safetensors"} | {"model.onnx", "model.onnx_data"})
        self.same_vectors("packed")

    def test_a_folder_that_does_not_say_how_to_pool_gives_states(self):
        shutil.rmtree(self.folder / "roberta/1_Pooling")
        (self.folder / "roberta/modules.json").unlink()
        self.assertIsNone(self.json("convert", "roberta", "out", "--to", "onnx")["dimensions"])
        graph = onnx_data.Graph(self.folder / "out")
        self.assertEqual(list(graph.outputs), ["last_hidden_state"])
        io = cli_data.read(GOLDEN / "encoders/roberta/io.safetensors")[0]
        ids = list(memoryview(io["ids.0"][2]).cast("i"))
        found = graph.run(batch([ids, ids[:1]], 1))["last_hidden_state"][1]
        for ours, theirs in zip(cli_data.floats(io["hidden.0"][2]), found):
            self.assertAlmostEqual(ours, theirs, delta=BOUND)

    def test_refusals(self):
        (self.folder / "taken").mkdir()
        (self.folder / "taken/notes").write_text("mine")
        foreign = self.folder / "electra/1_Pooling/config.json"
        shutil.copytree(self.folder / "electra", self.folder / "prompts")
        (self.folder / "prompts/1_Pooling/config.json").write_text(json.dumps(
            {**json.loads(foreign.read_text()), "include_prompt": False}))
        self.fixtures = self.folder
        self.refusals([
            ("rotary", ["convert", "modernbert", "o", "--to", "onnx"], 5, "no step 'rotate'"),
            ("images", ["convert", "vit", "o", "--to", "onnx"], 5,
             "vit/config.json: model_type 'vit' is no encoder of texts"),
            ("a file", ["convert", "tiny/model.safetensors", "o", "--to", "onnx"], 2,
             "made of a model's folder"),
            ("prompts", ["convert", "prompts", "o", "--to", "onnx"], 5, "include_prompt"),
            ("a dtype", ["convert", "tiny", "o", "--to", "onnx", "--dtype", "bf16"], 2, "is f32"),
            ("external", ["convert", "tiny", "o", "--external"], 2, "--external"),
            ("there already", ["convert", "tiny", "taken", "--to", "onnx"], 3, "exists"),
            ("not a model's", ["convert", "tiny", "taken", "--to", "onnx", "--force"], 3,
             "is not a model folder")])


if __name__ == "__main__":
    unittest.main()
