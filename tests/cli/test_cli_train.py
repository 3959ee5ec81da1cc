# SPDX-License-Identifier: Apache-2.0
"""train on a small model of random weights: a pruned copy learns from the dense one."""
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from cli_case import PATIENCE, PROGRAM, Scratch, clean_environment, run
import tiny_bert
from cli_data import floats, read
from cli_steps import AHEAD, Steps

LINES = tiny_bert.sentences(40)
QUESTION = {"id": "1", "question": LINES[1],
            "answers": [{"text": LINES[2].split()[0], "answer_start": 0}]}


def make_model(folder):
    tiny_bert.write(folder / "model")
    (folder / "texts").write_text("\n".join(LINES) + "\n\n", encoding="utf-8")
    lost = {**QUESTION, "answers": [{"text": "nowhere", "answer_start": 0}]}
    (folder / "lost.json").write_text(json.dumps({"version": "1.1", "data": [
        {"title": "", "paragraphs": [{"context": LINES[2], "qas": [lost]}]}]}))
    (folder / "qa.json").write_text(json.dumps({"version": "1.1", "data": [
        {"title": "", "paragraphs": [{"context": LINES[2], "qas": [QUESTION]}]}]}))
    done = run("prune", "model", "student", "--method", "magnitude", cwd=folder)
    if done.returncode:
        raise AssertionError(done.stderr)


def weights(path):
    tensors, _ = read(path / "model.safetensors")
    return {name: raw for name, (_, _, raw) in tensors.items()}


