# SPDX-License-Identifier: Apache-2.0
"""prune --masks-only by parts of the blocks: joined masks of magnitude are those of one process,
with passages each part's are those of its blocks after dense ones; parts that are missing, doubled,
of another run or torn are refused by name."""
import json
import unittest

from cli_case import Scratch, run
import tiny_bert

WORDS = ("prune", "model")
CALIBRATED = ("--masks-only", "--method", "wanda", "--calibration", "texts")


class Parts(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("\n".join(tiny_bert.sentences(24)) + "\n")

    def good(self, folder, *arguments):
        done = run(*arguments, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def joined(self, folder, parts, *words):
        names = [f"{parts}-{i}.safetensors" for i in range(1, parts + 1)]
        for i, name in enumerate(names):
            self.good(folder, *WORDS, name, *words, "--shard", f"{i + 1}/{parts}", "--force")
        self.good(folder, "join", "joined.safetensors", *reversed(names), "--force")
        return (folder / "joined.safetensors").read_bytes()

    def test_joined_masks_are_those_of_one_process(self):
        folder = self.scratch()
        for words, most in ((("--masks-only",), 5), (CALIBRATED, 1),
                            (("--masks-only", "--exclude", "*.layer.0.*"), 3)):
            self.good(folder, *WORDS, "whole.safetensors", *words, "--force")
            for parts in range(1, most + 1):  # more parts than blocks
                self.assertEqual(self.joined(folder, parts, *words),
                                 (folder / "whole.safetensors").read_bytes())

    def test_a_part_comes_after_dense_blocks(self):
        folder = self.scratch()
        self.good(folder, *WORDS, "second.safetensors", *CALIBRATED, "--include", "*.layer.1.*")
        self.good(folder, *WORDS, "part.safetensors", *CALIBRATED, "--shard", "2/2")
        self.good(folder, *WORDS, "first.safetensors", *CALIBRATED, "--shard", "1/2")
        told = json.loads(self.good(folder, "join", "masks.safetensors", "part.safetensors",
                                    "first.safetensors", "--json"))
        self.assertEqual(told["parts"], 2)
        pruned = json.loads(self.good(folder, *WORDS, "out", "--masks", "masks.safetensors",
                                      "--json"))
        self.assertEqual(len(pruned["layers"]), told["layers"])
        self.good(folder, "check", "out")
        by_itself = self.good(folder, *WORDS, "alone", "--masks", "second.safetensors", "--include",
                              "*.layer.1.*", "--json")
        kept = {layer["name"]: layer["kept_l1"] for layer in pruned["layers"]}
        for layer in json.loads(by_itself)["layers"]:
            self.assertEqual(layer["kept_l1"], kept[layer["name"]])

    def test_parts_that_do_not_fit_are_refused(self):
        folder = self.scratch()
        for place, name, *more in (("1/2", "1"), ("2/2", "2"), ("1/3", "third"),
                                   ("2/2", "other", "--pattern", "4:8")):
            self.good(folder, *WORDS, name, "--masks-only", "--shard", place, *more)
        self.good(folder, *WORDS, "whole", "--masks-only")
        torn = (folder / "1").read_bytes()
        for name, to in (("place", b"3/2 "), ("says", b"1/2x")):
            (folder / name).write_bytes(torn.replace(b"1/2 ", to, 1))
        self.refusals(self.wrong(), folder)

    @staticmethod
    def wrong():
        return [
            ("missing", ("join", "out", "2"), 4, "part 1 of 2 is missing"),
            ("doubled", ("join", "out", "1", "1"), 4, "1 is part 1 of 2, and so is 1"),
            ("other number", ("join", "out", "1", "third"), 4,
             "third is one of 3 parts, 1 one of 2"),
            ("other run", ("join", "out", "1", "other"), 4,
             "other is of another model, of other passages, options or version than 1"),
            ("whole", ("join", "out", "1", "whole"), 4,
             "whole is no part of prune --masks-only --shard I/N"),
            ("place", ("join", "out", "place"), 4, "place: its part is '3/2'; I/N is expected"),
            ("says", ("join", "out", "says"), 4, "'I/N HASH' is expected"),
            ("there", ("join", "whole", "1", "2"), 3, "whole exists; --force replaces it"),
            ("model", (*WORDS, "out", "--shard", "1/2"), 2, "masks-only"),
            ("global", (*WORDS, "out", "--masks-only", "--shard", "1/2", "--scope", "global",
                        "--pattern", "unstructured:0.5"), 2, "shard"),
            ("shard", (*WORDS, "out", "--masks-only", "--shard", "3/2"), 2, "'3/2' is not I/N"),
            ("a layer without a mask", (*WORDS, "out", "--masks", "1"), 4,
             "the file of masks has none for this tensor")]


if __name__ == "__main__":
    unittest.main()
