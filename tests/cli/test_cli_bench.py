# SPDX-License-Identifier: Apache-2.0
"""bench: the shape of its reports, not its figures; a figure is only asked to be one."""
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

from cli_case import PROGRAM, Scratch, clean_environment, listing, run
import tiny_bert

QUICK = ["--rounds", "3", "--min-ms", "1"]
ROW = {"m", "k", "n", "dtype", "activations", "threads", "kernel", "ms", "ms_min", "ms_max",
       "gflops", "gbps", "limit_share", "read_gbps", "peers"}
MODEL_ROW = {"batch", "seq", "dtype", "threads", "dense_ms", "sparse_ms", "ratio", "sparse_layers",
             "layers", "bytes", "p50_ms", "p95_ms", "load_ms", "dense_load_ms", "resident_bytes",
             "dense_resident_bytes", "narrow_layers", "dense_narrow_layers", "peers",
             "dense_bytes", "tokens"}


def is_positive(value):
    return isinstance(value, float) and math.isfinite(value) and value > 0


class Products(Scratch):
    def test_rows_are_shapes_by_dtypes_by_threads(self):
        found = self.json("bench", "--shapes", "5,16,12;1,20,7", "--dtype", "f32,bf16", "--threads",
                          "1,2", "--peers", "none", *QUICK)
        rows = found["rows"]
        self.assertEqual([(r["dtype"], r["m"], r["k"], r["n"], r["threads"]) for r in rows],
                         [(d, *s, t) for d in ("f32", "bf16") for s in ((5, 16, 12), (1, 20, 7))
                          for t in (1, 2)])
        for row in rows:
            self.assertEqual(set(row), ROW)
            self.assertEqual(row["peers"], [])
            self.assertTrue(row["kernel"])
            for key in ("ms", "ms_min", "ms_max", "gflops", "gbps", "limit_share"):
                self.assertTrue(is_positive(row[key]), (key, row))
            self.assertLessEqual(row["ms_min"], row["ms"])
            self.assertLessEqual(row["ms"], row["ms_max"])
        self.assertEqual([(x["dtype"], x["threads"]) for x in found["limits"]],
                         [("f32", 1), ("f32", 2), ("bf16", 1), ("bf16", 2)])
        for key in ("machine", "cpu", "versions", "date"):
            self.assertIn(key, found)

    def test_reads_take_turns_where_memory_bounds(self):
        found = self.json("bench", "--shapes", "1,16,12;1,4096,2048;512,512,512", "--peers",
                          "none", "--threads", "1", *QUICK)
        rows, (limit,) = found["rows"], found["limits"]
        told = subprocess.run(["getconf", "LEVEL2_CACHE_SIZE"], capture_output=True, text=True)
        own = int(told.stdout) if told.stdout.strip().isdecimal() else 0  # of one core
        for row in rows:
            bytes_of = row["gbps"] * row["ms"] * 1e6
            memory = row["gbps"] * row["ms"] / limit["gbps"]
            compute = row["gflops"] / 2 * row["ms"] / limit["gflops"]  # half is left to do
            self.assertEqual(memory > compute and bytes_of >= own, row["read_gbps"] is not None,
                             row)
        self.assertTrue(is_positive(rows[1]["read_gbps"]))
        self.assertAlmostEqual(rows[1]["gbps"] / rows[1]["read_gbps"], rows[1]["limit_share"], 5)

    def test_activations_in_bf16(self):
        """Beside bf16 weights, where the kernel takes them; elsewhere a sentence."""
        narrow = ("bench", "--shapes", "20,64,48;3,64,48", "--activations", "bf16", *QUICK)
        refused = run(*narrow, "--dtype", "bf16", "--isa", "avx2")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("x is bf16; expected f32", refused.stderr)
        rows = self.json(*narrow, "--dtype", "f32")["rows"]
        self.assertEqual([r["activations"] for r in rows], ["f32"] * 2)
        if run(*narrow, "--dtype", "bf16").returncode == 0:
            rows = self.json(*narrow, "--dtype", "bf16")["rows"]
            self.assertEqual([r["activations"] for r in rows], ["bf16"] * 2)

    def test_every_peer_that_is_here(self):
        found = self.json("bench", "--shapes", "48,64,100;3,300,65", "--threads", "2", *QUICK)
        engine = run("--version").stdout
        for row in found["rows"]:
            if "oneDNN" in engine:
                self.assertIn("onednn", [p["name"] for p in row["peers"]])
            for peer in row["peers"]:
                self.assertEqual(set(peer), {"name", "version", "ms", "ms_min", "ratio"})
                self.assertLessEqual(peer["ms_min"], peer["ms"])
                self.assertTrue(is_positive(peer["ms"]) and is_positive(peer["ratio"]))
                self.assertTrue(math.isclose(peer["ratio"], peer["ms"] / row["ms"], rel_tol=1e-6))

    def test_every_isa_is_right_and_none_wider_than_asked(self):
        """A result is compared before it is timed; wider: what no kernel's name may hold."""
        wider = {"baseline": "avx|neon|dotprod", "avx2": "avx512|avxvnni", "avxvnni": "avx512",
                 "avx512": "avx512(vnni|bf16)$", "avx512vnni": "avx512bf16", "avx512bf16": "amx"}
        for isa, words in wider.items():
            rows = self.json("bench", "--shapes", "70,128,96;3,128,33", "--isa", isa, "--peers",
                             "none", "--threads", "1", "--dtype", "f32,bf16,i8,int8,int4-g64",
                             "--rounds", "1", "--min-ms", "1")["rows"]
            self.assertEqual(len(rows), 10)
            for row in rows:
                self.assertNotRegex(row["kernel"], words)

    def test_isa_bounds_onednn_too(self):
        if "oneDNN" not in run("--version").stdout:
            self.skipTest("no oneDNN")
        for isa in ("baseline", "avx2", "avx512"):
            found = self.json("bench", "--shapes", "3,64,64", "--isa", isa, "--peers", "onednn",
                              "--threads", "1", *QUICK)
            self.assertEqual(found["cpu"]["dense_isa"], found["cpu"]["isa"])
        both = self.good("bench", "--shapes", "3,64,64", "--isa", "avx2", "--peers", "all",
                         "--threads", "1", "--json", *QUICK).stderr
        self.assertIn("--isa avx2 bounds our kernels and oneDNN; openblas and libxsmm use", both)
        lacks = self.good("bench", "--shapes", "3,64,64", "--isa", "neon", "--peers", "none",
                          "--threads", "1", "--json", *QUICK).stderr
        if found["cpu"]["isa"].startswith("avx"):
            self.assertIn("--isa neon: this CPU does not have it, or a hypervisor hides it; up to "
                          "baseline is used", lacks)

    def test_integers_beside_the_peer_that_has_them(self):
        for isa in ("baseline", "avx512bf16"):
            found = self.json("bench", "--shapes", "30,72,33;1,300,65", "--dtype", "i8", "--isa",
                              isa, "--threads", "1,2", *QUICK)
            self.assertEqual(len(found["rows"]), 4)
            for row in found["rows"]:
                self.assertIn("linear_i8_", row["kernel"])
                self.assertLessEqual({p["name"] for p in row["peers"]},
                                     {"onednn", "onednn-dynamic"})

    def test_a_peer_that_quantises_is_for_integers(self):
        """It takes what ours takes and gives the same, which bench checks, by blocks of tokens
        too."""
        if "oneDNN" not in run("--version").stdout:
            self.skipTest("a build without oneDNN")
        found = self.json("bench", "--shapes", "64,72,33;30,72,33;1,300,65", "--dtype", "i8,f32",
                          "--peers", "onednn-dynamic", "--threads", "1,2", *QUICK)
        for row in found["rows"]:
            if row["dtype"] == "f32":
                self.assertEqual(row["peers"], [])
            for peer in row["peers"]:
                self.assertEqual(peer["name"], "onednn-dynamic")
                self.assertTrue(is_positive(peer["ratio"]))

    def test_integers_are_not_pruned(self):
        self.refusals([("prune", ["bench", "--prune", "1", "--dtype", "f32,i8"], 2,
                        "i8 is not for --prune")])

    def test_the_table_ends_with_median_and_worst(self):
        done = self.good("bench", "--shapes", "8,16,8", "--peers", "none", *QUICK)
        self.assertRegex(done.stdout, r"(?m)^ +8 +16 +8 f32 ")
        self.assertRegex(done.stdout, r"(?m)^limit f32, \d+ threads?: [\d.]+ GFLOP/s, ")
        if "oneDNN" in run("--version").stdout:
            done = self.good("bench", "--shapes", "8,16,8", "--peers", "onednn", *QUICK)
            self.assertRegex(done.stdout,
                             r"to the best peer: median [\d.]+x, worst [\d.]+x of 1\n\Z")

    def test_a_ratio_stands_under_its_peer(self):
        """OpenBLAS has no bf16 product: its place stays empty."""
        done = self.good("bench", "--shapes", "8,16,8", "--dtype", "f32,bf16", *QUICK)
        lines = [line for line in done.stdout.splitlines() if re.match(r" +(M|8) ", line)]
        head = lines[0].split()
        self.assertEqual([line.split()[3] for line in lines[1:]], ["f32", "bf16"])
        for line in lines[1:]:
            self.assertEqual(len(line.split()), len(head), done.stdout)
        if "openblas" in head:
            self.assertEqual(lines[2].split()[head.index("openblas")], "-")

    def test_quantised_weights(self):
        """Bytes are those of a file; a dense product of 4 bits stands beside 4 bits only."""
        schemes = {"int8": (8, 136), "int4-g64": (4, 64)}
        found = self.json("bench", "--shapes", "1,136,40;9,136,40", "--dtype", "int8,int4-g64,i8",
                          "--threads", "1", *QUICK)
        self.assertEqual([(r["m"], r["dtype"]) for r in found["rows"]],
                         [(m, d) for d in ("int8", "int4-g64", "i8") for m in (1, 9)])
        for row in found["rows"][:4]:
            bits, group = schemes[row["dtype"]]
            size = 40 * (136 * bits // 16 + 17 + 4 * -(-136 // group)) + 4 * row["m"] * (136 + 40)
            self.assertTrue(math.isclose(row["gbps"], 1e-6 * size / row["ms"], rel_tol=1e-6))
            self.assertTrue(is_positive(row["limit_share"]))
            self.assertLessEqual({p["name"] for p in row["peers"]},
                                 {"dense4"} if bits == 4 and row["m"] == 1 else set())

    def test_other_zeros(self):
        for form, dtypes in (("csr", "f32,bf16"), ("bsr:16x16", "f32,bf16"), ("bsr:4x1", "i8")):
            found = self.json("bench", "--shapes", "33,64,96;2,128,64", "--format", form,
                              "--zeros", "75", "--dtype", dtypes, "--threads", "1", *QUICK)
            self.assertEqual(len(found["rows"]), 2 * len(dtypes.split(",")))
            for row in found["rows"]:
                self.assertEqual(row["format"], form)
                self.assertTrue(0.4 < row["zeros"] < 0.98)
                self.assertRegex(row["kernel"], "^sparse_")
                self.assertTrue(is_positive(row["limit_share"]))
        bench = ["bench", "--shapes", "8,16,8", "--format"]
        self.refusals([
            ("none", [*bench, "bsr:3x3"], 2, r"--format: 'bsr:3x3' is none; expected coo, csr"),
            ("zeros", [*bench, "csr", "--zeros", "100"], 2, r"--zeros: 100 is no share of 1 to 99"),
            ("scheme", [*bench, "csr", "--dtype", "int8"], 2, r"int8 is of 2:4, not of --format"),
            ("block", [*bench, "bsr:16x16"], 4, r"16"),
            ("chart", [*bench, "csr", "--svg", "c.svg"], 2, r"--svg"),
            ("zeros alone", ["bench", "--zeros", "80"], 2, r"--zeros is for --format"),
            ("format of a folder", ["bench", "--model", ".", "--format", "csr"], 2,
             r"--format is for presets; prune --pattern makes such a folder"),
            ("format that models lack", ["bench", "--model", "bert-tiny", "--format", "coo"], 2,
             r"CSR or BSR was expected"),
            ("blocks that do not divide", ["bench", "--model", "llama-tiny", "--format",
                                           "bsr:128x128", "--seq", "4"], 4,
             r"blocks of 128x128 do not divide \[64, 128\]"),
            ("products on a GPU", ["bench", "--shapes", "16,16,16", "--format", "bsr:16x16",
                                   "--device", "cuda"], 5,
             r"single products in it are timed on the CPU only"),
        ])

    def test_the_chart_is_svg_with_a_bar_a_row(self):
        self.good("bench", "--shapes", "8,16,8;4,8,4", "--threads", "1", "--svg", "c.svg", *QUICK)
        root = xml.etree.ElementTree.parse(self.folder / "c.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        texts = [t.text for t in root.iter(space + "text")]
        for label in ("8 x 16 x 8  f32  1T", "4 x 8 x 4  f32  1T"):
            self.assertIn(label, texts)
        self.assertEqual(len(list(root.iter(space + "rect"))), 1 + 2)
        self.assertTrue(root.find(space + "title").text)
        before = listing(self.folder)
        done = run("bench", "--shapes", "8,16,8", "--svg", "c.svg", *QUICK, cwd=self.folder)
        self.assertEqual(done.returncode, 3)
        self.assertIn("c.svg exists; --force replaces it", done.stderr)
        self.assertEqual(listing(self.folder), before)

    def test_refusals(self):
        def shapes(text):
            return (text, ["bench", "--shapes", text], 2,
                    r"--shapes: '.*' is not M,K,N with K a multiple of 4")

        self.refusals([
            shapes("8,6,8"), shapes("8,8"), shapes("8,8,8,8"), shapes("a,8,8"), shapes("0,8,8"),
            shapes("8,8,8;x"), shapes("8,8,99999999999999"),
            ("both", ["bench", "--set", "minilm", "--shapes", "8,8,8"], 2, r"exclude each other"),
            ("a folder has its own", ["bench", "--model", "minilm", "--dtype", "int4"], 2,
             r"--dtype: int4 is not for --model; pack --quantize makes such a folder"),
            ("unknown set", ["bench", "--set", "luck"], 2,
             r"--set: 'luck' is not one of bert-base\|minilm\|vit-l\|llama-3-8b"),
            ("unknown peer", ["bench", "--peers", "luck"], 2,
             r"--peers: 'luck' is not a "
             r"list.*all\|none\|onednn\|onednn-dynamic\|openblas\|libxsmm.*torch"),
            ("an output of a GPU", ["bench", "--output", "i32"], 2,
             r"option --output is for --device cuda"),
            ("products of a GPU", ["bench", "--backend", "cusparselt"], 2,
             r"option --backend is for --device cuda"),
            ("attention on the CPU", ["bench", "--attention", "1,8,2,16"], 2,
             r"--attention is for --device cuda"),
            ("attention of no shape", ["bench", "--attention", "1,8,2,12", "--device", "cuda"], 2,
             r"'1,8,2,12' is not TEXTS,TOKENS,HEADS,D"),
            ("attention of integers", ["bench", "--attention", "1,8,2,16", "--device", "cuda",
                                       "--dtype", "i8"], 5, r"--dtype i8: bench has none"),
            ("attention of two dtypes", ["bench", "--attention", "1,8,2,16", "--device", "cuda",
                                         "--dtype", "f16,bf16"], 2, r"takes one --dtype"),
            ("attention and a set", ["bench", "--attention", "1,8,2,16", "--set", "minilm"], 2,
             r"--generate, --attention, --prune and --train-linear exclude each other"),
            ("causal products", ["bench", "--causal"], 2, r"option --causal is for --attention"),
            ("attention drawn",
             ["bench", "--attention", "1,8,2,16", "--device", "cuda", "--svg", "x"],
             2, r"--attention has no chart"),
            ("all dropped",
             ["bench", "--attention", "1,8,2,16", "--device", "cuda", "--dropout", "1"],
             2, r"--dropout: 1 is not 0 to below 1"),
            ("tiles of a GPU", ["bench", "--tune"], 2, r"option --tune is for --device cuda"),
            ("energy of the CPU", ["bench", "--energy"], 2,
             r"option --energy is for --device cuda"),
            ("energy of tiles", ["bench", "--energy", "--tune", "--device", "cuda:1"], 2,
             r"option --energy is not for --tune"),
            ("texts of products", ["bench", "--batch", "1,32"], 2,
             r"option --batch is for --model"),
            ("tokens of products", ["bench", "--seq", "16"], 2, r"option --seq is for --model"),
            ("no share of products", ["bench", "--dropout", "0"], 2,
             r"option --dropout is for --attention"),
            ("PyTorch's interpreter", ["bench", "--model", "minilm", "--python", "python3"], 2,
             r"option --python is for --peers torch"),
            ("others' tiles", ["bench", "--backend", "cusparselt", "--tune", "--device", "cuda:1"],
             2,
             r"option --backend is not for --tune"),
            ("a dtype of a GPU", ["bench", "--dtype", "e4m3"], 5,
             r"--dtype e4m3: bench has none with --device cpu; it runs on a GPU only"),
            ("a model's dtype of a GPU", ["bench", "--model", "minilm", "--dtype", "f16"], 5,
             r"--dtype f16: bench has none with --device cpu; it runs on a GPU only"),
            ("no model's dtype", ["bench", "--model", "minilm", "--dtype", "e5m2"], 5,
             r"--dtype e5m2: bench has none with --device cpu$"),
        ])

    def test_a_chart_that_cannot_be_written(self):
        found = self.json("bench", "--shapes", "4,8,4", "--peers", "none", "--svg",
                          "missing/c.svg", *QUICK, exit=3)
        self.assertRegex(found["error"],
                         r"missing/c\.svg: the folder missing cannot be written to: No such")


class Prunings(Scratch):
    def test_rows_are_dtypes_by_threads(self):
        found = self.json("bench", "--prune", "1", "--dtype", "f32,bf16", "--threads", "1,2",
                          *QUICK)
        self.assertEqual([(r["rows"], r["cols"], r["dtype"], r["threads"]) for r in found["rows"]],
                         [(64, 4096, "f32", 1), (64, 4096, "f32", 2),
                          (128, 4096, "bf16", 1), (128, 4096, "bf16", 2)])
        for row in found["rows"]:
            self.assertEqual(set(row), {"rows", "cols", "dtype", "threads", "ms", "ms_min",
                                        "ms_max", "gbps", "copy_ms", "ratio"})
            for key in ("ms", "ms_min", "ms_max", "gbps", "copy_ms", "ratio"):
                self.assertTrue(is_positive(row[key]), (key, row))
            self.assertTrue(math.isclose(row["ratio"], row["copy_ms"] / row["ms"], rel_tol=1e-6))
        row, = self.json("bench", "--prune", "1", "--dtype", "f16", "--threads", "1",
                         *QUICK)["rows"]
        self.assertEqual((row["rows"], row["dtype"]), (128, "f16"))
        done = self.good("bench", "--prune", "1", "--threads", "1", *QUICK)
        self.assertRegex(done.stdout, r"\Af32 +1 +[\d.]+ ms +[\d.]+ GB/s +[\d.]+x memcpy\n\Z")

    def test_refusals(self):
        self.refusals([
            ("both", ["bench", "--prune", "1", "--set", "minilm"], 2, r"exclude each other"),
            ("integers", ["bench", "--prune", "1", "--dtype", "f16,int4"], 2,
             r"--dtype: int4 is not for --prune; expected f32, bf16 or f16"),
            ("chart", ["bench", "--prune", "1", "--svg", "c.svg"], 2, r"--prune has no chart"),
            ("too large", ["bench", "--prune", str(2**21)], 2, r"--prune: 2097152 is more than"),
        ])


class Stop(Scratch):
    def test_a_second_interrupt_does_not_wait(self):
        """One product of the scalar kernel takes half a minute, and nothing asks in between."""
        child = subprocess.Popen([PROGRAM, "bench", "--shapes", "4096,4096,4096", "--isa",
                                  "baseline", "--threads", "1", "--peers", "none"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=clean_environment())
        self.addCleanup(child.kill)
        time.sleep(1.5)
        for _ in range(75):  # the first ones may find it still starting, or a machine that is busy
            child.send_signal(signal.SIGINT)
            try:
                child.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                continue
        self.assertIn(child.returncode, (130, -signal.SIGINT))


class Models(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "temporary").mkdir()

    def bench(self, model, *more):
        return self.json("bench", "--model", model, "--batch", "1,3", "--seq", "4,16", "--threads",
                         "1", "--sparse", *QUICK, *more,
                         environment={"TMPDIR": str(self.folder / "temporary")})

    def check_rows(self, rows, layers):
        self.assertEqual([(r["batch"], r["seq"]) for r in rows], [(1, 4), (1, 16), (3, 4), (3, 16)])
        for row in rows:
            self.assertEqual(set(row), MODEL_ROW)
            self.assertEqual((row["sparse_layers"], row["layers"]), (layers, layers))
            self.assertGreater(row["bytes"], 0)
            for key in ("p50_ms", "load_ms", "dense_load_ms"):
                self.assertTrue(is_positive(row[key]), key)
            self.assertGreaterEqual(row["p95_ms"], row["p50_ms"])
            if pathlib.Path("/proc/self/status").exists():
                self.assertIsInstance(row["resident_bytes"], int)
                self.assertIsInstance(row["dense_resident_bytes"], int)
            self.assertTrue(math.isclose(row["ratio"], row["dense_ms"] / row["sparse_ms"],
                                         rel_tol=1e-6))

    def test_presets_in_other_formats(self):
        for form in ("csr", "bsr:16x16"):
            bench = ("bench", "--model", "bert-tiny", "--batch", "1", "--seq", "8", "--threads",
                     "1", "--format", form, "--zeros", "75", *QUICK)
            found = self.json(*bench, "--sparse")
            self.assertEqual((found["format"], found["zeros"]), (form, 75))
            self.assertEqual(found["rows"][0]["sparse_layers"], 12)
            # Else what is faster here runs.
            self.assertIn(self.json(*bench)["rows"][0]["sparse_layers"], range(13))

    def test_a_folder_dense_pruned_or_packed(self):
        layers = 6 * tiny_bert.LAYERS
        self.good("prune", "model", "pruned")
        self.good("pack", "pruned", "packed")
        for model in ("model", "pruned", "packed"):
            with self.subTest(model):
                self.check_rows(self.bench(model)["rows"], layers)
        self.assertEqual(listing(self.folder / "temporary"), {})

    def test_every_dtype_and_a_chart(self):
        rows = self.bench("model", "--dtype", "f32,bf16,i8", "--svg", "c.svg")["rows"]
        self.assertEqual([r["dtype"] for r in rows], ["f32"] * 4 + ["bf16"] * 4 + ["i8"] * 4)
        self.assertIn("3 x 16 tokens  bf16  1T", (self.folder / "c.svg").read_text())

    def test_a_preset_needs_no_folder(self):
        found = self.json("bench", "--model", "minilm", "--batch", "1", "--seq", "4", "--threads",
                          "2", "--rounds", "1", "--min-ms", "1")
        self.assertEqual(found["rows"][0]["layers"], 36)

    def test_experts_of_a_preset(self):
        found = self.json("bench", "--model", "qwen3-moe-tiny", "--batch", "1,3", "--seq", "5",
                          "--include", "*.experts.*", "--threads", "2", "--sparse", "--rounds",
                          "1", "--min-ms", "1")
        self.assertEqual([(r["batch"], r["sparse_layers"], r["layers"]) for r in found["rows"]],
                         [(1, 48, 56), (3, 48, 56)])

    def test_images_and_chosen_layers(self):
        found = self.json("bench", "--model", "vit-tiny", "--batch", "1,2", "--include",
                          "*.intermediate.*", "--threads", "2", "--sparse", "--rounds", "1",
                          "--min-ms", "1")
        self.assertEqual([(r["batch"], r["seq"], r["sparse_layers"], r["layers"])
                          for r in found["rows"]], [(1, 197, 12, 72), (2, 197, 12, 72)])

    def test_refusals(self):
        self.refusals([
            ("missing", ["bench", "--model", "missing"], 3, r"missing.*No such"),
            ("too long", ["bench", "--model", "model", "--batch", "1", "--seq", "4,161"], 2,
             r"--seq: the model has 160 positions, not 161"),
            ("seq of images", ["bench", "--model", "vit-tiny", "--seq", "16"], 2,
             "--seq: images of this model have 197 tokens"),
            ("include without a model", ["bench", "--include", "*"], 2,
             "--include is for --model"),
            ("include of a folder", ["bench", "--model", "model", "--exclude", "*"], 2,
             "--exclude is for presets"),
            *((f"batch {n}", ["bench", "--model", "model", "--batch", f"1,{n}", "--seq", "16"], 2,
               rf"--batch: {n} texts of 16 tokens are more than")
              for n in (2**24 // 16 + 1, 2**61, 2**63 - 1)),
        ])

    # An interpreter that has a PyTorch, as far as orders and answers go.
    PYTHON = """#!{python}
import json, os, sys
assert sys.argv[1] == "-c" and "def prepare" in sys.argv[2]
orders = open("orders", "a")
for line in sys.stdin:
    order = json.loads(line)
    print(line.strip(), file=orders, flush=True)
    answers = {{"version": {{"version": "9.9", "ways": ["eager", "compiled"], "cuda": False}},
               "prepare": {{"ways": ["compiled"], "refused": {{"eager": "no time"}}}},
               "turn": {turn}}}
    print(json.dumps(answers[order["do"]]), flush=True)
"""

    def interpreter(self, name, turn='{"ms": 2.5}'):
        path = self.folder / name
        path.write_text(self.PYTHON.format(python=sys.executable, turn=turn))
        path.chmod(0o755)
        return path

    def test_beside_pytorch(self):
        python = self.interpreter("python")
        words = ("bench", "--model", "model", "--batch", "1,3", "--seq", "4", "--threads", "1",
                 "--peers", "torch", "--python", python, *QUICK)
        environment = {"TMPDIR": str(self.folder / "temporary")}
        rows = self.json(*words, environment=environment)["rows"]
        for row in rows:
            peer, = row["peers"]
            self.assertEqual((peer["name"], peer["version"], peer["ms"]),
                             ("torch-compiled", "9.9", 2.5))
            self.assertTrue(math.isclose(peer["ratio"], 2.5 / row["sparse_ms"], rel_tol=1e-6))
        orders = [json.loads(line) for line in (self.folder / "orders").read_text().splitlines()]
        self.assertEqual(orders[0], {"do": "version"})
        shapes = [order for order in orders if order["do"] == "prepare"]
        self.assertEqual([(s["batch"], s["seq"], s["dtype"], s["device"], s["threads"])
                          for s in shapes], [(1, 4, "f32", "cpu", 1), (3, 4, "f32", "cpu", 1)])
        self.assertEqual((shapes[0]["shape"]["type"], shapes[0]["shape"]["layers"]),
                         ("bert", tiny_bert.LAYERS))
        self.assertEqual(shapes[0]["shape"]["kv_heads"], shapes[0]["shape"]["heads"])
        self.assertEqual(shapes[0]["ways"], ["eager", "compiled"])  # that it has of the default
        turns = {(order["way"], order["seconds"]) for order in orders if order["do"] == "turn"}
        self.assertEqual(turns, {("compiled", 0.001)})
        done = self.good(*words, environment=environment)
        self.assertRegex(done.stdout, r"torch-eager +torch-compiled +best")
        self.assertRegex(done.stdout, r" - +2\.500 +[\d.]+x")
        self.assertIn("torch-eager is left out: no time", done.stderr)

    def test_ways_of_pytorch(self):
        python = self.interpreter("chosen")
        (self.folder / "orders").unlink(missing_ok=True)
        found = self.json("bench", "--model", "llama-tiny", "--batch", "2", "--seq", "8",
                          "--threads", "1", "--peers", "torch", "--ways", "compiled,graphs",
                          "--python", python, *QUICK)
        self.assertEqual([peer["name"] for peer in found["rows"][0]["peers"]], ["torch-compiled"])
        orders = [json.loads(line) for line in (self.folder / "orders").read_text().splitlines()]
        shape = orders[1]["shape"]
        self.assertEqual(orders[1]["ways"], ["compiled"])
        self.assertEqual((shape["type"], shape["width"], shape["heads"], shape["kv_heads"],
                          shape["intermediate"]), ("llama", 128, 4, 2, 320))

    def test_without_pytorch(self):
        words = ["bench", "--model", "minilm", "--batch", "1", "--seq", "4", "--threads", "1",
                 "--peers", "torch", "--python"]
        (self.folder / "bare").write_text(
            f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")  # no packages
        (self.folder / "bare").chmod(0o755)
        failing = self.interpreter("failing", '{"error": "RuntimeError: no room"}')
        done = run(*words, str(failing), *QUICK, cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("failing: RuntimeError: no room", done.stderr)
        self.refusals([
            ("no interpreter", [*words, "no/such/python"], 5,
             r"no/such/python: this program cannot be started; --python names"),
            ("no torch", [*words, str(self.folder / "bare")], 5, r"No module named 'torch'"),
            ("no answer", [*words, "true"], 5, r"true: it ended without an answer"),
            ("products", ["bench", "--peers", "torch"], 2, r"--peers: torch is for --model"),
            ("others", ["bench", "--model", "minilm", "--peers", "onednn"], 2,
             r"--peers: onednn is for products; with --model there is torch"),
            ("ways alone", ["bench", "--model", "minilm", "--ways", "eager"], 2,
             r"option --ways is for --peers torch"),
            ("unknown way", [*words, "true", "--ways", "eager,slow"], 2,
             r"--ways.*eager.*compiled.*blocks.*frozen"),
        ])


if __name__ == "__main__":
    unittest.main()
