# SPDX-License-Identifier: Apache-2.0
"""embed --shard I/N and join: the parts of a file's lines, in any order, make the vectors that one
embed makes; parts that are missing, doubled or foreign are refused by name."""
import unittest

from cli_case import Scratch, run
import tiny_bert
from cli_data import floats, read

LINES = tiny_bert.sentences(11)


class Shard(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        tiny_bert.write(folder / "other", seed=9)
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        (folder / "more").write_text("\n".join(LINES[:9] + LINES[:2]) + "\n", encoding="utf-8")
        (folder / "ids").write_text("\n".join(f"{i + 1} {i + 2}" for i in range(5)) + "\n")
        for name, input, part in (("a1", "texts", "1/3"), ("a2", "texts", "2/3"),
                                  ("a3", "texts", "3/3"), ("b2", "more", "2/3"),
                                  ("c2", "texts", "2/4")):
            done = run("embed", "model", "--input", input, "--shard", part, "--output",
                       f"{name}.safetensors", "--dense", cwd=folder)
            if done.returncode:
                raise AssertionError(done.stderr)

    def vectors(self, path):
        tensors, _ = read(self.folder / path)
        dtype, shape, raw = tensors["embeddings"]
        self.assertEqual(dtype, "F32")
        return shape, floats(raw)

    def test_parts_make_the_whole(self):
        self.good("embed", "model", "--input", "texts", "--output", "whole.safetensors", "--dense")
        sizes = [self.vectors(f"a{i}.safetensors")[0][0] for i in (1, 2, 3)]
        self.assertEqual(sum(sizes), len(LINES))
        self.assertLessEqual(max(sizes) - min(sizes), 1)
        found = self.json("join", "all.safetensors", "a2.safetensors", "a3.safetensors",
                          "a1.safetensors")
        self.assertEqual((found["texts"], found["parts"]), (len(LINES), 3))
        shape, all_of_them = self.vectors("all.safetensors")
        wanted_shape, wanted = self.vectors("whole.safetensors")
        self.assertEqual(shape, wanted_shape)
        for a, b in zip(all_of_them, wanted):
            self.assertAlmostEqual(a, b, delta=1e-5)
        done = self.good("join", "all.npy", *(f"a{i}.safetensors" for i in (1, 2, 3)))
        self.assertRegex(done.stdout, r"all\.npy: 11 vectors of \d+ numbers")
        self.assertTrue((self.folder / "all.npy").read_bytes().startswith(b"\x93NUMPY"))

    def test_the_same_part_has_the_same_bytes(self):
        self.good("embed", "model", "--input", "texts", "--shard", "2/3", "--output",
                  "again.safetensors", "--dense")
        self.assertEqual((self.folder / "again.safetensors").read_bytes(),
                         (self.folder / "a2.safetensors").read_bytes())

    def test_more_parts_than_lines(self):
        parts = [f"p{i}.safetensors" for i in range(1, 8)]
        for i, part in enumerate(parts, 1):
            self.good("embed", "model", "--ids", "--input", "ids", "--shard", f"{i}/7", "--output",
                      part)
        self.assertEqual(sorted(self.vectors(part)[0][0] for part in parts), [0, 0, 1, 1, 1, 1, 1])
        self.good("join", "all.safetensors", *parts)
        self.good("embed", "model", "--ids", "--input", "ids", "--output", "whole.safetensors")
        for a, b in zip(self.vectors("all.safetensors")[1], self.vectors("whole.safetensors")[1]):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_what_is_refused(self):
        self.good("embed", "other", "--input", "texts", "--shard", "2/3", "--output",
                  "o2.safetensors")
        one, two, three = (f"a{i}.safetensors" for i in (1, 2, 3))
        embed = ("embed", "model", "--input", "texts", "--output", "x.safetensors", "--shard")
        for name, arguments, code, sentence in [
                ("missing", ("join", "x.npy", one, three), 4, "part 2 of 3 is missing"),
                ("twice", ("join", "x.npy", one, two, one), 4,
                 r"a1\.safetensors is part 1 of 3, and so is a1\.safetensors"),
                ("another input", ("join", "x.npy", one, "b2.safetensors", three), 4,
                 r"b2\.safetensors is of another input than a1"),
                ("another number", ("join", "x.npy", one, "c2.safetensors", three), 4,
                 r"c2\.safetensors is one of 4 parts, a1\.safetensors one of 3"),
                ("another model", ("join", "x.npy", one, "o2.safetensors", three), 4,
                 r"o2\.safetensors is of another model, or of other options, than a1"),
                ("no part", ("join", "x.npy", "model/model.safetensors"), 4,
                 r"is no part of embed --shard I/N: its metadata have no sparse24\.shard"),
                ("no file", ("join", "x.npy", "nowhere.safetensors"), 3, "nowhere.safetensors"),
                ("an ending", ("join", "x.txt", one), 2, "x.txt: the name ends in neither"),
                ("a zeroth part", (*embed, "0/3"), 2, "'0/3' is not I/N"),
                ("beyond the last", (*embed, "4/3"), 2, "'4/3' is not I/N"),
                ("no number", (*embed, "a"), 2, "'a' is not I/N"),
                ("words after it", (*embed, "1/3x"), 2, "'1/3x' is not I/N"),
                ("a stream", ("embed", "model", "--input", "texts", "--stream", "--shard", "1/2"),
                 2, "--shard"),
                ("an array", ("embed", "model", "--input", "texts", "--output", "x.npy", "--shard",
                              "1/2"), 2, "--shard writes FILE.safetensors.*not x.npy")]:
            with self.subTest(name):
                done = run(*arguments, cwd=self.folder)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, sentence)
                self.assertFalse(list(self.folder.glob("x.*")))


if __name__ == "__main__":
    unittest.main()
