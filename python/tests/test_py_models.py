# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, tokenizers, encoders, models and texts that go on."""
import copy
import json
import multiprocessing
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np
import sparse24
from py_support import golden, tiny_bert


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = tiny_bert.write(cls.place.name + "/model")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()


class Checkpoints(Folder):
    def test_a_mapping_of_arrays(self):
        checkpoint = sparse24.Checkpoint(self.folder)
        self.assertEqual(set(checkpoint), set(tiny_bert.shapes()))
        self.assertEqual(checkpoint.model_type, "bert")
        name = "encoder.layer.0.intermediate.dense.weight"
        self.assertEqual(checkpoint[name].shape, (64, 32))
        self.assertEqual(checkpoint.info(name).dtype, "f32")
        self.assertTrue(checkpoint.selects(name))
        self.assertFalse(checkpoint.selects("pooler.dense.weight"))
        with self.assertRaises(KeyError):
            _ = checkpoint["nothing"]
        with self.assertRaisesRegex(ValueError, "packed"):
            checkpoint.matrix(name)

    def test_every_kind(self):
        name = "encoder.layer.0.intermediate.dense.weight"
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            sparse24.prune_model(self.folder, root / "blocks", pattern="block:16x16:0.5")
            sparse24.prune_model(self.folder, root / "pruned", packed=True, quantize="int8")
            subprocess.run([sys.executable, "-m", "sparse24", "pack", "blocks", "out", "--format",
                            "bsr:16x16"], cwd=root, check=True, capture_output=True)
            for folder, kind in (("blocks", "dense"), ("pruned", "2:4"), ("out", "sparse")):
                checkpoint = sparse24.Checkpoint(root / folder)
                self.assertEqual(checkpoint.info(name).kind, kind)
                self.assertEqual(checkpoint.array(name).shape, (64, 32))
            w = sparse24.Checkpoint(root / "blocks")[name]
            blocks = sparse24.Checkpoint(root / "out")
            np.testing.assert_array_equal(blocks[name], w)
            np.testing.assert_array_equal(blocks.sparse(name).to_dense(), w)
            info = sparse24.Model(root / "out", all_sparse=True).info
            self.assertEqual(info["format_layers"], {"bsr": 12})
            self.assertEqual(sparse24.Model(root / "pruned").info["format_layers"], {})
            with self.assertRaisesRegex(TypeError, "sparse"):
                blocks.bits(name)
            with self.assertRaisesRegex(ValueError, "not in a sparse"):
                blocks.sparse("embeddings.LayerNorm.weight")

    def test_arrays_outlive_their_checkpoint(self):
        array = sparse24.Checkpoint(self.folder)["embeddings.LayerNorm.weight"]
        self.assertEqual(array.shape, (32,))
        self.assertTrue(np.isfinite(array).all())

    def test_saved_and_read(self):
        w = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
        tensors = {"a": w, "b": w.astype(np.float16), "c": np.arange(6).reshape(1, 2, 3),
                   "d": np.float32(3).reshape(()), "m": sparse24.Matrix.magnitude(w)}
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "all.safetensors"
            sparse24.save_checkpoint(path, tensors)
            checkpoint = sparse24.Checkpoint(path)
            for name in "abcd":
                np.testing.assert_array_equal(checkpoint[name], tensors[name])
            np.testing.assert_array_equal(checkpoint["m"].to_dense(), tensors["m"].to_dense())
            with self.assertRaises(FileExistsError):
                sparse24.save_checkpoint(path, tensors)

    def test_malformed(self):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "bad.safetensors"
            path.write_bytes(b"\x10\0\0\0\0\0\0\0not json, no way")
            with self.assertRaises(sparse24.Error) as caught:
                sparse24.Checkpoint(path)
            self.assertEqual(caught.exception.status, "malformed input")
            self.assertIn("bad.safetensors", str(caught.exception))


