#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flips one bit at a time of a model's folder, and asks check --verify.

    tools/flips.py [--build build/release] [--count 10000] [--seed 1] [--pattern dense:16]

Wherever the bit lies (weights, header, config.json, tokenizer, modules), check --verify refuses the
folder, by exit 4 or what the file's reader says; where it does not, embed must give the very
vectors of the whole model. Prints how many of each there were; ends with 1 where vectors changed
unseen. test_cli_verify runs some."""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Flips:
    """A folder that is packed and has hashes, and copies of it in which a bit is another."""

    def __init__(self, program, folder, texts, pattern="2:4"):
        self.program, self.folder = program, pathlib.Path(folder)
        self.pattern = pattern
        self.texts = pathlib.Path(texts).resolve()
        self.files = sorted(path.relative_to(folder) for path in self.folder.rglob("*")
                            if path.is_file())
        self.bytes = {path: (self.folder / path).read_bytes() for path in self.files}
        done = self.run("check", self.folder, "--verify", "--pattern", pattern)
        assert done.returncode == 0, done.stderr
        self.vectors = self.embed(self.folder)

    def run(self, *words):
        return subprocess.run([self.program, *map(str, words)], capture_output=True, timeout=60)

    def embed(self, folder):
        done = self.run("embed", folder, "--input", self.texts, "--stream", "--sparse", "--threads",
                        "1", "--quiet")
        return done.stdout if done.returncode == 0 else None

    def one(self, copy, at):
        """What became of bit `at` of all the folder's bits: refused, unused or unseen."""
        for path in self.files:
            bits = 8 * len(self.bytes[path])
            if at < bits:
                break
            at -= bits
        raw = bytearray(self.bytes[path])
        raw[at // 8] ^= 1 << at % 8
        (copy / path).write_bytes(raw)
        done = self.run("check", copy, "--verify", "--pattern", self.pattern)
        assert done.returncode in (0, 1, 3, 4, 5), (path, at, done.returncode, done.stderr)
        found = "refused" if done.returncode else \
            "unused" if self.embed(copy) == self.vectors else "unseen"
        (copy / path).write_bytes(self.bytes[path])
        return found, path, at

    def some(self, copy, places):
        shutil.copytree(self.folder, copy)
        return [self.one(copy, at) for at in places]

    def all(self, count, seed, jobs=1):
        """Counts of each outcome, and the places of what was unseen."""
        chance = random.Random(seed)
        bits = 8 * sum(map(len, self.bytes.values()))
        places = [chance.randrange(bits) for _ in range(count)]
        with tempfile.TemporaryDirectory() as scratch, \
                concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            copies = [pathlib.Path(scratch, str(i)) for i in range(jobs)]
            found = [one for some in pool.map(
                lambda i: self.some(copies[i], places[i::jobs]), range(jobs)) for one in some]
        counts = collections.Counter(outcome for outcome, _, _ in found)
        return counts, [(path, at) for outcome, path, at in found if outcome == "unseen"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pattern", default="2:4", help="of the model's layers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.environ.setdefault("S24_SOURCE", str(ROOT))
    sys.path.insert(0, str(ROOT / "tests/tools"))
    import tiny_bert  # it reads the environment

    program = options.build.resolve() / "sparse24"
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        tiny_bert.write(place / "dense")
        subprocess.run([program, "prune", "dense", "packed", "--packed", "--quiet", "--pattern",
                        options.pattern], cwd=place, check=True, capture_output=True)
        (place / "texts").write_text("read the file\nopen a signal\n")
        flips = Flips(program, place / "packed", place / "texts", options.pattern)
        counts, unseen = flips.all(options.count, options.seed, options.jobs)
    print(f"{options.count} bits of {sum(map(len, flips.bytes.values()))} bytes in "
          f"{len(flips.files)} files: {counts['refused']} refused, {counts['unused']} without an "
          f"effect, {counts['unseen']} unseen")
    for path, at in unseen:
        print(f"{path}, bit {at}")
    sys.exit(bool(unseen))


if __name__ == "__main__":
    main()
