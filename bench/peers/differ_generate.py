#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse24 and transformers go on with texts, greedily, by random language models: the same tokens,
with the same log probabilities, or a tie. Not needed by anything else: what it found has become
tests.

    python bench/peers/differ_generate.py [--program sparse24] [--rows llama…] [--models 20]

Run by a Python that has torch, transformers and what differ.py asks for, whose rows it draws from.
Prompts of several lengths go on in one batch here and one by one in transformers, for 32 tokens
with a cache, in f32 and dense: short ones, one that ends at the last position, and such as cross
the edge of a window or the length at which a scaled rotary embedding was trained. Where the tokens
part, the two must be as likely as each other to 1e-4 of the largest logit. Exits with 1 where they
are not; --seed and the model's number make it again.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import differ

NEW = 32
SKIPPED = {"ForSequenceClassification", "ForTokenClassification"}


def is_language(row):
    """Whether the row's models go on with texts."""
    try:
        _, kind = row(differ.Draw((0, 0, 0)))
    except Exception:  # of the versions of transformers that lack it
        return False
    return kind.__name__.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) and \
        not kind.__name__.startswith(("T5", "MT5", "UMT5"))


def prompts_for(config, draw):
    """Lengths at which something begins or ends, and others."""
    text = config.get_text_config()
    positions = text.max_position_embeddings
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" or rope.get("llama_4_scaling_beta") is not None:
        positions = min(positions, rope["original_max_position_embeddings"])  # taken no further
    edges = [getattr(text, "sliding_window", None), rope.get("original_max_position_embeddings")]
    most = max(1, positions - NEW)
    lengths = [draw.integer(1, 6), draw.integer(1, most), most]
    lengths += [edge + draw.integer(-NEW, 1) for edge in edges if isinstance(edge, int)]
    vocabulary = text.vocab_size
    return [[draw.integer(3, vocabulary - 1) for _ in range(min(max(n, 1), most))]
            for n in lengths]


def theirs(model, prompts):
    """New tokens and the logits of each place."""
    rows = []
    for prompt in prompts:
        with torch.no_grad():
            found = model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
                max_new_tokens=NEW, do_sample=False, output_logits=True, pad_token_id=0,
                return_dict_in_generate=True)
        rows.append((found.sequences[0, len(prompt):].tolist(), torch.stack(found.logits)[:, 0]))
    return rows


def ours(options, folder, prompts, more):
    (folder / "ids").write_text("".join(" ".join(map(str, p)) + "\n" for p in prompts))
    done = subprocess.run(
        [options.program, "generate", folder / "dense", "--ids", "--input", folder / "ids",
         "--max-new", str(NEW), "--dtype", "f32", "--dense", "--logprobs", "1", "--json",
         "--threads", str(options.threads), *more], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)["prompts"]


def compare(text, found, logits):
    """How far log probabilities are apart as a share of the largest logit, up to where tokens part
    by a tie; at most 1: they part without one."""
    worst = 0.0
    for at, (token, rate) in enumerate(zip(text["ids"], text["logprobs"])):
        largest = logits[at].abs().max().item()
        logs = torch.log_softmax(logits[at].double(), 0)
        worst = max(worst, abs(rate["logprob"] - logs[token].item()) / max(largest, 1e-9))
        if token != found[at]:
            near = (logits[at][found[at]] - logits[at][token]).item() / largest
            return (worst, "tie") if near < 1e-4 else (1.0, f"token {at} of {len(found)}: {near}")
    return worst, None if len(text["ids"]) == len(found) else "length"


def run_model(row, number, options, counts):
    draw = differ.Draw((options.seed, differ.ROWS.index(row), number))
    config, kind = row(draw)
    torch.manual_seed(draw.integer(0, 1 << 30))
    model = kind._from_config(config, attn_implementation="eager").eval()
    differ.stir(model, draw)
    prompts = prompts_for(config, draw)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "dense")
        rows = theirs(model, prompts)
        texts = ours(options, folder, prompts, [])
    for text, prompt, (found, logits) in zip(texts, prompts, rows):
        counts["texts"] += 1
        far, why = compare(text, found, logits)
        counts["worst"] = max(counts["worst"], far if far < 1 else 0)
        counts["ties"] += why == "tie"
        if far > options.limit and differ.ties_of(model, [prompt + found])[1] < differ.TIE:
            counts["ties"] += 1  # of experts, where a rounding says which a token takes
        elif far > options.limit or why not in (None, "tie"):
            counts["differ"] += 1
            print(f"{row.__name__} {number}: a prompt of {len(prompt)}: {far:.2g} {why}\n"
                  f"    {config.to_diff_dict()}", flush=True)


def run_row(row, options):
    counts, refused = collections.Counter(), collections.Counter()
    for number in range(options.first, options.first + options.models):
        try:
            run_model(row, number, options, counts)
        except Exception as error:  # of either; what Python says is not ours
            refused[f"{type(error).__name__}: {error}"[:150]] += 1
    print(f"{row.__name__}: {counts['texts']} texts, farthest {counts['worst']:.2g}, "
          f"{counts['ties']} ties, {counts['differ']} differ", flush=True)
    for sentence, times in refused.most_common():
        print(f"    {times} refused: {sentence}", flush=True)
    return counts["differ"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="sparse24")
    parser.add_argument("--rows", default="")
    parser.add_argument("--models", type=int, default=20, help="of each row")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e-4, help="of log probabilities")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    wanted = [name for name in options.rows.split(",") if name]
    rows = [row for row in differ.ROWS
            if (row.__name__ in wanted if wanted else is_language(row))]
    sys.exit(any([run_row(row, options) for row in rows]))


if __name__ == "__main__":
    main()
