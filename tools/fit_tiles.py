#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits what a GPU's tiles cost (src/cuda/linear/linear_cost.def) to measured sweeps.

    sparse24 bench --device cuda --tune --dtype bf16 --shapes '...' --json > sweep.json
    tools/fit_tiles.py sweep.json ... [--check other.json ...] [--keep]

prints the lines of linear_cost.def as they should be, and what choosing by them costs on each file:
how far the chosen tile's time is from the best one's. With --keep nothing is fitted: the numbers
that there are get checked. Needs numpy. The formula is src/cuda/linear/linear_cost.cu's, in
vectors.
"""
import argparse
import json
import math
import os
import re

import numpy

ROOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../src/cuda/linear")
FAMILIES = {"TILE": 0, "KEPT_TILE": 1, "FEW_TILE": 2}
PROCESSORS, CLUSTERS = 132, {1: 132, 2: 132, 3: 117, 4: 120}
CONVINCING = 0.22  # a tile that is slower than the best by so much must only not look better
STEPS, TURNS, LIKELY = 12, 60, 0.03


def read_tiles():
    """The rows of tiles.def and linear_cost.def: by name what a tile has, and its three costs."""
    tiles, endings = {}, {"TILE": "", "KEPT_TILE": "/kept", "FEW_TILE": "/few"}
    for line in open(os.path.join(ROOM, "tiles.def")):
        match = re.match(r"(TILE|KEPT_TILE|FEW_TILE)\(([\d, ]+)\)", line)
        if not match:
            continue
        family, v = match[1], [int(x) for x in match[2].split(",")]
        name = f"{v[0]}x{v[1]}" + endings[family]
        depth = v[5] if family == "TILE" else 1
        tiles[name] = {"family": FAMILIES[family], "rows": v[0], "tokens": v[1], "depth": depth,
                       "two": family == "KEPT_TILE" or (family == "TILE" and small(v))}
    for line in open(os.path.join(ROOM, "linear_cost.def")):
        match = re.match(r"(\w+)_COST\(\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+)\)", line)
        if match:
            family = match[1] if match[1] == "TILE" else match[1] + "_TILE"
            name = f"{match[2]}x{match[3]}" + endings[family]
            tiles[name] |= {"costs": [int(x) for x in match.groups()[3:]], "macro": match[1]}
    return tiles


def small(v):
    """Do two blocks of a TILE fit a processor? As linear_tile.cuh adds it up for 16 bits."""
    rows, tokens, warpgroups, _, stages, depth, chunk, buffers, shares = v[:9]
    slabs = rows // 64
    chunk_full = chunk // 2 if chunk % 16 == 0 else chunk // 3 if chunk % 24 == 0 else chunk
    out = max(buffers * chunk * 128, chunk_full * 256)
    used = (1024 + stages * depth * (tokens * 128 + slabs * 4608) + warpgroups * (out + 512) +
            (stages + 1) * 16 + (shares - 1) * rows * tokens * 4)
    return used <= 112 * 1024


def read_globals():
    values = {}
    for line in open(os.path.join(ROOM, "linear_cost.def")):
        match = re.match(r"COST\((\w+), ([-\d.]+)", line)
        if match:
            values[match[1]] = float(match[2])
    return values


def split(name):
    """A tile's name as (row, blocks that share it, is it cut by steps)."""
    for suffix in ("/few", "/kept"):
        if suffix in name:
            row, _, share = name.partition(suffix)
            return row + suffix, int(share[1:] or 1), False
    row, _, share = name.partition("/")
    return (row, 1, True) if share == "k" else (row, int(share or 1), False)


