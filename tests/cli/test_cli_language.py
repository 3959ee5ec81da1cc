# SPDX-License-Identifier: Apache-2.0
"""eval --task lm against GPT-2 and Llama in plain Python: windows that overlap."""
import math
import random
import unittest

from cli_case import Scratch
import test_cli_eval
from plain_language import Plain, strided_loss
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise

LETTERS = test_cli_eval.LETTERS


def make(folder):
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama", width=8, heads=4, kv_heads=2, inner=12)
    for name in ("gpt2", "llama"):
        randomise(folder / name, 3)
    chance = random.Random(4)
    for name, count in (("text", 75), ("short", 9)):
        (folder / name).write_text("".join(chance.choices(LETTERS, k=count)))


class Strides(Scratch):
    make = staticmethod(make)
    CASES = ((16, 1), (16, 5), (16, 15), (16, 16), (7, 3), (7, 7), (2, 1), (1, 1))

    def lm(self, model, data, *more):
        return self.json("eval", model, "--task", "lm", "--data", data, *more)

    def test_losses_are_the_plain_ones(self):
        for name in ("gpt2", "llama"):
            model = Plain(self.folder / name)
            for data in ("text", "short"):
                ids = [LETTERS.index(c) for c in (self.folder / data).read_text()]
                for window, stride in self.CASES:
                    with self.subTest(model=name, data=data, window=window, stride=stride):
                        found = self.lm(name, data, "--max-tokens", str(window), "--stride",
                                        str(stride))
                        expected = strided_loss(model, ids, window, stride)
                        self.assertAlmostEqual(found["loss"], expected, places=5)
                        self.assertAlmostEqual(found["perplexity"], math.exp(found["loss"]),
                                               places=5)
                        self.assertEqual((found["stride"], found["tokens"]), (stride, len(ids)))

    def test_by_default_windows_lie_end_to_end(self):
        for window in ("16", "7"):
            usual = self.lm("gpt2", "text", "--max-tokens", window)
            asked = self.lm("gpt2", "text", "--max-tokens", window, "--stride", window)
            self.assertEqual((usual["loss"], usual["stride"]), (asked["loss"], int(window)))

    def test_a_text_in_one_window_is_scored_once(self):
        losses = {self.lm("llama", "short", "--stride", s)["loss"] for s in ("1", "4", "16")}
        self.assertEqual(len(losses), 1)

    def test_more_than_one_batch(self):
        """The most tokens of a pass are 4096: windows of 16 that begin at each token fill
        several."""
        (self.folder / "long").write_text((self.folder / "text").read_text() * 6)
        many = self.lm("gpt2", "long", "--max-tokens", "16", "--stride", "1")
        ids = [LETTERS.index(c) for c in (self.folder / "long").read_text()]
        self.assertAlmostEqual(many["loss"], strided_loss(Plain(self.folder / "gpt2"), ids, 16, 1),
                               places=5)

    def test_refusals(self):
        base = ("eval", "gpt2", "--task", "lm", "--data", "text")
        self.refusals([
            ("beyond", [*base, "--stride", "17"], 2,
             "--stride 17: windows of 16 tokens would leave some out; 1 to 16 is expected"),
            ("beyond fewer", [*base, "--max-tokens", "5", "--stride", "6"], 2,
             "--stride 6: windows of 5"),
            *((way, [*base, "--stride", way], 2, f"--stride: '{way}' is not a")
              for way in ("0", "-1", "1.5", "x")),
        ])

    def test_help_tells_the_strides_apart(self):
        said = " ".join(self.good("help", "eval").stdout.split())
        self.assertRegex(said, "qa: tokens that two neighbouring pieces .* their overlap")
        self.assertRegex(said,
                         "lm: tokens from the start of a window to that of the next, their step")


if __name__ == "__main__":
    unittest.main()
