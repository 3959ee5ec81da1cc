# SPDX-License-Identifier: Apache-2.0
"""run: recipes carried out and gone on with, llm-compressor's, and what is refused by line."""
import contextlib
import os
import signal
import subprocess
import time
import unittest

from cli_case import PROGRAM, Scratch, clean_environment, listing
import test_cli_eval

OWN = """\
stages:
- prune:
    method: sparsegpt
    calibration: $CALIBRATION
    refine: [swaps, least-squares]
- train: {qa: dev.json, steps: 2, max-tokens: 64, teacher: $MODEL}
- pack
measure:
- eval: {task: qa, data: dev.json, max-tokens: 64, predictions: $OUT/answers.json}
- bench: {batch: 1, seq: 8, rounds: 1, min-ms: 1}
"""
ITERATE = """\
stages:
- iterate:
    rounds: 3
    share: 0.8
    stages:
    - prune: {pattern: 'unstructured:$SHARE', seed: $ROUND, method: random}
"""
FOREIGN = """\
sparsity_stage:
  run_type: oneshot
  sparsity_modifiers:
    SparseGPTModifier:
      sparsity: 0.5
      mask_structure: "2:4"
      sequential_update: true
      targets: ['re:encoder.layer.\\d*$']
      ignore: ['re:.*intermediate.*']
finetuning_stage:
  finetuning_modifiers:
    ConstantPruningModifier: {targets: ['re:.*query.weight'], start: 0}
quantization_stage:
  quantization_modifiers:
    GPTQModifier:
      ignore: ["lm_head", "re:.*intermediate.*"]
      config_groups:
        group_0:
          weights: {num_bits: 4, type: "int", symmetric: true, strategy: "channel"}
          targets: ["Linear"]
"""
STAGES = ["1-prune", "2-train", "3-pack", "4-eval-dense", "4-eval", "5-bench", "size-dense", "size"]


def make(folder):
    test_cli_eval.make(folder)
    (folder / "own.yaml").write_text(OWN)
    (folder / "iterate.yaml").write_text(ITERATE)
    (folder / "foreign.yaml").write_text(FOREIGN)
    (folder / "passages.txt").write_text("the cat sat\nwhat is here\n")


