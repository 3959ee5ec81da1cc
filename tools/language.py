#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model that is really trained, made 2:4 three ways, packed and asked: SmolLM2 of 135
million weights from a GGUF file; one table and a page say what each form costs in perplexity and
brings in size and speed, with answers that one can read.

Drives the sparse24 command line through --json, as any script would; only this file's standard
library is needed. tools/language calls it after it has set up and built.
"""
import argparse
import html
import json
import pathlib
import random
import sys

import demo_inputs
import demo_report
from demo import Steps, Tool
from demo_inputs import ROOT, DemoError

METHODS = ["magnitude", "wanda", "sparsegpt"]
NAMES = {"dense": "dense", "magnitude": "magnitude", "wanda": "Wanda", "sparsegpt": "SparseGPT",
         "distilled": "distilled"}
CHARACTERS = 73522  # 16384 tokens of SmolLM2's
TURNS = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
         "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>")
ORDERS = 3  # of the passages, so that what the model has before a word differs
QUESTIONS = ["What is the capital of France?", "Why is the sky blue?",
             "Give me three tips for better sleep."]


# ---- inputs -------------------------------------------------------------------------------------


def prose(path):
    """A text, or the contexts of a file of questions with blank lines between."""
    if path.suffix == ".txt":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(p["context"] for p in demo_inputs.paragraphs(path))


def passages(path):
    """The lines of a text, or the passages of a file of questions."""
    if path.suffix == ".txt":
        return path.read_text(encoding="utf-8").splitlines()
    return demo_inputs.squad(path)[0]


def asked(path):
    """The questions of such a file, each once, shuffled."""
    if path.suffix == ".txt":
        return []
    return sorted(set(map(str.strip, demo_inputs.squad(path)[1])), key=demo_inputs.seeded)


def beginnings(lines):
    """The first six words of each sentence that has them, or of the line."""
    for line in lines:
        words = line.split()
        ends = [i + 1 for i, word in enumerate(words[:-6]) if word[-1] in ".?!"]
        for first in [0, *ends]:
            yield " ".join(words[first:first + 6])


def spread(items, count):
    """So many of a list, from all over it; all where it has no more."""
    return items if len(items) <= count else [items[i * len(items) // count] for i in range(count)]


def prepare_texts(options, out):
    """The text to measure on, lines to calibrate with, and all of those to distil on."""
    folder = None
    if not (options.text and options.calibration):
        folder = demo_inputs.data_folder("qa-dev.json", "XQuAD and SQuAD, without --text FILE and "
                                         "--calibration FILE")
    plain = prose(options.text or folder / "qa-dev.json")
    (out / "text.txt").write_text(plain[:options.characters], encoding="utf-8")
    lines = passages(options.calibration or folder / "qa-train.json.xz")
    order = sorted(range(len(lines)), key=lambda i: demo_inputs.seeded(str(i)))
    demo_inputs.write_lines(out / "passages.txt", [lines[i] for i in order])
    demo_inputs.write_lines(out / "asked.txt", asked(options.calibration or
                                                     folder / "qa-train.json.xz"))
    # Passages are shorter than what a sample may have: some of them make one.
    joined, samples = "", []
    for line in (lines[i] for i in order):
        joined += " " * bool(joined) + line
        if len(joined) >= 6 * options.max_tokens:
            samples.append(joined)
            joined = ""
        if len(samples) == options.samples:
            break
    demo_inputs.write_lines(out / "calibration.txt", samples or [joined])
    demo_inputs.write_lines(out / "questions.txt", QUESTIONS)


def find_model(options, cache):
    """A GGUF file or a folder."""
    if options.model:
        return options.model
    return demo_inputs.fetch_model(cache, demo_inputs.LANGUAGE) / demo_inputs.LANGUAGE["file"]


# ---- what is made and measured ------------------------------------------------------------------


def weights_of(folder):
    return sum(f.stat().st_size for f in folder.glob("*.safetensors"))


class Work:
    def __init__(self, options, tool, steps):
        self.options, self.tool, self.steps, self.out = options, tool, steps, options.out
        self.rows = []

    def once(self, folder, *arguments):
        """Makes a folder unless it is there already."""
        if not (folder / "config.json").exists():
            self.tool(*arguments)
        return folder

    def dense(self, model):
        if model.is_dir():
            return model
        return self.once(self.out / "dense", "convert", model, self.out / "dense")

    def pruned(self, dense, method):
        o, out = self.options, self.out / method
        more = [] if method == "magnitude" else [
            "--calibration", self.out / "calibration.txt", "--samples", o.samples,
            "--max-tokens", o.max_tokens, "--device", o.device]
        return self.once(out, "prune", dense, out, "--method", method, *more)

    def lines(self, name):
        return (self.out / f"{name}.txt").read_text(encoding="utf-8").splitlines()

    def gone_on(self, dense, name, prompts, *more):
        """What the dense model goes on with after each prompt, drawn."""
        o, file = self.options, demo_inputs.write_lines(self.out / f"{name}.txt", prompts)
        told = self.tool("generate", dense, "--input", file, "--temperature", 1, "--max-new",
                         o.drawn_tokens, "--device", o.device, *more,
                         *(["--dtype", "bf16", "--texts", 1024] if o.device != "cpu" else []))
        return [p["text"] for p in told["prompts"]]

    def drawn(self, dense):
        """Texts of the dense model: it goes on with beginnings of sentences and, where it was
        trained on conversations of this form, answers a quarter as many questions."""
        o, texts = self.options, []
        chats = TURNS[:12] in (dense / "tokenizer_config.json").read_text(encoding="utf-8")
        questions = spread(self.lines("asked") if chats else [], o.drawn // 4)
        starts = spread(list(beginnings(self.lines("passages"))), o.drawn - len(questions))
        texts += map("".join, zip(starts, self.gone_on(dense, "starts", starts)))
        if questions:
            answers = self.gone_on(dense, "asking", questions, "--chat")
            texts += map(TURNS.format, questions, answers)
        random.Random(1).shuffle(texts)
        return texts

    def to_learn_from(self, dense):
        """One text: passages in several orders, and what was drawn."""
        text = self.out / "distil.txt"
        if not text.exists():
            o, parts = self.options, []
            lines = o.distil_on.read_text("utf-8").splitlines() if o.distil_on else (
                self.lines("passages"))
            for seed in range(ORDERS):
                parts += random.Random(seed).sample(lines, len(lines))
            parts += self.drawn(dense) if o.drawn else []
            text.write_text("\n\n".join(parts), encoding="utf-8")
        return text

    def distilled(self, dense):
        """From the best that pruning gives towards the dense model."""
        o, start, out = self.options, self.out / "start", self.out / "distilled"
        self.once(start, "prune", dense, start, "--method", "alps", "--refine", "all", "--aim",
                  "states", "--calibration", self.out / "calibration.txt", "--samples", o.samples,
                  "--max-tokens", o.max_tokens, "--device", o.device)
        return self.once(out, "train", start, out, "--teacher", dense, "--stream",
                         self.to_learn_from(dense), "--minutes", o.minutes, "--max-tokens",
                         o.window, "--loss", "logits=1", "--temperature", 1, "--rate", o.rate,
                         "--schedule", "cosine", "--warmup", 0.02, "--device", o.device,
                         "--report", self.out / "distilled.html",
                         "--metrics", self.out / "distilled.jsonl")

    def packed(self, folder, scheme):
        out = folder.with_name(f"{folder.name}-{scheme}" if scheme else f"{folder.name}-packed")
        quantize = ["--quantize", scheme] if scheme else []
        return self.once(out, "pack", folder, out, *quantize)

    def measure(self, kind, form, folder, *how):
        o = self.options
        scored = self.tool("eval", folder, "--task", "lm", "--data", self.out / "text.txt",
                           "--max-tokens", o.window, "--stride", o.stride, *how)
        told = self.tool("generate", folder, "--chat", "--input", self.out / "questions.txt",
                         "--max-new", o.max_new, *how, accept=(0, 3, 5))
        if "error" in told:  # it was not trained on conversations
            told = self.tool("generate", folder, "--input", self.out / "questions.txt",
                             "--max-new", o.max_new, *how)
        row = {"kind": kind, "form": form, "perplexity": scored["perplexity"],
               "bits_per_byte": scored["bits_per_byte"], "bytes": weights_of(folder),
               "tokens_per_second": told["tokens_per_second"],
               "answers": [p["text"] for p in told["prompts"]]}
        self.rows.append(row)
        print(f"      {NAMES[kind]}, {form}: perplexity {row['perplexity']:.2f}, "
              f"{row['bytes'] / 1e6:.0f} MB, {row['tokens_per_second']:.1f} tokens/s", flush=True)


def run(options, tool, model):
    methods = METHODS + ["distilled"] * bool(options.minutes)
    steps = Steps(2 + len(methods))
    work = Work(options, tool, steps)
    steps.begin("dense")
    dense = work.dense(model)
    for form in ("f32", "bf16"):
        work.measure("dense", form, dense, "--dtype", form)
    steps.end(f"{weights_of(dense) / 1e6:.0f} MB")
    folders = {}
    for method in methods:
        steps.begin(NAMES[method])
        if method == "distilled":
            folders[method] = work.distilled(dense)
        else:
            folders[method] = work.pruned(dense, method)
        work.measure(method, "f32", work.packed(folders[method], None), "--dtype", "f32")
        steps.end("2:4 along k, packed")
    best = methods[-1]
    steps.begin(f"{NAMES[best]} in fewer bits")
    work.measure(best, "bf16", work.packed(folders[best], None), "--dtype", "bf16")
    for scheme in ("int8", "int4-g64"):
        work.measure(best, scheme, work.packed(folders[best], scheme))
    steps.end("weights quantised, everything else in f32")
    return {"program": tool.version(), "model": model.name, "rows": work.rows,
            "text": len((options.out / "text.txt").read_text(encoding="utf-8")),
            "window": options.window, "stride": options.stride, "questions": QUESTIONS,
            "samples": options.samples, "max_tokens": options.max_tokens}


# ---- the page -----------------------------------------------------------------------------------


def cells(row):
    return [f"{NAMES[row['kind']]}, {row['form']}", f"{row['perplexity']:.2f}",
            f"{row['bits_per_byte']:.3f}", f"{row['bytes'] / 1e6:.1f}",
            f"{row['tokens_per_second']:.1f}"]


HEAD = ["", "perplexity", "bits a byte", "MB", "tokens/s"]


def table(result):
    lines = [HEAD, *map(cells, result["rows"])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(widths[0]) if i == 0 else c.rjust(widths[i])
                               for i, c in enumerate(line)) for line in lines)


def page(result):
    def bars(title, key, form, unit):
        groups = [(f"{NAMES[r['kind']]}, {r['form']}",
                   [(r["kind"] if r["kind"] in demo_report.TITLES else "recovered", "",
                     r[key], form(r[key]))]) for r in result["rows"]]
        return demo_report.bars(title, groups, unit)

    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in cells(r))}</tr>"
                   for r in result["rows"])
    answers = "".join(
        f"<h3>{html.escape(question)}</h3><dl>" + "".join(
            f"<dt>{NAMES[r['kind']]}, {r['form']}</dt><dd>{html.escape(r['answers'][i])}</dd>"
            for r in result["rows"]) + "</dl>"
        for i, question in enumerate(result["questions"]))
    plots = (bars("Bits a byte of the text", "bits_per_byte", lambda v: f"{v:.3f}", "bits") +
             bars("Weights file", "bytes", lambda v: f"{v / 1e6:.0f}", "MB") +
             bars("Decoding", "tokens_per_second", lambda v: f"{v:.1f}", "tokens/s"))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>2:4 of {html.escape(result["model"])}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{demo_report.STYLE}</style></head><body>
<h1>{html.escape(result["model"])}, 2:4</h1>
<p>Perplexity of {result["text"]} characters of prose in windows of {result["window"]} tokens,
{result["stride"]} apart. Wanda and SparseGPT are calibrated with {result["samples"]} samples of
{result["max_tokens"]} tokens. Every linear layer of the blocks is 2:4.</p>
<div class="wide"><table><tr>{''.join(f"<th>{h}</th>" for h in HEAD)}</tr>{rows}</table></div>
<div class="plots">{plots}</div>
<h2>Answers</h2>{answers}
<p><small>{html.escape(result["program"])}</small></p></body></html>
"""


