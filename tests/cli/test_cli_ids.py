# SPDX-License-Identifier: Apache-2.0
"""--ids: lines of token ids in place of text, for folders without a tokenizer."""
import json
import math
import random
import shutil
import struct
import unittest

from cli_case import GOLDEN, Scratch, copy_golden, run
import test_cli_eval
import tiny_bert
from cli_data import floats, read
from test_cli_train_sets import randomise

LETTERS = test_cli_eval.LETTERS
LANGUAGE = GOLDEN / "language"
WORDS = tiny_bert.vocabulary()
# What is no id of a vocabulary of `limit` words, and how it is named.
BAD = [("-1", "-1"), ("+1", r"\+1"), ("1.5", r"1\.5"), ("x", "x"), ("1,2", "1,2"), ("0x1", "0x1"),
       ("99999999999999999999999999", "9" * 26), ("18446744073709551617", "18446744073709551617"),
       ("3\0 4", r"3\\x00"), ("3\r4", r"3\\r4"), ("{limit}", "{limit}")]


def without_tokenizer(folder):
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)


def bert_lines(count=40):
    """Texts of whole words of the vocabulary, and the ids that its tokenizer gives."""
    chance = random.Random(6)
    texts = [" ".join(chance.choices([w for w in tiny_bert.WORDS if len(w) > 1],
                                     k=chance.randint(1, 14))) for _ in range(count)]
    return texts, [" ".join(str(WORDS.index(w)) for w in ("[CLS]", *t.split(), "[SEP]"))
                   for t in texts]


def make(folder):
    tiny_bert.write(folder / "model")
    shutil.copytree(folder / "model", folder / "bare")
    without_tokenizer(folder / "bare")
    test_cli_eval.write_gpt2(folder / "gpt2", width=8)
    randomise(folder / "gpt2", 3)
    shutil.copytree(folder / "gpt2", folder / "plain")
    without_tokenizer(folder / "plain")
    test_cli_eval.write_vit(folder / "vit")
    texts, ids = bert_lines()
    (folder / "texts").write_text("\n".join(texts) + "\n")
    (folder / "ids").write_text("\n".join(ids) + "\n")
    (folder / "gap").write_text("\n".join(ids[:35] + [""] + ids[35:]) + "\n")
    for name, limit in (("bert", len(WORDS)), ("gpt2", len(LETTERS))):
        for i, (word, _) in enumerate(BAD):
            line = f"1 2\n3 {word.format(limit=limit)} 1\n"
            (folder / f"bad-{name}-{i}").write_bytes(line.encode())
    (folder / "latin").write_bytes(b"1 2\n3 \xff\n")
    (folder / "nothing").write_text("")
    (folder / "blank").write_text(" \n\n\t\n")
    (folder / "one").write_text("3\n")


class Language(Scratch):
    make = staticmethod(make)

    def lm(self, model, data, *more, **how):
        return self.json("eval", model, "--task", "lm", "--data", data, *more, **how)

    def test_ids_score_as_their_text(self):
        text = "".join(random.Random(4).choices(LETTERS, k=75))
        (self.folder / "text").write_text(text)
        ids = [str(LETTERS.index(c)) for c in text]
        expected = self.lm("gpt2", "text", "--stride", "5", "--max-tokens", "9")
        for name, data in (("one line", " ".join(ids) + "\n"), ("no end", " ".join(ids)),
                           ("lines", "\n".join(ids)), ("crlf", "\r\n".join(ids) + "\r\n"),
                           ("blanks", "\n\n \t".join(ids) + "\t\n\n"),
                           ("zeros", " ".join("00" + i for i in ids))):
            with self.subTest(name):
                (self.folder / "ids").write_bytes(data.encode())
                found = self.lm("plain", "ids", "--ids", "--stride", "5", "--max-tokens", "9")
                self.assertEqual((found["loss"], found["tokens"]), (expected["loss"], len(ids)))
                self.assertEqual((found["bytes"], found["bits_per_byte"]), (None, None))
        piped = self.lm("plain", "-", "--ids", "--stride", "5", "--max-tokens", "9", text=data)
        self.assertEqual(piped["loss"], expected["loss"])
        said = self.good("eval", "plain", "--task", "lm", "--data", "ids", "--ids").stdout
        self.assertRegex(said, r"^loss \d\.\d{4}  perplexity [\d.]+  \(75 tokens, [\d.]+ s\)$")

    def test_golden_perplexities(self):
        for name in ("gpt2", "llama2", "llama31", "mistral", "qwen2", "qwen3"):
            folder = LANGUAGE / name
            if not folder.exists():
                self.skipTest(f"{folder} is not here")
            tensors, _ = read(folder / "io.safetensors")
            ids = struct.unpack("<300i", tensors["stride.ids"][2])
            expected, = struct.unpack("<f", tensors["stride.ppl"][2])
            (self.folder / "golden").write_text(" ".join(map(str, ids)))
            found = self.lm(folder, "golden", "--ids", "--max-tokens", "64", "--stride", "32")
            self.assertLess(abs(found["perplexity"] / expected - 1), 1e-4)
            self.assertAlmostEqual(math.log(found["perplexity"]), found["loss"], places=6)

    def test_refusals(self):
        def lm(data, *more, model="plain"):
            return ["eval", model, "--task", "lm", "--ids", "--data", data, *more]
        self.refusals([
            *((f"bad {i}", lm(f"bad-gpt2-{i}"), 4,
               f"bad-gpt2-{i}: line 1: '{shown.format(limit=5)}' is not a token id, "
               "0 to 4 is expected")
              for i, (_, shown) in enumerate(BAD)),
            ("latin", lm("latin"), 4, "latin: line 1 is not UTF-8"),
            ("nothing", lm("nothing"), 4, "nothing: there is no token id in it"),
            ("blank", lm("blank"), 4, "blank: there is no token id in it"),
            ("one", lm("one"), 4, "one has one token; two at least"),
            ("no file", lm("nowhere"), 3, "nowhere.*No such"),
            ("no tokenizer", ["eval", "plain", "--task", "lm", "--data", "one"], 3,
             "tokenizer.json"),
            *((task, ["eval", "model", "--task", task, *data, "--ids"], 2,
               "option --ids is for --task lm")
              for task, *data in (("qa", "--data", "ids"), ("image", "--data", "ids"),
                                  ("retrieval", "--queries", "ids"))),
        ])


