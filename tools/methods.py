#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models trained with every method of sparse24 train, on one of the tasks of methods_tasks.py:
characters of Shakespeare, prose, images, questions; a table of scores next to dense, and a page
with the curves.

Drives the sparse24 command line through --json, as any script would; only Python's standard
library is needed. tools/methods calls it after it has set up and built.
"""
import argparse
import concurrent.futures
import html
import json
import math
import pathlib
import statistics
import sys
import threading
import time

from demo import Tool
from demo_inputs import ROOT, DemoError
from methods_tasks import TASKS


# ---- runs ---------------------------------------------------------------------------------------


class Work:
    def __init__(self, options, tool, task):
        self.options, self.tool, self.task, self.out = options, tool, task, options.out
        self.runs = dict(task.runs, **dict(options.also))
        task.write()

    def common(self):
        o = self.options
        return [f"--{name}={value}" for name, value in
                (("device", o.device), ("threads", o.threads)) if value]

    def train(self, name, seed):
        method, numbers, begins = self.runs[name]
        task, folder = self.task, self.out / f"{name}-{seed}"
        dense, metrics = self.out / f"dense-{seed}", self.out / f"{name}-{seed}.jsonl"
        metrics.unlink(missing_ok=True)
        learnt = begins in "dt"
        start = dense if learnt else task.starts[begins]
        more = ["--from-scratch"] if task.from_scratch and not learnt else []
        more += ["--teacher", dense] if begins == "t" else []
        more += ["--numbers", numbers] if numbers else []
        rate = task.size["rate"] * (10 if begins == "d" else 1)
        self.tool("train", start, folder, *task.flags(), "--method", method, "--seed", seed,
                  "--rate", rate, "--metrics", metrics, "--force", *more, *self.common())
        return folder, [json.loads(line) for line in metrics.read_text().splitlines()]

    def score(self, folder):
        return self.task.score(self.tool, folder, self.common())

    def is_two_four(self, folder):
        return self.tool("check", folder, accept=(0, 1))["ok"]

    def measure(self, name, seed):
        (folder, lines), begins = self.train(name, seed), self.runs[name][2]
        curve = [(line["step"], line["held_out"]) for line in lines if line["held_out"] is not None]
        # A teacher's losses have its own term.
        best = None if begins == "t" else min(value for _, value in curve)
        return {"name": name, "seed": seed, "curve": curve, "score": self.score(folder),
                "best": best, "two_four": self.is_two_four(folder), **means(lines),
                "step_ms": step_ms(lines), "seconds": lines[-1]["seconds"],
                "kept": lines[-1]["kept"], "beta": lines[-1]["beta"]}

    def prune(self, criterion, seed):
        folder = self.out / f"{criterion}-{seed}"
        more = ["--calibration", self.out / "lines.txt"] if criterion == "sparsegpt" else []
        self.tool("prune", self.out / f"dense-{seed}", folder, "--method", criterion, "--force",
                  *more)
        return {"name": criterion, "seed": seed, "curve": [], "score": self.score(folder),
                "two_four": self.is_two_four(folder), **dict.fromkeys(NOT_TRAINED)}


NOT_TRAINED = ("best", "flips", "noise", "overhead", "step_ms", "seconds", "kept", "beta")


def means(lines):
    """Of what a run told, over its steps."""
    told = {}
    for key in ("flips", "noise", "overhead"):
        values = [line[key] for line in lines if line[key] is not None]
        told[key] = statistics.fmean(values) if values else None
    return told


def step_ms(lines):
    """The median time between two steps, without the first ones and those that were measured."""
    ends = [line["seconds"] for line in lines]
    each = [b - a for a, b, line in zip(ends[2:], ends[3:], lines[2:]) if line["held_out"] is None]
    return 1e3 * statistics.median(each) if each else None


class Rows:
    """What each run gave, told and kept in rows.jsonl as soon as it ends: a later fault or a stop
    takes nothing of it."""

    def __init__(self, work, count):
        self.work, self.count, self.number, self.lock = work, count, 0, threading.Lock()
        self.file = work.out / "rows.jsonl"
        self.file.unlink(missing_ok=True)

    def make(self, job):
        (name, seed), since = job, time.monotonic()
        make = self.work.prune if name in self.work.task.pruned else self.work.measure
        row = make(name, seed)
        with self.lock, self.file.open("a") as file:
            self.number += 1
            file.write(json.dumps(row) + "\n")
            print(f"[{self.number}/{self.count}] {name}, seed {seed}: {self.work.task.measure} "
                  f"{row['score']:.4f} ({time.monotonic() - since:.1f} s)", flush=True)
        return row


def run(options, tool, task):
    work, seeds = Work(options, tool, task), range(1, options.seeds + 1)
    names = [name for name in task.runs if name in options.methods and name != "dense"]
    names += [name for name, _ in options.also]
    # The dense models come first: others begin with them.
    stages = [[("dense", seed) for seed in seeds],
              [(name, seed) for seed in seeds for name in [*names, *task.pruned]]]
    rows = Rows(work, sum(map(len, stages)))
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        made = [row for stage in stages for row in list(pool.map(rows.make, stage))]
    return {"program": tool.version(), "task": options.task, "measure": task.measure,
            "size": dict(task.size, steps=options.steps or task.size["steps"]), "rows": made}


# ---- the table and the page ---------------------------------------------------------------------


HEAD = ["", "score", "next to dense", "lowest loss on the way", "2:4", "flips a choice", "kept",
        "noise", "overhead", "ms a step", "s"]


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
    dense = mean(by_name["dense"], "score")
    return [[name, shown(mean(rows, "score"), ".4f"), shown(mean(rows, "score") - dense, "+.4f"),
             shown(mean(rows, "best"), ".4f"), "yes" if all(r["two_four"] for r in rows) else "no",
             shown(mean(rows, "flips"), ".5f"), shown(mean(rows, "kept"), ".3f"),
             shown(mean(rows, "noise"), ".3f"), shown(mean(rows, "overhead"), ".4f"),
             shown(mean(rows, "step_ms"), ".2f"), shown(mean(rows, "seconds"), ".0f")]
            for name, rows in by_name.items()]


def table(result):
    lines = [[result["measure"] if name == "score" else name for name in HEAD], *cells(result)]
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
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in
                   (result["measure"] if name == "score" else name for name in HEAD))
    shape = ", ".join(f"{name} {value}" for name, value in result["size"].items())
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>Training in 2:4</title>'
            "<style>body{font:16px sans-serif;margin:2em}td,th{padding:0 .6em;text-align:right}"
            "td:first-child{text-align:left}</style><h1>Training in 2:4</h1>"
            f"<p>{html.escape(result['task'])}: {html.escape(shape)}. "
            f"{html.escape(result['program'])}."
            f"</p><table><tr>{head}</tr>{body}</table>{curves(result['rows'])}</html>\n")


# ---- the command --------------------------------------------------------------------------------


def fit(parser, options):
    """What depends on the task: its size, its runs, other numbers of these."""
    task = TASKS[options.task]
    if options.size not in task.sizes:
        parser.error(f"--size: '{options.size}' is none of {', '.join(task.sizes)}, "
                     f"{options.task}'s")
    names = options.methods.split(",") if options.methods else getattr(task, "usual", task.runs)
    for name in names:
        if name not in task.runs:
            parser.error(f"--methods: '{name}' is none of {', '.join(task.runs)}")
    options.methods = ["dense", *names]
    try:
        options.also = [other_numbers(text, task.runs) for text in options.also]
    except ValueError as error:
        parser.error(f"--also: {error}")
    return task(options, task.sizes[options.size])


def other_numbers(text, runs):
    """NAME:NUMBER=X,… as a run: NAME's, with these numbers in place of its own."""
    name, _, numbers = text.partition(":")
    if name not in runs or not numbers:
        raise ValueError(f"'{text}' is not NAME:NUMBER=X,… with a NAME of {', '.join(runs)}")
    method, own, begins = runs[name]
    merged = dict(pair.partition("=")[::2] for pair in f"{own},{numbers}".split(",") if pair)
    return text, (method, ",".join(f"{key}={value}" for key, value in merged.items()), begins)


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def arguments(argv):
    path = pathlib.Path
    parser = argparse.ArgumentParser(
        prog="tools/methods", allow_abbrev=False,
        description="Models trained with every method of sparse24 train, next to dense.")
    parser.add_argument("--task", choices=TASKS, default="chars",
                        help="; ".join(f"{name}: {' '.join(task.__doc__.split())}"
                                       for name, task in TASKS.items()) + " Default: chars.")
    parser.add_argument("--size", default="small", metavar="NAME",
                        help="small: ten minutes on two cores (default); for a GPU "
                             + ", ".join(f"{list(task.sizes)[1]} ({name})"
                                         for name, task in TASKS.items()))
    parser.add_argument("--methods", metavar="LIST",
                        help="some of the task's; dense is always one (default: all that its table "
                             "has). " + "; ".join(f"{name}: {', '.join(task.runs)}"
                                                  for name, task in TASKS.items()))
    parser.add_argument("--also", action="append", default=[], metavar="NAME:NUMBER=X,…",
                        help="one more row: NAME with these numbers of its method; may be repeated")
    parser.add_argument("--at-once", type=at_least_one, default=1, metavar="N",
                        help="how many runs go side by side, on a GPU that one does not fill "
                             "(default: 1)")
    parser.add_argument("--steps", type=at_least_one, help="of each run (default: the size's)")
    parser.add_argument("--seeds", type=at_least_one, default=1,
                        help="runs of each method (default: 1)")
    for name, said in (("text", "chars: ASCII"), ("train", "gpt2, squad: SQuAD v1.1's JSON"),
                       ("dev", "squad: questions to score with"),
                       ("tokenizer", "gpt2: encoder.json, next to vocab.bpe"),
                       ("images", "vit: a folder with train/CLASS/ and test/CLASS/ of JPEG files"),
                       ("model", "squad: a folder of an encoder (default: MiniLM, fetched once)")):
        parser.add_argument(f"--{name}", type=path, metavar="PATH",
                            help=said if name == "model" else
                            f"{said} (default: that of the folder SPARSE24_DATA or ../shared/data)")
    parser.add_argument("--device", help="cuda: on a GPU (default: cpu)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=path, help="default: demo-out/methods-TASK")
    parser.add_argument("--program", type=path, default=ROOT / "build/release/sparse24",
                        help="the sparse24 to run (default: build/release/sparse24)")
    parser.add_argument("--prepare", action="store_true", help="find the inputs and stop")
    options = parser.parse_args(argv)
    options.out = options.out or ROOT / f"demo-out/methods-{options.task}"
    return options, fit(parser, options)


def main(argv=None):
    options, task = arguments(argv)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.prepare:
            task.prepare()
            return 0
        result = run(options, Tool(options.program), task)
        if not all(math.isfinite(row["score"]) for row in result["rows"]):
            raise DemoError(f"a {task.measure} is not finite")
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
