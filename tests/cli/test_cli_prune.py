# SPDX-License-Identifier: Apache-2.0
"""prune: what it writes and reports, what it refuses, and how it stops."""
import fcntl
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unittest

from cli_case import PROGRAM, Scratch, clean_environment, listing, run
import tiny_bert
from cli_data import floats, matrix, read, tensor, write

ROWS, COLS, LAYERS = 16, 32, 160
F_SETPIPE_SZ = 1031  # of Linux; Python has the name from 3.10 on


def name(layer):
    return f"blocks.layer.{layer}.fc.weight"


def make_files(folder):
    write(folder / "w.safetensors", {
        name(0): tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS, kept=4)),
        name(1): tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS, kept=4, seed=2)),
        "embed.weight": tensor("f32", (4, 8), matrix("f32", 4, 8, kept=4))})
    write(folder / "many.safetensors",
          {name(i): tensor("f32", (ROWS, COLS), matrix("f32", ROWS, COLS, kept=4, seed=i))
           for i in range(LAYERS)})
    write(folder / "odd.safetensors", {
        name(0): tensor("f32", (4, 6), matrix("f32", 4, 6, kept=2)),
        name(1): tensor("f32", (4, 8), matrix("f32", 4, 8, kept=4))})
    bad = bytearray(matrix("f32", ROWS, COLS, kept=4))
    bad[4 * (3 * COLS + 9):4 * (3 * COLS + 10)] = struct.pack("<f", float("nan"))
    write(folder / "nan.safetensors", {name(0): tensor("f32", (ROWS, COLS), bad)})
    (folder / "taken.safetensors").write_bytes(b"precious")


class Scope(Scratch):
    make = staticmethod(make_files)

    def prune(self, *more, pattern="unstructured:0.613"):
        self.good("prune", "many.safetensors", "p.safetensors", "--force", "--pattern",
                  pattern, "--scope", "global", *more)
        return {n: (floats(t[2]), floats(read(self.folder / "p.safetensors")[0][n][2]))
                for n, t in read(self.folder / "many.safetensors")[0].items()}

    def test_exactly_the_share_of_all_layers_goes_and_the_least_of_them(self):
        for normalize in "none", "layer":
            found = self.prune("--normalize", normalize)
            kept, gone = [], []
            for before, after in found.values():
                mean = sum(map(abs, before)) / len(before) if normalize == "layer" else 1
                for b, a in zip(before, after):
                    self.assertIn(a, (0, b))
                    (kept if a else gone).append(abs(b) / mean)
            self.assertEqual(len(gone), round(0.613 * LAYERS * ROWS * COLS))
            self.assertLessEqual(max(gone), min(kept) * (1 + 1e-6))
            shares = {sum(a == 0 for a in after) for _, after in found.values()}
            self.assertGreater(len(shares), 1)

    def test_rows_columns_and_blocks_go_by_their_means_in_all_layers(self):
        for pattern, rows, cols in (("row", 1, COLS), ("column", ROWS, 1), ("block:4x8", 4, 8)):
            with self.subTest(pattern):
                kept, gone, shares = [], [], set()
                for before, after in self.prune(pattern=pattern + ":0.37").values():
                    zeros = 0
                    for r in range(0, ROWS, rows):
                        for c in range(0, COLS, cols):
                            places = [(r + i) * COLS + c + j for i in range(rows)
                                      for j in range(cols)]
                            stays = any(after[p] for p in places)
                            self.assertEqual([after[p] for p in places],
                                             [before[p] * stays for p in places])
                            zeros += not stays
                            mean = sum(abs(before[p]) for p in places) / (rows * cols)
                            (kept if stays else gone).append(mean)
                    shares.add(zeros)
                self.assertEqual(len(gone), round(0.37 * (len(gone) + len(kept))))
                self.assertLessEqual(max(gone), min(kept) * (1 + 1e-6))
                self.assertGreater(len(shares), 1)

    def test_refusals(self):
        self.refusals([
            ("2:4", ["prune", "w.safetensors", "p", "--scope", "global"], 2,
             "global scope is of a pattern unstructured:SHARE, or a share of rows, columns or "
             "blocks, not of 2:4"),
            ("blocks", ["prune", "w.safetensors", "p", "--scope", "global", "--pattern",
                        "block:5x8:0.5"], 4, "expected whole blocks of 5x8"),
            ("normalize", ["prune", "w.safetensors", "p", "--normalize", "layer"], 2,
             "--normalize: layer is for --scope global"),
        ])


