# SPDX-License-Identifier: Apache-2.0
"""One model held, or pruned, by several processes, which Open MPI's mpirun starts on this machine:
vectors, texts, scores and weights of one process; what is refused; a rank that is killed."""
import array
import subprocess
import unittest

import test_cli_eval
from cli_case import PATIENCE, PROGRAM, Scratch, clean_environment, one_object, run
from cli_data import read
from test_cli_train import LINES
from test_cli_train_ends import write_llama
import test_cli_train_ranks
from test_cli_train_ranks import MISSING, mpirun
from test_cli_train_sets import randomise
import tiny_bert

PROMPTS = ("abca", "c", "b ab", "ba")


def make(folder):
    tiny_bert.write(folder / "model")
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    write_llama(folder / "llama", width=32)
    randomise(folder / "llama", 3)
    (folder / "prompts").write_text("".join(f"{p}\n" for p in PROMPTS))
    (folder / "lines").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    (folder / "text").write_text("abcabcab ba cab abc" * 5)
    for words in (("llama", "llama-24", "--packed"), ("llama", "llama-i4", "--packed",
                                                      "--quantize", "int4"),
                  ("model", "model-24", "--packed")):
        done = run("prune", *words, cwd=folder)
        if done.returncode:
            raise AssertionError(done.stderr)


class ModelRanks(Scratch):
    make = staticmethod(make)

    def shared(self, ranks, *words, exit=0, **environment):
        done = subprocess.run(mpirun(ranks, PROGRAM, *words, "--threads", "1"), cwd=self.folder,
                              capture_output=True, text=True, timeout=PATIENCE,
                              env=clean_environment(environment))
        self.assertEqual(done.returncode, exit, done.stderr)
        return done

    def vectors(self, path):
        tensors, _ = read(self.folder / path)
        return array.array("f", tensors["embeddings"][2])

    @unittest.skipIf(MISSING, MISSING)
    def test_vectors_are_those_of_one_process(self):
        for model in ("model", "model-24"):
            self.good("embed", model, "--input", "lines", "-o", f"{model}-one.safetensors")
            done = self.shared(2, "embed", model, "--input", "lines", "-o",
                               f"{model}-two.safetensors", "--comm", "mpi", "--json")
            self.assertEqual(one_object(done.stdout)["texts"], len(LINES), "rank 0 alone prints")
            one, two = (self.vectors(f"{model}-{n}.safetensors") for n in ("one", "two"))
            self.assertEqual(len(one), len(two))
            self.assertLess(max(abs(a - b) for a, b in zip(one, two)), 1e-5)

    @unittest.skipIf(MISSING, MISSING)
    def test_texts_are_those_of_one_process(self):
        for model in ("llama", "llama-24", "llama-i4"):
            words = ("generate", model, "--input", "prompts", "--max-new", "8", "--json")
            one = self.json(*words)["prompts"]
            self.assertEqual(one_object(self.shared(2, *words, "--comm", "mpi").stdout)["prompts"],
                             one)
            drawn = (*words, "--temperature", "0.7", "--seed", "5")
            self.assertEqual(
                [p["stop"] for p in
                 one_object(self.shared(2, *drawn, "--comm", "mpi").stdout)["prompts"]],
                ["length"] * len(PROMPTS))

    @unittest.skipIf(MISSING, MISSING)
    def test_scores_and_times(self):
        words = ("eval", "llama-24", "--task", "lm", "--data", "text", "--max-tokens", "8",
                 "--json")
        one = self.json(*words)
        two = one_object(self.shared(2, *words, "--comm", "mpi").stdout)
        self.assertAlmostEqual(one["loss"], two["loss"], delta=1e-5 * one["loss"])
        for what in ("--model", "--generate"):
            size = ("--seq", "8") if what == "--model" else ("--prompt-tokens", "4", "--new", "3")
            found = one_object(self.shared(
                2, "bench", what, "llama-tiny", *size, "--batch", "2", "--rounds", "2", "--min-ms",
                "1", "--dtype", "f32", "--json", "--comm", "mpi").stdout)
            self.assertTrue(found)

    @unittest.skipIf(MISSING, MISSING)
    def test_a_model_is_pruned_as_by_one_process(self):
        words = ("--method", "sparsegpt", "--calibration", "lines", "--json")
        one = self.json("prune", "model", "pruned-one", *words)["layers"]
        done = self.shared(2, "prune", "model", "pruned-two", *words, "--comm", "mpi")
        two = one_object(done.stdout)["layers"]
        self.assertEqual([layer["name"] for layer in one], [layer["name"] for layer in two])
        for a, b in zip(one, two):
            self.assertAlmostEqual(a["output_error"], b["output_error"], delta=1e-3)
        self.good("check", "pruned-two")
        self.assertFalse((self.folder / "pruned-two.pruning").exists())

    @unittest.skipIf(MISSING, MISSING)
    def test_what_ranks_must_have_alike(self):
        odd = ("sh", "-c", 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then set -- "$@" $ODD; fi; '
               f'exec "{PROGRAM}" "$@"', "sh", "generate", "llama", "--input", "prompts", "--comm",
               "mpi", "--threads", "1")
        done = subprocess.run(mpirun(2, *odd), cwd=self.folder, capture_output=True, text=True,
                              env=clean_environment({"ODD": "--max-new 3"}), timeout=PATIENCE)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("rank 1 was given other words, or files of other content, than rank 0",
                      done.stderr)
        self.assertEqual(done.stdout, "")
        done = self.shared(3, "generate", "llama", "--input", "prompts", "--comm", "mpi", exit=5)
        self.assertIn("llama: its 4 heads cannot be shared out among 3 ranks", done.stderr)
        done = self.shared(2, "generate", "llama", "--input", "-", "--comm", "mpi", exit=2)
        self.assertIn("--comm needs --input FILE", done.stderr)

    @unittest.skipIf(MISSING, MISSING)
    def test_a_killed_rank_ends_all(self):
        (self.folder / "many").write_text("abc\n" * 2000000)
        process = subprocess.Popen(
            mpirun(2, PROGRAM, "embed", "model", "--input", "many", "--stream", "--comm", "mpi",
                   "--threads", "1"), cwd=self.folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=clean_environment())
        self.assertTrue(process.stdout.readline().startswith(b'{"line": 0'))
        test_cli_train_ranks.Ranks.kill_rank(self, process.pid, "1")
        _, said = process.communicate(timeout=PATIENCE)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(said.decode(), "(?s)process rank 1 with PID.*signal 9")

    is_rank = staticmethod(test_cli_train_ranks.Ranks.is_rank)

    def test_what_is_refused(self):
        self.refusals([
            ("nccl", ("generate", "llama", "--prompt", "a", "--comm", "nccl"), 2,
             "--comm nccl is for GPUs, with --device cuda; --comm mpi is for the CPU"),
            ("mpi", ("generate", "llama", "--prompt", "a", "--comm", "mpi", "--device", "cuda"), 5,
             "--comm mpi --device cuda: processes run one model together on GPUs with --comm nccl"),
            ("shard", ("embed", "model", "--input", "lines", "-o", "v.safetensors", "--shard",
                       "1/2", "--comm", "mpi"), 2, "comm"),
            ("products", ("bench", "--set", "minilm", "--comm", "mpi"), 2, "comm"),
            *(("prune", ("prune", "model", "out", "--comm", "mpi", *words), 2, "comm") for words in
              ((), *(("--calibration", "lines", *more) for more in
                     (("--permute",), ("--aim", "states"), ("--reconstruct", "2"),
                      ("--masks-only", "--shard", "1/2")))))])


if __name__ == "__main__":
    unittest.main()
