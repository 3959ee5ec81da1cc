# SPDX-License-Identifier: Apache-2.0
"""6:8 and its kin, sparse matrices of integers, and hashes of what was written."""
import pathlib
import pickle
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import tiny_bert
from sparse24 import LiftedMatrix, SparseMatrix


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Place(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)


class Lifted(Place):
    def test_there_and_back(self):
        x = random(5, 96)
        for pattern, wide in (("6:8", 144), ("4:6", 128), ("10:12", 160), ("dense:32", 128)):
            w = sparse24.prune(random(16, 96), pattern=pattern).weight
            m = LiftedMatrix(w, pattern)
            self.assertEqual((m.shape, m.matrix.shape, m.pattern), ((16, 96), (16, wide), pattern))
            self.assertIsNone(sparse24.check(m.matrix.to_dense()))
            np.testing.assert_array_equal(m.to_dense(), w)
            np.testing.assert_allclose(m.linear(x, np.ones(16, np.float32)), x @ w.T + 1, atol=1e-4)
            q = m.quantize("int8")
            np.testing.assert_allclose(q.linear(x), x @ q.to_dense().T, atol=1e-3)
            sparse24.save_checkpoint(self.root / "w.safetensors", {"w": m, "q": q}, force=True)
            stored = sparse24.Checkpoint(self.root / "w.safetensors")
            self.assertEqual((stored.info("w").kind, stored.info("w").shape), ("lifted", (16, 96)))
            np.testing.assert_array_equal(stored["w"], w)
            np.testing.assert_array_equal(stored.lifted("w").to_dense(), w)
            again = pickle.loads(pickle.dumps(m))
            self.assertEqual((again.shape, again.pattern), (m.shape, pattern))
            np.testing.assert_array_equal(again.to_dense(), w)
            np.testing.assert_array_equal(stored.lifted("q").linear(x), q.linear(x))

    def test_refused(self):
        w = sparse24.prune(random(4, 16), pattern="6:8").weight
        for kind, sentence, call in (
                (sparse24.Error, "row 0", lambda: LiftedMatrix(random(4, 16))),
                (ValueError, "2:4", lambda: LiftedMatrix(w, "2:4")),
                (ValueError, "", lambda: LiftedMatrix(w[:, :12])),
                (ValueError, "", lambda: LiftedMatrix(w).linear(random(2, 12)))):
            with self.assertRaisesRegex(kind, sentence):
                call()
        sparse24.save_checkpoint(self.root / "w.safetensors", {"w": w})
        with self.assertRaisesRegex(ValueError, "not lifted"):
            sparse24.Checkpoint(self.root / "w.safetensors").lifted("w")


class Pickled(unittest.TestCase):
    def test_sparse_matrices(self):
        w = random(16, 32)
        w[random(16, 32, seed=2) < 0.8] = 0
        for kind, block in (("csr", (0, 0)), ("csc", (0, 0)), ("coo", (0, 0)), ("bsr", (4, 1)),
                            ("bsr", (8, 8))):
            for dense in (w, w.astype("f2"), (9 * w).astype("i1")):
                m = SparseMatrix.from_dense(dense, kind, block)
                again = pickle.loads(pickle.dumps(m))
                self.assertEqual((again.format, again.dtype, again.shape, again.block,
                                  again.stored),
                                 (m.format, m.dtype, m.shape, m.block, m.stored))
                np.testing.assert_array_equal(again.to_dense(), dense)
        narrow = sparse24.arrays.tagged(np.full((4, 8), 0x3f80, np.uint16), "bf16")
        m = SparseMatrix(sparse24._core.sparse_create(narrow, "csr", 0, 0))
        again = pickle.loads(pickle.dumps(m))
        self.assertEqual(again.dtype, "bf16")
        np.testing.assert_array_equal(again.to_dense(), np.ones((4, 8)))
        none = pickle.loads(pickle.dumps(SparseMatrix.from_dense(np.zeros((3, 5), "f4"))))
        self.assertEqual((none.stored, none.shape), (0, (3, 5)))


class Integers(unittest.TestCase):
    def test_blocks_of_integers(self):
        rng = np.random.default_rng(2)
        w = rng.integers(-127, 128, (32, 64)).astype(np.int8)
        w[np.repeat(rng.random((8, 64)) < 0.8, 4, 0)] = 0
        scales = rng.random(32).astype("f4") / 127
        x = rng.integers(-127, 128, (7, 64)).astype("f4")
        x[:, 0] = 127  # so that a row's scale is 1
        y = SparseMatrix.from_dense(w).plan_integers(scales)(x)
        np.testing.assert_allclose(y, x @ (w * scales[:, None]).T, rtol=1e-5, atol=1e-4)
        kernels = sparse24.sparse_kernels()
        self.assertIn(SparseMatrix.from_dense(w).plan_integers().kernel(), kernels)
        with self.assertRaisesRegex(ValueError, "no-such"):
            SparseMatrix.from_dense(w).plan_integers(kernel="no-such")
        with self.assertRaises(TypeError):
            SparseMatrix.from_dense(w.astype("f4")).plan_integers()
        with self.assertRaises(ValueError):
            SparseMatrix.from_dense(w).plan_integers(scales[:3])


class Hashes(Place):
    def test_what_was_written_is_told_from_what_is_there(self):
        model = tiny_bert.write(self.root / "model")
        sparse24.prune_model(model, self.root / "out", packed=True)
        stages = []
        verified = sparse24.Checkpoint(self.root / "out").verify(
            progress=lambda stage, done, total: stages.append(stage))
        self.assertGreater(verified.tensors, 30)
        self.assertGreater(verified.files, 0)
        sparse24.Encoder(self.root / "out", verify=True, layer_dtypes="*output*=i8")
        with self.assertRaises(sparse24.Error):
            sparse24.Checkpoint(model).verify()
        self.assertEqual(sparse24.Checkpoint(model).verify(whole=False).tensors, 0)
        file = self.root / "out/model.safetensors"
        data = bytearray(file.read_bytes())
        data[-5] ^= 4
        file.write_bytes(data)
        with self.assertRaisesRegex(sparse24.Error, "model.safetensors"):
            sparse24.Checkpoint(self.root / "out").verify()
        with self.assertRaisesRegex(sparse24.Error, "model.safetensors"):
            sparse24.Encoder(self.root / "out", verify=True)


if __name__ == "__main__":
    unittest.main()
