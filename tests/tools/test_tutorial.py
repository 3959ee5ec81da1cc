# SPDX-License-Identifier: Apache-2.0
"""tools/tutorial without a network: what it looks for, and a run on a small model."""
import contextlib
import io
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
PROGRAM = pathlib.Path(os.environ["S24_BUILD"]) / "sparse24"
sys.path.insert(0, str(SOURCE / "tools"))
import demo_inputs  # noqa: E402
import tiny_bert  # noqa: E402
import tutorial  # noqa: E402


def squad():
    """A passage and a question to each of some lines, answered by the line's first word."""
    paragraphs = [{"context": line, "qas": [{"id": str(i), "question": line, "answers": [
        {"text": "line", "answer_start": 0}]}]} for i, line in enumerate(tiny_bert.sentences(4))]
    return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})


class Tutorial(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.data = self.folder / "data"
        (self.data / "qa").mkdir(parents=True)
        for name in tutorial.SQUAD.values():
            with lzma.open(self.data / "qa" / name, "wt") as file:
                file.write(squad())

    def main(self, *arguments):
        """(exit code, complaints, the command it would become)"""
        err, command = io.StringIO(), []
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()), \
                mock.patch.dict(os.environ, SPARSE24_DATA=str(self.data)), \
                mock.patch.object(os, "execv", lambda _, words: command.extend(words)):
            code = tutorial.main(["--out", str(self.folder / "out"), *map(str, arguments)])
        return code, err.getvalue(), command

    def test_defaults_are_the_demos_model_and_the_datas_questions(self):
        with mock.patch.object(demo_inputs, "fetch_model", lambda cache: cache / "minilm"):
            _, err, command = self.main("--steps", "3")
        self.assertEqual(err, "")
        cache = self.folder / "cache"
        train, dev = cache / "qa-train.json", cache / "squad-dev-v1.1.json"
        self.assertEqual(command[1:], ["tutorial", str(cache / "minilm"), str(self.folder / "out"),
                                       "--train", str(train), "--dev", str(dev), "--steps", "3"])
        self.assertEqual(train.read_text(), squad())
        self.assertEqual(dev.read_text(), squad())

    def test_what_is_not_here_is_named(self):
        code, err, _ = self.main("--dev", self.folder / "nowhere.json")
        self.assertEqual((code, err), (1, f"tutorial: {self.folder}/nowhere.json is not here\n"))
        (self.data / "qa" / tutorial.SQUAD["train"]).unlink()
        code, err, _ = self.main()
        self.assertEqual(code, 1)
        self.assertRegex(err, r"without --train FILE: .*data/qa/qa-train\.json\.xz is not here; "
                              "the environment variable SPARSE24_DATA")

    def test_broken_data(self):
        (self.data / "qa" / tutorial.SQUAD["dev"]).write_bytes(b"no archive")
        code, err, command = self.main("--model", self.folder)
        self.assertEqual((code, command), (1, []))
        self.assertRegex(err, "^tutorial: ")
        self.assertFalse((self.folder / "cache/squad-dev-v1.1.json").exists())

    def test_no_network(self):
        failed = mock.Mock(returncode=1, stdout="", stderr="no route to host\n")
        with mock.patch.object(demo_inputs.subprocess, "run", return_value=failed):
            code, err, _ = self.main("--prepare")
        self.assertEqual(code, 1)
        self.assertRegex(err, "no route to host\n--model FOLDER")

    @unittest.skipUnless(PROGRAM.exists(), "built without the command line")
    def test_whole(self):
        model = tiny_bert.write(self.folder / "tiny")
        done = subprocess.run(
            [sys.executable, SOURCE / "tools/tutorial.py", "--model", model, "--out",
             self.folder / "out", "--program", PROGRAM, "--steps", "1", "--max-tokens", "48",
             "--batch", "1", "--seq", "8", "--rounds", "1", "--threads", "1", "--json"], capture_output=True,
            text=True, env=dict(os.environ, SPARSE24_DATA=str(self.data)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["stages"]["dense"]["step"], 1)
        self.assertTrue((self.folder / "out/report.html").exists())


if __name__ == "__main__":
    unittest.main()
