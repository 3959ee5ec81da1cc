# SPDX-License-Identifier: Apache-2.0
"""prune --resume: what is kept of a run that is killed, and what the next one makes of it."""
import signal
import subprocess
import time
import unittest

from cli_case import PROGRAM, Scratch, clean_environment, run
import tiny_bert

BLOCK = "block-000000.safetensors"


class Resumed(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("\n".join(tiny_bert.sentences(24)) + "\n")

    def arguments(self, out, *more):
        return ["prune", "model", out, "--method", "sparsegpt", "--calibration", "texts",
                "--threads", "1", *more]

    def kill(self, out, *more):
        """Runs it until its first block is kept, then no longer."""
        child = subprocess.Popen([PROGRAM, *self.arguments(out, "--resume", *more)],
                                 cwd=self.folder, env=clean_environment(),
                                 stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        while child.poll() is None and not (self.folder / f"{out}.pruning" / BLOCK).exists():
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait()

    def test_a_killed_run_ends_in_the_same_bits(self):
        for number, more in enumerate(([], ["--packed"], ["--packed", "--quantize", "int8"],
                                       ["--dtype", "bf16", "--refine", "swaps"],
                                       ["--reconstruct", "4", "--dtype", "f16"],
                                       ["--aim", "states", "--packed"])):
            whole, out = f"whole{number}", f"out{number}"
            layers = self.json(*self.arguments(whole, *more))["layers"]
            self.kill(out, *more)
            again = self.json(*self.arguments(out, "--resume", "--force", *more))["layers"]
            self.assertEqual(again, layers)
            self.assertEqual((self.folder / out / "model.safetensors").read_bytes(),
                             (self.folder / whole / "model.safetensors").read_bytes(), more)
            self.assertFalse((self.folder / f"{out}.pruning").exists())

    def test_a_block_of_another_run_is_refused(self):
        self.kill("mixed")
        if not (self.folder / "mixed.pruning" / BLOCK).exists():
            (self.folder / "mixed.pruning").mkdir(exist_ok=True)
            (self.folder / "mixed.pruning" / BLOCK).write_bytes(
                (self.folder / "model/model.safetensors").read_bytes())
        done = run(*self.arguments("mixed", "--resume", "--force", "--pattern", "1:4"),
                   cwd=self.folder)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr,
                         r"mixed\.pruning/block-000000\.safetensors: is of another run")

    def test_refusals(self):
        self.refusals([
            ("no calibration", ["prune", "model", "new", "--resume"], 2,
             r"--resume.*--calibration"),
            ("masks", self.arguments("new", "--resume", "--masks-only"), 2,
             r"--resume.*--masks-only|--masks-only.*--resume"),
            ("permuted", self.arguments("new", "--resume", "--permute"), 2,
             r"--resume.*--permute|--permute.*--resume")])


if __name__ == "__main__":
    unittest.main()
