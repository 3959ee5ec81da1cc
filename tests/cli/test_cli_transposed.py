# SPDX-License-Identifier: Apache-2.0
"""Weights that lie transposed, [in, out], as GPT-2's: what prune, check, info, pack and unpack
make of them, by model type and, without one, by their shapes; and what runs a packed folder."""
import json
import struct
import subprocess
import sys
import unittest

from cli_case import SOURCE, Scratch, run
import test_cli_eval
from test_cli_train_sets import randomise
from cli_data import floats, matrix, read, tensor, write

C_FC, C_ATTN = "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.attn.c_attn.weight"
PROJ = "transformer.h.0.attn.c_proj.weight"


def numbers(entry):
    """Rows of floats of what read() gave for a tensor."""
    dtype, (rows, cols), raw = entry
    if dtype == "F16":
        values = list(struct.unpack(f"<{rows * cols}e", raw))
    else:
        values = floats(raw)
    return [values[r * cols:(r + 1) * cols] for r in range(rows)]


def columns(rows):
    return [list(column) for column in zip(*rows)]


def is_two_four(rows):
    """At most two non-zeros in every four of a row."""
    return all(sum(v != 0 for v in row[i:i + 4]) <= 2
               for row in rows for i in range(0, len(row), 4))


def kept(row):
    """The two largest of every four, of equals the later."""
    out = []
    for begin in range(0, len(row), 4):
        group = row[begin:begin + 4]
        best = sorted(range(4), key=lambda i: (abs(group[i]), i))[2:]
        out += [v if i in best else 0 for i, v in enumerate(group)]
    return out


def dense(rows, cols, seed=1):
    return tensor("f32", (rows, cols), matrix("f32", rows, cols, kept=4, seed=seed))


def make(folder):
    test_cli_eval.make_others(folder)
    randomise(folder / "gpt2", 3)
    # A block of Conv1D [in, out], of Linear [out, in], and layers that do not tell.
    conv = {C_ATTN: dense(8, 24), PROJ: dense(8, 8, 2), C_FC: dense(8, 32, 3)}
    linear = {C_ATTN: dense(24, 8), PROJ: dense(8, 8, 2), C_FC: dense(32, 8, 3)}
    write(folder / "conv.safetensors", conv)
    write(folder / "linear.safetensors", linear)
    write(folder / "square.safetensors", {PROJ: dense(8, 8, 2), "other.weight": dense(8, 8)})
    write(folder / "odd.safetensors", {C_FC: dense(6, 32), C_ATTN: dense(8, 24)})
    for name, tensors, config in (("typed", {PROJ: dense(8, 8, 2)}, {"model_type": "gpt2"}),
                                  ("bigcode", linear, {"model_type": "gpt_bigcode"}),
                                  ("openai", conv, {"model_type": "openai-gpt"})):
        (folder / name).mkdir()
        write(folder / name / "model.safetensors", tensors)
        (folder / name / "config.json").write_text(json.dumps(config))
    crossed = "transformer.h.0.crossattention.q_attn.weight"
    (folder / "crossed").mkdir()
    write(folder / "crossed/model.safetensors", {crossed: dense(8, 8, 2)})
    (folder / "crossed/config.json").write_text('{"model_type": "gpt2"}')


