# SPDX-License-Identifier: Apache-2.0
"""embed, search and eval on a small model of random weights."""
import ast
import json
import math
import os
import pathlib
import platform
import signal
import subprocess
import threading
import time
import unittest

from cli_case import PATIENCE, PROGRAM, Scratch, clean_environment, run
import tiny_bert
from cli_data import floats, read

LINES = tiny_bert.sentences(40)


def make_model(folder):
    tiny_bert.write(folder / "model")
    (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    (folder / "broken").write_bytes(b"good\nb\xffd\n")
    (folder / "gold").write_text("".join(f"{i}\n" for i in range(len(LINES))))
    other = folder / "other"
    other.mkdir()
    config = json.loads((folder / "model/config.json").read_text())
    config["model_type"] = "gpt_neox"
    (other / "config.json").write_text(json.dumps(config))
    (other / "model.safetensors").write_bytes((folder / "model/model.safetensors").read_bytes())
    (other / "vocab.txt").write_bytes((folder / "model/vocab.txt").read_bytes())
    (folder / "taken.safetensors").write_bytes(b"precious")
    (folder / "folder.npy").mkdir()


class Embed(Scratch):
    make = staticmethod(make_model)

    def vectors(self, path):
        tensors, _ = read(self.folder / path)
        self.assertEqual(list(tensors), ["embeddings"])
        dtype, shape, raw = tensors["embeddings"]
        self.assertEqual((dtype, shape[1]), ("F32", tiny_bert.WIDTH))
        values = floats(raw)
        return [values[i:i + shape[1]] for i in range(0, len(values), shape[1])]

    def close(self, a, b, tolerance=1e-5):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLess(max(abs(u - v) for u, v in zip(x, y)), tolerance)

    def test_a_vector_of_length_one_for_every_line(self):
        found = self.json("embed", "model", "--input", "texts", "--output", "v.safetensors")
        self.assertEqual(found["texts"], len(LINES))
        self.assertGreater(found["tokens"], 2 * len(LINES))
        self.assertGreater(found["seconds"], 0)
        vectors = self.vectors("v.safetensors")
        self.assertEqual(len(vectors), len(LINES))
        for vector in vectors:
            self.assertAlmostEqual(math.fsum(v * v for v in vector), 1, places=5)

    def test_npy_holds_the_same_bytes(self):
        """Version 1.0 of NumPy's format, read here by its specification."""
        self.good("embed", "model", "--input", "texts", "--output", "v.safetensors")
        streamed = self.good("embed", "model", "--input", "texts", "--output", "v.npy", "--stream",
                             "--threads", "1")
        self.assertEqual(len(streamed.stdout.splitlines()), len(LINES))
        self.good("embed", "model", "--input", "texts", "--output", "v.npy", "--force")
        raw = (self.folder / "v.npy").read_bytes()
        self.assertEqual(raw[:8], b"\x93NUMPY\x01\x00")
        begin = 10 + int.from_bytes(raw[8:10], "little")
        self.assertEqual((begin % 64, raw[begin - 1:begin]), (0, b"\n"))
        self.assertEqual(ast.literal_eval(raw[10:begin].decode("latin-1")),
                         {"descr": "<f4", "fortran_order": False,
                          "shape": (len(LINES), tiny_bert.WIDTH)})
        self.assertEqual(raw[begin:], read(self.folder / "v.safetensors")[0]["embeddings"][2])
        self.good("embed", "model", "--output", "none.npy")
        self.assertIn(b"'shape': (0, 32)", (self.folder / "none.npy").read_bytes())
        self.assertEqual([p for p in os.listdir(self.folder) if p.endswith(".tmp")], [])

    def test_lines_are_counted_as_they_are(self):
        for text, count in (("", 0), ("one", 1), ("one\n", 1), ("one\n\nthree", 3), ("\n", 1)):
            out = f"v{count}{len(text)}.safetensors"
            found = self.json("embed", "model", "--output", out, text=text)
            self.assertEqual(found["texts"], count, repr(text))
            self.assertEqual(read(self.folder / out)[0]["embeddings"][1],
                             [count, tiny_bert.WIDTH])
        self.good("embed", "model", "--output", "lf.safetensors", text="one\ntwo\n")
        self.good("embed", "model", "--output", "crlf.safetensors", text="one\r\ntwo\r\n")
        self.assertEqual(self.vectors("lf.safetensors"), self.vectors("crlf.safetensors"))

    def test_an_empty_line_is_a_text_whatever_ends_it(self):
        for name, text in (("lf", "one\n\n\ntwo\n\n"), ("crlf", "one\r\n\r\n\r\ntwo\r\n\r\n")):
            found = self.json("embed", "model", "--output", name + ".safetensors", text=text)
            self.assertEqual(found["texts"], 5)
        vectors = self.vectors("crlf.safetensors")
        self.assertEqual(vectors, self.vectors("lf.safetensors"))
        self.close([vectors[1], vectors[1]], [vectors[2], vectors[4]])
        self.assertGreater(max(abs(a - b) for a, b in zip(vectors[0], vectors[1])), 1e-3)

    def test_the_stream_holds_the_same_vectors(self):
        self.good("embed", "model", "--input", "texts", "--output", "v.safetensors")
        done = self.good("embed", "model", "--stream", text="\n".join(LINES))
        streamed = [json.loads(line) for line in done.stdout.splitlines()]
        for entry in streamed:
            self.assertEqual(set(entry), {"line", "embedding"})
        self.assertEqual([entry["line"] for entry in streamed], list(range(len(LINES))))
        self.close([entry["embedding"] for entry in streamed], self.vectors("v.safetensors"))
        both = self.good("embed", "model", "--stream", "--output", "w.safetensors",
                         text="\n".join(LINES))
        self.assertEqual(both.stdout, done.stdout)
        self.close([e["embedding"] for e in streamed], self.vectors("w.safetensors"), 1e-8)

    def stream(self, *arguments):
        """A running embed --stream with its pipes; ended with the case."""
        child = subprocess.Popen([PROGRAM, "embed", "model", "--stream", *arguments],
                                 cwd=self.folder, env=clean_environment(), bufsize=0,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        watch = threading.Timer(PATIENCE, child.kill)  # a line that is not answered ends the wait
        watch.start()

        def end():
            child.kill()
            child.wait()
            watch.cancel()
            for pipe in (child.stdin, child.stdout, child.stderr):
                pipe.close()
        self.addCleanup(end)
        return child

    def test_a_stream_answers_each_line_while_the_pipe_is_open(self):
        self.good("embed", "model", "--input", "texts", "--output", "v.safetensors")
        expected = self.vectors("v.safetensors")
        child = self.stream("--output", "w.safetensors")
        for n in (0, 1):  # a lone line, then another
            child.stdin.write(LINES[n].encode() + b"\n")
            entry = json.loads(child.stdout.readline())
            self.assertEqual(entry["line"], n)
            self.close([entry["embedding"]], [expected[n]])
        # Half a line waits for its end; then more at once than a batch takes.
        rest = "\n".join(LINES[2:]).encode()
        child.stdin.write(rest[:3])
        time.sleep(0.05)
        child.stdin.write(rest[3:] + b"\n")
        for n in range(2, len(LINES)):
            entry = json.loads(child.stdout.readline())
            self.assertEqual(entry["line"], n)
            self.close([entry["embedding"]], [expected[n]])
        child.stdin.close()
        self.assertEqual(child.stdout.read(), b"")
        self.assertEqual(child.wait(PATIENCE), 0)
        self.close(self.vectors("w.safetensors"), expected)

    def test_a_stream_answers_what_stands_before_a_bad_line(self):
        child = self.stream()
        child.stdin.write(b"\xef\xbb\xbfgood\r\n\nb\xffd\nnever\n")
        for n in (0, 1):
            self.assertEqual(json.loads(child.stdout.readline())["line"], n)
        self.assertEqual(child.stdout.read(), b"")
        self.assertEqual(child.wait(PATIENCE), 4)
        self.assertRegex(child.stderr.read(), rb"standard input: line 2 is not UTF-8 \(byte 1")
        child = self.stream("--input", "broken")
        self.assertEqual(json.loads(child.stdout.readline())["line"], 0)
        self.assertEqual(child.wait(PATIENCE), 4)
        self.assertRegex(child.stderr.read(), rb"broken: line 1 is not UTF-8")
        child = self.stream("--input", "nowhere")
        self.assertEqual(child.wait(PATIENCE), 3)

    def test_a_stream_ends_with_its_reader(self):
        """What was answered stays; the next answer finds nobody, and that is no complaint."""
        child = self.stream()
        child.stdin.write(b"one\n")
        self.assertEqual(json.loads(child.stdout.readline())["line"], 0)
        child.stdout.close()
        child.stdin.write(b"two\n")
        self.assertEqual(child.wait(PATIENCE), 3)
        self.assertEqual(child.stderr.read(), b"")

    def test_a_stream_takes_a_very_long_line_and_a_last_one_without_end(self):
        """A megabyte is one text, cut like any other; the line before it does not wait for it."""
        text = " ".join(LINES)
        long = (text + " ") * (2**20 // len(text) + 1)
        (self.folder / "long").write_text(long + "\nlast", encoding="utf-8")
        self.good("embed", "model", "--input", "long", "--output", "v.safetensors")
        expected = self.vectors("v.safetensors")
        child = self.stream()
        child.stdin.write(b"first\n" + long[:1000].encode())
        self.assertEqual(json.loads(child.stdout.readline())["line"], 0)
        writer = threading.Thread(target=lambda: (child.stdin.write(long[1000:].encode()),
                                                  child.stdin.write(b"\n")))
        writer.start()
        entry = json.loads(child.stdout.readline())
        writer.join()
        self.assertEqual(entry["line"], 1)
        self.close([entry["embedding"]], expected[:1])
        child.stdin.write(b"last")
        child.stdin.close()
        entry = json.loads(child.stdout.readline())
        self.assertEqual(entry["line"], 2)
        self.close([entry["embedding"]], expected[1:])
        self.assertEqual(child.wait(PATIENCE), 0)

    def test_packed_and_pruned_weights_give_the_same_vectors(self):
        self.good("prune", "model", "pruned")
        self.good("pack", "pruned", "packed")
        for model in ("pruned", "packed"):
            self.good("embed", model, "--input", "texts", "--output", model + ".safetensors")
        self.good("embed", "packed", "--input", "texts", "--output", "one.safetensors",
                  "--threads", "1", "--isa", "baseline")
        self.close(self.vectors("pruned.safetensors"), self.vectors("packed.safetensors"))
        self.close(self.vectors("packed.safetensors"), self.vectors("one.safetensors"))

    def test_bf16_is_near(self):
        self.good("embed", "model", "--input", "texts", "--output", "a.safetensors")
        self.good("embed", "model", "--input", "texts", "--output", "b.safetensors", "--dtype",
                  "bf16")
        self.close(self.vectors("a.safetensors"), self.vectors("b.safetensors"), 0.05)

    def test_i8_is_near(self):
        self.good("prune", "model", "packed", "--packed")
        for model in ("model", "packed"):
            self.good("embed", model, "--input", "texts", "--output", "a.safetensors", "--force")
            self.good("embed", model, "--input", "texts", "--output", "b.safetensors", "--dtype",
                      "i8", "--force")
            self.close(self.vectors("a.safetensors"), self.vectors("b.safetensors"), 0.1)

    def test_max_tokens_cuts(self):
        few = self.json("embed", "model", "--input", "texts", "--output", "a.safetensors",
                        "--max-tokens", "4")["tokens"]
        self.assertLessEqual(few, 4 * len(LINES))

    @unittest.skipUnless(os.access("/proc/self/syscall", os.R_OK)
                         and platform.machine() == "x86_64", "nothing tells what a process awaits")
    def test_it_can_be_stopped_while_it_waits_for_texts(self):
        child = subprocess.Popen([PROGRAM, "embed", "model", "--output", "new.safetensors",
                                  "--threads", "1"], cwd=self.folder, env=clean_environment(),
                                 stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        waiting = ["0", "0x0"]  # read, of standard input
        while pathlib.Path(f"/proc/{child.pid}/syscall").read_text().split()[:2] != waiting:
            self.assertIsNone(child.poll())
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(PATIENCE), 130)
        self.assertIn(b"interrupted", child.stderr.read())
        child.stdin.close()
        child.stderr.close()
        self.assertFalse((self.folder / "new.safetensors").exists())

    def test_refusals(self):
        out = ["--output", "new.safetensors"]
        self.refusals([
            ("no place", ["embed", "model", "--input", "texts"], 2, r"--output .*--stream"),
            ("standard output", ["embed", "nowhere", "--output", "-"], 2,
             r"- is no file; embed --stream writes"),
            ("no ending", ["embed", "nowhere", "-o", "vectors"], 2,
             r"vectors: .*\.safetensors nor \.npy"),
            ("another ending", ["embed", "nowhere", "-o", "v.npz"], 2,
             r"v\.npz: .*\.safetensors nor \.npy"),
            ("npy in no folder", ["embed", "model", "-o", "missing/v.npy"], 3,
             r"missing/v\.npy: the folder missing cannot be written to: No such file"),
            ("f16", ["embed", "model", "--input", "texts", "--dtype", "f16", *out], 5,
             r"a model runs in f16 on a GPU only; on the CPU f32, bf16 or i8"),
            ("e4m3", ["embed", "model", "--input", "texts", "--dtype", "e4m3", *out], 5,
             r"a model runs in e4m3 on a GPU only"),
            ("taken", ["embed", "model", "--input", "texts", "--output", "taken.safetensors"], 3,
             r"taken\.safetensors exists; --force"),
            ("no folder", ["embed", "model", "--output", "missing/v.safetensors"], 3,
             r"missing/v\.safetensors: the folder missing cannot be written to: No such file"),
            ("no file", ["embed", "model", "--output", "folder.npy", "--force"], 3,
             r"folder\.npy is no regular file, so it is not replaced"),
            ("no texts", ["embed", "model", "--input", "missing", *out], 3, r"missing.*No such"),
            ("no UTF-8", ["embed", "model", "--input", "broken", *out], 4, r"broken.*UTF-8"),
            ("no model", ["embed", "nowhere", "--input", "texts", *out], 3, r"nowhere.*No such"),
            ("a model of another kind", ["embed", "other", "--input", "texts", *out], 5,
             r"gpt_neox"),
            ("one token", ["embed", "model", "--input", "texts", "--max-tokens", "1", *out], 2,
             r"max.tokens|1 token"),
        ])
        done = run("embed", "model", "--stream", "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"--json and --stream exclude each other")


class Search(Scratch):
    make = staticmethod(make_model)

    def test_a_line_finds_itself(self):
        found = self.json("search", "model", "--documents", "texts", "--query", LINES[7])
        self.assertEqual(len(found["hits"]), 5)
        self.assertEqual((found["hits"][0]["line"], found["hits"][0]["text"]), (7, LINES[7]))
        scores = [hit["score"] for hit in found["hits"]]
        self.assertAlmostEqual(scores[0], 1, places=4)
        self.assertEqual(scores, sorted(scores, reverse=True))
        done = self.good("search", "model", "--documents", "texts", "--query", LINES[7], "-k", "2")
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertRegex(done.stdout, r"\A1  \d\.\d{4}  line 7  line 7: ")

    def test_no_more_hits_than_documents(self):
        (self.folder / "few").write_text("one\ntwo\n")
        found = self.json("search", "model", "--documents", "few", "--query", "one", "-k", "9")
        self.assertEqual(len(found["hits"]), 2)

    def test_refusals(self):
        self.refusals([
            ("no query", ["search", "model", "--documents", "texts"], 2,
             r"search needs --query TEXT"),
            ("no documents", ["search", "model", "--query", "x"], 2,
             r"search needs --documents FILE or --images FOLDER"),
            ("missing", ["search", "model", "--documents", "missing", "--query", "x"], 3,
             r"missing.*No such"),
            ("f16", ["search", "model", "--documents", "texts", "--query", "x", "--dtype", "f16"],
             5,
             r"a model runs in f16 on a GPU only"),
            ("zero hits", ["search", "model", "--documents", "texts", "--query", "x", "-k", "0"], 2,
             r"-k: '0' is not a whole number"),
        ])


class Eval(Scratch):
    make = staticmethod(make_model)

    def arguments(self, gold="gold", queries="texts"):
        return ["eval", "model", "--task", "retrieval", "--queries", queries, "--documents",
                "texts", "--gold", gold]

    def test_percent(self):
        self.assertEqual(self.json(*self.arguments()), {"version": 1, "top1": 100, "top5": 100})
        count = len(LINES)
        (self.folder / "half").write_text(
            "".join(f"{i if i < count // 2 else (i + 1) % count}\n" for i in range(count)))
        found = self.json(*self.arguments("half"))
        self.assertEqual(found["top1"], 50)
        self.assertGreaterEqual(found["top5"], 50)

    def test_few_documents(self):
        """Of five documents or fewer every one is among the five nearest."""
        for count in (1, 2, 3, 4, 5):
            with self.subTest(count):
                (self.folder / "few").write_text("\n".join(LINES[:count]) + "\n")
                (self.folder / "gold").write_text("".join(f"{i}\n" for i in range(count)))
                arguments = ["eval", "model", "--queries", "few", "--documents", "few", "--gold",
                             "gold"]
                self.assertEqual(self.json(*arguments), {"version": 1, "top1": 100, "top5": 100})
                self.assertIn("every document is among the 5 nearest", self.good(*arguments).stderr)

    def test_refusals(self):
        count = len(LINES)
        (self.fixtures / "empty").write_text("")
        for name, last in (("word", "seven"), ("far", str(count)), ("under", "-1"), ("none", "")):
            (self.fixtures / name).write_text("0\n" * (count - 1) + last + "\n")
        (self.fixtures / "short").write_text("0\n")
        last = rf"line {count - 1}: '.*' is not the number of a document, 0 to {count - 1}"
        self.refusals([(name, self.arguments(name), 4, name + ": " + last)
                       for name in ("word", "far", "under", "none")]
                      + [("short", self.arguments("short"), 4,
                          rf"short has 1 line; expected one for each query, of which there are "
                          rf"{count}"),
                         ("missing", self.arguments("missing"), 3, r"missing.*No such"),
                         ("no documents", ["eval", "model", "--queries", "texts", "--documents",
                                           "empty", "--gold", "gold"], 4,
                          r"--documents empty has no line"),
                         ("f16", [*self.arguments(), "--dtype", "f16"], 5,
                          r"a model runs in f16 on a GPU only"),
                         ("no task", ["eval", "model", "--task", "luck"], 2,
                          r"--task: 'luck' is not one of retrieval"),
                         ("no files", ["eval", "model"], 2, r"--queries, --documents and --gold")])


class Heads(Scratch):
    """Models that were trained for a head are no encoders, unless modules.json says how they
    pool."""

    @staticmethod
    def make(folder):
        def write(name, architectures, modules=False, qa=False):
            tiny_bert.write(folder / name, qa=qa)
            config = json.loads((folder / name / "config.json").read_text())
            config.pop("architectures")
            if architectures:
                config["architectures"] = architectures
            (folder / name / "config.json").write_text(json.dumps(config))
            if not modules:
                (folder / name / "modules.json").unlink()

        write("reranker", ["BertForSequenceClassification"])
        write("tokens", ["BertForTokenClassification"])
        write("words", ["BertForMaskedLM"])
        write("answers", ["BertForQuestionAnswering"], qa=True)
        write("trained", ["BertModel"], qa=True)
        write("unnamed", None, qa=True)
        write("plain", ["BertModel"])
        write("silent", None)
        write("pooled-words", ["BertForMaskedLM"], modules=True)
        write("pooled-answers", ["BertForQuestionAnswering"], modules=True, qa=True)
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        (folder / "gold").write_text("".join(f"{i}\n" for i in range(len(LINES))))

    def test_refusals(self):
        cases = []
        for name, sentence in (
                ("reranker",
                 r"BertForSequenceClassification', says that the model scores texts or pairs"),
                ("tokens", r"BertForTokenClassification', says that the model classifies tokens"),
                ("words", r"BertForMaskedLM', says that the model fills in words"),
                ("answers", r"BertForQuestionAnswering', .*eval --task qa measures this one"),
                ("trained", r"tensor 'qa_outputs\.weight' says .*finds answers"),
                ("unnamed", r"tensor 'qa_outputs\.weight' says .*finds answers")):
            sentence = rf"{name}: .*{sentence}.*"
            cases += [(f"embed {name}", ["embed", name, "--input", "texts", "-o", "new.npy"], 5,
                       sentence),
                      (f"search {name}", ["search", name, "--documents", "texts", "--query", "x"],
                       5,
                       sentence),
                      (f"eval {name}", ["eval", name, "--queries", "texts", "--documents", "texts",
                                        "--gold", "gold"], 5, sentence)]
        self.refusals(cases)

    def test_what_is_an_encoder_runs(self):
        for name in ("plain", "silent", "pooled-words", "pooled-answers"):
            with self.subTest(name):
                found = self.json("search", name, "--documents", "texts", "--query", LINES[3])
                self.assertEqual(found["hits"][0]["line"], 3)


if __name__ == "__main__":
    unittest.main()
