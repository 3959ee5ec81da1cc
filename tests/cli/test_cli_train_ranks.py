# SPDX-License-Identifier: Apache-2.0
"""train by several processes, which Open MPI's mpirun starts on this machine: losses and files, a
rank that differs, one that is killed, and what is said where a launcher started several."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from cli_case import BUILD, PATIENCE, PROGRAM, Scratch, clean_environment, one_object, run
from cli_steps import AHEAD, Steps
from test_cli_train import make_model, weights

SHORT = ("--text", "texts", "--teacher", "model", "--steps", "12", "--batch", "9", "--threads", "1")


def why_not():
    """Why no run can be shared here, or None."""
    if not (BUILD / "libsparse24-mpi.so.0").exists():
        return "this build has no plugin for MPI"
    version = subprocess.run(["mpirun", "--version"], capture_output=True,
                             text=True).stdout if shutil.which("mpirun") else ""
    return None if "Open MPI" in version else "Open MPI's mpirun is not here"


MISSING = why_not()


def mpirun(ranks, *words):
    """The words of a program's start by that many processes on this machine alone."""
    return ["mpirun", "-n", str(ranks), "--allow-run-as-root", "--oversubscribe", "--bind-to",
            "none", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo",
            *map(str, words)]


class Ranks(Scratch):
    make = staticmethod(make_model)

    def losses(self, path):
        return [json.loads(line)["loss"] for line in (self.folder / path).read_text().splitlines()]

    def shared(self, ranks, *words, exit=0):
        done = subprocess.run(mpirun(ranks, PROGRAM, *words), cwd=self.folder, capture_output=True,
                              text=True, env=clean_environment(), timeout=PATIENCE)
        self.assertEqual(done.returncode, exit, done.stderr)
        return done

    @unittest.skipIf(MISSING, MISSING)
    def test_the_same_run_by_one_process_and_by_two(self):
        self.good("train", "student", "one", *SHORT, "--metrics", "m1", "--held-out", "6")
        words = ("--comm", "mpi", "--json", "--held-out", "6", *SHORT)
        done = self.shared(2, "train", "student", "two", *words, "--metrics", "m2")
        found = one_object(done.stdout)
        parts = one_object(self.shared(2, "train", "student", "again", *words,
                                       "--shard-optimizer").stdout)
        self.assertEqual(found["step"], 12)
        self.assertRegex(found["mask_hash"], "^[0-9a-f]{16}$")
        # One process keeps no moments of zeros, while ranks share out those of all weights.
        self.assertLess(parts["optimizer_bytes"], 0.75 * found["optimizer_bytes"])
        one, two = self.losses("m1"), self.losses("m2")
        self.assertEqual(len(two), 12, "rank 0 alone writes")
        for a, b in zip(one, two):
            self.assertAlmostEqual(a, b, delta=2e-3 * a)
        self.assertLess(abs(one[0] - two[0]), 1e-6 * one[0])
        self.assertEqual(weights(self.folder / "two"), weights(self.folder / "again"))
        self.assertTrue(self.json("check", "two")["ok"])
        self.assertFalse((self.folder / "two.training").exists())

    @unittest.skipIf(MISSING, MISSING)
    def test_a_rank_that_differs_or_fails_ends_all(self):
        odd = ("sh", "-c", 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then set -- "$@" $ODD; fi; '
               f'exec "{PROGRAM}" "$@"', "sh", "train", "student", "out", "--comm", "mpi", *SHORT)
        for more, sentence in (("--decay 0.5", "rank 1 has other options than rank 0"),
                               ("--isa baseline", "rank 1 has other threads or instructions"),
                               ("--loss nothing=1", "rank 1: option --loss: 'nothing=1'")):
            with self.subTest(more):
                done = subprocess.run(mpirun(2, *odd), cwd=self.folder, capture_output=True,
                                      text=True, env=clean_environment({"ODD": more}),
                                      timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, sentence)
                self.assertFalse((self.folder / "out").exists())

    @unittest.skipIf(MISSING, MISSING)
    def test_a_killed_rank_ends_all(self):
        words = mpirun(2, PROGRAM, "train", "student", "out", "--comm", "mpi", *SHORT[:4],
                       "--steps", "1000000", "--batch", "8", "--threads", "1", "--metrics", "m")
        process = subprocess.Popen(words, cwd=self.folder, stderr=subprocess.PIPE, text=True,
                                   env=clean_environment())
        end = time.monotonic() + PATIENCE
        metrics = self.folder / "m"
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end:
            time.sleep(0.05)
        self.kill_rank(process.pid, "1")
        _, said = process.communicate(timeout=PATIENCE)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(said, "(?s)process rank 1 with PID.*signal 9")

    def kill_rank(self, parent, rank):
        found = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/environ")
                 if self.is_rank(path, parent, rank)]
        self.assertEqual(len(found), 1)
        os.kill(found[0], signal.SIGKILL)

    @staticmethod
    def is_rank(path, parent, rank):
        try:
            status = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()
            return int(status[1]) == parent and \
                f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in path.read_bytes()
        except OSError:
            return False

    @unittest.skipIf(MISSING, MISSING)
    def test_a_run_goes_on_with_another_number_of_processes(self):
        more = ("--steps", str(2 * AHEAD), "--batch", "8", "--threads", "1", "--checkpoint-steps",
                "5")
        steps = Steps(self.folder / "steps")
        words = mpirun(2, PROGRAM, "train", "student", "out", "--comm", "mpi", *SHORT[:4], *more,
                       "--metrics", "steps")
        process = subprocess.Popen(words, cwd=self.folder, stderr=subprocess.DEVNULL,
                                   env=clean_environment())
        steps.wait(process, files=[self.folder / "out.training"])
        self.kill_rank(process.pid, "0")
        steps.close()
        process.wait(timeout=PATIENCE)
        found = self.json("train", "student", "out", *SHORT[:4], *more, "--resume", "--comm",
                          "none")
        self.assertEqual(found["step"], 2 * AHEAD)

    def test_what_is_refused(self):
        def refused(sentence, code, *words, **environment):
            done = run("train", "student", "out", *SHORT, *words, cwd=self.folder,
                       environment=environment)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.assertFalse((self.folder / "out").exists())
        for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("RANK", "WORLD_SIZE"),
                           ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
            refused(r"(mpirun|mpiexec|torchrun|srun) started 2 processes: --comm mpi", 2,
                    **{rank: "1", size: "2"})
        refused("RANK is '2' in the environment; 0 to 1", 2, RANK="2", WORLD_SIZE="2")
        refused("WORLD_SIZE is 'x' in the environment; 1 to", 2, RANK="0", WORLD_SIZE="x")
        refused("option --shard-optimizer is for --comm", 2, "--shard-optimizer")
        refused("--comm nccl is for GPUs, with --device cuda", 2, "--comm", "nccl")
        refused("option --comm: 'tcp' is not one of none", 2, "--comm", "tcp")


if __name__ == "__main__":
    unittest.main()
