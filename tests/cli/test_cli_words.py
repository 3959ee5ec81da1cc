# SPDX-License-Identifier: Apache-2.0
"""embed, search, eval and serve with a model that gives weights of words (SPLADE), and what refuses
it."""
import concurrent.futures
import json
import shutil
import struct
import unittest

from cli_case import Scratch, run
import tiny_bert
from test_cli_serve import Server
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

    # ---- an index ----------------------------------------------------------------------------

    def write(self, lines):
        (self.folder / "texts").write_text("".join(f"{line}\n" for line in lines))

    def find(self, query, *more):
        return self.json("search", "model", "--documents", "texts", "--query", query, "-k", 6,
                         *more)

    def same(self, count, embedded, query=LINES[7]):
        """The index finds what a search without it does, and embedded so many lines."""
        plain, found = self.find(query), self.find(query, "--index", "index")
        self.assertEqual([hit["line"] for hit in found["hits"]],
                         [hit["line"] for hit in plain["hits"]])
        for one, other in zip(found["hits"], plain["hits"]):
            self.assertAlmostEqual(one["score"], other["score"], delta=1e-4 * other["score"])
        self.assertEqual(found["index"], {"count": count, "embedded": embedded, "dtype": "f32"})

    def test_only_new_lines_come_into_the_index(self):
        self.same(40, 40)
        self.same(40, 0, "read a file")
        # Some go, one comes, one stands twice, and the rest have other numbers.
        self.write([LINES[30], "a new line", *LINES[5:25], LINES[30]])
        self.same(23, 1)
        self.same(23, 0, LINES[30])
        self.write([])
        self.same(0, 0)
        self.write(LINES)
        self.same(40, 40)

    def test_lists_are_those_of_embed(self):
        self.find("x", "--index", "index")
        rows = self.rows()
        words = len(tiny_bert.vocabulary())
        starts, lines, weights = (
            struct.unpack(f"<{count}{kind}", (self.folder / "index" / name).read_bytes()[128:])
            for name, count, kind in (("starts.npy", words + 1, "q"),
                                      ("lines.npy", sum(len(row[0]) for row in rows), "i"),
                                      ("weights.npy", sum(len(row[0]) for row in rows), "f")))
        found = {(line, word): weight for word in range(words) for line, weight in
                 zip(lines[starts[word]:starts[word + 1]], weights[starts[word]:starts[word + 1]])}
        self.assertEqual(found, {(line, word): weight for line, row in enumerate(rows)
                                 for word, weight in zip(*row)})

    def test_an_index_that_does_not_fit_is_refused(self):
        self.find("x", "--index", "index")
        index = self.folder / "index"
        kept = {p.name: p.read_bytes() for p in index.iterdir()}
        told = json.loads(kept["index.json"])
        starts = kept["starts.npy"]
        for name, file, data, sentence in (
                ("cut", "lines.npy", kept["lines.npy"][:-1], "lines.npy: an array of <i4"),
                ("falling", "starts.npy", starts[:136] + b"\xff" * 8 + starts[144:],
                 "starts.npy: lists that follow one another"),
                ("a line", "lines.npy", kept["lines.npy"][:128] + b"\xff" * (
                    len(kept["lines.npy"]) - 128), "lines.npy: 0 to 39 are expected"),
                ("postings", "index.json", json.dumps({**told, "postings": -1}).encode(),
                 "index.json: postings is none"),
                ("fewer", "index.json", json.dumps({**told, "postings": 3}).encode(),
                 "lines.npy: an array of <i4"),
                ("dtype", "index.json", json.dumps({**told, "dtype": "f16"}).encode(),
                 "index.json: count or dtype")):
            with self.subTest(name):
                for other, content in kept.items():
                    (index / other).write_bytes(content)
                (index / file).write_bytes(data)
                for lines in (LINES, LINES[1:]):
                    self.write(lines)
                    done = run("search", "model", "--documents", "texts", "--query", LINES[7],
                               "--index", "index", cwd=self.folder)
                    self.assertEqual(done.returncode, 4, done.stderr)
                    self.assertRegex(done.stderr, sentence)
                self.write(LINES)
        # One of vectors is none of words.
        shutil.rmtree(index)
        self.good("search", "vectors", "--documents", "texts", "--query", "x", "--index", "index")
        done = run("search", "model", "--documents", "texts", "--query", "x", "--index", "index",
                   cwd=self.folder)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("index.json: probe is not that of this model", done.stderr)

    # ---- eval and serve ----------------------------------------------------------------------

    def test_eval(self):
        rows = [dict(zip(*row)) for row in self.rows()]
        gold = [0, 3, 39, 5, 5]
        queries = [LINES[0], LINES[4], LINES[39], LINES[6], LINES[5]]
        (self.folder / "queries").write_text("\n".join(queries) + "\n")
        (self.folder / "gold").write_text("\n".join(map(str, gold)) + "\n")
        ranks = []
        for query, right in zip(queries, gold):
            words = rows[LINES.index(query)]
            scores = [sum(weight * words.get(i, 0) for i, weight in row.items()) for row in rows]
            ranks.append(sum(score > scores[right] for score in scores))
        found = self.json("eval", "model", "--task", "retrieval", "--queries", "queries",
                          "--documents", "texts", "--gold", "gold")
        self.assertAlmostEqual(found["top1"], 20 * sum(rank == 0 for rank in ranks))
        self.assertAlmostEqual(found["top5"], 20 * sum(rank < 5 for rank in ranks))

    def test_served(self):
        server = Server(self, "model", "vectors", "--documents", "texts")
        rows = self.rows()
        value = server.good("/embed_sparse", {"inputs": LINES})
        for words, (ids, weights) in zip(value, rows, strict=True):
            self.assertEqual([word["index"] for word in words], sorted(ids))
            known = dict(zip(ids, weights))
            for word in words:
                self.assertAlmostEqual(word["value"], known[word["index"]], places=4)
        self.assertEqual(server.good("/embed_sparse", {"inputs": LINES[3]})[0],
                         server.good("/embed_sparse", {"inputs": [LINES[3]]})[0])
        ids = [t["id"] for t in server.good("/tokenize", {"inputs": LINES[3]})[0]]
        by_ids = server.good("/embed_sparse", {"inputs": [ids]})[0]
        self.assertEqual([word["index"] for word in by_ids], sorted(rows[3][0]))
        # Many at once share batches, and each gets its own.
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            asked = [LINES[i % 40:i % 40 + 1 + i % 5] for i in range(200)]
            for lines, found in zip(asked, pool.map(
                    lambda lines: server.good("/embed_sparse", {"inputs": lines}), asked)):
                want = [value[LINES.index(line)] for line in lines]
                self.assertEqual([[w["index"] for w in words] for words in found],
                                 [[w["index"] for w in words] for words in want])
                for words, others in zip(found, want):
                    for word, other in zip(words, others):
                        self.assertAlmostEqual(word["value"], other["value"], places=4)
        found = server.good("/search", {"inputs": LINES[7], "k": 5})
        for hit, other in zip(found, self.find(LINES[7])["hits"]):
            self.assertEqual((hit["line"], hit["text"]), (other["line"], other["text"]))
            self.assertAlmostEqual(hit["score"], other["score"], delta=1e-4 * hit["score"])
        self.assertEqual(len(server.good("/embed", {"inputs": LINES[3]})[0]), tiny_bert.WIDTH)
        for path, body, status in (("/embed", {"inputs": "a", "model": "model"}, 422),
                                   ("/embed_sparse", {"inputs": "a", "model": "vectors"}, 422),
                                   ("/embed_sparse", {"inputs": 3}, 422),
                                   ("/embed_sparse", {"inputs": [[1 << 30]]}, 422),
                                   ("/embed_sparse", {"inputs": "a b " * 99, "truncate": False},
                                    422)):
            self.assertEqual(server.ask(path, body)[0], status, (path, body))
        _, _, refused = server.ask("/embed", {"inputs": "a", "model": "model"})
        self.assertEqual(refused["error"]["message"], "model is no encoder that gives vectors")
        self.assertEqual(Server(self, "vectors").ask("/embed_sparse", {"inputs": "a"})[0], 404)

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
            ("index", [*search, "--index", "new", "--index-dtype", "i8"], 5,
             "--index-dtype is of vectors, and model gives weights of words"),
            ("onnx", ["convert", "model", "new", "--to", "onnx"], 5,
             "model/modules.json: SpladePooling makes weights of words, which no graph .*")])


if __name__ == "__main__":
    unittest.main()