class Embed(Scratch):
    make = staticmethod(make)

    def vectors(self, model, *arguments, **how):
        found = self.json("embed", model, "--output", "v.safetensors", "--force", *arguments, **how)
        return read(self.folder / "v.safetensors")[0]["embeddings"], found["tokens"]

    def test_ids_embed_as_their_texts(self):
        expected = self.vectors("model", "--input", "texts")
        self.assertEqual(self.vectors("bare", "--input", "ids", "--ids"), expected)
        lines = (self.folder / "ids").read_text()
        self.assertEqual(self.vectors("bare", "--ids", text=lines.rstrip("\n")), expected)
        (self.folder / "crlf").write_bytes(lines.replace("\n", "\r\n").encode())
        self.assertEqual(self.vectors("bare", "--input", "crlf", "--ids"), expected)
        self.assertEqual(self.vectors("model", "--input", "ids", "--ids"), expected)

    def test_a_language_model_as_an_embedder(self):
        """With modules.json Qwen 3 gives the last token's vector, 2:4 too."""
        kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
        folder = self.folder / "qwen3"
        copy_golden("language/qwen3", folder)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text('{"pooling_mode_lasttoken": true}')
        (folder / "modules.json").write_text(json.dumps(
            [{"type": f"sentence_transformers.models.{kind}", "path": path}
             for kind, path in kinds]))
        (self.folder / "lines").write_text("5 6 7\n9 6 7\n5 6 8 9 10\n")
        (self.folder / "alone").write_text("5 6 8 9 10\n")
        for model in ("qwen3", "packed"):
            (_, shape, raw), tokens = self.vectors(model, "--input", "lines", "--ids")
            self.assertEqual((shape, tokens), ([3, 64], 11))
            rows = [floats(raw)[i * 64:i * 64 + 64] for i in range(3)]
            self.assertNotAlmostEqual(rows[0][0], rows[1][0], places=3)
            for row in rows:
                self.assertAlmostEqual(sum(x * x for x in row), 1, places=5)
            (_, _, raw), _ = self.vectors(model, "--input", "alone", "--ids")
            for x, y in zip(floats(raw), rows[2]):
                self.assertAlmostEqual(x, y, places=5)
            if model == "qwen3":
                self.good("prune", "qwen3", "packed", "--packed", "--method", "wanda",
                          "--calibration", "lines", "--ids")
        self.refusals([("bare", ["embed", str(LANGUAGE / "qwen3"), "--input", "ids", "--ids",
                                 "--output", "out.npy"], 5,
                        "says that the model continues a text")])

    def test_the_stream_holds_the_same_vectors(self):
        expected = self.good("embed", "model", "--stream", text=(self.folder / "texts").read_text())
        found = self.good("embed", "bare", "--stream", "--ids",
                          text=(self.folder / "ids").read_text())
        self.assertEqual(found.stdout, expected.stdout)
        self.assertEqual(len(found.stdout.splitlines()), 40)

    def test_a_stream_names_the_line_after_its_first_batch(self):
        for name, answered, sentence in (
                ("gap", 32, "standard input: line 35 has no token id"),
                ("bad-bert-0", 0, "standard input: line 1: '-1' is not a token id")):
            done = run("embed", "bare", "--stream", "--ids", cwd=self.folder,
                       text=(self.folder / name).read_text())
            self.assertEqual(done.returncode, 4)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), answered)

    def test_long_lines_are_cut(self):
        ids = [str(5 + i % 50) for i in range(60)]
        for limit, more in ((48, []), (12, ["--max-tokens", "12"])):
            (self.folder / "long").write_text(" ".join(ids) + "\n")
            (self.folder / "cut").write_text(" ".join(ids[:limit]) + "\n")
            found, tokens = self.vectors("bare", "--ids", "--input", "long", *more)
            self.assertEqual(tokens, limit)
            self.assertEqual(self.vectors("bare", "--ids", "--input", "cut", *more)[0], found)

    def test_no_line_no_vector(self):
        self.assertEqual(self.vectors("bare", "--ids", "--input", "nothing")[0][1],
                         [0, tiny_bert.WIDTH])

    def test_refusals(self):
        def embed(data, *more, model="bare"):
            return ["embed", model, "--ids", "--input", data, "--output", "v.npy", *more]
        limit = len(WORDS)
        self.refusals([
            *((f"bad {i}", embed(f"bad-bert-{i}"), 4,
               f"bad-bert-{i}: line 1: '{shown.format(limit=limit)}' is not a token id, "
               f"0 to {limit - 1} is expected") for i, (_, shown) in enumerate(BAD)),
            ("a gap", embed("gap"), 4, "gap: line 35 has no token id"),
            ("blank", embed("blank"), 4, "blank: line 0 has no token id"),
            *((f"prompt {by}", embed("ids", f"--prompt-{by}", "q"), 2,
               f"option --prompt-{by} is not for --ids") for by in ("name", "text")),
            ("texts", ["embed", "bare", "--input", "texts", "--output", "v.npy"], 3, "vocab.txt"),
        ])


