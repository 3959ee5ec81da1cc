#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job from end to end: a real sentence encoder is made 2:4 two ways, checked, packed and
run; one table and a report say what that cost in quality and brought in size and speed.

Drives the sparse24 command line through --json, as any script would; only this file's standard
library is needed. tools/demo calls it after it has set up and built.
"""
import argparse
import array
import json
import math
import operator
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

import demo_inputs
import demo_report
from demo_inputs import ROOT, DemoError

BEST = "sparsegpt"  # what is timed, searched and distilled
METHODS = {"magnitude": ["--method", "magnitude"],
           "wanda": ["--method", "wanda"],
           "sparsegpt": ["--method", "sparsegpt"],
           "refined": ["--method", "sparsegpt", "--refine", "all"]}
ALWAYS = ("magnitude", BEST)
QUESTION = "read the contents of a directory"
SPEED = [("1", "16,128"), ("32", "128")]  # batch, tokens
WITHOUT_NETWORK = """The demo also runs on what is here already, without a network:
    tools/demo --model FOLDER --documents FILE
FOLDER is a Hugging Face folder of a text encoder, FILE has one text a line;
tools/demo --help names the rest."""


class Tool:
    """The sparse24 program; a call gives the object that --json prints."""

    def __init__(self, program):
        self.program = str(program)

    def __call__(self, *arguments, accept=(0,)):
        command = [self.program, *map(str, arguments), "--json"]
        talks = sys.stderr.isatty()  # its progress is for people; a log gets our lines only
        if not talks:
            command.append("--quiet")
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8",
                                stderr=None if talks else subprocess.PIPE)
        if result.returncode not in accept:
            said = (result.stderr or "").strip()
            raise DemoError(f"{' '.join(command)} ended with {result.returncode}"
                            + (f": {said}" if said else ""))
        return json.loads(result.stdout)

    def version(self):
        return subprocess.run([self.program, "--version"], capture_output=True, text=True,
                              check=True).stdout.strip().replace("\n", ", ")


class Steps:
    """The numbered lines of progress and the time each step took."""

    def __init__(self, count):
        self.count, self.number, self.since = count, 0, time.monotonic()
        self.times = []

    def begin(self, name):
        self.number += 1
        self.times.append([name, time.monotonic()])
        print(f"[{self.number}/{self.count}] {name} …", flush=True)

    def end(self, text):
        entry = self.times[-1]
        entry[1] = time.monotonic() - entry[1]
        print(f"      {text} ({entry[1]:.1f} s)", flush=True)


# ---- what is measured ---------------------------------------------------------------------------


def read_embeddings(path):
    """The rows of the tensor `embeddings` of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensor = json.loads(data[8:8 + size])["embeddings"]
    rows, width = tensor["shape"]
    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
    values = array.array("f")
    values.frombytes(data[begin:end])
    if sys.byteorder == "big":
        values.byteswap()
    return [values[i * width:(i + 1) * width].tolist() for i in range(rows)]


def dot(a, b):
    return sum(map(operator.mul, a, b))


def cosines(rows, others):
    """The cosine of each row to the other's; a zero vector is like nothing."""
    result = []
    for a, b in zip(rows, others):
        norm = math.sqrt(dot(a, a) * dot(b, b))
        result.append(dot(a, b) / norm if norm else 0.0)
    return result


def accuracy(queries, documents, gold):
    """Percent of queries whose document no other beats (top-1), fewer than five beat (top-5)."""
    beaten = []
    for query, answer in zip(queries, gold):
        scores = [dot(query, d) for d in documents]
        beaten.append(sum(score > scores[answer] for score in scores))
    return {f"top{k}": 100.0 * sum(b < k for b in beaten) / len(beaten) for k in (1, 5)}


def file_bytes(folder):
    """Bytes of a model folder's files, and of its weights alone."""
    files = [p for p in pathlib.Path(folder).rglob("*") if p.is_file()]
    return {"folder": sum(p.stat().st_size for p in files),
            "weights": sum(p.stat().st_size for p in files if p.suffix == ".safetensors")}


# ---- the steps ----------------------------------------------------------------------------------


def prune(tool, steps, job, method):
    """Prunes the model by a method; the folder and what the layers lost."""
    out = job["out"] / f"{job['name']}-{method}"
    steps.begin(f"prune by {method}")
    arguments = ["--calibration", job["texts"]["calibration"]] if method != "magnitude" else []
    if method == "refined" and job["reconstruct"]:
        arguments += ["--reconstruct", job["reconstruct"]]
    report = tool("prune", job["model"], out, *METHODS[method], "--force", *arguments)
    layers = report["layers"]
    kept = sum(layer["kept_l1"] for layer in layers) / max(len(layers), 1)
    steps.end(f"{len(layers)} layers, {100 * kept:.1f} % of |w| kept")
    return out, layers


