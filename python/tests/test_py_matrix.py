# SPDX-License-Identifier: Apache-2.0
"""Matrix: every way to make one, its parts, its files, its products."""
import copy
import pathlib
import pickle
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import group_counts
from sparse24 import Matrix


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Making(unittest.TestCase):
    def test_magnitude_keeps_the_two_largest(self):
        w = np.array([[4, -1, 2, -3, 1, 1, 1, 1]], np.float32)
        m = Matrix.magnitude(w)
        self.assertEqual(m.shape, (1, 8))
        self.assertEqual(m.dtype, "f32")
        self.assertEqual(m.to_dense().tolist(), [[4, 0, 0, -3, 0, 0, 1, 1]])

    def test_strict_names_the_place(self):
        with self.assertRaisesRegex(sparse24.Error, r"row 1, columns 4 to 7 \(group 1\)") as caught:
            w = np.zeros((2, 8), np.float32)
            w[1, 4:7] = 1
            Matrix.strict(w)
        self.assertEqual(caught.exception.status, "not 2:4")
        self.assertEqual(Matrix.strict(np.eye(4, dtype=np.float16)).dtype, "f16")

    def test_masks_of_bool_and_numbers(self):
        w = random(4, 8)
        mask = sparse24.magnitude_mask(w)
        for m in (mask, mask.astype(np.uint8), mask.astype(np.int64)):
            np.testing.assert_array_equal(Matrix.mask(w, m).to_dense(), w * mask)
        with self.assertRaises(sparse24.Error):
            Matrix.mask(w, np.ones((4, 8), bool))
        with self.assertRaisesRegex(ValueError, "mask: expected 32 elements"):
            Matrix.mask(w, mask[:2])

    def test_tiles_are_two_four_both_ways(self):
        w = random(16, 32)
        for rule in ("best", "greedy", "signed", "causal1122"):
            m = Matrix.tile(w, rule)
            self.assertIsNone(sparse24.check(m.to_dense(), "k"))
            self.assertIsNone(sparse24.check(m.to_dense(), "n"))
            one, two = Matrix.pair(w, f"tile-{rule}")
            np.testing.assert_array_equal(one.to_dense(), m.to_dense())
            np.testing.assert_array_equal(two.to_dense(), m.to_dense().T)

    def test_mvue24_is_unbiased_and_seeded(self):
        w = random(4, 16)
        mean = np.mean([sparse24.mvue24(w, seed) for seed in range(4000)], axis=0)
        np.testing.assert_allclose(mean, w, atol=0.2)
        np.testing.assert_array_equal(sparse24.mvue24(w, 7), sparse24.mvue24(w, 7))

    def test_transposed_source(self):
        w = random(8, 12)
        np.testing.assert_array_equal(Matrix.magnitude(w, transpose=True).to_dense(),
                                      Matrix.magnitude(np.ascontiguousarray(w.T)).to_dense())

    def test_not_finite(self):
        w = random(4, 8)
        w[2, 5] = np.nan
        with self.assertRaisesRegex(sparse24.Error, "row 2, column 5"):
            Matrix.magnitude(w)
        self.assertTrue(np.isnan(Matrix.magnitude(w, allow_nonfinite=True).to_dense()).any())

    def test_dtypes(self):
        w = random(8, 16)
        for dtype in ("f32", "f16", "bf16", "e4m3", "e5m2"):
            m = Matrix.magnitude(w, dtype=dtype)
            self.assertEqual(m.dtype, dtype)
            np.testing.assert_allclose(m.to_dense("f32"), Matrix.magnitude(w).to_dense(),
                                       rtol=0.13, atol=0.02)
        m = Matrix.magnitude(w, dtype="bf16")
        bits = m.to_dense("bf16")
        self.assertEqual(bits.dtype, np.uint16)
        np.testing.assert_array_equal((bits.astype(np.uint32) << 16).view(np.float32),
                                      m.to_dense())
        with self.assertRaisesRegex(ValueError, "dtype 'f8'"):
            Matrix.magnitude(w, dtype="f8")


