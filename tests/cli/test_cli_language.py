# SPDX-License-Identifier: Apache-2.0
"""eval --task lm against GPT-2 and Llama in plain Python: windows that overlap; 2:4 layers in
every dtype of the CPU, and on a device that is none (tests/support/fake_device.c), where a token's
loss is 1."""
import collections
import json
import math
import random
import re
import unittest

from cli_case import BUILD, Scratch, has_tiles, one_object, run
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

    def lm(self, model, data, *more, **how):
        return self.json("eval", model, "--task", "lm", "--data", data, *more, **how)

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

    def test_other_functions(self):
        """Keys that make another function of the same weights."""
        path = self.folder / "gpt2/config.json"
        text = path.read_text()
        path.write_text(json.dumps({**json.loads(text), "add_cross_attention": True}))
        self.assertIn("add_cross_attention is on, which is not supported",
                      self.lm("gpt2", "text", exit=5)["error"])
        losses = []
        for more in ({}, {"scale_attn_weights": True}, {"scale_attn_weights": False}):
            path.write_text(json.dumps({**json.loads(text), **more}))
            losses.append(self.lm("gpt2", "text")["perplexity"])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        path.write_text(text)

    def test_help_tells_the_strides_apart(self):
        said = " ".join(self.good("help", "eval").stdout.split())
        self.assertRegex(said, "qa: tokens that two neighbouring pieces .* their overlap")
        self.assertRegex(said,
                         "lm: tokens from the start of a window to that of the next, their step")


FAKE = BUILD / "tests" / "fake"


def make_sparse(folder):
    """Both models pruned, Llama's packed too, in integers and in bf16. A GPU takes no heads as
    narrow as narrow's."""
    test_cli_eval.write_gpt2(folder / "gpt2", width=32)
    write_llama(folder / "llama")
    for name in ("gpt2", "llama"):
        randomise(folder / name, 3)
        assert run("prune", name, f"{name}-24", cwd=folder).returncode == 0
    write_llama(folder / "narrow", width=8, heads=2)
    assert run("pack", "llama-24", "packed", cwd=folder).returncode == 0
    assert run("pack", "llama-24", "int8", "--quantize", "int8", cwd=folder).returncode == 0
    assert run("prune", "llama", "bf16", "--packed", "--dtype", "bf16", cwd=folder).returncode == 0
    (folder / "text").write_text("".join(random.Random(4).choices(LETTERS, k=90)))


class TwoFour(Scratch):
    make = staticmethod(make_sparse)

    def lm(self, model, *more):
        """The loss, and how many layers of how many ran 2:4, as is said where any is 2:4."""
        words = ("eval", model, "--task", "lm", "--data", "text", "--threads", "1", *more)
        said = re.search(r"(\d+) of (\d+) 2:4 layers ran 2:4", self.good(*words).stderr)
        return self.json(*words)["loss"], tuple(map(int, said.groups())) if said else None

    def plain(self, model, stride=16):
        ids = [LETTERS.index(c) for c in (self.folder / "text").read_text()]
        return strided_loss(Plain(self.folder / model), ids, 16, stride)

    def test_sparse_and_dense_alike(self):
        for plain, models, layers in (("gpt2-24", ("gpt2-24",), 4),
                                      ("llama-24", ("llama-24", "packed"), 7)):
            for stride in (16, 5):
                expected = self.plain(plain, stride)
                for model in models:
                    with self.subTest(model=model, stride=stride):
                        for way, ran in (("--sparse", (layers, layers)), ("--dense", None)):
                            loss, said = self.lm(model, "--stride", str(stride), way)
                            self.assertAlmostEqual(loss, expected, places=5)
                            self.assertEqual(said, ran)
                        loss, said = self.lm(model, "--stride", str(stride))
                        self.assertAlmostEqual(loss, expected, places=5)
                        self.assertEqual(said[1], layers)

    def test_dtypes(self):
        # Where the dense engine has no bf16, dense layers run in f32, whatever is asked.
        for plain, models in (("gpt2-24", ("gpt2-24",)), ("llama-24", ("llama-24", "packed"))):
            expected = self.plain(plain)
            for model in models:
                for dtype, part in (("bf16", 0.01), ("i8", 0.03)):
                    for way in ("--sparse", "--dense"):
                        with self.subTest(model=model, dtype=dtype, way=way):
                            loss, _ = self.lm(model, "--dtype", dtype, way)
                            if way == "--sparse":
                                self.assertNotAlmostEqual(loss, expected, places=7)
                            self.assertLess(abs(loss - expected), part * expected)

    def test_f32_unless_asked_otherwise(self):
        exact = self.lm("bf16", "--dtype", "f32", "--sparse")
        self.assertEqual(self.lm("bf16", "--sparse"), exact)
        self.assertNotEqual(self.lm("bf16", "--dtype", "bf16", "--sparse"), exact)

    def test_stored_integers_and_their_dense_floats_alike(self):
        self.good("unpack", "int8", "floats")
        # Of many tokens kernels may make integers of 16 bits, or on AMX's tiles bf16.
        self.assertAlmostEqual(self.lm("int8", "--sparse")[0], self.plain("floats"),
                               places=2 if has_tiles() else 4)

    def test_a_model_without_24_layers_says_nothing_of_them(self):
        self.assertIsNone(self.lm("llama")[1])


