#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times sparse24.torch on a GPU next to dense PyTorch. Prints JSON. Needs the wheel with plugin,
PyTorch with CUDA, and for BERT transformers.

    python3 bench/python_gpu.py call bert mlp > bench/results/python/gpu.json

call: an operator's own cost on the host. bert: a BERT-base of random f16 weights, 2:4 by magnitude,
384 tokens; layers compiled, the pass one CUDA graph; dense, with accelerate_, compile_encoder, and
the session by itself as `sparse24 bench --model` runs it, in turns. mlp: the MLP of a ViT-L,
forward and backward, compiled, with weights pruned and packed in each step, next to the dense one;
as one CUDA graph, and by itself.
"""
import argparse
import copy
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import sparse24
import sparse24.torch as st
from sparse24.torch import compat, torch_cuda

ROUNDS = 15  # --rounds


def microseconds(call, calls=500):
    """Of the host, the least of some rounds."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    return round(min(times), 2)


def windows(calls, window=0.02, pause=0.03):
    """Milliseconds of wall-clock time a call, the median of some windows for each, the calls in
    turn; a pause before each leaves the chip as cool as it was."""
    times, repeats = {name: [] for name in calls}, {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        repeats[name] = max(2, int(window / (time.perf_counter() - begin)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(pause)
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - begin) / repeats[name] * 1e3)
    return {name: round(statistics.median(t), 4) for name, t in times.items()}


def milliseconds(calls, repeat=10):
    """Of the GPU, the median of some rounds for each call, the calls in turn."""
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(repeat):
                call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / repeat)
    return {name: round(statistics.median(t), 4) for name, t in times.items()}


@torch.inference_mode()
def own_cost(_):
    dense = torch.nn.Linear(384, 384).half().cuda()
    st.prune_(dense)
    layer, x = st.SparseLinear.from_dense(dense), torch.randn(1, 384).half().cuda()
    op, out = torch.ops.sparse24.linear_forward.default, {}
    out["operator"] = microseconds(lambda: op(x, layer.packed, None, 384, 384, layer.layout))
    out["SparseLinear"] = microseconds(lambda: layer(x))
    out["nn.Linear"] = microseconds(lambda: dense(x))
    y, handle, stream = torch.empty_like(x), torch_cuda.device(0), torch_cuda.stream_of(0)
    places = y.data_ptr(), x.data_ptr(), layer.packed.data_ptr()
    out["the C call alone"] = microseconds(
        lambda: sparse24._core.device_product(handle, stream, *places, 0, "f16", 1, 384, 384))
    # Launches go to a queue: what is measured is the host's time as long as the GPU keeps up.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            layer(x)
    out["on the GPU, in a graph"] = milliseconds({"x": graph.replay})["x"] * 10
    return out


def encoded(model):
    """A pass through a BERT without what makes its mask, which has none here: that asks whether it
    is captured, and then does otherwise."""
    return lambda ids: model.encoder(model.embeddings(ids))


