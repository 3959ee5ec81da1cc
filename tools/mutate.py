#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alters one operator of the core at a time, in a copy of the tree, and lists the alterations that
no test of the core catches: one in each kernel file that this machine can run, some in each file
that selects weights. A survivor is a missing test, or an alteration that changes no result (a
choice between two ways of one result, a size that need not be so large). Ends with 1 if there are
any. Without --sanitize, one element too many that is only read or written is a survivor too.

    tools/mutate [--seed N] [--each N] [--rules N] [--sanitize] [--list] [FILE…]
"""
import argparse
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import check_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ("src/kernel/",)
RULES = ("src/kernel/tile_rules.def", "src/kernel/tile_choose.h", "src/kernel/tile_patterns.def",
         "src/kernel/tile_exchanges.def", "src/kernel/ref/select_ref.c",
         "src/kernel/ref/tile_ref.c",
         "src/op/create.c", "src/op/tile.c", "src/prune/magnitude.c", "src/prune/wanda.c",
         "src/prune/sparsegpt.c", "src/prune/prune_tiles.c")
# Quick tests first: most of what they catch, the others need not run for.
QUICK = ("test_tile", "test_select", "test_prune", "test_prune_refusals", "test_golden_prune",
         "test_products", "test_plans", "test_quant", "test_matrix", "test_layout",
         "test_training", "test_kernels_i8")
SLOW = ("test_prune_algebra", "test_kernels_select", "test_kernels")
# What becomes what: operators between spaces, as clang-format sets them, and the vector
# instructions that stand for them.
SWAPS = (("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "=="), ("+", "-"),
         ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"), ("&&", "||"), ("||", "&&"), ("&", "|"),
         ("|", "&"), ("^", "|"), ("<<", ">>"), (">>", "<<"), ("+=", "-="), ("-=", "+="))
WORDS = (("_add_", "_sub_"), ("_sub_", "_add_"), ("_fmadd_", "_fnmadd_"), ("_and_", "_or_"),
         ("_or_", "_and_"), ("_xor_", "_or_"), ("_max_", "_min_"), ("_min_", "_max_"),
         ("_srli_", "_slli_"), ("_slli_", "_srli_"), ("_GT_", "_GE_"), ("_LT_", "_LE_"),
         ("unpacklo", "unpackhi"), ("unpackhi", "unpacklo"))
BECOMES = dict(SWAPS) | dict(WORDS)
SITE = re.compile("|".join([rf"(?<= ){re.escape(a)}(?= )" for a, _ in SWAPS]
                           + [re.escape(a) for a, _ in WORDS]))
# Lines whose alteration changes speed or nothing: hints, conditions of the preprocessor.
NO_RESULT = re.compile(r"prefetch|PREFETCH|AHEAD|^\s*#\s*(?!define)|_Static_assert")
# What a file's name asks of the CPU, as Linux's /proc/cpuinfo calls it.
NEEDS = {"amx": "amx_tile", "avx512bf16": "avx512_bf16", "avx512vnni": "avx512_vnni",
         "avx512": "avx512f", "avxvnni": "avx_vnni", "avx2": "avx2", "neon": "asimd",
         "dotprod": "asimddp"}


def runs_here(path, flags):
    """Whether the CPU has what the name of a kernel's file says."""
    words = re.split(r"[/_.]", path)
    return all(need in flags for word, need in NEEDS.items() if word in words)


def cpu_flags():
    file = pathlib.Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.M)
    return set(found.group(1).split()) if found else set()


def sites_of_rows(text):
    """Rows of a table: each row's last value becomes that of the next row that has another."""
    rows = list(re.finditer(r"^[A-Z_]+\(.*?([^ ,(]+)\)$", text, re.M))
    for row, following in zip(rows, rows[1:] + rows[:1]):
        if row.group(1) != following.group(1):
            yield row.start(1), row.group(1), following.group(1)


def sites_of(path, text):
    """All (place, what stands there, what it becomes) of a file."""
    if path.endswith(".def"):
        return list(sites_of_rows(text))
    code = check_tree.code_of(text)
    sites = []
    for match in SITE.finditer(code):
        start = code.rfind("\n", 0, match.start()) + 1
        if not NO_RESULT.search(code[start:code.find("\n", start)]):
            sites.append((match.start(), match.group(), BECOMES[match.group()]))
    return sites