class Magnitude(Scratch):
    make = staticmethod(make_files)

    def test_it_keeps_the_two_largest_of_four_and_says_how_much_that_is(self):
        found = self.json("prune", "w.safetensors", "p.safetensors")
        before, after = read(self.folder / "w.safetensors")[0], read(self.folder / "p.safetensors")[0]
        self.assertEqual(after["embed.weight"], before["embed.weight"])
        self.assertEqual([layer["name"] for layer in found["layers"]], [name(0), name(1)])
        for layer in found["layers"]:
            dense, kept = floats(before[layer["name"]][2]), floats(after[layer["name"]][2])
            for g in range(0, len(dense), 4):
                order = sorted(range(4), key=lambda i: (abs(dense[g + i]), i))
                expected = [dense[g + i] if i in order[2:] else 0 for i in range(4)]
                self.assertEqual(kept[g:g + 4], expected)
            share = sum(map(abs, kept)) / sum(map(abs, dense))
            self.assertTrue(math.isclose(layer["kept_l1"], share, rel_tol=1e-5), layer)
            self.assertEqual((layer["rows"], layer["cols"], layer["output_error"]),
                             (ROWS, COLS, None))
        self.assertIs(self.json("check", "p.safetensors")["ok"], True)

    def test_packed_is_prune_then_pack(self):
        self.good("prune", "w.safetensors", "p.safetensors")
        self.good("pack", "p.safetensors", "pp.safetensors")
        self.good("prune", "w.safetensors", "q.safetensors", "--packed")
        self.good("unpack", "q.safetensors", "qu.safetensors")
        self.assertEqual(read(self.folder / "qu.safetensors")[0],
                         read(self.folder / "p.safetensors")[0])
        self.assertEqual(set(read(self.folder / "q.safetensors")[0]),
                         set(read(self.folder / "pp.safetensors")[0]))

    def test_dtype_is_that_of_the_pruned_tensors_only(self):
        self.good("prune", "w.safetensors", "p.safetensors", "--dtype", "bf16")
        dtypes = {t["name"]: t["dtype"] for t in self.json("info", "p.safetensors")["tensors"]}
        self.assertEqual(dtypes, {name(0): "bf16", name(1): "bf16", "embed.weight": "f32"})

    def test_selection(self):
        found = self.json("prune", "w.safetensors", "p.safetensors", "--include", "*.weight",
                          "--exclude", "*.layer.0.*")
        self.assertEqual([layer["name"] for layer in found["layers"]], [name(1), "embed.weight"])
        self.assertEqual(read(self.folder / "p.safetensors")[0][name(0)],
                         read(self.folder / "w.safetensors")[0][name(0)])

    def test_a_slip_in_exclude_is_told(self):
        done = self.good("prune", "w.safetensors", "p.safetensors", "--exclude",
                         "*.layer.0.*,*.laier.1.*")
        self.assertIn("--exclude *.laier.1.* leaves out no tensor that was selected otherwise\n",
                      done.stderr)
        self.assertNotIn("layer.0", done.stderr)

    def test_a_k_that_four_does_not_divide_passes_with_a_line(self):
        done = self.good("prune", "odd.safetensors", "p.safetensors")
        self.assertRegex(done.stderr, r"blocks\.layer\.0\.fc\.weight.*4")
        done = self.good("prune", "odd.safetensors", "quiet.safetensors", "--quiet")
        self.assertRegex(done.stderr, r"^warning: .*blocks\.layer\.0\.fc\.weight.*passed through")
        self.assertEqual(read(self.folder / "p.safetensors")[0][name(0)],
                         read(self.folder / "odd.safetensors")[0][name(0)])

    def test_one_line_a_layer_and_none_when_quiet(self):
        done = self.good("prune", "w.safetensors", "p.safetensors")
        lines = [line for line in done.stderr.splitlines() if "kept |w|" in line]
        self.assertEqual([line.split()[0] for line in lines], [name(0), name(1)])
        self.assertNotIn("\r", done.stderr)
        self.assertIn("2 layers are 2:4 in p.safetensors", done.stdout)
        done = self.good("prune", "w.safetensors", "q.safetensors", "--quiet")
        self.assertEqual(done.stderr, "")

    def test_patterns(self):
        for pattern, group, zeros in (("6:8", 8, 2), ("1:4", 4, 3), ("block:4x8:0.5", 512, 256),
                                      ("unstructured:0.25", 512, 128)):
            done = self.good("prune", "w.safetensors", "p.safetensors", "--pattern", pattern,
                             "--force")
            self.assertIn(f"2 layers are {pattern} in p.safetensors", done.stdout)
            kept = floats(read(self.folder / "p.safetensors")[0][name(0)][2])
            for g in range(0, len(kept), group):
                self.assertEqual(kept[g:g + group].count(0), zeros, pattern)
        seeds = []
        for seed in ("1", "2"):
            self.good("prune", "w.safetensors", "p.safetensors", "--method", "random", "--seed",
                      seed, "--force")
            seeds.append(read(self.folder / "p.safetensors")[0][name(0)][2])
        self.assertNotEqual(*seeds)

    def test_refusals(self):
        (self.folder / "texts").write_text("a text\n")
        self.refusals([
            ("wanda without calibration", ["prune", "w.safetensors", "new", "--method", "wanda"], 2,
             r"--method wanda needs --calibration FILE"),
            ("sparsegpt too", ["prune", "w.safetensors", "new", "--method", "sparsegpt"], 2,
             r"--method sparsegpt needs --calibration FILE"),
            ("calibration of a file", ["prune", "w.safetensors", "new", "--method", "wanda",
                                       "--calibration", "w.safetensors"], 2,
             r"--calibration.*w\.safetensors is a single file"),
            ("not a number", ["prune", "nan.safetensors", "new"], 4,
             r"blocks\.layer\.0\.fc\.weight.*row 3"),
            ("taken", ["prune", "w.safetensors", "taken.safetensors"], 3, r"taken\.safetensors"),
            ("no pattern", ["prune", "w.safetensors", "new", "--pattern", "5"], 2,
             r"--pattern: '5' is no pattern; expected N:M, dense:COLUMNS, .*positive"),
            ("no share", ["prune", "w.safetensors", "new", "--pattern", "block:4x4"], 2,
             r"'block:4x4' is no pattern; expected block:RxC:SHARE$"),
            ("nothing holds it", ["prune", "w.safetensors", "new", "--pattern", "dense:4096"], 4,
             r"no selected tensor holds dense:4096: '[\w.]+' has \d+ rows of \d+"),
            ("a pattern that is not packed", ["prune", "w.safetensors", "new", "--pattern", "4:8",
                                              "--packed"], 2, r"--packed is of --pattern 2:4"),
            ("a pattern of another method", ["prune", "w.safetensors", "new", "--pattern", "4:8",
                                             "--method", "tile-best"], 5,
             r'"tile-best" does not make the pattern "4:8"'),
            ("masks that are packed", ["prune", "w.safetensors", "new", "--masks-only",
                                       "--packed"], 2, r"--masks-only.*--packed"),
            ("masks that are not there", ["prune", "w.safetensors", "new", "--masks", "none"], 3,
             r"none"),
            ("masks of shares", ["prune", "w.safetensors", "new", "--masks", "w.safetensors",
                                 "--pattern", "row:0.5"], 2,
             r"N:M or dense:COLUMNS, not to row:0\.5"),
            ("masks of floats", ["prune", "w.safetensors", "new", "--masks", "w.safetensors"], 4,
             r"is f32; expected u8 or bool"),
            ("refined blindly", ["prune", "w.safetensors", "new", "--refine", "swaps"], 2,
             r"--refine.*--calibration"),
            ("no such refinement", ["prune", "w.safetensors", "new", "--refine", "swap"], 2,
             r"--refine: 'swap' is not a list.*swaps\|least-squares\|all"),
            ("trained blindly", ["prune", "w.safetensors", "new", "--reconstruct", "9"], 2,
             r"--reconstruct.*--calibration"),
            ("trained integers", ["prune", "w.safetensors", "new", "--reconstruct", "9", "--packed",
                                  "--calibration", "texts", "--quantize", "int8"], 2,
             r"--reconstruct.*--quantize|--quantize.*--reconstruct"),
            ("aimed blindly", ["prune", "w.safetensors", "new", "--aim", "states"], 2,
             r"--aim: states is for --calibration or --images"),
            ("aimed elsewhere", ["prune", "w.safetensors", "new", "--aim", "inputs"], 2,
             r"--aim.*weights.*outputs.*states"),
            ("no samples", ["prune", "w.safetensors", "new", "--samples", "0"], 2,
             r"--samples: '0' is not a whole number"),
        ])