class Tokenizers(Folder):
    def test_tokens_of_characters_that_become_many(self):
        """A ligature of 18 letters: more tokens than bytes, none of which is left out."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.json")
            path.write_text(json.dumps({
                "normalizer": {"type": "NFKC"},
                "model": {"unk_token": "?", "vocab": {"?": 0, "\u0635": 1}, "type": "WordPiece",
                          "continuing_subword_prefix": "", "max_input_chars_per_word": 100},
                "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."},
                                  "behavior": "Isolated"}}), encoding="utf-8")
            ids = sparse24.Tokenizer(path).encode("\ufdfa" * 30).ids
            self.assertEqual(len(ids), 18 * 30)

    def test_encode_and_decode(self):
        tokenizer = sparse24.Tokenizer(self.folder)
        text = "read the file"
        e = tokenizer.encode(text)
        self.assertEqual((len(e.ids), e.offsets.shape), (5, (5, 2)))
        self.assertEqual(text[slice(*e.offsets[1])], "read")
        self.assertEqual(tokenizer.decode(e.ids), text)
        self.assertEqual(tokenizer.encode(text, "map").types.tolist(), [0, 0, 0, 0, 0, 1, 1])
        self.assertEqual(len(tokenizer.encode(text, max_tokens=3).ids), 3)
        self.assertEqual(len(tokenizer), len(tiny_bert.vocabulary()))
        with self.assertRaises(ValueError):
            tokenizer.decode([10 ** 6])
        with self.assertRaises(TypeError):
            tokenizer.encode(7)


class Encoders(Folder):
    def test_weights_of_words(self):
        texts = tiny_bert.sentences(40)
        encoder = sparse24.Encoder(tiny_bert.write(self.place.name + "/words", words=True))
        found, few = encoder.encode_sparse(texts), encoder.encode_sparse(texts, top=2)
        dense = found.dense()
        self.assertEqual(dense.shape, (40, len(tiny_bert.vocabulary())))
        self.assertEqual((found.ids.dtype, found.weights.dtype), (np.int32, np.float32))
        self.assertEqual(found.row(3), {i: dense[3, i] for i in found.row(3)})
        self.assertEqual(few.row(3), dict(list(found.row(3).items())[:2]))
        np.testing.assert_allclose(encoder.encode_sparse(texts[3]).dense()[0], dense[3], atol=1e-4)
        self.assertEqual(encoder.encode_sparse([]).dense().shape, (0, encoder.width))
        for call, sentence in ((lambda: encoder.encode(texts), "gives weights of words"),
                               (lambda: encoder.encode_sparse("a", top=-1), "top is -1"),
                               (lambda: sparse24.Encoder(self.folder).encode_sparse("a"),
                                "the encoder gives vectors")):
            with self.assertRaisesRegex(ValueError, sentence):
                call()

    def test_vectors_of_tokens(self):
        texts, folder = tiny_bert.sentences(40), tiny_bert.write(self.place.name + "/late")
        tiny_bert.make_late(folder, 6)
        encoder = sparse24.MultiVectorEncoder(folder)
        queries, documents = encoder.encode_query(texts[:5]), encoder.encode_document(texts)
        self.assertEqual(encoder.width, 6)
        self.assertEqual([one.shape for one in queries], [(tiny_bert.LATE_QUERY, 6)] * 5)
        for one, other in zip(encoder.encode(texts), documents):
            np.testing.assert_allclose(one, other, atol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(encoder.encode(texts[3]), documents[3], atol=1e-5)
        self.assertEqual(encoder.encode([]), [])
        scores = encoder.similarity(queries, documents)
        right = [[(q @ d.T).max(1).sum() for d in documents] for q in queries]
        np.testing.assert_allclose(scores, right, rtol=1e-5)
        halves = [one.astype(np.float16) for one in documents]
        means = sparse24.max_sim(queries, halves, by_mean=True)
        np.testing.assert_allclose(means * tiny_bert.LATE_QUERY, right, rtol=1e-2)
        self.assertEqual(sparse24.max_sim([], documents).shape, (0, 40))
        ranked = sparse24.Classifier(folder).rerank(texts[2], texts)
        np.testing.assert_allclose([score for _, score in ranked],
                                   [scores[2, i] for i, _ in ranked], rtol=1e-4)
        file, kept = self.place.name + "/late.txt", self.place.name + "/late.index"
        with open(file, "w", encoding="utf-8") as out:
            out.write("".join(f"{text}\n" for text in texts))
        hits = sparse24.search(folder, texts[2], file, 7, index=kept)
        for index in (sparse24.TokenIndex.load(kept), sparse24.TokenIndex(documents)):
            self.assertEqual(len(index), len(texts))
            lines, found = index.nearest(queries, 7)
            self.assertEqual((lines.shape, found.dtype), ((5, 7), np.float32))
            np.testing.assert_allclose(found[2], [hit.score for hit in hits], rtol=1e-3)
            np.testing.assert_allclose(found, np.take_along_axis(scores, lines, 1), rtol=1e-2)
            self.assertEqual(index.nearest([], 3)[0].shape, (0, 3))
            self.assertEqual(index.nearest(queries, 99)[0].shape, (5, 40))
        self.assertEqual(len(sparse24.TokenIndex([])), 0)
        for call, sentence in (
                (lambda: sparse24.Index.load(kept), "TokenIndex.load opens it"),
                (lambda: sparse24.Encoder(folder).encode("a"), "a vector for each token"),
                (lambda: sparse24.MultiVectorEncoder(self.folder), "Encoder opens it"),
                (lambda: encoder.encode("a", "other"), "there is no prompt"),
                (lambda: sparse24.max_sim([np.ones((2, 5), np.float32)], documents), "5 numbers")):
            with self.assertRaisesRegex(ValueError, sentence):
                call()

    def test_encode(self):
        encoder = sparse24.Encoder(self.folder)
        texts = tiny_bert.sentences(40)
        vectors = encoder.encode(texts)
        self.assertEqual((vectors.shape, vectors.dtype), ((40, 32), np.float32))
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(encoder.encode(texts[3]), vectors[3], atol=1e-5)
        self.assertEqual(encoder.encode([]).shape, (0, 32))
        self.assertEqual(encoder.get_sentence_embedding_dimension(), 32)
        cosines = encoder.similarity(vectors[:3], vectors)
        np.testing.assert_allclose(cosines, vectors[:3] @ vectors.T, atol=1e-5)
        indices, scores = sparse24.nearest(vectors, vectors, 2)
        self.assertEqual(indices[:, 0].tolist(), list(range(40)))
        np.testing.assert_allclose(scores[:, 0], 1, atol=1e-5)
        self.assertEqual(sparse24.retrieval_accuracy(vectors, vectors, range(40)), 1)

    def test_prompts_stand_for_one_call(self):
        encoder = sparse24.Encoder(self.folder)
        with_prompt = encoder.encode(["a file"], prompt="find the ")
        np.testing.assert_allclose(with_prompt, encoder.encode(["find the a file"]), atol=1e-5)
        with self.assertRaisesRegex(ValueError, "query"):
            encoder.encode(["x"], prompt_name="query")

    def test_prompts_of_the_folder(self):
        with tempfile.TemporaryDirectory() as place:
            folder = tiny_bert.write(place + "/model")
            (folder / "config_sentence_transformers.json").write_text(
                '{"prompts": {"query": "find ", "document": "read "}}')
            encoder = sparse24.Encoder(folder)
            self.assertEqual(encoder.prompts, {"query": "find ", "document": "read "})
            for mine, theirs in ((encoder.encode_query, "find a map"),
                                 (encoder.encode_document, "read a map")):
                np.testing.assert_allclose(mine(["a map"], batch_size=8, show_progress_bar=False),
                                           encoder.encode([theirs]), atol=1e-5)
            np.testing.assert_allclose(encoder.encode("a map"),
                                       sparse24.Encoder(self.folder).encode("a map"), atol=1e-5)

    def test_threads_and_shares(self):
        encoder, texts = sparse24.Encoder(self.folder), tiny_bert.sentences(60)
        expected, wrong = encoder.encode(texts), []

        def work(mine):
            for _ in range(5):
                if not np.allclose(mine.encode(texts), expected, atol=1e-5):
                    wrong.append(1)

        threads = [threading.Thread(target=work, args=(e,))
                   for e in (encoder, encoder, encoder.share(), encoder.share())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_the_number_of_threads_may_change(self):
        kept, texts = sparse24.threads(), tiny_bert.sentences(30)
        try:
            for first, later in ((1, 3), (3, 1)):
                sparse24.set_threads(first)
                encoder, model = sparse24.Encoder(self.folder), sparse24.Model(self.folder)
                vectors, hidden = encoder.encode(texts), model.forward([[2, 7, 3]])["hidden"]
                sparse24.set_threads(later)
                np.testing.assert_allclose(encoder.encode(texts), vectors, atol=1e-5)
                np.testing.assert_allclose(model.forward([[2, 7, 3]])["hidden"], hidden, atol=1e-5)
        finally:
            sparse24.set_threads(kept)

    def test_pickled_it_is_opened_again(self):
        texts = tiny_bert.sentences(3)
        encoder = sparse24.Encoder(self.folder, max_tokens=9, progress=lambda *_: None)
        expected = encoder.encode(texts)
        for again in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder),
                      pickle.loads(pickle.dumps(encoder.share()))):
            np.testing.assert_array_equal(again.encode(texts), expected)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            np.testing.assert_array_equal(pool.map(encoder.encode, [texts, texts])[1], expected)
        model = pickle.loads(pickle.dumps(sparse24.Model(self.folder, max_tokens=99)))
        self.assertEqual((model.max_tokens, model.folder), (99, self.folder))
        tokenizer = sparse24.Tokenizer(self.folder)
        self.assertEqual(len(pickle.loads(pickle.dumps(tokenizer))), len(tokenizer))

    def test_refusals(self):
        with self.assertRaises(OSError):
            sparse24.Encoder("/nothing")
        encoder = sparse24.Encoder(self.folder)
        with self.assertRaisesRegex(TypeError, "text 1: expected str"):
            encoder.encode(["a", b"b"])
        with self.assertRaises(ValueError):
            sparse24.Encoder(self.folder, prompt_name="nothing")


class Pruning(Folder):
    def test_a_model(self):
        with tempfile.TemporaryDirectory() as place:
            out = pathlib.Path(place) / "out"
            seen = []
            layers = sparse24.prune_model(self.folder, out, "wanda", texts=tiny_bert.sentences(60),
                                          packed=True, report=seen.append)
            self.assertEqual((len(layers), seen), (12, layers))
            self.assertTrue(all(0 < layer.output_error < 1 for layer in layers))
            self.assertIsInstance(sparse24.Checkpoint(out)[layers[0].name], sparse24.Matrix)
            vectors = sparse24.Encoder(out).encode(["read the file"])
            self.assertTrue(np.isfinite(vectors).all())
            with self.assertRaises(FileExistsError):
                sparse24.prune_model(self.folder, out)
            with self.assertRaises(ZeroDivisionError):
                sparse24.prune_model(self.folder, place + "/two", report=lambda layer: 1 // 0)


class LanguageModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = golden("language/llama2")
        cls.io = sparse24.Checkpoint(cls.folder / "io.safetensors")
        cls.model = sparse24.Model(cls.folder)

    def test_logits(self):
        for n in range(4):
            ids, expected = self.io[f"prompt.{n}"], self.io[f"logits.{n}"]
            outputs = self.model.forward([ids], outputs=("logits", "hidden", "blocks"))
            np.testing.assert_allclose(outputs["logits"], expected, atol=1e-4 * abs(expected).max())
            self.assertEqual(outputs["blocks"].shape[0], self.model.info["layers"] + 1)
        with self.assertRaisesRegex(ValueError, "outputs"):
            self.model.forward([[1]], outputs=("gates",))
        with self.assertRaises(ValueError):
            self.model.forward([[10 ** 6]])

    def test_greedy_texts_one_and_all(self):
        prompts = [self.io[f"prompt.{n}"] for n in range(4)]
        expected = [self.io[f"greedy.{n}"].tolist() for n in range(4)]
        for most in (16, 1, 3):  # at once: the others wait
            texts = [[] for _ in prompts]
            for token in sparse24.generate(self.model, prompts, max_new=32, texts=most):
                self.assertEqual(token.index, len(texts[token.prompt]))
                texts[token.prompt].append(token.id)
            for mine, theirs in zip(texts, expected):
                self.assertEqual(mine[:len(theirs)], theirs)
        with self.assertRaisesRegex(ValueError, "texts 0: expected 1 or more"):
            next(sparse24.generate(self.model, prompts, texts=0))

    def test_leaving_the_loop_ends_the_work(self):
        for token in sparse24.generate(self.model, [self.io["prompt.0"]], max_new=200, stops=[]):
            if token.index == 2:
                break
        self.assertFalse([t for t in threading.enumerate() if t.name == "sparse24.generate"])
        with self.assertRaises(ValueError):
            list(sparse24.generate(self.model, [self.io["prompt.0"]], temperature=-1))

    def test_perplexity(self):
        mine = self.model.perplexity(self.io["stride.ids"], window=64, stride=32)
        self.assertAlmostEqual(mine / float(self.io["stride.ppl"].reshape(-1)[0]), 1, places=4)


class Images(unittest.TestCase):
    def test_golden(self):
        folder = golden("models/vit")
        data, model = sparse24.Checkpoint(folder / "io.safetensors"), sparse24.Model(folder)
        result = model.forward_images(data["input.pixel_values"], outputs=("logits", "hidden"))
        np.testing.assert_allclose(result["logits"], data["output.logits"], atol=1e-4)
        self.assertEqual(result["hidden"].shape, (2, 65, 64))
        with self.assertRaisesRegex(ValueError, "pixels"):
            model.forward_images(np.zeros((1, 3, 32, 31), np.float32))
        with self.assertRaisesRegex(ValueError, "masks"):
            model.forward_images(data["input.pixel_values"], outputs=("masks",))

    def test_images_calibrate(self):
        folder = golden("models/vit")
        pixels = sparse24.Checkpoint(folder / "io.safetensors")["input.pixel_values"]
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            layers = sparse24.prune_model(folder, root / "out", "sparsegpt", images=pixels,
                                          refine="all", reconstruct=2)
            self.assertTrue(all(0 < layer.output_error < 1 for layer in layers))
            tried = sparse24.sensitivity(folder, images=pixels)
            self.assertEqual(len(tried), len(layers))
            sparse24.permute_model(folder, root / "permuted", images=pixels)
            with self.assertRaisesRegex(ValueError, r"expected \[n, 3, 32, 32\]"):
                sparse24.prune_model(folder, root / "no", "wanda", images=pixels[:, :2])
            with self.assertRaisesRegex(ValueError, "exclude each other"):
                sparse24.prune_model(folder, root / "no", "wanda", images=pixels, texts=["a"])
        with self.assertRaisesRegex(ValueError, "reads texts"):
            sparse24.sensitivity(golden("models/bert-qa"), images=pixels)


if __name__ == "__main__":
    unittest.main()
