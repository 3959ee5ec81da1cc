#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nanoGPT's baby model of characters, trained on Shakespeare with every method of sparse24 train:
a table of losses next to dense, and a page with the curves.

Drives the sparse24 command line through --json, as any script would; only this file's standard
library is needed. tools/methods calls it after it has set up and built.
"""
import argparse
import concurrent.futures
import html
import json
import math
import os
import pathlib
import statistics
import sys
import threading
import time

from demo import Tool
from demo_inputs import ROOT, DemoError

TEXT = "tinyshakespeare.txt"
# small: two cores in ten minutes; baby: nanoGPT's, for a GPU.
SIZES = {"small": {"layers": 3, "heads": 4, "width": 96, "context": 64, "dropout": 0.0, "batch": 16,
                   "steps": 600, "rate": 3e-3, "held_out": 200, "every": 100},
         "baby": {"layers": 6, "heads": 6, "width": 384, "context": 256, "dropout": 0.2,
                  "batch": 64, "steps": 5000, "rate": 1e-3, "held_out": 400, "every": 250}}
# Method, its numbers, how it begins: s from scratch, t from the dense model, which teaches it, d
# from the dense model with a rate ten times as large, r from scratch with squared ReLU.
RUNS = {"dense": ("dense", "", "s"), "dense-relu2": ("dense", "", "r"),
        "ste": ("ste", "", "s"), "sr-ste": ("sr-ste", "", "s"),
        "s-ste": ("s-ste", "", "s"), "fst": ("fst", "tail=0", "s"),
        "fst-dense-tail": ("fst", "", "s"), "step": ("step", "", "s"), "cast": ("cast", "", "t"),
        "semi-sparse": ("semi-sparse", "", "s"),
        "semi-sparse-activation": ("semi-sparse-activation", "", "s"),
        "squared-relu": ("squared-relu", "", "r"), "multimask": ("multimask", "", "s"),
        "maskllm": ("maskllm", "", "d")}
PRUNED = ("magnitude", "sparsegpt")  # of the dense one, without training


# ---- inputs -------------------------------------------------------------------------------------


def find_text(options):
    named = os.environ.get("SPARSE24_DATA")
    folder = pathlib.Path(named) if named else ROOT.parent / "shared/data"
    path = options.text or folder / "text" / TEXT
    if not path.exists():
        raise DemoError(f"{path} is not here; --text FILE names one, the environment variable "
                        "SPARSE24_DATA the folder with text/")
    return path.read_text(encoding="utf-8")


def write_config(folder, size, text, activation):
    """A folder as train --from-scratch takes it: a model's shape, and characters as tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {" ": "Ġ", "\n": "Ċ"}
    chars = sorted(set(text))
    if not all(0x20 <= ord(c) < 0x7f or c == "\n" for c in chars):
        raise DemoError("the text has characters beyond ASCII: tokens are single bytes here")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
              "n_embd": size["width"], "n_head": size["heads"], "n_layer": size["layers"],
              "n_positions": size["context"], "vocab_size": len(chars),
              "activation_function": activation, "layer_norm_epsilon": 1e-5,
              "resid_pdrop": size["dropout"], "attn_pdrop": size["dropout"],
              "initializer_range": 0.02, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {names.get(c, c): i for i, c in enumerate(chars)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    return folder


def write_texts(options, text, size):
    """What is trained on, held out and scored: the last tenth of the text is not trained on."""
    out, used = options.out, int(0.9 * len(text))
    held = text[used:used + size["held_out"] * size["context"]]
    (out / "text.txt").write_text(text[:used // size["context"] * size["context"]] + held)
    (out / "held.txt").write_text(held)
    lines = [line for line in text[:used].split("\n\n") if len(line) >= 32]
    (out / "lines.txt").write_text("\n".join(" ".join(line.split()) for line in lines[:256]))


# ---- runs ---------------------------------------------------------------------------------------


class Work:
    def __init__(self, options, tool, size):
        self.options, self.tool, self.size, self.out = options, tool, size, options.out
        self.runs = dict(RUNS, **dict(options.also))
        text = find_text(options)
        write_texts(options, text, size)
        self.configs = {how: write_config(self.out / f"config-{name}", size, text, activation)
                        for how, name, activation in (("s", "gelu", "gelu_new"),
                                                      ("r", "relu2", "relu2"))}

    def common(self):
        o = self.options
        return [f"--{name}={value}" for name, value in
                (("device", o.device), ("threads", o.threads)) if value]

    def train(self, name, seed):
        method, numbers, begins = self.runs[name]
        size, folder = self.size, self.out / f"{name}-{seed}"
        dense = self.out / f"dense-{seed}"
        metrics = self.out / f"{name}-{seed}.jsonl"
        metrics.unlink(missing_ok=True)
        start = dense if begins in "dt" else self.configs[begins]
        more = ["--from-scratch"] if begins not in "dt" else []
        more += ["--teacher", dense] if begins == "t" else []
        more += ["--numbers", numbers] if numbers else []
        rate = size["rate"] * (10 if begins == "d" else 1)
        self.tool("train", start, folder, "--stream", self.out / "text.txt", "--method", method,
                  "--max-tokens", size["context"], "--batch", size["batch"], "--seed", seed,
                  "--steps", self.options.steps or size["steps"], "--decay", "0.1", "--warmup",
                  "0.02", "--schedule", "cosine", "--rate", rate, "--held-out",
                  size["held_out"], "--checkpoint-steps", size["every"], "--metrics", metrics,
                  "--dropout", size["dropout"], "--force", *more, *self.common())
        return folder, [json.loads(line) for line in metrics.read_text().splitlines()]

    def score(self, folder):
        return self.tool("eval", folder, "--task", "lm", "--data", self.out / "held.txt",
                         "--max-tokens", self.size["context"], *self.common())["loss"]

    def is_two_four(self, folder):
        return self.tool("check", folder, accept=(0, 1))["ok"]

    def measure(self, name, seed):
        (folder, lines), begins = self.train(name, seed), self.runs[name][2]
        curve = [(line["step"], line["held_out"]) for line in lines if line["held_out"] is not None]
        flips = [line["flips"] for line in lines if line["flips"] is not None]
        # A teacher's losses have its own term.
        best = None if begins == "t" else min(value for _, value in curve)
        return {"name": name, "seed": seed, "curve": curve, "loss": self.score(folder),
                "best": best, "two_four": self.is_two_four(folder),
                "flips": statistics.fmean(flips) if flips else None,
                "seconds": lines[-1]["seconds"], "kept": lines[-1]["kept"],
                "beta": lines[-1]["beta"]}

    def prune(self, criterion, seed):
        folder = self.out / f"{criterion}-{seed}"
        more = ["--calibration", self.out / "lines.txt"] if criterion == "sparsegpt" else []
        self.tool("prune", self.out / f"dense-{seed}", folder, "--method", criterion, "--force",
                  *more)
        return {"name": criterion, "seed": seed, "curve": [], "loss": self.score(folder),
                "best": None, "two_four": self.is_two_four(folder), "seconds": None, "flips": None,
                "kept": None, "beta": None}


class Rows:
    """What each run gave, told and kept in rows.jsonl as soon as it ends: a later fault or a stop
    takes nothing of it."""

    def __init__(self, work, count):
        self.work, self.count, self.number, self.lock = work, count, 0, threading.Lock()
        self.file = work.out / "rows.jsonl"
        self.file.unlink(missing_ok=True)

    def make(self, job):
        (name, seed), since = job, time.monotonic()
        make = self.work.prune if name in PRUNED else self.work.measure
        row = make(name, seed)
        with self.lock, self.file.open("a") as file:
            self.number += 1
            file.write(json.dumps(row) + "\n")
            print(f"[{self.number}/{self.count}] {name}, seed {seed}: loss {row['loss']:.4f} "
                  f"({time.monotonic() - since:.1f} s)", flush=True)
        return row


def run(options, tool):
    size = SIZES[options.size]
    work, seeds = Work(options, tool, size), range(1, options.seeds + 1)
    names = [name for name in RUNS if name in options.methods and name != "dense"]
    names += [name for name, _ in options.also]
    # The dense models come first: others begin with them.
    stages = [[("dense", seed) for seed in seeds],
              [(name, seed) for seed in seeds for name in [*names, *PRUNED]]]
    rows = Rows(work, sum(map(len, stages)))
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        made = [row for stage in stages for row in list(pool.map(rows.make, stage))]
    return {"program": tool.version(), "size": dict(size, steps=options.steps or size["steps"]),
            "rows": made}


# ---- the table and the page ---------------------------------------------------------------------


HEAD = ["", "loss", "next to dense", "lowest on the way", "2:4", "flips a choice", "kept", "s"]


def shown(value, form):
    return "" if value is None else format(value, form)


def mean(rows, key):
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.fmean(values) if values else None


def cells(result):
    """A line for each method: the means over its seeds."""
    by_name = {}
    for row in result["rows"]:
        by_name.setdefault(row["name"], []).append(row)
    dense = mean(by_name["dense"], "loss")
    return [[name, shown(mean(rows, "loss"), ".4f"), shown(mean(rows, "loss") - dense, "+.4f"),
             shown(mean(rows, "best"), ".4f"), "yes" if all(r["two_four"] for r in rows) else "no",
             shown(mean(rows, "flips"), ".5f"), shown(mean(rows, "kept"), ".3f"),
             shown(mean(rows, "seconds"), ".0f")] for name, rows in by_name.items()]


def table(result):
    lines = [HEAD, *cells(result)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(widths[0]) if i == 0 else c.rjust(widths[i])
                               for i, c in enumerate(line)) for line in lines)


def curves(rows):
    """The first seed's held-out losses by step, as one picture."""
    drawn = [row for row in rows if row["seed"] == 1 and row["best"] is not None]
    points = [point for row in drawn for point in row["curve"]]
    last = max(step for step, _ in points)
    low, high = min(v for _, v in points), max(v for _, v in points)
    span = high - low or 1
    parts = []
    for i, row in enumerate(drawn):
        colour = f"hsl({360 * i // len(drawn)} 70% 40%)"
        line = " ".join(f"{20 + 600 * step / last:.1f},{20 + 300 * (high - value) / span:.1f}"
                        for step, value in row["curve"])
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{line}"/><text x="640" '
                     f'y="{20 + 18 * i}" fill="{colour}">{html.escape(row["name"])}</text>')
    return (f'<svg viewBox="0 0 840 360" role="img" aria-label="held-out losses by step">'
            f'<text x="20" y="345">step 0 to {last}, loss {low:.3f} to {high:.3f}</text>'
            f'{"".join(parts)}</svg>')


def page(result):
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
                   for line in cells(result))
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEAD)
    shape = ", ".join(f"{name} {value}" for name, value in result["size"].items())
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>Training in 2:4</title>'
            "<style>body{font:16px sans-serif;margin:2em}td,th{padding:0 .6em;text-align:right}"
            "td:first-child{text-align:left}</style><h1>Training in 2:4</h1>"
            f"<p>Characters of Shakespeare: {html.escape(shape)}. {html.escape(result['program'])}."
            f"</p><table><tr>{head}</tr>{body}</table>{curves(result['rows'])}</html>\n")