def altered(text, site):
    place, old, new = site
    return text[:place] + new + text[place + len(old):]


def described(path, text, site):
    place, old, new = site
    line = check_tree.line_of(text, place)
    return f"{path}:{line}: {old} -> {new}: {text.splitlines()[line - 1].strip(' ' + chr(92))}"


class Copy:
    """A copy of the tracked files, with a build of the core and its tests."""

    def __init__(self, folder, sanitizers):
        self.tree, self.build = folder / "tree", folder / "build"
        for path in check_tree.tracked(ROOT):
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            if not (self.tree / path).is_file() or \
                    (self.tree / path).read_bytes() != (ROOT / path).read_bytes():
                shutil.copy(ROOT / path, self.tree / path)
        self.run("cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DS24_NN=OFF",
                 "-DCMAKE_BUILD_TYPE=Release", f"-DS24_SHARED={ROOT.parent / 'shared'}",
                 f"-DS24_SANITIZE={sanitizers}")
        built = self.make()
        if built.returncode:
            sys.exit(f"mutate: the tree as it is does not build:\n{built.stdout}")
        if self.caught_by():
            sys.exit("mutate: the tests of the tree as it is do not pass")

    @staticmethod
    def run(*command):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def make(self):
        return self.run("cmake", "--build", self.build, "--target", *QUICK, *SLOW)

    def caught_by(self):
        """The first part of the tests that fails, or None."""
        for tests in (QUICK, SLOW):
            if self.run("ctest", "--test-dir", self.build, "--stop-on-failure", "--timeout", "600",
                        "-j2", "-R", f"^({'|'.join(tests)})$").returncode:
                return tests
        return None

    def fate(self, path, text, site):
        """What becomes of one alteration: "caught", "survived", or "no program"."""
        (self.tree / path).write_text(altered(text, site), encoding="utf-8")
        try:
            if self.make().returncode:
                return "no program"
            return "caught" if self.caught_by() else "survived"
        finally:
            (self.tree / path).write_text(text, encoding="utf-8")


def chosen(options):
    """The files with how many alterations each has."""
    flags = cpu_flags()
    names = [str(path) for path in check_tree.tracked(ROOT)]
    unknown = [name for name in options.files if name not in names]
    if unknown:
        sys.exit(f"mutate: {unknown[0]} is not a tracked file of this tree, named from its root")
    if options.files:
        return {name: options.each for name in options.files}
    files = {name: options.each for name in names
             if name.startswith(KERNELS) and name.endswith((".c", ".h")) and runs_here(name, flags)}
    return files | {name: options.rules for name in RULES}


def main():
    reader = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    reader.add_argument("--seed", type=int, default=1, help="another number alters other operators")
    reader.add_argument("--each", type=int, default=1, help="alterations of a kernel's file")
    reader.add_argument("--rules", type=int, default=4, help="alterations of a rule's file")
    reader.add_argument("--sanitize", action="store_const", default="", const="address,undefined",
                        help="build with sanitizers, which is slower and catches more")
    reader.add_argument("--list", action="store_true", help="say what would be altered")
    reader.add_argument("files", nargs="*", metavar="FILE", help="these files alone")
    options = reader.parse_args()
    copy = None if options.list else Copy(ROOT / "build" / "mutate", options.sanitize)
    survivors, counts, start = [], {"caught": 0, "survived": 0, "no program": 0}, time.monotonic()
    for path, most in chosen(options).items():
        text = (ROOT / path).read_text(encoding="utf-8")
        sites = sites_of(path, text)
        random.Random(f"{options.seed} {path}").shuffle(sites)
        done = 0
        for site in sites:
            if done == most:
                break
            fate = copy.fate(path, text, site) if copy else "listed"
            done += fate != "no program"
            counts[fate] = counts.get(fate, 0) + 1
            survivors += [described(path, text, site)] * (fate == "survived")
            print(f"{fate:10}  {described(path, text, site)}", flush=True)
    if copy:
        print(f"mutate: {counts['caught']} caught, {counts['survived']} survived, "
              f"{time.monotonic() - start:.0f} s")
    for line in survivors:
        print(f"survived: {line}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
