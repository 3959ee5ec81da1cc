# SPDX-License-Identifier: Apache-2.0
"""Every program of examples/, built by its own CMakeLists.txt against an installed library, does
what its page says: the guide's programs run, with a small model where they want one."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import tiny_bert

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
WORK = BUILD / "examples-test"
PREFIX, PROGRAMS = WORK / "prefix", WORK / "build"


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600,
                          **options)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        for command in (("cmake", "--install", BUILD, "--prefix", PREFIX),
                        ("cmake", "-S", SOURCE / "examples", "-B", PROGRAMS,
                         f"-DCMAKE_PREFIX_PATH={PREFIX}",
                         f"-DCMAKE_C_COMPILER={os.environ['CC']}",
                         "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"),
                        ("cmake", "--build", PROGRAMS)):
            done = run(*command)
            if done.returncode != 0:
                raise AssertionError(done.stdout + done.stderr)
        tiny_bert.write(WORK / "model")
        (WORK / "passages.txt").write_text("\n".join(tiny_bert.sentences(64)) + "\n")

    def good(self, program, *arguments, code=0):
        """What the program printed."""
        if not (PROGRAMS / program).exists():
            self.skipTest("built without S24_NN")
        done = run(PROGRAMS / program, *arguments, cwd=WORK)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def pruned(self):
        """The folder of a pruned model, made once."""
        if not (WORK / "pruned").exists():
            self.good("prune", "model", "pruned", "passages.txt")
        return "pruned"

    def test_every_program_has_its_test(self):
        programs = {path.stem for path in (SOURCE / "examples").glob("*.c")}
        tests = {name.removeprefix("test_example_") for name in dir(self)
                 if name.startswith("test_example_")}
        self.assertEqual(tests, programs)

    def test_example_first(self):
        self.assertRegex(self.good("first"),
                         r"524288 bytes dense, 278528 packed; largest difference \d")

    def test_example_strict(self):
        self.assertRegex(self.good("strict", code=1), r"^strict: .*row 1\b.*\b4\b")

    def test_example_layer(self):
        errors = [float(e) for e in re.findall(r"output error ([\d.]+)", self.good("layer"))]
        self.assertEqual(len(errors), 2)
        self.assertLess(errors[1], errors[0], "inputs help to choose")

    def test_example_multiply(self):
        self.assertRegex(self.good("multiply"), r"32 tokens by kernel linear_f32_\w+: \d+ bytes")

    def test_example_threads(self):
        self.assertIn("4 threads on one matrix of 139264 bytes: the same bits",
                      self.good("threads"))

    def test_example_memory(self):
        text = self.good("memory")
        self.assertRegex(text, r"out of memory: \d+ bytes for a 2:4 matrix of \[1024, 1024\]")
        self.assertIn("in use at the end: 0 and 0 bytes", text)

    def test_example_fork(self):
        self.assertIn("the child's product: the parent's bits", self.good("fork"))

    def test_example_versions(self):
        self.assertRegex(self.good("versions"), r"compiled with ([\d.]+), running \1\nthis CPU: ")

    def test_example_embed(self):
        text = self.good("embed", "model", "read a file", "read a file", "lock the thread")
        self.assertIn("3 texts, ", text)
        self.assertIn(" 1.0000  read a file", text)

    def test_example_prune(self):
        shutil.rmtree(WORK / "pruned", ignore_errors=True)
        text = self.good("prune", "model", "pruned", "passages.txt")
        self.assertIn("12 layers are 2:4 in pruned", text)
        self.assertIn("exists", self.good("prune", "model", "pruned", "passages.txt", code=1))

    def test_example_save(self):
        (WORK / "layer.safetensors").unlink(missing_ok=True)
        text = self.good("save", "layer.safetensors")
        self.assertIn("17408 bytes instead of 32768, and the same bits come back", text)

    def test_example_distil(self):
        shutil.rmtree(WORK / "trained", ignore_errors=True)
        text = self.good("distil", "model", self.pruned(), "trained", "passages.txt", 40)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
        self.assertLess(losses[-1], losses[0])
        self.assertIn("3 texts", self.good("embed", "trained", "a", "b", "c"))


if __name__ == "__main__":
    unittest.main()
