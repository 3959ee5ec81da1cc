# SPDX-License-Identifier: Apache-2.0
"""bench --train-linear: one layer's step of training, dense and 2:4."""
import math
import unittest

from cli_case import Scratch, run

QUICK = ["--rounds", "3", "--min-ms", "1"]
KEYS = {"m", "k", "n", "threads", "peer", "dense_ms", "sparse_ms", "select_ms", "dense_dw_ms",
        "mvue_dw_ms", "ratio", "dense_bytes", "sparse_bytes"}


class TrainLinear(Scratch):
    def test_rows(self):
        options = ["bench", "--train-linear", "32,64,48;16,32,32", "--threads", "1,2", *QUICK]
        if run(*options, cwd=self.folder).returncode == 5:
            self.skipTest("no dense library is here")
        rows = self.json(*options)["rows"]
        self.assertEqual([(r["m"], r["k"], r["n"], r["threads"]) for r in rows],
                         [(32, 64, 48, 1), (16, 32, 32, 1), (32, 64, 48, 2), (16, 32, 32, 2)])
        for row in rows:
            self.assertEqual(set(row), KEYS)
            ours = row["sparse_ms"] + row["select_ms"]
            self.assertTrue(math.isclose(row["ratio"], row["dense_ms"] / ours, rel_tol=1e-6))
            self.assertEqual(row["dense_bytes"], 4 * row["k"] * row["n"])
            self.assertLess(row["sparse_bytes"], 1.25 * row["dense_bytes"])
        self.assertIn("32,64,48", self.good(*options).stdout)

    def test_refusals(self):
        self.refusals([
            ("no shape", ["bench", "--train-linear", "32,64"], 2,
             r"option --train-linear: '32,64' is not M,K,N"),
            ("tokens", ["bench", "--train-linear", "30,64,48"], 2, r"30,64,48; tokens, inputs"),
            ("no peer", ["bench", "--train-linear", "32,64,48", "--peers", "none"], 5,
             r"--train-linear needs a peer"),
            ("dtype", ["bench", "--train-linear", "32,64,48", "--dtype", "bf16"], 2,
             r"--dtype: bf16 is not for --train-linear; expected f32"),
            ("both", ["bench", "--train-linear", "32,64,48", "--prune", "1"], 2, r"exclude each"),
            ("chart", ["bench", "--train-linear", "32,64,48", "--svg", "c"], 2, r"has no chart"),
        ])


if __name__ == "__main__":
    unittest.main()
