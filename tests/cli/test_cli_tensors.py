# SPDX-License-Identifier: Apache-2.0
"""info, check, pack and unpack: what they report, the way there and back, and bad input."""
import os
import struct
import subprocess
import unittest

from cli_case import PROGRAM, Scratch, listing, run
import tiny_bert
from cli_data import DTYPES, matrix, read, tensor, write

WEIGHT = "blocks.layer.0.fc.weight"


def make_files(folder):
    sparse = {WEIGHT: tensor("f32", (8, 16), matrix("f32", 8, 16)),
              "blocks.layer.0.fc.bias": tensor("f32", (8,), bytes(32)),
              "embed.weight": tensor("f32", (4, 8), matrix("f32", 4, 8, kept=4))}
    write(folder / "sparse.safetensors", sparse)
    data = bytearray(matrix("f32", 8, 16))
    data[(5 * 16 + 8) * 4:(5 * 16 + 12) * 4] = struct.pack("<4f", 1, 2, 3, 0)
    write(folder / "dense.safetensors", dict(sparse, **{WEIGHT: tensor("f32", (8, 16), data)}))
    write(folder / "odd.safetensors",
          {"layer.0.weight": tensor("f32", (4, 6), matrix("f32", 4, 6))})
    hole = bytearray(matrix("f32", 8, 16))
    hole[(2 * 16 + 4) * 4:(2 * 16 + 8) * 4] = struct.pack("<4f", float("nan"), 0, 0, 0)
    write(folder / "nan.safetensors", {"layer.0.weight": tensor("f32", (8, 16), hole)})
    write(folder / "hollow.safetensors", {"layer.0.weight": tensor("f32", (0, 16), b"")})
    raw = (folder / "sparse.safetensors").read_bytes()
    (folder / "short.safetensors").write_bytes(raw[:-7])
    (folder / "stub.safetensors").write_bytes(raw[:5])
    (folder / "text.safetensors").write_text("this is not a tensor file at all")
    (folder / "empty").mkdir()
    (folder / "taken.safetensors").write_bytes(b"precious")
    (folder / "taken").mkdir()
    (folder / "taken" / "precious").write_bytes(b"precious")


