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

    def test_an_open_file_is_as_the_command_line_reads_it(self):
        spaced = self.root / "spaced.txt"
        spaced.write_text("\nthe first passage\n \nthe second\n", encoding="utf-8")
        wanted = sparse24.prune_model(self.model, self.root / "listed", "wanda",
                                      texts=["the first passage", "the second"])
        for path in (self.passages, spaced):
            with open(path, encoding="utf-8") as texts:
                layers = sparse24.prune_model(self.model, self.root / path.stem, "wanda",
                                              texts=texts)
            self.assertGreater(layers[0].output_error, 0)
            self.assertEqual([layer.output_error for layer in layers],
                             [layer.output_error for layer in wanted])

    def test_texts_are_no_name_of_a_file(self):
        with self.assertRaisesRegex(TypeError, "documents: expected the name of a file of lines"):
            sparse24.search(self.model, "a query", ["one text", "another"])


    def test_one_text_where_one_is_expected(self):
        with self.assertRaisesRegex(TypeError, "query: expected a text, got <class 'list'>"):
            sparse24.search(self.model, ["a query", "another"], self.passages)
        with self.assertRaisesRegex(TypeError, "text: expected str, got <class 'list'>"):
            sparse24.Tokenizer(self.model).encode(["a text"])

    def test_a_name_is_not_its_letters(self):
        model = sparse24.Model(self.model)
        np.testing.assert_array_equal(model.forward([[2, 7]], outputs="hidden")["hidden"],
                                      model.forward([[2, 7]])["hidden"])
        with self.assertRaisesRegex(ValueError, r"outputs \['hiden'\]: expected some of"):
            model.forward([[2, 7]], outputs="hiden")

    def test_nothing_to_learn_from(self):
        texts = ["a text", "another"]
        for options, sentence in (({}, "a model without a head needs a teacher"),
                                  ({"loss": {"labels": 0}}, "no loss has a weight over 0"),
                                  ({"loss": {"cosine": 1}}, "cosine need a teacher")):
            with self.assertRaisesRegex(ValueError, sentence):
                sparse24.train(self.model, self.root / "no", texts=texts, steps=1, **options)
        self.assertFalse((self.root / "no").exists())

    def test_keys_that_are_no_names(self):
        checkpoint = sparse24.Checkpoint(self.model)
        self.assertIsNone(checkpoint.get(0))
        with self.assertRaises(KeyError):
            _ = checkpoint[0]


class Names(unittest.TestCase):
    def test_those_that_exist_are_told(self):
        m, x = sparse24.Matrix.magnitude(W), np.ones((3, 16), np.float32)
        with self.assertRaisesRegex(ValueError, "criterion 'sparsgpt': expected .*sparsegpt"):
            sparse24.prune(W, "sparsgpt", x)
        with self.assertRaisesRegex(ValueError, "scheme 'int3': expected one of int8, .*int4-g64"):
            m.quantize("int3")
        with tempfile.TemporaryDirectory() as place:
            model = tiny_bert.write(pathlib.Path(place, "model"))
            with self.assertRaisesRegex(ValueError, "quantize 'int3': expected one of int8, "):
                sparse24.Model(model, quantize="int3")
            with self.assertRaisesRegex(ValueError, "quantize 'int3': expected one of int8, "):
                sparse24.prune_model(model, pathlib.Path(place, "no"), quantize="int3")
            with self.assertRaisesRegex(ValueError, "to 'onyx': expected one of .*sparse24"):
                sparse24.convert(model, pathlib.Path(place, "no"), "onyx")
            with self.assertRaisesRegex(ValueError, "method 'srste': expected one of .*sr-ste"):
                sparse24.train(model, pathlib.Path(place, "no"), texts=["a"], method="srste")
            texts = ["a text of some words"]
            layers = sparse24.sensitivity(model, texts, "2:4")  # one pattern, and not three
            self.assertEqual([layer.pattern for layer in layers], ["2:4"] * len(layers))
            self.assertGreater(len(layers), 1)
        with self.assertRaisesRegex(ValueError, "method 'nope': expected one of "):
            sparse24.method("nope")
        with self.assertRaisesRegex(ValueError, "kernel 'none': expected one of linear_"):
            sparse24.Plan(m, kernel="none")
        with self.assertRaisesRegex(ValueError, r"array \[vectors, width\], not \[4\]; one"):
            sparse24.max_sim(np.ones((2, 4), np.float32), [np.ones((2, 4), np.float32)])