# ---- the command line ---------------------------------------------------------------------------


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/language", allow_abbrev=False,
        description="A trained language model is made 2:4 three ways, packed, measured and asked.")
    path = pathlib.Path
    parser.add_argument("--model", type=path, help="a GGUF file or a Hugging Face folder "
                        "(default: SmolLM2-135M-Instruct, fetched once)")
    parser.add_argument("--text", type=path, metavar="FILE", help="to measure on: .txt, or "
                        "questions of SQuAD's form (default: XQuAD's of SPARSE24_DATA)")
    parser.add_argument("--calibration", type=path, metavar="FILE",
                        help="likewise to calibrate with (default: SQuAD's training set)")
    parser.add_argument("--minutes", type=float, default=0, metavar="X",
                        help="distil the best that pruning gives towards dense for so long "
                             "(default: not at all)")
    parser.add_argument("--distil-on", type=path, metavar="FILE",
                        help="passages for that, a line each (default: all of --calibration)")
    parser.add_argument("--drawn", type=int, default=0, metavar="N",
                        help="and N texts that are drawn from the dense model (default: none)")
    parser.add_argument("--rate", type=float, default=6e-4, metavar="X",
                        help="the largest rate of that (default: 6e-4)")
    parser.add_argument("--device", default="cpu", metavar="cpu|cuda[:i]",
                        help="where models are made; they are measured on the CPU (default: cpu)")
    for name, default, said in (
            ("characters", CHARACTERS, "of the text"), ("window", 1024, "tokens of a window"),
            ("stride", 512, "tokens that a window begins after the one before"),
            ("samples", 32, "of the calibration"), ("max-tokens", 512, "of a sample"),
            ("max-new", 48, "tokens of an answer"),
            ("drawn-tokens", 192, "new tokens of a text that is drawn")):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N",
                            help=f"{said} (default: {default})")
    parser.add_argument("--out", type=path, default=ROOT / "demo-out/language",
                        help="default: demo-out/language; what is there is not made again")
    parser.add_argument("--program", type=path, default=ROOT / "build/release/sparse24",
                        help="the sparse24 to run (default: build/release/sparse24)")
    parser.add_argument("--prepare", action="store_true", help="find the inputs and stop")
    return parser.parse_args(argv)


def main(argv=None):
    options = arguments(argv)
    cache = options.out.parent / "cache"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        options.out.mkdir(parents=True, exist_ok=True)
        model = find_model(options, cache)
        prepare_texts(options, options.out)
        if options.prepare:
            return 0
        result = run(options, Tool(options.program), model)
        (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        (options.out / "report.html").write_text(page(result), encoding="utf-8")
        print(f"\n{table(result)}\n\n{options.out / 'report.html'}")
        return 0
    except (DemoError, OSError) as error:
        print(f"language: {error}", file=sys.stderr)
        if isinstance(error, demo_inputs.NotFetched):
            print("--model FILE names one that is here", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
