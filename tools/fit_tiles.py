#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits what a GPU's tiles cost (src/cuda/linear/linear_cost_GPU.def) to measured sweeps.

    sparse24 bench --device cuda --tune --dtype bf16 --shapes '...' --json > sweep.json
    tools/fit_tiles.py --gpu h200 sweep.json ... [--check other.json ...] [--keep]
                       [--hold-out layers tokens]

(bench/results/cuda/tiles-h200.json is such a sweep with 1359 cells, in fewer words)

writes the file anew, and prints what choosing by it costs on each sweep: how far the chosen tile's
time is from the best one's; the files of --check have no part in the fit, and with --hold-out each
part of the layers, or of the numbers of tokens, is looked up by a fit to the other parts. With
--keep nothing is fitted: the numbers that there are get checked. A further GPU begins with another
one's numbers: --like h200 --gpu NAME, with its --title, --memory-speed and --clusters; the file
that this writes is one more line of linear_cost.cu's `gpus`. Needs numpy. The formula is
linear_cost.cu's, in vectors.
"""
import argparse
import json
import math
import os
import re

import numpy

ROOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../src/cuda/linear")
FAMILIES = {"TILE": "", "NORM_TILE": "/norm", "KEPT_TILE": "/kept", "FEW_TILE": "/few",
            "MMA_TILE": "/mma"}
FITTED = ("TILE", "KEPT_TILE", "FEW_TILE")
GLOBALS = {
    "memory_speed": "bytes a ns that the clock and the width of its memory allow",
    "launch": "ns until the first step, of tiles that stay",
    "launch_kept": "of kept ones",
    "launch_few": "of those for few tokens",
    "early": "ns of that saved where all of the next product's blocks start early",
    "ahead": "by how much more of a product's weights then come at a time",
    "askew_16": "of a load of tokens, what more where rows of X begin 16 bytes off",
    "askew_32": "the same, 32 bytes",
    "askew_64": "64 bytes",
    "end_16": "of a tile's end, what more where rows of Y begin so",
    "end_32": "the same, 32 bytes",
    "end_64": "64 bytes",
    "end_few": "times that where blocks do not stay",
    "l2": "bytes a ns to all processors",
    "last": "of an empty place in the last wave, what it saves",
    "last_few": "the same where blocks do not stay",
    "by_tokens": "the power of its tokens that the end of a tile for few tokens goes by",
    "spared": "of lines past the last token, what one tile of tokens alone spares",
    "memory": "bytes of weights a ns",
    "tokens": "what a byte of tokens costs of that",
    "outputs": "and one of outputs",
    "again": "of what a block loads from memory, for each further tile of tokens",
}
COLUMNS = ("products", "narrow", "rate", "alone", "end", "gap", "two", "three", "four")
BLOCKS_AT = (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3)  # linear_cost.cu's
STEPS_AT = (0, 2, 4, 6, 8)
LEFT = [(f"by blocks, {family}, {bits} bits", BLOCKS_AT) for family in FITTED for bits in (16, 8)]
LEFT += [(f"by steps, {family}", STEPS_AT) for family in FITTED]
NEAR, CONVINCING, LIKELY = 3, 0.22, 0.03  # a tile slower by much must only not look better
FAR = 1.5  # times the best: slower ones have no part in the fit
TURNS, CHOICE, HOLD, STEP = 300, 10, 0.1, 1e-4
ALIKE = 3  # how much tiles are to be like their neighbours
PARTS, RANGES = 5, (3, 8, 24, 64, 160, 400, 1000, 2000)  # of --hold-out: of layers; of tokens
HOLD_LEFT = 5  # what is left over is to be little


def read_tiles():
    """The rows of tiles.def in their order: by name what a tile has."""
    tiles, counts = {}, dict.fromkeys(FAMILIES, 0)
    for line in open(os.path.join(ROOM, "tiles.def")):
        match = re.match(r"(\w*TILE)\(([\d, ]+)\)$", line)
        if not match:
            continue
        family, v = match[1], [int(x) for x in match[2].split(",")]
        counts[family] += 1
        tiles[f"{v[0]}x{v[1]}" + FAMILIES[family]] = {
            "family": family, "rows": v[0], "tokens": v[1],
            "depth": v[5] if family == "TILE" else 1,
            "two": family == "KEPT_TILE" or (family == "TILE" and small(v))}
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


def def_path(gpu):
    return os.path.join(ROOM, f"linear_cost_{gpu}.def")


def read_costs(gpu, tiles):
    """A GPU's numbers: its title, the general ones by name, COLUMNS of each tile, what is LEFT."""
    text = open(def_path(gpu)).read()
    title = re.search(r"What tiles cost an? (.*?)[,:]", text)[1]
    found = {m[2]: float(m[1]) for m in re.finditer(r"^ +([-\d.e+]+), /\* (\w+):", text, re.M)}
    costs = {m[2]: [float(x) for x in m[1].split(",")]
             for m in re.finditer(r"\{([-\d., ]+)\}, +/\* (\S+) \*/", text)}
    left = {name: [float(x) for x in values.split(",")] for (name, _), values in
            zip(LEFT, re.findall(r"^ +\{([-\d., ]+)\},$", text, re.M))}
    missing = [x for x in GLOBALS if x not in found] + [x for x in tiles if x not in costs]
    missing += [name for name, _ in LEFT if name not in left]
    if missing:
        raise SystemExit(f"{def_path(gpu)}: no number for {', '.join(missing)}")
    return title, {name: found[name] for name in GLOBALS}, costs, left


