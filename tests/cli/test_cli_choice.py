# SPDX-License-Identifier: Apache-2.0
"""Sparse or dense by what is faster here: options, what is said, and the file of what was measured.
Files of our own decide, so that no machine's speed does."""
import json
import unittest

from cli_case import Scratch, listing, run
import tiny_bert
from cli_data import floats, read

LAYERS = 6 * tiny_bert.LAYERS
# Inputs and outputs of the products: query, key and value are one.
WIDTH, INNER = tiny_bert.WIDTH, tiny_bert.INTERMEDIATE
SHAPES = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, INNER), (INNER, WIDTH)]
LINES = tiny_bert.sentences(40)
NEVER, ALWAYS, FROM_33 = "0 0", "fffff fffff", "fffc0 fffc0"


def fnv(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


class Choice(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        assert run("prune", "model", "pruned", cwd=folder).returncode == 0
        assert run("pack", "pruned", "packed", cwd=folder).returncode == 0
        (folder / "texts").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        (folder / "short").write_text("one\n", encoding="utf-8")

    @property
    def here(self):
        return {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def key(self, *more):
        """What the file is of, by what bench says of this machine."""
        found = self.json("bench", "--prune", "1", "--threads", "1", "--rounds", "1", "--min-ms",
                          "1", *more)
        cpu, versions = found["cpu"], found["versions"]
        units = "" if cpu["isa"] == "amx" else cpu["units"]  # the level names them
        return {"cpu": cpu["model"], "isa": ", ".join(filter(None, (cpu["isa"], units))),
                "sparse24": versions["sparse24"], "dense_engine": versions["dense_engine"]}

    def path(self, key):
        name = fnv(json.dumps(key, sort_keys=True, separators=(",", ":")))
        return self.folder / "cache/sparse24" / f"choices-{name:016x}.json"

    def plant(self, *notes, dtype="f32", threads=1, key=None):
        """A file with these notes for the four products, or one for all of them."""
        key = key or self.key()
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        notes = notes * 4 if len(notes) == 1 else notes
        choices = {f"{dtype} {threads} {k}x{n}": note for (k, n), note in zip(SHAPES, notes)}
        path.write_text(json.dumps({"version": 1, "key": key, "choices": choices}))
        return path

    def embed(self, *more, model="packed", texts="texts", threads=1):
        """What --json says, and the vectors."""
        found = self.json("embed", model, "--input", texts, "--output", "v.safetensors", "--force",
                          "--threads", threads, *more, environment=self.here)
        return found, floats(read(self.folder / "v.safetensors")[0]["embeddings"][2])

    def close(self, a, b, tolerance=1e-5):
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(u - v) for u, v in zip(a, b)), tolerance)

    def test_what_was_measured_decides(self):
        path = self.plant(ALWAYS)
        before = listing(self.folder / "cache")
        dense, vectors = self.embed()
        self.assertEqual((dense["layers"], dense["sparse_layers"]), (LAYERS, 0))
        self.assertGreaterEqual(dense["dense_bytes"], 4 * LAYERS * WIDTH * WIDTH)
        sparse, others = self.embed("--sparse")
        self.assertEqual((sparse["sparse_layers"], sparse["dense_bytes"]), (LAYERS, 0))
        self.close(vectors, others)
        asked, same = self.embed("--dense")
        self.assertEqual((asked["sparse_layers"], asked["dense_bytes"]), (0, 0))
        self.assertEqual(vectors, same)
        found, same = self.embed("--dense", model="pruned")
        self.assertEqual((found["sparse_layers"], vectors), (0, same))
        self.assertEqual(listing(self.folder / "cache"), before)
        path.unlink()
        self.plant(NEVER)
        found, again = self.embed()
        self.assertEqual((found["sparse_layers"], found["dense_bytes"]), (LAYERS, 0))
        self.assertEqual(again, others)

    def test_layer_by_layer_and_by_tokens(self):
        self.plant(FROM_33, NEVER, ALWAYS, NEVER)
        found, vectors = self.embed()
        self.assertEqual(found["sparse_layers"], 2 * tiny_bert.LAYERS)
        self.close(vectors, self.embed("--sparse")[1])
        found, _ = self.embed(texts="short")
        self.assertEqual(found["sparse_layers"], 5 * tiny_bert.LAYERS)

    def test_every_dtype_and_two_threads(self):
        for dtype, tolerance in (("f32", 1e-5), ("bf16", 0.02), ("i8", 0.1)):
            with self.subTest(dtype):
                self.plant(FROM_33, dtype=dtype, threads=2)
                found, vectors = self.embed("--dtype", dtype, threads=2)
                self.assertEqual(found["sparse_layers"], 0)
                self.close(vectors, self.embed("--dtype", dtype, "--sparse", threads=2)[1],
                           tolerance)

    def plant_forms(self, name, form, note, dtype):
        """A file with that note for each layer of a folder in rows or blocks, and others of 2:4
        and of other shares that say the opposite."""
        opposite = NEVER if note == ALWAYS else ALWAYS
        path = self.plant(opposite, dtype=dtype)
        file = json.loads(path.read_text())
        told = [t for t in self.json("info", name)["tensors"] if "format" in t]
        self.assertEqual(len(told), LAYERS)
        for t in told:
            n, k = t["shape"]
            about = 5 * int(20 * t["stored"] + 0.5)
            file["choices"][f"{dtype} 1 {k}x{n} {form} {about + 50}"] = opposite
            file["choices"][f"{dtype} 1 {k}x{n} {form} {about}"] = note
        path.write_text(json.dumps(file))
        return told

    def test_rows_and_blocks(self):
        self.good("prune", "model", "zeros", "--pattern", "block:8x8:0.75")
        for name, form, dtype, options in (
                ("bsr", "bsr:8x8", "f32", ("--format", "bsr:8x8")),
                ("csr", "csr", "f32", ("--format", "csr")),
                ("csr", "csr+int8", "i8", ("--format", "csr", "--quantize", "int8"))):
            model = form.replace(":", "-")
            self.good("pack", "zeros", model, *options)
            _, exact = self.embed("--dense", model=model)
            for note, ran in ((NEVER, LAYERS), (ALWAYS, 0)):
                with self.subTest(f"{form} {note}"):
                    told = self.plant_forms(model, form, note, dtype)
                    found, vectors = self.embed("--dtype", dtype, model=model)
                    self.assertEqual(found["sparse_layers"], ran)
                    self.assertEqual(found["dense_bytes"] > 0, not ran)
                    self.close(vectors, exact, 1e-5 if dtype == "f32" else 0.1)
                    done = self.good("embed", model, "--input", "texts", "--output",
                                     "v.safetensors", "--force", "--threads", "1", "--dtype",
                                     dtype, environment=self.here)
                    self.assertIn(f"{ran} of {LAYERS} layers in {name} ran in {name}", done.stderr)
                    self.assertNotIn("2:4", done.stderr)
                    self.assertEqual("layers in rows or blocks run dense for some numbers of tokens"
                                     in done.stderr, not ran)
                    choices = self.json("info", model, environment=self.here)["choices"]
                    shapes = {(t["shape"][1], t["shape"][0]) for t in told}
                    self.assertEqual({(c["k"], c["n"]) for c in choices}, shapes)
                    self.assertEqual({c["format"] for c in choices}, {form})
                    self.assertIn(f" outputs, {form} of about ",
                                  self.good("info", model, environment=self.here).stdout)
            found, _ = self.embed("--dtype", dtype, "--sparse", model=model)
            self.assertEqual((found["sparse_layers"], found["dense_bytes"]), (LAYERS, 0))

    def test_a_file_in_the_layout_of_kernels(self):
        self.good("pack", "packed", "laid", "--layout", "cpu")
        self.plant(ALWAYS, NEVER, FROM_33, NEVER)
        found, vectors = self.embed(model="laid")
        other, same = self.embed(model="packed")
        self.assertEqual(found["sparse_layers"], 2 * tiny_bert.LAYERS)
        self.assertEqual((found["sparse_layers"], found["dense_bytes"]),
                         (other["sparse_layers"], other["dense_bytes"]))
        self.close(vectors, same)

    def test_words(self):
        self.plant(ALWAYS)
        done = self.good("embed", "packed", "--input", "texts", "--output", "v.safetensors",
                         "--threads", "1", environment=self.here)
        self.assertRegex(done.stderr,
                         rf"{LAYERS} of {LAYERS} 2:4 layers run dense for some numbers "
                                      r"of tokens, or for all, which is faster here; their dense "
                                      r"weights take \d")
        self.assertRegex(done.stderr, rf"\n0 of {LAYERS} 2:4 layers ran 2:4 \(.* of dense weights, "
                                      r"where dense is faster; --sparse\)")
        done = self.good("embed", "packed", "--input", "texts", "--output", "v.safetensors",
                         "--force", "--sparse", "--threads", "1", environment=self.here)
        self.assertIn(f"{LAYERS} of {LAYERS} 2:4 layers ran 2:4\n", done.stderr)
        row, = self.json("bench", "--model", "packed", "--batch", "1", "--seq", "16", "--threads",
                         "1", "--rounds", "1", "--min-ms", "1", environment=self.here)["rows"]
        self.assertEqual(row["sparse_layers"], 0)
        self.assertGreater(row["dense_bytes"], 0)
        for command in (["search", "packed", "--documents", "texts", "--query", "one"],
                        ["eval", "packed", "--queries", "short", "--documents", "texts", "--gold",
                         "gold"]):
            (self.folder / "gold").write_text("0\n")
            done = self.good(*command, "--threads", "1", environment=self.here)
            self.assertIn("2:4 layers run dense for some numbers of tokens", done.stderr)
            done = self.good(*command, "--threads", "1", "--sparse", environment=self.here)
            self.assertNotIn("run dense", done.stderr)

    def test_info_and_plan_say_it(self):
        self.plant(FROM_33, NEVER, ALWAYS, "f 0")
        found = self.json("info", "packed", environment=self.here)["choices"]
        self.assertEqual({(c["dtype"], c["threads"], c["k"], c["n"]): c["dense"] for c in found},
                         {("f32", 1, *shape): dense for shape, dense in zip(SHAPES, (
                             [{"from": 33, "to": None}], [], [{"from": 1, "to": None}],
                             [{"from": 1, "to": 8}]))})
        done = self.good("info", "packed", environment=self.here)
        self.assertIn(f"here, f32, 1 thread, {WIDTH} inputs, {3 * WIDTH} outputs: dense for 33 "
                      "tokens and more\n", done.stdout)
        self.assertIn(f"{WIDTH} inputs, {WIDTH} outputs: 2:4\n", done.stdout)
        self.assertIn(f"{INNER} inputs, {WIDTH} outputs: dense for 1 to 8 tokens\n", done.stdout)
        self.assertEqual(self.json("info", "model", environment=self.here)["choices"], [])
        small = ["--threads", "1", "--largest", "128"]
        for m, chosen in ((32, "2:4"), (33, "dense")):
            found = self.json("plan", m, WIDTH, 3 * WIDTH, *small, environment=self.here)
            self.assertEqual(found["chosen"], chosen)
        done = self.good("plan", 33, WIDTH, 3 * WIDTH, *small, environment=self.here)
        self.assertIn("Whole models run such a layer dense here", done.stdout)
        self.assertIsNone(self.json("plan", 8, 128, 128, *small, environment=self.here)["chosen"])

    def test_a_file_that_cannot_be_read_counts_as_absent(self):
        good = json.loads(self.plant(ALWAYS).read_text())
        path = self.path(good["key"])
        name = next(iter(good["choices"]))
        for what, text in (("not JSON", "{"), ("empty", ""), ("no object", "[]"),
                           *((what, json.dumps({**good, **part})) for what, part in (
                               ("another key", {"key": {**good["key"], "cpu": "another"}}),
                               ("no choices", {"choices": None}),
                               ("a list", {"choices": []}),
                               ("no note", {"choices": {name: 3}}),
                               ("words", {"choices": {name: "dense 2:4"}}),
                               ("one number", {"choices": {name: "1"}}),
                               ("too large", {"choices": {name: "100000 0"}}),
                               ("no key", {"choices": {"f32 0 1x1": "0 0"}}),
                               ("another dtype", {"choices": {"f33 1 1x1": "0 0"}}),
                               ("a form of no share", {"choices": {name + " csr": "0 0"}}),
                               ("a share of more", {"choices": {name + " csr 101": "0 0"}}),
                               ("a longer key", {"choices": {name + "x2": "0 0"}})))):
            with self.subTest(what):
                path.write_text(text)
                done = self.good("embed", "packed", "--input", "short", "--output",
                                 "v.safetensors", "--force", "--threads", "1",
                                 environment=self.here)
                self.assertIn(f"{path} is of another make or damaged: measured again", done.stderr)

    def test_what_is_measured_is_kept(self):
        """Unless other work made that impossible, which is said."""
        done = self.good("embed", "packed", "--input", "texts", "--output", "a.safetensors",
                         environment=self.here)
        path = self.path(self.key())
        if "other work kept this machine from measuring" in done.stderr:
            self.assertFalse(path.exists())
            return
        kept = json.loads(path.read_text())
        self.assertEqual(set(kept), {"version", "key", "choices"})
        self.assertEqual({name.split()[2] for name in kept["choices"]},
                         {f"{k}x{n}" for k, n in SHAPES})
        before = path.read_bytes()
        self.good("embed", "packed", "--input", "texts", "--output", "b.safetensors",
                  environment=self.here)
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual((self.folder / "a.safetensors").read_bytes(),
                         (self.folder / "b.safetensors").read_bytes())

    def test_sparse_measures_and_keeps_nothing(self):
        self.embed("--sparse")
        self.embed("--dense")
        self.embed(model="model")
        self.assertFalse((self.folder / "cache").exists())

    def test_scalar_kernels_lose_to_an_engine(self):
        if "dense engine none" in run("--version").stdout:
            self.skipTest("no dense engine is faster than scalar kernels")
        done = self.good("bench", "--model", "minilm", "--isa", "baseline", "--batch", "1", "--seq",
                         "128", "--threads", "1", "--rounds", "1", "--min-ms", "1", "--json",
                         environment=self.here)
        row, = json.loads(done.stdout)["rows"]
        self.assertLess(row["sparse_layers"], row["layers"] // 2)
        self.assertGreater(row["dense_bytes"], 1e6)
        self.assertIn("36 of 36 2:4 layers run dense", done.stderr)

    def test_refusals(self):
        out = ["--input", "texts", "--output", "new.safetensors"]
        self.refusals([
            ("both", ["embed", "packed", *out, "--sparse", "--dense"], 2,
             r"--sparse and --dense exclude each other"),
            ("eval", ["eval", "packed", "--task", "qa", "--data", "texts", "--sparse", "--dense"],
             2, r"--sparse and --dense exclude each other"),
            ("bench", ["bench", "--set", "minilm", "--sparse"], 2,
             r"option --sparse is for --model"),
        ])


if __name__ == "__main__":
    unittest.main()
