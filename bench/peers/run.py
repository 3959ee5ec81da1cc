#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse24 and other engines on the same encoders, on the same machine, in the same run.

    bench/peers/environments.sh build/peers
    bench/peers/run.py --environments build/peers --model FOLDER --out build/peers/results

FOLDER is a dense Hugging Face encoder with its tokenizer; those of other shapes (--models) are made
with random weights. All are pruned by magnitude and packed; sparse24 and DeepSparse get the 2:4
weights, the others the dense ones. Token ids in, pooled and normalised vectors out; every text of a
shape has the same number of tokens. Each engine is a process in its own virtual environment, bound
to as many cores as it has threads. In every round every engine has its turn: one pass untimed, then
passes until --turn-ms are over; a shape that takes long has three rounds only. A ratio is the
median over the rounds of the ratio within a round; the time of an engine is the median over the
rounds. Needs only Python's standard library.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import engines
import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHAPES = {"minilm": [(1, 16), (1, 128), (32, 16), (32, 128), (8, 256)],
          "bert-base": [(1, 384), (8, 384)]}  # texts, tokens
CELLS = [(texts, tokens) for texts in (1, 4, 16, 32) for tokens in (16, 64, 128, 256)]
SHAPES.update(dict.fromkeys(("mpnet-base", "xlm-r-base", "modernbert", "distilbert"), CELLS))
OURS = ("f32", "bf16", "i8")
LEAST_ROUNDS, CELL_SECONDS = 3, 30  # a slow shape has fewer rounds than asked for, but never fewer


