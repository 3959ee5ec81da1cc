# SPDX-License-Identifier: Apache-2.0
"""Each line of tests/fuzz/targets.txt is a target with a corpus, a grammar and files that are
there, and no target or corpus is without a line."""
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
FOLDER = SOURCE / "tests/fuzz"
sys.path.insert(0, str(SOURCE / "tools"))
import fuzz  # noqa: E402


class Targets(unittest.TestCase):
    def test_each_has_its_file_and_a_small_corpus(self):
        for name in fuzz.targets():
            self.assertTrue((FOLDER / f"fuzz_{name}.c").is_file(), name)
            inputs = list((FOLDER / "corpus" / f"fuzz_{name}").iterdir())
            self.assertTrue(inputs, name)
            self.assertLess(sum(path.stat().st_size for path in inputs), 256 << 10, name)

    def test_each_file_and_corpus_has_a_line(self):
        known = {f"fuzz_{name}" for name in fuzz.targets()} | {"fuzz_files"}
        self.assertEqual({path.stem for path in FOLDER.glob("fuzz_*.c")}, known)
        self.assertEqual({path.name for path in (FOLDER / "corpus").iterdir()},
                         known - {"fuzz_files"})

    def test_readers_are_files(self):
        for name, (globs, others) in fuzz.targets().items():
            text = ""
            for glob in globs:
                files = list(SOURCE.glob(glob))
                self.assertTrue(files, f"{name}: {glob}")
                text += "".join(path.read_text() for path in files)
            for function in others:
                self.assertRegex(text, rf"\b{function}\(", name)

    def test_no_seed_is_cut(self):
        seeds = FOLDER / "corpus/fuzz_gguf"
        self.assertGreaterEqual(fuzz.longest_of(seeds), (seeds / "deepseek2").stat().st_size)
        self.assertEqual(fuzz.longest_of(FOLDER / "corpus/fuzz_calls"), fuzz.LONGEST)

    def test_counts_are_of_targets(self):
        self.assertLessEqual(set(fuzz.counted()), set(fuzz.targets()))


if __name__ == "__main__":
    unittest.main()
