# SPDX-License-Identifier: Apache-2.0
"""What stands in files reaches a terminal as escapes, in tables, talk, errors and pages; --json has
it as it is."""
import json
import os
import pty
import re
import subprocess
import xml.etree.ElementTree

from cli_case import PATIENCE, PROGRAM, Scratch, clean_environment, one_object, run
import tiny_bert
from cli_data import matrix, tensor, write

# Colours, a new title, a line's end, C1's CSI, writing from right to left, an isolate.
EVIL = "\x1b[31mred\x1b]0;title\x07\r\n\t\u009b2J\u202egnp\u2066."
SHOWN = r"\x1b[31mred\x1b]0;title\x07\r\n\t\u009b2J\u202egnp\u2066."
NAME = f"{EVIL}layer.0.weight"
# What a terminal acts on; the program's own lines end in LF.
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def make_files(folder):
    write(folder / "evil.safetensors", {NAME: tensor("f32", (8, 16), matrix("f32", 8, 16))})
    write(folder / "dense.safetensors",
          {NAME: tensor("f32", (8, 16), matrix("f32", 8, 16, kept=3))})
    write(folder / "odd.safetensors",
          {NAME: tensor("f32", (8, 6), matrix("f32", 8, 6)),
           "layer.0.fc.weight": tensor("f32", (8, 16), matrix("f32", 8, 16))})
    tiny_bert.write(folder / "model")
    config = json.loads((folder / "model/config.json").read_text())
    config["model_type"] = EVIL
    (folder / "typed").mkdir()
    (folder / "typed/config.json").write_text(json.dumps(config))
    (folder / "typed/model.safetensors").write_bytes(
        (folder / "model/model.safetensors").read_bytes())
    (folder / "typed/vocab.txt").write_bytes((folder / "model/vocab.txt").read_bytes())
    (folder / "texts").write_text(f"read the file {EVIL[:8]}\u202e\nclose it\n", encoding="utf-8")


class Escapes(Scratch):
    make = staticmethod(make_files)

    def shown(self, *arguments, code=0, text=None):
        """Runs; all that it says, in which nothing may act on a terminal and SHOWN (or text)
        stands."""
        done = run(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        said = done.stdout + done.stderr
        self.assertIsNone(ACTS.search(said), ascii(said))
        self.assertIn(text or SHOWN, said)
        return done

    def test_names_of_tensors(self):
        self.shown("info", "evil.safetensors")
        self.shown("check", "evil.safetensors")
        self.shown("check", "dense.safetensors", code=1)
        self.shown("prune", "dense.safetensors", "pruned.safetensors")
        self.shown("prune", "odd.safetensors", "passed.safetensors")
        self.shown("pack", "evil.safetensors", "packed.safetensors")
        self.shown("unpack", "packed.safetensors", "back.safetensors")
        self.shown("pack", "dense.safetensors", "no.safetensors", code=4)
        self.shown("pack", "odd.safetensors", "no.safetensors", code=4)

    def test_names_of_types_files_options_and_values(self):
        self.shown("info", "typed")
        self.shown("embed", "typed", "--input", "texts", "--stream", code=5)
        name = EVIL.replace("/", "")
        self.shown("info", name, code=3)
        self.shown("check", "evil.safetensors", "--include", EVIL, code=2)
        self.shown("prune", "evil.safetensors", "o", "--method", EVIL, code=2)
        self.shown("prune", "evil.safetensors", f"missing/{EVIL}", code=3)
        self.shown("help", EVIL, code=2)
        self.shown(EVIL, code=2)
        self.shown("info", "evil.safetensors", EVIL, code=2)
        self.shown("info", "--" + EVIL, code=2)
        (self.folder / name).write_bytes((self.folder / "evil.safetensors").read_bytes())
        self.shown("prune", name, "o.safetensors")
        self.shown("prune", "evil.safetensors", name + "2")

    def test_bytes_that_are_no_utf8(self):
        self.shown("info", os.fsdecode(b"a\x9b31m\xff"), code=3, text=r"a\x9b31m\xff")

    def test_json_has_the_text_as_it_is(self):
        self.assertEqual(self.json("info", "evil.safetensors")["tensors"][0]["name"], NAME)
        self.assertEqual(self.json("check", "evil.safetensors")["tensors"][0]["name"], NAME)
        self.assertEqual(self.json("info", "typed")["model_type"], EVIL)
        found = self.json("pack", "evil.safetensors", "packed.safetensors")
        self.assertEqual(found["layers"][0]["name"], NAME)

    def test_a_line_found_is_escaped_on_a_terminal_and_data_elsewhere(self):
        words = ("search", "model", "--documents", "texts", "--query", "file", "-k", "1", "-q")
        line = (self.folder / "texts").read_text(encoding="utf-8").splitlines()[0]
        self.assertIn(line, self.good(*words).stdout)
        self.assertEqual(self.json(*words)["hits"][0]["text"], line)
        try:
            master, terminal = pty.openpty()
        except OSError as error:
            self.skipTest(f"no terminal to be had: {error}")
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, env=clean_environment(),
                              stdout=terminal, stderr=subprocess.PIPE, timeout=PATIENCE)
        os.close(terminal)
        seen = os.read(master, 4096).decode().replace("\r\n", "\n")
        os.close(master)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(r"read the file \x1b[31mred\u202e", seen)
        self.assertIsNone(ACTS.search(seen), ascii(seen))

    def test_pages_and_charts(self):
        out = f"<o>&{EVIL}".replace("/", "")
        self.good("train", "model", out, "--text", "texts", "--steps", "1", "--teacher", "model",
                  "--metrics", "m", "--report", "page.html", "--threads", "1")
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn(f"<h1>&#60;o&#62;&#38;{SHOWN}</h1>", page)
        self.assertIsNone(ACTS.search(page))
        self.good("bench", "--model", out, "--batch", "1", "--seq", "8", "--rounds", "1",
                  "--min-ms", "1", "--threads", "1", "--svg", "chart.svg")
        chart = xml.etree.ElementTree.parse(self.folder / "chart.svg")
        self.assertIn(f"<o>&{SHOWN}", [e.text for e in chart.iter()])

    def test_an_error_as_json_is_one_object(self):
        done = run("info", EVIL, "--json", cwd=self.folder)
        self.assertIn(EVIL, one_object(done.stdout)["error"])
        self.assertIsNone(ACTS.search(done.stderr))

    def test_names_that_are_no_utf8_are_escapes_in_json_too(self):
        odd, shown = os.fsdecode(b"a\x9b\xff"), r"a\x9b\xff"
        self.assertEqual(self.json("info", odd, exit=3)["error"],
                         f"cannot open {shown}: No such file or directory")
        (self.folder / "recipe.yaml").write_text("stages: [prune]\n")
        found = self.json("run", "recipe.yaml", "dense.safetensors", odd)
        self.assertEqual((found["model"], found["report"]),
                         (f"{shown}/model", f"{shown}/report.html"))


if __name__ == "__main__":
    import unittest
    unittest.main()
