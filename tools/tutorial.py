#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs sparse24 tutorial with its inputs: the demo's model unless another is named, and SQuAD v1.1.

Options that are not this file's own go to sparse24 tutorial. tools/tutorial calls it after it has
set up and built.
"""
import argparse
import lzma
import os
import pathlib
import shutil
import sys

import demo_inputs
from demo_inputs import ROOT, DemoError

SQUAD = {"train": "qa-train.json.xz", "dev": "squad-dev-v1.1.json.xz"}


def questions(options, name, cache):
    """The file of questions that --train or --dev names, or that of the data's folder; unpacked."""
    path = getattr(options, name)
    if path is None:
        folder = demo_inputs.data_folder(SQUAD[name], f"SQuAD v1.1, without --{name} FILE")
        path = folder / SQUAD[name]
    if not path.exists():
        raise DemoError(f"{path} is not here")
    if path.suffix != ".xz":
        return path
    plain, partial = cache / path.stem, cache / f"{path.stem}.partial"
    if not plain.exists() or plain.stat().st_mtime < path.stat().st_mtime:
        with lzma.open(path) as source, open(partial, "wb") as target:
            shutil.copyfileobj(source, target)
        partial.rename(plain)
    return plain


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/tutorial", allow_abbrev=False,
        description="An encoder is fine-tuned for questions, pruned, trained again and measured.",
        epilog="All other options are those of sparse24 tutorial: --steps 20 for a quick look.")
    path = pathlib.Path
    parser.add_argument("--model", type=path,
                        help="a Hugging Face folder (default: MiniLM, fetched once)")
    for name, said in (("train", "to learn from"), ("dev", "to measure with")):
        parser.add_argument(f"--{name}", type=path, metavar="FILE",
                            help=f"SQuAD v1.1's questions {said}, perhaps .xz (default: qa/"
                                 f"{SQUAD[name]} of the folder SPARSE24_DATA or ../shared/data)")
    parser.add_argument("--out", type=path, default=ROOT / "demo-out/tutorial",
                        help="default: demo-out/tutorial")
    parser.add_argument("--program", type=path, default=ROOT / "build/release/sparse24",
                        help="the sparse24 to run (default: build/release/sparse24)")
    parser.add_argument("--prepare", action="store_true", help="find the inputs and stop")
    return parser.parse_known_args(argv)


def main(argv=None):
    options, others = arguments(argv)
    cache = options.out.parent / "cache"  # the demo's, where both have their places
    try:
        cache.mkdir(parents=True, exist_ok=True)
        files = {name: questions(options, name, cache) for name in SQUAD}
        model = options.model or demo_inputs.fetch_model(cache)
        if options.prepare:
            return 0
        command = [options.program, "tutorial", model, options.out, "--train", files["train"],
                   "--dev", files["dev"], *others]
        os.execv(options.program, [str(word) for word in command])
    except (DemoError, OSError, lzma.LZMAError) as error:
        print(f"tutorial: {error}", file=sys.stderr)
        if isinstance(error, demo_inputs.NotFetched):
            print("--model FOLDER names one that is here", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