class Run(Scratch):
    make = staticmethod(make)

    def arguments(self, recipe, *more, out="out"):
        model = "model" if recipe == "own.yaml" else "encoder"  # only the one has answers
        return ["run", recipe, model, out, "--calibration", "passages.txt", *more]

    def test_all_of_it_and_again(self):
        found = self.json(*self.arguments("own.yaml"))
        self.assertEqual(set(found), {"version", "stages", "model", "report"})
        self.assertEqual(list(found["stages"]), STAGES)
        self.assertEqual(found["model"], "out/model")
        self.assertEqual(found["stages"]["2-train"]["step"], 2)
        self.assertLess(found["stages"]["size"]["bytes"], found["stages"]["size-dense"]["bytes"])
        again = self.json("eval", "model", "--task", "qa", "--data", "dev.json",
                          "--max-tokens", "64")
        self.assertEqual(found["stages"]["4-eval-dense"]["f1"], again["f1"])
        page = (self.folder / "out/report.html").read_text(encoding="utf-8")
        self.assertIn("--refine=swaps,least-squares", page)
        self.assertEqual(page.count("<polyline"), 1)
        # Nothing is run again but what is not there.
        (self.folder / "out/3-pack.json").unlink()
        before = listing(self.folder / "out")
        done = self.good(*self.arguments("own.yaml"))
        self.assertEqual(done.stderr.count("done before"), len(STAGES) - 1)
        self.assertRegex(done.stdout, r"f1 +\d")
        after = listing(self.folder / "out")
        for name in before.keys() - {"report.html"}:
            self.assertEqual(before[name], after[name], name)
        # Another recipe only where that is said.
        (self.folder / "own.yaml").write_text(OWN.replace("steps: 2", "steps: 1"))
        done = self.json(*self.arguments("own.yaml"), exit=2)
        self.assertIn("out is a run of another recipe", done["error"])
        self.assertEqual(listing(self.folder / "out"), after)
        found = self.json(*self.arguments("own.yaml", "--force"))
        self.assertEqual(found["stages"]["2-train"]["step"], 1)

    def test_rounds_reach_the_share_by_a_cubic_schedule(self):
        found = self.json(*self.arguments("iterate.yaml", "--check"))
        shares = [words[1] for words in found["recipe"]]
        self.assertEqual(shares, [f"--pattern=unstructured:{0.8 * (1 - (1 - r / 3) ** 3):.10g}"
                                  for r in (1, 2, 3)])
        self.assertEqual([words[2] for words in found["recipe"]],
                         [f"--seed={r}" for r in (1, 2, 3)])
        self.assertFalse((self.folder / "out").exists())

    def test_what_is_killed_goes_on(self):
        self.good(*self.arguments("own.yaml", out="whole"))
        process = subprocess.Popen([PROGRAM, *self.arguments("own.yaml")], cwd=self.folder,
                                   env=clean_environment(), stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, start_new_session=True)
        while not (self.folder / "out/1-prune.json").exists() and process.poll() is None:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = self.good(*self.arguments("own.yaml"))
        self.assertIn("1/8 prune: done before", done.stderr)
        self.assertEqual(listing(self.folder / "out/model"), listing(self.folder / "whole/model"))

    def test_a_recipe_of_llm_compressors(self):
        found = self.json(*self.arguments("foreign.yaml", "--check"))["recipe"]
        chosen = ["--include=encoder.layer.*", "--exclude=*intermediate*"]
        self.assertEqual(found, [
            ["prune", "--method=sparsegpt", "--pattern=2:4", "--packed",
             "--calibration=passages.txt", *chosen],
            ["pack", "--quantize=int4", "--calibration=passages.txt",
             "--exclude=lm_head*,*intermediate*"]])
        self.good(*self.arguments("foreign.yaml"))
        tensors = {t["name"]: t for t in self.json("info", "out/model")["tensors"]}
        self.assertEqual(tensors["encoder.layer.0.output.dense.weight"]["quantized"], "int4")
        self.assertFalse(tensors["encoder.layer.0.intermediate.dense.weight"]["packed"])

    def refuse(self, cases):
        """Cases of (text, exit code, pattern): the sentence begins with file and line."""
        table = []
        for i, (text, code, sentence) in enumerate(cases):
            (self.fixtures / f"bad{i}.yaml").write_text(text)
            table.append((text, self.arguments(f"bad{i}.yaml"), code,
                          rf"bad{i}\.yaml:{sentence}"))
        self.refusals(table)

    def test_refusals_of_our_own(self):
        stage = "stages:\n- prune: {method: magnitude}\n"
        self.refuse([
            ("stages: [\n", 4, "2: did not find expected node"),
            ("", 4, " there is nothing in it"),
            ("stages: 3\n", 4, "1: stages are a list"),
            ("what: 3\n", 4, "1: a recipe has no key 'what'; expected stages and measure"),
            (stage + "more: 3\n", 4, "3: a recipe has no key 'more'; expected stages"),
            (stage + "- prune2\n", 4, "3: 'prune2' is no stage; expected prune, train"),
            ("stages:\n- eval: {task: qa, data: dev.json}\n", 4, "1: no stage makes a model"),
            ("stages:\n- prune:\n    method: magnitude\n    patern: 2:4\n", 2,
             "4: prune has no option '--patern'; did you mean '--pattern'"),
            ("stages:\n- prune: {pat: 2:4}\n", 2, "2: prune has no option 'pat'"),
            ("stages:\n- prune:\n    method: none\n", 2, "3: option --method: 'none' is not one"),
            ("stages:\n- prune:\n    packed: yes\n", 2, "3: packed is 'yes'; expected true or"),
            ("stages:\n- prune:\n    force: true\n", 2, "3: force of prune is run's own to say"),
            ("stages:\n- prune: {seed: 1, seed: 2}\n", 4, "2: prune has seed twice"),
            ("stages:\n- prune: {refine: all}\n", 2, "2: .*--refine"),
            ("stages:\n- prune: {calibration: $NONE}\n", 2, r"2: \$NONE stands for nothing here"),
            ("stages:\n- prune: {pattern: 'row:$SHARE'}\n", 2, r"2: \$SHARE stands for nothing"),
            ("stages:\n- prune: {refine: {a: b}}\n", 4, "2: refine is neither a text nor a list"),
            ("stages:\n- {prune: , pack: }\n", 4, "2: a stage is one command"),
            ("stages:\n- iterate: {rounds: 0, stages: []}\n", 4, "2: iterate: rounds is a number"),
            ("stages:\n- iterate: {rounds: 2, share: 2, stages: []}\n", 4, "2: iterate: share is"),
            ("stages:\n- iterate: {rounds: 2, loops: 2}\n", 4, "2: iterate has no key 'loops'"),
            ("stages: &a\n- iterate: {rounds: 2, stages: *a}\n", 4, "2: iterate has stages, and"),
            (stage + "measure:\n- pack\n", 4, "4: 'pack' is no stage; expected eval, bench"),
            (stage + "- prune: {include: '*.0.*'}\n", 4,
             "3: prune writes 'encoder.layer.0.* which prune of line 2 writes too"),
            (stage + "- pack: {quantize: int8}\n- train: {qa: dev.json}\n", 4,
             "4: train is of floats, and pack of line 3 has made integers of them"),
        ])

    def test_refusals_of_llm_compressors(self):
        def of(name, *lines):
            body = "".join(f"      {line}\n" for line in lines)
            return f"a_stage:\n  b_modifiers:\n    {name}:\n{body}"
        half = ("sparsity: 0.5", "mask_structure: '2:4'")
        self.refuse([
            (of("SmoothQuantModifier", "smoothing_strength: 0.8"), 5,
             "3: SmoothQuantModifier is not carried out; expected SparseGPT"),
            (of("SparseGPTModifier", *half, "sparsity_profile: owl"), 5,
             "6: SparseGPTModifier: sparsity_profile is not carried out"),
            (of("SparseGPTModifier", *half, "hessians: 3"), 5,
             "6: SparseGPTModifier: hessians is not carried out"),
            (of("SparseGPTModifier", *half, "percdamp: 0.1"), 5, "6: .*percdamp is not carried"),
            (of("SparseGPTModifier", *half, "targets: ['re:.*(q|k)_proj']"), 5,
             r"6: 're:.*' is not carried out: a name, or"),
            (of("SparseGPTModifier", "sparsity: 0.5"), 5, "3: .*without a mask_structure N:M"),
            (of("WandaPruningModifier", "sparsity: 0.6", "mask_structure: '2:4'"), 4,
             "4: .*sparsity is not that of mask_structure 2:4"),
            (of("WandaPruningModifier", "mask_structure: '2-4'"), 4, "4: .*mask_structure is no"),
            (of("MagnitudePruningModifier", "init_sparsity: 0.1", *half), 5, "4: .*init_sparsity"),
            (of("GPTQModifier", "scheme: W4A4"), 5, "4: GPTQModifier: scheme is not carried out"),
            (of("GPTQModifier", "config_groups:", "  g:", "    weights: {num_bits: 3}"), 5,
             "6: weights are not carried out, but for symmetric int"),
            (of("GPTQModifier", "config_groups:", "  g:", "    input_activations: {num_bits: 8}"),
             5, "6: config_groups: input_activations is not carried out"),
            ("a_stage:\n  args: {x: 1}\n", 5, "2: args is not carried out"),
        ])
        (self.fixtures / "one.yaml").write_text(FOREIGN)
        self.refusals([("no passages", ["run", "one.yaml", "encoder", "out"], 2,
                        "one.yaml:4: SparseGPTModifier needs run's --calibration FILE")])

    def test_places(self):
        (self.fixtures / "full").mkdir()
        (self.fixtures / "full/precious").write_text("precious")
        self.refusals([
            ("no recipe", self.arguments("none.yaml"), 3, "none.yaml: No such"),
            ("no model", ["run", "iterate.yaml", "none", "out"], 3, "none: No such"),
            ("full", self.arguments("iterate.yaml", out="full"), 3, "is no run's folder"),
        ])


if __name__ == "__main__":
    unittest.main()
