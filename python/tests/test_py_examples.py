# SPDX-License-Identifier: Apache-2.0
"""Every script of examples/python runs and ends well."""
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy

import sparse24

from py_support import TREE, tiny_bert

SCRIPTS = TREE / "examples" / "python"


def kill_worker(process, name, mark):
    """Kills one process of that name whose environment has the mark, as soon as there is one that
    has no child of that name; whether it did."""
    while process.poll() is None:
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (name.encode() in (path / "cmdline").read_bytes()
                        and mark.encode() in (path / "environ").read_bytes()):
                    found[int(path.name)] = int((path / "stat").read_text().rsplit(")", 1)[1]
                                                .split()[1])
            except OSError:
                continue
        workers = [pid for pid, parent in found.items()
                   if pid not in found.values() and (parent in found or "daemon" not in name)]
        if workers:
            os.kill(workers[0], signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


class Examples(unittest.TestCase):
    def script(self, name, *arguments, needs=()):
        for module in needs:
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"no {module} here")
        result = subprocess.run([sys.executable, SCRIPTS / name, *arguments], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def losses(self, output):
        found = [float(each) for each in re.findall(r"loss ([\d.]+)", output)]
        self.assertGreater(len(found), 2)
        return found

    def embeds(self, name, worker, *modules):
        """The script's vectors are those of one encoder, though one of its workers is killed."""
        for module in modules:
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"no {module} here")
        with tempfile.TemporaryDirectory() as folder:
            model, lines, out = (pathlib.Path(folder) / each
                                 for each in ("model", "lines", "v.npy"))
            tiny_bert.write(model)
            texts = tiny_bert.sentences(200)
            lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
            process = subprocess.Popen([sys.executable, SCRIPTS / name, model, lines, out],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=dict(os.environ, S24_TEST_FOLDER=folder))
            killed = kill_worker(process, worker, f"S24_TEST_FOLDER={folder}")
            said, errors = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, errors)
            self.assertTrue(killed, f"no {worker} was seen")
            self.assertIn("200 vectors", said)
            wanted = sparse24.Encoder(model).encode_document(texts)
            self.assertLess(abs(numpy.load(out) - wanted).max(), 1e-5)

    def test_embed_ray(self):
        self.embeds("embed_ray.py", "ray::MapWorker", "ray", "pandas")

    def test_embed_spark(self):
        self.embeds("embed_spark.py", "pyspark.daemon", "pyspark", "pandas", "pyarrow")

    def test_bert_qa(self):
        output = self.script("bert_qa.py", needs=("torch", "transformers"))
        self.assertIn("the same logits", output)

    def test_quantised(self):
        errors = re.findall(r"error ([\d.]+)", self.script("quantised.py", needs=("torch",)))
        self.assertEqual(len(errors), 3)
        for error, most in zip(errors, (1e-4, 0.03, 0.2)):
            self.assertLess(float(error), most)

    def test_pretrain(self):
        losses = self.losses(self.script("pretrain.py", needs=("torch",)))
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_training(self):
        output = self.script("training.py", needs=("torch",))
        self.assertLess(self.losses(output)[-1], 0.8 * self.losses(output)[0])
        self.assertEqual(output.count("2:4"), 2)

    def test_embed_texts(self):
        with tempfile.TemporaryDirectory() as place:
            folder = tiny_bert.write(place + "/model")
            texts = tiny_bert.sentences(20)
            passages = folder / "passages.txt"
            passages.write_text("\n".join(texts) + "\n")
            output = self.script("embed_texts.py", folder, passages, texts[7])
        self.assertEqual(output.splitlines()[0], f"1.000  {texts[7]}")

    def test_all_are_tested(self):
        with open(__file__, encoding="utf-8") as file:
            text = file.read()
        for script in SCRIPTS.glob("*.py"):
            self.assertIn(f'"{script.name}"', text)


if __name__ == "__main__":
    unittest.main()
