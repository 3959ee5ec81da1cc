#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`prune` by magnitude next to `cp -r` of the same folder, in turns: with nothing of it in the
cache of pages, then with all of it. prune ends when the disk has what it wrote, so that cp is told
alone and with a sync.

    bench/cold_copy.py PROGRAM PLACE [--blocks 13] [--cold 3] [--warm 2] [--packed]

Makes the folder in PLACE, of Llama's blocks of 4,096 numbers, bf16, in four files (13 blocks: 6.2
GB), and removes it. PLACE has room for two of them. The cache is dropped by the kernel's own
switch, which only root has. Wants NumPy.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy

WIDTH, INNER, KEYS, WORDS, FILES = 4096, 14336, 1024, 32000, 4


def shapes(blocks):
    wide, tall, keys = [WIDTH, WIDTH], [INNER, WIDTH], [KEYS, WIDTH]
    parts = {"self_attn.q_proj": wide, "self_attn.k_proj": keys, "self_attn.v_proj": keys,
             "self_attn.o_proj": wide, "mlp.gate_proj": tall, "mlp.up_proj": tall,
             "mlp.down_proj": [WIDTH, INNER], "input_layernorm": [WIDTH],
             "post_attention_layernorm": [WIDTH]}
    found = [(f"model.layers.{block}.{name}.weight", shape) for block in range(blocks)
             for name, shape in parts.items()]
    return [*found, ("model.embed_tokens.weight", [WORDS, WIDTH]),
            ("lm_head.weight", [WORDS, WIDTH]), ("model.norm.weight", [WIDTH])]


def write_file(path, tensors, noise, chance):
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in tensors:
            left, first = int(numpy.prod(shape)), int(chance.integers(1 << 20))
            while left:
                piece = noise[first:first + left]
                file.write(memoryview(piece).cast("B"))
                left, first = left - len(piece), 0
    return at


def write_model(folder, blocks):
    chance, names = numpy.random.default_rng(1), shapes(blocks)
    folder.mkdir(parents=True)
    noise = (chance.standard_normal(1 << 25, numpy.float32) * 0.02).view(numpy.uint32)
    noise = (noise >> 16).astype(numpy.uint16)
    index, total = {}, 0
    for i in range(FILES):
        name = f"model-{i + 1:05}-of-{FILES:05}.safetensors"
        part = names[len(names) * i // FILES:len(names) * (i + 1) // FILES]
        total += write_file(folder / name, part, noise, chance)
        index.update({tensor: name for tensor, _ in part})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": WORDS,
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": blocks,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}))
    os.sync()
    return total


def anonymous(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return 0
    return max((1024 * int(line.split()[1]) for line in status.splitlines()
                if line.startswith("RssAnon")), default=0)


def run(*words):
    """Seconds, and the most bytes of memory of its own."""
    began, most = time.monotonic(), 0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, anonymous(process.pid))
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"{' '.join(words)}: exit {process.returncode}")
    return time.monotonic() - began, most


def turn(options, model, cold, way):
    out = options.place / "out"
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    if cold:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    if way == "prune":
        words = ["--packed"] if options.packed else []
        seconds, most = run(options.program, "prune", str(model), str(out), "--quiet", *words)
        return {"prune_s": seconds, "anonymous_bytes": most}
    seconds, _ = run("cp", "-r", str(model), str(out))
    began = time.monotonic()
    os.sync()
    return {"cp_s": seconds, "cp_and_sync_s": seconds + time.monotonic() - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("place", type=pathlib.Path)
    parser.add_argument("--blocks", type=int, default=13)
    parser.add_argument("--cold", type=int, default=3, help="rounds with nothing in the cache")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--packed", action="store_true", help="prune to packed tensors")
    options = parser.parse_args()
    model, rounds = options.place / "model", []
    try:
        total = write_model(model, options.blocks)
        for i in range(options.cold + options.warm):
            found = {"cold": i < options.cold}
            for way in ("cp", "prune") if i % 2 == 0 else ("prune", "cp"):
                found.update(turn(options, model, found["cold"], way))
            rounds.append(found)
    finally:
        for name in ("model", "out"):
            shutil.rmtree(options.place / name, ignore_errors=True)
    print(json.dumps({"bytes": total, "cores": len(os.sched_getaffinity(0)), "rounds": rounds},
                     indent=1))


if __name__ == "__main__":
    main()
