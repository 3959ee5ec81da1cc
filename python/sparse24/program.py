# SPDX-License-Identifier: Apache-2.0
"""The commands of the program in the wheel, as functions: what they print with --json is a dict."""
from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import typing

from . import _core
from .__main__ import PROGRAM

Path = typing.Union[str, os.PathLike]

# Exit codes that say what kind of error it was (docs/cli.md); all others are an Error.
_CLASSES = {2: ValueError, 3: OSError, 130: KeyboardInterrupt}
_STATUS = {4: "malformed input", 5: "not supported here"}


def _value(value: typing.Any) -> str:
    """A list by commas, a mapping as KEY=VALUE, a path as it is."""
    if isinstance(value, typing.Mapping):
        return ",".join(f"{key}={_value(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_value(each) for each in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _words(options: typing.Mapping[str, typing.Any]) -> list[str]:
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        name = name.strip("_").replace("_", "-")
        dashes, joint = ("--", "=") if len(name) > 1 else ("-", "")
        words.append(dashes + name if value is True else dashes + name + joint + _value(value))
    return words


def command(name: str, *operands: Path, **options: typing.Any) -> dict:
    """Runs a command, `command("info", "model")`, and gives the object that it prints with --json.

    options: those of `sparse24 NAME --help`, with _ for -: True for one without a value, a list or
    a mapping for values separated by commas; None and False are left out. What it says on its way
    goes to the logger `sparse24`. It runs in a process of its own, which Ctrl-C ends as it ends the
    command in a terminal.
    Raises ValueError (exit 2), OSError (3; FileNotFoundError, FileExistsError where that is
    why), Error (4 malformed, 5 not supported here), KeyboardInterrupt, with the command's sentence.
    A check that says no, exit 1, is no error.
    """
    words = [PROGRAM, name, *_words(options), "--json", "--", *map(os.fspath, operands)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            printed, said = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    if said:
        import logging  # pylint: disable=import-outside-toplevel
        logging.getLogger("sparse24").info("%s", said.rstrip())
    try:
        answer = json.loads(printed)
    except ValueError:
        answer = {"error": said.strip() or f"{name} ended with {process.returncode}"}
    if process.returncode in (0, 1) and "error" not in answer:
        return answer
    raise _error(process.returncode, answer["error"])


def _error(code: int, sentence: str) -> BaseException:
    kind = _CLASSES.get(code, _core.Error)
    if kind is OSError and (os.strerror(errno.ENOENT) in sentence or "no such file" in sentence):
        kind = FileNotFoundError
    elif kind is OSError and "; --force replaces it" in sentence:
        kind = FileExistsError
    error = kind(sentence)
    if isinstance(error, _core.Error):
        error.status = _STATUS.get(code, f"exit {code}")
    return error


def run(recipe: Path, model: Path, out: Path, *, calibration: Path | None = None,
        check: bool = False, force: bool = False, **options: typing.Any) -> dict:
    """Carries out a recipe, a YAML file of ours or llm-compressor's, on a model's folder: each
    stage a command on what the one before left; goes on where an earlier run was broken off. out
    gets model, each stage's JSON and report.html. calibration: a file of passages, one a line.
    check: the stages alone are said, as "recipe". Returns "stages", "model" and "report".
    Raises what `command` does: ValueError and Error name the recipe's line."""
    return command("run", recipe, model, out, calibration=calibration, check=check, force=force,
                   **options)


def propose(model: Path, calibration: Path, budget: str, *,
            patterns: typing.Sequence[str] | None = None, recipe: Path | None = None,
            report: Path | None = None, **options: typing.Any) -> dict:
    """Which layers to make 2:4 within a budget, "bytes=0.6", "error=0.05", "speed=1.4" or
    "score=-0.5": what `sensitivity` measures on a file of passages, and a "proposal" with its
    "two_four", "lifted", "integers" and "dense", names of weights, bytes, error, speed and score.
    recipe: a file for `run`; report: a page; options: the command's (method, refine, task, data,
    force). Raises ValueError (a budget that cannot be met, with the best that can), OSError,
    Error."""
    return command("sensitivity", model, calibration=calibration, budget=budget,
                   patterns=patterns, recipe=recipe, report=report, **options)


def bench(**options: typing.Any) -> dict:
    """Times products or whole models against the best dense ones in turns, as `sparse24 bench`:
    bench(shapes="32,384,1536", dtype="f32"), bench(model="minilm", batch=[1, 32], seq=128),
    bench(generate="llama/", new=32). Returns its JSON (docs/cli.md), medians in milliseconds.
    Raises what `command` does."""
    return command("bench", **options)


def plan(m: int, k: int, n: int, *, dtype: str = "f32", threads: int | None = None,
         **options: typing.Any) -> dict:
    """Is 2:4 or dense faster for a linear layer of k inputs and n outputs and m tokens on this
    machine? What `sparse24 plan --json` says (docs/cli.md): the layer is timed, in dtype "f32",
    "bf16" or "i8". Raises what `command` does."""
    return command("plan", *map(str, (m, k, n)), dtype=dtype, threads=threads, **options)
