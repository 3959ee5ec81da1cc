# SPDX-License-Identifier: Apache-2.0
"""tools/methods: what it refuses, a few steps of every method on a text of its own, and some on
the other tasks' kinds of data."""
import contextlib
import io
import json
import lzma
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"
sys.path.insert(0, str(SOURCE / "tools"))
import demo_inputs  # noqa: E402
import methods  # noqa: E402
import methods_tasks  # noqa: E402
import tiny_bert  # noqa: E402

DATA = pathlib.Path(os.environ.get("SPARSE24_DATA") or SOURCE.parent / "shared/data")
COMMON = {"dropout": 0.0, "batch": 4, "steps": 8, "rate": 1e-2, "decay": 0.1, "held_out": 4,
          "every": 4}
TINY = {"chars": {"layers": 1, "heads": 2, "width": 16, "context": 16, **COMMON},
        "gpt2": {"layers": 1, "heads": 2, "width": 16, "context": 8, **COMMON},
        "vit": {"layers": 1, "heads": 2, "width": 16, "patch": 16, "images": 20, **COMMON},
        "squad": {"tokens": 32, "questions": 30, "asked": 5, **COMMON}}


class Methods(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("".join(f"Line {i}: to be, or not to be, that is it.\n\n"
                                     for i in range(60)))

    def main(self, task, *arguments):
        out, err = io.StringIO(), io.StringIO()
        text = ["--text", str(self.text)] if task == "chars" else []
        sizes = methods_tasks.TASKS[task].sizes
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                mock.patch.dict(sizes, small=TINY[task]):
            code = methods.main(["--task", task, "--out", str(self.folder / "out"), *text,
                                 "--program", str(PROGRAM), *map(str, arguments)])
        return code, out.getvalue(), err.getvalue()

    def rows(self, task, *arguments):
        """What every row of a run has, by name; the table that was printed."""
        code, out, err = self.main(task, "--threads", "1", *arguments)
        self.assertEqual((code, err), (0, ""))
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual(result["task"], task)
        rows = {row["name"]: row for row in result["rows"]}
        kept = (self.folder / "out/rows.jsonl").read_text().splitlines()
        self.assertEqual(sorted(json.loads(line)["name"] for line in kept), sorted(rows))
        self.assertEqual(len(out[out.index("next to dense"):].splitlines()), len(rows) + 2)
        for name, row in rows.items():
            if row["curve"]:
                self.assertEqual([step for step, _ in row["curve"]], [4, 8], name)
                self.assertGreater(row["step_ms"], 0, name)
                self.assertTrue(0 <= row["overhead"] < 1, name)
        return rows, out

    def squad(self):
        paragraphs = [{"context": line, "qas": [{"id": str(i), "question": line, "answers": [
            {"text": "line", "answer_start": 0}]}]}
                      for i, line in enumerate(tiny_bert.sentences(40))]
        for name in ("train.json.xz", "dev.json.xz"):
            with lzma.open(self.folder / name, "wt") as file:
                json.dump({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]},
                          file)
        return [word for name in ("train", "dev")
                for word in (f"--{name}", self.folder / f"{name}.json.xz")]

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_every_method(self):
        rows, _ = self.rows("chars", "--at-once", "2", "--also", "fst:mvue=0,tail=0.5", "--also",
                            "cast:masked-decay=4e-6")
        task = methods_tasks.Characters
        self.assertEqual(set(rows), {*task.runs, *task.pruned, "fst:mvue=0,tail=0.5",
                                     "cast:masked-decay=4e-6"})
        dense = ("dense", "dense-relu2", "fst-dense-tail", "fst:mvue=0,tail=0.5",
                 "semi-sparse-activation", "squared-relu")
        for name, row in rows.items():
            self.assertEqual(row["two_four"], name not in dense, name)
            if row["best"] is not None and "activation" not in name and name != "squared-relu":
                self.assertAlmostEqual(row["curve"][-1][1], row["score"], 4, name)
        page = (self.folder / "out/report.html").read_text()
        self.assertEqual(page.count("<polyline"), len(task.runs))

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_prose(self):
        asked = self.squad()
        texts = "".join(tiny_bert.sentences(40)) + "\n"
        words = {"Ġ" if c == " " else "Ċ" if c == "\n" else c: i
                 for i, c in enumerate(sorted(set(texts)))}
        (self.folder / "encoder.json").write_text(json.dumps(words))
        (self.folder / "vocab.bpe").write_text("#version: 0.2\n")
        rows, _ = self.rows("gpt2", *asked[:2], "--tokenizer", self.folder / "encoder.json",
                            "--methods", "fst,s-ste:mvue=0")
        self.assertEqual(set(rows), {"dense", "fst", "s-ste:mvue=0"})
        self.assertIn("mlp", methods_tasks.Prose.include)
        self.assertEqual((rows["dense"]["overhead"], rows["fst"]["two_four"]), (0, False))

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_questions(self):
        tiny_bert.write(self.folder / "model")
        rows, out = self.rows("squad", *self.squad(), "--model", self.folder / "model",
                              "--methods", "ste,cast,maskllm")
        self.assertEqual(set(rows), {"dense", "ste", "cast", "maskllm", "magnitude", "sparsegpt"})
        self.assertIn(" F1 ", out)
        for name, row in rows.items():
            self.assertEqual(row["two_four"], name != "dense", name)
            self.assertTrue(0 <= row["score"] <= 100, name)
        cut = json.loads((self.folder / "out/first-dev.json").read_text())
        self.assertEqual(len(cut["data"][0]["paragraphs"]), 5)

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_images(self):
        archive = DATA / methods_tasks.Images.archives["test"]
        if not archive.exists():
            self.skipTest(f"{archive} is not here")
        left = dict.fromkeys(("cat", "ship"), 24)
        with tarfile.open(archive) as tar:
            for member in tar:
                kind, name = pathlib.Path(member.name).parts[-2:]
                if member.isfile() and left.get(kind, 0):
                    left[kind] -= 1
                    path = self.folder / ("test" if left[kind] < 12 else "train") / kind / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(tar.extractfile(member).read())
                if not any(left.values()):
                    break
        rows, out = self.rows("vit", "--images", self.folder, "--methods",
                              "sparse-40,sparse-100,fst")
        self.assertEqual(set(rows), {"dense", "sparse-40", "sparse-100", "fst", "magnitude"})
        self.assertIn(" top-1 ", out)
        self.assertEqual({name for name, row in rows.items() if row["two_four"]},
                         {"sparse-100", "fst", "magnitude"})
        for kind in ("cat", "ship"):
            self.assertEqual(len(list((self.folder / "out/train-20" / kind).iterdir())), 10)

    def test_archives_are_unpacked(self):
        task = methods_tasks.Images(mock.Mock(out=self.folder), TINY["vit"])
        with tarfile.open(self.folder / "train.tar.xz", "w:xz") as tar:
            for name in ("train/cat/0001.jpg", "train/../../0002.jpg"):
                entry = tarfile.TarInfo(name)
                entry.size = 3
                tar.addfile(entry, io.BytesIO(b"jpg"))
        task.unpack({"train": self.folder / "train.tar.xz"})
        self.assertEqual([str(path.relative_to(self.folder / "train"))
                          for path in (self.folder / "train").rglob("*.jpg")], ["cat/0001.jpg"])

    def test_what_cannot_be(self):
        self.assertEqual(self.main("chars", "--prepare")[0], 0)
        for wrong in (("chars", "--methods", "faster"), ("squad", "--methods", "sparse-40"),
                      ("chars", "--size", "gpu"), *(("chars", "--also", also) for also in
                                                    ("fst", "fst:", "faster:mvue=0")),
                      *(("chars", "--at-once", count) for count in ("0", "-1", "x"))):
            with self.assertRaises(SystemExit):
                self.main(*wrong)
        self.assertEqual(methods.other_numbers("fst:mvue=0,tail=0.5", methods_tasks.METHODS)[1],
                         ("fst", "tail=0.5,mvue=0", "s"))
        self.text.write_text("Zwölf Boxkämpfer")
        code, _, err = self.main("chars", "--methods", "ste")
        self.assertEqual(code, 1)
        self.assertIn("beyond ASCII", err)
        self.text.unlink()
        code, _, err = self.main("chars", "--prepare")
        self.assertEqual(code, 1)
        self.assertRegex(err, "text is not here; --text FILE names one")
        with mock.patch.dict(os.environ, SPARSE24_DATA=str(self.folder)), \
                mock.patch.object(demo_inputs, "fetch_model", lambda cache: cache / "minilm"):
            for task, option in (("gpt2", "train"), ("vit", "images"), ("squad", "train")):
                code, _, err = self.main(task, "--prepare")
                self.assertEqual(code, 1)
                self.assertRegex(err, f"is not here; --{option} [A-Z]+ names one, the environment "
                                      "variable SPARSE24_DATA the folder with ")


if __name__ == "__main__":
    unittest.main()
