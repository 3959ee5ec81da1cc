# SPDX-License-Identifier: Apache-2.0
"""Rerankers that answer by a token: scores are the logits of a language model in plain Python for
the text that its chat template makes of a query and a document."""
import json
import math
import shutil
import unittest

from cli_case import Scratch
import test_cli_eval
from plain_language import Plain
from test_cli_serve import Server
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

LETTERS = test_cli_eval.LETTERS
YES, NO = LETTERS.index("c"), LETTERS.index("b")
FAMILY = "sentence_transformers."
TEMPLATE = ("{{ 'a' }}{% for m in messages %}{{ 'b' if m.role == 'system' }}{{ m.content }}"
            "{{ 'c' if m.role == 'query' }}{% endfor %}{{ 'ba' if add_generation_prompt }}")
LISTS = TEMPLATE.replace("m.content", "m.content[0].text | trim")
DOCUMENTS = ("ab", "c", "abc", "bbbb", "cababcabcabcab")


def reranker(folder, name, template=TEMPLATE, against=NO, told=None, **config):
    out = folder / name
    shutil.copytree(folder / "llama", out)
    (out / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "",
         "type": FAMILY + "base.modules.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_LogitScore",
         "type": FAMILY + "cross_encoder.modules.logit_score.LogitScore"}]))
    (out / "1_LogitScore").mkdir()
    (out / "1_LogitScore/config.json").write_text(json.dumps(
        {"true_token_id": YES, "false_token_id": against}))
    if template:
        (out / "chat_template.jinja").write_text(template)
    (out / "sentence_bert_config.json").write_text(json.dumps(
        {"processing_kwargs": {"chat_template": told or {}}}))
    (out / "config_sentence_transformers.json").write_text(json.dumps(config))


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama")
    randomise(folder / "llama", 5)
    reranker(folder, "plain")
    reranker(folder, "told", told={"add_generation_prompt": True})
    reranker(folder, "lists", LISTS, told={"add_generation_prompt": True})
    reranker(folder, "one", against=None, activation_fn="torch.nn.modules.linear.Identity")
    reranker(folder, "prompted", prompts={"said": "cc"}, default_prompt_name="said")
    reranker(folder, "users", "{{ messages[0].content }}{{ raise_exception('no') }}")
    reranker(folder, "untold", None)
    reranker(folder, "beyond", against=99)
    for name in ("chat", "wordless"):
        shutil.copytree(folder / "llama", folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        config["architectures"] = ["Qwen3ForCausalLM" if name == "wordless" else "LlamaForCausalLM"]
        config["model_type"] = "qwen3" if name == "wordless" else "llama"
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "documents").write_text("".join(f"{d}\n" for d in DOCUMENTS))


class TokenScores(Scratch):
    make = staticmethod(make)

    def expected(self, text, against=NO):
        """The logit of the token for it, less that of the one against it, after at most 16."""
        plain = Plain(self.folder / "llama")
        ids = [LETTERS.index(c) for c in text]
        hidden = [plain.losses([*ids, token])[-1] for token in (YES, against)]
        return hidden[1] - hidden[0]

    def hits(self, model, *more):
        found = self.json("rerank", model, "--query", "ba", "--documents", "documents", *more)
        return {hit["line"]: hit for hit in found["hits"]}

    def laid_out(self, document, begin="a", end=""):
        """The end is put back over what is cut."""
        text = f"{begin}bac{document}{end}"
        return text if len(text) <= 16 else text[:16 - len(end)] + end

    def check(self, model, begin="a", end=""):
        for line, hit in self.hits(model).items():
            want = self.expected(self.laid_out(DOCUMENTS[line], begin, end))
            with self.subTest(model=model, document=DOCUMENTS[line]):
                self.assertAlmostEqual(hit["logit"], want, places=4)
                self.assertAlmostEqual(hit["score"], 1 / (1 + math.exp(-want)), places=4)

    def test_scores_are_those_of_the_plain_model(self):
        self.check("plain")
        self.check("told", end="ba")
        self.check("lists", end="ba")
        self.check("prompted", begin="abcc")

    def test_a_token_alone(self):
        """Without one against it the score is the logit: differences of two are those of pairs."""
        for line, hit in self.hits("one").items():
            self.assertEqual(hit["score"], hit["logit"])
        reranker(self.folder, "other", against=None)
        path = self.folder / "other/1_LogitScore/config.json"
        path.write_text(json.dumps({"true_token_id": NO}))
        yes, no, both = self.hits("one"), self.hits("other"), self.hits("plain")
        for line, hit in both.items():
            self.assertAlmostEqual(hit["logit"], yes[line]["logit"] - no[line]["logit"], places=4)

    def test_pruned_and_served(self):
        self.good("prune", "told", "told-24", "--packed")
        found = self.hits("told-24", "--dtype", "i8")
        self.assertEqual(len(found), len(DOCUMENTS))
        server = Server(self, "told")
        answer = server.good("/rerank", {"query": "ba", "texts": list(DOCUMENTS)})
        want = {line: hit["score"] for line, hit in self.hits("told").items()}
        for result in answer:
            self.assertAlmostEqual(result["score"], want[result["index"]], places=5)
        status, _, refused = server.ask("/predict", {"inputs": "ab"})
        self.assertEqual(status, 422, refused)
        self.assertIn("the model scores pairs of texts", refused["error"]["message"])

    def test_refusals(self):
        rerank = ["--query", "ba", "--documents", "documents"]
        self.refusals([
            ("a template of users", ["rerank", "users", *rerank], 5,
             "users: its chat template lays out no message of the role query before one of the "
             "role document"),
            ("no template", ["rerank", "untold", *rerank], 3, "the folder has no chat template"),
            ("no such token", ["rerank", "beyond", *rerank], 4, "and a score is of token 99"),
            ("no vectors", ["embed", "plain", "--input", "documents", "--output", "e.npy"], 5,
             "continues a text"),
            ("no reranker", ["rerank", "chat", *rerank], 5, "names no model of type 'llama'"),
            ("no words to answer by", ["rerank", "wordless", *rerank], 4,
             "the tokenizer has no token 'yes', which a reranker of its model type answers by")])


if __name__ == "__main__":
    unittest.main()