class Transposed(Scratch):
    make = staticmethod(make)

    def tensors(self, name):
        path = self.folder / name
        return read(path / "model.safetensors" if path.is_dir() else path)[0]

    def check(self, name, *more, exit=0):
        found = self.json("check", name, *more, exit=exit)
        return {t["name"]: t for t in found["tensors"]}

    def layers_of(self, name):
        return [n for n, e in self.tensors(name).items() if ".h." in n and len(e[1]) == 2]

    def test_prune_goes_along_the_inputs(self):
        """By default, and where a name is given: each output keeps the two largest of four
        inputs."""
        self.good("prune", "gpt2", "all")
        before, after = self.tensors("gpt2"), self.tensors("all")
        layers = self.layers_of("gpt2")
        self.assertEqual(len(layers) % 4, 0)
        for name in before:
            if name in layers:
                self.assertEqual(columns(numbers(after[name])),
                                 [kept(column) for column in columns(numbers(before[name]))], name)
            else:
                self.assertEqual(after[name], before[name], name)
        self.good("prune", "gpt2", "fc", "--include", "*c_fc.weight")
        one = self.tensors("fc")
        for name in before:
            self.assertEqual(one[name], (after if "c_fc.weight" in name else before)[name], name)

    def test_calibration_goes_along_the_inputs(self):
        for method in ("wanda", "sparsegpt"):
            found = self.json("prune", "gpt2", method, "--method", method, "--calibration", "text")
            self.assertEqual(sorted(layer["name"] for layer in found["layers"]),
                             sorted(self.layers_of("gpt2")))
            self.assertTrue(all(0 < layer["output_error"] < 1 for layer in found["layers"]))
            after = self.tensors(method)
            for name in self.layers_of("gpt2"):
                self.assertTrue(is_two_four(columns(numbers(after[name]))), name)

    def test_prune_tells_what_it_did(self):
        found = self.json("prune", "gpt2", "out")
        self.assertEqual(sorted(layer["name"] for layer in found["layers"]),
                         sorted(self.layers_of("gpt2")))
        before, after = self.tensors("gpt2"), self.tensors("out")
        for layer in found["layers"]:
            old, new = before[layer["name"]], after[layer["name"]]
            self.assertEqual([layer["rows"], layer["cols"]], old[1])
            share = (sum(map(abs, floats(new[2]))) / sum(map(abs, floats(old[2]))))
            self.assertAlmostEqual(layer["kept_l1"], share, places=5)

    def test_dtypes_and_tiles(self):
        self.good("prune", "gpt2", "half", "--dtype", "f16")
        self.good("prune", "gpt2", "tiles", "--method", "tile-best")
        for name in self.layers_of("gpt2"):
            half, tiles = numbers(self.tensors("half")[name]), numbers(self.tensors("tiles")[name])
            self.assertEqual(self.tensors("half")[name][0], "F16")
            self.assertTrue(is_two_four(columns(half)))
            self.assertTrue(is_two_four(columns(tiles)) and is_two_four(tiles))
        self.assertTrue(self.json("check", "half")["ok"])
        self.assertTrue(self.json("check", "tiles", "--both")["ok"])
        done = run("check", "half", "--both", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout,
                         r"transposed: row \d+ has [34] non-zeros in columns \d+ to \d+")

    def test_check_looks_along_the_inputs(self):
        self.good("prune", "gpt2", "pruned")
        for name, found in self.check("pruned").items():
            is_layer = name in self.layers_of("gpt2")
            self.assertEqual((found["selected"], found.get("transposed", False)),
                             (is_layer, is_layer), name)
            if is_layer:
                self.assertTrue(found["two_four"])
        found = self.check("gpt2", exit=1)
        for name in self.layers_of("gpt2"):
            # The first output whose first four inputs are all there.
            self.assertEqual(found[name]["first_bad"], {"row": 0, "col": 0})
        # 2:4 along the outputs only, as if columns were k.
        rows = [[1.0, 1.0, 0.0, 0.0] * 8] * 8
        raw = struct.pack("<256f", *[v for row in rows for v in row])
        write(self.folder / "wrong.safetensors", {C_FC: tensor("f32", (8, 32), raw)})
        found = self.check("wrong.safetensors", "--both", exit=1)[C_FC]
        self.assertEqual((found["two_four"], found["two_four_n"]), (False, True))
        self.good("prune", "wrong.safetensors", "right.safetensors")
        self.good("check", "right.safetensors")
        done = run("check", "wrong.safetensors", cwd=self.folder)
        self.assertRegex(done.stdout, r"transposed: column 0 has 4 non-zeros in rows 0 to 3")

    def test_info_says_how_they_lie(self):
        found = {t["name"]: t for t in self.json("info", "gpt2")["tensors"]}
        for name, entry in found.items():
            self.assertEqual(entry.get("transposed", False), name in self.layers_of("gpt2"), name)
        self.assertRegex(self.good("info", "gpt2").stdout, r"dense \[in, out\] .*c_fc\.weight")

    def test_without_a_model_type_shapes_tell(self):
        for name in ("conv.safetensors", "openai"):
            out = "out-" + name
            done = self.good("prune", name, out)
            self.assertRegex(done.stderr,
                             r"no model type says so, but '.*' \[8, 24\] has more outputs")
            for layer in (C_ATTN, PROJ, C_FC):
                self.assertTrue(is_two_four(columns(numbers(self.tensors(out)[layer]))), layer)
            self.assertTrue(self.json("check", out)["ok"])
        for name in ("linear.safetensors", "bigcode"):
            out = "out-" + name
            self.good("prune", name, out, "--include", "*.weight")
            for layer in (C_ATTN, PROJ, C_FC):
                self.assertTrue(is_two_four(numbers(self.tensors(out)[layer])), layer)
            self.assertTrue(self.json("check", out, "--include", "*.weight")["ok"])
            self.good("pack", out, "packed-" + name, "--include", "*.weight")

    def test_a_model_type_tells_of_square_ones(self):
        for name in ("typed", "crossed"):
            self.good("prune", name, "out-" + name)
            (entry,) = self.tensors("out-" + name).values()
            self.assertTrue(is_two_four(columns(numbers(entry))), name)

    def test_k_that_no_four_divides(self):
        done = self.good("prune", "odd.safetensors", "out.safetensors")
        self.assertRegex(done.stderr, r"c_fc\.weight' \[6, 32\] is passed through: its rows do not")
        self.assertEqual(self.tensors("out.safetensors")[C_FC],
                         self.tensors("odd.safetensors")[C_FC])

    def test_unpack_copies_them(self):
        self.good("unpack", "gpt2", "same")
        self.assertEqual(self.tensors("same"), self.tensors("gpt2"))

    def test_refusals(self):
        unknown = (r"tensor 'transformer\.h\.0\.attn\.c_proj\.weight' may be stored \[in, out\], "
                   r".* or \[out, in\]; neither a model type")
        raw = bytearray(self.tensors("conv.safetensors")[C_FC][2])
        raw[4 * (3 * 32 + 5):4 * (3 * 32 + 6)] = struct.pack("<f", float("nan"))
        write(self.fixtures / "nan.safetensors", {C_FC: tensor("f32", (8, 32), bytes(raw))})
        self.refusals([
            ("pack what is not 2:4", ["pack", "gpt2", "out"], 4,
             r"c_attn\.weight: .*column 0, rows 0 to 3 have 4 non-zeros.*'sparse24 prune' makes"),
            ("a file of it", ["pack", "conv.safetensors", "out.safetensors"], 4,
             r"c_attn\.weight: .*column 0, rows 0 to 3 have 4 non-zeros"),
            ("quantise it", ["pack", "gpt2", "out", "--quantize", "int8"], 4, "column 0, rows 0"),
            ("k that no four divides", ["pack", "odd.safetensors", "o.safetensors", "--include",
                                        "*c_fc*"], 4, r"c_fc\.weight: k = 6 is no multiple of 4"),
            ("prune what does not tell", ["prune", "square.safetensors", "out.safetensors",
                                          "--include", "*"], 5, unknown),
            ("check it", ["check", "square.safetensors", "--include", "*c_proj*"], 5, unknown),
            ("pack it", ["pack", "square.safetensors", "o.safetensors", "--include", "*"], 5,
             unknown),
            ("nothing by default", ["prune", "square.safetensors", "out.safetensors"], 2,
             r"no linear layer inside numbered blocks"),
            ("not finite", ["prune", "nan.safetensors", "out.safetensors"], 4,
             r"c_fc\.weight' has NaN at row 3, column 5"),
        ])
        # What does not tell harms nobody who does not ask for it.
        self.good("prune", "square.safetensors", "out.safetensors", "--include", "other*")


