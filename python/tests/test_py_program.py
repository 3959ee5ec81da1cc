# SPDX-License-Identifier: Apache-2.0
"""Commands as functions: recipes, budgets, times, search; and vectors that are searched often."""
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import numpy as np
import sparse24
from py_support import tiny_bert

RECIPE = """\
stages:
- prune: {method: wanda, calibration: $CALIBRATION}
- pack
"""


class Place(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        self.model = tiny_bert.write(self.root / "model")
        self.texts = self.root / "texts.txt"
        self.texts.write_text("\n".join(tiny_bert.sentences(40)) + "\n", encoding="utf-8")


class Commands(Place):
    def test_any(self):
        about = sparse24.command("info", self.model)
        self.assertEqual(about["version"], 1)
        self.assertGreater(len(about), 2)
        no = sparse24.command("check", self.model)  # a check that says no is no error
        self.assertEqual(no["version"], 1)

    def test_errors_are_of_their_class(self):
        for kind, sentence, words, options in (
                (OSError, "/nothing", ("info", "/nothing"), {}),
                (ValueError, "M K N", ("plan", "4", "4"), {}),
                (ValueError, "no-such", ("info", self.model), {"no_such": 1}),
                (sparse24.Error, "passages", ("info", self.texts.rename(self.root / "passages")),
                 {})):
            with self.subTest(words), self.assertRaisesRegex(kind, sentence) as caught:
                sparse24.command(*words, **options)
        self.assertEqual(caught.exception.status, "malformed input")

    def test_ctrl_c(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        begun, whole = time.monotonic(), 400  # seconds of 1000 turns of 400 ms
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            sparse24.bench(shapes="64,512,512", rounds=1000, min_ms=whole, threads=1)
        self.assertLess(time.monotonic() - begun, whole)

    def test_a_recipe(self):
        recipe, out = self.root / "recipe.yaml", self.root / "out"
        recipe.write_text(RECIPE)
        told = sparse24.run(recipe, self.model, out, calibration=self.texts, check=True)
        self.assertEqual([stage[0] for stage in told["recipe"]], ["prune", "pack"])
        done = sparse24.run(recipe, self.model, out, calibration=self.texts)
        self.assertEqual(list(done["stages"])[:2], ["1-prune", "2-pack"])
        self.assertTrue(sparse24.Checkpoint(done["model"]).info(
            "encoder.layer.0.output.dense.weight").packed)
        recipe.write_text("stages: [fly]\n")
        with self.assertRaisesRegex(sparse24.Error, "recipe.yaml:1.*fly"):
            sparse24.run(recipe, self.model, self.root / "other")

    def test_a_budget(self):
        found = sparse24.propose(self.model, self.texts, "bytes=0.8", patterns=["2:4"],
                                 recipe=self.root / "r.yaml", samples=8)
        two_four, dense = found["proposal"]["two_four"], found["proposal"]["dense"]
        self.assertEqual(len(two_four) + len(dense), 12)
        self.assertTrue(two_four and dense)
        self.assertTrue((self.root / "r.yaml").exists())
        with self.assertRaisesRegex(ValueError, "bytes"):
            sparse24.propose(self.model, self.texts, "bytes=0.01", patterns=["2:4"], samples=2)

    def test_times(self):
        found = sparse24.bench(shapes="4,64,64", rounds=1, min_ms=1, threads=1)
        self.assertEqual(found["version"], 1)


class Searching(Place):
    def test_a_stored_index(self):
        folder, lines = self.root / "index", self.texts.read_text().splitlines()
        hits = sparse24.search(self.model, lines[7], self.texts, 3, index=folder,
                               index_dtype="i8", sparse=True)
        self.assertEqual((hits[0].text, len(hits)), (lines[7], 3))
        index = sparse24.Index.load(folder)
        self.assertEqual((len(index), index.integers.dtype), (40, np.int8))
        encoder = sparse24.Encoder(self.model, all_sparse=True)
        found, scores = index.nearest(encoder.encode([lines[7]]), 3)
        self.assertEqual(list(found[0]), [hit.line for hit in hits])
        np.testing.assert_allclose(scores[0], [hit.score for hit in hits], rtol=1e-5)
        about = folder / "index.json"
        about.write_text(about.read_text().replace('"whole":true', '"whole":false'))
        with self.assertRaisesRegex(ValueError, "did not end"):
            sparse24.Index.load(folder)
        about.write_text(about.read_text().replace('"whole":false', '"whole":true')
                         .replace('"count":40', '"count":41'))
        with self.assertRaisesRegex(ValueError, "index.json"):
            sparse24.Index.load(folder)
        with self.assertRaises(OSError):
            sparse24.Index.load(self.root)

    def test_integers_find_the_same(self):
        rng = np.random.default_rng(3)
        rows = rng.standard_normal((500, 24)).astype("f4")
        queries = rng.standard_normal((5, 24)).astype("f4")
        one, two = sparse24.Index(rows), sparse24.Index(rows, rounded=False)
        for a, b in zip(one.nearest(queries, 7), two.nearest(queries, 7)):
            np.testing.assert_array_equal(a, b)
        exact = np.argsort(-(queries @ rows.T), axis=1)[:, 0]
        np.testing.assert_array_equal(one.nearest(queries, 1)[0][:, 0], exact)
        with self.assertRaises(sparse24.Error):
            sparse24.Index(rows * np.inf)
        with self.assertRaises(ValueError):
            one.nearest(queries[:, :8], 2)


if __name__ == "__main__":
    unittest.main()
