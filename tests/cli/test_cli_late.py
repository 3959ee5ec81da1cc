# SPDX-License-Identifier: Apache-2.0
"""embed, rerank, search, eval and serve with a model of late interaction (ColBERT), and what
refuses it."""
import json
import struct
import unittest

from cli_case import Scratch, run
import tiny_bert
from test_cli_serve import Server
from cli_data import floats, read
from test_cli_index import array

LINES = tiny_bert.sentences(30)
OUT = 6


class Late(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        tiny_bert.make_late(folder / "model", OUT)
        tiny_bert.write(folder / "vectors")
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        (folder / "gold").write_text("".join(f"{i}\n" for i in range(len(LINES))))

    def rows(self, *options):
        """Each line's vectors, as the file has them."""
        self.good("embed", "model", "--input", "texts", "-o", "t.safetensors", "-f", "-q", *options)
        tensors, _ = read(self.folder / "t.safetensors")
        self.assertEqual([tensors[name][0] for name in ("embeddings", "offsets")], ["F32", "I64"])
        offsets = struct.unpack(f"<{len(LINES) + 1}q", tensors["offsets"][2])
        self.assertEqual(tensors["embeddings"][1], [offsets[-1], OUT])
        values = floats(tensors["embeddings"][2])
        vectors = [values[i * OUT:(i + 1) * OUT] for i in range(offsets[-1])]
        return [vectors[a:b] for a, b in zip(offsets, offsets[1:])]

    @staticmethod
    def score(query, document):
        return sum(max(sum(a * b for a, b in zip(q, d)) for d in document) for q in query)

    def test_a_file_and_a_stream(self):
        rows = self.rows()
        text = self.good("embed", "model", "--input", "texts", "--stream", "-q").stdout
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([line["line"] for line in lines], list(range(len(LINES))))
        for line, row in zip(lines, rows):
            self.assertEqual(len(line["embeddings"]), len(row))
            for one, other in zip(line["embeddings"], row):
                self.assertAlmostEqual(sum(x * x for x in one), 1, places=5)
                for x, y in zip(one, other):
                    self.assertAlmostEqual(x, y, places=5)
        queries = self.rows("--prompt-name", "query")
        self.assertEqual({len(row) for row in queries}, {tiny_bert.LATE_QUERY})

    def test_scores(self):
        documents, queries = self.rows(), self.rows("--prompt-name", "query")
        scores = [self.score(queries[7], row) for row in documents]
        best = sorted(range(len(scores)), key=lambda row: -scores[row])[:5]
        asked = "--documents", "texts", "--query", LINES[7], "-k", 5
        plain = self.json("search", "vectors", *asked, "--rerank", "model")
        for found in (self.json("rerank", "model", *asked), self.json("search", "model", *asked),
                      plain):
            self.assertEqual(len(found["hits"]), 5)
            for hit, row in zip(found["hits"], best):
                self.assertAlmostEqual(hit["score"], scores[row], delta=1e-4 * scores[row])
                self.assertEqual(hit["text"], LINES[hit["line"]])

    def test_index(self):
        search = "search", "model", "--documents", "texts", "-k", 6
        folder = self.folder / "index"

        def both(embedded, *more):
            for query in LINES[5], LINES[9]:
                plain = self.json(*search, "--query", query, *more)
                kept = self.json(*search, "--query", query, "--index", "index", *more)
                self.assertEqual([hit["text"] for hit in kept["hits"]],
                                 [hit["text"] for hit in plain["hits"]])
                for one, other in zip(kept["hits"], plain["hits"]):
                    self.assertAlmostEqual(one["score"], other["score"], delta=2e-2)
                self.assertEqual(kept["index"]["embedded"], embedded)
                embedded = 0
            lines = (self.folder / "texts").read_text().splitlines()
            self.assertEqual((kept["index"]["count"], kept["index"]["dtype"]),
                             (len(lines), "f16"))

        both(len(LINES))
        rows = self.rows()
        starts = array(folder / "starts.npy")
        vectors = array(folder / "vectors.npy")
        count = sum(map(len, rows))
        self.assertEqual((starts[:2], vectors[:2]),
                         (("<i8", (len(LINES) + 1, 1)), ("<f2", (count, OUT))))
        offsets = struct.unpack(f"<{len(LINES) + 1}q", starts[2])
        self.assertEqual([b - a for a, b in zip(offsets, offsets[1:])], list(map(len, rows)))
        halves = struct.unpack(f"<{count * OUT}e", vectors[2])
        for kept, x in zip(halves, (x for row in rows for vector in row for x in vector)):
            self.assertAlmostEqual(kept, x, delta=1e-3)
        for lines, embedded in ((["new one", *LINES[8:], "", LINES[3], "new two", LINES[3]], 3),
                                (LINES, 7), ([], 0), (LINES[:4], 4)):
            (self.folder / "texts").write_text("".join(f"{line}\n" for line in lines))
            both(embedded)
        both(0, "--rerank", "model")
        kept = {path.name: path.read_bytes() for path in folder.iterdir()}
        told = json.loads(kept["index.json"])
        for name, file, data, sentence in (
                ("probe", "index.json", json.dumps({**told, "probe": [1] * OUT}), "probe is not"),
                ("vectors", "index.json", json.dumps({**told, "vectors": 1 << 40}),
                 "vectors is none"),
                ("one more", "index.json", json.dumps({**told, "vectors": told["vectors"] + 1}),
                 "vectors.npy: an array of <f2"),
                ("starts", "starts.npy", kept["starts.npy"][:-8] + b"\x00" * 8,
                 "starts.npy: lists that follow"),
                ("cut", "vectors.npy", kept["vectors.npy"][:-2], "vectors.npy: an array")):
            with self.subTest(name):
                (folder / file).write_bytes(data if isinstance(data, bytes) else data.encode())
                done = run(*search, "--query", "x", "--index", "index", cwd=self.folder)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(sentence, done.stderr)
                (folder / file).write_bytes(kept[file])
        both(0)

    def test_eval(self):
        documents, queries = self.rows(), self.rows("--prompt-name", "query")
        right = [0, 0]
        for i, query in enumerate(queries):
            scores = [self.score(query, row) for row in documents]
            before = sum(score > scores[i] for score in scores)
            right[0] += before < 1
            right[1] += before < 5
        found = self.json("eval", "model", "--task", "retrieval", "--queries", "texts",
                          "--documents", "texts", "--gold", "gold")
        for name, count in zip(("top1", "top5"), right):
            self.assertAlmostEqual(found[name], 100 * count / len(LINES), delta=101 / len(LINES))

    def test_served(self):
        server = Server(self, "model", "vectors")
        for i in (3, 11):
            hits = self.json("rerank", "model", "--documents", "texts", "--query", LINES[i])["hits"]
            expected = {hit["line"]: hit["score"] for hit in hits}
            found = server.good("/rerank", {"query": LINES[i], "texts": LINES, "model": "model"})
            self.assertEqual(len(found), len(LINES))
            for hit in found:
                self.assertAlmostEqual(hit["score"], expected[hit["index"]], places=4)
        for path, body, status in (
                ("/v1/embeddings", {"input": "a", "model": "model"}, 422),
                ("/rerank", {"query": "a", "texts": ["a"], "model": "vectors"}, 422),
                ("/rerank", {"query": "a", "texts": ["the " * 99], "model": "model",
                             "truncate": False}, 422)):
            self.assertEqual(server.ask(path, body)[0], status, (path, body))

    def test_refusals(self):
        embed = ["embed", "model", "--input", "texts"]
        search = ["search", "model", "--documents", "texts", "--query", "x"]
        self.refusals([
            ("npy", [*embed, "-o", "v.npy"], 2, "vectors of tokens are written to FILE"),
            ("shard", [*embed, "-o", "v.safetensors", "--shard", "1/2"], 2,
             "--shard is of one vector for each text"),
            ("ids", [*embed, "--ids", "-o", "v.safetensors"], 5, "the option ids is given"),
            ("top", [*embed, "--top", "3", "-o", "v.safetensors"], 2, "--top is of weights"),
            ("dimensions", [*search, "--dimensions", "2"], 2, "dimensions is 2, which is of"),
            ("index", [*search, "--index", "i", "--index-dtype", "i8"], 5,
             "--index-dtype is of one vector for each line"),
            ("images", ["search", "model", "--images", ".", "--query", "x"], 5,
             "--images is of one"),
            ("classify", ["classify", "model", "--input", "texts"], 2, "scores pairs of texts"),
        ])


if __name__ == "__main__":
    unittest.main()
