#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the circles between files of libsparse24, libsparse24-nn and the command line: files that
need one another's functions, as the objects of a build say. A table and its rows (ROWS) may;
anything else is two jobs in one file. Ends with 1 when there is such a circle.

    tools/circles.py BUILD [TREE]

Each line is one circle: its files, then who needs what from whom.
"""
import collections
import fnmatch
import pathlib
import subprocess
import sys

# The units by the folder of their objects, and where their sources lie in the tree.
UNITS = (("CMakeFiles/sparse24.dir", "."), ("CMakeFiles/sparse24_nn.dir", "."),
         ("cli/CMakeFiles/sparse24_cli.dir", "cli"))

# A table needs its rows, and rows may need what stands with their table: (table, rows).
ROWS = (
    ("src/io/jinja/jinja_functions.c", "src/io/jinja/function_*.c"),
    ("src/io/tokenizer/chain_load.c", "src/io/tokenizer/normalize_*.c"),
    ("src/io/tokenizer/chain_load.c", "src/io/tokenizer/pretokenize*.c"),
    ("src/prune/prune.c", "src/prune/*.c"),
    ("src/run/weight/weight.c", "src/run/weight/weight_*.c"),
    ("src/task/images.c", "src/task/images_*.c"),
    ("src/train/cpu_ops.c", "src/train/cpu_*.c"),
    ("src/train/gpu.c", "src/train/gpu_*.c"),
)


def objects(build, tree):
    """Yields (object, source as a path inside the tree) of each unit. A build keeps the objects of
    sources that are gone; those are left out."""
    for folder, base in UNITS:
        for path in sorted((build / folder).rglob("*.o")):
            source = pathlib.PurePosixPath(base) / path.relative_to(build / folder).with_suffix("")
            if (tree / source).is_file():
                yield path, str(source)


def symbols(paths):
    """Yields (object, symbol, whether the object defines it)."""
    done = subprocess.run(["nm", "-A", "-g", "-P", *map(str, paths)], capture_output=True,
                          check=True, text=True)
    for line in done.stdout.splitlines():
        path, rest = line.split(": ", 1)
        name, kind = rest.split()[:2]
        yield path, name, kind not in "Uvw"


def needs(found):
    """{file: {file that it needs: [symbols]}} of (file, symbol, defined)."""
    home, wanted = {}, collections.defaultdict(set)
    for path, name, defined in found:
        if defined:
            home[name] = path
        else:
            wanted[path].add(name)
    edges = collections.defaultdict(lambda: collections.defaultdict(list))
    for path, names in wanted.items():
        for name in sorted(names):
            if home.get(name, path) != path:
                edges[path][home[name]].append(name)
    return edges


def judged(edges, rows=ROWS):
    """The edges without those from a table to its rows: a circle of the others is a fault."""
    def is_row(path, other):
        return any(fnmatch.fnmatch(path, table) and fnmatch.fnmatch(other, row)
                   for table, row in rows)
    return {path: {other: names for other, names in of.items() if not is_row(path, other)}
            for path, of in edges.items()}


def components(edges):
    """Tarjan's strongly connected components of more than one file, without recursion."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in sorted(edges):
        work = [(root, iter(sorted(edges.get(root, ()))))] if root not in order else []
        while work:
            path, rest = work[-1]
            if path not in order:
                order[path] = low[path] = len(order)
                stack.append(path)
                on_stack.add(path)
            for other in rest:
                if other not in order:
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on_stack:
                    low[path] = min(low[path], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[path])
                if low[path] == order[path]:
                    at = stack.index(path)
                    circle = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(circle)
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return found


def circles(build, tree):
    """(files, circles as [(files, edges)]) of a build."""
    sources = {str(path): source for path, source in objects(build, tree)}
    if not sources:
        return 0, []
    edges = judged(needs((sources[path], name, defined)
                          for path, name, defined in symbols(sources)))
    found = [(circle, [(path, other, edges[path][other]) for path in circle
                       for other in sorted(edges.get(path, {})) if other in circle])
             for circle in components(edges)]
    return len(sources), found


def main():
    if not 2 <= len(sys.argv) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    tree = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent)
    count, found = circles(pathlib.Path(sys.argv[1]), tree)
    for circle, edges in found:
        print("circle:", *circle)
        for path, other, names in edges:
            print(f"    {path} needs {', '.join(names)} of {other}")
    print(f"circles: {count} files, {len(found)} circles")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
