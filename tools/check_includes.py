#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what docs/architecture.md calls the law of direction, and the few rules beside it that a
compiler does not know. Reads the tracked files of a tree; ends with 1 when something is wrong.

    tools/check_includes.py [TREE]
"""
import os
import pathlib
import re
import subprocess
import sys

# Every room of src/ with the rooms whose headers it may include, beside its own and include/.
# io, task, nn, train and cli see libsparse24 as a customer does: through its public header.
ROOMS = {
    "base": set(),
    "format": {"base"},
    "kernel": {"base", "format"},
    "op": {"base", "format", "kernel"},
    "quant": {"base", "format", "kernel", "op"},
    "prune": {"base", "format", "kernel", "op", "quant"},
    "device": {"base", "format", "kernel", "op"},
    "cuda": {"base", "kernel", "device"},
    "onednn": set(),
    "io": set(),
    "vec": set(),
    "dense": {"onednn", "io", "vec"},
    "task": {"io", "vec"},
    "model": {"io", "vec", "dense"},
    "run": {"io", "task", "vec", "dense", "model"},
    "recipe": {"io", "task", "vec", "dense", "model", "run"},
    "train": {"io", "task", "vec", "dense", "model", "run"},
}
CORE = {"base", "format", "kernel", "op", "device", "quant", "prune", "cuda"}
EVERYWHERE = "src/base/try.h"  # the one header of a room that all see
PUBLIC_ONLY = {"cli", "examples"}
FORBIDDEN = re.compile(r"(?<![\w.>])(printf|vprintf|fprintf|vfprintf|puts|fputs|putchar|perror|exit"
                       r"|_exit|_Exit|quick_exit|abort|getenv|secure_getenv|setenv)\s*\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_FILES = {".c", ".h", ".cu", ".cuh", ".def", ".py", ".sh", ".cmake", ".map"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60


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
    for line, header in includes_of(path, text, tree):
        header_room = header.parts[1] if header.parts[0] == "src" else header.parts[0]
        if parts[0] == "include":
            if header.parts[0] != "include":
                yield line, f"a public header includes the private {header}"
        elif parts[0] == "src":
            room = parts[1]
            if room not in ROOMS:
                yield line, f"src/{room} is not a room; add it to {pathlib.Path(__file__).name}"
            elif header.parts[0] == "include":
                if room in CORE and header.name not in ("sparse24.h", "device.h",
                                                                "device_train.h"):
                    yield line, f"{room} belongs to libsparse24 and may not see {header}"
            elif str(header) == EVERYWHERE:
                continue
            elif header_room != room and header_room not in ROOMS[room]:
                yield line, f"{room} may not include {header}"
        elif parts[0] == "cli" and header_room == "onednn":
            continue  # a peer of bench too
        elif parts[0] in PUBLIC_ONLY and header.parts[0] not in ("include", parts[0]):
            yield line, f"{parts[0]} includes public headers only, not {header}"


def manners(path, text):
    """Yields (line, sentence) for calls that a library does not make."""
    if path.parts[0] != "src" or path.suffix not in (".c", ".h", ".cu", ".cuh"):
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
    if path.suffix not in (".c", ".h", ".cu", ".cuh"):
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
                yield start, f"a function of {number - start - 1} lines, more than {LONGEST_FUNCTION}"
            start = None


def tracked(tree):
    names = subprocess.run(["git", "-C", str(tree), "ls-files", "-z"], capture_output=True,
                           check=True, text=True).stdout.split("\0")
    return [pathlib.PurePosixPath(n) for n in names if n and (tree / n).is_file()]


def check(tree, files):
    """Returns (errors, warnings): lists of lines "path:line: sentence"."""
    errors, warnings = [], []
    for path in files:
        try:
            text = (tree / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = list(licence(path, text)) + list(manners(path, text))
        if path.suffix in (".c", ".h", ".cu", ".cuh", ".def"):
            found += direction(path, text, tree)
        errors += [f"{path}:{line}: {sentence}" for line, sentence in found]
        warnings += [f"{path}:{line}: {sentence}" for line, sentence in sizes(path, text)]
    return errors, warnings


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    tree = tree if tree.is_dir() else tree.parent.parent
    files = tracked(tree)
    errors, warnings = check(tree, files)
    for line in warnings:
        print(f"warning: {line}")
    for line in errors:
        print(f"error: {line}")
    print(f"check_includes: {len(files)} files, {len(errors)} errors, {len(warnings)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
