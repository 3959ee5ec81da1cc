# SPDX-License-Identifier: Apache-2.0
"""What the package's tests share: golden vectors, a small model, memory of the process."""
import gc
import os
import pathlib
import sys
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = pathlib.Path(os.environ.get("SPARSE24_GOLDEN", TREE.parent / "shared" / "golden"))
CALLS = int(os.environ.get("S24_CALLS", "7000"))  # after which memory must be as it was
sys.path.insert(0, str(TREE / "tests" / "tools"))
import tiny_bert  # noqa: E402 pylint: disable=wrong-import-position,unused-import


def golden(path):
    """A file or folder of the golden vectors; the test skips where there is none."""
    if not (GOLDEN / path).exists():
        raise unittest.SkipTest(f"no golden vectors {GOLDEN / path}")
    return GOLDEN / path


def resident():
    """Bytes of memory that the process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(call, calls=CALLS):
    """Bytes by which so many calls leave the process larger. What ran before left a heap with
    holes, which the first calls may fill: they have three turns to add less than a MiB."""
    for _ in range(3):
        gc.collect()
        before = resident()
        for _ in range(calls):
            call()
        gc.collect()
        grown = resident() - before
        if grown < 1 << 20:
            break
    return grown


def group_counts(w):
    """Non-zeros of each group of four along the last dimension."""
    return (w.reshape(*w.shape[:-1], -1, 4) != 0).sum(axis=-1)
