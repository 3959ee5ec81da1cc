# SPDX-License-Identifier: Apache-2.0
"""Models with other zeros than 2:4's, for the tests of what packs and runs them."""
import test_cli_eval
from cli_case import Scratch
from test_cli_train_ends import write_llama
from test_cli_train_sets import randomise


def make(folder):
    """Writes two language models of random weights, an image model, and a text."""
    test_cli_eval.write_gpt2(folder / "gpt2", width=32)
    write_llama(folder / "llama", width=32)
    test_cli_eval.write_vit(folder / "vit", width=32)
    for name in ("gpt2", "llama"):
        randomise(folder / name, 3)
    (folder / "text").write_text("abcab bca abba c" * 8)


class Zeros(Scratch):
    def loss(self, model, *options):
        return self.json("eval", model, "--task", "lm", "--data", "text", *options)["loss"]
