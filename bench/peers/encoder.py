#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an encoder in sparse24 (dense and 2:4) and in OpenVINO on the same machine in the same run.

Rounds alternate between the two, and each figure is the median over the rounds of a round's median,
so that a machine that drifts drifts under both. Token ids in, last hidden state out; every text has
the same number of tokens. Wants openvino, torch and transformers (any virtual environment).

    bench/peers/encoder.py MODEL PACKED [--rounds 3] [--json FILE]

MODEL is the dense Hugging Face folder, PACKED the same model packed by sparse24.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import numpy
import openvino
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = [(1, 16), (1, 128), (32, 16), (32, 128), (8, 256)]  # texts, tokens


class OpenVino:
    """The dense encoder compiled by OpenVINO in f32, one fixed shape a request."""

    def __init__(self, folder, threads):
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32,
                                                       attn_implementation="eager").eval()
        ids = torch.ones(2, 16, dtype=torch.long)
        names = ("input_ids", "attention_mask", "token_type_ids")
        example = dict(zip(names, (ids, ids, ids * 0)))
        with torch.no_grad():
            self.model = openvino.convert_model(model, example_input=example)
        self.core, self.requests = openvino.Core(), {}
        for count in threads:
            for shape in SHAPES:
                self.requests[count, shape] = self.request(names, count, shape)

    def request(self, names, threads, shape):
        fixed = self.model.clone()
        fixed.reshape({name: list(shape) for name in names})
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32",
                   "PERFORMANCE_HINT": "LATENCY"}
        ids = numpy.random.default_rng(0).integers(1000, 29000, shape).astype(numpy.int64)
        inputs = dict(zip(names, (ids, numpy.ones_like(ids), numpy.zeros_like(ids))))
        return self.core.compile_model(fixed, "CPU", options).create_infer_request(), inputs

    def milliseconds(self, threads, shape, seconds=1.0):
        request, inputs = self.requests[threads, shape]
        for _ in range(2):
            request.infer(inputs)
        times, end = [], time.monotonic() + seconds
        while len(times) < 5 or time.monotonic() < end:
            begin = time.perf_counter()
            request.infer(inputs)
            times.append(1000 * (time.perf_counter() - begin))
        return statistics.median(times)


def sparse24(program, packed, threads, shape):
    """(dense_ms, sparse_ms) of one `sparse24 bench --model`."""
    text = subprocess.run([program, "bench", "--model", packed, "--batch", str(shape[0]), "--seq",
                           str(shape[1]), "--threads", str(threads), "--json", "--quiet"],
                          check=True, capture_output=True, text=True).stdout
    row = json.loads(text)["rows"][0]
    return row["dense_ms"], row["sparse_ms"]


def measure(options, threads):
    peer = OpenVino(options.model, threads)
    found = {}
    for number in range(options.rounds):
        for count in threads:
            for shape in SHAPES:
                dense, sparse = sparse24(options.program, options.packed, count, shape)
                found.setdefault((count, shape), []).append(
                    (dense, sparse, peer.milliseconds(count, shape)))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    rows = []
    for (count, shape), times in found.items():
        dense, sparse, other = (statistics.median(column) for column in zip(*times))
        rows.append({"batch": shape[0], "seq": shape[1], "threads": count, "dense_ms": dense,
                     "sparse_ms": sparse, "openvino_ms": other, "dense_to_openvino": other / dense,
                     "sparse_to_openvino": other / sparse, "sparse_to_dense": dense / sparse})
    return rows


def main():
    parser = argparse.ArgumentParser(description="An encoder in sparse24 and in OpenVINO.")
    parser.add_argument("model")
    parser.add_argument("packed")
    parser.add_argument("--program", default=str(ROOT / "build/release/sparse24"))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the rows here")
    options = parser.parse_args()
    rows = measure(options, [int(t) for t in options.threads.split(",")])
    print(f"sentences/s; OpenVINO {openvino.__version__} f32; above 1: sparse24 is faster\n")
    print("| batch x tokens | threads | dense | 2:4 | OpenVINO | dense/OpenVINO | 2:4/OpenVINO "
          "| 2:4/dense |\n|---|---|---|---|---|---|---|---|")
    for r in rows:
        rates = (1000 * r["batch"] / r[k] for k in ("dense_ms", "sparse_ms", "openvino_ms"))
        print(f"| {r['batch']} x {r['seq']} | {r['threads']} | "
              + " | ".join(f"{x:.1f}" for x in rates)
              + f" | {r['dense_to_openvino']:.2f} | {r['sparse_to_openvino']:.2f} "
                f"| {r['sparse_to_dense']:.2f} |")
    if options.json:
        about = {"machine": platform.platform(), "openvino": openvino.__version__, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
