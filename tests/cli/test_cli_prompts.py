# SPDX-License-Identifier: Apache-2.0
"""Prompts of embed, search and eval: which one stands before which texts, and that a text with a
prompt gets the vector of both as one text."""
import json
import unittest

from cli_case import Scratch
import tiny_bert
from cli_data import read

LINES = tiny_bert.sentences(12)
QUERY, PASSAGE = "find the file: ", "read: "


def make(folder):
    def write(name, prompts, default=None, include=True):
        tiny_bert.write(folder / name)
        if prompts is not None:
            (folder / name / "config_sentence_transformers.json").write_text(
                json.dumps({"prompts": prompts, "default_prompt_name": default}))
        pooling = json.loads((folder / name / "1_Pooling/config.json").read_text())
        pooling["include_prompt"] = include
        (folder / name / "1_Pooling/config.json").write_text(json.dumps(pooling))

    write("bare", None)
    write("asymmetric", {"query": QUERY, "passage": PASSAGE})
    write("default", {"title": "map ", "other": "sort "}, default="title")
    write("first", {"corpus": "a ", "passage": "b ", "document": PASSAGE, "query": ""},
          default="corpus")
    write("apart", {"query": QUERY}, include=False)
    for name, prompt in (("texts", ""), ("queries", QUERY), ("passages", PASSAGE), ("maps", "map "),
                         ("free", "own words ")):
        (folder / name).write_text("".join(prompt + line + "\n" for line in LINES))
    (folder / "gold").write_text("".join(f"{i}\n" for i in range(len(LINES))))


