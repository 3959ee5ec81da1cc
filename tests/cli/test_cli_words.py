# SPDX-License-Identifier: Apache-2.0
"""embed and search with a model that gives weights of words (SPLADE), and what refuses it."""
import json
import struct
import unittest

from cli_case import Scratch
import tiny_bert
from cli_data import floats, read

LINES = tiny_bert.sentences(40)


class Words(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model", words=True)
        tiny_bert.write(folder / "plain", words=True)
        (folder / "plain/modules.json").unlink()
        tiny_bert.write(folder / "vectors")
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")

    def rows(self, *options):
        """Of each line the token ids and their weights, as the file has them."""
        self.good("embed", "model", "--input", "texts", "-o", "w.safetensors", "-f", "-q", *options)
        tensors, metadata = read(self.folder / "w.safetensors")
        self.assertEqual(metadata["sparse24.vocabulary"], str(len(tiny_bert.vocabulary())))
        self.assertEqual([tensors[name][0] for name in ("offsets", "ids", "weights")],
                         ["I64", "I32", "F32"])
        offsets = struct.unpack(f"<{len(LINES) + 1}q", tensors["offsets"][2])
        ids = struct.unpack(f"<{offsets[-1]}i", tensors["ids"][2])
        weights = floats(tensors["weights"][2])
        return [(ids[a:b], weights[a:b]) for a, b in zip(offsets, offsets[1:])]

    def test_a_file_and_a_stream(self):
        rows, vocabulary = self.rows(), tiny_bert.vocabulary()
        text = self.good("embed", "model", "--input", "texts", "--stream", "-q").stdout
        plain = self.good("embed", "plain", "--input", "texts", "--stream", "-q", "--pooling",
                          "splade").stdout
        self.assertEqual(text, plain)
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([line["line"] for line in lines], list(range(len(LINES))))
        for line, (ids, weights) in zip(lines, rows):
            self.assertEqual(list(line), ["line", "ids", "tokens", "weights"])
            self.assertTrue(ids)
            self.assertEqual(sorted(weights, reverse=True), list(weights))
            self.assertGreater(weights[-1], 0)
            for i, token in zip(line["ids"], line["tokens"]):
                self.assertEqual(token, "" if vocabulary[i][0] == "[" else vocabulary[i])
            known = dict(zip(ids, weights))
            self.assertEqual(set(known), set(line["ids"]))
            for i, weight in zip(line["ids"], line["weights"]):
                self.assertAlmostEqual(weight, known[i], places=4)

    def test_the_largest(self):
        for whole, (ids, weights) in zip(self.rows(), self.rows("--top", 3)):
            self.assertEqual((ids, weights), (whole[0][:3], whole[1][:3]))

    def test_search(self):
        rows = [dict(zip(*row)) for row in self.rows()]
        found = self.json("search", "model", "--documents", "texts", "--query", LINES[7], "-k", 5)
        scores = [sum(weight * rows[7].get(i, 0) for i, weight in row.items()) for row in rows]
        best = sorted(range(len(rows)), key=lambda row: -scores[row])[:5]
        self.assertEqual(len(found["hits"]), 5)
        for hit, row in zip(found["hits"], best):
            self.assertAlmostEqual(hit["score"], scores[row], delta=1e-3 * scores[row])
            self.assertEqual(hit["text"], LINES[hit["line"]])

    def test_refusals(self):
        embed = ["embed", "model", "--input", "texts"]
        search = ["search", "model", "--documents", "texts", "--query", "x"]
        self.refusals([
            ("npy", [*embed, "-o", "new.npy"], 2,
             "new.npy: weights of words are written to FILE.safetensors, .*"),
            ("shard", [*embed, "-o", "new.safetensors", "--shard", "1/2"], 2,
             "--shard is of vectors, and model gives weights of words"),
            ("ids", [*embed, "-o", "new.safetensors", "--ids"], 5,
             "model: weights of words are made of texts, and the option ids is given"),
            ("dimensions", [*embed, "-o", "new.safetensors", "--dimensions", 4], 2,
             "dimensions is 4, which is of vectors; model gives weights of words"),
            ("vectors", ["embed", "vectors", "--input", "texts", "-o", "new.npy", "--top", 4],
             2,
             "--top is of weights of words, and vectors gives vectors"),
            ("no head", ["embed", "vectors", "--input", "texts", "-o", "new.safetensors",
                         "--pooling", "splade"],
             4,
             ".*tensor 'cls.predictions.transform.dense.weight' is missing.*"),
            ("index", [*search, "--index", "new"], 5,
             "--index keeps and finds vectors, and model gives weights of words"),
            ("onnx", ["convert", "model", "new", "--to", "onnx"], 5,
             "model/modules.json: SpladePooling makes weights of words, which no graph .*")])


if __name__ == "__main__":
    unittest.main()
