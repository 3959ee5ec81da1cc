# SPDX-License-Identifier: Apache-2.0
"""bench --generate: the shape of its reports, not its figures, and what it tells llama.cpp."""
import json
import math
import sys
import unittest
import xml.etree.ElementTree

from cli_case import Scratch, run

QUICK = ["--rounds", "3", "--min-ms", "1"]
SIDE = {"tokens_per_second", "step_ms", "prefill_ms", "resident_bytes", "step_bytes",
        "limit_share"}
ROW = {"batch", "dtype", "threads", "dense", "sparse", "ratio", "prefill_ratio", "read_gbps",
       "sparse_layers", "layers", "peers", "tokens"}


def words_of(*more):
    return ["bench", "--generate", "llama-tiny", "--prompt-tokens", "9", "--new", "5", *more,
            *QUICK]


class Generate(Scratch):
    def check_side(self, side, batch):
        self.assertEqual(set(side), SIDE)
        for key in ("tokens_per_second", "step_ms", "prefill_ms", "limit_share"):
            self.assertTrue(math.isfinite(side[key]) and side[key] > 0, (key, side))
        self.assertTrue(math.isclose(side["tokens_per_second"], 1e3 * batch / side["step_ms"],
                                     rel_tol=1e-6))

    def test_rows(self):
        found = self.json(*words_of("--batch", "1,3", "--dtype", "f32,bf16", "--threads", "1,2",
                                    "--sparse"))
        self.assertEqual((found["model"], found["prompt_tokens"], found["new_tokens"]),
                         ("llama-tiny", 9, 5))
        rows = found["rows"]
        self.assertEqual([(r["dtype"], r["batch"], r["threads"]) for r in rows],
                         [(d, b, t) for d in ("f32", "bf16") for b in (1, 3) for t in (1, 2)])
        for row in rows:
            self.assertEqual(set(row), ROW)
            self.assertEqual(len(row["tokens"]), 5)
            self.assertEqual((row["peers"], row["sparse_layers"], row["layers"]), ([], 14, 14))
            self.check_side(row["dense"], row["batch"])
            self.check_side(row["sparse"], row["batch"])
            self.assertLess(row["sparse"]["step_bytes"], row["dense"]["step_bytes"])
        # Weights of the blocks and the head; keys and values of 11.5 tokens of each text.
        cache = 2 * 2 * 64 * 4 * 11.5
        blocks = 2 * (128 * (128 + 64 + 64 + 128) + 3 * 128 * 320)
        dense = 4 * (blocks + 1000 * 128)
        self.assertEqual(rows[0]["dense"]["step_bytes"], dense + cache)
        self.assertEqual(rows[2]["dense"]["step_bytes"], dense + 3 * cache)

    def test_weights_of_integers(self):
        words = words_of("--dtype", "f32,int8,int4-g64", "--threads", "1", "--sparse")
        found = self.json(*words, "--quantize-head", "int8")
        self.assertEqual(found["head"], "int8")
        rows = found["rows"]
        self.assertEqual([r["dtype"] for r in rows], ["f32", "int8", "int4-g64"])
        for side in ("dense", "sparse"):
            sizes = [r[side]["step_bytes"] for r in rows]
            self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertIsNone(self.json(*words)["head"])

    def test_alone(self):
        words = words_of("--batch", "1", "--dtype", "f32", "--sparse")
        row, both = (self.json(*words, *more)["rows"][0] for more in (("--alone",), ()))
        self.assertEqual((row["dense"], row["ratio"], row["prefill_ratio"]), (None, None, None))
        self.assertEqual(row["tokens"], both["tokens"])
        self.check_side(row["sparse"], 1)
        self.assertRegex(self.good(*words, "--alone").stdout, r"(?m)^ +1 f32 .* - .* - ")
        self.refusals([("models", ("bench", "--model", "minilm", "--alone"), 2, "alone")])

    def test_a_table_and_a_chart(self):
        done = self.good(*words_of("--threads", "1", "--svg", "chart.svg"))
        self.assertRegex(done.stdout, r"prompts of 9 tokens, 5 new ones")
        self.assertRegex(done.stdout, r"\n +1 f32 +1 +[\d.]+ +[\d.]+ +[\d.]+x +\d+%")
        chart = (self.folder / "chart.svg").read_text()
        xml.etree.ElementTree.fromstring(chart)
        self.assertRegex(chart, r"1 text  f32  1T  2:4")

    # An interpreter that has a llama_cpp, as far as orders and answers go.
    PYTHON = """#!{python}
import json, sys
assert sys.argv[1] == "-c" and "def write_gguf" in sys.argv[2]
orders = open("orders", "a")
for line in sys.stdin:
    order = json.loads(line)
    print(line.strip(), file=orders, flush=True)
    answers = {{"version": {{"version": "9.9"}},
               "prepare": {prepare},
               "turn": {{"prefill": 0.25, "step": 0.125}}}}
    print(json.dumps(answers[order["do"]]), flush=True)
"""

    def interpreter(self, name, prepare='{"type": "BF16", "private_bytes": 77}'):
        path = self.folder / name
        path.write_text(self.PYTHON.format(python=sys.executable, prepare=prepare))
        path.chmod(0o755)
        return path

    def test_beside_llamacpp(self):
        words = words_of("--batch", "2", "--dtype", "bf16", "--threads", "1", "--peers",
                         "llama.cpp", "--python", self.interpreter("python"))
        row, = self.json(*words)["rows"]
        peer, = row["peers"]
        self.assertEqual((peer["name"], peer["version"], peer["type"], peer["step_ms"],
                          peer["prefill_ms"], peer["tokens_per_second"], peer["resident_bytes"]),
                         ("llama.cpp", "9.9", "BF16", 125, 250, 16, 77))
        self.assertTrue(math.isclose(peer["ratio"], 125 / row["sparse"]["step_ms"], rel_tol=1e-6))
        orders = [json.loads(line) for line in (self.folder / "orders").read_text().splitlines()]
        prepare = orders[1]
        self.assertEqual((prepare["do"], prepare["dtype"], prepare["threads"], prepare["batch"],
                          prepare["tokens"]), ("prepare", "bf16", 1, 2, 14))
        self.assertEqual(prepare["shape"], {
            "type": "llama", "vocabulary": 1000, "positions": 512, "width": 128, "layers": 2,
            "heads": 4, "kv_heads": 2, "intermediate": 320})
        self.assertIn({"do": "turn", "prompt": 9, "new": 5}, orders)
        done = self.good(*words)
        self.assertRegex(done.stdout, r"llama\.cpp 9\.9 in the same turns")
        self.assertRegex(done.stdout, r"BF16 +16\.00 +[\d.]+x +250\.0")

    def test_a_peer_that_does_not_take_part(self):
        words = [*words_of("--threads", "1", "--peers", "llama.cpp"), "--python"]
        refusing = self.interpreter("refusing", '{"refused": "it has nothing like that"}')
        done = run(*words, str(refusing), cwd=self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertIn("llama.cpp is left out: it has nothing like that", done.stderr)
        failing = self.interpreter("failing", '{"error": "RuntimeError: no room"}')
        (self.folder / "bare").write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
        (self.folder / "bare").chmod(0o755)
        done = run(*words, str(failing), cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("failing: RuntimeError: no room", done.stderr)
        self.refusals([
            ("no packages", [*words, str(self.folder / "bare")], 5,
             r"--peers llama\.cpp: .*numpy|it ended without an answer"),
        ])

    def test_refusals(self):
        generate = ["bench", "--generate", "llama-tiny"]
        self.refusals([
            ("missing", ["bench", "--generate", "missing"], 3, r"missing.*No such"),
            ("an encoder", ["bench", "--generate", "minilm", *QUICK], 5,
             r"a bert model has no cache"),
            ("too long", [*generate, "--prompt-tokens", "510", "--new", "3"], 2,
             r"--prompt-tokens and --new: the model has 512 positions, not 513"),
            ("one token", [*generate, "--new", "1"], 2, r"--new: 1; at least 2 was expected"),
            ("too many", [*generate, "--batch", "1,5000"], 2, r"--batch: 5000 is more than 4096"),
            ("lengths", [*generate, "--seq", "16"], 2, r"option --seq is for --model"),
            ("prompts of passes", ["bench", "--model", "minilm", "--new", "3"], 2,
             r"option --new is for --generate"),
            ("PyTorch", [*generate, "--peers", "torch"], 5,
             r"--device cpu: --peers torch goes on with texts on a GPU only"),
            ("ways of passes", [*generate, "--device", "cuda", "--peers", "torch", "--ways",
                                "eager"], 2, r"option --ways is for --model"),
            ("a library", [*generate, "--peers", "onednn"], 2,
             r"--peers: onednn is for products; with --generate there is llama\.cpp"),
            ("a head of i8", [*generate, "--dtype", "i8", "--quantize-head", "int8"], 2,
             r"option quantize_head of a model excludes the dtype i8"),
            ("a head of passes", ["bench", "--model", "minilm", "--quantize-head", "int8"], 2,
             r"option --quantize-head is for --generate"),
            ("a cache of passes", ["bench", "--model", "minilm", "--cache-dtype", "i8"], 2,
             r"option --cache-dtype is for --generate"),
            ("a dtype of the CPU", [*generate, "--device", "cuda", "--dtype", "f32"], 5,
             r"--dtype f32: bench has none with --device cuda"),
            ("a peer of the CPU", [*generate, "--device", "cuda", "--peers", "llama.cpp"], 5,
             r"--device cuda: --peers llama\.cpp goes on with texts on the CPU only"),
        ])


if __name__ == "__main__":
    unittest.main()