class Prompts(Scratch):
    make = staticmethod(make)

    def vectors(self, model, texts, *more):
        found = self.json("embed", model, "--input", texts, "-o", "v.safetensors", "--force", *more)
        return read(self.folder / "v.safetensors")[0]["embeddings"][2], found.get("prompt")

    def test_embed(self):
        for model, more, joined, prompt in (
                ("bare", (), "texts", None),
                ("bare", ("--prompt-text", "own words "), "free",
                 {"name": None, "text": "own words "}),
                ("asymmetric", (), "texts", None),
                ("asymmetric", ("--prompt-name", "query"), "queries",
                 {"name": "query", "text": QUERY}),
                ("asymmetric", ("--prompt-name=passage",), "passages",
                 {"name": "passage", "text": PASSAGE}),
                ("default", (), "maps", {"name": "title", "text": "map "}),
                ("default", ("--prompt-name", ""), "texts", None),
                ("default", ("--prompt-text", ""), "texts", None),
                ("default", ("--prompt-text", QUERY), "queries", {"name": None, "text": QUERY})):
            with self.subTest(f"{model} {more}"):
                found, said = self.vectors(model, "texts", *more)
                self.assertEqual(found, self.vectors("bare", joined)[0])
                self.assertEqual(said, prompt)

    def test_what_is_said(self):
        def said(*arguments):
            return [line for line in self.good(*arguments).stderr.splitlines() if "prompt" in line]

        search = ["search", "asymmetric", "--documents", "texts", "--query", "x"]
        self.assertEqual(said("embed", "default", "--input", "texts", "-o", "a.npy"),
                         ['prompt of the texts, title: "map "'])
        self.assertEqual(said("embed", "bare", "--input", "texts", "-o", "b.npy", "--prompt-text",
                              "own "), ['prompt of the texts: "own "'])
        self.assertEqual(said("embed", "bare", "--input", "texts", "-o", "c.npy"), [])
        self.assertEqual(said(*search), [f'prompt of the query, query: "{QUERY}"',
                                         f'prompt of the documents, passage: "{PASSAGE}"'])
        self.assertEqual(said(*search, "--quiet"), [])

    def test_a_stream(self):
        done = self.good("embed", "asymmetric", "--stream", "--prompt-name", "query",
                         text="\n".join(LINES))
        bare = self.good("embed", "bare", "--stream", text="".join(QUERY + t + "\n" for t in LINES))
        self.assertEqual(done.stdout, bare.stdout)

    def scores(self, model, *more, documents="texts", query=LINES[4]):
        found = self.json("search", model, "--documents", documents, "--query", query, "-k", "12",
                          *more)
        prompts = [(found.get(f"{side}_prompt") or {}).get("name") for side in ("query",
                                                                                "document")]
        return [(hit["line"], hit["score"]) for hit in found["hits"]], *prompts

    def test_search(self):
        """Query and documents get each their own; without either side's the model's default."""
        expected = self.scores("bare", documents="passages", query=QUERY + LINES[4])[0]
        self.assertEqual(self.scores("asymmetric"), (expected, "query", "passage"))
        expected = self.scores("bare", documents="queries", query=PASSAGE + LINES[4])[0]
        self.assertEqual(self.scores("asymmetric", "--query-prompt", "passage",
                                     "--document-prompt", "query"), (expected, "passage", "query"))
        expected = self.scores("bare", documents="texts", query=QUERY + LINES[4])[0]
        self.assertEqual(self.scores("asymmetric", "--document-prompt", ""),
                         (expected, "query", None))
        expected = self.scores("bare", documents="maps", query="map " + LINES[4])[0]
        self.assertEqual(self.scores("default"), (expected, "title", "title"))
        # document before passage before corpus; a query's prompt of no words is none.
        expected = self.scores("bare", documents="passages")[0]
        self.assertEqual(self.scores("first"), (expected, None, "document"))

    def test_eval(self):
        arguments = ["eval", "asymmetric", "--queries", "texts", "--documents", "texts", "--gold",
                     "gold"]
        found = self.json(*arguments)
        self.assertEqual(found["query_prompt"], {"name": "query", "text": QUERY})
        self.assertEqual(found["document_prompt"], {"name": "passage", "text": PASSAGE})
        bare = self.json("eval", "bare", "--queries", "queries", "--documents", "passages",
                         "--gold",
                         "gold")
        self.assertEqual({**found, **bare}, found)
        self.assertNotIn("query_prompt", bare)
        self.assertEqual(self.json(*arguments, "--query-prompt", "", "--document-prompt", ""),
                         {"version": 1, "top1": 100, "top5": 100})
        said = self.good(*arguments).stderr
        self.assertEqual(said.count(QUERY), 1)
        self.assertEqual(said.count(PASSAGE), 1)

    def test_left_out_of_the_mean(self):
        """include_prompt: false gives neither the vectors with the prompt nor those without."""
        found, said = self.vectors("apart", "texts", "--prompt-name", "query")
        self.assertEqual(said["name"], "query")
        self.assertNotIn(found,
                         (self.vectors("bare", "queries")[0], self.vectors("bare", "texts")[0]))
        self.assertEqual(self.vectors("apart", "queries")[0], self.vectors("bare", "queries")[0])

    def test_refusals(self):
        out = ["--input", "texts", "-o", "new.npy"]
        search = ["search", "asymmetric", "--documents", "texts", "--query", "x"]
        measure = ["eval", "asymmetric", "--queries", "texts", "--documents", "texts", "--gold",
                   "gold"]
        unknown = r'there is no prompt "{}"; there are "query", "passage"'
        self.refusals([
            ("unknown", ["embed", "asymmetric", "--prompt-name", "title", *out], 2,
             unknown.format("title")),
            ("none there", ["embed", "bare", "--prompt-name", "query", *out], 2,
             r'no prompt "query"; there is none'),
            ("both", ["embed", "nowhere", "--prompt-name", "query", "--prompt-text", "x", *out], 2,
             r"--prompt-name and --prompt-text exclude each other"),
            ("of the query", [*search, "--query-prompt", "q"], 2, unknown.format("q")),
            ("of the documents", [*search, "--document-prompt", "d"], 2, unknown.format("d")),
            ("of the queries", [*measure, "--query-prompt", "q"], 2, unknown.format("q")),
            ("of eval's documents", [*measure, "--document-prompt", "d"], 2, unknown.format("d")),
            ("longer than a text", ["embed", "apart", "--max-tokens", "4", "--prompt-name", "query",
                                    *out], 2, r"leaves none of 4 to be pooled"),
        ])


if __name__ == "__main__":
    unittest.main()