def recover(tool, steps, job, pruned):
    """Distils what SparseGPT left from the dense model; its folder, and what the training said."""
    out = job["out"] / f"{job['name']}-recovered"
    steps.begin(f"recover: distil for {job['minutes']:g} minutes")
    report = tool("train", pruned, out, "--teacher", job["model"], "--text",
                  job["texts"]["recovery"], "--minutes", job["minutes"], "--force",
                  "--device", job["device"])
    steps.end(f"{report['step']} steps, {report['tokens']} tokens, loss {report['loss']:.3f}")
    return out, report


def check_all(tool, steps, folders):
    steps.begin("check: is every layer of the blocks 2:4 along k?")
    said = []
    for name, folder in folders.items():
        report = tool("check", folder, accept=(0, 1))
        selected = [t for t in report["tensors"] if t["selected"]]
        good = sum(bool(t["two_four"]) for t in selected)
        said.append(f"{name}: {good} of {len(selected)}")
        if name != "dense" and not report["ok"]:
            raise DemoError(f"{folder} is not 2:4: {report['tensors']}")
    steps.end("; ".join(said))


def packed_folder(job, method):
    kind = "2of4" if method == BEST else f"{method}-2of4"
    return job["out"] / f"{job['name']}-{kind}"


def pack_all(tool, steps, job, pruned):
    """Packs every pruned model; folders, and the bytes of the packed layers."""
    steps.begin("pack")
    packed, layers = {}, {}
    for method, folder in pruned.items():
        packed[method] = packed_folder(job, method)
        layers[method] = tool("pack", folder, packed[method], "--force")["layers"]
    dense = sum(layer["bytes_in"] for layer in layers[BEST])
    small = sum(layer["bytes_out"] for layer in layers[BEST])
    steps.end(f"layers {dense / 1e6:.1f} MB → {small / 1e6:.1f} MB"
              + (f", {small / dense:.3f}x" if dense else ""))
    return packed, {"dense": dense, **{m: sum(l["bytes_out"] for l in layers[m]) for m in layers}}


def embed(tool, job, model, lines, name):
    path = job["out"] / f"{name}.safetensors"
    report = tool("embed", model, "--input", lines, "--output", path, "--force")
    return read_embeddings(path), report


def quality(tool, steps, job, models):
    """Embeds documents and queries by every model: cosines to the dense ones, retrieval."""
    texts, result, rows = job["texts"], {}, {}
    for name, model in models.items():
        steps.begin(f"run: embeddings of the texts, {name}")
        documents, report = embed(tool, job, model, texts["documents"], f"documents-{name}")
        if not documents:
            raise DemoError(f"{texts['documents']} has no line")
        rows[name] = documents
        found = cosines(documents, rows["dense"])
        result[name] = {"cosine_mean": sum(found) / len(found), "cosine_worst": min(found),
                        "cosines": found, "tokens": report["tokens"]}
        if texts["queries"]:
            queries, _ = embed(tool, job, model, texts["queries"], f"queries-{name}")
            gold = gold_of(texts, len(queries), len(documents))
            result[name].update(accuracy(queries, documents, gold))
        steps.end(f"{report['texts']} texts, {report['tokens']} tokens")
    return result


def gold_of(texts, queries, documents):
    """The document line of each query: that of its own number, where no file says otherwise."""
    gold = list(range(queries))
    if texts["gold"] is not None:
        words = pathlib.Path(texts["gold"]).read_text(encoding="utf-8").split()
        gold = [int(word) if word.isdecimal() else -1 for word in words]
    if not gold or len(gold) != queries:
        raise DemoError(f"{texts['gold'] or texts['queries']}: {len(gold)} lines; expected one for "
                        f"each of {queries} queries, and a query at least")
    for line, answer in enumerate(gold):
        if not 0 <= answer < documents:
            raise DemoError(f"{texts['gold'] or texts['queries']}: line {line} belongs to none of "
                            f"the {documents} documents")
    return gold