class Packed(Scratch):
    """pruned: every layer 2:4 and dense; packed: the same, packed."""
    @staticmethod
    def make(folder):
        make(folder)
        (folder / "gpt2/modules.json").write_text(json.dumps([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling",
             "type": "sentence_transformers.models.Pooling"}]))
        (folder / "gpt2/1_Pooling").mkdir()
        (folder / "gpt2/1_Pooling/config.json").write_text(
            '{"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true}')
        (folder / "ids").write_text("1 2 3 0 2\n2 1\n")
        for command in (("prune", "gpt2", "pruned"), ("pack", "pruned", "packed")):
            run(*command, cwd=folder).check_returncode()

    def layers(self):
        return {n: e for n, e in read(self.folder / "pruned/model.safetensors")[0].items()
                if ".h." in n and len(e[1]) == 2}

    def same(self, a, b):
        self.assertEqual(*((self.folder / name / "model.safetensors").read_bytes()
                           for name in (a, b)))

    def test_there_and_back(self):
        """unpack gives the pruned folder's bytes; prune --packed those of pack."""
        tensors, metadata = read(self.folder / "packed/model.safetensors")
        self.assertEqual(metadata["sparse24.version"], "4")
        self.assertEqual(json.loads(metadata["sparse24.packed"]),
                         {name: entry[1][::-1] + ["transposed"]
                          for name, entry in self.layers().items()})
        for name, (_, (k, n), _) in self.layers().items():
            self.assertEqual(tensors[name + ".s24_values"][:2], ("F32", [n, k // 2]))
        self.good("unpack", "packed", "back")
        self.same("back", "pruned")
        self.good("prune", "gpt2", "at-once", "--packed")
        self.same("at-once", "packed")
        self.good("pack", "packed", "again")
        self.same("again", "packed")
        self.good("unpack", "packed", "some", "--exclude", "*c_fc*")
        self.good("pack", "some", "all")
        self.same("all", "packed")

    def test_the_decoder_gives_the_pruned_tensors(self):
        for options in ((), ("--layout", "cpu")):
            self.good("pack", "packed", "out", *options, "--force")
            subprocess.run([sys.executable, SOURCE / "tools/decode_s24.py",
                            self.folder / "out/model.safetensors", self.folder / "decoded"],
                           check=True)
            self.assertEqual(read(self.folder / "decoded")[0],
                             read(self.folder / "pruned/model.safetensors")[0])

    def test_what_is_said_of_them(self):
        found = {t["name"]: t for t in self.json("info", "packed")["tensors"]}
        checked = {t["name"]: t for t in self.json("check", "packed")["tensors"]}
        for name, (_, (k, n), _) in self.layers().items():
            self.assertEqual((found[name]["shape"], found[name]["matrix"]), ([k, n], [n, k]))
            self.assertEqual((found[name]["packed"], found[name]["transposed"]), (True, True))
            entry = checked[name]
            self.assertEqual((entry["rows"], entry["cols"], entry["matrix"]), (k, n, [n, k]))
            self.assertEqual((entry["two_four"], entry["transposed"]), (True, True))
        self.assertRegex(self.good("info", "packed").stdout,
                         r"\[4, 12\] +2:4 +as \[12, 4\] .*c_attn\.weight")
        self.assertRegex(self.good("check", "packed").stdout,
                         r"ok .*c_attn\.weight  \[4, 12\] f32 packed as \[12, 4\] transposed")
        # Along the other side the places are those of the file, packed or not.
        both = [[(t["name"], t["two_four_n"], t["first_bad_n"]) for t in self.json(
            "check", name, "--both", exit=1)["tensors"] if t["selected"]]
            for name in ("pruned", "packed")]
        self.assertEqual(*both)

    def test_every_form(self):
        """Integers and layouts, from dense weights and from packed ones."""
        for scheme in ("int8", "int4", "int4-g64"):
            for source in ("pruned", "packed"):
                self.good("pack", source, source + "-q", "--quantize", scheme, "--force")
            self.same("pruned-q", "packed-q")
            self.good("unpack", "packed-q", "wide", "--force")
            wide = read(self.folder / "wide/model.safetensors")[0]
            for name, entry in self.layers().items():
                self.assertEqual(wide[name][1], entry[1])
                most = max(map(abs, floats(entry[2])))
                for a, b in zip(floats(wide[name][2]), floats(entry[2])):
                    self.assertAlmostEqual(a, b, delta=most / (100 if scheme == "int8" else 8))
        for source in ("pruned", "packed"):
            self.good("pack", source, source + "-cpu", "--layout", "cpu")
        self.same("pruned-cpu", "packed-cpu")
        self.good("unpack", "packed-cpu", "back")
        self.same("back", "pruned")

    def test_narrow_ones(self):
        self.good("prune", "gpt2", "half", "--dtype", "bf16")
        self.good("pack", "half", "half-packed")
        self.good("unpack", "half-packed", "back")
        self.same("back", "half")

    def test_pruned_again(self):
        """A packed input is pruned, dense or packed, as the tensors that it stands for."""
        self.good("prune", "packed", "dense")
        self.good("prune", "packed", "same", "--packed")
        self.same("dense", "pruned")
        self.same("same", "packed")
        reports = [self.json("prune", name, "out-" + name, "--method", "wanda", "--calibration",
                             "text")["layers"] for name in ("pruned", "packed")]
        self.assertEqual(*reports)
        self.same("out-pruned", "out-packed")

    def test_a_single_file(self):
        """What is packed tells of what lies next to it."""
        self.good("prune", "conv.safetensors", "p.safetensors")
        self.good("pack", "p.safetensors", "q.safetensors", "--include", "*c_attn*")
        self.good("pack", "q.safetensors", "r.safetensors")
        self.good("unpack", "r.safetensors", "s.safetensors")
        self.assertEqual(*((self.folder / f"{name}.safetensors").read_bytes() for name in "ps"))
        self.assertTrue(self.json("check", "r.safetensors")["ok"])

    def test_loss_and_vectors_are_the_same(self):
        def loss(model):
            return self.json("eval", model, "--task", "lm", "--data", "text")["loss"]
        self.good("pack", "packed", "cpu", "--layout", "cpu")
        self.assertNotAlmostEqual(loss("gpt2"), loss("pruned"), places=4)
        for name in ("packed", "cpu"):
            self.assertAlmostEqual(loss(name), loss("pruned"), places=5)
        vectors = {}
        for name, way in (("pruned", "--dense"), ("packed", "--dense"),
                              ("packed", "--sparse"), ("cpu", "--dense"), ("cpu", "--sparse")):
            found = self.json("embed", name, "--ids", "--input", "ids", "--output",
                              "v.safetensors", "--force", way)
            self.assertEqual(found["sparse_layers"], 4 if way == "--sparse" else 0)
            vectors[name, way] = floats(read(self.folder / "v.safetensors")[0]["embeddings"][2])
        for got in vectors.values():
            for a, b in zip(got, vectors["pruned", "--dense"]):
                self.assertAlmostEqual(a, b, delta=1e-5)

    def test_training_keeps_them_packed(self):
        self.good("train", "packed", "out", "--stream", "text", "--max-tokens", "8", "--steps", "3",
                  "--threads", "1")
        self.good("train", "pruned", "dense", "--stream", "text", "--max-tokens", "8", "--steps",
                  "3", "--threads", "1")
        self.assertEqual(read(self.folder / "out/model.safetensors")[1]["sparse24.version"], "4")
        self.assertTrue(self.json("check", "out")["ok"])
        self.good("unpack", "out", "back")
        self.assertEqual(read(self.folder / "back/model.safetensors"),
                         read(self.folder / "dense/model.safetensors"))

    def test_refusals(self):
        """Packed as BERT's would be, or a BERT packed as GPT-2's."""
        def file_of(shape, mark, name):
            n, k = shape
            data = {name + ".s24_values": tensor("f32", (n, k // 2), bytes(n * k * 2)),
                    name + ".s24_indices": {"dtype": "U8", "shape": [n, -(-k // 8)],
                                            "data": (b"\x44" * (k // 8) + b"\4" * (k % 8 > 0)) * n}}
            return data, {"sparse24.version": "4" if mark else "1",
                          "sparse24.packed": json.dumps({name: [n, k] + mark})}
        name = "transformer.h.0.attn.c_attn.weight"
        tensors = read(self.fixtures / "gpt2/model.safetensors")[0]
        others = {n: {"dtype": d, "shape": s, "data": raw} for n, (d, s, raw) in tensors.items()
                  if n != name}
        k, n = tensors[name][1]
        for folder, shape, mark in (("unmarked", (n, k), []), ("turned", (k, n), ["transposed"])):
            data, metadata = file_of(shape, mark, name)
            subprocess.run(["cp", "-r", self.fixtures / "gpt2", self.fixtures / folder], check=True)
            write(self.fixtures / folder / "model.safetensors", others | data, metadata)
        vectors = ["--ids", "--input", "ids", "--output", "v.npy"]
        self.refusals([
            ("no mark", ["embed", "unmarked", *vectors], 4,
             rf"'{name}' is packed for a model that stores it \[out, in\]; \[in, out\] was"),
            ("no mark, loss", ["eval", "unmarked", "--task", "lm", "--data", "text"], 4,
             r"is packed for a model that stores it \[out, in\]"),
            ("no mark, by name", ["prune", "unmarked", "out", "--include", "*c_attn*"], 5,
             rf"'{name}' is packed along its outputs: .* layers of model type gpt2 are stored"),
            ("another shape", ["embed", "turned", *vectors], 4,
             rf"'{name}' is \[{k}, {n}\]; \[{n}, {k}\] was expected by config.json"),
        ])


if __name__ == "__main__":
    unittest.main()
