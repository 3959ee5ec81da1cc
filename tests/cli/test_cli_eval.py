# SPDX-License-Identifier: Apache-2.0
"""eval --task qa on a small model of random weights and questions made of its words."""
import collections
import json
import random
import re
import string
import unittest

from cli_case import Scratch
import tiny_bert

CONTEXTS = 6


def questions():
    """SQuAD's JSON: contexts of 30 to 120 words, some of which do not fit one feature."""
    chance = random.Random(5)
    paragraphs = []
    for c in range(CONTEXTS):
        words = chance.choices(tiny_bert.WORDS, k=30 + 18 * c)
        if c == 0:
            words[3] = "caf\u00e9"
        context, asked = " ".join(words) + ".", []
        for q in range(4):
            answers = []
            for _ in range(1 + q % 3):
                begin = chance.randrange(len(words) - 4)
                text = " ".join(words[begin:begin + chance.randint(1, 4)])
                answers.append({"text": text, "answer_start": len(" ".join(words[:begin]))
                                + (begin > 0)})
            asked.append({"id": f"q{c}-{q}", "question": " what is the " + words[q] + "?",
                          "answers": answers})
        paragraphs.append({"context": context, "qas": asked})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def normalise(text):
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def f1(prediction, gold):
    p, g = normalise(prediction).split(), normalise(gold).split()
    common = sum((collections.Counter(p) & collections.Counter(g)).values())
    return 2 * common / (len(p) + len(g)) if common else 0


def make(folder):
    tiny_bert.write(folder / "model", qa=True)
    tiny_bert.write(folder / "encoder")
    (folder / "dev.json").write_text(json.dumps(questions()))
    (folder / "latin.json").write_bytes(b'{"data": "caf\xe9"}')
    lost = questions()
    lost["data"][0]["paragraphs"][2]["qas"][1]["answers"][0]["answer_start"] += 1
    (folder / "lost.json").write_text(json.dumps(lost))
    long = questions()
    long["data"][0]["paragraphs"][0]["qas"][0]["question"] = "what " * 200
    (folder / "long.json").write_text(json.dumps(long))
    (folder / "taken.json").write_text("precious")


class Answers(Scratch):
    make = staticmethod(make)

    def arguments(self, data="dev.json", model="model"):
        return ["eval", model, "--task", "qa", "--data", data]

    def test_scores_are_those_of_the_predictions(self):
        found = self.json(*self.arguments(), "--max-tokens", "96", "--predictions", "p.json")
        self.assertEqual(set(found), {"version", "em", "f1", "examples", "features", "seconds"})
        predictions = json.loads((self.folder / "p.json").read_text(encoding="utf-8"))
        exact = overlap = count = 0
        for paragraph in questions()["data"][0]["paragraphs"]:
            for question in paragraph["qas"]:
                given = predictions.pop(question["id"])
                self.assertIn(given, paragraph["context"])
                golds = [a["text"] for a in question["answers"]]
                exact += max(normalise(given) == normalise(g) for g in golds)
                overlap += max(f1(given, g) for g in golds)
                count += 1
        self.assertEqual(predictions, {})
        self.assertEqual(found["examples"], count)
        self.assertGreater(found["features"], count)
        self.assertAlmostEqual(found["em"], 100 * exact / count)
        self.assertAlmostEqual(found["f1"], 100 * overlap / count)
        self.assertGreater(found["f1"], 0)
        self.assertRegex(self.good(*self.arguments(), "--max-tokens", "96").stdout,
                         rf"exact match .* % +F1 {found['f1']:.2f} %.*{count} questions")

    def test_packed_and_dense_alike(self):
        self.good("prune", "model", "dense")
        self.good("prune", "model", "packed", "--packed")
        for name in ("dense", "packed"):
            self.good(*self.arguments(model=name), "--predictions", name + ".json")
        self.assertEqual((self.folder / "dense.json").read_text(),
                         (self.folder / "packed.json").read_text())

    def test_options(self):
        wide = self.json(*self.arguments(), "--max-tokens", "160", "--stride", "1")
        narrow = self.json(*self.arguments(), "--max-tokens", "64", "--stride", "40")
        self.assertGreater(narrow["features"], wide["features"])
        self.good(*self.arguments(), "--predictions", "taken.json", "--force")
        self.assertEqual(len(json.loads((self.folder / "taken.json").read_text())), 4 * CONTEXTS)

    def test_refusals(self):
        base = self.arguments()
        self.refusals([
            ("no data", ["eval", "model", "--task", "qa"], 2, "--task qa needs --data"),
            ("no file", self.arguments("none.json"), 3, "none.json.*No such"),
            ("not UTF-8", self.arguments("latin.json"), 4, "latin.json: JSON is expected"),
            ("not SQuAD", self.arguments("model/config.json"), 4, 'config.json: "data" is missing'),
            ("a lost answer", self.arguments("lost.json"), 4,
             r"lost.json: data\[0\].paragraphs\[2\].qas\[1\].answers\[0\]: the answer .* of "
             r"question q2-1 does not stand at character"),
            ("a long question", self.arguments("long.json"), 2, "long.json: question q0-0 has 800 tokens"),
            ("no head", self.arguments(model="encoder"), 5,
             "encoder has no question-answering head: qa_outputs"),
            ("too long", [*base, "--max-tokens", "999"], 2, "999 tokens.*160 positions"),
            ("taken", [*base, "--predictions", "taken.json"], 3, "taken.json exists; --force"),
            ("no folder", [*base, "--predictions", "no/p.json"], 3, "no/p.json: No such"),
        ])


if __name__ == "__main__":
    unittest.main()