class Parts(unittest.TestCase):
    def test_pack_and_back(self):
        for dtype in ("f32", "f16", "bf16", "e5m2"):
            m = Matrix.magnitude(random(8, 24), dtype=dtype)
            values, indices = m.pack()
            self.assertEqual((values.shape, indices.shape), ((8, 12), (8, 3)))
            self.assertFalse(values.flags.writeable)
            again = Matrix.from_packed(values, indices, dtype=dtype)
            np.testing.assert_array_equal(again.to_dense(), m.to_dense())

    def test_views_keep_the_matrix(self):
        values = Matrix.magnitude(random(8, 16)).values
        expected = Matrix.magnitude(random(8, 16)).values.copy()
        np.testing.assert_array_equal(values, expected)

    def test_bad_codes_are_refused(self):
        values, indices = Matrix.magnitude(random(4, 8)).pack()
        with self.assertRaises(sparse24.Error) as caught:
            Matrix.from_packed(values, np.zeros_like(indices))
        self.assertEqual(caught.exception.status, "malformed input")

    def test_quantised(self):
        m = Matrix.magnitude(random(8, 256))
        for scheme, bits, group in (("int8", 8, 256), ("int8-g64", 8, 64), ("int4-g128", 4, 128)):
            q = m.quantize(scheme)
            self.assertEqual((q.bits, q.group), (bits, group))
            np.testing.assert_allclose(q.to_dense(), m.to_dense(), atol=0.7 if bits == 4 else 0.02)
            values, indices, scales = q.pack()
            again = Matrix.from_packed(values, indices, scales=scales, bits=bits, shape=q.shape)
            np.testing.assert_array_equal(again.to_dense(), q.to_dense())
        with self.assertRaisesRegex(ValueError, "int5"):
            m.quantize("int5")
        with self.assertRaises(TypeError):
            q.quantize()

    def test_orders_of_devices(self):
        m = Matrix.magnitude(random(32, 64), dtype="f16")
        values, meta = m.to_order("cutlass")
        again = Matrix.from_order("cutlass", values, meta, dtype="f16", shape=m.shape)
        np.testing.assert_array_equal(again.to_dense(), m.to_dense())
        data = m.to_order("hopper")
        again = Matrix.from_order("hopper", data, dtype="f16", shape=m.shape)
        np.testing.assert_array_equal(again.to_dense(), m.to_dense())
        with self.assertRaisesRegex(ValueError, "order hopper"):
            Matrix.from_order("hopper", data[:-1], dtype="f16", shape=m.shape)

    def test_orders_of_integers(self):
        q = Matrix.magnitude(random(70, 160)).quantize("int4-g64")
        for order in ("rows16-i4-g64", "rows64-i4-g64"):
            data = q.to_order(order)
            again = Matrix.from_order(order, data, dtype="i8", shape=q.shape)
            self.assertEqual((again.bits, again.group), (4, 64))
            np.testing.assert_array_equal(again.to_dense(), q.to_dense())
        with self.assertRaisesRegex(TypeError, "8 bits with a scale for 64 columns"):
            q.to_order("rows64-i8-g64")

    def test_pickled(self):
        w = random(8, 64)
        kinds = [Matrix.magnitude(w, dtype=dtype) for dtype in ("f32", "f16", "bf16", "i8", "e4m3")]
        kinds += [kinds[0].quantize(scheme) for scheme in ("int8", "int8-g64", "int4", "int4-g64")]
        kinds += [kinds[0].T, kinds[2].T, Matrix.magnitude(random(3, 20))]
        for m in kinds:
            for again in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
                self.assertEqual((again.shape, again.dtype, again.bits, again.group, again.nbytes,
                                  again.is_transposed),
                                 (m.shape, m.dtype, m.bits, m.group, m.nbytes, m.is_transposed))
                for one, two in zip(again.pack(), m.pack(), strict=True):
                    np.testing.assert_array_equal(one, two)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "w.safetensors"
            m = Matrix.magnitude(random(8, 64))
            for each in (m, m.T, m.quantize("int4"), Matrix.magnitude(random(4, 8), dtype="bf16")):
                each.save(path, "layer.weight", force=True)
                np.testing.assert_array_equal(Matrix.load(path).to_dense(), each.to_dense())
                self.assertEqual(Matrix.load(path, "layer.weight").shape, each.shape)
            with self.assertRaises(FileExistsError):
                m.save(path)
            with self.assertRaises(KeyError):
                Matrix.load(path, "other")
            with self.assertRaises(OSError):
                Matrix.load(path.parent / "none.safetensors")


