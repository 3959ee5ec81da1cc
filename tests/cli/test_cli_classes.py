# SPDX-License-Identifier: Apache-2.0
"""rerank, classify and search --rerank on small models with heads, whose logits and classes are
known to the C tests."""
import json
import math
import shutil
import struct
import unittest

from cli_case import Scratch, copy_golden, one_object, run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "alpha", "beta", "gamma", "delta", "##s", "."]
LINES = ["alpha beta", "gamma deltas.", "", "beta beta beta gamma", "delta"]


def tokenizer(folder):
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')


def change(folder, **more):
    config = json.loads((folder / "config.json").read_text())
    config.update(more)
    (folder / "config.json").write_text(json.dumps(config))


def drop_pooler(folder):
    """A head of tokens: no pooler stands before it."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8:8 + size]), b""
    header = {k: v for k, v in header.items() if "pooler" not in k}
    for name in header.keys() - {"__metadata__"}:
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = [len(rest), len(rest) + end - begin]
        rest += data[8 + size + begin:8 + size + end]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


class Classes(Scratch):
    @staticmethod
    def make(folder):
        for name in ("bert-reranker", "bert-classes"):
            copy_golden(f"encoders/{name}", folder / name)
            tokenizer(folder / name)
        change(folder / "bert-classes",
               id2label={"0": "joy", "1": "fear", "2": "rage", "3": "calm", "4": "none"})
        shutil.copytree(folder / "bert-classes", folder / "tags")
        change(folder / "tags", architectures=["BertForTokenClassification"])
        shutil.copytree(folder / "bert-reranker", folder / "encoder")
        (folder / "encoder/modules.json").write_text(
            '[{"type": "sentence_transformers.models.Transformer", "path": ""},'
            ' {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]')
        (folder / "encoder/1_Pooling").mkdir()
        (folder / "encoder/1_Pooling/config.json").write_text('{"pooling_mode": "mean"}')
        (folder / "lines.txt").write_text("\n".join(LINES) + "\n")

    def test_rerank(self):
        got = run("rerank", "bert-reranker", "--query", "alpha", "--documents", "lines.txt",
                  "--json", cwd=self.folder)
        self.assertEqual(got.returncode, 0, got.stderr)
        hits = one_object(got.stdout)["hits"]
        self.assertEqual(sorted(h["line"] for h in hits), list(range(len(LINES))))
        self.assertEqual([h["text"] for h in hits], [LINES[h["line"]] for h in hits])
        logits = [h["logit"] for h in hits]
        self.assertEqual(logits, sorted(logits, reverse=True))
        for hit in hits:
            self.assertAlmostEqual(hit["score"], 1 / (1 + math.exp(-hit["logit"])), places=5)
        # A document's score does not depend on the others, nor on where they come from.
        one = run("rerank", "bert-reranker", "--query", "alpha", "--documents", "-", "--json",
                  "--raw", cwd=self.folder, text=hits[2]["text"] + "\n")
        self.assertAlmostEqual(one_object(one.stdout)["hits"][0]["score"], logits[2], places=4)
        plain = run("rerank", "bert-reranker", "--query", "alpha", "--documents", "lines.txt",
                    "-k", "2", cwd=self.folder)
        self.assertEqual(len(plain.stdout.splitlines()), 2)
        self.assertIn(f"line {hits[0]['line']}  ", plain.stdout.splitlines()[0])

    def test_score(self):
        """sentence-transformers says what makes a score of a logit, in one of three places."""
        def scores():
            hits = one_object(run("rerank", "bert-reranker", "--query", "alpha", "--documents",
                                  "lines.txt", "--json", cwd=self.folder).stdout)["hits"]
            return [(h["score"], h["logit"]) for h in hits]
        place = self.folder / "bert-reranker"
        for said in ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity",
                                                "version": "4.1.0"}},
                     {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}):
            change(place, **{"sentence_transformers": None, **said})
            for score, logit in scores():
                self.assertEqual(score, logit)
        (place / "config_sentence_transformers.json").write_text(json.dumps(
            {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder",
             "default_prompt_name": None, "prompts": {}}))
        (place / "modules.json").write_text(json.dumps(
            [{"idx": 0, "name": "0", "path": "",
              "type": "sentence_transformers.base.modules.transformer.Transformer"}]))
        for score, logit in scores():
            self.assertAlmostEqual(score, 1 / (1 + math.exp(-logit)), places=5)
        (place / "config_sentence_transformers.json").write_text(
            '{"activation_fn": "torch.nn.modules.activation.Tanh"}')
        done = run("rerank", "bert-reranker", "--query", "a", "--documents", "lines.txt",
                   cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("activation_fn is 'torch.nn.modules.activation.Tanh'; torch's Sigmoid or "
                      "Identity", done.stderr)

    def test_search(self):
        got = run("search", "encoder", "--query", "alpha", "--documents", "lines.txt", "--json",
                  "--rerank", "bert-reranker", "--candidates", "5", "-k", "3", cwd=self.folder)
        self.assertEqual(got.returncode, 0, got.stderr)
        hits = one_object(got.stdout)["hits"]
        ranked = one_object(run("rerank", "bert-reranker", "--query", "alpha", "--documents",
                                "lines.txt", "--json", cwd=self.folder).stdout)["hits"]
        self.assertEqual([h["line"] for h in hits], [h["line"] for h in ranked[:3]])
        self.assertAlmostEqual(hits[0]["score"], ranked[0]["score"], places=5)

    def test_classify(self):
        got = run("classify", "bert-classes", "--input", "lines.txt", "--json", cwd=self.folder)
        self.assertEqual(got.returncode, 0, got.stderr)
        lines = one_object(got.stdout)["lines"]
        self.assertEqual(len(lines), len(LINES))
        for line in lines:
            shares = line["probabilities"]
            self.assertEqual(list(shares), ["joy", "fear", "rage", "calm", "none"])
            self.assertAlmostEqual(sum(shares.values()), 1, places=5)
            self.assertEqual(line["label"], max(shares, key=shares.get))
        plain = run("classify", "bert-classes", cwd=self.folder, text="alpha beta\n")
        self.assertRegex(plain.stdout, r"^line 0  0\.\d{4}  " + lines[0]["label"] + "\n$")
        change(self.folder / "bert-classes", problem_type="multi_label_classification")
        several = one_object(run("classify", "bert-classes", "--input", "lines.txt", "--json",
                                 cwd=self.folder).stdout)["lines"][0]["probabilities"]
        self.assertNotAlmostEqual(sum(several.values()), 1, places=3)

    def test_tokens(self):
        got = run("classify", "tags", "--per-token", "--json", cwd=self.folder,
                  text="alpha deltas\n\n")
        self.assertEqual(got.returncode, 0, got.stderr)
        lines = one_object(got.stdout)["lines"]
        self.assertEqual([(t["begin"], t["end"]) for t in lines[0]], [(0, 5), (6, 11), (11, 12)])
        self.assertEqual(lines[1], [])
        self.assertAlmostEqual(sum(lines[0][1]["probabilities"].values()), 1, places=5)
        drop_pooler(self.folder / "tags")
        same = run("classify", "tags", "--per-token", "--json", cwd=self.folder,
                   text="alpha deltas\n\n")
        self.assertEqual(one_object(same.stdout)["lines"], lines)

    def test_refusals(self):
        change(self.folder / "encoder", architectures=["BertModel"])
        rows = [(("rerank", "bert-classes", "--query", "a", "--documents", "lines.txt"), 5,
                 "its head has 5 classes of texts"),
                (("rerank", "tags", "--query", "a", "--documents", "lines.txt"), 5, "of tokens"),
                (("classify", "tags", "--input", "lines.txt"), 5, "its head classifies tokens"),
                (("classify", "bert-classes", "--per-token"), 5, "its head classifies texts"),
                (("classify", "encoder", "--input", "lines.txt"), 5,
                 "names no model of type 'bert' for sequence or token classification"),
                (("rerank", "bert-reranker", "--query", "a"), 2, "--documents")]
        for arguments, code, sentence in rows:
            got = run(*arguments, cwd=self.folder)
            self.assertEqual(got.returncode, code, got.stderr)
            self.assertIn(sentence, got.stderr)


if __name__ == "__main__":
    unittest.main()