def write_costs(gpu, title, g, costs, left, tiles):
    """The file of a GPU, an initialiser of linear_cost.cu's gpu_cost."""
    lines = ["// SPDX-License-Identifier: Apache-2.0", "/*",
             f" * What tiles cost an {title}, for linear_cost.cu: by tools/fit_tiles.py from",
             " * measured sweeps, docs/designs/037-gpu-any-number-of-tokens.md. Of a tile: ns",
             " * of a step's products, of 16 bits and of 8; bytes a ns that a block alone loads,",
             " * and of weights from memory; ns once a tile, between waves where blocks do not",
             " * stay, and of sharing by two, three and four. Those of norms and of mma are of",
             " * single products, by hand: ns of a step and once a tile. Last, times what the time",
             " * is: by blocks per processor and by steps, as linear_cost.cu says.",
             " */", "// clang-format off", "{"]
    lines += [f"    {round(g[name], 4) if g[name] < 100 else round(g[name], 1):g}, /* {name}: "
              f"{what} */" for name, what in GLOBALS.items()]
    lines.append("    {")
    for family in FAMILIES:
        lines.append(f"        {{ /* {family} */")
        lines += [f"            {{{', '.join(f'{max(x, 1):.0f}' for x in costs[name])}}},"
                  f" /* {name} */" for name, tile in tiles.items() if tile["family"] == family]
        lines.append("        },")
    rows = ["{" + ", ".join(f"{x:.3f}" for x in left[name]) + "}," for name, _ in LEFT]
    lines += ["    },", "    {"]
    for i, family in enumerate(FITTED):
        lines.append(f"        {{ /* by blocks, {family}: of 16 bits, of 8 */")
        lines += [f"            {row}" for row in rows[2 * i:2 * i + 2]] + ["        },"]
    lines += ["    },", f"    {{ /* by steps, {', '.join(FITTED)} */"]
    lines += [f"        {row}" for row in rows[2 * len(FITTED):]]
    lines += ["    },", "},", ""]
    open(def_path(gpu), "w").write("\n".join(lines))


def split(name):
    """A tile's name as (row, blocks that share it, is it cut by steps)."""
    if name.endswith(("/mma", "/norm")):
        return name, 1, False
    for suffix in ("/few", "/kept"):
        if suffix in name:
            row, _, share = name.partition(suffix)
            return row + suffix, int(share[1:] or 1), False
    row, _, share = name.partition("/")
    return (row, 1, True) if share == "k" else (row, int(share or 1), False)


def rows_of(data):
    """The rows of bench's --json, and those of a sweep that was kept: arrays, `tiles` once."""
    if "tiles" not in data:
        return data["rows"]
    return [{"dtype": dtype, "m": m, "k": k, "n": n,
             "tiles": [{"tile": name, "ms": us / 1e3} for name, us in zip(data["tiles"], times)
                       if us]} for dtype, m, k, n, _, times in data["rows"]]


