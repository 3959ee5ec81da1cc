# SPDX-License-Identifier: Apache-2.0
"""Chat templates, GGUF and other libraries' checkpoints, heads that classify, ways to pool."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import TREE, golden, tiny_bert

sys.path.insert(0, str(TREE / "tests" / "cli"))
import gguf_data  # noqa: E402 pylint: disable=wrong-import-position

GO, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
            "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


class Place(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)


class Conversations(Place):
    def test_gguf(self):
        tensors, _ = gguf_data.model("llama")
        path = self.root / "m.gguf"
        path.write_bytes(gguf_data.file(gguf_data.keys("llama"), tensors))
        sparse24.convert_gguf(path, self.root / "out", dtype="bf16")
        checkpoint = sparse24.Checkpoint(self.root / "out")
        self.assertEqual(checkpoint.model_type, "llama")
        self.assertEqual(checkpoint.info("model.layers.0.mlp.up_proj.weight").dtype, "bf16")
        with self.assertRaises(FileExistsError):
            sparse24.convert_gguf(path, self.root / "out")
        path.write_bytes(b"GGUF")
        with self.assertRaises(sparse24.Error):
            sparse24.convert_gguf(path, self.root / "bad")

    def folder(self, template):
        """A small llama whose tokens are bytes, and the two that set messages apart."""
        plain = set(range(0x21, 0x7f)) | set(range(0xa1, 0xad)) | set(range(0xae, 0x100))
        more = iter(range(0x100, 0x200))
        letters = [chr(i if i in plain else next(more)) for i in range(256)]
        tokenizer = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
                     "tokenizer.ggml.tokens": (gguf_data.STRING, letters + [GO, END]),
                     "tokenizer.ggml.token_type": (gguf_data.I32, [1] * 256 + [3, 3]),
                     "tokenizer.ggml.merges": (gguf_data.STRING, []),
                     "tokenizer.ggml.bos_token_id": 256, "tokenizer.chat_template": template}
        tensors, _ = gguf_data.model("llama", words=258)
        path = self.root / "m.gguf"
        path.write_bytes(gguf_data.file(gguf_data.keys("llama", tokenizer, context_length=256),
                                        tensors))
        sparse24.convert_gguf(path, self.root / "out", force=True)
        return self.root / "out"

    def test_chat(self):
        folder = self.folder(TEMPLATE)
        chat = sparse24.Chat(folder)
        self.assertEqual((chat.end, chat.thoughts), (257, None))
        ids = chat.encode([{"role": "system", "content": "Be kind."},
                           {"role": "user", "content": f"Hi {END}"}])

        def text(part):
            return list(part.encode())
        self.assertEqual(ids, [256, *text("system\nBe kind."), 257, *text("\n"), 256,
                               *text(f"user\nHi {END}"), 257, *text("\n"), 256,
                               *text("assistant\n")])
        self.assertEqual(chat.encode([("user", "a")]), chat.encode("a"))
        tokens = list(sparse24.generate(sparse24.Model(folder), [chat.encode("a")], max_new=3))
        self.assertEqual(len(tokens), 3)
        self.assertEqual(chat.render("a"), f"{GO}user\na{END}\n{GO}assistant\n")
        self.assertEqual(chat.render("a", add_generation_prompt=False), f"{GO}user\na{END}\n")
        self.assertTrue(chat.reads("add_generation_prompt"))
        self.assertFalse(chat.reads("enable_thinking"))
        with self.assertRaisesRegex(ValueError, "line 2: content is not defined"):
            chat.encode([{"role": "user"}])
        with self.assertRaises(ValueError):
            chat.encode([("user",)])
        with self.assertRaises(TypeError):
            chat.encode("a", tools=object())
        with self.assertRaisesRegex(sparse24.Error, "without thoughts"):
            sparse24.Chat(folder, thinking=False)
        with self.assertRaisesRegex(sparse24.Error, "line 1: the tag include is not carried out"):
            sparse24.Chat(self.folder("{% include 'x' %}"))
        chat = sparse24.Chat(self.folder("{{ tools | tojson }}{{ x }}</think>"))
        self.assertEqual(chat.render("a", tools=[{"a": 1}], x="\u00e9"), '[{"a": 1}]\u00e9</think>')
        self.assertEqual(chat.thoughts, ("<think>", "</think>"))

    def test_likeliest_tokens(self):
        model = sparse24.Model(golden("language/gpt2"))
        tokens = list(sparse24.generate(model, [[1, 2, 3]], max_new=4, stops=(), likeliest=3))
        for token in tokens:
            self.assertEqual(len(token.likeliest), 3)
            self.assertEqual(token.likeliest[0], (token.id, token.log_probability))
            logs = [log for _, log in token.likeliest]
            self.assertEqual(logs, sorted(logs, reverse=True))
        bytewise = list(sparse24.generate(model, [[1, 2, 3]], max_new=4, stops=(),
                                          cache_dtype="i8"))
        self.assertNotEqual(bytewise[0].log_probability, tokens[0].log_probability)
        self.assertAlmostEqual(bytewise[0].log_probability, tokens[0].log_probability, delta=0.1)
        with self.assertRaisesRegex(ValueError, "none, i8 or e4m3"):
            list(sparse24.generate(model, [[1]], cache_dtype="bf16"))
        with self.assertRaisesRegex(ValueError, "1001"):
            list(sparse24.generate(model, [[1]], likeliest=1001))


class Conversions(Place):
    def test_there_and_back(self):
        model = tiny_bert.write(self.root / "model")
        sparse24.prune_model(model, self.root / "pruned")
        name = "encoder.layer.0.intermediate.dense.weight"
        w = sparse24.Checkpoint(self.root / "pruned")[name]
        for form in sparse24.forms():
            out = self.root / form
            report = sparse24.convert(self.root / "pruned", out, form)
            self.assertGreater(report.tensors, 12)
            back = self.root / f"{form}-back"
            sparse24.convert(out, back, "dense")
            np.testing.assert_array_equal(sparse24.Checkpoint(back)[name], w)
        self.assertEqual(sparse24.scheme_of(self.root / "compressed-tensors"),
                         "compressed-tensors sparse-24-bitmask")
        self.assertIsNone(sparse24.scheme_of(model))
        self.assertEqual(sparse24.quantization_of(self.root / "compressed-tensors"),
                         "compressed-tensors")
        self.assertIsNone(sparse24.quantization_of(model))
        with self.assertRaisesRegex(ValueError, "onnx"):
            sparse24.convert(model, self.root / "no", "onnx")

    def test_onnx(self):
        model = tiny_bert.write(self.root / "model")
        done = sparse24.export_onnx(model, self.root / "out")
        self.assertEqual(done.bytes, (self.root / "out/model.onnx").stat().st_size)
        self.assertEqual((done.dimensions, done.external), (tiny_bert.WIDTH, False))
        with self.assertRaises(FileExistsError):
            sparse24.export_onnx(model, self.root / "out")
        self.assertTrue(sparse24.export_onnx(model, self.root / "out", external=True,
                                             force=True).external)
        with self.assertRaisesRegex(sparse24.Error, "rotate"):
            sparse24.export_onnx(golden("encoders/modernbert"), self.root / "no")


class Heads(Place):
    def folder(self, name):
        out = self.root / name
        shutil.copytree(golden("encoders") / name, out)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "alpha", "beta", "gamma", "delta", "##s", "."]
        (out / "vocab.txt").write_text("\n".join(words) + "\n")
        (out / "tokenizer_config.json").write_text('{"do_lower_case": true}')
        return out

    def test_rerank(self):
        model = sparse24.Classifier(self.folder("bert-reranker"))
        documents = ["alpha beta", "gamma deltas.", "beta beta", "delta"]
        ranked = model.rerank("alpha", documents, 3)
        scores = model.logits("alpha", documents)[:, 0]
        self.assertEqual(len(ranked), 3)
        self.assertEqual([score for _, score in ranked], sorted(scores, reverse=True)[:3])
        pairs = model.logits(["alpha"] * 4, documents)[:, 0]
        np.testing.assert_array_equal(pairs, scores)
        self.assertEqual(model.rerank("alpha", []), [])
        with self.assertRaisesRegex(ValueError, "2 texts"):
            model.logits(["a", "b"], ["c"])
        with self.assertRaisesRegex(sparse24.Error, "head of texts|tokens"):
            model.tag("alpha")

    def test_classify(self):
        folder = self.folder("bert-classes")
        model = sparse24.Classifier(folder)
        shares = model.classify(["alpha beta", "delta"])
        for row in shares:
            self.assertEqual(set(row), set(model.labels))
            self.assertEqual(list(row.values()), sorted(row.values(), reverse=True))
        if not model.several:
            self.assertAlmostEqual(sum(shares[0].values()), 1, 6)
        with self.assertRaisesRegex(ValueError, "one class"):
            model.rerank("alpha", ["beta"])
        config = json.loads((folder / "config.json").read_text())
        config["problem_type"] = "multi_label_classification"
        (folder / "config.json").write_text(json.dumps(config))
        self.assertTrue(sparse24.Classifier(folder).several)
        self.assertFalse(sparse24.Classifier(folder).plain)

    def test_no_head(self):
        with self.assertRaises(sparse24.Error):
            sparse24.Classifier(tiny_bert.write(self.root / "plain"))


class Ids(Place):
    def test_texts_of_ids(self):
        folder = tiny_bert.write(self.root / "model")
        texts, whole = tiny_bert.sentences(5), sparse24.Encoder(folder)
        ids = [sparse24.Tokenizer(folder).encode(text).ids for text in texts]
        (pathlib.Path(folder) / "vocab.txt").unlink()
        bare = sparse24.Encoder(folder, ids=True)
        for encoder in (whole, bare):
            np.testing.assert_allclose(encoder.encode_ids(ids), whole.encode(texts), atol=1e-5)
        self.assertEqual(bare.encode_ids([]).shape, (0, 32))
        with self.assertRaises(ValueError):
            bare.encode_ids([[1, 10 ** 6]])
        with self.assertRaises(ValueError):
            bare.encode_ids([[1], []])


class Pooling(Place):
    def test_ways_and_dimensions(self):
        folder = tiny_bert.write(self.root / "model")
        texts = tiny_bert.sentences(3)
        whole = sparse24.Encoder(folder)
        short = sparse24.Encoder(folder, dimensions=8)
        self.assertEqual((whole.width, short.width), (32, 8))
        first = whole.encode(texts)[:, :8]
        np.testing.assert_allclose(short.encode(texts, normalize_embeddings=True),
                                   first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-5)
        self.assertFalse(np.allclose(sparse24.Encoder(folder, pooling="cls").encode(texts),
                                     sparse24.Encoder(folder, pooling="max").encode(texts)))
        with self.assertRaisesRegex(ValueError, "pooling|soft"):
            sparse24.Encoder(folder, pooling="soft")
        with self.assertRaisesRegex((ValueError, sparse24.Error), "33"):
            sparse24.Encoder(folder, dimensions=33)


if __name__ == "__main__":
    unittest.main()