class Refused(Exception):
    """What an engine said to work that it does not do."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def bind(threads):
    """Before the program starts, in its process: the first cores that this one may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class Peer:
    """An engine of engines.py, run by worker.py."""

    def __init__(self, row, environments, threads):
        self.row, self.name = row, row.name
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), NM_BIND_THREADS_TO_CORES="0",
                           TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
        python = environments / row.environment / "bin/python"
        self.process = subprocess.Popen(
            [python, HERE / "worker.py", row.name, str(threads)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: bind(threads))

    def ask(self, **order):
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Refused(f"the process ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def version(self):
        return self.ask(do="version")["version"]

    def prepare(self, folder, shape):
        self.ask(do="prepare", folder=str(folder), texts=shape[0], tokens=shape[1])

    def turn(self, seconds):
        return {self.name: self.ask(do="turn", seconds=seconds)["ms"]}

    def vectors(self, folder, check):
        self.prepare(folder, (len(check["ids"]), check["tokens"]))
        return self.ask(do="vectors", ids=check["ids"])["vectors"], check[self.row.weights]

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # what it was told last, it did not live to hear
        self.process.stdout.close()
        self.process.wait()


class Ours:
    """sparse24 with one dtype: a program started for every turn, which times its dense pass too."""

    def __init__(self, program, dtype, threads):
        self.program, self.dtype, self.threads = program, dtype, threads
        self.name = f"sparse24-{dtype}"

    def command(self, *words):
        done = subprocess.run([self.program, *map(str, words), "--threads", str(self.threads),
                               "--dtype", self.dtype, "--json", "--quiet"], text=True,
                              capture_output=True, check=False,
                              preexec_fn=lambda: bind(self.threads))
        if done.returncode:
            raise Refused(done.stderr.strip().splitlines()[-1])
        return json.loads(done.stdout)

    def version(self):
        text = subprocess.run([self.program, "--version"], text=True, capture_output=True,
                              check=True).stdout
        return re.search(r"library ([^\s,]+)", text).group(1)

    def prepare(self, folder, shape):
        self.folder, self.shape = folder / "packed", shape

    def turn(self, seconds):
        row = self.command("bench", "--model", self.folder, "--batch", self.shape[0], "--seq",
                           self.shape[1], "--rounds", 1, "--min-ms",
                           max(1, round(1000 * seconds)))["rows"][0]
        return {self.name: row["sparse_ms"], f"{self.name}-dense": row["dense_ms"]}

    def vectors(self, folder, check):
        """Through `embed`: the tokenizer has to find the same ids, or the vectors are others."""
        lines, out = folder / "check.txt", folder / "check.safetensors"
        texts = check["texts"] or [" ".join(map(str, ids)) for ids in check["ids"]]
        lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
        self.command("embed", folder / "packed", "--input", lines, "--output", out, "--force",
                     *(["--max-tokens", check["tokens"]] if check["texts"] else ["--ids"]))
        return report.read_embeddings(out), check["2:4"]

    def close(self):
        pass


def run_program(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def prepare_models(options):
    """Pruned and packed folders and the graphs, once; a folder that is complete stays."""
    python = options.environments / "torch/bin/python"
    for name in options.models:
        folder = options.work / name
        if (folder / "done").exists():
            continue
        say(f"{name}: pruning, packing, exporting")
        folder.mkdir(parents=True, exist_ok=True)
        dense = folder / "dense"
        if name != "minilm":
            run_program(python, HERE / "export.py", "random", name, dense)
        elif not dense.exists():
            dense.symlink_to(options.model.resolve(), target_is_directory=True)
        run_program(options.program, "prune", dense, folder / "pruned", "--force")
        run_program(options.program, "pack", folder / "pruned", folder / "packed", "--force")
        run_program(python, HERE / "export.py", "graphs", dense, folder / "pruned", folder)
        (folder / "done").touch()


def start(options, threads, notes):
    """Every engine that is wanted and here; those that are not are noted."""
    found = [Ours(options.program, dtype, threads) for dtype in OURS
             if f"sparse24-{dtype}" in options.engines]
    for row in engines.ROWS:
        if row.name not in options.engines:
            continue
        if (options.environments / row.environment / "bin/python").exists():
            found.append(Peer(row, options.environments, threads))
        else:
            note(notes, f"{row.name}: no environment '{row.environment}'", f"{threads} threads")
    return found


def note(notes, message, where):
    """The same message of many shapes is one line of the report."""
    if message not in notes:
        say(message)
    notes.setdefault(message, []).append(where)


def attempt(runners, notes, where, action):
    """action of every runner; those that refuse are noted and left out of what comes back."""
    left = []
    for runner in runners:
        try:
            action(runner)
            left.append(runner)
        except Refused as error:
            note(notes, f"{runner.name}: {error}", where)
    return left


def measure_cell(options, runners, name, shape, threads, notes):
    folder, samples = options.work / name, {}
    where = f"{name} {shape[0]}x{shape[1]} on {threads}"
    runners = attempt(runners, notes, where, lambda r: r.prepare(folder, shape))

    def turn(runner):
        for column, ms in runner.turn(options.turn_ms / 1000).items():
            samples.setdefault(column, []).append(ms)

    begin = time.monotonic()
    for number in range(options.rounds):
        if number >= LEAST_ROUNDS and time.monotonic() - begin > CELL_SECONDS:
            break
        # Every second round backwards: nobody always follows the same neighbour.
        runners = attempt(runners, notes, where, turn)[::-1]
    rounds = max(map(len, samples.values()), default=0)
    say(f"{where}: {len(samples)} columns, {rounds} rounds, {time.monotonic() - begin:.0f} s")
    whole = {c: ms for c, ms in samples.items() if len(ms) == rounds}
    return {"model": name, "batch": shape[0], "seq": shape[1], "threads": threads,
            "samples_ms": whole}


def shapes_of(options, name):
    """The shapes to measure of a model, the smallest first."""
    return sorted(options.shapes or SHAPES[name], key=math.prod)[:options.cells or None]


def measure(options):
    cells, notes, versions, accuracy = [], {}, {}, {}
    end = time.monotonic() + 60 * options.minutes
    for threads in options.threads:
        everyone = start(options, threads, notes)
        runners = attempt(everyone, notes, "version",
                          lambda r: versions.__setitem__(r.name, r.version()))
        for name in options.models:
            check = options.work / name / "check.json"
            if check.exists() and threads == options.threads[0]:
                found = json.loads(check.read_text(encoding="utf-8"))
                attempt(runners, notes, f"vectors of {name}", lambda r: accuracy.__setitem__(
                    r.name, min(accuracy.get(r.name, 1.0),
                                report.least_cosine(*r.vectors(check.parent, found)))))
            for shape in shapes_of(options, name):
                if time.monotonic() > end:
                    note(notes, f"left out after {options.minutes:g} minutes",
                         f"{name} {shape[0]}x{shape[1]} on {threads}")
                    continue
                cells.append(measure_cell(options, runners, name, shape, threads, notes))
        for runner in everyone:
            runner.close()
    return {"cells": cells, "notes": notes, "versions": versions, "least_cosine": accuracy}


def machine():
    names = re.findall(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    flags = pathlib.Path("/proc/cpuinfo").read_text().partition("flags")[2].split("\n")[0].split()
    shown = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
            "isa": [f for f in shown if f in flags], "system": platform.platform()}


def read_shapes(words):
    return [tuple(map(int, word.split("x", 1))) for word in words.split(",")]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=pathlib.Path, required=True, metavar="DIR",
                        help="made by environments.sh")
    parser.add_argument("--model", type=pathlib.Path, metavar="FOLDER",
                        help="all-MiniLM-L6-v2, or another encoder of its shape: minilm")
    parser.add_argument("--models", default="minilm,bert-base",
                        help=f"default: %(default)s; of {', '.join(SHAPES)}")
    parser.add_argument("--cells", type=int, default=0, metavar="N",
                        help="only so many of each model's shapes, the smallest")
    parser.add_argument("--shapes", metavar="TEXTSxTOKENS,…", type=read_shapes,
                        help="in place of each model's own: 1x16,32x128")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N",
                        help="after which no cell begins; those left out are noted")
    parser.add_argument("--program", default=str(ROOT / "build/release/sparse24"))
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers-work",
                        help="for pruned folders and graphs; kept for the next run")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR",
                        help="gets peers.json, peers.md and a chart for each number of threads")
    parser.add_argument("--engines", default=",".join(
        [f"sparse24-{d}" for d in OURS] + engines.DEFAULT), help="default: %(default)s; torch-f32")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn-ms", type=int, default=200)
    options = parser.parse_args(words)
    options.engines = options.engines.split(",")
    options.models = options.models.split(",")
    options.threads = [int(t) for t in options.threads.split(",")]
    for name in options.engines:
        if name not in [f"sparse24-{d}" for d in OURS]:
            engines.row_of(name)
    for name in options.models:
        if name not in SHAPES:
            parser.error(f"--models: there is no '{name}'; there are {', '.join(SHAPES)}")
    if "minilm" in options.models and not options.model:
        parser.error("--models minilm needs --model FOLDER")
    if max(options.threads) > len(os.sched_getaffinity(0)):
        parser.error(f"--threads: this process may use {len(os.sched_getaffinity(0))} cores")
    return options


def main():
    options, begin = parse(sys.argv[1:]), time.monotonic()
    prepare_models(options)
    found = {"date": datetime.date.today().isoformat(), "machine": machine(),
             "rounds": options.rounds, "turn_ms": options.turn_ms,
             "command": " ".join(sys.argv), **measure(options)}
    options.out.mkdir(parents=True, exist_ok=True)
    report.write(options.out, found)
    say(f"{options.out}: written after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
