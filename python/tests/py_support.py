# SPDX-License-Identifier: Apache-2.0
"""What the package's tests share: golden vectors, a small model, memory of the process."""
import os
import pathlib
import sys
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = pathlib.Path(os.environ.get("SPARSE24_GOLDEN", TREE.parent / "shared" / "golden"))
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


def group_counts(w):
    """Non-zeros of each group of four along the last dimension."""
    return (w.reshape(*w.shape[:-1], -1, 4) != 0).sum(axis=-1)
