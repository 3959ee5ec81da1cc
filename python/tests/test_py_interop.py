# SPDX-License-Identifier: Apache-2.0
"""Memory of other packages, threads, references, signals, and what `import sparse24` brings."""
import ast
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np
import sparse24
from py_support import TREE, growth, tiny_bert
from sparse24 import Matrix, _core


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class OnlyDlpack:
    """A tensor of another library, as far as we may look at it."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class Layouts(unittest.TestCase):
    def setUp(self):
        self.m = Matrix.magnitude(random(16, 32))
        self.w = self.m.to_dense()

    def same(self, x):
        dense = np.asarray(getattr(x, "array", x))
        np.testing.assert_allclose(sparse24.linear(x, self.m), dense @ self.w.T, rtol=1e-5,
                                   atol=1e-5)

    def test_taken(self):
        wide = random(6, 48)
        self.same(wide[:, :32])
        self.same(wide[::2, 4:36])
        self.same(wide.reshape(2, 3, 48)[:, :, 16:])
        self.same(np.broadcast_to(random(1, 32), (1, 32)))
        frozen = random(3, 32)
        frozen.flags.writeable = False
        self.same(frozen)
        self.same(OnlyDlpack(random(3, 32)))
        self.same(OnlyDlpack(wide[::2, 4:36]))
        out = np.zeros((3, 20), np.float32)
        sparse24.linear(frozen, self.m, out=out[:, 2:18])
        self.assertTrue((out[:, :2] == 0).all() and (out[:, 18:] == 0).all())

    def test_refused_by_name(self):
        raw = np.zeros(3 * 32 * 4 + 1, np.uint8)[1:]
        frozen = np.zeros((3, 16), np.float32)
        frozen.flags.writeable = False
        x = random(3, 32)
        cases = [
            (ValueError, "x is not aligned", lambda: sparse24.linear(
                raw.view(np.float32).reshape(3, 32), self.m)),
            (ValueError, "x: its last dimension has a stride of 8 bytes",
             lambda: sparse24.linear(random(3, 64)[:, ::2], self.m)),
            (ValueError, "x: its last dimension has a stride of 12 bytes",
             lambda: sparse24.linear(np.asfortranarray(x), self.m)),
            (ValueError, "x: its leading dimensions do not lie as one",
             lambda: sparse24.linear(random(2, 3, 32).transpose(1, 0, 2), self.m)),
            (ValueError, "x: rows -128 bytes apart", lambda: sparse24.linear(x[::-1], self.m)),
            (ValueError, "out is read-only", lambda: sparse24.linear(x, self.m, out=frozen)),
            (TypeError, "x: dtype >f4 is none", lambda: sparse24.linear(x.astype(">f4"), self.m)),
            (TypeError, "x: dtype complex128 is none",
             lambda: sparse24.linear(x.astype(complex), self.m)),
            (TypeError, "expected an array", lambda: _core.linear(None, x, self.m._handle, None)),
        ]
        for kind, sentence, call in cases:
            with self.subTest(sentence), self.assertRaisesRegex(kind, re.escape(sentence)):
                call()


class Threads(unittest.TestCase):
    def test_calls_at_once(self):
        m, x = Matrix.magnitude(random(128, 128)), random(40, 128)
        expected, wrong = sparse24.linear(x, m), []

        def work():
            for _ in range(50):
                if not np.array_equal(sparse24.linear(x, m), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_number(self):
        kept = sparse24.threads()
        try:
            sparse24.set_threads(1)
            self.assertEqual(sparse24.threads(), 1)
            with self.assertRaisesRegex(ValueError, "2000 threads"):
                sparse24.set_threads(2000)
        finally:
            sparse24.set_threads(kept)


class References(unittest.TestCase):
    """Calls leave nothing behind: thousands of each, or as many as S24_CALLS says."""

    def test_memory_stays_flat(self):
        w, x = random(8, 16), random(1, 16)
        m, out = Matrix.magnitude(w), np.empty((1, 8), np.float32)
        lifted = sparse24.prune(w, pattern="6:8").weight
        index, comm = sparse24.Index(random(9, 16)), sparse24.Comm("none")

        def refused(call):
            try:
                call()
            except (ValueError, TypeError, sparse24.Error):
                return
            self.fail("nothing was refused")

        calls = [
            lambda: sparse24.linear(x, m, out=out), lambda: Matrix.magnitude(w).T.to_dense(),
            lambda: m.pack(), lambda: m.quantize().scales, lambda: sparse24.check(w),
            lambda: sparse24.prune(w), lambda: sparse24.linear(OnlyDlpack(x), m, out=out),
            lambda: Matrix.pair(w), lambda: sparse24.Plan(m)(x, out=out),
            lambda: refused(lambda: Matrix.strict(w)), lambda: refused(lambda: m.quantize("no")),
            lambda: refused(lambda: sparse24.linear(w, m, w, out=out)),
            lambda: refused(lambda: Matrix.magnitude(w, dtype="no")),
            lambda: _core.names("criteria"), lambda: sparse24.prune(w, lambda seen: seen.w),
            lambda: refused(lambda: sparse24.prune(w, lambda seen: seen.w[0])),
            lambda: sparse24.SparseMatrix.from_dense(w).plan()(x),
            lambda: sparse24.SparseMatrix.from_dense(w, "coo").to("csc").starts,
            lambda: sparse24.LiftedMatrix(lifted).linear(x), lambda: index.nearest(x, 2),
            lambda: refused(lambda: sparse24.LiftedMatrix(w)), lambda: comm.sum(out),
            lambda: refused(lambda: comm.sum(w[:, ::2])), lambda: sparse24.Comm("none").barrier(),
        ]
        for call in calls:
            for _ in range(300):
                call()
            held = sys.getrefcount(x)
            self.assertLess(growth(call), 1 << 20, calls.index(call))
            self.assertEqual(sys.getrefcount(x), held)

    def test_memory_stays_flat_with_files(self):
        w = random(8, 16)
        mask, vectors = sparse24.magnitude_mask(w), random(9, 16)
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_bert.write(folder + "/model")
            weights = os.path.join(model, "model.safetensors")
            name = next(iter(sparse24.Checkpoint(weights)))
            encoder, tokenizer = sparse24.Encoder(model), sparse24.Tokenizer(model)
            calls = [
                lambda: encoder.encode("read the file"), lambda: encoder.share(),
                lambda: tokenizer.encode("read the file"),
                lambda: sparse24.Checkpoint(weights)[name], lambda: sparse24.magnitude_mask(w),
                lambda: sparse24.apply_mask(w, mask),
                lambda: sparse24.nearest(vectors[:1], vectors, 2),
            ]
            for call in calls:
                self.assertLess(growth(call), 1 << 20, calls.index(call))


class Signals(unittest.TestCase):
    def setUp(self):
        # A job in the background is started with SIGINT ignored, which Python then leaves so.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def test_ctrl_c_ends_long_work(self):
        program = ("import os, signal, sys, threading, time, tempfile; import tiny_bert, sparse24\n"
                   "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                   "folder = tiny_bert.write(tempfile.mkdtemp() + '/model')\n"
                   "encoder = sparse24.Encoder(folder)\n"
                   "texts = tiny_bert.sentences(1000) * 1000\n"
                   "try:\n"
                   "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
                   "    encoder.encode(texts)\n"
                   "except KeyboardInterrupt:\n    print('interrupted')\n"
                   "print(encoder.encode('again').shape)\n")
        paths = os.pathsep.join(p for p in sys.path if p)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                timeout=600, check=False, env={**os.environ, "PYTHONPATH": paths})
        self.assertEqual(result.stdout, "interrupted\n(32,)\n", result.stderr)

    def test_a_callback_stops_and_raises(self):
        with tempfile.TemporaryDirectory() as folder:
            encoder = sparse24.Encoder(tiny_bert.write(folder + "/model"))
            texts = tiny_bert.sentences(500)
            with self.assertRaises(KeyboardInterrupt):
                encoder.encode(texts, progress=lambda *_: True)
            with self.assertRaises(ZeroDivisionError):
                encoder.encode(texts, progress=lambda *_: 1 // 0)
            with self.assertRaises(KeyboardInterrupt):
                encoder.encode(texts, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
            self.assertEqual(encoder.encode(texts[:2]).shape, (2, 32))


class Imports(unittest.TestCase):
    def test_nothing_heavy_comes_along(self):
        program = ("import sys, sparse24; print(sorted({'numpy', 'torch', 'logging', 'queue'} & "
                   "set(sys.modules))); print(sparse24.linear, len(dir(sparse24)))")
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                check=True)
        self.assertEqual(result.stdout.split("\n")[0], "[]")

    def test_names(self):
        for name in sparse24.__all__:
            self.assertIsNotNone(getattr(sparse24, name))
        with self.assertRaisesRegex(AttributeError, "nothing"):
            _ = sparse24.nothing
        tree = ast.parse((TREE / "python/sparse24/__init__.py").read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                    for alias in node.names if not alias.asname}
        spelt = next(node.value for node in tree.body if isinstance(node, ast.Assign) and
                     node.targets[0].id == "__all__")
        self.assertEqual(set(ast.literal_eval(spelt)), imported)  # which type checkers read
        self.assertEqual(imported, {*sparse24._HOME_OF, "Error", "machine", "set_threads",
                                    "threads"})
        header = (TREE / "include/sparse24/sparse24.h").read_text(encoding="utf-8")
        self.assertIn(f'S24_VERSION       "{sparse24.__version__}"', header)

    def test_stubs_have_what_the_module_has(self):
        stub = (TREE / "python/sparse24/_core.pyi").read_text(encoding="utf-8")
        named = set(re.findall(r"^(?:def|class) (\w+)", stub, re.M))
        self.assertEqual(named, {n for n in dir(_core) if not n.startswith("__")})

    def test_stubs_take_what_the_module_takes(self):
        stub = ast.parse((TREE / "python/sparse24/_core.pyi").read_text(encoding="utf-8"))
        for function in (node for node in stub.body if isinstance(node, ast.FunctionDef)):
            takes, least = function.args.posonlyargs, len(function.args.defaults)
            names = [argument.arg for argument in takes]
            told = re.match(r"\w+ ?\(([^)]*)\)", getattr(_core, function.name).__doc__)
            with self.subTest(function.name):
                words = [word.partition("=")[0] for word in told[1].split(", ") if word]
                if "…" in words:
                    names, words = names[:words.index("…")], words[:words.index("…")]
                self.assertEqual(names, words)
                if len(takes) == least:
                    continue
                with self.assertRaisesRegex(TypeError, "function takes|at least") as caught:
                    getattr(_core, function.name)()
                self.assertEqual(int(re.search(r" (\d+) arg", str(caught.exception))[1]),
                                 len(takes) - least)

    def test_all_names_are_documented(self):
        for name in sparse24.__all__:
            value = getattr(sparse24, name)
            self.assertTrue(value.__doc__, name)
            for each, member in vars(value).items() if isinstance(value, type) else ():
                if callable(member) and not each.startswith("_"):
                    self.assertTrue(member.__doc__, f"{name}.{each}")

    def test_the_program(self):
        result = subprocess.run([sys.executable, "-m", "sparse24", "--version"],
                                capture_output=True, text=True, check=True)
        self.assertIn(sparse24.__version__, result.stdout)
        failed = subprocess.run([sys.executable, "-m", "sparse24", "info", "/nothing"],
                                capture_output=True, text=True, check=False)
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("sparse24 info: error:", failed.stderr)

    def test_messages_go_to_the_logger(self):
        self.assertEqual(logging.getLogger("sparse24").name, "sparse24")


if __name__ == "__main__":
    unittest.main()
