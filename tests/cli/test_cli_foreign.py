# SPDX-License-Identifier: Apache-2.0
"""convert between ways of storing weights: numbers of each scheme of compressed-tensors to the bit,
ours and PyTorch's parts and back, folders that run as before, and files that are refused."""
import json
import struct
import unittest
import unittest.mock

from cli_case import Scratch
import cli_data
import foreign_data as data
from foreign_data import COLS, LAYER, ROWS
import tiny_bert

WEIGHT = f"{LAYER}.weight"


def floats(entry):
    dtype, _, raw = entry
    if dtype == "F32":
        return cli_data.floats(raw)
    if dtype == "F16":
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


class Schemes(Scratch):
    @staticmethod
    def make(folder):
        for name, scheme in data.SCHEMES.items():
            data.write(folder / f"{name}.safetensors", scheme()[1])

    def read(self, name):
        return cli_data.read(self.folder / name)[0]

    def test_the_bytes_are_those_of_the_libraries(self):
        self.assertEqual({name: data.digest(make()[1]) for name, make in data.SCHEMES.items()},
                         data.HASHES)

    def test_dense_numbers_are_exact(self):
        for name, make in data.SCHEMES.items():
            with self.subTest(name):
                found = self.json("convert", f"{name}.safetensors", "out.safetensors", "--to",
                                  "dense", "--dtype", "f32", "--force")
                self.assertEqual((found["scheme"], found["weights"], found["tensors"]),
                                 (f"compressed-tensors {name.split()[0]}", 1, 2))
                out = self.read("out.safetensors")
                self.assertEqual(set(out), {WEIGHT, "model.norm.weight"})
                self.assertEqual(out[WEIGHT][:2], ("F32", [ROWS, COLS]))
                self.assertEqual(floats(out[WEIGHT]), data.flat(make()[0]))

    def test_ours_has_the_same_numbers_and_keeps_integers(self):
        for name, make in data.SCHEMES.items():
            with self.subTest(name):
                done = self.json("convert", f"{name}.safetensors", "out.safetensors", "--force")
                sparse = name.startswith(("sparse-24", "marlin"))
                integers = not name.startswith(("sparse", "float"))
                self.assertEqual((done["two_four"], done["integers"]), (sparse, integers))
                listed = {t["name"]: t for t in self.json("info", "out.safetensors")["tensors"]}
                bits = f"int{name.split()[1]}" if " " in name else "int8"
                group = "-g128" if name.endswith(" 128") else ""
                self.assertEqual(listed[WEIGHT]["quantized"], bits + group if integers else None)
                self.assertEqual(listed[WEIGHT]["packed"], sparse)
                self.good("convert", "out.safetensors", "dense.safetensors", "--to", "dense",
                          "--dtype", "f32", "--force")
                self.assertEqual(floats(self.read("dense.safetensors")[WEIGHT]),
                                 data.flat(make()[0]))

    def test_there_and_back_gives_the_same_bytes(self):
        first = "sparse-24-bitmask.safetensors"
        self.good("convert", first, "ours.safetensors")
        self.good("convert", "ours.safetensors", "again.safetensors", "--to", "compressed-tensors")
        self.assertEqual(self.read("again.safetensors"), self.read(first))
        done = self.good("convert", "ours.safetensors", "torch.safetensors", "--to", "torch")
        self.assertIn("1 of 2 tensors 2:4", done.stdout)
        parts = self.read("torch.safetensors")
        self.assertEqual({n: parts[n][:2] for n in parts if n.startswith(WEIGHT)},
                         {f"{WEIGHT}.packed": ("BF16", [ROWS, COLS // 2]),
                          f"{WEIGHT}.meta": ("I16", [ROWS, COLS // 16]),
                          f"{WEIGHT}.shape": ("I64", [2])})
        self.good("convert", "torch.safetensors", "back.safetensors")
        self.assertEqual((self.folder / "back.safetensors").read_bytes(),
                         (self.folder / "ours.safetensors").read_bytes())

    def test_zero_points_groups_and_short_groups_become_floats(self):
        integers, by = data.dense(), data.scales(32)
        zeros = [[(r + g) % 16 - 8 for g in range(COLS // 32)] for r in range(ROWS)]
        packed = [zeros[r][g] + 8 for r0 in range(0, ROWS, 8) for g in range(COLS // 32)
                  for r in range(r0, r0 + 8)]
        order = [(c * 7) % 16 for c in range(COLS)]
        parts = {
            f"{LAYER}.weight_packed": data.entry(
                "I32", [ROWS, COLS // 8], data.words([q + 8 for q in data.flat(integers)], 4)),
            f"{LAYER}.weight_scale": data.entry("F16", [ROWS, COLS // 32],
                                                data.halves(data.flat(by))),
            f"{LAYER}.weight_shape": data.whole([ROWS, COLS]),
            f"{LAYER}.weight_zero_point": data.entry("I32", [ROWS // 8, COLS // 32],
                                                     data.words(packed, 4)),
            f"{LAYER}.weight_g_idx": data.entry("I32", [COLS], struct.pack(f"<{COLS}i", *order)),
            f"{LAYER}.input_scale": data.entry("F32", [1], struct.pack("<f", 0.5))}
        data.write(self.folder / "z.safetensors", parts)
        done = self.json("convert", "z.safetensors", "out.safetensors")
        self.assertEqual((done["integers"], done["dropped"]), (0, 1))
        out = self.read("out.safetensors")
        self.assertEqual(out[WEIGHT][0], "F16")
        self.assertEqual(floats(out[WEIGHT]),
                         [(q - zeros[r][order[c]]) * by[r][order[c]]
                          for r, row in enumerate(integers) for c, q in enumerate(row)])

    def test_kin_have_the_same_numbers(self):
        for name, (scheme, make) in data.KIN.items():
            rows, parts = make()
            data.write(self.folder / "kin.safetensors", parts)
            for to in ("dense", "sparse24"):
                with self.subTest(name, to=to):
                    done = self.json("convert", "kin.safetensors", "out.safetensors", "--to", to,
                                     "--dtype", "f32", "--force")
                    self.assertEqual((done["scheme"], done["weights"]), (scheme, 1))
                    self.good("convert", "out.safetensors", "dense.safetensors", "--to", "dense",
                              "--force")
                    out = self.read("dense.safetensors")
                    self.assertEqual(set(out), {WEIGHT, "model.norm.weight"})
                    self.assertEqual(floats(out[WEIGHT]), data.flat(rows))

    def test_info_names_the_scheme(self):
        done = self.good("info", "marlin-24 4 128.safetensors")
        self.assertIn("weights stored as compressed-tensors marlin-24: 'sparse24 convert",
                      done.stdout)
        self.assertEqual(self.json("info", "int-quantized.safetensors")["scheme"],
                         "compressed-tensors int-quantized")
        self.good("convert", "int-quantized.safetensors", "out.safetensors")
        self.assertIsNone(self.json("info", "out.safetensors")["scheme"])


class Pieces(Scratch):
    """Weights of which more is made than is written at a time."""

    def read(self, name):
        return cli_data.read(self.folder / name)[0]

    def test_floats(self):
        rows, cols = 1500, 1024
        codes = [c * 13 % 127 for c in range(cols)]
        by = [2.0 ** -(r % 5) for r in range(rows)]
        wide = [(q % 8 + 8 * (q > 7)) * 2.0 ** (max(q // 8, 1) - 10) for q in codes]
        parts = {WEIGHT: data.entry("F8_E4M3", [rows, cols], bytes(codes) * rows),
                 f"{WEIGHT}_scale": data.entry("F32", [rows, 1], struct.pack(f"<{rows}f", *by))}
        data.write(self.folder / "in.safetensors", parts)
        self.good("convert", "in.safetensors", "out.safetensors", "--dtype", "f32")
        lines = [struct.pack(f"<{cols}f", *(v * 2.0 ** -i for v in wide)) for i in range(5)]
        self.assertEqual(self.read("out.safetensors")[WEIGHT][2], b"".join(lines) * (rows // 5))
        by[1300] = by[1400] = 2.0 ** 120
        parts[f"{WEIGHT}_scale"]["data"] = struct.pack(f"<{rows}f", *by)
        data.write(self.folder / "large.safetensors", parts)
        column = next(c for c, v in enumerate(wide) if v >= 256)
        self.fixtures = self.folder
        self.refusals([("second piece", ("convert", "large.safetensors", "no.safetensors"), 4,
                        rf"weight.: row 1300, column {column}, times its scale, is beyond f32")])

    def test_integers_whose_words_have_bits_to_spare(self):
        rows, cols = 9000, 1028
        lines = [bytes((i * 7 + r * 29) % 256 for i in range(cols // 2)) for r in range(3)]
        data.write(self.folder / "in.safetensors", {
            f"{WEIGHT}_packed": data.entry("I32", [rows, 129],
                                           b"".join(x + b"\0\0" for x in lines) * (rows // 3)),
            f"{WEIGHT}_scale": data.entry("BF16", [rows, 1], data.brains([0.5]) * rows),
            f"{WEIGHT}_shape": data.whole([rows, cols])})
        self.good("convert", "in.safetensors", "out.safetensors")
        self.assertEqual(self.read("out.safetensors")[f"{WEIGHT}.s24_values"][2],
                         b"".join(bytes(b ^ 0x88 for b in x) for x in lines) * (rows // 3))

    def test_marlin_of_several_runs(self):
        for bits in (4, 8):
            with unittest.mock.patch.object(data, "ROWS", 3 * ROWS), self.subTest(bits):
                numbers, parts = data.marlin_24(bits, 128)
                data.write(self.folder / "in.safetensors", parts)
                self.good("convert", "in.safetensors", "out.safetensors", "--to", "dense",
                          "--dtype", "f32", "--force")
                self.assertEqual(floats(self.read("out.safetensors")[WEIGHT]), data.flat(numbers))

    def test_marlin_in_pieces(self):
        _, parts = data.marlin_24(4, 128)
        outs = []
        for times in (1, 257):
            data.write(self.folder / "in.safetensors", data.many_rows(parts, times))
            self.good("convert", "in.safetensors", "out.safetensors", "--force")
            outs.append({k: v[2] for k, v in self.read("out.safetensors").items()
                         if k.startswith(WEIGHT)})
        self.assertEqual(len(outs[0]), 3)
        self.assertEqual(outs[1], {k: v * 257 for k, v in outs[0].items()})


class Folders(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")
        (folder / "texts").write_text("read the file\nwrite a line\n")

    def embedded(self, model):
        """With each 2:4 layer 2:4: which are faster dense is measured anew, and differs by bits."""
        self.good("embed", model, "--input", "texts", "--output", "v.safetensors", "--force",
                  "--sparse")
        return cli_data.read(self.folder / "v.safetensors")[0]["embeddings"]

    def test_a_rescued_model_gives_what_it_gave(self):
        self.good("prune", "model", "pruned")
        self.good("pack", "pruned", "packed")
        expected = self.embedded("packed")
        self.good("convert", "packed", "theirs", "--to", "compressed-tensors")
        config = json.loads((self.folder / "theirs" / "config.json").read_text())
        before = json.loads((self.folder / "packed" / "config.json").read_text())
        said = config.pop("quantization_config")
        self.assertEqual(config, before)
        self.assertEqual(said["sparsity_config"]["format"], "sparse-24-bitmask")
        self.assertEqual(len(said["sparsity_config"]["targets"]), 6 * tiny_bert.LAYERS)
        done = self.json("convert", "theirs", "rescued")
        self.assertEqual((done["weights"], done["two_four"]), (6 * tiny_bert.LAYERS,) * 2)
        self.assertEqual(json.loads((self.folder / "rescued" / "config.json").read_text()), before)
        self.assertEqual(cli_data.read(self.folder / "rescued" / "model.safetensors"),
                         cli_data.read(self.folder / "packed" / "model.safetensors"))
        self.assertEqual(self.embedded("rescued"), expected)
        self.good("convert", "theirs", "dense", "--to", "dense")
        self.assertEqual(cli_data.read(self.folder / "dense" / "model.safetensors")[0],
                         cli_data.read(self.folder / "pruned" / "model.safetensors")[0])

    def test_dense_weights_that_are_two_four_are_packed(self):
        self.good("prune", "model", "pruned")
        self.good("convert", "pruned", "ours")
        self.good("pack", "pruned", "packed")
        self.assertEqual(cli_data.read(self.folder / "ours" / "model.safetensors"),
                         cli_data.read(self.folder / "packed" / "model.safetensors"))
        done = self.json("convert", "model", "same")
        self.assertEqual((done["two_four"], done["scheme"]), (0, None))

    def test_a_folder_of_files_has_an_index_that_is_read_again(self):
        for scheme, make in data.SCHEMES.items():
            with self.subTest(scheme):
                folder = self.folder / scheme.replace(" ", "-")
                folder.mkdir()
                files = {"model-00001-of-00002.safetensors": make()[1],
                         "model-00002-of-00002.safetensors": {"head": data.whole([1, 2])}}
                for name, parts in files.items():
                    cli_data.write(folder / name, parts)
                (folder / "config.json").write_text("{}")
                (folder / "model.safetensors.index.json").write_text(json.dumps(
                    {"weight_map": {part: name for name, parts in files.items()
                                    for part in parts}}))
                self.good("convert", folder.name, "ours", "--force")
                self.good("convert", "ours", "dense", "--to", "dense", "--dtype", "f32", "--force")
                out = cli_data.read(self.folder / "dense" / "model-00001-of-00002.safetensors")[0]
                self.assertEqual(floats(out[WEIGHT]), data.flat(make()[0]))

    def test_what_says_how_weights_are_stored_goes(self):
        path = self.folder / "model" / "config.json"
        config = json.loads(path.read_text())
        dense = {"quant_method": "compressed-tensors", "format": "dense", "a": [1, {"b": "}"}]}
        for extra in ({"quantization_config": dense}, {"sparsity_config": None},
                      {"compression_config": {"format": "dense"},
                       "z": {"quantization_config": 1}}):
            path.write_text(json.dumps({**extra, **config, "last": 1.5e-7}))
            self.good("convert", "model", "out", "--force")
            found = json.loads((self.folder / "out" / "config.json").read_text())
            self.assertEqual(found, {**config, "last": 1.5e-7,
                                     **{k: v for k, v in extra.items() if k == "z"}})


class Refusals(Scratch):
    @staticmethod
    def make(folder):
        def put(name, scheme, **changes):
            parts = data.SCHEMES[scheme]()[1]
            for part, change in changes.items():
                key = f"{LAYER}.{part}"
                if change is None:
                    del parts[key]
                elif isinstance(change, dict):
                    parts[key] = change
                else:
                    raw = bytearray(parts[key]["data"])
                    change(raw)
                    parts[key]["data"] = bytes(raw)
            data.write(folder / f"{name}.safetensors", parts)

        def at(place, value):
            return lambda raw: raw.__setitem__(place, value)

        def last(value):
            return lambda raw: raw.__setitem__(slice(-8, None), struct.pack("<q", value))

        two_four, any_zeros = "sparse-24-bitmask", "sparse-bitmask"
        put("three", two_four, bitmask=at(65, 0x37))
        put("one", two_four, bitmask=at(64, 0x13))
        put("side", two_four, shape=last(COLS - 1))
        put("negative", two_four, shape=last(-4))
        put("large", two_four, shape=last(1 << 40))
        put("mask", two_four, bitmask=data.entry("U8", [ROWS, 1], bytes(ROWS)))
        put("kind", two_four, shape=data.entry("F32", [4], bytes(16)))
        put("more", any_zeros, bitmask=lambda raw: raw.__setitem__(
            next(i for i, byte in enumerate(raw) if byte != 0xff), 0xff))
        put("fewer", any_zeros, bitmask=at(ROWS * COLS // 8 - 1, 0))
        put("offset", any_zeros, row_offsets=at(8, 1))
        put("words", "pack-quantized 4 128",
            weight_packed=data.entry("I32", [ROWS, 9], bytes(ROWS * 36)))
        put("scale", "pack-quantized 4 128", weight_scale=at(3, 0x7f))
        put("groups", "pack-quantized 4 128",
            weight_scale=data.entry("BF16", [ROWS, 3], bytes(ROWS * 6)))
        put("rank", "pack-quantized 4 128",
            weight_scale=data.entry("BF16", [ROWS, 4, 1], bytes(ROWS * 8)))
        put("order", "pack-quantized 4 128", weight_g_idx=data.entry(
            "I32", [COLS], struct.pack(f"<{COLS}i", *[4] * COLS)))
        put("code", "marlin-24 4 128", meta=at(0, 0x00))
        put("meta", "marlin-24 4 128", meta=data.entry("I16", [4, 100], bytes(800)))
        put("twice", two_four, weight=data.entry("BF16", [1], bytes(2)))
        put("few", "pack-quantized 4 128", weight_shape=data.whole([ROWS, 4]),
            weight_packed=data.entry("I32", [ROWS, 1], bytes(ROWS * 4)),
            weight_scale=data.entry("BF16", [ROWS, 1], bytes(ROWS * 2)))
        put("zeros", "float-quantized",
            weight_zero_point=data.entry("I8", [ROWS, 1], bytes(ROWS - 1) + b"\1"))
        put("order of floats", "float-quantized", weight_g_idx=data.entry(
            "I32", [COLS], struct.pack(f"<{COLS}i", *[c % 4 for c in range(COLS)])))
        data.write(folder / "quanto.safetensors", {
            f"{LAYER}.weight._data._data": data.entry("U8", [ROWS, COLS // 2],
                                                      bytes(ROWS * COLS // 2)),
            f"{LAYER}.weight._scale": data.entry("F32", [ROWS, 1], bytes(4 * ROWS)),
            f"{LAYER}.weight._shift": data.entry("F32", [ROWS, 1], bytes(4 * ROWS))})
        put("vector", "int-quantized", weight=data.entry("I8", [ROWS], bytes(ROWS)))

    CASES = (
        ("three", r'bitmask": row 1, columns 8 to 11 have 3 bits, expected 2'),
        ("one", r'bitmask": row 1, columns 4 to 7 have 1 bits, expected 2'),
        ("side", r"columns are no multiple of 4|expected"),
        ("negative", r'shape": side 1 is -4, expected 1 to'),
        ("large", r'shape": side 1 is 1099511627776'),
        ("mask", r'bitmask" has 1 in dimension 1, expected 64'),
        ("kind", r'shape" is F32, expected I64 or I32'),
        ("more", r'row_offsets": row 1 begins at number \d+, by the bits before it at'),
        ("fewer", r'compressed" has \d+ numbers, "model.layers.0.mlp.up_proj.bitmask" has bits'),
        ("offset", r'row_offsets": row 1 begins at number'),
        ("words", r'weight_packed" has 9 in dimension 1, expected'),
        ("scale", r"the scale at row 0, column 128 is"),
        ("groups", r"has 3 scales for each row, which do not divide 512"),
        ("rank", r'weight_scale" has rank 3, expected 2'),
        ("order", r'g_idx": column 0 is in group 4 of 4'),
        ("code", r"no legal code"),
        ("meta", r'meta" has a shape that no marlin-24 weight gives'),
        ("twice", r'up_proj.weight" is there in two forms'),
        ("few", r'weight_packed" may be of 4 bits or of 8, which its 4 columns do not tell'),
        ("zeros", r'weight_zero_point" is a part of a weight that another library quantised in a'),
        ("order of floats", r'weight_g_idx" is a part of a weight that another library quantised'),
        ("quanto", r'weight._data._data" is a part of a weight that another library quantised'),
        ("vector", r'up_proj.weight" has a scale, but is no matrix'))

    def test_by_name_and_nothing_is_written(self):
        self.refusals([(name, ("convert", f"{name}.safetensors", "out.safetensors"), 4, sentence)
                       for name, sentence in self.CASES])

    def test_the_command_line(self):
        self.refusals((
            ("target", ("convert", "three.safetensors", "out", "--to", "keras"), 2, "--to"),
            ("gguf", ("convert", "none.gguf", "out", "--to", "torch"), 2, "not of a GGUF file"),
            ("absent", ("convert", "absent", "out"), 3, "absent")))


if __name__ == "__main__":
    unittest.main()