class Read(Scratch):
    make = staticmethod(make_files)

    def test_info(self):
        found = self.json("info", "sparse.safetensors")
        self.assertEqual(found["tensors"], [
            {"name": "blocks.layer.0.fc.bias", "dtype": "f32", "shape": [8], "packed": False,
             "quantized": None, "layout": None},
            {"name": WEIGHT, "dtype": "f32", "shape": [8, 16], "packed": False,
             "quantized": None, "layout": None},
            {"name": "embed.weight", "dtype": "f32", "shape": [4, 8], "packed": False,
             "quantized": None, "layout": None}])
        self.assertEqual((found["bytes"], found["parameters"], found["model_type"]),
                         (4 * (8 + 128 + 32), 8 + 128 + 32, None))
        text = self.good("info", "sparse.safetensors").stdout
        self.assertIn("[8, 16]", text)
        self.assertIn("168 parameters", text)

    def test_info_of_a_folder(self):
        tiny_bert.write(self.folder / "model")
        found = self.json("info", "model")
        self.assertEqual(found["model_type"], "bert")
        self.assertEqual({t["name"]: t["shape"] for t in found["tensors"]}, tiny_bert.shapes())

    def test_check_says_yes(self):
        found = self.json("check", "sparse.safetensors")
        self.assertIs(found["ok"], True)
        by_name = {t["name"]: t for t in found["tensors"]}
        self.assertEqual(by_name[WEIGHT],
                         {"name": WEIGHT, "rows": 8, "cols": 16, "dtype": "f32",
                          "selected": True, "two_four": True, "first_bad": None})
        self.assertIs(by_name["embed.weight"]["selected"], False)
        self.assertIs(by_name["embed.weight"]["two_four"], False)
        self.assertIs(by_name["blocks.layer.0.fc.bias"]["selected"], False)
        self.assertRegex(self.good("check", "sparse.safetensors").stdout, r"(?m)^ok .*fc\.weight")

    def test_check_names_the_first_bad_group(self):
        found = self.json("check", "dense.safetensors", exit=1)
        self.assertIs(found["ok"], False)
        self.assertEqual([t["first_bad"] for t in found["tensors"] if t["selected"]],
                         [{"row": 5, "col": 8}])
        done = run("check", "dense.safetensors", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"no .*fc\.weight.*row 5 has 3 non-zeros in columns 8 to 11")
        done = run("check", "dense.safetensors", "--quiet", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (1, ""))

    def test_check_of_a_k_that_four_does_not_divide(self):
        found = self.json("check", "odd.safetensors", exit=1)
        self.assertEqual([(t["two_four"], t["first_bad"]) for t in found["tensors"]],
                         [(False, None)])
        done = run("check", "odd.safetensors", cwd=self.folder)
        self.assertRegex(done.stdout, r"no .*layer\.0\.weight  \[4, 6\].*multiple of 4")

    def test_check_in_both_directions(self):
        found = self.json("check", "sparse.safetensors", "--both", exit=1)
        weight = [t for t in found["tensors"] if t["selected"]][0]
        self.assertEqual((weight["two_four"], weight["first_bad"], weight["two_four_n"]),
                         (True, None, False))
        row, col = weight["first_bad_n"]["row"], weight["first_bad_n"]["col"]
        values = struct.unpack("<128f", matrix("f32", 8, 16))
        self.assertGreater(sum(values[(row + i) * 16 + col] != 0 for i in range(4)), 2)
        done = run("check", "sparse.safetensors", "--both", cwd=self.folder)
        self.assertRegex(done.stdout, rf"no .*: column {col} has . non-zeros in rows {row} to")
        for method in ("best", "greedy", "signed", "causal1122"):
            for packed in ((), ("--packed",)):
                self.good("prune", "dense.safetensors", "both.safetensors", "--method",
                          f"tile-{method}", "--force", *packed)
                self.assertIs(self.json("check", "both.safetensors", "--both")["ok"], True)

    def test_check_takes_nan_for_a_non_zero(self):
        self.assertIs(self.json("check", "nan.safetensors")["ok"], True)
        data = bytearray(matrix("f32", 8, 16))
        data[(3 * 16 + 4) * 4:(3 * 16 + 8) * 4] = struct.pack("<4f", 1, float("nan"), -0.0, 2)
        write(self.folder / "three.safetensors",
              {"layer.0.weight": tensor("f32", (8, 16), data)})
        found = self.json("check", "three.safetensors", exit=1)
        self.assertEqual(found["tensors"][0]["first_bad"], {"row": 3, "col": 4})

    def test_check_of_a_matrix_without_rows(self):
        found = self.json("check", "hollow.safetensors", exit=1)
        self.assertEqual([(t["two_four"], t["first_bad"]) for t in found["tensors"]],
                         [(False, None)])

    def test_a_quiet_check_prints_nothing(self):
        for name, code in (("sparse", 0), ("dense", 1)):
            for option in ("-q", "--quiet"):
                done = run("check", f"{name}.safetensors", option, cwd=self.folder)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "", ""))
        self.assertTrue(self.json("check", "sparse.safetensors", "-q")["ok"])
        self.assertIn("error: cannot open missing",
                      run("check", "missing", "-q", cwd=self.folder).stderr)

    def test_selection_by_name(self):
        found = self.json("check", "dense.safetensors", "--include", "*", "--exclude",
                          "*.fc.weight,*bias", exit=1)
        self.assertEqual([t["name"] for t in found["tensors"] if t["selected"]], ["embed.weight"])

    def test_every_isa_gives_the_same_answer(self):
        expected = self.json("check", "dense.safetensors", exit=1)
        for isa in ("baseline", "avx2", "avx512"):
            self.assertEqual(self.json("check", "dense.safetensors", "--isa", isa, exit=1),
                             expected)

    def test_bad_input(self):
        self.refusals([
            (f"{command}: {path}", [command, path, *more], code, sentence)
            for command, more in (("info", []), ("check", []), ("pack", ["new"]),
                                  ("unpack", ["new"]), ("prune", ["new"]))
            for path, code, sentence in (
                ("missing.safetensors", 3, r"missing\.safetensors.*No such file"),
                ("empty", 3, r"empty"),
                ("short.safetensors", 4, r"short\.safetensors"),
                ("stub.safetensors", 4, r"stub\.safetensors"),
                ("text.safetensors", 4, r"text\.safetensors"))])

    def test_nothing_selected(self):
        self.refusals([
            (command, [command, "sparse.safetensors", *more, "--include", "nothing*"], 2,
             r"--include nothing\* selects none of the 3 tensors of sparse\.safetensors")
            for command, more in (("check", []), ("pack", ["new"]), ("unpack", ["new"]),
                                  ("prune", ["new"]))])


