#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets of tests/fuzz/targets.txt, one after the other.

    tools/fuzz MINUTES [TARGET ...]     all of them share the time
    tools/fuzz --build build/fuzz 10 safetensors
    tools/fuzz --processes 16 30        16 processes a target, which share what they find

What is found grows in BUILD/corpora/NAME, next to the corpus of the tree, and is merged after the
run, so that the smallest inputs that reach each edge stay. For each target it prints executions,
executions a second, edges, and the share of its reader's regions, lines and branches that the
merged corpus reaches; BUILD/corpora/NAME.missed lists the functions and lines that it does not.
Executions are added to tests/fuzz/executions.json, unless --forget is given. Needs the preset fuzz,
built, and llvm-profdata and llvm-cov of the same clang. A finding is left as
BUILD/corpora/NAME-crash-*, its report in NAME.log, and makes the exit code 1.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/fuzz"
COUNTS = FOLDER / "executions.json"
# A quarantine and stacks of the usual size cost seven times the memory and 3 to 6 % of executions.
SANITIZER = "quarantine_size_mb=8:malloc_context_size=4"
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1")
LONGEST = 8192  # bytes of an input, where no seed has more: libFuzzer would cut that


def targets():
    """NAME -> globs of its reader's files, and the functions in them that read nothing."""
    rows = [[field.strip() for field in line.split("|")]
            for line in (FOLDER / "targets.txt").read_text().splitlines()
            if line and not line.startswith("#")]
    return {name: (reader.split(","), others.split()) for name, _, reader, _, others in rows}


def tool(name):
    """A program of clang's version, or the plain one."""
    for candidate in (f"{name}-14", name):
        if shutil.which(candidate):
            return candidate
    sys.exit(f"tools/fuzz: {name} is missing; Debian: llvm-14")


def longest_of(seeds):
    """How long an input may be."""
    return max([LONGEST, *(seed.stat().st_size for seed in seeds.iterdir())])


def inside(path):
    """A file's path below the root; compilers write it with the way that they came."""
    return os.path.relpath(path, ROOT)