class Train(Scratch):
    make = staticmethod(make_model)
    SHORT = ("--text", "texts", "--teacher", "model", "--steps", "12", "--batch", "8", "--threads", "1")

    def losses(self, path):
        return [json.loads(line)["loss"] for line in (self.folder / path).read_text().splitlines()]

    def test_a_pruned_model_comes_nearer_to_its_teacher(self):
        found = self.json("train", "student", "out", *self.SHORT, "--rate", "1e-3", "--metrics", "m",
                          "--held-out", "6")
        self.assertEqual(found["steps"], 12)
        self.assertEqual(found["step"], 12)
        self.assertGreater(found["tokens"], 12 * 8 * 2)
        losses = self.losses("m")
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], 0.9 * losses[0])
        self.assertLess(found["held_out"], losses[0])
        self.assertTrue(self.json("check", "out")["ok"])
        self.assertFalse((self.folder / "out.training").exists())
        before, after = weights(self.folder / "student"), weights(self.folder / "out")
        self.assertEqual(set(before), set(after))
        changed = [name for name in before if before[name] != after[name]]
        self.assertGreater(len(changed), len(before) // 2)
        self.good("embed", "out", "--input", "texts", "--output", "v.safetensors")

    def test_on_a_gpu(self):
        done = run("train", "student", "out", *self.SHORT, "--device", "cuda", "--metrics", "m",
                   cwd=self.folder)
        if done.returncode == 5:
            self.assertRegex(done.stderr, "no GPU here|there is no CUDA device|CUDA|cuBLASLt")
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = self.losses("m")
        self.assertLess(losses[-1], 0.9 * losses[0])
        self.assertTrue(self.json("check", "out")["ok"])

    def test_report_shows_the_curves(self):
        self.good("train", "student", "longer", *self.SHORT, "--metrics", "m", "--held-out", "6")
        short = tuple("3" if option == "12" else option for option in self.SHORT)
        self.good("train", "student", "o<ut", *short, "--metrics", "m", "--report", "page.html")
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn("<h1>o&#60;ut</h1>", page)
        self.assertIn("from student towards model: 3 steps", page)
        curves = re.findall(r"<figcaption>(.*?)</figcaption>.*?points=\"(.*?)\"", page, re.S)
        self.assertEqual([title for title, _ in curves],
                         ["loss by step", "learning rate", "norm of the gradients, before clipping",
                          "steps since masks were chosen",
                          "share of the gradients' squares that is chance",
                          "share of a step that zeros cost"])
        self.assertEqual([len(points.split()) for _, points in curves], [3, 3, 3, 3, 2, 3],
                         "of the later run alone")
        self.good("train", "student", "out", *short, "--metrics", "n", "--held-out", "6", "--report",
                  "held.html")
        self.assertIn("examples held out", (self.folder / "held.html").read_text(encoding="utf-8"))

    def test_a_terminal_sees_rate_eta_and_loss(self):
        wanted = (r"training \d+/1000000  [\d.]+(/s| s each)  ETA \d+:\d\d  "
                  r"loss \d+\.\d+  \d+ tokens/s")
        try:
            master, terminal = pty.openpty()
        except OSError as error:
            self.skipTest(f"no terminal to be had: {error}")
        process = subprocess.Popen([PROGRAM, "train", "student", "out", *self.SHORT[:4], "--steps",
                                    "1000000", "--batch", "8", "--threads", "1"], cwd=self.folder,
                                   stderr=terminal, stdout=subprocess.DEVNULL,
                                   env=clean_environment({"TERM": "xterm"}))
        os.close(terminal)
        said = b""
        while not re.search(wanted, said.decode(errors="replace")):
            try:
                part = os.read(master, 4096)
            except OSError:  # nobody holds the other end
                break
            if not part:
                break
            said += part
        process.send_signal(signal.SIGINT)
        os.close(master)
        self.assertEqual(process.wait(), 130, said)
        self.assertRegex(said.decode(errors="replace"), wanted)

    def test_packed_stays_packed(self):
        self.good("pack", "student", "packed")
        self.good("train", "packed", "out", *self.SHORT)
        self.assertTrue(any(name.endswith(".s24_values") for name in weights(self.folder / "out")))

    def test_masks_are_chosen_anew(self):
        for model in ("student", "model", "packed"):
            if model == "packed":
                self.good("pack", "student", "packed")
            self.good("train", model, "out", *self.SHORT, "--rate", "1e-2", "--refresh", "2", "--force",
                      "--refresh-until", "0.9")
            self.assertTrue(self.json("check", "out")["ok"])
        masks = [[value != 0 for value in struct.unpack(f"<{len(data) // 4}f", data)]
                 for name, data in sorted(weights(self.folder / "student").items())
                 if "intermediate.dense.weight" in name]
        self.good("train", "student", "out", *self.SHORT, "--rate", "1e-2", "--refresh", "2", "--force")
        after = [[value != 0 for value in struct.unpack(f"<{len(data) // 4}f", data)]
                 for name, data in sorted(weights(self.folder / "out").items())
                 if "intermediate.dense.weight" in name]
        self.assertTrue(masks)
        self.assertNotEqual(masks, after)

    def test_dense_lets_zeros_go(self):
        self.good("train", "student", "out", *self.SHORT, "--dense")
        self.json("check", "out", exit=1)

    def test_answers_from_labels(self):
        found = self.json("train", "model", "qa", "--qa", "qa.json", "--steps", "20", "--batch", "1",
                          "--rate", "1e-2", "--dropout", "0", "--threads", "1", "--metrics", "m",
                          "--max-tokens", "32")
        losses = self.losses("m")
        self.assertEqual(found["step"], 20)
        self.assertLess(losses[-1], losses[0])
        self.assertIn("qa_outputs.weight", weights(self.folder / "qa"))

    def test_killed_and_resumed_it_ends_with_the_same_bits(self):
        options = (*self.SHORT[:4], "--steps", str(2 * AHEAD), "--batch", "8", "--threads", "1",
                   "--checkpoint-steps", "5")
        self.good("train", "student", "whole", *options)
        steps = Steps(self.folder / "steps")
        process = subprocess.Popen(
            [PROGRAM, "train", "student", "out", *options, "--metrics", "steps"], cwd=self.folder,
            env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps.wait(process, files=[self.folder / "out.training"])
        process.send_signal(signal.SIGKILL)
        steps.close()
        self.assertEqual(process.wait(), -signal.SIGKILL)
        self.bad(3, r"out.training is there from a run that was stopped; --resume goes on",
                 "train", "student", "out", *options)
        self.bad(4, r"of a run with other options", "train", "student", "out", *options,
                 "--resume", "--rate", "1e-5")
        self.good("train", "student", "out", *options, "--resume")
        self.assertEqual(weights(self.folder / "whole"), weights(self.folder / "out"))

    def bad(self, code, sentence, *arguments):
        done = run(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, sentence)

    def test_refusals(self):
        shutil.copytree(self.folder / "model", self.folder / "wide")
        config = json.loads((self.folder / "wide/config.json").read_text())
        config["hidden_size"] *= 2
        (self.folder / "wide/config.json").write_text(json.dumps(config))
        self.good("pack", "student", "integers", "--quantize", "int8")
        shutil.copytree(self.folder / "model", self.folder / "strange")
        config["model_type"] = "strange"
        (self.folder / "strange/config.json").write_text(json.dumps(config))
        (self.folder / "empty").write_text("\n \t\n\n")
        (self.folder / "junk.training").write_bytes(b"no checkpoint at all")
        for code, sentence, arguments in (
                (2, r"needs --text FILE, --qa FILE, --stream FILE or --images", ("student", "out")),
                (2, r"there is nothing to learn from", ("student", "out", "--text", "texts")),
                (2, r"need --teacher", ("student", "out", "--text", "texts", "--loss", "cosine=1")),
                (2, r"--loss: 'warmth=1' is not labels", ("student", "out", *self.SHORT, "--loss",
                                                         "warmth=1")),
                (2, r"--rate: 'fast' is not a number", ("student", "out", *self.SHORT, "--rate",
                                                       "fast")),
                (2, r"--dropout: '1' is not a number of 0 to below 1",
                 ("student", "out", *self.SHORT, "--dropout", "1")),
                (2, r"--refresh: --dense lets layers be dense",
                 ("student", "out", *self.SHORT, "--refresh", "2", "--dense")),
                (2, r"--refresh-until: 1.5 is over 1",
                 ("student", "out", *self.SHORT, "--refresh", "2", "--refresh-until", "1.5")),
                (2, r"--epochs, --steps and --minutes exclude each other",
                 ("student", "out", *self.SHORT, "--minutes", "1")),
                (2, r"--report needs --metrics", ("student", "out", *self.SHORT, "--report", "page")),
                (3, r"texts exists; --force", ("student", "out", *self.SHORT, "--metrics", "m",
                                               "--report", "texts")),
                (3, r"student exists", ("model", "student", *self.SHORT)),
                (3, r"nothing", ("student", "out", "--text", "nothing", "--teacher", "model")),
                (4, r"lost.json: data\[0\].paragraphs\[0\].qas\[0\].answers\[0\]: the answer .nowhere. of "
                    r"question 1 does not stand at character", ("model", "out", "--qa", "lost.json")),
                (4, r"empty: there is no example in it",
                 ("student", "out", "--text", "empty", "--teacher", "model")),
                (4, r"texts: 40 examples; --held-out 40 leaves none",
                 ("student", "out", *self.SHORT, "--held-out", "40")),
                (2, r"--epochs: '0' is not a number over 0",
                 ("student", "out", "--text", "texts", "--teacher", "model", "--epochs", "0")),
                (2, r"epochs is 1e\+300",
                 ("student", "out", "--text", "texts", "--teacher", "model", "--epochs", "1e300")),
                (2, r"--temperature: '0' is not a number over 0",
                 ("student", "out", *self.SHORT, "--temperature", "0")),
                (2, r"logits were given to a model without a head",
                 ("student", "out", *self.SHORT, "--loss", "logits=1")),
                (2, r"--max-tokens: 161; student has 160 positions",
                 ("student", "out", *self.SHORT, "--max-tokens", "161")),
                (3, r"no/where/out", ("student", "no/where/out", *self.SHORT)),
                (5, r"model_type 'strange' is not supported; "
                 r"bert, .*gpt_neo, opt, llama, .*, cohere2, .*, dots1, .*vit, .* and \w+ are$",
                 ("strange", "out", *self.SHORT)),
                (4, r"was expected by config.json", ("wide", "out", *self.SHORT)),
                (5, r"is quantised", ("integers", "out", *self.SHORT)),
                (4, r"junk.training", ("student", "junk", *self.SHORT, "--resume"))):
            with self.subTest(arguments=arguments):
                self.bad(code, sentence, "train", *arguments)
                self.assertFalse((self.folder / "out").exists())

    def test_contexts_are_cut_to_the_positions(self):
        context = " ".join(tiny_bert.sentences(60))
        answer = {"text": context[:4], "answer_start": 0}
        (self.folder / "long.json").write_text(json.dumps({"data": [{"paragraphs": [
            {"context": context, "qas": [{**QUESTION, "answers": [answer]}]}]}]}))
        found = self.json("train", "model", "qa", "--qa", "long.json", "--steps", "1", "--tokens",
                          "160", "--threads", "1")
        self.assertGreater(found["tokens"], 160)

    def test_a_folder_with_a_slash(self):
        self.good("train", "student", "out/", *self.SHORT, "--checkpoint-steps", "5")
        self.assertTrue(self.json("check", "out")["ok"])
        self.assertFalse((self.folder / "out.training").exists())

    def test_metrics_that_cannot_be_written_are_said(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.bad(3, r"out is written, but lines of --metrics /dev/full are missing",
                 "train", "student", "out", *self.SHORT, "--metrics", "/dev/full")
        self.assertTrue((self.folder / "out").exists())

    def test_interrupted_it_says_how_to_go_on(self):
        process = subprocess.Popen(
            [PROGRAM, "train", "student", "out", *self.SHORT[:4], "--steps", "1000000",
             "--checkpoint-steps", "1", "--quiet"], cwd=self.folder, env=clean_environment(),
            stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + PATIENCE
        while not (self.folder / "out.training").exists() and time.monotonic() < end:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
        self.assertEqual(process.returncode, 130, error)
        self.assertRegex(error, r"interrupted at step \d+; --resume goes on from out.training")

    def test_a_loss_that_is_no_number_stops_it(self):
        self.bad(4, r"(loss|norm) is .* at step \d+ .*nothing of it was applied", "train", "model", "out",
                 "--qa", "qa.json", "--steps", "20", "--batch", "1", "--rate", "1e30", "--warmup", "0",
                 "--clip", "0", "--max-tokens", "32", "--threads", "1")
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