# ---- the command --------------------------------------------------------------------------------


def method_list(text):
    names = text.split(",")
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(RUNS)}")
    return ["dense", *names]


def other_numbers(text):
    """NAME:NUMBER=X,… as a run: NAME's, with these numbers in place of its own."""
    name, _, numbers = text.partition(":")
    if name not in RUNS or not numbers:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME:NUMBER=X,… with a NAME of "
                                         f"{', '.join(RUNS)}")
    method, own, begins = RUNS[name]
    merged = dict(pair.partition("=")[::2] for pair in f"{own},{numbers}".split(",") if pair)
    return text, (method, ",".join(f"{key}={value}" for key, value in merged.items()), begins)


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/methods", allow_abbrev=False,
        description="A language model of characters, trained with every method of sparse24 train.")
    parser.add_argument("--size", choices=SIZES, default="small",
                        help="small: ten minutes on two cores (default); baby: nanoGPT's, on a GPU")
    parser.add_argument("--methods", type=method_list, default=list(RUNS), metavar="LIST",
                        help=f"some of {', '.join(RUNS)}; dense is always one (default: all)")
    parser.add_argument("--also", type=other_numbers, action="append", default=[],
                        metavar="NAME:NUMBER=X,…",
                        help="one more row: NAME with these numbers of its method; may be repeated")
    parser.add_argument("--at-once", type=at_least_one, default=1, metavar="N",
                        help="how many runs go side by side, on a GPU that one does not fill "
                             "(default: 1)")
    parser.add_argument("--steps", type=int, help="of each run (default: the size's)")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method (default: 1)")
    parser.add_argument("--text", type=pathlib.Path, metavar="FILE",
                        help=f"ASCII (default: text/{TEXT} of the folder SPARSE24_DATA or "
                             "../shared/data)")
    parser.add_argument("--device", help="cuda: on a GPU (default: cpu)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "demo-out/methods",
                        help="default: demo-out/methods")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/sparse24",
                        help="the sparse24 to run (default: build/release/sparse24)")
    parser.add_argument("--prepare", action="store_true", help="find the inputs and stop")
    return parser.parse_args(argv)


def main(argv=None):
    options = arguments(argv)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.prepare:
            find_text(options)
            return 0
        result = run(options, Tool(options.program))
        if not all(math.isfinite(row["loss"]) for row in result["rows"]):
            raise DemoError("a loss is not finite")
        (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        (options.out / "report.html").write_text(page(result), encoding="utf-8")
        print(table(result))
        print(f"{options.out}/report.html has the curves")
        return 0
    except (DemoError, OSError) as error:
        print(f"methods: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
