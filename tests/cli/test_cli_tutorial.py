# SPDX-License-Identifier: Apache-2.0
"""tutorial: all of its stages on a model of random weights, going on where it stopped, refusals."""
import json
import re
import unittest

from cli_case import Scratch, listing
from test_cli_eval import make

STAGES = ("dense dense-score pruned pruned-score plain plain-score distilled distilled-score "
          "packed "
          "packed-score times").split()


class Tutorial(Scratch):
    make = staticmethod(make)

    def arguments(self, *more, out="out", model="encoder", steps="2"):
        return ["tutorial", model, out, "--train", "dev.json", "--dev", "dev.json", "--steps",
                steps,
                "--max-tokens", "128", "--batch", "1", "--seq", "8", "--rounds", "1", *more]

    def test_all_of_it_and_again(self):
        found = self.json(*self.arguments())
        self.assertEqual(set(found), {"version", "stages", "report"})
        self.assertEqual(list(found["stages"]), STAGES)
        scores = {name: found["stages"][name + "-score"]["f1"]
                  for name in ("dense", "pruned", "plain", "distilled", "packed")}
        self.assertEqual(scores["packed"], scores["distilled"])
        self.assertEqual(found["stages"]["plain"]["step"], 2)
        for name, good in (("dense", 1), ("pruned", 0), ("plain", 0), ("distilled", 0)):
            checked = self.json("check", f"out/{name}", exit=good)
            self.assertEqual(checked["ok"], not good)
        # Calibrated with the contexts of --train, each once, after its first question.
        articles = json.loads((self.folder / "dev.json").read_text())["data"]
        read = [" ".join([p["qas"][0]["question"].strip(), *p["context"].split("\n")])
                for a in articles for p in a["paragraphs"] if p["qas"]]
        passages = (self.folder / "out/passages.txt").read_text(encoding="utf-8")
        self.assertEqual(passages.splitlines(), read)
        self.assertIsNotNone(found["stages"]["pruned"]["layers"][0]["output_error"])
        page = (self.folder / "out/report.html").read_text(encoding="utf-8")
        self.assertEqual(page.count("<polyline"), 3)
        self.assertIn(f"<td>{scores['dense']:.2f}</td>", page)
        # Nothing is run again but what is not there.
        (self.folder / "out/packed-score.json").unlink()
        before = listing(self.folder / "out")
        done = self.good(*self.arguments())
        self.assertEqual(len(re.findall("done before", done.stderr)), len(STAGES) - 1)
        self.assertRegex(done.stdout, rf"F1, % +{scores['dense']:.2f}")
        after = listing(self.folder / "out")
        self.assertIn("packed-score.json", after)
        for name in before.keys() - {"report.html", "packed-answers.json"}:
            self.assertEqual(before[name], after[name], name)
        # Of another kind only where that is said.
        done = self.json(*self.arguments(steps="1"), exit=2)
        self.assertIn("out is a tutorial of another --steps", done["error"])
        self.assertEqual(listing(self.folder / "out"), after)
        found = self.json(*self.arguments("--force", steps="1"))
        self.assertEqual(found["stages"]["plain"]["step"], 1)

    def test_passages_are_of_the_whole_file(self):
        paragraphs = []
        for i in range(600):
            context = f"number {i} is\nhere"
            answer = {"text": f"{i}", "answer_start": 7}
            paragraphs.append({"context": context, "qas": [
                {"id": f"{i}-{k}", "question": "what is here", "answers": [answer]}
                for k in range(1 + i % 2)]})
        (self.folder / "many.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        arguments = self.arguments(steps="1")
        arguments[arguments.index("--train") + 1] = "many.json"
        self.good(*arguments)
        lines = (self.folder / "out/passages.txt").read_text(encoding="utf-8").splitlines()
        form = re.compile(r"what is here number (\d+) is here")
        numbers = [int(form.fullmatch(line)[1]) for line in lines]
        self.assertEqual(numbers, [-(-600 * i // 256) for i in range(256)])

    def test_a_stage_that_fails_says_why(self):
        broken = json.loads((self.folder / "dev.json").read_text())
        broken["data"][0]["paragraphs"][0]["qas"][0]["answers"] = []
        (self.folder / "broken.json").write_text(json.dumps(broken))
        arguments = ["tutorial", "encoder", "out", "--train", "broken.json", "--dev", "dev.json"]
        done = self.json(*arguments, exit=4)
        self.assertRegex(done["error"], r"train: broken.json: data\[0\].paragraphs\[0\].qas\[0\]: "
                                        "question q0-0 has no answer")
        self.assertEqual(set(listing(self.folder / "out")), {"tutorial.json"})

    def test_refusals(self):
        (self.fixtures / "full").mkdir()
        (self.fixtures / "full/precious").write_text("precious")
        self.refusals([
            ("no data", ["tutorial", "encoder", "out"], 2, "needs --train FILE and --dev FILE"),
            ("no file", ["tutorial", "encoder", "out", "--train", "none", "--dev", "dev.json"], 3,
             "none: No such"),
            ("no model", self.arguments(model="none"), 3, "none: No such"),
            ("full", self.arguments(out="full"), 3, "full exists and is no tutorial's folder"),
            ("full, forced", self.arguments("--force", out="full"), 3, "is no tutorial's folder"),
            ("no parent", self.arguments(out="no/out"), 3, "no/out: No such"),
            ("no calibration", self.arguments("--calibration", "none"), 3, "none: No such"),
        ])


if __name__ == "__main__":
    unittest.main()