class Sweep:
    """Measured cells, those of a file or a part of them, an array for each property of a sample."""

    def __init__(self, path, rows, tiles, names, clusters):
        self.path, self.cells, samples = path, [], []
        for row in rows:
            cell, entries = [], [(*split(entry["tile"]), entry["ms"])
                                 for entry in row.get("tiles", [])]
            entries = [(name, share, ms) for name, share, cut, ms in entries if not cut and
                       name in names and may_share(row, tiles[name], share, clusters)]
            far = FAR * min((ms for _, _, ms in entries), default=0)
            for name, share, ms in entries:
                if ms <= far:
                    cell.append(len(samples))
                    samples.append(sample(row, tiles[name], share, clusters) +
                                   [names.index(name), 1e6 * ms])
            if cell:
                self.cells.append(((row["dtype"], row["m"], row["k"], row["n"]), cell))
        self.of = dict(zip(SAMPLE, numpy.array(samples, dtype=float).T))
        self.tile = self.of["tile"].astype(int)
        self.best = numpy.empty(len(samples))
        self.cell = numpy.empty(len(samples), dtype=int)
        for i, (_, cell) in enumerate(self.cells):
            self.best[cell] = self.of["ns"][cell].min()
            self.cell[cell] = i
        self.starts = numpy.array([cell[0] for _, cell in self.cells])
        s, family = self.of, self.of["family"].astype(int)
        self.places = [
            hats(BLOCKS_AT, numpy.log2(s["tiles"] * s["share"] / s["room"]),
                 len(BLOCKS_AT) * (2 * family + s["narrow"].astype(int))),
            hats(STEPS_AT, numpy.log2(s["steps"] / s["share"]),
                 2 * len(FITTED) * len(BLOCKS_AT) + len(STEPS_AT) * family)]