def speed(tool, steps, model):
    steps.begin("speed: dense and 2:4, from token ids to embeddings")
    threads = "1,2" if len(os.sched_getaffinity(0)) > 1 else "1"
    rows = []
    for batch, seq in SPEED:
        rows += tool("bench", "--model", model, "--batch", batch, "--seq", seq, "--threads",
                     threads)["rows"]
    steps.end(f"{len(rows)} measurements")
    return rows


def full(tool, steps, job):
    """XQuAD and SQuAD: retrieval by `eval`, what is calibrated by SQuAD's training passages."""
    results = []
    squad = dict(job, name=f"{job['name']}-squad")
    for texts in demo_inputs.question_sets(job["out"], job["minutes"] > 0):
        squad["texts"] = texts
        if not results:
            models = {"dense": job["model"], "magnitude": job["packed"]["magnitude"]}
            pruned = {method: prune(tool, steps, squad, method)[0]
                      for method in job["methods"] if method != "magnitude"}
            if job["minutes"]:
                pruned["recovered"], _ = recover(tool, steps, squad, pruned[BEST])
            for name, folder in pruned.items():
                models[name] = packed_folder(squad, name)
                tool("pack", folder, models[name], "--force")
        entry = {"name": texts["name"]}
        for name, model in models.items():
            steps.begin(f"{texts['name']}: retrieval, {name}")
            got = tool("eval", model, "--task", "retrieval", "--queries", texts["queries"],
                       "--documents", texts["documents"], "--gold", texts["gold"])
            entry[name] = {"top1": got["top1"], "top5": got["top5"]}
            steps.end(f"top-1 {got['top1']:.2f} %, top-5 {got['top5']:.2f} %")
        results.append(entry)
    return results


# ---- the whole ----------------------------------------------------------------------------------


def machine():
    """What a figure must be read with."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines
                   if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        system = platform.system()
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": system,
            "kernel": platform.release(), "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def inputs(options):
    """The model's folder and the texts, fetched where the user named none."""
    out = options.out
    cache = out / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    if options.documents:
        calibration = options.calibration or options.documents
        texts = {"name": options.documents.name, "calibration": calibration,
                 "documents": options.documents, "queries": options.queries, "gold": options.gold,
                 "recovery": calibration}
    elif options.xquad:
        texts = demo_inputs.question_sets(out, options.recover > 0)[0]
    else:
        texts = demo_inputs.fetch_manuals(out, cache, options.recover > 0)
    texts["recovery"] = options.text or texts["recovery"]
    known = demo_inputs.ENCODERS.get(options.model)
    model = None if known else pathlib.Path(options.model)
    for path in filter(None, (model, *(v for k, v in texts.items() if k != "name"))):
        if not path.exists():
            raise DemoError(f"{path} is not here")
    if options.full:
        demo_inputs.data_folder("qa-dev.json", "--full")
    if known:
        model = demo_inputs.fetch_model(cache, known)
    return {"out": out, "model": model, "name": model.resolve().name, "texts": texts,
            "minutes": options.recover, "device": options.device,
            "methods": [m for m in METHODS if m in ALWAYS or m in options.also],
            "reconstruct": options.reconstruct}


def work(options, job):
    tool = Tool(options.program)
    # Models more: each made, embedded, asked twice.
    more = len(job["methods"]) - len(ALWAYS) + (1 if options.recover else 0)
    steps = Steps(9 + 2 * more + ((7 + 3 * more) if options.full else 0))
    result = {"version": 1, "machine": machine(), "tool": tool.version(), "model": job["name"],
              "texts": job["texts"]["name"], "question_sets": [], "recovery": None}

    steps.begin(f"read {job['model']}")
    info = tool("info", job["model"])
    result["parameters"], result["model_type"] = info["parameters"], info["model_type"]
    steps.end(f"{info['model_type']}, {len(info['tensors'])} tensors, "
              f"{info['parameters'] / 1e6:.1f} M parameters")

    pruned, result["layers"] = {}, {}
    for method in job["methods"]:
        pruned[method], result["layers"][method] = prune(tool, steps, job, method)
    if options.recover:
        pruned["recovered"], result["recovery"] = recover(tool, steps, job, pruned[BEST])
        result["recovery"]["minutes"] = options.recover
    check_all(tool, steps, {"dense": job["model"], **pruned})
    job["packed"], result["layer_bytes"] = pack_all(tool, steps, job, pruned)
    models = {"dense": job["model"], **job["packed"]}
    result["files"] = {name: file_bytes(folder) for name, folder in models.items()}
    result["quality"] = quality(tool, steps, job, models)
    result["speed"] = speed(tool, steps, job["packed"][BEST])
    if options.full:
        result["question_sets"] = full(tool, steps, job)
    result["seconds"] = time.monotonic() - steps.since
    result["steps"] = steps.times
    return result


