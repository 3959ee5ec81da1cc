#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the law of direction (docs/architecture.md) and the rules next to it that a compiler does
not know: manners, licence lines, columns, parameters, unique names, sizes, subjects of commits.
Reads the tracked files of a tree; ends with 1 when something is wrong.

    tools/check_tree.py [--lower] [TREE]

Files that were there before a rule stand in tools/check_tree.allow with the number of their faults,
which may only fall: more is an error, fewer a warning. --lower writes the numbers that have fallen.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Every room of src/ with the rooms whose headers it may include, next to its own and include/.
# io, task, nn, train and cli see libsparse24 as a customer does: through its public header.
ROOMS = {
    "base": set(),
    "format": {"base"},
    "kernel": {"base", "format"},
    "op": {"base", "format", "kernel"},
    "quant": {"base", "format", "kernel", "op"},
    "prune": {"base", "format", "kernel", "op", "device", "quant"},
    "device": {"base", "format", "kernel", "op"},
    "cuda": {"base", "kernel", "device"},
    "onednn": set(),
    "comm": set(),
    "mpi": {"comm"},
    "io": {"vec"},
    "vec": set(),
    "dense": {"onednn", "io", "vec"},
    "task": {"io", "vec"},
    "model": {"io", "vec", "dense"},
    "run": {"io", "task", "vec", "dense", "comm", "model"},
    "export": {"io", "vec", "dense", "model", "run"},
    "train": {"io", "task", "vec", "dense", "comm", "model", "run"},
    "recipe": {"io", "task", "vec", "dense", "comm", "model", "run", "train"},
}
CORE = {"base", "format", "kernel", "op", "device", "quant", "prune", "cuda"}
# Headers of a room that all see.
HASH = pathlib.PurePosixPath("src/base/hash.h")
EVERYWHERE = {"src/base/try.h", "src/base/tiles.h", "src/base/token_scale.h", str(HASH)}
# What libsparse24 runs for a libsparse24-nn of the same version, and who may include it.
SAME_VERSION = {"src/device/device_layers.h", "src/device/device_train.h"}
SAME_VERSION_ROOMS = {"src/comm", "src/model", "src/run", "src/train", "cli/bench"}
PUBLIC_ONLY = {"cli", "examples", "python"}
FORBIDDEN = re.compile(r"(?<![\w.>])(printf|vprintf|fprintf|vfprintf|puts|fputs|putchar|perror|exit"
                       r"|_exit|_Exit|quick_exit|abort|getenv|secure_getenv|setenv)\s*\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_FILES = {".c", ".h", ".cu", ".cuh", ".def", ".py", ".sh", ".cmake", ".map"}
C_FILES = {".c", ".h", ".cu", ".cuh"}
SOURCES = C_FILES | {".def", ".py", ".sh", ".cmake"}
NAMED_ONCE = {"include", "src", "cli", "tests", "bench", "tools", "python"}
NAMED_BY_PYTHON = {"__init__.py", "__main__.py"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
LONGEST_LINE = 100
MOST_PARAMETERS = 6
ALLOWED = "tools/check_tree.allow"
# Commits of this day and later have their subjects checked; what is older keeps those it has.
SUBJECTS_SINCE = "2026-11-24T00:00:00Z"
LONGEST_SUBJECT = 72
SUBJECT = re.compile(r"[a-z0-9_]+(, [a-z0-9_]+)*: (?!(?:an?|the) )[^ ].*[^ .]")
# Lines of the preprocessor with those that continue them.
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = re.compile(r"\b__(?:attribute__|launch_bounds__)\s*\(")
SCOPE = re.compile(r"(?:\bextern\s+|\bnamespace(?:\s+\w+)?\s*)\{")
GIVEN = re.compile(r"\benum MHD_Result\b")  # a library calls it, and says with what
CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")


def blank(match):
    """Keeps the lines of what it removes, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """The text without comments and without what stands in string and character literals."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)


def include_code(text):
    """The text without comments; include paths are left."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def includes_of(path, text, tree):
    """Yields (line, header as a path inside the tree) for what the file includes of the tree."""
    text = include_code(text)
    for match in INCLUDE.finditer(text):
        header = match.group(2)
        for place in (f"include/{header}", f"src/{header}", str(path.parent / header)):
            place = os.path.normpath(place)
            if (tree / place).is_file():
                yield line_of(text, match.start()), pathlib.PurePosixPath(place)
                break


def direction(path, text, tree):
    """Yields (line, sentence) for includes that go the wrong way."""
    parts = path.parts
    sees_layers = "/".join(parts[:2]) in SAME_VERSION_ROOMS
    for line, header in includes_of(path, text, tree):
        if sees_layers and str(header) in SAME_VERSION:
            continue
        header_room = header.parts[1] if header.parts[0] == "src" else header.parts[0]
        if parts[0] == "include":
            if header.parts[0] != "include":
                yield line, f"a public header includes the private {header}"
        elif parts[0] == "src":
            room = parts[1]
            if room not in ROOMS:
                yield line, f"src/{room} is not a room; add it to {pathlib.Path(__file__).name}"
            elif header.parts[0] == "include":
                if room in CORE and header.name not in ("sparse24.h", "device.h"):
                    yield line, f"{room} belongs to libsparse24 and may not see {header}"
            elif str(header) in EVERYWHERE:
                continue
            elif header_room != room and header_room not in ROOMS[room]:
                yield line, f"{room} may not include {header}"
        elif parts[0] == "cli" and (header_room == "onednn" or header == HASH):
            continue  # a peer of bench too; how runs know their own
        elif parts[0] in PUBLIC_ONLY and header.parts[0] not in ("include", parts[0]):
            yield line, f"{parts[0]} includes public headers only, not {header}"


def manners(path, text):
    """Yields (line, sentence) for calls that a library does not make."""
    if path.parts[0] != "src" or path.suffix not in C_FILES:
        return
    code = code_of(text)
    for match in FORBIDDEN.finditer(code):
        yield line_of(code, match.start()), f"a library does not call {match.group(1)}"


def licence(path, text):
    named = path.suffix in SPDX_FILES or path.name == "CMakeLists.txt" or text.startswith("#!")
    if named and SPDX not in "\n".join(text.split("\n")[:3]):
        yield 1, f"no line {SPDX}"


def sizes(path, text):
    """Yields (line, sentence) for files and functions that are longer than they should be."""
    if path.suffix not in C_FILES:
        return
    lines = code_of(text).split("\n")
    if len(lines) - 1 > LONGEST_FILE:
        yield 1, f"{len(lines) - 1} lines, more than {LONGEST_FILE}"
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start:
            if number - start - 1 > LONGEST_FUNCTION and "kernel" not in path.parts:
                yield start, f"a function of {number - start - 1} lines, over {LONGEST_FUNCTION}"
            start = None


def columns(path, text):
    """Yields (line, sentence) for lines that are too long to stand next to others."""
    if path.suffix not in SOURCES and path.name != "CMakeLists.txt":
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            yield number, f"{len(line)} columns, more than {LONGEST_LINE}"


def closing(text, start):
    """The place after the parenthesis that closes the one at start."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)


def outermost(code):
    """Yields (place, text) of what stands outside braces: declarations and heads of functions."""
    code = SCOPE.sub(lambda match: blank(match)[:-1] + ";", DIRECTIVE.sub(blank, code))
    depth = start = 0
    for match in re.finditer(r"[{};]", code):
        if depth == 0:
            yield start, code[start:match.start()]
        depth = max(0, depth + {"{": 1, "}": -1, ";": 0}[match.group()])
        start = match.end()


def parameters(path, text):
    """Yields (line, sentence) for functions with many parameters; kernels take what they need."""
    if path.suffix not in C_FILES or path.parts[:2] == ("src", "kernel"):
        return
    code = code_of(text)
    for start, head in outermost(code):
        if re.search(r"\btypedef\b|__global__|__device__", head) or GIVEN.search(head):
            continue
        for match in list(ATTRIBUTE.finditer(head)):
            end = closing(head, match.end() - 1)
            head = head[:match.start()] + " " * (end - match.start()) + head[end:]
        name = CALLED.search(head)
        if not name or name.group(1).isupper() or "=" in head[:name.start()]:
            continue
        inner = head[name.end():closing(head, name.end() - 1) - 1]
        inner = re.sub(r"\([^()]*\)", " ", re.sub(r"\([^()]*\)", " ", inner))
        count = inner.count(",") + 1
        if count > MOST_PARAMETERS:
            yield (line_of(code, start + name.start()),
                   f"{name.group(1)} has {count} parameters, more than {MOST_PARAMETERS}")


def names(files):
    """Yields (path, sentence) for sources that share their name with another."""
    places = collections.defaultdict(list)
    for path in files:
        if path.name in NAMED_BY_PYTHON:
            continue
        if path.parts[0] in NAMED_ONCE and path.suffix in SOURCES:
            places[path.name].append(path)
    for paths in places.values():
        for path in paths[1:]:
            yield path, f"the name of {paths[0]} too; names of sources are unique in the tree"


def subjects(tree):
    """Yields (commit, sentence) for subjects that break the rule; nothing without a history, or
    where no git can read it."""
    if not shutil.which("git"):
        return
    log = subprocess.run(["git", "-C", str(tree), "log", "--no-merges", "--format=%h %s",
                          f"--since={SUBJECTS_SINCE}"], capture_output=True, text=True)
    for line in log.stdout.splitlines():
        commit, subject = line.split(" ", 1)
        if len(subject) > LONGEST_SUBJECT:
            yield commit, f"a subject of {len(subject)} characters, more than {LONGEST_SUBJECT}"
        if not SUBJECT.fullmatch(subject):
            yield commit, f'"{subject}" is not "room: imperative subject"'


def tracked(tree):
    names = subprocess.run(["git", "-C", str(tree), "ls-files", "-z"], capture_output=True,
                           check=True, text=True).stdout.split("\0")
    return [pathlib.PurePosixPath(n) for n in names if n and (tree / n).is_file()]


def allowed(tree):
    """The numbers of faults that files may have: {(rule, path): count}."""
    file = tree / ALLOWED
    rows = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [row.split() for row in rows if row and not row.startswith("#")]
    return {(rule, path): int(count) for rule, path, count in rows}


def lower(tree, counts):
    """Writes the numbers that have fallen; none rises, and a file without faults has no row."""
    old = allowed(tree)
    text = (tree / ALLOWED).read_text(encoding="utf-8")
    head = "".join(line for line in text.splitlines(True) if line.startswith("#"))
    rows = [f"{rule} {path} {min(count, counts[rule, path])}\n"
            for (rule, path), count in sorted(old.items()) if counts[rule, path]]
    (tree / ALLOWED).write_text(head + "".join(rows), encoding="utf-8")


def over(rule, path, found, most):
    """Returns (errors, warnings) of a rule whose faults the table counts."""
    if len(found) > most:
        known = f" ({len(found)} in this file, {most} allowed)" if most else ""
        return [f"{path}:{line}: {sentence}{known}" for line, sentence in found], []
    if len(found) < most:
        return [], [f"{path}: {len(found)} faults of {rule}, {most} allowed: --lower writes that"]
    return [], []


def check(tree, files):
    """Returns (errors, warnings, counts): lists of "path:line: sentence", faults by rule, file."""
    errors, warnings, counts = [], [], collections.Counter()
    most = allowed(tree)
    for path in files:
        try:
            text = (tree / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = list(licence(path, text)) + list(manners(path, text))
        if path.suffix in C_FILES | {".def"}:
            found += direction(path, text, tree)
        errors += [f"{path}:{line}: {sentence}" for line, sentence in found]
        warnings += [f"{path}:{line}: {sentence}" for line, sentence in sizes(path, text)]
        for rule in (columns, parameters):
            key = rule.__name__, str(path)
            found = list(rule(path, text))
            counts[key] = len(found)
            worse, better = over(*key, found, most.get(key, 0))
            errors += worse
            warnings += better
    errors += [f"{path}: {sentence}" for path, sentence in names(files)]
    return errors, warnings, counts


def main():
    reader = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    reader.add_argument("--lower", action="store_true", help="write the numbers that have fallen")
    reader.add_argument("tree", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    options = reader.parse_args()
    files = tracked(options.tree)
    errors, warnings, counts = check(options.tree, files)
    errors += [f"{commit}: {sentence}" for commit, sentence in subjects(options.tree)]
    if options.lower:
        lower(options.tree, counts)
    for line in warnings:
        print(f"warning: {line}")
    for line in errors:
        print(f"error: {line}")
    print(f"check_tree: {len(files)} files, {len(errors)} errors, {len(warnings)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
