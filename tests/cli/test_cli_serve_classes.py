# SPDX-License-Identifier: Apache-2.0
"""serve with models that have a head: /rerank and /predict give what rerank and classify print."""
import concurrent.futures
import json
import os
import re
import unittest

from cli_case import Scratch, one_object, run
import test_cli_classes
from test_cli_classes import LINES
from test_cli_serve import Server
import tiny_bert


class Heads(Scratch):
    @staticmethod
    def make(folder):
        test_cli_classes.Classes.make(folder)
        tiny_bert.write(folder / "model")

    def rows(self, *arguments):
        done = run(*arguments, "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return one_object(done.stdout)

    def test_rerank(self):
        server = Server(self, "model", "bert-reranker")
        hits = self.rows("rerank", "bert-reranker", "--query", "alpha", "--documents",
                         "lines.txt")["hits"]
        body = {"query": "alpha", "texts": LINES}
        found = server.good("/rerank", {**body, "return_text": True})
        self.assertEqual([(r["index"], r["text"]) for r in found],
                         [(h["line"], h["text"]) for h in hits])
        raw = server.good("/rerank", {**body, "raw_scores": True})
        for one, other, hit in zip(found, raw, hits, strict=True):
            self.assertAlmostEqual(one["score"], hit["score"], places=4)
            self.assertAlmostEqual(other["score"], hit["logit"], places=3)
        self.assertNotIn("text", raw[0])
        cohere = {"query": "alpha", "model": "bert-reranker", "top_n": 2,
                  "documents": [LINES[0], *({"text": line} for line in LINES[1:])],
                  "return_documents": True}
        value = server.good("/v1/rerank", cohere)
        self.assertEqual(server.good("/v2/rerank", cohere), value)
        self.assertEqual([(r["index"], r["document"]["text"]) for r in value["results"]],
                         [(h["line"], h["text"]) for h in hits[:2]])
        self.assertAlmostEqual(value["results"][0]["relevance_score"], hits[0]["score"], places=4)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for again in pool.map(lambda _: server.good("/rerank", body), range(40)):
                self.assertEqual([r["index"] for r in again], [h["line"] for h in hits])

    def test_truncation(self):
        server = Server(self, "bert-reranker", "bert-classes", "--max-tokens", "8")
        long = "alpha " * 30
        body = {"query": "alpha", "texts": ["beta", long], "model": "bert-reranker"}
        self.assertEqual(len(server.good("/rerank", {**body, "truncation_direction": "Right"})), 2)
        for path, more, param, sentence in (
                ("/rerank", {**body, "truncate": False}, "texts", "text 1 has more than 8 tokens"),
                ("/predict", {"inputs": ["a", long], "truncate": False, "model": "bert-classes"},
                 "inputs", "text 1 has more than 8 tokens"),
                ("/predict", {"inputs": [["a", long]], "truncate": False, "model": "bert-classes"},
                 "inputs", "text 0 has more than 8 tokens"),
                ("/rerank", {**body, "truncation_direction": "left"}, "truncation_direction",
                 "truncation_direction is right"),
                ("/predict", {"inputs": "a", "truncate": 1, "model": "bert-classes"}, "truncate",
                 "truncate is true or false")):
            status, _, value = server.ask(path, more)
            self.assertEqual((status, value["error"]["param"]), (422, param))
            self.assertIn(sentence, value["error"]["message"])
        short = {**body, "texts": ["beta"], "truncate": False}
        self.assertEqual(len(server.good("/rerank", short)), 1)
        self.assertEqual(len(server.good("/predict", {"inputs": "a b", "truncate": False,
                                                      "model": "bert-classes"})), 5)

    @unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
    def test_only_texts_stay_while_a_request_waits(self):
        server = Server(self, "bert-reranker", "--threads", "1", "--http-threads", "2", "--queue",
                        "1000000")
        long = {"query": "alpha", "texts": ["beta gamma"] * 40000}
        numbers = {"query": "alpha", "texts": ["beta"], "more": [0] * 400000}

        def ask(body):
            status, _, value = server.ask("/rerank", body)
            self.assertIn(status, (200, 429), value)
            return status

        with concurrent.futures.ThreadPoolExecutor(25) as pool:
            found = list(pool.map(ask, [long] + [numbers] * 24))
        self.assertEqual(found[0], 200)
        with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as status:
            most = int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1])
        # Two threads read numbers of 18 MB each; 24 requests of these would have 430.
        self.assertLess(most, 200 << 10, found)

    def test_plain_scores(self):
        test_cli_classes.change(self.folder / "bert-reranker", sentence_transformers={
            "activation_fn": "torch.nn.modules.linear.Identity"})
        server = Server(self, "bert-reranker")
        body = {"query": "alpha", "texts": LINES}
        self.assertEqual(server.good("/rerank", body),
                         server.good("/rerank", {**body, "raw_scores": True}))

    def test_predict(self):
        server = Server(self, "bert-classes")
        whole = server.good("/predict", {"inputs": LINES})
        self.assertEqual(len(whole), len(LINES))
        for classes in whole:
            self.assertEqual({c["label"] for c in classes},
                             {"joy", "fear", "rage", "calm", "none"})
            scores = [c["score"] for c in classes]
            self.assertEqual(scores, sorted(scores, reverse=True))
            self.assertAlmostEqual(sum(scores), 1, places=5)
        done = run("classify", "bert-classes", "--input", "lines.txt", "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for classes, line in zip(whole, LINES):
            self.assertIn(json.dumps(classes[0]["label"]), done.stdout)
            single = server.good("/predict", {"inputs": line})
            self.assertEqual([c["label"] for c in single], [c["label"] for c in classes])
        pairs = server.good("/predict", {"inputs": [["alpha", "beta"], ["gamma", "delta"]],
                                         "raw_scores": True})
        self.assertEqual([len(p) for p in pairs], [5, 5])

    def test_refusals(self):
        server = Server(self, "bert-classes", "model", "--queue", "3")
        for code, param, path, body in (
                (422, "model", "/rerank", {"query": "a", "texts": ["b"]}),
                (422, "query", "/rerank", {"texts": ["b"]}),
                (422, "model", "/predict", {"inputs": "a", "model": "model"}),
                (422, "model", "/embed", {"inputs": "a", "model": "bert-classes"}),
                (422, "inputs", "/predict", {}), (422, "inputs", "/predict", {"inputs": [3]}),
                (422, "inputs", "/predict", {"inputs": [["a", "b", "c"]]}),
                (422, "inputs", "/predict", {"inputs": ["a", ["b", "c"]]}),
                (413, "inputs", "/predict", {"inputs": ["a"] * 4})):
            with self.subTest(path=path, body=body):
                status, _, value = server.ask(path, body)
                self.assertEqual((status, value["error"]["param"]), (code, param), value)
        server = Server(self, "bert-reranker")
        for body, param in (({"query": "a", "texts": "b"}, "texts"),
                            ({"query": "a", "texts": []}, "texts"),
                            ({"query": "a", "texts": [1]}, "texts"),
                            ({"query": "a", "documents": [{}]}, "documents"),
                            ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n")):
            status, _, value = server.ask("/rerank", body)
            self.assertEqual((status, value["error"]["param"]), (422, param), value)
        done = run("serve", "tags", "--port", "0", cwd=self.folder)
        self.assertEqual(done.returncode, 5, done.stderr)


if __name__ == "__main__":
    unittest.main()