class NotThere(unittest.TestCase):
    def test_it_is_a_file_not_found(self):
        with tempfile.TemporaryDirectory() as place:
            there = tiny_bert.write(pathlib.Path(place, "model"))
            absent, texts = pathlib.Path(place, "absent"), ["a text"]
            for call in (lambda: sparse24.Encoder(absent), lambda: sparse24.Encoder("owner/name"),
                         lambda: sparse24.Model(absent), lambda: sparse24.Checkpoint(absent),
                         lambda: sparse24.Tokenizer(absent), lambda: sparse24.Matrix.load(absent),
                         lambda: sparse24.prune_model(absent, absent, "wanda", texts=texts),
                         lambda: sparse24.distil(there, absent, absent, texts, steps=1),
                         lambda: sparse24.prune_model(there, absent, masks=absent),
                         lambda: sparse24.convert(absent, absent),
                         lambda: sparse24.Index.load(absent),
                         lambda: sparse24.search(there, "a query", absent),
                         lambda: sparse24.command("info", absent)):
                with self.assertRaisesRegex(FileNotFoundError, "absent|owner/name"):
                    call()
            self.assertFalse(absent.exists())
            with self.assertRaises(OSError) as caught:  # it is there, and no file
                sparse24.search(there, "a query", there)
            self.assertNotIsInstance(caught.exception, FileNotFoundError)
            with self.assertRaises(FileExistsError):
                sparse24.command("prune", there, there)


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

    def test_stops_are_ids(self):
        for stops in ("a", ["a"], 3, [1.5]):
            with self.assertRaisesRegex(TypeError, "stops: expected a list of whole numbers"):
                list(sparse24.generate(self.model, [[1]], stops=stops))
            with self.assertRaisesRegex(TypeError, "stops: expected a list of whole numbers"):
                sparse24.Generator(self.model, texts=1).join([1], stops=stops)
        self.assertEqual(len(list(sparse24.generate(self.model, [[1]], stops=[], max_new=2))), 2)

    def test_zero_is_not_the_default(self):
        for name in ("top_p", "repeat_penalty"):
            with self.assertRaisesRegex(ValueError, f"{name} 0: expected a number over 0"):
                list(sparse24.generate(self.model, [[1]], temperature=1, **{name: 0}))
            with self.assertRaisesRegex(ValueError, f"{name} 0: expected a number over 0"):
                sparse24.Generator(self.model, texts=1).join([1], temperature=1, **{name: 0})

    def test_nothing_to_predict(self):
        for ids in ([], [5]):
            with self.assertRaisesRegex(ValueError, f"a text of {len(ids)} tokens has none to"):
                self.model.perplexity(ids)
        for options in ({"window": 1}, {"window": 4, "stride": 5}, {"stride": -1}):
            with self.assertRaisesRegex(ValueError, "windows of [0-9]+ tokens, -?[0-9]+ apart"):
                self.model.perplexity([5, 6, 7], **options)

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
        for k in (0, -1):
            for find in (lambda: sparse24.nearest(documents, documents, k),
                         lambda: sparse24.Index(documents).nearest(documents, k)):
                with self.assertRaisesRegex(ValueError, f"k is {k}: expected 1 or more"):
                    find()
        with self.assertRaisesRegex(ValueError, "documents has 1 dimensions, expected 2"):
            sparse24.Index(documents[0])

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
