# SPDX-License-Identifier: Apache-2.0
"""What is easily given by mistake: one text for many, numbers that are no ids, arrays without rows,
an object's shape that is set. It is refused with a sentence, or computed as an empty batch."""
import pathlib
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import golden, tiny_bert

W = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)


class OneTextForMany(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.place.name)
        cls.model = tiny_bert.write(cls.root / "model")
        cls.passages = cls.root / "passages.txt"
        cls.passages.write_text("the first passage\nthe second\n", encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def test_a_name_of_a_file_is_no_texts(self):
        for texts in (str(self.passages), self.passages, "a text"):
            with self.assertRaisesRegex(TypeError, "texts: expected a list of texts"):
                sparse24.prune_model(self.model, self.root / "no", "wanda", texts=texts)
            with self.assertRaisesRegex(TypeError, "texts: expected a list of texts"):
                sparse24.distil(self.model, self.model, self.root / "no", texts, steps=1)
            with self.assertRaisesRegex(TypeError, "texts: expected a list of texts"):
                sparse24.sensitivity(self.model, texts)
        self.assertFalse((self.root / "no").exists())

    def test_an_open_file_is(self):
        with open(self.passages, encoding="utf-8") as texts:
            layers = sparse24.prune_model(self.model, self.root / "out", "wanda", texts=texts)
        self.assertGreater(layers[0].output_error, 0)


class Ids(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = golden("language/llama2")
        cls.model = sparse24.Model(cls.folder)

    def test_whole_numbers_in_lists(self):
        forward = self.model.forward
        for texts, error, sentence in (([[1.5, 2]], TypeError, "whole numbers, got float64"),
                                       ([1, 2, 3], TypeError, "whole numbers, got <class 'int'>"),
                                       (["abc"], TypeError, "whole numbers, got <class 'str'>"),
                                       ([[True]], TypeError, "whole numbers, got bool"),
                                       ([np.array([2 ** 32 + 1])], ValueError, "at most 32 bits"),
                                       ([[]], ValueError, "text 0 has no tokens"),
                                       ([], ValueError, "no texts")):
            with self.assertRaisesRegex(error, sentence):
                forward(texts)
        with self.assertRaisesRegex(TypeError, "whole numbers"):
            self.model.perplexity([1.0, 2.0])
        np.testing.assert_array_equal(forward([np.array([5, 6], np.uint16)])["hidden"],
                                      forward([[5, 6]])["hidden"])

    def test_at_least_one_new_token(self):
        for max_new in (0, -3):
            with self.assertRaisesRegex(ValueError, f"max_new {max_new}: expected 1 or more"):
                list(sparse24.generate(self.model, [[1]], max_new=max_new))
            with self.assertRaisesRegex(ValueError, f"max_new {max_new}: expected 1 or more"):
                sparse24.Generator(self.model, texts=1).join([1], max_new=max_new)

    def test_nothing_to_learn_from(self):
        with tempfile.TemporaryDirectory() as place:
            for ids in ([[]], []):
                with self.assertRaisesRegex(ValueError, "no token to learn from"):
                    sparse24.train(self.folder, pathlib.Path(place, "no"), ids=ids, steps=1)


class NoRows(unittest.TestCase):
    def test_products(self):
        m, none = sparse24.Matrix.magnitude(W), np.empty((0, 16), np.float32)
        self.assertEqual(sparse24.linear(none, m).shape, (0, 8))
        self.assertEqual(sparse24.linear(np.empty((2, 0, 16), np.float32), m).shape, (2, 0, 8))
        self.assertEqual((none @ m.T).shape, (0, 8))
        self.assertEqual((m @ np.empty((16, 0), np.float32)).shape, (8, 0))
        self.assertEqual(sparse24.Plan(m)(none).shape, (0, 8))
        for product in (lambda x: sparse24.linear(x, m), sparse24.Plan(m)):
            with self.assertRaisesRegex(ValueError, r"x is \[0, 12\]; expected \[..., 16\]"):
                product(np.empty((0, 12), np.float32))
        with self.assertRaises(ValueError):
            none @ m

    def test_nearest(self):
        documents, none = W, np.empty((0, 16), np.float32)
        self.assertEqual(sparse24.nearest(none, documents, 3)[0].shape, (0, 3))
        self.assertEqual(sparse24.nearest(documents, none, 3)[1].shape, (8, 0))
        with self.assertRaises(ValueError):
            sparse24.nearest(np.empty((0, 4), np.float32), documents, 3)

    def test_files(self):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place, "some.safetensors")
            sparse24.save_checkpoint(path, {"none": np.zeros((0, 3)), "one": np.array([1.0])})
            read = sparse24.Checkpoint(path)
            self.assertEqual(read["none"].shape, (0, 3))
            self.assertEqual(read["one"].tolist(), [1])


class Fixed(unittest.TestCase):
    def test_a_shape_cannot_be_set(self):
        m = sparse24.Matrix.magnitude(W)
        for thing in (m, sparse24.Plan(m), sparse24.SparseMatrix.from_dense(m.to_dense()),
                      sparse24.LiftedMatrix(m.to_dense(), "dense:4")):
            with self.assertRaisesRegex(AttributeError, "shape: a sparse24.* cannot be changed"):
                thing.shape = (1000, 1000)
            self.assertEqual(thing.shape, (8, 16))
        with self.assertRaises(AttributeError):
            m.colour = "red"
        self.assertEqual(m.values.shape, (8, 8))

    def test_a_dtype_is_named(self):
        m = sparse24.Matrix.magnitude(W)
        for dtype in (">f4", "c8", object):
            with self.assertRaisesRegex(TypeError, f"x: dtype {np.dtype(dtype)} is none"):
                sparse24.linear(np.zeros((1, 16), dtype), m)
        self.assertEqual(repr(sparse24.Matrix.magnitude(W, dtype="i8")),
                         "<sparse24.Matrix [8, 16] i8, 80 bytes>")


if __name__ == "__main__":
    unittest.main()
