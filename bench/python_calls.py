#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what Python adds: `import sparse24`, and calls whose product is next to nothing (1x4x4).
Prints JSON. Needs the wheel installed; PyTorch's calls are timed where it is.

    python3 bench/python_calls.py > bench/results/python/calls.json
"""
import json
import platform
import statistics
import subprocess
import sys
import time

import numpy as np
import sparse24
from sparse24 import _core

ROUNDS, CALLS = 31, 2000


def microseconds(calls):
    """The least and the median of some rounds for each call, the calls in turn."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: {"least": round(min(t), 2), "median": round(statistics.median(t), 2)}
            for name, t in times.items()}


def import_milliseconds():
    """Of a fresh process: with the import less without it."""
    def run(code):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - begin) * 1e3
    pairs = [(run("import sparse24"), run("pass")) for _ in range(ROUNDS)]
    return {"least": round(min(a for a, _ in pairs) - min(b for _, b in pairs), 1),
            "median": round(statistics.median(a - b for a, b in pairs), 1)}


def numpy_calls(k):
    w = sparse24.Matrix.magnitude(np.random.randn(k, k).astype("f4"))
    x, out = np.random.randn(1, k).astype("f4"), np.empty((1, k), "f4")
    return {f"linear 1x{k}x{k}": lambda: sparse24.linear(x, w),
            f"linear 1x{k}x{k} with out": lambda: sparse24.linear(x, w, out=out),
            f"_core.linear 1x{k}x{k}": lambda: _core.linear(out, x, w._handle, None)}


def torch_calls(torch, k):
    import sparse24.torch as st  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    dense = torch.nn.Linear(k, k)
    st.prune_(dense)
    layer, x = st.SparseLinear.from_dense(dense), torch.randn(1, k)

    def quiet(call):
        def run():
            with torch.inference_mode():
                call(x)
        return run
    op = torch.ops.sparse24.linear_forward.default
    return {f"operator 1x{k}x{k}": quiet(lambda x: op(x, layer.packed, None, k, k, layer.layout)),
            f"SparseLinear 1x{k}x{k}": quiet(layer), f"nn.Linear 1x{k}x{k}": quiet(dense),
            "inference_mode alone": quiet(lambda _: None)}


def main():
    sparse24.set_threads(1)
    calls = {**numpy_calls(4), **numpy_calls(384)}
    versions = {"sparse24": sparse24.__version__, "numpy": np.__version__,
                "python": platform.python_version()}
    try:
        import torch  # pylint: disable=import-outside-toplevel
        versions["torch"] = torch.__version__
        calls.update({**torch_calls(torch, 4), **torch_calls(torch, 384)})
    except ImportError:
        pass
    print(json.dumps({"versions": versions, "isa": sparse24.machine()[0],
                      "import_ms": import_milliseconds(),
                      "calls_us": microseconds(calls)}, indent=1))


if __name__ == "__main__":
    main()
