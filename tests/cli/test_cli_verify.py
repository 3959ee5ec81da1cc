# SPDX-License-Identifier: Apache-2.0
"""--verify, and what unpack and convert verify by themselves: a model is what was written, or the
program says which part of it is not."""
import json
import os
import sys
import unittest

import cli_case
import tiny_bert

sys.path.insert(0, os.path.join(os.environ["S24_SOURCE"], "tools"))
import flips  # noqa: E402

DAMAGED = r"has the hash [0-9a-f]{16}, but [0-9a-f]{16} was written \(damaged, or changed since\)"


class Verify(cli_case.Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        for words in (("prune", "model", "pruned"), ("pack", "pruned", "packed")):
            done = cli_case.run(*words, cwd=folder)
            assert done.returncode == 0, done.stderr
        (folder / "texts").write_text("hello world\n")

    def flip(self, name, at):
        path = self.folder / name
        raw = bytearray(path.read_bytes())
        raw[at] ^= 1
        path.write_bytes(raw)

    def bad(self, code, sentence, *words):
        done = cli_case.run(*words, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, sentence)

    def test_a_model_as_it_was_written(self):
        found = self.json("check", "packed", "--verify")["verified"]
        stored = json.loads(self.header("packed/model.safetensors"))
        self.assertEqual(found["tensors"], len(stored) - 1)
        self.assertGreater(found["files"], 3)
        self.assertRegex(self.good("check", "packed", "--verify").stderr,
                         r"\d+ stored tensors and \d+ other files \(.*\) are what was written")
        self.assertNotIn("verified", self.json("check", "packed"))
        self.good("embed", "packed", "--input", "texts", "--verify", "--output", "v.npy")

    def header(self, name):
        raw = (self.folder / name).read_bytes()
        return raw[8:8 + int.from_bytes(raw[:8], "little")]

    def test_a_model_of_others_has_no_hashes(self):
        for words in (("check", "model"), ("embed", "model", "--input", "texts", "--stream")):
            self.bad(4, r"model/model\.safetensors: there are no hashes to verify it with", *words,
                     "--verify")
        self.good("convert", "model", "out", "--to", "dense")

    def test_a_damaged_tensor(self):
        self.flip("packed/model.safetensors", -1)
        said = r'packed/model\.safetensors: tensor ".*" ' + DAMAGED
        for words in (("check", "packed", "--verify"), ("unpack", "packed", "out"),
                      ("convert", "packed", "out", "--to", "dense"),
                      ("embed", "packed", "--input", "texts", "--stream", "--verify"),
                      ("bench", "--model", "packed", "--verify")):
            self.bad(4, said, *words)
        self.assertFalse((self.folder / "out").exists())

    def test_a_damaged_side_file(self):
        self.flip("packed/vocab.txt", 0)
        self.bad(4, r"packed/vocab\.txt: the file " + DAMAGED, "check", "packed", "--verify")
        self.good("unpack", "packed", "out")  # which looks at no vocabulary
        self.good("check", "out", "--verify")  # and writes what there is

    def test_no_bit_of_a_folder_changes_vectors_unseen(self):
        self.good("prune", "model", "lifted", "--packed", "--pattern", "dense:16")
        for name, pattern in (("packed", "2:4"), ("lifted", "dense:16")):
            some = flips.Flips(cli_case.PROGRAM, self.folder / name, self.folder / "texts", pattern)
            counts, unseen = some.all(80, seed=7)
            self.assertEqual(unseen, [])
            self.assertEqual(counts["refused"] + counts["unused"], 80)

    def test_the_same_bytes_twice(self):
        self.good("pack", "pruned", "again")
        self.assertEqual(cli_case.listing(self.folder / "again"),
                         cli_case.listing(self.folder / "packed"))


if __name__ == "__main__":
    unittest.main()
