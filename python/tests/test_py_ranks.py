# SPDX-License-Identifier: Apache-2.0
"""Several processes that train or hold one model, as mpirun starts them; a world of one needs
nobody."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import TREE, tiny_bert

PLUGIN = TREE / "build/release/libsparse24-mpi.so.0"
MISSING = None if PLUGIN.exists() and shutil.which("mpirun") else "no mpirun, or no plugin for MPI"
MPIRUN = ("mpirun -n 2 --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader "
          "--mca oob_tcp_if_include lo").split()
PROGRAM = """\
import sys, numpy as np, sparse24, tiny_bert
sparse24.set_threads(1)
with sparse24.Comm("mpi", library=sys.argv[1], patience=60) as comm:
    assert comm.world == 2
    one = comm.sum(np.full(3, comm.rank + 1.0, np.float32))
    other = comm.broadcast(np.full(2, comm.rank, np.int64), root=1)
    assert list(one) == [3, 3, 3] and list(other) == [1, 1], (one, other)
    if sys.argv[4] == "fails" and comm.rank == 1:
        raise RuntimeError("rank 1 cannot go on")
    last = sparse24.train(sys.argv[2], sys.argv[3], texts=tiny_bert.sentences(24), steps=6, batch=8,
                          teacher=sys.argv[2], comm=comm)
    print(comm.rank, repr(last.loss), last.mask_hash != 0)
"""

TOGETHER = """\
import sys, numpy as np, sparse24, tiny_bert
sparse24.set_threads(1)
texts = tiny_bert.sentences(6)
with sparse24.Comm("mpi", library=sys.argv[1], patience=60) as comm:
    encoder = sparse24.Encoder(sys.argv[2], comm=comm)
    model = sparse24.Model(sys.argv[2], comm=comm)
    vectors = encoder.encode(texts)
    hidden = model.forward([[1, 2, 3], [4]])["hidden"]
    assert np.array_equal(comm.broadcast(vectors.copy()), vectors)
    assert model.info == sparse24.Model(sys.argv[2]).info
    try:
        encoder.share()
    except sparse24.Error as error:
        assert "2 ranks hold together" in str(error)
    if comm.rank == 0:
        np.savez(sys.argv[3], vectors=vectors, hidden=hidden)
    del encoder, model
"""


PRUNES = """\
import sys, numpy as np, sparse24, tiny_bert
sparse24.set_threads(1)
with sparse24.Comm("mpi", library=sys.argv[1], patience=60) as comm:
    count = 8 if sys.argv[4] == "well" else 8 + comm.rank
    layers = sparse24.prune_model(sys.argv[2], sys.argv[3], "wanda", comm=comm,
                                  texts=tiny_bert.sentences(count))
    x = np.full((1 + comm.rank, 4), 1 + comm.rank, np.float32)
    stats = sparse24.Stats(4).add(x).add_up(comm)
    w = np.array([[1, 2, 3, 4]], np.float32)
    assert stats.error(w, 0 * w) == 1 and sparse24.prune(w, "wanda", stats).weight[0, 3] == 4
    assert sparse24.Checkpoint(sys.argv[3])  # it is there for all
    print(comm.rank, len(layers))
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        dense = tiny_bert.write(self.root / "dense")
        sparse24.prune_model(dense, self.root / "model")

    def shared(self, ends, program=PROGRAM):
        paths = os.pathsep.join(p for p in sys.path if p)
        return subprocess.run([*MPIRUN, sys.executable, "-c", program, str(PLUGIN),
                               self.root / "model", self.root / "two", ends], capture_output=True,
                              text=True, timeout=600, check=False,
                              env={**os.environ, "PYTHONPATH": paths})

    @unittest.skipIf(MISSING, MISSING)
    def test_two_give_what_one_gives(self):
        done = self.shared("well")
        self.assertEqual(done.returncode, 0, done.stderr)
        (_, loss, masks), (_, same, _) = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual((loss, masks), (same, "True"))
        alone = sparse24.train(self.root / "model", self.root / "one", steps=6, batch=8,
                               texts=tiny_bert.sentences(24), teacher=self.root / "model")
        self.assertAlmostEqual(float(loss), alone.loss, delta=1e-5)
        one, two = (sparse24.Checkpoint(self.root / name) for name in ("one", "two"))
        for name in one:
            np.testing.assert_allclose(one.array(name), two.array(name), atol=1e-4)

    @unittest.skipIf(MISSING, MISSING)
    def test_one_that_cannot_go_on_ends_all(self):
        done = self.shared("fails")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 cannot go on", done.stderr)
        self.assertFalse((self.root / "two").exists())

    @unittest.skipIf(MISSING, MISSING)
    def test_two_hold_one_model(self):
        done = self.shared("well", TOGETHER)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = np.load(self.root / "two.npz")
        encoder, model = (kind(self.root / "model") for kind in (sparse24.Encoder, sparse24.Model))
        np.testing.assert_allclose(found["vectors"], encoder.encode(tiny_bert.sentences(6)),
                                   atol=1e-5)
        np.testing.assert_allclose(found["hidden"], model.forward([[1, 2, 3], [4]])["hidden"],
                                   atol=1e-4)

    @unittest.skipIf(MISSING, MISSING)
    def test_two_prune_one_model(self):
        done = self.shared("well", PRUNES)
        self.assertEqual(done.returncode, 0, done.stderr)
        alone = sparse24.prune_model(self.root / "model", self.root / "one", "wanda",
                                     texts=tiny_bert.sentences(8))
        self.assertEqual(sorted(done.stdout.splitlines()), [f"{r} {len(alone)}" for r in range(2)])
        one, two = (sparse24.Checkpoint(self.root / name) for name in ("one", "two"))
        for name in one:
            np.testing.assert_array_equal(one.array(name), two.array(name))
        done = self.shared("badly", PRUNES.replace("sys.argv[3]", "sys.argv[3] + '-bad'"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 has other calibration passages than rank 0", done.stderr)

    def test_a_world_of_one(self):
        self.assertIn("mpi", sparse24.comm_kinds())
        with sparse24.Comm("none") as comm:
            self.assertEqual((comm.rank, comm.world), (0, 1))
            np.testing.assert_array_equal(comm.sum(np.ones(2)), [1, 1])
            comm.barrier()
            sparse24.train(self.root / "model", self.root / "one", steps=1, batch=4,
                           texts=tiny_bert.sentences(8), teacher=self.root / "model", comm=comm)
        with self.assertRaises(ZeroDivisionError), sparse24.Comm("none"):
            _ = 1 // 0
        with self.assertRaisesRegex(ValueError, "pigeons"):
            sparse24.Comm("pigeons")
        with self.assertRaisesRegex(sparse24.Error, "nothing.so"):
            sparse24.Comm("mpi", library="/nothing.so")


if __name__ == "__main__":
    unittest.main()