def shown(path):
    """A path as one types it in the tree's folder."""
    path = pathlib.Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def show_search(options, job):
    """Prints the line that searches the texts by meaning, and what it prints."""
    best = job["packed"].get("recovered", job["packed"][BEST])
    command = [options.program, "search", best, "--documents",
               job["texts"]["documents"], "--query", options.query]
    line = [shown(c) if isinstance(c, pathlib.Path) else c for c in command]
    print(f"\nSearch the texts by meaning:\n\n  {shlex.join(line)}\n", flush=True)
    hits = Tool(options.program)(*command[1:])["hits"]
    for hit in hits:
        text = hit["text"]
        print(f"  {hit['score']:.3f}  line {hit['line']}: {text[:76]}{'…' if text[76:] else ''}")
    return {"command": line, "hits": hits}


def minutes(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/demo", description="A sentence encoder through prune, check, pack and run.",
        epilog="Without options: MiniLM and the Debian manual pages, fetched once.")
    path = pathlib.Path
    parser.add_argument("--model", default="minilm",
                        help=f"{', '.join(demo_inputs.ENCODERS)}, or a text encoder's folder")
    parser.add_argument("--documents", type=path, help="texts to search, one per line")
    parser.add_argument("--queries", type=path, help="one per line; query i asks for document i")
    parser.add_argument("--gold", type=path, help="line i: the document line of query i")
    parser.add_argument("--calibration", type=path,
                        help="passages, one per line (default: DOCUMENTS)")
    parser.add_argument("--recover", type=minutes, default=0, metavar="MINUTES",
                        help="distil the pruned model from the dense one for that long")
    parser.add_argument("--device", default="cpu", metavar="cpu|cuda[:i]",
                        help="where that is done; on a GPU for a minute, if --recover does not say")
    parser.add_argument("--also", default="", metavar="LIST",
                        help="of wanda and refined, a column each: refined is SparseGPT's with "
                        "--refine all and, where given, --reconstruct")
    parser.add_argument("--reconstruct", type=int, default=0, metavar="STEPS",
                        help="of refined: train what stays of each half of a block for so long")
    parser.add_argument("--text", type=path, help="what it learns from, one passage per line "
                        "(default: manual pages that are not searched, or CALIBRATION)")
    parser.add_argument("--query", default=QUESTION, help="what the last line searches for")
    parser.add_argument("--xquad", action="store_true",
                        help="XQuAD in place of the manual pages, calibrated by SQuAD's passages")
    parser.add_argument("--full", action="store_true",
                        help="XQuAD and SQuAD too, from the folder SPARSE24_DATA or ../shared/data")
    parser.add_argument("--out", type=path, default=ROOT / "demo-out", help="default: demo-out/")
    parser.add_argument("--program", type=path, default=ROOT / "build/release/sparse24",
                        help="the sparse24 to drive (default: build/release/sparse24)")
    parser.add_argument("--prepare", action="store_true", help="fetch the inputs and stop")
    options = parser.parse_args(argv)
    options.also = [name for name in options.also.split(",") if name]
    for name in options.also:
        if name not in METHODS or name in ALWAYS:
            parser.error(f"--also {name}: wanda and refined are known")
    if options.reconstruct and "refined" not in options.also:
        parser.error("--reconstruct goes with --also refined")
    if options.xquad and (options.documents or options.full):
        parser.error("--xquad goes without --documents and --full")
    if (options.queries or options.calibration) and not options.documents:
        parser.error("--queries and --calibration go with --documents")
    if options.device != "cpu" and not options.recover:
        options.recover = 1.0
    if options.text and not options.recover:
        parser.error("--text goes with --recover")
    if options.gold and not options.queries:
        parser.error("--gold goes with --queries")
    return options


def main(argv=None):
    options = arguments(argv)
    try:
        job = inputs(options)
        if options.prepare:
            return 0
        result = work(options, job)
        print("\n" + demo_report.table(result))
        result["search"] = show_search(options, job)
        (options.out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        report = options.out / "report.html"
        report.write_text(demo_report.html_page(result), encoding="utf-8")
        print(f"\nThe same with plots: {shown(report)}; all files are in {shown(options.out)}/.")
        return 0
    except (DemoError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        if isinstance(error, demo_inputs.NotFetched):
            print(WITHOUT_NETWORK, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
