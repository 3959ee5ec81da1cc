#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts to vectors on a GPU, ours and sentence-transformers', by turns on the same machine.

    bench/peers/embed_gpu.py --program build/release/sparse24 --texts FILE --dense FOLDER
                             --sparse FOLDER [--sizes 128,256,512] [--rounds 5] [--json FILE]

FILE has a text a line; the folders hold one sentence encoder, dense and packed 2:4. Ours is
`sparse24 embed --device cuda`: a process each time, whose figure is its own, from the file of texts
to the file of vectors, the model loaded; the first of each folder, which finds no notes of an earlier
run, is given apart ("cold"). sentence-transformers has the dense folder in f16 with sdpa attention,
model and texts in memory, and gives vectors in memory: eager, and its encoder under torch.compile
with dynamic shapes; it sorts by length by itself. Each way runs over all texts once untimed, which is
where compiling goes, and then once with every number of texts a batch, if there are several; its best
number has its turn in each round.
Medians over the rounds. Needs torch and sentence-transformers.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


class Ours:
    """`sparse24 embed` of a folder, with notes of its own."""

    def __init__(self, options, folder, notes, dtype):
        self.vectors = notes / f"{folder.name}-{dtype}.safetensors"
        self.command = [options.program, "embed", folder, "--input", options.texts, "--output",
                        self.vectors, "--device", "cuda", "--dtype", dtype, "--force", "--json",
                        "--quiet"]
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(notes))
        self.cold = self.run()

    def run(self):
        done = subprocess.run(self.command, env=self.environment, stdout=subprocess.PIPE, text=True,
                              check=False)
        answer = json.loads(done.stdout)
        if done.returncode:
            raise SystemExit(f"sparse24 embed: {answer['error']}")
        return answer["seconds"]


class Theirs:
    """sentence-transformers, eager or compiled."""

    def __init__(self, options, compiled, texts):
        import sentence_transformers
        import torch
        self.torch, self.texts = torch, texts
        self.model = sentence_transformers.SentenceTransformer(
            str(options.dense), device="cuda",
            model_kwargs={"dtype": torch.float16, "attn_implementation": "sdpa"})
        if compiled:
            self.model[0].auto_model.compile(dynamic=True)
        start = time.perf_counter()
        self.size = options.sizes[0]
        self.run()
        self.cold = time.perf_counter() - start
        self.sizes = {}
        for size in options.sizes[1:] and options.sizes:
            self.size = size
            self.sizes[size] = self.run()
        self.size = min(self.sizes, key=self.sizes.get, default=self.size)

    def run(self):
        start = time.perf_counter()
        self.vectors = self.model.encode(self.texts, batch_size=self.size, convert_to_numpy=True,
                                         show_progress_bar=False)
        return time.perf_counter() - start


def least_cosine(path, vectors):
    """Of ours, in a safetensors file, with theirs."""
    import numpy
    from safetensors.numpy import load_file
    ours = load_file(path)["embeddings"]
    vectors = numpy.asarray(vectors, dtype=numpy.float32)
    lengths = numpy.linalg.norm(ours, axis=1) * numpy.linalg.norm(vectors, axis=1)
    return float(((ours * vectors).sum(axis=1) / lengths).min())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True)
    parser.add_argument("--dense", type=pathlib.Path, required=True)
    parser.add_argument("--sparse", type=pathlib.Path, required=True)
    parser.add_argument("--dtypes", default="f16", help="of ours, 2:4; dense is f16")
    parser.add_argument("--peers", default="eager,compiled", help="or none")
    parser.add_argument("--sizes", default="128,256,512", help="theirs, texts a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.program = options.program.resolve()
    options.sizes = [int(size) for size in options.sizes.split(",")]
    texts = options.texts.read_text(encoding="utf-8").rstrip("\n").split("\n")
    with tempfile.TemporaryDirectory() as folder:
        notes = pathlib.Path(folder)
        ways = {"ours dense f16": Ours(options, options.dense, notes, "f16")}
        for dtype in options.dtypes.split(","):
            ways[f"ours 2:4 {dtype}"] = Ours(options, options.sparse, notes, dtype)
        for peer in options.peers.split(",") if options.peers != "none" else ():
            ways[peer] = Theirs(options, peer == "compiled", texts)
            print(f"{peer}: first pass {ways[peer].cold:.2f} s; by texts a batch: "
                  f"{ways[peer].sizes}", flush=True)
        samples = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                samples[name].append(way.run())
            print("round:", {name: round(times[-1], 3) for name, times in samples.items()},
                  flush=True)
        cosine = {name: least_cosine(ways["ours dense f16"].vectors, way.vectors)
                  for name, way in ways.items() if isinstance(way, Theirs)}
    rows = {name: {"s": statistics.median(times), "least": min(times), "most": max(times),
                   "cold_s": ways[name].cold, "batch": getattr(ways[name], "size", None)}
            for name, times in samples.items()}
    for name, row in rows.items():
        print(f"{name}: {row['s']:.3f} s ({row['least']:.3f} to {row['most']:.3f}), "
              f"first {row['cold_s']:.2f} s, texts a batch {row['batch']}")
    print("least cosine of ours dense with theirs:", cosine)
    if options.json:
        options.json.write_text(json.dumps({"texts": len(texts), "rows": rows,
                                            "least_cosine": cosine}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
