# SPDX-License-Identifier: Apache-2.0
"""The frame of the command line's tests: a class's fixtures are copied into a scratch folder for
every case; a case is judged by exit code, standard output, standard error, and what is in the
folder afterwards."""
import atexit
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
PROGRAM = BUILD / "sparse24"
sys.path.insert(0, str(SOURCE / "tests" / "tools"))

COMMANDS = ("tutorial prune sensitivity train convert pack unpack check info embed join search "
            "rerank classify eval generate bench plan help").split()
if os.environ.get("S24_SERVE") != "0":  # builds without libmicrohttpd lack it
    COMMANDS.insert(COMMANDS.index("bench"), "serve")
if os.environ.get("S24_RECIPES") != "0":  # and those without libyaml this one
    COMMANDS.insert(COMMANDS.index("convert"), "run")


PATIENCE = 300  # seconds until what does not come is a fault: far longer than a slow machine takes
CACHE = tempfile.mkdtemp()  # what is measured goes there, and with the tests
atexit.register(shutil.rmtree, CACHE)


def clean_environment(more=None):
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    env["XDG_CACHE_HOME"] = CACHE
    env.update(more or {})
    return env


def preloaded(library):
    """The environment of a program that has it before all others. A blank in LD_PRELOAD would end
    the path, so that the folder is named where it ends none."""
    options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
    return {"LD_PRELOAD": library.name, "LD_LIBRARY_PATH": str(library.parent),
            "ASAN_OPTIONS": options}


def run(*arguments, cwd=None, text=None, environment=None):
    """The finished process; `text` is its standard input."""
    return subprocess.run([PROGRAM, *map(str, arguments)], cwd=cwd, input=text or "",
                          env=clean_environment(environment), capture_output=True, text=True,
                          encoding="utf-8", timeout=PATIENCE)


def has_tiles():
    """Do integers' tokens become bf16 here, on AMX's tiles (docs/numerics.md)?"""
    return "CPU amx" in run("--version").stdout


def one_object(text):
    """The one JSON object of version 1 that text must be."""
    value, end = json.JSONDecoder().raw_decode(text)
    if not isinstance(value, dict) or text[end:].strip():
        raise AssertionError(f"not exactly one object: {text!r}")
    if value.get("version") != 1:
        raise AssertionError(f"no version 1: {text!r}")
    return value


def listing(folder):
    """Every path below folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in sorted(pathlib.Path(folder).rglob("*"))}


GOLDEN = pathlib.Path(os.environ.get("SPARSE24_GOLDEN") or SOURCE.parent / "shared/golden")


def copy_golden(name, to):
    """A folder of the golden vectors; where they are not, what asks for it is skipped."""
    if not (GOLDEN / name).is_dir():
        raise unittest.SkipTest(f"no {GOLDEN / name}")
    shutil.copytree(GOLDEN / name, to)


class Scratch(unittest.TestCase):
    @staticmethod
    def make(folder):
        """Writes the fixtures of the class."""

    @classmethod
    def setUpClass(cls):
        cls.fixtures = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.fixtures)
        cls.make(cls.fixtures)

    def setUp(self):
        self.folder = self.scratch()

    def scratch(self):
        parent = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, parent)
        return pathlib.Path(shutil.copytree(self.fixtures, parent / "scratch", symlinks=True))

    def good(self, *arguments, **more):
        """Runs what must succeed; the finished process."""
        done = run(*arguments, cwd=self.folder, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def json(self, *arguments, exit=0, **more):
        """Runs with --json; its one object."""
        done = run(*arguments, "--json", cwd=self.folder, **more)
        self.assertEqual(done.returncode, exit, done.stderr)
        return one_object(done.stdout)

    def refusals(self, cases, inside=None):
        """A table of (name, arguments, exit code, pattern of the sentence), each plain and with
        --json, in a folder of its own or in `inside`; none may write a word of data or touch it."""
        for name, arguments, code, sentence in cases:
            with self.subTest(name):
                folder = inside or self.scratch()
                before = listing(folder)
                done = run(*arguments, cwd=folder)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, sentence)
                self.assertEqual(done.stdout, "")
                done = run(*arguments, "--json", cwd=folder)
                self.assertEqual(done.returncode, code, done.stderr)
                found = one_object(done.stdout)
                self.assertEqual(found["exit"], code)
                self.assertRegex(found["error"], sentence)
                self.assertEqual(listing(folder), before)