@unittest.skipUnless((FAKE / "libsparse24-cuda.so.0").exists(), "no modules in this build")
class Device(Scratch):
    make = staticmethod(make_sparse)
    PACKED = ("eval", "packed", "--task", "lm", "--data", "text", "--device", "cuda")

    def environment(self, **more):
        return {"LD_LIBRARY_PATH": str(FAKE), "XDG_CACHE_HOME": str(self.folder / "cache"),
                **{f"S24_FAKE_{name.upper()}": str(value) for name, value in more.items()}}

    def kernels(self, *more):
        """How often each was asked for. A text's windows are one batch."""
        calls, report = self.folder / "calls", self.folder / "report"
        found = self.json(*self.PACKED, *more, environment=self.environment(calls=calls,
                                                                             report=report))
        self.assertEqual((found["loss"], found["tokens"]), (1, 90))
        self.assertEqual(one_object('{"version": 1, ' + report.read_text()[1:])["left"], 0)
        count = collections.Counter(calls.read_text().split())
        calls.unlink()
        return count

    def test_sparse_and_dense(self):
        sparse, dense = self.kernels("--sparse"), self.kernels("--dense")
        self.assertGreater(sparse["linear"], 0)
        self.assertEqual((sparse["dense"], dense["linear"]), (1, 0))  # the head's
        self.assertGreater(dense["dense"], 1)
        self.assertEqual(sparse["train_loss"], 1)

    def test_dtypes(self):
        for dtype in ("f16", "bf16"):
            self.assertEqual(self.kernels("--dtype", dtype, "--sparse")["quantise"], 0)
        for dtype in ("i8", "e4m3"):
            self.assertGreater(self.kernels("--dtype", dtype)["quantise"], 0)

    def test_windows(self):
        found = self.json(*self.PACKED, "--max-tokens", "7", "--stride", "3",
                          environment=self.environment())
        self.assertEqual((found["loss"], found["stride"]), (1, 3))

    def test_refusals(self):
        def fails(words, code, sentence, **more):
            done = run(*words, cwd=self.folder, environment=self.environment(**more))
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, sentence)
        fails((*self.PACKED, "--dtype", "f32"), 5, "a model runs in f32 on the CPU only")
        fails(("eval", "narrow", *self.PACKED[2:]), 5,
              "attention heads of 4 elements; a device takes multiples of 8 up to 256 for llama")
        fails(self.PACKED, 3, "out of device memory", memory=10_000)
        fails(self.PACKED, 5, "the device is lost", waits=0)


if __name__ == "__main__":
    unittest.main()
