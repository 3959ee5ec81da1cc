#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times every tile of layers that no sweep of bench/results/cuda has, on the GPU of this machine.

    tools/sweep_unseen.py --seconds 200 > unseen.json
    tools/fit_tiles.py --gpu h200 --keep unseen.json    # what this checkout's choice loses there
    OTHER/tools/fit_tiles.py --gpu h200 --keep unseen.json    # and another checkout's, same times

Layers and numbers of tokens are random, the same for a --seed; dtypes go by turns. It ends with the
layer at which --seconds are over. All tiles of a product are timed by turns in one process (bench
--tune), so that two choices are judged by the same times. What bench would remember of it stays
out of the user's cache.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DTYPES = ("bf16", "e4m3", "f16", "bf16", "i8")
TOKENS = ((1, 8), (9, 40), (41, 128), (129, 400), (401, 1000), (1001, 3000))


def known_layers():
    """(k, n) of the sweeps that are kept."""
    layers, folder = set(), os.path.join(ROOT, "bench/results/cuda")
    for name in os.listdir(folder):
        if name.startswith("tiles-") and name.endswith(".json"):
            rows = json.load(open(os.path.join(folder, name)))["rows"]
            layers |= {(row[2], row[3]) for row in rows}
    return layers


def layers_of(seed):
    """Layers without end: three of four with sizes such as models have."""
    rng, known = random.Random(seed), known_layers()
    while True:
        step = 64 if rng.random() < 0.75 else 16
        k, n = (-(-int(2**rng.uniform(9, 13.8)) // step) * step for _ in range(2))
        if k * n < 1 << 27 and (k, n) not in known:
            yield k, n, [rng.randint(*span) for span in TOKENS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/sparse24"))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    whole, until = None, time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as cache:
        for i, (k, n, tokens) in enumerate(layers_of(args.seed)):
            if time.monotonic() > until:
                break
            command = [args.program, "bench", "--device", "cuda", "--tune", "--json",
                       "--rounds", "1", "--dtype", DTYPES[i % len(DTYPES)],
                       "--shapes", ";".join(f"{m},{k},{n}" for m in tokens)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                                  env={**os.environ, "XDG_CACHE_HOME": cache})
            if done.returncode:
                sys.exit(f"{' '.join(command)}: it failed with {done.returncode}")
            data = json.loads(done.stdout)
            if whole is None:
                whole = data
            else:
                whole["rows"] += data["rows"]
            print(f"# {k} x {n}", file=sys.stderr, flush=True)
    json.dump(whole, sys.stdout)


if __name__ == "__main__":
    main()
