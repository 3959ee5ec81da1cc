# SPDX-License-Identifier: Apache-2.0
"""Training, distillation, questions with answers, and the plan of a machine."""
import json
import pathlib
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import golden, tiny_bert


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.place.name)
        cls.dense = tiny_bert.write(cls.root / "dense")
        cls.pruned = cls.root / "pruned"
        cls.texts = tiny_bert.sentences(64)
        sparse24.prune_model(cls.dense, cls.pruned)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def test_methods(self):
        self.assertIn("sr-ste", sparse24.methods())
        told = sparse24.method("sr-ste")
        self.assertTrue(told.summary)
        name, number = next(iter(told.numbers.items()))
        self.assertIsInstance(number, float)
        steps, out = [], self.root / "sr-ste"
        sparse24.train(self.dense, out, texts=self.texts, teacher=self.dense, method="sr-ste",
                       numbers={name: number}, exclude="*attention*", steps=4, batch=8,
                       report=steps.append)
        self.assertTrue(all(step.sparse for step in steps))
        self.assertLess(steps[-1].kept, 1)
        w = sparse24.Checkpoint(out)
        self.assertIsNone(sparse24.check(w["encoder.layer.0.intermediate.dense.weight"]))
        self.assertIsNotNone(sparse24.check(w["encoder.layer.0.attention.self.query.weight"]))
        for options, error in (({"method": "sometimes"}, "sometimes"),
                               ({"method": "sr-ste", "numbers": {"speed": 1}}, "speed")):
            with self.assertRaisesRegex(ValueError, error):
                sparse24.train(self.dense, self.root / "no", texts=self.texts, steps=1,
                               teacher=self.dense, **options)
        with self.assertRaisesRegex(ValueError, "sometimes"):
            sparse24.method("sometimes")

    def test_from_scratch(self):
        model, out = golden("language/gpt2"), self.root / "scratch"
        ids = [[(i * 7 + j) % 50 for j in range(12)] for i in range(16)]
        last = sparse24.train(model, out, ids=ids, from_scratch=True, steps=3, batch=4)
        self.assertEqual(last.steps, 3)
        one, two = sparse24.Checkpoint(model), sparse24.Checkpoint(out)
        self.assertFalse(any(np.array_equal(one[name], two[name]) for name in two
                             if "attn.c_attn.weight" in name))

    def test_a_stream(self):
        text = " ".join(self.texts)
        words = {"Ġ" if c == " " else c: i for i, c in enumerate(sorted(set(text)))}
        folder, out = self.root / "gpt2-config", self.root / "streamed"
        folder.mkdir()
        for name, what in (("vocab.json", json.dumps(words)), ("merges.txt", "#version: 0.2\n"),
                           ("tokenizer_config.json", '{"tokenizer_class": "GPT2Tokenizer"}'),
                           ("config.json", json.dumps(
                               {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
                                "n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 16,
                                "vocab_size": len(words), "resid_pdrop": 0.0,
                                "attn_pdrop": 0.0}))):
            (folder / name).write_text(what, encoding="utf-8")
        steps = []
        last = sparse24.train(folder, out, stream=text, held_out=text[:100], from_scratch=True,
                              steps=40, batch=4, rate=1e-2, report=steps.append)
        self.assertLess(steps[-1].loss, 0.9 * steps[0].loss)
        self.assertEqual(steps[0].tokens, 4 * 16)
        self.assertLess(last.held_out, steps[0].loss)
        self.assertTrue(0 <= last.noise <= 1 and np.isnan(steps[0].noise) and last.overhead == 0)
        ids = sparse24.Tokenizer(folder).encode(text).ids
        sparse24.train(out, out, stream=ids, held_out=self.texts[:2], steps=1, max_tokens=8,
                       force=True)
        self.assertTrue(sparse24.gradients(out, stream=ids, examples=3))
        with self.assertRaisesRegex(ValueError, "at least two tokens"):
            sparse24.train(out, self.root / "no", stream=[1], steps=1)
        with self.assertRaisesRegex(ValueError, "needs a language model, and this one is bert"):
            sparse24.train(self.dense, self.root / "no", stream=ids, steps=1)

    def test_images(self):
        config = {"model_type": "vit", "architectures": ["ViTForImageClassification"],
                  "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "intermediate_size": 32, "image_size": 8, "patch_size": 4, "num_channels": 3,
                  "num_labels": 2, "hidden_dropout_prob": 0.0,
                  "attention_probs_dropout_prob": 0.0}
        folder = self.root / "vit-config"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        classes = np.arange(40) % 2
        pixels = np.random.default_rng(1).normal(size=(40, 3, 8, 8)) * 0.1
        pixels[classes == 1] += 1
        steps, vit = [], self.root / "vit"
        last = sparse24.train(folder, vit, images=(pixels, classes), from_scratch=True, steps=30,
                              batch=8, rate=3e-3, held_out=(pixels[:8], classes[:8]),
                              method="ste", report=steps.append)
        self.assertLess(steps[-1].loss, 0.5 * steps[0].loss)
        self.assertLess(last.held_out, steps[0].loss)
        self.assertTrue(0 < last.overhead < 1)
        out = sparse24.Model(vit).forward_images(pixels.astype(np.float32))["logits"]
        self.assertGreater((out.argmax(axis=1) == classes).mean(), 0.9)
        same = sparse24.train(vit, self.root / "taught", images=(pixels, None), teacher=vit,
                              loss={"hidden": 1, "cosine": 1}, steps=1)
        self.assertLess(same.loss, 1e-4)
        told = sparse24.gradients(vit, images=(pixels, classes), examples=4)
        sparse24.prune_model(vit, self.root / "vit-taylor", criterion="taylor-first",
                             gradients=told)
        for images, said in (((pixels[:, :1], classes), r"expected \[n, 3, 8, 8\]"),
                             ((pixels, classes[1:]), r"expected \[40\], one an image"),
                             ((pixels, classes + 1), r"targets")):
            with self.assertRaisesRegex(ValueError, said):
                sparse24.train(vit, self.root / "no", images=images, steps=6)
        with self.assertRaisesRegex(ValueError, "'bert' reads texts, and images were given"):
            sparse24.train(self.dense, self.root / "no", images=(pixels, classes), steps=1)
        with self.assertRaisesRegex(ValueError, "one of them"):
            sparse24.train(vit, self.root / "no", images=(pixels, classes), ids=[[1]], steps=1)

    def test_a_masked_decay_is_found(self):
        steps = []
        sparse24.train(self.dense, self.root / "calm", texts=self.texts, teacher=self.dense,
                       method="sr-ste", choose_masked_decay=True, steps=24, batch=8, rate=1e-3,
                       report=steps.append)
        self.assertEqual(len(steps), 24)
        with self.assertRaisesRegex(ValueError, "method ste has no masked-decay"):
            sparse24.train(self.dense, self.root / "no", texts=self.texts, teacher=self.dense,
                           method="ste", choose_masked_decay=True, steps=1)

    def far(self, folder):
        """How far a model's vectors are from the dense one's."""
        one, two = (sparse24.Encoder(each).encode(self.texts) for each in (self.dense, folder))
        return float(1 - (one * two).sum(axis=1).mean())

    def test_distil(self):
        out, steps = self.root / "out", []
        last = sparse24.distil(self.pruned, self.dense, out, self.texts, steps=30, batch=16,
                               rate=3e-3, held_out=self.texts[:8], report=steps.append)
        self.assertEqual(([s.step for s in steps], last.step), (list(range(1, 31)), 30))
        self.assertLess(steps[-1].loss, steps[0].loss)
        self.assertTrue(np.isfinite(last.held_out))
        self.assertLess(self.far(out), self.far(self.pruned))
        w = sparse24.Checkpoint(out)["encoder.layer.0.intermediate.dense.weight"]
        self.assertIsNone(sparse24.check(w))
        with self.assertRaises(FileExistsError):
            sparse24.distil(self.pruned, self.dense, out, self.texts, steps=1)

    def test_stopped_and_resumed_has_the_same_bits(self):
        name, common = "encoder.layer.1.output.dense.weight", {"steps": 6, "batch": 8, "seed": 3}
        whole, parts = self.root / "whole", self.root / "parts"
        sparse24.distil(self.pruned, self.dense, whole, self.texts, **common)
        state = self.root / "run.safetensors"
        with self.assertRaises(KeyboardInterrupt):
            sparse24.distil(self.pruned, self.dense, parts, self.texts, checkpoint=state,
                            report=lambda step: step.step == 3, **common)
        self.assertFalse(parts.exists())
        sparse24.distil(self.pruned, self.dense, parts, self.texts, checkpoint=state, resume=True,
                        **common)
        np.testing.assert_array_equal(sparse24.Checkpoint(whole)[name],
                                      sparse24.Checkpoint(parts)[name])

    def test_refusals(self):
        out = self.root / "never"
        for sentence, options in (("one of them", {}), ("loss", {"loss": {"luck": 1}}),
                                  ("schedule 'up'", {"schedule": "up"}),
                                  ("rate", {"rate": -1.0})):
            given = {} if sentence == "one of them" else {"texts": self.texts}
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                sparse24.train(self.pruned, out, teacher=self.dense, **given, **options)
        with self.assertRaises(ZeroDivisionError):
            sparse24.distil(self.pruned, self.dense, out, self.texts, report=lambda _: 1 // 0)
        self.assertFalse(out.exists())

    def test_questions(self):
        context = "the file is in a directory and the lock is on the table"
        rows = [{"id": f"q{i}", "question": question,
                 "answers": [{"text": answer, "answer_start": context.index(answer)}]}
                for i, (question, answer) in enumerate((("where is the file", "in a directory"),
                                                        ("where is the lock", "on the table")))]
        data = self.root / "qa.json"
        data.write_text(json.dumps({"version": "1.1", "data": [
            {"title": "t", "paragraphs": [{"context": context, "qas": rows}]}]}))
        out = self.root / "qa"
        sparse24.train(self.dense, out, questions=data, steps=200, batch=2, rate=2e-3,
                       fixed=False, dropout=0.0)
        result = sparse24.evaluate_qa(out, data)
        self.assertEqual(set(result.answers), {"q0", "q1"})
        self.assertEqual((result.exact_match, result.f1), (100, 100))
        self.assertEqual(result.answers["q1"], "on the table")
        offsets, ids, types, _, starts, ends = sparse24.Questions(
            data, sparse24.Tokenizer(self.dense)).examples()
        self.assertEqual((len(offsets), len(ids)), (3, len(types)))
        self.assertTrue((starts <= ends).all())
        with self.assertRaises(sparse24.Error):
            sparse24.evaluate_qa(self.dense, data)

    def test_a_language_model(self):
        folder = golden("language/llama2")
        ids = np.random.default_rng(1).integers(3, 300, (8, 20))
        steps = []
        sparse24.train(folder, self.root / "lm", ids=ids, steps=8, batch=8, rate=1e-2,
                       dropout=0.0, report=steps.append)
        self.assertLess(steps[-1].loss, steps[0].loss)

    def test_retrieval(self):
        share = sparse24.evaluate_retrieval(self.dense, self.texts, self.texts, range(64))
        self.assertEqual(share, 1)

    def test_a_plan_that_cannot_be(self):
        with self.assertRaisesRegex(ValueError, "3"):
            sparse24.plan(1, 3, 5)


if __name__ == "__main__":
    unittest.main()
