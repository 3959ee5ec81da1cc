#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole matrix of faults: each call of each kind fails once in every command and example,
every writer is killed after each change and at chance moments, loses power, and finds the disk
full. What a run must come to stands in tests/faults/fault_matrix.py, the command lines in
fault_rows.py. Prints what was wrong and a table of runs; exit 1 where anything was wrong.
tools/faults builds first."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The columns of the table: kinds of faults that are shown together.
COLUMNS = {"memory": ("alloc", "map"), "files": ("open", "read", "write", "close", "files open"),
           "sync": ("sync",), "names": ("rename", "unlink", "mkdir", "stat", "mode", "lock"),
           "processes": ("thread", "fork"), "device": ("device",), "full disk": ("disk full",),
           "killed": ("killed",), "power": ("power lost",)}


def column_of(kind):
    plain = kind.rstrip("\u2026")
    for column, kinds in COLUMNS.items():
        if plain in kinds or plain.split(" ")[0] in kinds or plain.startswith("killed") and \
                column == "killed":
            return column
    raise KeyError(kind)


def sweep_of(matrix, world, options, row, replaces):
    began = time.monotonic()
    sweep = matrix.Sweep(row, world, replaces)
    most = options.slow_calls if row.slow else options.calls
    choose = matrix.some(most) if most else matrix.every
    share = 4 if row.slow else 1
    try:
        sweep.all_calls(choose)
        sweep.descriptors()
        sweep.device(options.device_calls)
        sweep.kills(choose)
        sweep.kills_by_chance(options.kills // share)
        sweep.power(options.losses // share)
        sweep.disks(choose)
    finally:
        sweep.close()
    print(f"{sweep.name}: {sum(sweep.runs.values())} runs in {time.monotonic() - began:.0f} s, "
          f"{len(sweep.defects)} wrong", file=sys.stderr, flush=True)
    return sweep


def table(sweeps):
    lines = ["| command | " + " | ".join(COLUMNS) + " | runs | wrong |",
             "|---" * (len(COLUMNS) + 3) + "|"]
    total = collections.Counter()
    for sweep in sweeps:
        counts = collections.Counter()
        for kind, runs in sweep.runs.items():
            counts[column_of(kind)] += runs
        counts["runs"], counts["wrong"] = sum(sweep.runs.values()), len(sweep.defects)
        total += counts
        cells = [str(counts[c] or "") for c in (*COLUMNS, "runs")] + [str(counts["wrong"])]
        lines.append(f"| {sweep.name} | " + " | ".join(cells) + " |")
    cells = [str(total[c]) for c in (*COLUMNS, "runs", "wrong")]
    return "\n".join([*lines, "| **all** | " + " | ".join(cells) + " |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rows", help="names of rows, with commas between them; default: all")
    parser.add_argument("--calls", type=int, default=0, help="of each kind; default: all there are")
    parser.add_argument("--slow-calls", type=int, default=100,
                        help="of commands that take long, which are killed a fourth as often, too")
    parser.add_argument("--device-calls", type=int, default=1000, help="waits that fail, at most")
    parser.add_argument("--kills", type=int, default=500, help="at chance moments, of each writer")
    parser.add_argument("--losses", type=int, default=1000, help="of power, of each writer")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=pathlib.Path,
                        help="a file for the counts and what was wrong, as JSON")
    options = parser.parse_args()
    os.environ.update(S24_SOURCE=str(ROOT), S24_BUILD=str(options.build))
    sys.path[1:1] = [str(ROOT / "tests" / room) for room in ("faults", "cli", "tools")]
    import fault_matrix  # they read the environment
    import fault_rows

    rows = [r for r in fault_rows.ROWS if not options.rows or r.name in options.rows.split(",")]
    world = fault_matrix.World(options.build, options.build / "tests/faults/libs24_faults.so")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        sweeps = list(pool.map(
            lambda job: sweep_of(fault_matrix, world, options, *job),
            [(row, replaces) for row in rows for replaces in row.starts()]))
    world.close()
    for sweep in sweeps:
        for defect in sweep.defects:
            print(defect)
    print(table(sweeps))
    if options.output:
        options.output.write_text(json.dumps(
            {sweep.name: {"runs": sweep.runs, "wrong": [str(d) for d in sweep.defects]}
             for sweep in sweeps}, indent=1) + "\n")
    sys.exit(any(sweep.defects for sweep in sweeps))


if __name__ == "__main__":
    main()
