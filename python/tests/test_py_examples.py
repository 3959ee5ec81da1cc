# SPDX-License-Identifier: Apache-2.0
"""Every script of examples/python runs and ends well."""
import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest

from py_support import TREE, tiny_bert

SCRIPTS = TREE / "examples" / "python"


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
