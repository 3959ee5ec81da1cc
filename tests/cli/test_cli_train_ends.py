# SPDX-License-Identifier: Apache-2.0
"""How runs of training end, on the CPU and, where there is one, on a GPU: killed and gone on with, out
of disk or memory, with a loss that is no number, with a checkpoint that is not theirs."""
import json
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tarfile
import unittest
from unittest import mock

from cli_case import PROGRAM, SOURCE, Scratch, clean_environment, run
import test_cli_eval
import test_cli_train
import tiny_bert
from cli_data import read
from cli_steps import AHEAD, Steps
from test_cli_train_sets import randomise, write_squares

KINDS = ("automobile", "cat", "ship")
DATA = SOURCE / "../shared/data"


def make(folder):
    """Models as wide as a GPU wants them: rows of eight, heads of sixteen."""
    test_cli_train.make_model(folder)
    shutil.copytree(folder / "model", folder / "most")
    pooling = folder / "most/1_Pooling/config.json"
    pooling.write_text(json.dumps({"word_embedding_dimension": tiny_bert.WIDTH,
                                   "pooling_mode_mean_tokens": False,
                                   "pooling_mode_max_tokens": True}))
    (folder / "dev.json").write_text(json.dumps(test_cli_eval.questions()))
    test_cli_eval.write_gpt2(folder / "gpt2", width=32)
    write_llama(folder / "llama")
    test_cli_eval.write_vit(folder / "vit", width=32, image=8)
    test_cli_eval.write_vit(folder / "colours", width=32, image=32, channels=3)
    for name in ("gpt2", "llama", "vit", "colours"):
        randomise(folder / name, 3)
    (folder / "play").write_text("abcb" * 400 + "\n")
    write_squares(folder, "learn", 300, 1, side=8)
    write_squares(folder, "other", 100, 2, side=8)


def write_llama(folder, width=32, heads=4, kv_heads=2, inner=64):
    """A Llama of the letters of test_cli_eval, its weights drawn afterwards."""
    letters, kv = test_cli_eval.LETTERS, width // heads * kv_heads
    tensors = test_cli_eval.constant("model.embed_tokens.weight", [len(letters), width])
    tensors |= test_cli_eval.constant("model.norm.weight", [width], 1.0)
    for name, rows, cols in (("self_attn.q_proj", width, width), ("self_attn.k_proj", kv, width),
                             ("self_attn.v_proj", kv, width), ("self_attn.o_proj", width, width),
                             ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
                             ("mlp.down_proj", width, inner)):
        tensors |= test_cli_eval.constant(f"model.layers.0.{name}.weight", [rows, cols])
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors |= test_cli_eval.constant(f"model.layers.0.{name}.weight", [width], 1.0)
    test_cli_eval.write_model(folder, {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": len(letters), "hidden_act": "silu",
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True}, tensors)
    shutil.copy(folder.parent / "gpt2/tokenizer.json", folder)


def contents(model):
    tensors, _ = read(model / "model.safetensors")
    return {name: raw for name, (_, _, raw) in tensors.items()}