class Calibrated(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        lines = tiny_bert.sentences(24)
        (folder / "texts").write_text("\n".join(lines[:3] + [""] + lines[3:]) + "\n")
        (folder / "two").write_text("\n".join(lines[:2]) + "\n")
        (folder / "blank").write_text("\n \n\t\n")
        (folder / "broken").write_bytes(b"good\nb\xffd\n")
        (folder / "bare").mkdir()
        (folder / "bare/model.safetensors").write_bytes(
            (folder / "model/model.safetensors").read_bytes())

    def test_every_method_measures_the_error_it_leaves(self):
        worst = {}
        for method in ("magnitude", "wanda", "sparsegpt"):
            found = self.json("prune", "model", method, "--method", method, "--calibration",
                              "texts")["layers"]
            self.assertEqual(len(found), 6 * tiny_bert.LAYERS)
            for layer in found:
                self.assertGreater(layer["output_error"], 0)
                self.assertLess(layer["output_error"], 1)
                self.assertGreater(layer["kept_l1"], 0.5)
            worst[method] = sum(layer["output_error"] for layer in found)
            self.assertIs(self.json("check", method)["ok"], True)
        self.assertLess(worst["sparsegpt"], worst["wanda"])
        self.assertLess(worst["wanda"], worst["magnitude"])

    def test_refinements_and_reconstruction_leave_less_error_and_two_of_four(self):
        error = {}
        for refine in ([], ["--refine", "swaps"], ["--refine", "least-squares,swaps"],
                       ["--refine", "all", "--reconstruct", "5"]):
            found = self.json("prune", "model", "refined", "--force", "--calibration", "texts",
                              *refine)
            first = next(layer for layer in found["layers"]
                         if layer["name"].endswith("layer.0.attention.self.query.weight"))
            error[" ".join(refine)] = first["output_error"]
            self.assertIs(self.json("check", "refined")["ok"], True)
        self.assertLess(error["--refine swaps"], error[""])
        self.assertLessEqual(error["--refine least-squares,swaps"], error["--refine swaps"] + 1e-6)

    def test_layers_aim_at_the_dense_model(self):
        weights = {}
        for aim in ("weights", "outputs", "states"):
            found = self.json("prune", "model", "aimed", "--force", "--method", "sparsegpt",
                              "--refine", "all", "--calibration", "texts", "--aim", aim)["layers"]
            self.assertEqual(len(found), 6 * tiny_bert.LAYERS)
            self.assertTrue(all(0 < layer["output_error"] < 1 for layer in found))
            self.assertIs(self.json("check", "aimed")["ok"], True)
            weights[aim] = (self.folder / "aimed/model.safetensors").read_bytes()
        self.assertEqual(len(set(weights.values())), 3)
        self.good("prune", "model", "aimed", "--force", "--method", "sparsegpt", "--refine", "all",
                  "--calibration", "texts")
        self.assertEqual((self.folder / "aimed/model.safetensors").read_bytes(),
                         weights["weights"])

    def test_pairs_are_read_together(self):
        lines = (self.folder / "texts").read_text().splitlines()
        pairs = list(zip(lines[::2], lines[1::2]))
        (self.folder / "pairs").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
        (self.folder / "joined").write_text("".join(f"{a} {b}\n" for a, b in pairs))
        (self.folder / "no-tab").write_text("a\tb\nc d\n")
        weights = []
        for options in (["pairs", "--pairs"], ["joined"], ["pairs", "--pairs", "--permute"]):
            self.good("prune", "model", "paired", "--force", "--method", "sparsegpt",
                      "--calibration", *options)
            weights.append((self.folder / "paired/model.safetensors").read_bytes())
        self.assertEqual(len(set(weights)), 3)
        for code, sentence, options in (
                (4, "passage 2 has no tab; with --pairs one stands between two texts",
                 ["--calibration", "no-tab", "--pairs"]),
                (2, "--pairs", ["--pairs"]),
                (2, "--pairs", ["--calibration", "pairs", "--pairs", "--ids"])):
            done = self.json("prune", "model", "new", *options, exit=code)
            self.assertIn(sentence, done["error"])

    def test_masks_go_to_a_file_and_come_from_it(self):
        self.good("prune", "model", "by-wanda", "--method", "wanda", "--calibration", "texts")
        found = self.json("prune", "model", "m.safetensors", "--method", "wanda", "--calibration",
                          "texts", "--masks-only")["layers"]
        masks = read(self.folder / "m.safetensors")[0]
        self.assertEqual(set(masks), {layer["name"] for layer in found})
        self.assertEqual({dtype for dtype, _, _ in masks.values()}, {"U8"})
        self.good("prune", "model", "by-masks", "--masks", "m.safetensors")
        self.assertEqual((self.folder / "by-masks/model.safetensors").read_bytes(),
                         (self.folder / "by-wanda/model.safetensors").read_bytes())
        refined = self.json("prune", "model", "refined", "--force", "--masks", "m.safetensors",
                            "--refine", "least-squares", "--calibration", "texts")["layers"]
        self.assertLess(sum(layer["output_error"] for layer in refined),
                        sum(layer["output_error"] for layer in found))
        first = next(iter(masks))
        _, shape, data = masks[first]
        entry = {"dtype": "U8", "shape": shape, "data": data}
        other = dict(entry, data=bytes([not data[0]]) + data[1:])
        turned = dict(entry, shape=[shape[1] * 2, shape[0] // 2])
        strict = ["--pattern", "2:4"]
        for change, sentence in ((other, r"keeps [13] of row 0's columns 0 to 3; expected 2"),
                                 (turned, r"is not \[\d+, \d+\], as the tensor"),
                                 (None, r"the file of masks has none for this tensor")):
            broken = {key: {"dtype": "U8", "shape": value[1], "data": value[2]}
                      for key, value in masks.items() if key != first}
            if change:
                broken[first] = change
            write(self.folder / "broken.safetensors", broken)
            done = run("prune", "model", "new", "--masks", "broken.safetensors", *strict,
                       cwd=self.folder)
            self.assertIn(first, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.assertEqual(done.returncode, 4)
            self.assertFalse((self.folder / "new").exists())

    def test_masks_of_any_pattern_come_back(self):
        """And those that are 2:4 are packed, next to others that stay dense."""
        mixed, two_four = {}, set()
        for i, pattern in enumerate(("2:4", "1:4", "3:8", "unstructured:0.6", "row:0.25",
                                     "column:0.5", "block:4x8:0.5", "diagonal:5")):
            method = ["--method", "alps", "--calibration", "texts", "--pattern", pattern, "--force"]
            self.good("prune", "model", "direct", *method)
            self.good("prune", "model", "m.safetensors", *method, "--masks-only")
            masks = read(self.folder / "m.safetensors")[0]
            self.good("prune", "model", "masked", "--masks", "m.safetensors", "--force")
            before, after, direct = (read(self.folder / f / "model.safetensors")[0]
                                     for f in ("model", "masked", "direct"))
            for key, (dtype, shape, data) in masks.items():
                kept = [a * b for a, b in zip(floats(before[key][2]), data)]
                self.assertEqual(floats(after[key][2]), kept)
                self.assertEqual([v == 0 for v in floats(direct[key][2])], [not b for b in data])
            key = sorted(masks)[i]
            mixed[key] = {"dtype": "U8", "shape": masks[key][1], "data": masks[key][2]}
            two_four |= {key} if pattern in ("2:4", "1:4") else set()
        write(self.folder / "mixed.safetensors", mixed)
        include = ["--include", ",".join(mixed)]
        for more in ([], ["--quantize", "int8"], ["--low-rank", "4"]):
            done = self.good("prune", "model", "packed", "--force", "--packed", "--masks",
                             "mixed.safetensors", *include, *more)
            self.assertIn("8 layers are as their masks say", done.stdout)
            tensors = self.json("info", "packed")["tensors"]
            self.assertEqual({x["name"] for x in tensors if x["packed"]}, two_four)
        refined = self.json("prune", "model", "refined", "--force", "--masks", "mixed.safetensors",
                            *include, "--refine", "all", "--calibration", "texts")["layers"]
        plain = self.json("prune", "model", "refined", "--force", "--masks", "mixed.safetensors",
                          *include, "--calibration", "texts")["layers"]
        self.assertLess(sum(layer["output_error"] for layer in refined),
                        sum(layer["output_error"] for layer in plain))

    def test_samples_are_the_first_lines_that_are_not_empty(self):
        for texts, more, out in (("texts", ["--samples", "2"], "a"), ("two", [], "b")):
            self.good("prune", "model", out, "--method", "wanda", "--calibration", texts, *more)
        self.assertEqual((self.folder / "a/model.safetensors").read_bytes(),
                         (self.folder / "b/model.safetensors").read_bytes())

    def shard_the_model(self):
        """Makes the folder sharded, the same tensors in two files, and returns their names."""
        tensors = {n: {"dtype": t[0], "shape": t[1], "data": t[2]}
                   for n, t in read(self.folder / "model/model.safetensors")[0].items()}
        shutil.copytree(self.folder / "model", self.folder / "sharded")
        (self.folder / "sharded/model.safetensors").unlink()
        parts, names = {}, sorted(tensors)
        middle = len(names) // 2
        for i, half in enumerate((names[:middle], names[middle:])):
            part = f"model-{i + 1:05}-of-00002.safetensors"
            write(self.folder / "sharded" / part, {n: tensors[n] for n in half})
            parts.update(dict.fromkeys(half, part))
        (self.folder / "sharded/model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": parts}))
        return sorted(set(parts.values()))

    def test_files_of_a_folder_may_be_pruned_each_alone(self):
        files = self.shard_the_model()
        self.good("prune", "sharded", "whole")
        shutil.copytree(self.folder / "sharded", self.folder / "parts",
                        ignore=shutil.ignore_patterns("*.safetensors"))
        for file in files:
            self.good("prune", f"sharded/{file}", f"parts/{file}")
            self.assertEqual(read(self.folder / "parts" / file)[0],
                             read(self.folder / "whole" / file)[0])
        self.good("check", "parts")
        self.good("embed", "parts", "--input", "texts", "--output", "v.npy")

    def test_a_folder_of_shards_stays_one(self):
        """The same weights come out, in two files again."""
        files = self.shard_the_model()
        more = ["--method", "sparsegpt", "--calibration", "texts", "--packed"]
        one = self.json("prune", "model", "a", *more)["layers"]
        self.assertEqual(self.json("prune", "sharded", "b", *more)["layers"], one)
        self.assertEqual(len(list((self.folder / "b").glob("model-*-of-00002.safetensors"))), 2)
        for folder in ("a", "b"):
            self.good("unpack", folder, folder + "u")
        found = {}
        for part in files:
            found.update(read(self.folder / "bu" / part)[0])
        self.assertEqual(found, read(self.folder / "au/model.safetensors")[0])

    def test_side_files_come_along_through_every_step(self):
        self.good("prune", "model", "pruned")
        self.good("pack", "pruned", "packed")
        self.good("unpack", "packed", "back")
        for side in ("config.json", "modules.json", "vocab.txt", "1_Pooling/config.json"):
            self.assertEqual((self.folder / "back" / side).read_bytes(),
                             (self.folder / "model" / side).read_bytes())
        self.assertEqual(read(self.folder / "back/model.safetensors")[0],
                         read(self.folder / "pruned/model.safetensors")[0])
        packed = (self.folder / "packed/model.safetensors").stat().st_size
        self.assertLess(packed, (self.folder / "pruned/model.safetensors").stat().st_size)

    def test_refusals(self):
        def case(texts, code, sentence):
            return (texts, ["prune", "model", "new", "--method", "wanda", "--calibration", texts],
                    code, sentence)

        self.refusals([("no config.json", ["prune", "bare", "new", "--method", "wanda",
                                           "--calibration", "texts"], 2,
                        r"--calibration runs the whole model, but there is no bare/config\.json"),
                       case("missing", 3, r"missing.*No such file"),
                       case("blank", 4, r"--calibration blank: no line that is not empty"),
                       case("broken", 4, r"broken.*line 1.*UTF-8|broken.*UTF-8.*line 1")])


class Stop(Scratch):
    make = staticmethod(make_files)

    def interrupt(self, number):
        """Sends the signal after the first layer. More layers than the pipe holds lines are left, so
        the program cannot have come to its end."""
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
        child = subprocess.Popen([PROGRAM, "prune", "many.safetensors", "taken.safetensors",
                                  "--force", "--threads", "1"], cwd=self.folder, stderr=writer,
                                 stdout=subprocess.PIPE, env=clean_environment())
        os.close(writer)
        first = os.read(reader, 1)
        child.send_signal(number)
        rest = b""
        while True:
            part = os.read(reader, 65536)
            if not part:
                break
            rest += part
        os.close(reader)
        out, _ = child.communicate()
        return child.returncode, out, (first + rest).decode()

    @unittest.skipUnless(sys.platform == "linux", "needs a pipe of a chosen size")
    def test_interrupted_it_leaves_nothing_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                before = listing(self.folder)
                code, out, err = self.interrupt(number)
                self.assertEqual((code, out), (130, b""), err)
                self.assertIn("interrupted; no file was written", err)
                self.assertEqual(listing(self.folder), before)


class Terminal(Scratch):
    make = staticmethod(make_files)

    def on_terminal(self, *arguments, environment=None, both=False):
        """What a person sees on standard error, or of both outputs."""
        try:
            ours, theirs = os.openpty()
        except OSError as error:  # a bare root without /dev/pts
            self.skipTest(f"no terminal can be opened: {error}")
        attributes = termios.tcgetattr(theirs)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        child = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, stderr=theirs,
                                 stdout=theirs if both else subprocess.DEVNULL,
                                 env=clean_environment(environment or {"TERM": "xterm"}))
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says EIO at the end
                break
            if not part:
                break
            seen += part
        os.close(ours)
        child.wait()
        return seen.decode()

    def test_a_line_moves_where_a_person_looks(self):
        seen = self.on_terminal("prune", "many.safetensors", "p.safetensors")
        self.assertRegex(seen, r"\r\033\[K\w[\w ]* \d+/\d+")
        self.assertEqual(self.on_terminal("prune", "w.safetensors", "q.safetensors", "-q"), "")

    def test_a_moving_line_is_erased_before_anything_else_is_said(self):
        seen = self.on_terminal("check", "many.safetensors", both=True)
        self.assertIn("checking 0/", seen)
        lines = [line.rsplit("\r\033[K", 1)[-1] for line in seen.split("\n")]
        self.assertEqual({line[:5] for line in lines[:-2]}, {"no   "})
        self.assertRegex(lines[-2], r"^0 of \d+ selected tensors are 2:4$")
        self.assertEqual(lines[-1], "")

    def test_a_terminal_without_control_gets_plain_lines(self):
        seen = self.on_terminal("prune", "w.safetensors", "p.safetensors",
                                environment={"TERM": "dumb"})
        self.assertNotIn("\033", seen)
        self.assertIn("kept |w|", seen)

    def test_colour_unless_the_user_wants_none(self):
        self.assertIn("\033[31merror:\033[0m", self.on_terminal("info", "missing"))
        seen = self.on_terminal("info", "missing", environment={"TERM": "xterm", "NO_COLOR": "1"})
        self.assertNotIn("\033[31m", seen)
        self.assertIn("error:", seen)


if __name__ == "__main__":
    unittest.main()