class Sweep:
    """The measured cells of a file, an array for each property of a sample."""

    def __init__(self, path, tiles, names):
        self.path, self.cells = path, []
        samples = []
        for row in json.load(open(path))["rows"]:
            cell = []
            for entry in row.get("tiles", []):
                name, share, cut = split(entry["tile"])
                if name in tiles:
                    cell.append(len(samples))
                    samples.append(sample(row, tiles[name], names.index(name), share, cut) +
                                   [1e6 * entry["ms"]])
            if cell:
                self.cells.append(((row["dtype"], row["m"], row["k"], row["n"]), cell))
        columns = numpy.array(samples, dtype=float).T
        keys = ("tile family share cut tiles m_tiles steps tokens rows most depth two weight "
                "bytes_x bytes_y block narrow absent made ns").split()
        self.of = dict(zip(keys, columns))
        best = numpy.empty(len(samples))
        for _, cell in self.cells:
            best[cell] = self.of["ns"][cell].min()
        self.best = best
        self.order = numpy.concatenate([cell for _, cell in self.cells])
        self.lengths = [len(cell) for _, cell in self.cells]
        self.starts = numpy.concatenate([[0], numpy.cumsum(self.lengths)[:-1]])


def sample(row, tile, index, share, cut):
    wide = row["dtype"] in ("bf16", "f16")
    block, columns, size = (4608, 64, 2) if wide else (5120, 128, 1)
    m, k, n = row["m"], row["k"], row["n"]
    k_blocks, m_tiles = -(-k // columns), -(-m // tile["tokens"])
    tokens = -(-(-(-m // m_tiles)) // 8) * 8 if tile["family"] == 2 else tile["tokens"]
    return [index, tile["family"], share, cut, m_tiles * -(-n // tile["rows"]), m_tiles,
            -(-k_blocks // tile["depth"]), tokens, tile["rows"], tile["tokens"], tile["depth"],
            tile["two"], -(-n // 64) * k_blocks * block, m * k * size, m * n * 2, block, not wide,
            m_tiles * tokens - m, row["dtype"] in ("e4m3", "e5m2") and tile["family"] == 1]


def norm4(a, b):
    return (a**4 + b**4)**0.25


def cost(s, g, tiles):
    """What linear_cost.cu says, in ns: s samples, g the constants, tiles [3, rows] of the table."""
    index = s["tile"].astype(int)
    products, rate, end = tiles[:, index]
    products = products * numpy.where(s["narrow"] > 0, g["NARROW"], 1)
    products = products * numpy.where(s["made"] > 0, 10, 1)  # of 16-bit products
    clusters = numpy.vectorize(CLUSTERS.get)(s["share"].astype(int)).astype(float)
    at_once = numpy.where(s["two"] > 0, 2.0, 1.0)
    blocks = s["tiles"] * s["share"]
    busy = numpy.minimum(blocks, clusters)
    crowd = numpy.clip(blocks / clusters, 1, at_once)
    loaded = s["depth"] * (s["rows"] / 64 * s["block"] + s["tokens"] * 128)
    load = loaded / numpy.minimum(rate, g["L2"] / busy) * crowd
    last = load + g["ABSENT"] * s["depth"] * s["absent"] * crowd
    step = norm4(load, products * crowd)
    longest = norm4(last, products * crowd)
    waves = blocks / (clusters * at_once)
    empty = numpy.ceil(waves) - waves
    stays = s["family"] == 0
    filled = numpy.where(stays, g["LAST"], g["LAST_FEW"])
    turns = numpy.where(waves > 1, numpy.ceil(waves) - filled * empty, 1)
    length = numpy.ceil(s["steps"] / s["share"])
    part, more = length * step, length * (longest - step)
    time = numpy.where(stays, turns * (part + end) + more,
                       turns * part + more + end + g["FURTHER"] * (numpy.ceil(waves) - 1))
    by_steps = g["CUT"] + g["CUT_STEPS"] * s["tiles"] * s["steps"] / PROCESSORS * step + 4 * end
    time = numpy.where(s["cut"] > 0, by_steps, time)
    memory = (s["weight"] + g["TOKENS"] * s["bytes_x"] + g["OUTPUTS"] * s["bytes_y"]) / g["MEMORY"]
    alone = s["weight"] * (1 + g["AGAIN"] * (s["m_tiles"] - 1)) / (busy * g["ALONE"])
    launch = numpy.choose(s["family"].astype(int), [g["LAUNCH"], g["LAUNCH_KEPT"], g["LAUNCH_FEW"]])
    sent = s["rows"] * s["tokens"] * 4 * (s["share"] - 1) / s["share"]
    exchange = numpy.where(s["share"] > 1, g["MEET"] + g["MEET_MORE"] * (s["share"] - 2) +
                           sent / g["SEND"], 0)
    return launch + norm4(time, norm4(memory, alone)) + exchange


def errors(sweep, g, tiles):
    """What is to be small: near the best tile the error itself, elsewhere only to look better."""
    guess = numpy.log(numpy.maximum(cost(sweep.of, g, tiles), 1))
    true, best = numpy.log(sweep.of["ns"]), numpy.log(sweep.best)
    weight = numpy.exp(-3 * (numpy.exp(true - best) - 1))
    under = numpy.maximum(numpy.minimum(true, best + CONVINCING) - guess, 0)
    return numpy.concatenate([weight * (guess - true), numpy.sqrt(1 - weight**2) * under])


def fit(sweeps, g, tiles):
    """Levenberg and Marquardt's steps on the logarithms of everything."""
    names = list(g)
    shape = tiles.shape

    def unpack(v):
        v = numpy.exp(v)
        return dict(zip(names, v[:len(names)])), v[len(names):].reshape(shape)

    def residuals(v):
        parts = [errors(s, *unpack(v)) for s in sweeps]
        return numpy.concatenate(parts + [held * (v - start)])

    start = numpy.log(numpy.concatenate([list(g.values()), tiles.ravel()]))
    v, damp = start.copy(), 1.0
    held = numpy.where(numpy.arange(len(v)) == names.index("ABSENT"), 1e3, 0.3)  # seen alone
    now = residuals(v)
    for step in range(STEPS):
        columns = []
        for i in range(len(v)):
            moved = v.copy()
            moved[i] += 1e-4
            columns.append((residuals(moved) - now) / 1e-4)
        jacobian = numpy.array(columns).T
        square, slope = jacobian.T @ jacobian, jacobian.T @ now
        for _ in range(8):
            move = numpy.linalg.solve(square + damp * numpy.diag(numpy.diag(square) + 1e-6), slope)
            after = residuals(v - move)
            if after @ after < now @ now:
                break
            damp *= 4
        else:
            break
        gain = 1 - (after @ after) / (now @ now)
        v, now, damp = v - move, after, damp / 3
        print(f"# step {step}: {math.sqrt(now @ now):.3f}", flush=True)
        if gain < 1e-4:
            break
    return unpack(v)


def sharpen(sweeps, g, tiles):
    """Then for the choice itself: lowers the mean of what is lost where tiles are chosen with the
    probability that their costs differ by no more than LIKELY."""
    names, shape = list(g), tiles.shape

    def unpack(v):
        v = numpy.exp(v)
        return dict(zip(names, v[:len(names)])), v[len(names):].reshape(shape)

    def lost(v, slopes):
        total, out = 0, []
        for sweep in sweeps:
            guess = numpy.log(numpy.maximum(cost(sweep.of, *unpack(v)), 1))
            loss = numpy.minimum(sweep.of["ns"] / sweep.best - 1, 1)
            order, starts = sweep.order, sweep.starts
            z = -guess[order] / LIKELY
            z -= numpy.repeat(numpy.maximum.reduceat(z, starts), sweep.lengths)
            p = numpy.exp(z)
            p /= numpy.repeat(numpy.add.reduceat(p, starts), sweep.lengths)
            mean = numpy.add.reduceat(p * loss[order], starts)
            total += mean.sum()
            if slopes:
                d = numpy.empty_like(p)
                d[order] = -p * (loss[order] - numpy.repeat(mean, sweep.lengths)) / LIKELY
                out.append((d, guess))
        return total, out

    start = numpy.log(numpy.concatenate([list(g.values()), tiles.ravel()]))
    v, speed, kept = start.copy(), numpy.zeros(len(start)), (1e9, start)
    cells = sum(len(s.cells) for s in sweeps)
    for step in range(TURNS):
        total, slopes = lost(v, True)
        total += 20 * ((v - start)**2).sum()
        if total < kept[0]:
            kept = (total, v.copy())
        slope = 40 * (v - start)
        for i in range(len(v)):
            moved = v.copy()
            moved[i] += 1e-4
            for sweep, (d, guess) in zip(sweeps, slopes):
                there = numpy.log(numpy.maximum(cost(sweep.of, *unpack(moved)), 1))
                slope[i] += d @ (there - guess) / 1e-4
        slope[names.index("ABSENT")] = 0
        speed = 0.8 * speed + slope
        v = v - 0.004 * (1 - step / TURNS) * speed / (numpy.abs(speed).mean() + 1e-9)
        if step % 10 == 0:
            print(f"# turn {step}: {100 * total / cells:.2f} %", flush=True)
    return unpack(kept[1])


def check(sweep, g, tiles, names):
    """How far the tile that the costs choose is from the best one, over a sweep's cells."""
    guess, true = cost(sweep.of, g, tiles), sweep.of["ns"]
    lost = []
    for key, cell in sweep.cells:
        chosen = min(cell, key=lambda i: guess[i])
        best = min(cell, key=lambda i: true[i])
        label = lambda i: f"{names[int(sweep.of['tile'][i])]}/{int(sweep.of['share'][i])}"
        lost.append((true[chosen] / true[best] - 1, key, label(chosen), label(best),
                     true[chosen] / 1e3, guess[chosen] / 1e3))
    lost.sort(reverse=True, key=lambda x: x[0])
    share = [x[0] for x in lost]
    near = numpy.abs(numpy.log(guess / true))[sweep.of["ns"] < 1.15 * sweep.best]
    mean, close = sum(share) / len(share), sum(x <= 0.05 for x in share) / len(share)
    print(f"# {sweep.path}: {len(lost)} cells, chosen over best: mean {100 * mean:.1f} %,"
          f" within 5 % {100 * close:.0f} %, worst {100 * share[0]:.0f} %;"
          f" error of the times near the best: median {100 * numpy.median(near):.1f} %")
    for x in lost[:8]:
        print(f"#   {100 * x[0]:.0f} %: {x[1]} {x[2]} for {x[3]}, {x[4]:.1f} us, thought"
              f" {x[5]:.1f}")


def show(g, tiles, table, names):
    """The lines of linear_cost.def."""
    for name, value in g.items():
        print(f"COST({name}, {value:.4g})")
    for name, row in table.items():
        costs = ", ".join(f"{round(x):4d}" for x in tiles[:, names.index(name)])
        print(f"{row['macro']}_COST({row['rows']:3d}, {row['tokens']:3d}, {costs})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--check", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--memory", type=float, help="bytes a ns that the GPU's memory moves")
    args = parser.parse_args()
    table = read_tiles()
    names = sorted(table)
    g = read_globals()
    if args.memory:
        g["MEMORY"] = args.memory
    tiles = numpy.array([table[name]["costs"] for name in names], dtype=float).T
    sweeps = [Sweep(path, table, names) for path in args.sweeps]
    if not args.keep:
        g, tiles = sharpen(sweeps, *fit(sweeps, g, tiles))
        show(g, tiles, table, names)
    for sweep in sweeps + [Sweep(path, table, names) for path in args.check]:
        check(sweep, g, tiles, names)


if __name__ == "__main__":
    main()
