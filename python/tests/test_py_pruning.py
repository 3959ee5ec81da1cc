# SPDX-License-Identifier: Apache-2.0
"""Criteria, patterns, refinements and masks; a criterion of one's own; what layers can bear."""
import pathlib
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import golden, group_counts, tiny_bert

RNG = np.random.default_rng(1)


def problem(n=32, k=64, tokens=400):
    mix = RNG.standard_normal((k, k)).astype("f4")
    x = RNG.standard_normal((tokens, k)).astype("f4") @ mix
    return RNG.standard_normal((n, k)).astype("f4"), x


class Layers(unittest.TestCase):
    def test_every_criterion(self):
        w, x = problem()
        slopes = sparse24.WeightGradients(*(np.abs(RNG.standard_normal(w.shape)).astype("f4")
                                            for _ in range(3)))
        for name in sparse24.criteria():
            result = sparse24.prune(w, name, x, gradients=slopes)
            self.assertTrue((group_counts(result.weight) <= 2).all(), name)
            self.assertLess(result.output_error, 1, name)
        self.assertIn("alps", sparse24.criteria())

    def test_patterns(self):
        w, x = problem()
        one = sparse24.prune(w, pattern="1:4")
        self.assertEqual(group_counts(one.weight).max(), 1)
        share = sparse24.prune(w, "wanda", x, pattern="unstructured:0.75").weight
        self.assertEqual(int((share == 0).sum()), w.size * 3 // 4)
        self.assertTrue({"N:M", "row:SHARE"} <= set(sparse24.patterns()))
        for pattern, error in (("5:4", "5:4"), ("3:7", "7"), ("spiral", "spiral")):
            with self.assertRaisesRegex(ValueError, error):
                sparse24.prune(w, pattern=pattern)

    def test_refinements(self):
        w, x = problem()
        plain = sparse24.prune(w, "wanda", x)
        errors = [plain.output_error]
        for refine in ("swaps", "all"):
            errors.append(sparse24.prune(w, "wanda", x, refine=refine).output_error)
        self.assertEqual(errors, sorted(errors, reverse=True))
        self.assertIn("least-squares", sparse24.refinements())
        with self.assertRaisesRegex(ValueError, "refine"):
            sparse24.prune(w, refine="swaps")

    def test_low_rank_factors(self):
        w, x = problem()
        pruned = sparse24.prune(w, "wanda", x)
        last = pruned.output_error
        for rank in (1, 4, 16):
            found = sparse24.low_rank(w, rank, pruned.weight, x)
            self.assertEqual((found.left.shape, found.right.shape), ((32, rank), (rank, 64)))
            np.testing.assert_allclose(found.left.T @ found.left, np.eye(rank), atol=1e-5)
            self.assertLess(found.output_error, last)
            last = found.output_error
        whole = sparse24.low_rank(w, 32)
        self.assertIsNone(whole.output_error)
        np.testing.assert_allclose(whole.left @ whole.right, w, atol=1e-4)
        values = np.linalg.svd(w, compute_uv=False)
        error = np.linalg.norm(w - np.matmul(*sparse24.low_rank(w, 3)[:2]))
        self.assertLess(error, 1.05 * np.sqrt((values[3:] ** 2).sum()))
        for arguments, words in (((w, 0), "rank 0"), ((w, 33), "1 to 32"),
                                 ((w[0], 1), "dimensions"),
                                 ((w, 2, pruned.weight[:, :8]), r"\[32, 8\]")):
            with self.assertRaisesRegex(ValueError, words):
                sparse24.low_rank(*arguments)

    def test_a_criterion_of_one_s_own(self):
        w, x = problem()
        seen = []

        def wanda(inputs):
            seen.append((inputs.w.shape, inputs.norms.shape, inputs.gram.shape, inputs.seed))
            self.assertFalse(inputs.w.flags.writeable)
            return np.abs(inputs.w) * inputs.norms

        mine, theirs = sparse24.prune(w, wanda, x, seed=7), sparse24.prune(w, "wanda", x)
        np.testing.assert_array_equal(mine.weight != 0, theirs.weight != 0)
        self.assertEqual(seen, [((32, 64), (64,), (64, 64), 7)])
        bare = sparse24.prune(w, lambda inputs: -np.abs(inputs.w))
        self.assertLess(bare.kept_l1, 0.5)
        before = w.copy()
        with self.assertRaisesRegex(ValueError, r"\[3\]"):
            sparse24.prune(w, lambda inputs: np.ones(3), out=w)
        with self.assertRaises(ZeroDivisionError):
            sparse24.prune(w, lambda inputs: 1 / 0, out=w)
        with self.assertRaisesRegex(sparse24.Error, "finite"):
            sparse24.prune(w, lambda inputs: np.full(inputs.w.shape, np.nan), out=w)
        np.testing.assert_array_equal(w, before)

    def test_gradients_and_scores(self):
        w, x = problem()
        slopes = sparse24.WeightGradients(w + 1, np.abs(w) + 1, w * w + 1)
        np.testing.assert_allclose(sparse24.prune_scores(w, "snip", gradients=slopes),
                                   np.abs(w * slopes.mean), rtol=1e-5)
        own = sparse24.prune(w, lambda seen: np.abs(seen.w * seen.gradients.mean),
                             gradients=slopes)
        np.testing.assert_array_equal(
            own.weight, sparse24.prune(w, "snip", gradients=slopes).weight)
        np.testing.assert_array_equal(sparse24.prune_scores(w, lambda seen: seen.w), w)
        with self.assertRaisesRegex(ValueError, "gradient"):
            sparse24.prune(w, "snip")
        with self.assertRaisesRegex(ValueError, "size"):
            sparse24.prune(w, "snip", gradients=(w, w[:2], w))
        with self.assertRaises(sparse24.Error):
            sparse24.prune_scores(w, "tile-best", x)
        self.assertTrue((sparse24.prune_scores(w, "sparsegpt", x) >= 0).all())

    def test_rounding_by_inputs(self):
        w, x = problem()
        pruned = sparse24.prune(w, "sparsegpt", x)
        matrix = sparse24.Matrix.strict(pruned.weight)
        near, stats = matrix.quantize("int4-g64"), sparse24.Stats(64).add(x)
        rounded, error = sparse24.round_matrix(matrix, stats, "int4-g64", target=w)
        self.assertEqual((rounded.bits, rounded.group), (4, 64))

        def far(q):
            return float((((w - q.to_dense("f32")) @ x.T) ** 2).sum() / ((w @ x.T) ** 2).sum())
        self.assertLess(far(rounded), far(near))
        self.assertAlmostEqual(error, far(rounded), 3)
        self.assertAlmostEqual(stats.error(w, rounded.to_dense("f32")), error, 6)
        with self.assertRaises(ValueError):
            stats.error(w, w[:4])


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.place.name)
        cls.model = tiny_bert.write(cls.root / "model")
        cls.texts = tiny_bert.sentences(40)
        cls.name = "encoder.layer.0.intermediate.dense.weight"

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def weight(self, folder):
        return sparse24.Checkpoint(self.root / folder)[self.name]

    def test_masks(self):
        sparse24.prune_model(self.model, self.root / "masks.safetensors", "wanda",
                             texts=self.texts, masks_only=True)
        mask = sparse24.Checkpoint(self.root / "masks.safetensors")[self.name]
        sparse24.prune_model(self.model, self.root / "masked",
                             masks=self.root / "masks.safetensors")
        np.testing.assert_array_equal(self.weight("masked"), self.weight("model") * mask)
        sparse24.prune_model(self.model, self.root / "share.safetensors", pattern="row:0.5",
                             masks_only=True)
        share = sparse24.Checkpoint(self.root / "share.safetensors")
        np.savez_compressed(self.root / "share.npz",
                            **{f"{key}.mask": np.packbits(share[key]) for key in share})
        sparse24.prune_model(self.model, self.root / "packed", masks=self.root / "share.npz")
        np.testing.assert_array_equal(self.weight("packed"),
                                      self.weight("model") * share[self.name])
        with self.assertRaisesRegex(ValueError, "packed"):
            sparse24.prune_model(self.model, self.root / "no.safetensors", masks_only=True,
                                 packed=True)

    def test_reconstruction_of_ids(self):
        tokenizer = sparse24.Tokenizer(self.model)
        ids = [tokenizer.encode(text).ids for text in self.texts]
        layers = sparse24.prune_model(self.model, self.root / "rebuilt", "sparsegpt", texts=ids,
                                      refine="all", reconstruct=5, pattern="2:4")
        self.assertEqual({layer.pattern for layer in layers}, {"2:4"})
        self.assertTrue((group_counts(self.weight("rebuilt")) <= 2).all())

    def test_aims(self):
        for aim in ("outputs", "states"):
            layers = sparse24.prune_model(self.model, self.root / aim, "sparsegpt",
                                          texts=self.texts, aim=aim)
            self.assertTrue(all(0 < layer.output_error < 1 for layer in layers))
            self.assertTrue((group_counts(self.weight(aim)) <= 2).all())
        written = [(self.root / aim / "model.safetensors").read_bytes()
                   for aim in ("outputs", "states")]
        self.assertNotEqual(*written)
        with self.assertRaisesRegex(ValueError, "expected weights, outputs or states"):
            sparse24.prune_model(self.model, self.root / "no", texts=self.texts, aim="inputs")

    def test_own_criterion_and_integers(self):
        calls = []

        def keep_even(inputs):
            calls.append(inputs.w.shape)
            return np.broadcast_to(np.arange(inputs.w.shape[1]) % 2 == 0, inputs.w.shape)

        sparse24.prune_model(self.model, self.root / "even", keep_even, packed=True,
                             quantize="int8")
        self.assertEqual(len(calls), 12)
        matrix = sparse24.Checkpoint(self.root / "even")[self.name]
        self.assertEqual(matrix.bits, 8)
        self.assertTrue((matrix.to_dense()[:, 1::2] == 0).all())

    def test_low_rank_factors_of_a_model(self):
        sparse24.prune_model(self.model, self.root / "low", "wanda", texts=self.texts, packed=True,
                             low_rank=2)
        checkpoint = sparse24.Checkpoint(self.root / "low")
        self.assertEqual(checkpoint.info(self.name).kind, "low-rank")
        before = sparse24.Checkpoint(self.model)[self.name]
        errors = [np.linalg.norm(before - found) for found in (
            checkpoint.matrix(self.name).to_dense(), checkpoint[self.name])]
        self.assertLess(errors[1], errors[0])
        with self.assertRaisesRegex(ValueError, "low rank"):
            sparse24.prune_model(self.model, self.root / "none", packed=True, low_rank="much")

    def test_gradients_of_a_model(self):
        model = golden("language/gpt2")
        ids = [[(i * 7 + j) % 50 for j in range(12)] for i in range(8)]
        slopes = sparse24.gradients(model, ids=ids, examples=4)
        layers = sparse24.prune_model(model, self.root / "snip", "snip", gradients=slopes)
        self.assertGreater(len(layers), 4)
        with self.assertRaisesRegex(ValueError, "one of them"):
            sparse24.gradients(model)

    def test_scope(self):
        sparse24.prune_model(self.model, self.root / "global", pattern="unstructured:0.5",
                             scope="global", normalize=True)
        checkpoint = sparse24.Checkpoint(self.root / "global")
        picked = [checkpoint[name] for name in checkpoint if checkpoint.selects(name)]
        zeros = sum(int((w == 0).sum()) for w in picked)
        self.assertEqual(zeros, sum(w.size for w in picked) // 2)
        with self.assertRaisesRegex(ValueError, "scope 'wide'"):
            sparse24.prune_model(self.model, self.root / "no", scope="wide")

    def test_permutation_changes_no_output(self):
        out, texts = self.root / "permuted", list(self.texts)
        sparse24.permute_model(self.model, out, texts=texts, max_tokens=32)
        before, after = (sparse24.Encoder(path).encode(texts[:4]) for path in (self.model, out))
        np.testing.assert_allclose(after, before, atol=1e-4)

        def kept(path, name):
            return sum(layer.kept_l1 for layer in sparse24.prune_model(path, self.root / name))
        self.assertGreater(kept(out, "after"), kept(self.model, "before"))
        with self.assertRaises(FileExistsError):
            sparse24.permute_model(self.model, out)
        with self.assertRaises(KeyboardInterrupt):
            sparse24.permute_model(self.model, self.root / "no", progress=lambda *_: True)

    def test_sensitivity(self):
        layers = sparse24.sensitivity(self.model, self.texts, ("2:4", "4:8", "int8"), "wanda")
        self.assertEqual(len(layers), 36)
        errors = {(layer.name, layer.pattern): layer.output_error for layer in layers}
        self.assertLess(errors[self.name, "4:8"], errors[self.name, "2:4"])
        self.assertLess(errors[self.name, "int8"], errors[self.name, "4:8"])
        alike = {layer.name for layer in layers if layer.input == layers[0].input}
        self.assertEqual({name.split(".")[-2] for name in alike}, {"query", "key", "value"})
        self.assertEqual({layer.model_error for layer in layers}, {-1.0})
        layers = sparse24.sensitivity(self.model, self.texts, ("2:4", "4:8"), "wanda",
                                      price="model")
        for half, other in zip(layers[::2], layers[1::2]):
            self.assertTrue(0 < other.model_error < half.model_error < 1)
        with self.assertRaisesRegex(MemoryError, "blocks take .* the price layer holds one block"):
            sparse24.sensitivity(self.model, self.texts, price="model", memory=1000)
        with self.assertRaisesRegex(ValueError, "expected layer, model or model-or-layer"):
            sparse24.sensitivity(self.model, self.texts, price="task")
        with self.assertRaisesRegex(ValueError, "spiral"):
            sparse24.sensitivity(self.model, self.texts, ("spiral",))
        with self.assertRaises(ValueError):
            sparse24.sensitivity(self.model, ())


class Sparse(unittest.TestCase):
    def test_every_format(self):
        w = np.where(RNG.random((64, 96)) < 0.1, RNG.standard_normal((64, 96)), 0).astype("f4")
        x = RNG.standard_normal((5, 96)).astype("f4")
        csr = sparse24.SparseMatrix.from_dense(w)
        for name, block in (("coo", (0, 0)), ("csr", (0, 0)), ("csc", (0, 0)), ("bsr", (16, 16)),
                            ("bsr", (1, 4))):
            matrix = csr.to(name, block)
            np.testing.assert_array_equal(matrix.to_dense(), w)
            np.testing.assert_allclose(matrix.plan()(x), x @ w.T, atol=1e-4)
            np.testing.assert_allclose(matrix.linear(x, w[:, 0].copy()), x @ w.T + w[:, 0],
                                       atol=1e-4)
            np.testing.assert_allclose(matrix @ x.T, w @ x.T, atol=1e-4)
            parts = {"starts": matrix.starts, "rows": matrix.rows, "block": block}
            same = sparse24.SparseMatrix.from_parts(name, w.shape, matrix.index, matrix.values,
                                                    **parts)
            np.testing.assert_array_equal(same.to_dense(), w)
            self.assertEqual((same.format, same.dtype, same.stored),
                             (name, "f32", matrix.stored))
        self.assertEqual(csr.values.shape, (csr.stored,))
        self.assertFalse(csr.values.flags.writeable)
        self.assertIn("csr", repr(csr))

    def test_files(self):
        w = np.where(RNG.random((32, 64)) < 0.2, RNG.standard_normal((32, 64)), 0).astype("f4")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "w.safetensors"
            kinds = {"coo": (0, 0), "csr": (0, 0), "csc": (0, 0), "bsr": (16, 16)}
            sparse24.save_checkpoint(path, {
                "dense": w, **{name: sparse24.SparseMatrix.from_dense(w, name, block)
                               for name, block in kinds.items()}})
            checkpoint = sparse24.Checkpoint(path)
            for name, block in kinds.items():
                found = checkpoint.sparse(name)
                self.assertEqual((found.format, found.block), (name, block if block[0] else None))
                np.testing.assert_array_equal(found.to_dense(), w)

    def test_refusals(self):
        w = np.eye(8, dtype="f4")
        with self.assertRaisesRegex(ValueError, "format 'dia'"):
            sparse24.SparseMatrix.from_dense(w, "dia")
        with self.assertRaises(ValueError):
            sparse24.SparseMatrix.from_dense(w, "bsr", (3, 5))
        with self.assertRaises(sparse24.Error):
            sparse24.SparseMatrix.from_parts("csr", (2, 8), [9, 1], w[0, :2], starts=[0, 1, 2])
        with self.assertRaisesRegex(ValueError, "starts"):
            sparse24.SparseMatrix.from_parts("csr", (2, 8), [0, 1], w[0, :2], starts=[0, 2])
        with self.assertRaisesRegex(TypeError, "sums along n"):
            _ = w @ sparse24.SparseMatrix.from_dense(w)


if __name__ == "__main__":
    unittest.main()
