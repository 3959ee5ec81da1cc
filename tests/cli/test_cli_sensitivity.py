# SPDX-License-Identifier: Apache-2.0
"""sensitivity: what it measures, what a budget proposes, what it refuses."""
import json
import os
import re
import shlex
import subprocess
import unittest

from cli_case import SOURCE, Scratch, listing, preloaded
import test_cli_eval
import tiny_bert

LAYERS = 6 * tiny_bert.LAYERS


class Sensitivity(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("\n".join(tiny_bert.sentences(24)) + "\n")

    def measured(self, *more, exit=0):
        return self.json("sensitivity", "model", "--calibration", "texts", *more, exit=exit)

    def holds(self, model, proposal):
        tensors = self.json("info", model)["tensors"]
        self.assertEqual({t["name"] for t in tensors if t["packed"]}, set(proposal["two_four"]))
        self.assertEqual({t["name"] for t in tensors if t.get("format") == "6:8"},
                         set(proposal["lifted"]))

    def stored_bytes(self, model, names):
        """Of weights, with what lies next to them under longer names."""
        data = (self.folder / model / "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        return sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items()
                   if name != "__metadata__" and any(name.startswith(n) for n in names))

    def test_each_pattern_of_each_layer_on_the_dense_inputs(self):
        before = listing(self.folder)
        found = self.measured("--method", "magnitude", "--patterns", "2:4,3:8,unstructured:0.25")
        self.assertEqual(listing(self.folder), before)
        self.assertEqual((found["method"], found["proposal"]), ("magnitude", None))
        self.assertEqual(len(found["layers"]), LAYERS)
        for layer in found["layers"]:
            kinds = [p["pattern"] for p in layer["patterns"]]
            self.assertEqual(kinds, ["2:4", "3:8", "unstructured:0.25"])
            half, three, most = [p["output_error"] for p in layer["patterns"]]
            self.assertTrue(0 < most < half < three < 1, layer)
        # The first block's inputs are the same whatever was pruned before it: nothing.
        pruned = self.json("prune", "model", "out", "--calibration", "texts")["layers"]
        alone = {layer["name"]: layer["patterns"][0] for layer in found["layers"]}
        for layer in pruned:
            if "layer.0.attention.self" in layer["name"]:
                self.assertAlmostEqual(layer["output_error"],
                                       alone[layer["name"]]["output_error"], places=6)

    def test_groups_that_do_not_fit_are_left_out(self):
        found = self.measured("--patterns", "2:4,5:24", "--include", "*.layer.0.*")
        for layer in found["layers"]:
            self.assertIsNone(layer["patterns"][1]["output_error"])
        shown = self.good("sensitivity", "model", "--calibration", "texts", "--patterns",
                          "2:4,5:24", "--include", "*.layer.0.*").stdout
        self.assertRegex(shown, r"(?m)^ +0\.\d{4} +- +0\.\d{5}  encoder\.layer\.0\.")
        self.assertRegex(shown, r"(?m)^ +0\.\d{4} +- +-  mean$")

    def test_a_model_that_memory_does_not_hold_is_measured_layer_by_layer(self):
        small = ("--patterns", "2:4", "--memory", "0.00001")
        run = self.good("sensitivity", "model", "--calibration", "texts", "--json", *small)
        self.assertIn("of 1e-05 GB that they may: layers' own errors stand for what", run.stderr)
        self.assertEqual({layer["patterns"][0]["model_error"]
                          for layer in json.loads(run.stdout)["layers"]}, {None})
        refused = self.measured("--price", "model", *small, exit=3)
        self.assertIn("of 1e-05 GB that they may; the price layer holds one block",
                      refused["error"])
        run = self.good("sensitivity", "model", "--calibration", "texts", "--json", "--patterns",
                        "2:4", "--memory", "1")
        self.assertRegex(run.stderr, r"takes [\d.e-]+ GB of memory, the weights of its blocks")
        self.assertTrue(all(layer["patterns"][0]["model_error"] > 0
                            for layer in json.loads(run.stdout)["layers"]))

    def test_a_budget_of_bytes_takes_the_layers_that_lose_least_for_each_byte(self):
        plan = self.measured("--patterns", "2:4", "--budget", "bytes=0.8")
        proposal = plan["proposal"]
        self.assertLessEqual(proposal["bytes"], 0.8)
        self.assertEqual(len(proposal["two_four"]) + len(proposal["dense"]), LAYERS)
        for key, found in (("model_error", plan), ("output_error", self.measured(
                "--patterns", "2:4", "--budget", "bytes=0.8", "--price", "layer"))):
            price = {layer["name"]: layer["patterns"][0][key] / layer["rows"] / layer["cols"]
                     for layer in found["layers"]}
            self.assertLessEqual(max(price[name] for name in found["proposal"]["two_four"]),
                                 min(price[name] for name in found["proposal"]["dense"]))
        self.assertTrue(all(p["model_error"] is None for layer in found["layers"]
                            for p in layer["patterns"]))
        all_of_them = self.measured("--budget", "bytes=0.54")["proposal"]
        self.assertEqual((all_of_them["lifted"], all_of_them["dense"]), ([], []))

    def test_a_budget_takes_6_to_8_where_2_to_4_costs_more_for_each_byte(self):
        mixed = self.measured("--budget", "bytes=0.8")
        proposal, alone = mixed["proposal"], self.measured("--patterns", "2:4", "--budget",
                                                           "bytes=0.8")["proposal"]
        self.assertLessEqual(proposal["bytes"], 0.8)
        self.assertTrue(proposal["lifted"])
        self.assertLess(proposal["output_error"], alone["output_error"])
        names = {kind: proposal[key] for kind, key in
                 (("2:4", "two_four"), ("6:8", "lifted"), ("dense", "dense"))}
        for kind, of_kind in names.items():
            self.assertEqual([layer["name"] for layer in mixed["layers"]
                              if layer["proposed"] == kind], of_kind)
        # 6:8 as packed: 12 of 16 columns, half of them values of 4 bytes, a byte for 8 columns.
        size = {"2:4": (2 + 1 / 8) / 4, "6:8": 1.5 * (2 + 1 / 8) / 4, "dense": 1}
        cells = {layer["name"]: layer["rows"] * layer["cols"] for layer in mixed["layers"]}
        self.assertAlmostEqual(
            sum(size[kind] * cells[name] for kind in names for name in names[kind]),
            proposal["bytes"] * sum(cells.values()), delta=1)

    def test_a_budget_takes_dense_columns_beside_2_to_4(self):
        found = self.measured("--patterns", "2:4,dense:16", "--budget", "bytes=0.7", "--recipe",
                              "cut.yaml")
        proposal = found["proposal"]
        self.assertTrue(proposal["lifted"])
        for layer in found["layers"]:
            half, cut = (p["output_error"] for p in layer["patterns"])
            self.assertLess(cut, half, layer)
        self.good("run", "cut.yaml", "model", "cut")
        tensors = self.json("info", "cut/model")["tensors"]
        self.assertEqual({t["name"] for t in tensors if t.get("format") == "dense:16"},
                         set(proposal["lifted"]))

    def test_integers_stand_next_to_patterns(self):
        found = self.measured("--patterns", "2:4,2:4+int8,int8,int4-g64,6:8+int4")
        for layer in found["layers"]:
            half, both, eight, four, _ = [p["output_error"] for p in layer["patterns"]]
            self.assertTrue(0 < eight < min(four, half), layer)
            self.assertTrue(0.7 < both / half < 1.1, layer)  # rounding makes good for zeros, too
        # What prune --quantize reports of the first layers is of the same inputs and target.
        pruned = self.json("prune", "model", "out", "--calibration", "texts", "--packed",
                           "--method", "sparsegpt", "--pattern", "6:8", "--quantize",
                           "int4")["layers"]
        alone = {layer["name"]: layer["patterns"][4]["output_error"] for layer in found["layers"]}
        for layer in pruned:
            if "layer.0.attention.self" in layer["name"]:
                self.assertAlmostEqual(layer["output_error"], alone[layer["name"]], places=6)

    def test_a_budget_of_bytes_proposes_integers(self):
        found = self.measured("--patterns", "2:4,2:4+int8,int8,int4-g64", "--budget",
                              "bytes=0.21", "--recipe", "r.yaml")
        proposal, layers = found["proposal"], found["layers"]
        kinds = {layer["proposed"] for layer in layers}
        self.assertTrue({"int8", "int4-g64"} <= kinds, kinds)
        self.assertLess(proposal["output_error"],
                        min(sum(layer["patterns"][i]["output_error"] for layer in layers)
                            for i in (0, 1)) / LAYERS)
        self.assertEqual(set(proposal["integers"]),
                         {layer["name"] for layer in layers if layer["proposed"][:3] == "int"})
        # Lines and recipe make it, as small as was said.
        shown = self.good("sensitivity", "model", "--calibration", "texts", "--patterns",
                          "2:4,2:4+int8,int8,int4-g64", "--budget", "bytes=0.21").stdout
        for line in shown.splitlines():
            if line.startswith("sparse24 "):
                self.good(*shlex.split(line)[1:])
        self.good("run", "r.yaml", "model", "ran")
        for model in ("OUT", "ran/model"):
            stored = self.stored_bytes(model, [layer["name"] for layer in layers])
            dense = sum(4 * layer["rows"] * layer["cols"] for layer in layers)
            self.assertAlmostEqual(stored / dense, proposal["bytes"], places=6)

    def test_all_refinements_are_those_that_a_pattern_takes(self):
        found = self.measured("--refine", "all", "--include", "*.layer.0.*")
        plain = self.measured("--include", "*.layer.0.*")
        for better, layer in zip(found["layers"], plain["layers"]):
            for after, before in zip(better["patterns"], layer["patterns"]):
                self.assertLessEqual(after["output_error"], before["output_error"] * 1.01)
        self.assertRegex(self.json("sensitivity", "model", "--calibration", "texts", "--refine",
                                   "swaps", "--patterns", "row:0.5", exit=5)["error"],
                         r"swaps.* is of N:M and unstructured alone")

    def test_a_budget_of_error_keeps_the_mean(self):
        whole = self.measured("--budget", "error=1")["proposal"]
        self.assertEqual(whole["dense"], [])
        part = self.measured("--patterns", "2:4", "--budget",
                             f"error={whole['output_error'] / 3}")["proposal"]
        self.assertTrue(0 < part["output_error"] <= whole["output_error"] / 3)
        self.assertTrue(part["dense"] and part["two_four"])

    def test_the_proposal_is_lines_that_run(self):
        shown = self.good("sensitivity", "model", "--calibration", "texts", "--budget",
                          "bytes=0.8").stdout.splitlines()
        self.assertRegex(shown[-3], r"^--budget bytes=0\.8: \d+ of 12 layers 2:4, "
                                    r"\d+ of 12 layers 6:8, 0\.\d+ of")
        proposal = self.measured("--budget", "bytes=0.8")["proposal"]
        for line, names in zip(shown[-2:], (proposal["two_four"], proposal["lifted"])):
            words = shlex.split(line)
            self.assertEqual(words[:2], ["sparse24", "prune"])
            found = self.json(*words[1:])
            self.assertEqual([layer["name"] for layer in found["layers"]], names)
        self.holds("OUT", proposal)
        shown = self.good("sensitivity", "model", "--calibration", "texts", "--samples", "8",
                          "--max-tokens", "9", "--budget", "bytes=0.8").stdout.splitlines()
        self.assertIn("--samples 8 --max-tokens 9", shown[-1])
        # All layers in one pattern need no names.
        shown = self.good("sensitivity", "model", "--calibration", "texts", "--budget",
                          "bytes=0.54").stdout.splitlines()
        self.assertNotIn("--include", shown[-1])

    def test_the_proposal_is_a_recipe_that_runs(self):
        found = self.measured("--budget", "bytes=0.8", "--exclude", "*layer.1.output*", "--recipe",
                              "r.yaml", "--report", "r.html")
        self.good("run", "r.yaml", "model", "out")
        proposal = found["proposal"]
        self.holds("out/model", proposal)
        page = (self.folder / "r.html").read_text(encoding="utf-8")
        self.assertEqual(page.count("<tr>"), LAYERS + 1)  # one less, a head and the mean
        self.assertEqual(page.count("<td>2:4</td>"), len(proposal["two_four"]))
        self.assertEqual(page.count("<td>6:8</td>"), len(proposal["lifted"]))
        done = self.json("sensitivity", "model", "--calibration", "texts", "--budget", "error=1",
                         "--recipe", "r.yaml", exit=3)
        self.assertIn("r.yaml exists; --force replaces it", done["error"])

    def test_refusals(self):
        self.refusals([
            ("no texts", ["sensitivity", "model"], 2, r"--calibration"),
            ("no pattern", ["sensitivity", "model", "--calibration", "texts", "--patterns",
                            "2:4,5"], 2, r"--patterns: '5' is no pattern"),
            ("no budget", ["sensitivity", "model", "--calibration", "texts", "--budget", "fast=2"],
             2, r"--budget: 'fast=2' is not bytes=SHARE, error=MEAN, speed=X or score=-X"),
            ("a budget without 2:4", ["sensitivity", "model", "--calibration", "texts",
                                      "--patterns", "4:8", "--budget", "bytes=0.9"], 2,
             r"--budget proposes 2:4, or 6:8 and its kin, or integers, none of which is among"),
            ("integers of what is not packed", ["sensitivity", "model", "--calibration", "texts",
                                                "--patterns", "4:8+int8"], 2,
             r"--patterns: '4:8\+int8' is no pattern"),
            ("no such integers", ["sensitivity", "model", "--calibration", "texts", "--patterns",
                                  "2:4+int9"], 2, r"--patterns: '2:4\+int9' is no pattern"),
            ("too small", ["sensitivity", "model", "--calibration", "texts", "--budget",
                           "bytes=0.3"], 2, r"bytes=0\.3 cannot be met.*0\.531 of their bytes"),
            ("a score of nothing", ["sensitivity", "model", "--calibration", "texts", "--budget",
                                    "score=-1"], 2, "score=-X and --task need one another"),
            ("a task for nothing", ["sensitivity", "model", "--calibration", "texts", "--budget",
                                    "bytes=1", "--task", "qa"], 2, "need one another"),
            ("no such price", ["sensitivity", "model", "--calibration", "texts", "--price",
                               "task"], 2, "--price.*model.*layer"),
            ("no budget to write", ["sensitivity", "model", "--calibration", "texts", "--recipe",
                                    "r.yaml"], 2, "--recipe is for --budget"),
            ("no model", ["sensitivity", "model/model.safetensors", "--calibration", "texts"], 2,
             r"single file"),
        ])


# In place of the machine: a pass takes 10 ms, less by what its 2:4 layers save, and a product of
# the command plan what its shape says, 2:4 a share of that. Nothing else takes any time.
MACHINE = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sparse24/nn.h>

static double now = 1;
static int is_plan;

__attribute__((constructor)) static void begin(void)
{
    char words[8192] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (!file) return;
    fread(words, 1, sizeof words - 1, file);
    fclose(file);
    is_plan = !strcmp(words + strlen(words) + 1, "plan");
}
static double number_of(const char *name)
{
    return atof(getenv(name));
}
static void spend(double share, const s24_dense *x, const s24_dense *y)
{
    if (is_plan) now += share * 1e-7 * (double)(x->cols * y->cols);
}
int clock_gettime(clockid_t id, struct timespec *at)
{
    (void)id;
    now += 1e-6;
    at->tv_sec = (time_t)now;
    at->tv_nsec = (long)(1e9 * (now - (double)at->tv_sec));
    return 0;
}
int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)time;
    (void)left;
    return 0;
}
s24_status s24_session_forward(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs)
{
    s24_status (*forward)(s24_session *, s24_ctx *, const s24_batch *, const s24_outputs *);
    *(void **)&forward = dlsym(RTLD_NEXT, "s24_session_forward");
    const double layers = (double)s24_session_sparse_layers(session, batch->offsets[batch->texts]);
    const double then = now + 1e-2 - 1e-3 * number_of("SAVES") * pow(layers, number_of("POWER"));
    const s24_status status = forward(session, ctx, batch, outputs);
    now = then;
    return status;
}
s24_status s24_plan_run(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args)
{
    s24_status (*run)(s24_ctx *, const s24_plan *, const s24_linear_args *);
    *(void **)&run = dlsym(RTLD_NEXT, "s24_plan_run");
    spend(number_of("PLAN"), args->x, args->y);
    return run(ctx, plan, args);
}
s24_status s24_dense_linear_run(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *y,
                                const s24_dense *x, const s24_dense *residual)
{
    s24_status (*run)(s24_dense_linear *, s24_ctx *, const s24_dense *, const s24_dense *,
                      const s24_dense *);
    *(void **)&run = dlsym(RTLD_NEXT, "s24_dense_linear_run");
    spend(1, x, y);
    return run(linear, ctx, y, x, residual);
}
"""


class Speed(Scratch):
    """On a machine whose times are known exactly."""
    @staticmethod
    def make(folder):
        Sensitivity.make(folder)
        subprocess.run([os.environ["CC"], "-shared", "-fPIC", "-I", SOURCE / "include", "-x", "c",
                        "-", "-o", folder / "machine.so", "-ldl", "-lm"], input=MACHINE, text=True,
                       check=True)

    def measured(self, *more, saves, power=1, plan=0.5, **how):
        return self.json("sensitivity", "model", "--calibration", "texts", "--threads", "1",
                         "--tokens", "16", *more,
                         environment={**preloaded(self.folder / "machine.so"),
                                      "XDG_CACHE_HOME": str(self.folder / "cache"),
                                      "SAVES": str(saves), "POWER": str(power),
                                      "PLAN": str(plan)}, **how)

    def test_layers_are_taken_until_they_run_as_fast(self):
        whole = self.measured("--budget", "speed=1.9", "--patterns", "2:4", saves=0.4)["proposal"]
        self.assertEqual(whole["dense"], [])
        self.assertAlmostEqual(whole["measured_speed"], 10 / (10 - 0.4 * LAYERS), delta=0.01)
        part = self.measured("--patterns", "2:4", "--budget", "speed=1.3", saves=0.4)
        proposal = part["proposal"]
        self.assertTrue(1.29 <= proposal["measured_speed"] < 1.5 and proposal["dense"], proposal)
        self.assertAlmostEqual(proposal["speed"], proposal["measured_speed"], delta=0.1)
        # Query, key and value run as one product, if they are alike.
        errors, cells = {}, {}
        for layer in part["layers"]:
            unit = re.sub("query|key|value", "qkv", layer["name"])
            errors[unit] = errors.get(unit, 0) + layer["patterns"][0]["model_error"]
            cells[unit] = cells.get(unit, 0) + layer["rows"] * layer["cols"]
        kinds = {kind: {re.sub("query|key|value", "qkv", name) for name in proposal[kind]}
                 for kind in ("two_four", "dense")}
        self.assertEqual(kinds["two_four"] & kinds["dense"], set())
        price = {unit: errors[unit] / cells[unit] for unit in errors}
        self.assertLessEqual(max(price[unit] for unit in kinds["two_four"]),
                             min(price[unit] for unit in kinds["dense"]))
        done = self.measured("--budget", "speed=3", "--patterns", "2:4", saves=0.4, exit=2)
        self.assertRegex(done["error"], r"speed=3 cannot be met: .* runs 1\.92 times as fast")

    def test_passes_say_what_plan_does_not_know(self):
        for plan, power in ((1, 1), (3, 1), (0.01, 1), (0.5, 2), (1, 2), (0.5, 0.5)):
            with self.subTest(plan=plan, power=power):
                saves = 4.8 / LAYERS**power
                steps = [(10 / (10 - saves * n**power), n) for n in range(LAYERS + 1)]
                found = self.measured("--patterns", "2:4", "--budget", "speed=1.3", saves=saves,
                                      power=power, plan=plan)["proposal"]
                least = min(n for speed, n in steps if speed >= 0.995 * 1.3)
                self.assertGreaterEqual(found["measured_speed"], 0.995 * 1.3)
                # No more than a step of three layers beyond what is enough.
                self.assertLess(len(found["two_four"]), least + 3)

    def test_what_saves_as_much_and_loses_less_is_taken(self):
        found = self.measured("--patterns", "2:4,6:8", "--budget", "speed=1.5", saves=0.4,
                              plan=1)["proposal"]
        self.assertEqual(found["two_four"], [])
        self.assertTrue(found["lifted"])

    def test_what_is_slower_2_to_4_stays_dense(self):
        done = self.measured("--budget", "speed=1.1", saves=-0.2, exit=2)
        self.assertRegex(done["error"], r"cannot be met: .* runs 1\.00 times as fast")
        found = self.measured("--budget", "speed=1", saves=-0.2)["proposal"]
        self.assertEqual((found["two_four"], found["lifted"]), ([], []))


class Score(Scratch):
    @staticmethod
    def make(folder):
        test_cli_eval.make(folder)
        (folder / "texts").write_text("the cat sat\nwhat is here\n")

    def proposal(self, budget, exit=0):
        return self.json("sensitivity", "model", "--calibration", "texts", "--method",
                         "magnitude", "--budget", budget, "--task", "qa", "--data", "dev.json",
                         "--recipe", "r.yaml", "--force", exit=exit)["proposal"]

    def test_as_many_layers_as_the_score_allows(self):
        whole = self.proposal("score=-100")
        self.assertEqual(whole["dense"], [])
        allowed = abs(whole["dense_score"] - whole["score"]) / 2
        part = self.proposal(f"score=-{allowed}")
        self.assertGreaterEqual(part["score"], part["dense_score"] - allowed)
        # What was measured is what the recipe makes.
        self.good("run", "r.yaml", "model", "out")
        found = self.json("eval", "out/model", "--task", "qa", "--data", "dev.json", "--dense")
        self.assertAlmostEqual(found["f1"], part["score"], places=4)

    def test_a_score_that_cannot_be_measured_is_said(self):
        done = self.json("sensitivity", "encoder", "--calibration", "texts", "--budget",
                         "score=-1", "--task", "qa", "--data", "dev.json", exit=5)
        self.assertIn("eval: encoder has no question-answering head", done["error"])


if __name__ == "__main__":
    unittest.main()