class Prune(Scratch):
    make = staticmethod(make)

    def prune(self, model, out, *more):
        self.good("prune", model, out, "--method", "sparsegpt", "--calibration", *more)
        return read(self.folder / out / "model.safetensors")

    def test_ids_calibrate_as_their_texts(self):
        expected = self.prune("model", "a", "texts")
        self.assertEqual(self.prune("bare", "b", "ids", "--ids"), expected)
        few = self.prune("model", "c", "texts", "--samples", "7")
        self.assertNotEqual(few, expected)
        self.assertEqual(self.prune("bare", "d", "ids", "--ids", "--samples", "7"), few)
        self.assertEqual(self.prune("bare", "e", "gap", "--ids", "--samples", "7"), few)
        self.assertFalse((self.folder / "b/vocab.txt").exists())

    def test_long_lines_are_cut(self):
        lines = [[str(5 + (7 * i + line) % 50) for i in range(60)] for line in range(9)]
        for limit, more in ((48, []), (12, ["--max-tokens", "12"])):
            (self.folder / "long").write_text("\n".join(map(" ".join, lines)))
            (self.folder / "cut").write_text("\n".join(" ".join(row[:limit]) for row in lines))
            self.assertEqual(self.prune("bare", f"a{limit}", "long", "--ids", *more),
                             self.prune("bare", f"b{limit}", "cut", "--ids", *more))

    def test_refusals(self):
        def prune(data, *more, model="bare"):
            return ["prune", model, "out", "--method", "wanda", "--ids", "--calibration", data,
                    *more]
        limit = len(WORDS)
        self.refusals([
            *((f"bad {i}", prune(f"bad-bert-{i}"), 4,
               f"bad-bert-{i}: line 1: '{shown.format(limit=limit)}' is not a token id, "
               f"0 to {limit - 1} is expected") for i, (_, shown) in enumerate(BAD)),
            ("a gap", prune("gap"), 4, "gap: line 35 has no token id"),
            ("nothing", prune("nothing"), 4, "--calibration nothing: there is no line in it"),
            ("no calibration", ["prune", "bare", "out", "--ids"], 2,
             "option --ids is for --calibration"),
            ("images", prune("ids", model="vit"), 5, "vit: a model of type 'vit' reads images"),
            ("a file", prune("ids", model="bare/model.safetensors"), 2, "is a single file"),
        ])


if __name__ == "__main__":
    unittest.main()