class Write(Scratch):
    make = staticmethod(make_files)

    def there_and_back(self, dtype, rows, cols):
        name, size = f"{dtype}-{rows}-{cols}", DTYPES[dtype][1]
        source, packed = f"{name}.safetensors", f"{name}-packed.safetensors"
        write(self.folder / source, {
            "layer.0.weight": tensor(dtype, (rows, cols), matrix(dtype, rows, cols, seed=rows)),
            "other": tensor(dtype, (7,), matrix(dtype, 1, 7, kept=4))})
        dense, small = rows * cols * size, rows * (cols // 2 * size + (cols + 7) // 8)
        found = self.json("pack", source, packed)
        self.assertEqual(found["layers"], [
            {"name": "layer.0.weight", "bytes_in": dense, "bytes_out": small}])
        self.assertEqual((found["bytes_in"], found["bytes_out"]),
                         (dense + 7 * size, small + 7 * size))
        self.assertEqual([(t["name"], t["dtype"], t["shape"], t["packed"])
                          for t in self.json("info", packed)["tensors"]],
                         [("layer.0.weight", dtype, [rows, cols], True),
                          ("other", dtype, [7], False)])
        self.assertIs(self.json("check", packed)["ok"], True)
        self.good("unpack", packed, "back-" + source)
        self.assertEqual(read(self.folder / ("back-" + source)), read(self.folder / source))

    def test_there_and_back_bit_for_bit(self):
        for dtype in DTYPES:
            for rows, cols in ((8, 16), (3, 4), (5, 20)):
                with self.subTest(dtype=dtype, rows=rows, cols=cols):
                    self.there_and_back(dtype, rows, cols)

    def test_packing_what_is_packed_changes_nothing(self):
        self.good("pack", "sparse.safetensors", "once.safetensors")
        self.assertEqual(self.json("pack", "once.safetensors", "twice.safetensors")["layers"], [])
        self.assertEqual(read(self.folder / "once.safetensors"),
                         read(self.folder / "twice.safetensors"))

    def test_unpack_takes_every_packed_tensor_but_those_left_out(self):
        self.good("pack", "sparse.safetensors", "p.safetensors")
        kept = self.json("unpack", "p.safetensors", "k.safetensors", "--exclude", "*fc*")
        self.assertEqual(kept["layers"], [])
        self.assertEqual(len(self.json("unpack", "p.safetensors", "u.safetensors")["layers"]), 1)

    def test_an_output_may_be_the_input(self):
        before = read(self.folder / "sparse.safetensors")
        self.good("pack", "sparse.safetensors", "sparse.safetensors", "--force")
        found = self.json("info", "sparse.safetensors")["tensors"]
        self.assertEqual([t["packed"] for t in found], [False, True, False])
        self.good("unpack", "sparse.safetensors", "sparse.safetensors", "--force")
        self.assertEqual(read(self.folder / "sparse.safetensors"), before)

    def test_what_cannot_be_packed(self):
        self.refusals([
            ("not 2:4", ["pack", "dense.safetensors", "new"], 4,
             r"blocks\.layer\.0\.fc\.weight.*row 5"),
            ("not a number", ["pack", "nan.safetensors", "new"], 4, r"layer\.0\.weight.*row 2"),
            ("no rows", ["pack", "hollow.safetensors", "new"], 4,
             r"layer\.0\.weight: \[0, 16\] is empty"),
            ("odd k", ["pack", "odd.safetensors", "new"], 4, r"layer\.0\.weight: k = 6"),
            ("a vector", ["pack", "sparse.safetensors", "new", "--include", "*bias"], 2,
             r"--include \*bias selects none"),
        ])

    def test_nothing_is_replaced_without_force(self):
        self.refusals([
            (f"{command} onto {path}", [command, "sparse.safetensors", path], 3,
             path + r" exists.*; --force replaces it")
            for command in ("pack", "unpack", "prune") for path in ("taken.safetensors", "taken")])
        for command in ("pack", "unpack", "prune"):
            self.good(command, "sparse.safetensors", "taken.safetensors", "--force")
            self.assertIn("blocks.layer.0.fc.bias", read(self.folder / "taken.safetensors")[0])
            (self.folder / "taken.safetensors").write_bytes(b"precious")

    def test_force_replaces_files_only(self):
        os.mkfifo(self.folder / "pipe")
        for out, sentence in (("pipe", r"pipe is a device or pipe, so it is not replaced"),
                              ("taken", r"taken is a folder, but a file is to be written")):
            done = run("pack", "sparse.safetensors", out, "--force", cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertRegex(done.stderr, sentence)
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertEqual((self.folder / "taken/precious").read_bytes(), b"precious")

    def test_places_that_cannot_be_written(self):
        self.refusals([
            ("no folder", ["pack", "sparse.safetensors", "missing/new"], 3, r"missing/new"),
            ("no entry, for root either", ["pack", "sparse.safetensors", "/proc/new"], 3,
             r"/proc/new"),
            ("below a file", ["pack", "sparse.safetensors", "odd.safetensors/new"], 3, r"new")])

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_a_read_only_folder(self):
        (self.folder / "locked").mkdir(mode=0o555)
        done = run("pack", "sparse.safetensors", "locked/new.safetensors", cwd=self.folder)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(listing(self.folder / "locked"), {})

    def test_a_failed_run_leaves_the_file_it_would_replace(self):
        before = listing(self.folder)
        done = run("pack", "dense.safetensors", "taken.safetensors", "--force", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertEqual(listing(self.folder), before)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_standard_output_that_is_full(self):
        for more in ([], ["--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, "info", "sparse.safetensors", *more], stdout=full,
                                      stderr=subprocess.PIPE, text=True, cwd=self.folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn("standard output could not be written", done.stderr)

    def test_a_reader_that_went_away_is_told_nothing(self):
        for more in ([], ["--json"]):
            ours, theirs = os.pipe()
            os.close(ours)
            done = subprocess.run([PROGRAM, "info", "sparse.safetensors", *more], stdout=theirs,
                                  stderr=subprocess.PIPE, text=True, cwd=self.folder)
            os.close(theirs)
            self.assertEqual((done.returncode, done.stderr), (3, ""))

    def test_what_lies_in_a_file_s_place(self):
        sparse = (self.folder / "sparse.safetensors").read_bytes()
        for name, data, sentence in (
                ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
                 "lfs.safetensors: this is a Git LFS pointer; safetensors are expected"),
                ("half", sparse[:-40], r"half.safetensors: tensor .* \(cut short\?\)")):
            (self.folder / f"{name}.safetensors").write_bytes(data)
            done = run("info", f"{name}.safetensors", cwd=self.folder)
            self.assertEqual(done.returncode, 4)
            self.assertRegex(done.stderr, sentence)

    def test_talk_is_on_standard_error_and_quiet_when_asked(self):
        done = self.good("pack", "sparse.safetensors", "a.safetensors")
        self.assertRegex(done.stderr, r"fc\.weight  512 -> \d+ bytes")
        self.assertRegex(done.stdout, r"packed 1 tensor:")
        self.assertEqual(self.good("pack", "sparse.safetensors", "b.safetensors", "-q").stderr, "")


if __name__ == "__main__":
    unittest.main()
