# SPDX-License-Identifier: Apache-2.0
"""search --index: vectors are kept, only new lines are embedded, and what is found is what search
finds without it."""
import ast
import json
import pathlib
import resource
import shutil
import struct
import subprocess
import unittest

from cli_case import PROGRAM, Scratch, clean_environment, run
import tiny_bert

LINES = tiny_bert.sentences(60)
ARRAYS = {"texts.npy": ("<u8", 8, 2), "vectors.npy": ("<f2", 2, tiny_bert.WIDTH),
          "integers.npy": ("|i1", 1, tiny_bert.WIDTH), "scales.npy": ("<f4", 4, 1)}


def array(path):
    """(descr, shape, data) of a file of NumPy's format 1.0."""
    raw = path.read_bytes()
    begin = 10 + int.from_bytes(raw[8:10], "little")
    head = ast.literal_eval(raw[10:begin].decode("latin-1"))
    return head["descr"], head["shape"], raw[begin:]


class Index(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        tiny_bert.write(folder / "other", seed=2)
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")

    def find(self, *more, query=LINES[3], model="model", **how):
        return self.json("search", model, "--documents", "texts", "--query", query, "-k", "5",
                         *more, **how)

    def indexed(self, *more, **how):
        return self.find("--index", "index", *more, **how)

    def counts(self, *more, **how):
        found = self.indexed(*more, **how)["index"]
        return found["count"], found["embedded"]

    def write(self, lines):
        (self.folder / "texts").write_text("".join(f"{line}\n" for line in lines))

    def test_a_disk_that_is_full_leaves_no_folder_that_was_not_there(self):
        def full():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        words = [PROGRAM, "search", "model", "--documents", "texts", "--query", "a", "--index",
                 "index"]
        for limit in (0, 500):
            done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True,
                                  preexec_fn=full, restore_signals=False, env=clean_environment())
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("index", done.stderr)
            self.assertFalse((self.folder / "index").exists())
        (self.folder / "index").mkdir()
        subprocess.run(words, cwd=self.folder, capture_output=True, preexec_fn=full,
                       restore_signals=False, env=clean_environment())
        self.assertTrue((self.folder / "index").exists())
        self.assertEqual(self.counts(), (60, 60))

    def test_the_same_is_found(self):
        for dtype in ("f16", "i8"):
            with self.subTest(dtype):
                shutil.rmtree(self.folder / "index", ignore_errors=True)
                for query in LINES[:6]:
                    plain = self.find(query=query)
                    found = self.indexed("--index-dtype", dtype, query=query)
                    self.assertEqual([h["line"] for h in found["hits"]],
                                     [h["line"] for h in plain["hits"]])
                    for one, other in zip(found["hits"], plain["hits"]):
                        self.assertAlmostEqual(one["score"], other["score"], delta=2e-3)
                    self.assertEqual(found["index"]["dtype"], dtype)

    def test_integers_find_what_f16_finds(self):
        halves = [self.indexed(query=q)["hits"] for q in LINES[:5]]
        rounded = [self.indexed("--index-dtype", "i8", query=q)["hits"] for q in LINES[:5]]
        self.assertEqual(halves, rounded)

    def test_only_new_lines_are_embedded(self):
        self.assertEqual(self.counts(), (60, 60))
        self.assertEqual(self.counts(), (60, 0))
        files = {p.name: p.stat().st_mtime_ns for p in (self.folder / "index").iterdir()}
        self.assertEqual(self.counts(), (60, 0))
        self.assertEqual({p.name: p.stat().st_mtime_ns
                          for p in (self.folder / "index").iterdir()}, files)
        self.write(LINES[10:] + ["read a file", "", LINES[0]])
        self.assertEqual(self.counts(), (53, 2))
        self.assertEqual([h["line"] for h in self.indexed()["hits"]],
                         [h["line"] for h in self.find()["hits"]])
        self.assertEqual(self.counts("--index-dtype", "i8"), (53, 0))
        self.assertEqual(self.counts(), (53, 0))
        self.assertTrue((self.folder / "index/integers.npy").exists())
        self.assertEqual(self.counts("--index-dtype", "f16"), (53, 0))
        self.assertFalse((self.folder / "index/integers.npy").exists())
        self.write([])
        self.assertEqual(self.counts(), (0, 0))

    def test_files_are_numpys(self):
        self.indexed("--index-dtype", "i8")
        for name, (descr, size, cols) in ARRAYS.items():
            kind, shape, data = array(self.folder / "index" / name)
            self.assertEqual((kind, shape, len(data)), (descr, (60, cols), 60 * cols * size))
        done = self.good("embed", "model", "--stream", "--input", "texts")
        expected = [json.loads(line)["embedding"] for line in done.stdout.splitlines()]
        width = tiny_bert.WIDTH
        halves = struct.unpack(f"<{60 * width}e", array(self.folder / "index/vectors.npy")[2])
        whole = struct.unpack(f"<{60 * width}b", array(self.folder / "index/integers.npy")[2])
        scales = struct.unpack("<60f", array(self.folder / "index/scales.npy")[2])
        for i, vector in enumerate(expected):
            for c, x in enumerate(vector):
                self.assertAlmostEqual(halves[i * width + c], x, delta=1e-3)
                self.assertAlmostEqual(scales[i] * whole[i * width + c], x, delta=scales[i])

    def test_what_does_not_fit_is_refused(self):
        self.indexed()
        index = self.folder / "index"
        kept = {p.name: p.read_bytes() for p in index.iterdir()}
        told = json.loads(kept["index.json"])
        short = ("--max-tokens", "9")
        for name, change, arguments, code, sentence in (
                ("model", None, ("other",), 4, "index.json: probe is not that of this model"),
                ("tokens", None, ("model", *short), 4, "index.json: (probe|max_tokens) is not"),
                ("cut", ("vectors.npy", kept["vectors.npy"][:-1]), ("model",), 4,
                 "vectors.npy: an"),
                ("other", ("texts.npy", kept["texts.npy"][:-1] + b"x"), ("model",), 4, "texts.npy"),
                ("head", ("vectors.npy", kept["vectors.npy"].replace(b"<f2", b"<i2")), ("model",),
                 4, r"vectors.npy: an array of <f2, \[60, 32\]"),
                ("json", ("index.json", b"{"), ("model",), 4, "index.json is no JSON"),
                ("another's", ("index.json", b'{"pages": 3}'), ("model",), 4,
                 'index.json is none of an index .no "whole" in it. and is not replaced'),
                ("count", ("index.json", json.dumps({**told, "count": 61}).encode()), ("model",), 4,
                 "texts.npy: an array"),
                ("dtype", ("index.json", json.dumps({**told, "dtype": "q"}).encode()), ("model",),
                 4, "index.json: count or dtype"),
                ("gone", ("index.json", None), ("model",), 3, "texts.npy is there, but no index"),
                ("array gone", ("vectors.npy", None), ("model",), 3, "vectors.npy: No such file")):
            with self.subTest(name):
                for file, data in kept.items():
                    (index / file).write_bytes(data)
                if change and change[1] is None:
                    (index / change[0]).unlink()
                elif change:
                    (index / change[0]).write_bytes(change[1])
                done = run("search", *arguments, "--documents", "texts", "--query", "a", "--index",
                           "index", cwd=self.folder)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, sentence)
        # What an interrupted writer leaves is made anew.
        (index / "index.json").write_text('{"version": 1, "whole": false}')
        (index / "vectors.npy").unlink(missing_ok=True)
        self.assertEqual(self.counts(), (60, 60))

    def test_command_line(self):
        self.refusals((
            ("dtype alone", ("search", "model", "--documents", "texts", "--query", "a",
                             "--index-dtype", "i8"), 2, "--index-dtype.*--index"),
            ("a file", ("search", "model", "--documents", "texts", "--query", "a", "--index",
                        "texts"), 3, "texts: Not a directory"),
            ("nowhere", ("search", "model", "--documents", "texts", "--query", "a", "--index",
                         "no/where"), 3, "no/where: No such file")))


if __name__ == "__main__":
    unittest.main()