class Ends:
    """The cases; a class below says on which device. STEPS: of runs that are stopped three times
    before their ends."""
    make = staticmethod(make)
    DEVICE, STEPS = (), 4 * AHEAD
    TEXTS = ("--text", "texts", "--teacher", "model", "--batch", "8", "--threads", "1")

    def options(self, *more, steps=12):
        return (*self.TEXTS, "--steps", str(steps), *self.DEVICE, *more)

    def start(self, *arguments, limit=None, files=(), steps=0):
        """Begins what will be stopped, when `files` are there and so many steps are taken."""
        def confine():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        self.steps = Steps(self.folder / "steps")
        process = subprocess.Popen([PROGRAM, *arguments, "--metrics", "steps"], cwd=self.folder,
                                   env=clean_environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=confine if limit else None)
        self.addCleanup(process.stderr.close)
        self.steps.wait(process, steps, [self.folder / file for file in files])
        return process

    def stop(self, process, number):
        process.send_signal(number)
        self.steps.close()
        error = process.communicate()[1]
        return process.returncode, error

    def metrics(self, name="m"):
        path = self.folder / name
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def bad(self, code, sentence, *arguments, **more):
        done = run(*arguments, cwd=self.folder, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, sentence)
        return done

    def left_over(self):
        return [p.name for p in self.folder.iterdir() if p.name.startswith(".sparse24-")]

    # ---- stopped in the midst of a step ----------------------------------------------------------

    def test_a_key_that_interrupts_ends_a_long_step(self):
        # Some nine million tokens a step, of which whoever waits for it has a line of metrics.
        line = " ".join((self.folder / "texts").read_text().split()[:150])
        (self.folder / "texts").write_text(f"{line}\n" * 60000)
        many = self.options("--batch", "60000", steps=2)
        process = self.start("train", "student", "out", *many)
        line = ""
        while "examples" not in line and process.poll() is None: # the first step begins
            line = process.stderr.readline()
        code, error = self.stop(process, signal.SIGINT)
        self.assertEqual(code, 130, error)
        self.assertRegex(error, r"interrupted at step 0; --resume goes on from out\.training")
        self.assertTrue((self.folder / "out.training").exists())
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(self.left_over(), [])

    # ---- killed, and gone on with ----------------------------------------------------------------

    def check_killed(self, student, *more):
        options = self.options("--checkpoint-steps", "5", *more, steps=self.STEPS)
        self.good("train", student, "whole", *options)
        for turn in range(3):
            process = self.start("train", student, "out", *options, *(["--resume"] if turn else []),
                                 files=["out.training"], steps=5)
            self.assertEqual(self.stop(process, signal.SIGKILL)[0], -signal.SIGKILL)
        self.bad(3, "out.training is there from a run that was stopped", "train", student, "out",
                 *options)
        self.good("train", student, "out", *options, "--resume")
        self.assertEqual(contents(self.folder / "whole"), contents(self.folder / "out"))
        self.assertFalse((self.folder / "out.training").exists())

    def test_killed_again_and_again_it_ends_with_the_same_bits(self):
        self.check_killed("model", "--dropout", "0.1")

    def test_two_that_go_on_from_one_checkpoint_of_a_pruned_model(self):
        options = self.options("--checkpoint-steps", "5", steps=self.STEPS)
        process = self.start("train", "student", "one", *options, files=["one.training"])
        self.assertEqual(self.stop(process, signal.SIGKILL)[0], -signal.SIGKILL)
        shutil.copy(self.folder / "one.training", self.folder / "two.training")
        for out in ("one", "two"):
            self.good("train", "student", out, *options, "--resume")
            self.assertTrue(self.json("check", out)["ok"])
        self.assertEqual(contents(self.folder / "one"), contents(self.folder / "two"))

    def test_a_tutorial_that_is_killed_goes_on(self):
        def arguments(out):
            return ["tutorial", "model", out, "--train", "dev.json", "--dev", "dev.json", "--steps",
                    "40", "--max-tokens", "96", "--batch", "1", "--seq", "8", "--rounds", "1",
                    "--threads", "1", *self.DEVICE]
        self.good(*arguments("whole"))
        # It comes to the fifth stage.
        shutil.copytree(self.folder / "whole", self.folder / "out")
        for path in (self.folder / "out").iterdir():
            if path.name.startswith(("plain", "distilled", "packed", "times", "report")):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        steps = Steps(self.folder / "out/plain.jsonl")
        process = subprocess.Popen([PROGRAM, *arguments("out")], cwd=self.folder, text=True,
                                   env=clean_environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        steps.wait(process, 1)
        process.send_signal(signal.SIGTERM)  # handed on to the stage
        steps.close()
        process.wait()
        self.assertEqual(process.returncode, 130)
        (self.folder / "out/plain.jsonl").unlink()
        before = (self.folder / "out/dense.json").read_bytes()
        done = self.good(*arguments("out"))
        self.assertGreaterEqual(len(re.findall("done before", done.stderr)), 4)
        self.assertEqual(before, (self.folder / "out/dense.json").read_bytes())
        self.assertEqual(contents(self.folder / "whole/dense"), contents(self.folder / "out/dense"))
        self.assertTrue((self.folder / "out/report.html").exists())
        self.assertTrue(self.json("check", "out/distilled")["ok"])

    # ---- out of room -----------------------------------------------------------------------------

    def confined(self, limit, *arguments):
        def confine():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=clean_environment(),
                              capture_output=True, text=True, preexec_fn=confine)

    def test_no_room_for_a_checkpoint(self):
        size = (self.folder / "model/model.safetensors").stat().st_size
        options = self.options("--checkpoint-steps", "5", steps=12)
        done = self.confined(size + 4096, "train", "model", "out", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "no checkpoint at step 5: .*File too large")
        self.good("train", "model", "whole", *options)
        self.assertEqual(contents(self.folder / "whole"), contents(self.folder / "out"))
        self.assertEqual(self.left_over(), [])

    def test_no_room_for_the_result(self):
        size = (self.folder / "model/model.safetensors").stat().st_size
        options = self.options(steps=12)
        done = self.confined(size // 2, "train", "model", "out", *options)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "out.*File too large")
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(self.left_over(), [])

    def test_without_room_the_checkpoint_before_stays(self):
        size = (self.folder / "model/model.safetensors").stat().st_size
        options = self.options("--checkpoint-steps", "5", steps=self.STEPS)
        self.good("train", "model", "whole", *options)
        process = self.start("train", "model", "out", *options, files=["out.training"])
        self.stop(process, signal.SIGKILL)
        before = (self.folder / "out.training").read_bytes()
        process = self.start("train", "model", "out", *options, "--resume", limit=size + 4096,
                             steps=10)
        code, error = self.stop(process, signal.SIGINT)
        self.assertEqual(code, 130, error)
        self.assertRegex(error, "no checkpoint at step .*File too large")
        self.assertEqual(before, (self.folder / "out.training").read_bytes())
        self.good("train", "model", "out", *options, "--resume")
        self.assertEqual(contents(self.folder / "whole"), contents(self.folder / "out"))

    # ---- what is not to be gone on with ----------------------------------------------------------

    def test_other_checkpoints(self):
        options = self.options("--checkpoint-steps", "5", steps=self.STEPS)
        process = self.start("train", "model", "out", *options, files=["out.training"])
        self.assertEqual(self.stop(process, signal.SIGKILL)[0], -signal.SIGKILL)
        whole = (self.folder / "out.training").read_bytes()
        for what, raw, sentence in (
                ("cut", whole[:-4], "out.training"), ("longer", whole + b"more", "out.training"),
                ("no header", b"\xff" * 64, "out.training"), ("empty", b"", "out.training"),
                ("a model", (self.folder / "model/model.safetensors").read_bytes(),
                 "out.training: no training checkpoint: tensor 'state' is missing")):
            with self.subTest(what):
                (self.folder / "out.training").write_bytes(raw)
                self.bad(4, sentence, "train", "model", "out", *options, "--resume")
                self.assertFalse((self.folder / "out").exists())
                self.assertEqual((self.folder / "out.training").read_bytes(), raw)
        (self.folder / "out.training").write_bytes(whole)
        self.bad(4, "of a run with other options, another model or other examples", "train", "model",
                 "out", *options, "--resume", "--seed", "2")
        self.bad(4, "out.training: tensor 'weights' has .* expected for this model", "train", "gpt2",
                 "out", "--stream", "play", "--max-tokens", "8", *self.DEVICE, "--resume")

    def test_a_loss_that_is_no_number(self):
        done = self.bad(4, r"(loss|norm) is (NaN|infinite) at step \d+ .*nothing of it was applied, the "
                        "last good checkpoint is out.training", "train", "model", "out",
                        *self.options("--loss", "cosine=1,hidden=1", "--rate", "1e30", "--warmup", "0.9",
                                      "--clip", "0", "--checkpoint-steps", "1", steps=60))
        self.assertFalse((self.folder / "out").exists())
        step = int(re.search(r"at step (\d+)", done.stderr)[1])
        tensors, _ = read(self.folder / "out.training")
        self.assertEqual(int.from_bytes(tensors["state"][2][8:16], "little"), step)

    # ---- what can be learnt ----------------------------------------------------------------------

    def learns(self, student, *arguments, less=0.9):
        self.good("train", student, "out", *arguments, *self.DEVICE, "--metrics", "m")
        losses = [line["loss"] for line in self.metrics()]
        self.assertLess(sum(losses[-3:]), less * sum(losses[:3]))
        shutil.rmtree(self.folder / "out")
        (self.folder / "m").unlink()
        return losses

    def test_embeddings_of_maxima(self):
        self.good("prune", "most", "most-24")
        self.learns("most-24", "--text", "texts", "--teacher", "most", "--batch", "8", "--steps", "20",
                    "--rate", "1e-3", "--loss", "cosine=20")

    def test_streams(self):
        for model in ("gpt2", "llama"):
            with self.subTest(model):
                self.learns(model, "--stream", "play", "--max-tokens", "8", "--batch", "8", "--steps",
                            "60", "--rate", "0.02", less=0.7)

    def test_images(self):
        self.learns("vit", "--images", "learn-images-idx3-ubyte", "--batch", "16", "--steps", "120",
                    "--rate", "0.02", less=0.5)

    def test_jpeg_files(self):
        """Thirty each of three classes of CIFAR-10."""
        archive, left = DATA / "images/cifar10-jpeg-test.tar.xz", dict.fromkeys(KINDS, 30)
        if not archive.exists():
            self.skipTest(f"{archive} is not here")
        with tarfile.open(archive) as tar:
            for member in tar:
                kind = pathlib.Path(member.name).parent.name
                if member.isfile() and left.get(kind, 0):
                    left[kind] -= 1
                    (self.folder / "photos" / kind).mkdir(parents=True, exist_ok=True)
                    name = self.folder / "photos" / kind / pathlib.Path(member.name).name
                    name.write_bytes(tar.extractfile(member).read())
                if not any(left.values()):
                    break
        self.learns("colours", "--images", "photos", "--batch", "30", "--steps", "60", "--rate", "3e-3")


class OnTheCpu(Ends, Scratch):
    pass


class OnAGpu(Ends, Scratch):
    DEVICE = ("--device", "cuda")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = run("train", "model", "try", *cls.TEXTS, "--steps", "1", *cls.DEVICE, cwd=cls.fixtures)
        if done.returncode == 5:
            raise unittest.SkipTest(done.stderr.strip())
        if done.returncode:
            raise AssertionError(done.stderr)
        shutil.rmtree(cls.fixtures / "try")

    def test_killed_in_f16_with_activations_computed_again(self):
        self.check_killed("model", "--dtype", "f16", "--recompute", "--dropout", "0.1")

    def test_recomputed_activations_are_the_same_bits(self):
        for dtype in ("bf16", "f16"):
            options = self.options("--dtype", dtype, "--dropout", "0.1")
            self.good("train", "model", dtype, *options)
            self.good("train", "model", dtype + "-again", *options, "--recompute")
            self.assertEqual(contents(self.folder / dtype), contents(self.folder / (dtype + "-again")))

    def test_steps_of_f16_that_are_left_out(self):
        options = ("--loss", "cosine=20000", "--dtype", "f16", "--rate", "1e-3")
        self.good("train", "student", "out", *self.options(*options, steps=40), "--metrics", "m")
        lines = self.metrics()
        norms = [line["norm"] for line in lines]
        self.assertIsNone(norms[0])
        self.assertIsNotNone(norms[-1])
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])

    def test_dtypes_of_checkpoints(self):
        options = self.options("--checkpoint-steps", "5", steps=self.STEPS)
        process = self.start("train", "model", "out", *options, files=["out.training"])
        self.assertEqual(self.stop(process, signal.SIGKILL)[0], -signal.SIGKILL)
        self.bad(4, "of a run with other options", "train", "model", "out", *options, "--resume",
                 "--dtype", "f16")
        on_cpu = [option for option in options if option not in self.DEVICE]
        self.bad(4, "out.training", "train", "model", "out", *on_cpu, "--resume")

    def test_out_of_memory(self):
        """As many tokens as may be, of 64 KiB each and more, are beyond any GPU of today."""
        with mock.patch.object(tiny_bert, "INTERMEDIATE", 8192):
            tiny_bert.write(self.folder / "fat")
        options = ("--text", "texts", "--teacher", "fat", "--steps", "2", *self.DEVICE)
        self.bad(3, "memory", "train", "fat", "out", *options, "--tokens", str(1 << 24))
        self.assertFalse((self.folder / "out").exists())
        self.good("train", "fat", "out", *options)

    def test_losses_are_those_of_the_cpu(self):
        for model, window in (("gpt2", "16"), ("gpt2", "7"), ("llama", "16")):
            arguments = ["eval", model, "--task", "lm", "--data", "play", "--max-tokens", window]
            expected = self.json(*arguments)
            for dtype, bound in (("f16", 2e-3), ("bf16", 2e-2)):
                found = self.json(*arguments, *self.DEVICE, "--dtype", dtype)
                for key in ("tokens", "bytes"):
                    self.assertEqual(found[key], expected[key])
                apart = abs(found["loss"] - expected["loss"])
                self.assertLess(apart, bound * expected["loss"], (model, dtype, window))
        self.bad(5, "f32", *arguments, *self.DEVICE, "--dtype", "f32")


if __name__ == "__main__":
    unittest.main()