def captured(model, inputs):
    """A graph of a pass, warmed up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(*inputs)
    return graph, out


def by_the_program(batches):
    """Milliseconds of a 2:4 pass, by the number of texts, as `sparse24 bench --model` has them."""
    command = [sys.executable, "-m", "sparse24", "bench", "--model", "bert-base", "--dtype", "f16",
               "--batch", ",".join(map(str, batches)), "--seq", "384", "--device", "cuda",
               "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stderr)
    return {row["batch"]: row["sparse_ms"] for row in json.loads(result.stdout)["rows"]}


def session_alone(native, ids):
    """A pass as the program times it: ids and pooled vectors on the host, waited for."""
    offsets = np.arange(len(ids) + 1, dtype=np.int64) * ids.shape[1]
    host = ids.cpu().numpy().astype(np.int32).ravel()
    vectors = {"embeddings": np.empty((len(ids), native.native.info["width"]), np.float32)}
    return lambda: native.native.forward_into(offsets, host, None, vectors)


def compiled_ways(dense, ids, options):
    """Graphs of the pass, dense and with accelerate_, what they give, the choices, and the model
    of the second, whose weights its graph reads."""
    sparse, graphs, outputs = copy.deepcopy(dense), {}, {}
    choices = st.accelerate_(sparse.encoder, tokens=ids.numel())
    if options.why:
        print(*sorted({(c.kind, c.why) for c in choices}), sep="\n", file=options.why, flush=True)
    torch._dynamo.reset()
    for name, model in (("dense", dense), ("accelerate_", sparse)):
        for layer in model.encoder.layer:
            layer.compile(mode=options.mode, dynamic=False)
        graphs[name], outputs[name] = captured(encoded(model), (ids,))
    return graphs, outputs, choices, sparse


@torch.inference_mode()
def bert(options):
    import transformers  # pylint: disable=import-outside-toplevel
    torch.manual_seed(1)
    dense = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    dense = dense.eval().half().cuda()
    st.prune_(dense.encoder)
    program = by_the_program(options.batch) if options.program else {}
    native = st.compile_encoder(dense, max_tokens=max(options.batch) * 384)
    rows = []
    for batch in options.batch:
        ids = torch.randint(1000, 30000, (batch, 384), device="cuda")
        mask = torch.ones_like(ids)
        graphs, outputs, choices, _sparse = compiled_ways(dense, ids, options)
        calls = {name: graph.replay for name, graph in graphs.items()}
        calls.update({"compile_encoder": lambda ids=ids: native(ids),
                      "compile_encoder with a mask": lambda ids=ids, mask=mask: native(ids, mask),
                      "session": session_alone(native, ids)})
        row = {"batch": batch, "layers 2:4": sum(c.kind == "2:4" for c in choices),
               **windows(calls), "bench --model": program.get(batch)}
        row["ratio"] = round(row["dense"] / row["accelerate_"], 3)
        row["compile_encoder over session"] = round(row["compile_encoder"] / row["session"], 3)
        one, two = (o.last_hidden_state.float() for o in outputs.values())
        row["cosine"] = round(float(F.cosine_similarity(one, two, -1).mean()), 5)
        row["cosine of compile_encoder"] = round(float(F.cosine_similarity(
            one, native(ids).last_hidden_state.float(), -1).mean()), 5)
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
        del graphs, outputs, calls
    return rows


def profile(calls, file):
    """Each call's kernels, to a file."""
    for name, call in calls.items():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(10):
                call()
            torch.cuda.synchronize()
        table = seen.key_averages().table(sort_by="self_device_time_total", row_limit=20,
                                          max_name_column_width=70)
        print(name, table, sep="\n", file=file, flush=True)


def trained(model, x, grad, options):
    """A step of a compiled model, forward and backward, and its CUDA graph's replay."""
    run = torch.compile(model, dynamic=False, mode=options.mode)

    def call():
        for p in (x, *model.parameters()):
            p.grad = None
        run(x).backward(grad)
    return call, captured(call, ())[0].replay


def mlp(options):
    rows = []
    for tokens in options.tokens:
        torch.manual_seed(1)
        torch._dynamo.reset()
        dense = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(),
                                    torch.nn.Linear(4096, 1024)).bfloat16().cuda()
        sparse = copy.deepcopy(dense)
        compat.swap_linear_with_semi_sparse_linear(sparse, {"0": compat.SemiSparseLinear,
                                                            "2": compat.SemiSparseLinear})
        x = torch.randn(tokens, 1024, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        grad, calls, graphs = torch.randn_like(x), {}, {}
        for name, model in (("dense", dense), ("SemiSparseLinear", sparse)):
            calls[name], graphs[name] = trained(model, x, grad, options)
        if options.profile:
            profile(calls, options.profile)
        row = {"tokens": tokens, **windows(graphs)}
        row["ratio"] = round(row["dense"] / row["SemiSparseLinear"], 3)
        row["without a graph"] = windows(calls)
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
        del calls, graphs
    return rows


PARTS = {"call": own_cost, "bert": bert, "mlp": mlp}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16448, 32768])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which medians are taken")
    parser.add_argument("--program", action="store_true", help="run `sparse24 bench`, too")
    parser.add_argument("--mode", help="torch.compile's", default=None)
    parser.add_argument("--profile", type=argparse.FileType("a"), help="of mlp, a file")
    parser.add_argument("--why", type=argparse.FileType("a"), help="accelerate_'s reasons, a file")
    options = parser.parse_args()
    globals()["ROUNDS"] = options.rounds
    versions = {"sparse24": sparse24.__version__, "torch": torch.__version__,
                "device": sparse24._core.device_text(torch_cuda.device(0))}
    print(json.dumps({"versions": versions,
                      **{part: PARTS[part](options) for part in options.parts}}, indent=1))


if __name__ == "__main__":
    main()
