#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How right `sparse24 plan` is: random shapes, 2:4 by the row that is taken and dense by the
build's own engine, timed by turns (`plan --rows`), and what plan says of them, by timing the layer
or (--predict) by the model that it has of this machine.

    bench/plan_error.py [--threads 1] [--dtype f32] [--isa NAME] [--shapes 60] [--seed 5]
        [--predict] [--json FILE]
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_FLOPS = 1.2e10  # of a shape: some 50 ms


def shapes(count, seed):
    """M to 1024, K and N from 64 to 8192, even in their logarithms; half in multiples of 64."""
    chance, found = random.Random(seed), []

    def draw(low, high, step):
        value = math.exp(chance.uniform(math.log(low), math.log(high)))
        return max(step, round(value / step) * step)

    while len(found) < count:
        step = chance.choice((1, 64))
        shape = draw(1, 1024, 1), draw(64, 8192, max(4, step)), draw(64, 8192, step)
        if 2 * math.prod(shape) <= MOST_FLOPS:
            found.append(shape)
    return found


def main():
    parser = argparse.ArgumentParser(description="How well sparse24 plan predicts.")
    parser.add_argument("--program", default=str(ROOT / "build/release/sparse24"))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--isa", help="of ours and of oneDNN alike; default: all that the CPU has")
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5, help="of the shapes")
    parser.add_argument("--predict", action="store_true", help="by the model of this machine")
    parser.add_argument("--json", help="write the rows here")
    options = parser.parse_args()

    isa = ["--isa", options.isa] if options.isa else []

    def run(*words):
        return json.loads(subprocess.run(
            [options.program, *words, "--threads", options.threads, *isa, "--json", "--quiet"],
            check=True, capture_output=True, text=True).stdout)

    rows = []
    predict = ["--predict"] if options.predict else []
    for m, k, n in shapes(options.shapes, options.seed):
        words = ["plan", *map(str, (m, k, n)), "--dtype", options.dtype]
        told = run(*words, "--rows", *predict)
        found = {"kernel": told["kernels"][0]["kernel"],
                 "sparse_ms": told["kernels"][0]["ms"], "dense_ms": told["timed_dense_ms"],
                 "kernels": {row["kernel"]: row["ms"] for row in told["kernels"]}}
        row = told["rows"][0]
        rows.append({"m": m, "k": k, "n": n, **found,
                     "sparse_told_ms": row["sparse_ms"], "dense_told_ms": row["dense_ms"]})
    for name in ("sparse", "dense"):
        errors = sorted(abs(r[f"{name}_told_ms"] / r[f"{name}_ms"] - 1) for r in rows)
        print(f"{name}: error {100 * statistics.median(errors):.1f} % (median), "
              f"{100 * errors[int(0.9 * len(errors))]:.1f} % (9 of 10), "
              f"{100 * errors[-1]:.1f} % (worst)")
    wrong = [r for r in rows if (r["dense_ms"] > r["sparse_ms"])
             != (r["dense_told_ms"] > r["sparse_told_ms"])]
    lost = [max(r["dense_ms"], r["sparse_ms"]) / min(r["dense_ms"], r["sparse_ms"]) for r in wrong]
    print(f"the slower side was advised for {len(wrong)} of {len(rows)}"
          + (f", at most {max(lost):.2f}x slower" if lost else ""))
    if options.json:
        about = {key: told[key] for key in ("date", "machine", "cpu", "versions")}
        pathlib.Path(options.json).write_text(
            json.dumps({**about, "dtype": options.dtype, "threads": int(options.threads),
                        "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