def may_share(row, tile, share, clusters):
    """Does the device consider so many blocks for a tile? Of fewer tiles than processors."""
    return share == 1 or -(-row["m"] // tile["tokens"]) * -(-row["n"] // tile["rows"]) < clusters[0]


def hats(at, x, first):
    """Between which two of `at` each x lies, counted from `first` on, and how much of the second
    one it has."""
    at = numpy.array(at, dtype=float)
    x = numpy.clip(x, at[0], at[-1])
    i = numpy.clip(numpy.searchsorted(at, x), 1, len(at) - 1)
    return first + i, (x - at[i - 1]) / (at[i] - at[i - 1])


SAMPLE = ("family share full tiles m_tiles steps loaded part missing askew askew_y room "
          "at_once weight bytes_x bytes_y narrow made tile ns").split()


def sample(row, tile, share, clusters):
    """What the formula asks of a product in a tile, in SAMPLE's order."""
    block, columns, size = (4608, 64, 2) if row["dtype"] in ("bf16", "f16") else (5120, 128, 1)
    m, k, n, family = row["m"], row["k"], row["n"], FITTED.index(tile["family"])
    k_blocks, m_tiles = -(-k // columns), -(-m // tile["tokens"])
    tokens = -(-(-(-m // m_tiles)) // 8) * 8 if family == 2 else tile["tokens"]
    loaded = tile["depth"] * tile["rows"] / 64 * block
    part = tile["depth"] * tokens * 128
    missing = 0 if family == 1 else tile["depth"] * max(0, tokens - -(-m // 8) * 8) * 128
    made = row["dtype"] in ("e4m3", "e5m2") and family == 1
    full = tokens / tile["tokens"] if family == 2 else 1
    return [family, share, full, m_tiles * -(-n // tile["rows"]), m_tiles,
            -(-k_blocks // tile["depth"]), loaded, part, missing, askew(k * size), askew(n * 2),
            clusters[share - 1], 1 + tile["two"], -(-n // 64) * k_blocks * block, m * k * size,
            m * n * 2, size == 1, made]


def askew(pitch):
    """Of rows so many bytes apart which one of 16, 32, 64 says how they begin in lines; 3: none."""
    return 0 if pitch % 32 else 1 if pitch % 64 else 2 if pitch % 128 else 3


def longer(a, b):
    return (a**4 + b**4)**0.25


def cost(s, g, products, narrow, rate, alone, end, gap, two, three, four):
    """What linear_cost.cu says, in ns: s samples, g the general numbers, the others by sample."""
    products = numpy.where(s["narrow"] > 0, narrow, products)
    products = products * numpy.where(s["made"] > 0, 10, 1)  # of 16-bit products
    more_x, more_y = (
        numpy.choose(s[by].astype(int), [g[f"{what}_{x}"] for x in (16, 32, 64)] + [0])
        for by, what in (("askew", "askew"), ("askew_y", "end")))
    full = s["full"]**g["by_tokens"]
    end = end * full * (1 + more_y * numpy.where(s["family"] == 0, 1, g["end_few"]))
    blocks = s["tiles"] * s["share"]
    busy = numpy.minimum(blocks, s["room"])
    crowd = numpy.clip(blocks / s["room"], 1, s["at_once"])
    tokens = (1 + more_x) * (s["part"] - g["spared"] * s["missing"])
    load = (s["loaded"] + tokens) / numpy.minimum(rate, g["l2"] / busy)
    step = longer(load, products) * crowd
    waves = blocks / (s["room"] * s["at_once"])
    empty = numpy.ceil(waves) - waves
    stays = s["family"] == 0
    turns = numpy.where(waves > 1, numpy.ceil(waves) - empty *
                        numpy.where(stays, g["last"], g["last_few"]), 1)
    part = numpy.ceil(s["steps"] / s["share"]) * step
    further = gap * numpy.maximum(numpy.ceil(waves) - 1, 0)
    time = numpy.where(stays, turns * (part + end), turns * part + end + further)
    memory = (s["weight"] + g["tokens"] * s["bytes_x"] + g["outputs"] * s["bytes_y"]) / g["memory"]
    spare = numpy.clip(s["room"] * s["at_once"] / blocks - 1, 0, 1)
    alone = s["weight"] * (1 + g["again"] * (s["m_tiles"] - 1)) / (
        busy * alone * (1 + g["ahead"] * spare))
    launch = numpy.choose(s["family"].astype(int),
                          [g["launch"], g["launch_kept"], g["launch_few"]])
    exchange = numpy.choose(s["share"].astype(int), [0, 0, two, three, four])
    return launch - g["early"] * spare + longer(time, longer(memory, alone)) + full * exchange


def plane(tile):
    """What a tile's numbers are thought to go by: by family the logarithms of rows and tokens."""
    rows, tokens = math.log(tile["rows"] / 128), math.log(tile["tokens"] / 96)
    of = [(tile["family"] == family) * x for family in ("TILE", "FEW_TILE")
          for x in (1, rows, tokens, rows * tokens, tokens**2)]
    return of + [float(tile["family"] == "KEPT_TILE"),
                 (tile["family"] == "TILE") * math.log(tile["depth"])]


class Fit:
    """The logarithms of the fitted numbers: the general ones, then COLUMNS of each tile, then what
    is LEFT."""

    def __init__(self, g, costs, left, tiles, names):
        self.names, self.fixed = names, {"memory_speed": g["memory_speed"]}
        self.general = [name for name in g if name not in self.fixed]
        self.v = numpy.log(numpy.concatenate(
            [[g[name] for name in self.general],
             numpy.array([costs[name] for name in names]).T.ravel(),
             numpy.concatenate([left[name] for name, _ in LEFT])]))
        self.left_at = len(self.general) + len(COLUMNS) * len(names)
        planes = numpy.array([plane(tiles[name]) for name in names])
        self.odd = numpy.eye(len(names)) - planes @ numpy.linalg.pinv(planes)

    def unpack(self, v):
        v = numpy.exp(v[:self.left_at])
        at = len(self.general)
        return dict(zip(self.general, v)), v[at:].reshape(len(COLUMNS), len(self.names))

    def left(self):
        """What is left over, by name."""
        ends = numpy.cumsum([len(at) for _, at in LEFT])
        return {name: numpy.exp(part) for (name, _), part in
                zip(LEFT, numpy.split(self.v[self.left_at:], ends[:-1]))}

    def guess(self, sweep, v, moved=None):
        """The logarithms of the times; `moved` is increased by STEP, of all tiles at once."""
        g, tiles = self.unpack(v)
        tiles = tiles[:, sweep.tile]
        if moved is not None and moved < len(self.general):
            g[self.general[moved]] *= math.exp(STEP)
        elif moved is not None:
            tiles[moved - len(self.general)] *= math.exp(STEP)
        guess, left = numpy.log(numpy.maximum(cost(sweep.of, g, *tiles), 1)), v[self.left_at:]
        for at, share in sweep.places:
            guess += numpy.log((1 - share) * numpy.exp(left[at - 1]) + share * numpy.exp(left[at]))
        return guess

    def slope(self, sweep, v, choice):
        """The loss of a sweep and what it has for slopes. A sample moves only its own tile."""
        guess = self.guess(sweep, v)
        total, by_guess = loss(sweep, guess, choice)
        out, at, count = numpy.zeros(len(v)), len(self.general), len(self.names)
        for i in range(at + len(COLUMNS)):
            by_sample = by_guess * (self.guess(sweep, v, i) - guess) / STEP
            if i < at:
                out[i] = by_sample.sum()
            else:
                first = at + (i - at) * count
                out[first:first + count] = numpy.bincount(sweep.tile, by_sample, count)
        left = v[self.left_at:]
        for at, share in sweep.places:
            low, high = (1 - share) * numpy.exp(left[at - 1]), share * numpy.exp(left[at])
            for place, part in ((at - 1, low), (at, high)):
                out[self.left_at:] += numpy.bincount(place, by_guess * part / (low + high),
                                                     len(left))
        return total, out

    def run(self, sweeps):
        """Adam's steps, first on the times alone, then on the choice, too."""
        start, v = self.v.copy(), self.v
        mean, square = numpy.zeros(len(v)), numpy.zeros(len(v))
        for turn in range(TURNS):
            late = turn >= TURNS // 2
            parts = [self.slope(sweep, v, CHOICE if late else 0) for sweep in sweeps]
            slope = sum(p[1] for p in parts) + 2 * HOLD * (v - start)
            at = len(self.general)
            odd = v[at:self.left_at].reshape(len(COLUMNS), -1) @ self.odd
            slope[at:self.left_at] = sum(p[1][at:self.left_at] for p in parts)
            slope[at:self.left_at] += 2 * ALIKE * odd.ravel()
            slope[self.left_at:] = sum(p[1][self.left_at:] for p in parts)
            slope[self.left_at:] += 2 * HOLD_LEFT * v[self.left_at:]
            mean, square = 0.9 * mean + 0.1 * slope, 0.98 * square + 0.02 * slope**2
            left = 1 - (2 * turn / TURNS - late)
            speed = (0.008 if late else 0.04) * left + 0.001
            v = v - speed * mean / (1 - 0.9**(turn + 1)) / (
                numpy.sqrt(square / (1 - 0.98**(turn + 1))) + 1e-9)
            if turn % 50 == 0:
                print(f"# turn {turn}: {sum(p[0] for p in parts):.2f}", flush=True)
        self.v = v


def loss(sweep, guess, choice):
    """Near the best tile the error of the time itself, elsewhere that a tile looks better than it
    is; and `choice` times what is lost where tiles are chosen with the probability that their times
    differ by no more than LIKELY. With the slopes by each sample's guess."""
    true, best = numpy.log(sweep.of["ns"]), numpy.log(sweep.best)
    near = numpy.exp(-NEAR * (numpy.exp(true - best) - 1))
    error, under = guess - true, numpy.maximum(numpy.minimum(true, best + CONVINCING) - guess, 0)
    total = (near**2 * error**2 + (1 - near**2) * under**2).sum()
    slope = 2 * near**2 * error - 2 * (1 - near**2) * under
    if not choice:
        return total, slope
    lost = numpy.minimum(sweep.of["ns"] / sweep.best - 1, 1)
    z = -guess / LIKELY
    p = numpy.exp(z - numpy.maximum.reduceat(z, sweep.starts)[sweep.cell])
    p /= numpy.add.reduceat(p, sweep.starts)[sweep.cell]
    mean = numpy.add.reduceat(p * lost, sweep.starts)
    return (total + choice * mean.sum(),
            slope - choice * p * (lost - mean[sweep.cell]) / LIKELY)


def losses(sweep, fit):
    """By how much the tile that the costs choose takes longer than the best one, of each cell; and
    how far the thought times near the best are from the measured ones."""
    guess, true, lost = numpy.exp(fit.guess(sweep, fit.v)), sweep.of["ns"], []
    for key, cell in sweep.cells:
        chosen, best = min(cell, key=lambda i: guess[i]), min(cell, key=lambda i: true[i])
        label = lambda i: f"{fit.names[sweep.tile[i]]}/{int(sweep.of['share'][i])}"
        lost.append((true[chosen] / true[best] - 1, key, label(chosen), label(best),
                     true[chosen] / 1e3, guess[chosen] / 1e3))
    return lost, list(numpy.abs(numpy.log(guess / true))[true < 1.15 * sweep.best])


def say(title, lost, near, worst=8):
    lost = sorted(lost, reverse=True, key=lambda x: x[0])
    share = numpy.array([x[0] for x in lost])
    print(f"# {title}: {len(lost)} cells, chosen over best: mean {100 * share.mean():.2f} %,"
          f" within 5 % {100 * (share <= 0.05).mean():.1f} %, worst {100 * share[0]:.0f} %, over"
          f" 12 % {(share > 0.12).sum()}; error of the times near the best: median"
          f" {100 * numpy.median(near):.1f} %", flush=True)
    for x in lost[:worst]:
        print(f"#   {100 * x[0]:.0f} %: {x[1]} {x[2]} for {x[3]}, {x[4]:.1f} us, thought"
              f" {x[5]:.1f}")


def parts_of(rows, by):
    """The number of the part of each row: layers dealt out to PARTS, or ranges of tokens."""
    if by == "tokens":
        return [int(numpy.searchsorted(RANGES, row["m"])) for row in rows]
    layers = sorted({(row["k"], row["n"]) for row in rows})
    order = numpy.random.default_rng(0).permutation(len(layers))
    part = {layer: int(i) % PARTS for layer, i in zip(layers, order)}
    return [part[row["k"], row["n"]] for row in rows]


def hold_out(by, files, begin, tiles, names, clusters):
    """Fits to all parts but one, each in turn, and says what the choice is worth on that one."""
    lost, near = [], []
    parts = [parts_of(rows, by) for _, rows in files]
    for held in sorted({x for part in parts for x in part}):
        of = lambda path, rows, part, own: Sweep(
            path, [row for row, x in zip(rows, part) if (x == held) == own], tiles, names,
            clusters)
        fit = begin()
        fit.run([of(*file, part, False) for file, part in zip(files, parts)])
        for file, part in zip(files, parts):
            if held in part:
                more = losses(of(*file, part, True), fit)
                lost, near = lost + more[0], near + more[1]
    say(f"held out by {by}", lost, near, 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--gpu", default="h200", help="linear_cost_GPU.def is read and written")
    parser.add_argument("--like", help="the GPU whose numbers are the first guess")
    parser.add_argument("--title", help="the GPU's name for people")
    parser.add_argument("--memory-speed", type=float, help="bytes a ns")
    parser.add_argument("--clusters", default="132,132,117,120",
                        help="blocks at a time in clusters of 1 to 4, as CUDA counts them")
    parser.add_argument("--check", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--hold-out", nargs="*", default=[], choices=("layers", "tokens"),
                        help="what the fit is worth on layers, on numbers of tokens, without them")
    args = parser.parse_args()
    tiles = read_tiles()
    names = [name for name, tile in tiles.items() if tile["family"] in FITTED]
    title, g, costs, left = read_costs(args.like or args.gpu, tiles)
    g["memory_speed"] = args.memory_speed or g["memory_speed"]
    clusters = [float(x) for x in args.clusters.split(",")]
    files = [(path, rows_of(json.load(open(path)))) for path in args.sweeps + args.check]
    fitted = files[:len(args.sweeps)]
    begin = lambda: Fit(g, costs, left, tiles, names)
    for by in args.hold_out:
        hold_out(by, fitted, begin, tiles, names, clusters)
    fit = begin()
    sweeps = [Sweep(*file, tiles, names, clusters) for file in files]
    if not args.keep:
        fit.run(sweeps[:len(fitted)])
        general, rows = fit.unpack(fit.v)
        costs.update({name: rows[:, i] for i, name in enumerate(names)})
        write_costs(args.gpu, args.title or title, fit.fixed | general, costs, fit.left(), tiles)
    for sweep in sweeps:
        say(sweep.path, *losses(sweep, fit))


if __name__ == "__main__":
    main()