class Products(unittest.TestCase):
    def setUp(self):
        self.m = Matrix.magnitude(random(24, 32))
        self.w = self.m.to_dense()

    def test_linear_of_any_leading_dimensions(self):
        for shape in ((32,), (1, 32), (5, 32), (2, 3, 32), (0, 32)):
            x, bias = random(*shape), random(24)
            if 0 in shape:
                continue
            y = sparse24.linear(x, self.m, bias)
            self.assertEqual(y.shape, (*shape[:-1], 24))
            np.testing.assert_allclose(y, x @ self.w.T + bias, rtol=1e-5, atol=1e-5)

    def test_matmul_in_both_orders(self):
        x = random(5, 24)
        np.testing.assert_allclose(x @ self.m, x @ self.w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(self.m.T @ x.T.copy(), self.w.T @ x.T, rtol=1e-5, atol=1e-5)
        x = random(5, 32)
        np.testing.assert_allclose(x @ self.m.T, x @ self.w.T, rtol=1e-5, atol=1e-5)
        y = random(5, 24)
        kept = y.copy()
        np.testing.assert_allclose(sparse24.addmm(y, x, self.m.T, alpha=2, beta=3),
                                   2 * (x @ self.w.T) + 3 * y, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(y, kept)

    def test_quantised_product(self):
        x, q = random(3, 32), self.m.quantize()
        np.testing.assert_allclose(sparse24.linear(x, q), x @ q.to_dense().T, rtol=1e-4, atol=1e-4)

    def test_plan(self):
        x, gate, residual = random(3, 32), random(3, 24), random(3, 24)
        plan = sparse24.Plan(self.m)
        y = plan(x, activation="relu", gate=gate, residual=residual)
        np.testing.assert_allclose(y, np.maximum(x @ self.w.T, 0) * gate + residual, rtol=1e-4,
                                   atol=1e-5)
        self.assertIn("linear_", plan.kernel())
        self.assertGreater(plan.nbytes, 0)
        with self.assertRaisesRegex(ValueError, "activation 'tanh': expected one of none, relu"):
            plan(x, activation="tanh")
        with self.assertRaisesRegex(ValueError, "nothing"):
            sparse24.Plan(self.m, kernel="nothing")

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, r"x is \[1, 28\]; expected \[1, 32\]"):
            sparse24.linear(random(1, 28), self.m)
        with self.assertRaisesRegex(TypeError, "x is f16"):
            sparse24.linear(random(1, 32).astype(np.float16), self.m)
        with self.assertRaisesRegex(TypeError, "expected a matrix of sparse24"):
            sparse24._core.linear(random(1, 24), random(1, 32), 3, None)
        with self.assertRaisesRegex(ValueError, "bias: expected 24 elements"):
            sparse24.linear(random(1, 32), self.m, random(5))
        with self.assertRaisesRegex(TypeError, "neither"):
            sparse24.mm(self.w, self.w.T)


class Masks(unittest.TestCase):
    def test_check(self):
        w = random(8, 8)
        self.assertEqual(sparse24.check(w), (0, 0, 4))
        self.assertIsNone(sparse24.check(Matrix.magnitude(w).to_dense()))
        with self.assertRaisesRegex(ValueError, "along 'm'"):
            sparse24.check(w, "m")

    def test_masks(self):
        w = random(8, 16)
        mask = sparse24.magnitude_mask(w)
        self.assertTrue((group_counts(mask) == 2).all())
        np.testing.assert_array_equal(sparse24.apply_mask(w, mask), w * mask)
        tile = sparse24.tile_mask(w, "signed")
        self.assertEqual(sparse24.mask_flips(mask, tile), int((mask != tile).sum()))
        grad = np.zeros_like(w)
        sparse24.masked_decay(grad, w, mask, 0.5)
        np.testing.assert_array_equal(grad, 0.5 * w * ~mask)

    def test_soft_threshold(self):
        w, kept = random(8, 16), np.empty((8, 16), bool)
        s = sparse24.soft_threshold(w, mask=kept)
        self.assertTrue((group_counts(s) <= 2).all())
        np.testing.assert_array_equal(kept, s != 0)
        scale = sparse24.soft_threshold_scale(w)
        self.assertAlmostEqual(scale, float((w * s).sum() / (s * s).sum()), places=4)


class Pruning(unittest.TestCase):
    def test_every_criterion(self):
        w, x = random(16, 32), random(400, 32, seed=2)
        for criterion in sparse24.criteria():
            pruned = sparse24.prune(w, criterion, x, gradients=(np.abs(w) + 1,) * 3)
            self.assertIsNone(sparse24.check(pruned.weight))
            self.assertTrue(0 < pruned.kept_l1 < 1.5)
            error = np.linalg.norm(x @ (w - pruned.weight).T) ** 2 / np.linalg.norm(x @ w.T) ** 2
            self.assertAlmostEqual(pruned.output_error, error, places=3)

    def test_stats_in_pieces(self):
        w, x = random(16, 32), random(400, 32, seed=2)
        stats = sparse24.Stats(32).add(x[:100]).add(x[100:])
        np.testing.assert_allclose(sparse24.prune(w, "sparsegpt", stats).weight,
                                   sparse24.prune(w, "sparsegpt", x).weight, rtol=1e-3, atol=1e-4)

    def test_refusals(self):
        w = random(4, 8)
        self.assertIsNone(sparse24.prune(w).output_error)
        with self.assertRaisesRegex(ValueError, "wanda"):
            sparse24.prune(w, "wanda")
        with self.assertRaisesRegex(ValueError, "luck"):
            sparse24.prune(w, "luck")
        with self.assertRaises(ValueError):
            sparse24.prune(w[:, :6])


if __name__ == "__main__":
    unittest.main()