class Target:
    def __init__(self, build, name, reader, others):
        self.name, self.reader, self.others = name, reader, others
        self.program = build / "tests/fuzz" / f"fuzz_{name}"
        self.work = build / "corpora"
        self.found = self.work / name
        self.seeds = FOLDER / "corpus" / f"fuzz_{name}"
        self.memory = tempfile.mkdtemp(prefix="s24-fuzz-",
                                       dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.profile = pathlib.Path(self.memory, "profile")
        self.limits = (*LIMITS, f"-max_len={longest_of(self.seeds)}")
        self.found.mkdir(parents=True, exist_ok=True)

    def start(self, *words, profile=os.devnull):
        """A process of the program; its report comes on stderr."""
        prefix = f"-artifact_prefix={self.work}/{self.name}-"
        return subprocess.Popen([self.program, *self.limits, prefix, *words], cwd=self.memory,
                                text=True, errors="replace", stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE,
                                env=dict(os.environ, TMPDIR=self.memory,
                                         ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", SANITIZER),
                                         LLVM_PROFILE_FILE=str(profile)))

    def call(self, *words, profile=os.devnull):
        """The program's report and exit code."""
        process = self.start(*words, profile=profile)
        return process.communicate()[1], process.returncode

    def fuzz(self, seconds, processes):
        """Executions of all processes, and the first exit code that is not 0."""
        words = FOLDER / f"fuzz_{self.name}.dict"
        options = [f"-dict={words}"] if words.exists() else []
        started = [self.start(*options, f"-max_total_time={seconds}", str(self.found),
                              str(self.seeds)) for _ in range(processes)]
        with concurrent.futures.ThreadPoolExecutor(processes) as readers:
            reports = list(readers.map(lambda process: process.communicate()[1], started))
        (self.work / f"{self.name}.log").write_text("".join(reports))
        counts = re.findall(r"stat::number_of_executed_units: (\d+)", "".join(reports))
        codes = [process.returncode for process in started if process.returncode]
        return sum(map(int, counts)), codes[0] if codes else 0

    def merge(self):
        """The least inputs of found and seeds that reach what they reach together."""
        merged = self.work / f"{self.name}.merged"
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir()
        self.call("-merge=1", str(merged), str(self.seeds), str(self.found))
        shutil.rmtree(self.found)
        merged.rename(self.found)

    def edges(self):
        text, _ = self.call("-runs=0", str(self.found), str(self.seeds), profile=self.profile)
        found = re.findall(r"cov: (\d+)", text)
        return int(found[-1]) if found else 0

    def coverage(self):
        """Regions (what runs as a whole), lines and branches of the reader: [reached, all] of
        each; names what is not."""
        index = f"{self.profile}.index"
        subprocess.run([tool("llvm-profdata"), "merge", "-sparse", self.profile, "-o", index],
                       check=True)
        made = subprocess.run([tool("llvm-cov"), "export", "-format=text", "-skip-expansions",
                               self.program, f"-instr-profile={index}"],
                              check=True, capture_output=True, text=True).stdout
        data = json.loads(made)["data"][0]
        never = collections.defaultdict(set)
        for function in data["functions"]:
            if not function["count"]:
                never[inside(function["filenames"][0])].add(function["name"].split(":")[-1])
        files = [file for file in data["files"]
                 if any(fnmatch.fnmatch(inside(file["filename"]), glob) for glob in self.reader)]
        self.write_missed(files, never)
        return self.sums(files, data["functions"])

    def sums(self, files, functions):
        """Of all functions of these files but those that read nothing."""
        sums = {kind: [0, 0] for kind in ("regions", "lines", "branches")}

        def count(kind, reached):
            sums[kind][0] += bool(reached)
            sums[kind][1] += 1

        mapped = {file["filename"]: line_counts(file["segments"]) for file in files}
        for function in functions:
            path = function["filenames"][0]
            if path not in mapped or function["name"].split(":")[-1] in self.others:
                continue
            own = [region for region in function["regions"] if region[5] == 0 and region[7] == 0]
            for region in own:
                count("regions", region[4])
            for branch in function["branches"]:
                count("branches", branch[4])
                count("branches", branch[5])
            for line in range(min(r[0] for r in own), max(r[2] for r in own) + 1):
                if line in mapped[path]:
                    count("lines", mapped[path][line])
        return sums

    def write_missed(self, files, never):
        lines = []
        for file in files:
            path = inside(file["filename"])
            missed = sorted({segment[0] for segment in file["segments"]
                             if segment[3] and segment[2] == 0})
            lines.append(f"{path} {file['summary']['lines']['percent']:.1f} %; "
                         f"functions: {' '.join(sorted(never[path])) or 'all reached'}; "
                         f"lines: {' '.join(map(str, missed)) or 'all reached'}\n")
        (self.work / f"{self.name}.missed").write_text("".join(lines))

    def close(self):
        shutil.rmtree(self.memory, ignore_errors=True)


def counted():
    """NAME -> executions of all runs that were counted."""
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def add_counts(counts):
    known = counted()
    for name, count in counts.items():
        known[name] = known.get(name, 0) + count
    COUNTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def line_counts(segments):
    """Line -> how often it ran, of a file's segments in llvm-cov's order: [line, column, count, has
    a count, begins a region, is a gap]."""
    counts, before = {}, None
    starts = collections.defaultdict(list)
    for segment in segments:
        starts[segment[0]].append(segment)
    for line in range(segments[0][0], segments[-1][0] + 1) if segments else ():
        begun = [s[2] for s in starts[line] if s[3] and s[4] and not s[5]]
        if before and before[3]:
            begun.append(before[2])
        if begun:
            counts[line] = max(begun)
        before = starts[line][-1] if starts[line] else before
    return counts


def percent(pair):
    return f"{100 * pair[0] / pair[1]:5.1f} %" if pair[1] else "    -"


def run(target, seconds, processes):
    try:
        count, code = target.fuzz(seconds, processes)
        target.merge()
        edges, sums = target.edges(), target.coverage()
    finally:
        target.close()
    shares = "  ".join(f"{kind} {percent(pair)}" for kind, pair in sums.items())
    print(f"{target.name:12} {count:11} {count // max(seconds, 1):9}/s {edges:7} edges  {shares}"
          f"{'  FOUND: ' + str(target.found) + '.log' if code else ''}", flush=True)
    return count, code


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minutes", type=float)
    parser.add_argument("names", nargs="*", metavar="TARGET")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--forget", action="store_true", help="count nothing")
    given = parser.parse_args()
    known = targets()
    names = given.names or list(known)
    for name in names:
        if name not in known:
            sys.exit(f"tools/fuzz: no target {name}; there are {', '.join(known)}")
        if not (given.build / "tests/fuzz" / f"fuzz_{name}").exists():
            sys.exit(f"tools/fuzz: {name} is not built; cmake --preset fuzz && "
                     "cmake --build --preset fuzz")
    seconds = max(1, int(60 * given.minutes / len(names)))
    counts, found = {}, 0
    for name in names:
        target = Target(given.build.resolve(), name, *known[name])
        counts[name], code = run(target, seconds, given.processes)
        found |= code != 0
        if not given.forget:
            add_counts({name: counts[name]})
    print(f"{sum(counts.values())} executions")
    return found


if __name__ == "__main__":
    sys.exit(main())
