# SPDX-License-Identifier: Apache-2.0
"""Weights that other libraries quantised: floats of 8 and 4 bits, GPTQ, AWQ and bitsandbytes become
the numbers that they stand for, and what is not known, or what nothing says of a file by itself,
is refused by file, key and value, never taken for numbers."""
import json
import struct
import unittest

from cli_case import Scratch, run
import cli_data
import foreign_data as data
import tiny_bert

LAYER = "model.layers.0.mlp.up_proj"
WEIGHT = f"{LAYER}.weight"
N, K = 48, 64
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of AWQ's eight neighbours in a word


def codes(bits, cols=K):
    """[cols][N], as these libraries have them."""
    return [[(c * 37 + r * 11 + c // 16) % 2 ** bits for r in range(N)] for c in range(cols)]


def points(bits, groups):
    """Zero points [groups][N]."""
    return [[2 ** (bits - 1) + (g + r) % 3 - 1 for r in range(N)] for g in range(groups)]


def steps(groups):
    return [[2.0 ** -(3 + (r + g) % 4) for r in range(N)] for g in range(groups)]


def numbers(q, zeros, scales, group_of):
    return [(q[c][r] - zeros[group_of[c]][r]) * scales[group_of[c]][r]
            for r in range(N) for c in range(len(q))]


def gptq(bits, groups, group_of, less=1):
    q, zeros, scales = codes(bits), points(bits, groups), steps(groups)
    each = 32 // bits
    columns = [q[at + i][r] for at in range(0, K, each) for r in range(N) for i in range(each)]
    return numbers(q, zeros, scales, group_of), {
        f"{LAYER}.qweight": data.entry("I32", [K // each, N], data.words(columns, bits)),
        f"{LAYER}.qzeros": data.entry("I32", [groups, N // each],
                                      data.words([z - less for z in data.flat(zeros)], bits)),
        f"{LAYER}.scales": data.entry("F16", [groups, N], data.halves(data.flat(scales))),
        f"{LAYER}.g_idx": data.entry("I32", [K], struct.pack(f"<{K}i", *group_of))}


def awq(groups, cols=K):
    q, zeros, scales = codes(4, cols), points(4, groups), steps(groups)
    group_of = [c * groups // cols for c in range(cols)]

    def packed(rows):
        return data.words([row[at + i] for row in rows for at in range(0, N, 8) for i in ORDER], 4)
    return numbers(q, zeros, scales, group_of), {
        f"{LAYER}.qweight": data.entry("I32", [cols, N // 8], packed(q)),
        f"{LAYER}.qzeros": data.entry("I32", [groups, N // 8], packed(zeros)),
        f"{LAYER}.scales": data.entry("F16", [groups, N], data.halves(data.flat(scales)))}


def fp8(rows, cols):
    """Blocks of 128x128, the last ones smaller."""
    whole = [[(r * 7 + c * 5) % 17 - 8 for c in range(cols)] for r in range(rows)]
    across = (cols + 127) // 128
    by = [[2.0 ** -(3 + (a + 2 * b) % 4) for b in range(across)]
          for a in range((rows + 127) // 128)]
    return [q * by[r // 128][c // 128] for r, row in enumerate(whole)
            for c, q in enumerate(row)], {
        WEIGHT: data.entry("F8_E4M3", [rows, cols], bytes(map(data.e4m3, data.flat(whole)))),
        f"{WEIGHT}_scale_inv": data.entry("F32", [len(by), across],
                                          struct.pack(f"<{len(by) * across}f", *data.flat(by)))}


def renamed(form, suffix):
    """The same with other scales' name."""
    numbers_of, parts = form
    return numbers_of, {WEIGHT: parts[WEIGHT], WEIGHT + suffix: parts[f"{WEIGHT}_scale_inv"]}


def fp8_whole(suffix, shape, more=()):
    """One scale for all, and scales of activations and of keys."""
    whole = [[(r * 7 + c * 5) % 17 - 8 for c in range(96)] for r in range(160)]
    one = data.entry("F32", shape, struct.pack("<f", 0.125))
    return [q * 0.125 for q in data.flat(whole)], {
        WEIGHT: data.entry("F8_E4M3", [160, 96], bytes(map(data.e4m3, data.flat(whole)))),
        WEIGHT + suffix: one, **{f"{LAYER}.{name}": one for name in more}}


def without(form, part):
    """The same without one of its parts."""
    numbers_of, parts = form
    return numbers_of, {name: of for name, of in parts.items() if name != f"{LAYER}.{part}"}


E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6)


def pairs(codes_of, first_is_high=0):
    """Two codes a byte."""
    return bytes(b | a << 4 if first_is_high else a | b << 4
                 for a, b in zip(codes_of[::2], codes_of[1::2]))


def four_bits(name, group, scales, more):
    """Floats of 4 bits; `scales` of what are in the file, by what they are multiplied then."""
    label, values, stored = scales
    q = [(i * 7 + i // 32 * 3) % 16 for i in range(N * K)]
    count = N * K // group
    parts = {f"{LAYER}.{name}": data.entry("U8", [N, K // 2], pairs(q)),
             f"{WEIGHT}_scale": data.entry(label, [N, K // group],
                                           bytes(stored[i % len(stored)] for i in range(count)))}
    times = 1.0
    for suffix, value, factor in more:
        parts[f"{LAYER}.{suffix}"] = data.entry("F32", [1], struct.pack("<f", value))
        times *= factor
    return [E2M1[v] * values[i // group % len(values)] * times for i, v in enumerate(q)], parts


NARROW = ("F8_E4M3", [1, 2, 4, 8], bytes(map(data.e4m3, [1, 2, 4, 8])))
POWERS = ("U8", [.5, 1, 2], bytes([126, 127, 128]))


def mxfp8():
    q = [(i * 7 + i // 32 * 3) % 17 - 8 for i in range(N * K)]
    return [v * POWERS[1][i // 32 % 3] for i, v in enumerate(q)], {
        WEIGHT: data.entry("F8_E4M3", [N, K], bytes(map(data.e4m3, q))),
        f"{WEIGHT}_scale": data.entry("U8", [N, K // 32],
                                      bytes(POWERS[2][i % 3] for i in range(N * K // 32)))}


def int8_rows():
    q = [(i * 37) % 255 - 127 for i in range(N * K)]
    largest = [127 * 2.0 ** -(r % 5) for r in range(N)]
    return [v * largest[i // K] / 127 for i, v in enumerate(q)], {
        WEIGHT: data.entry("I8", [N, K], struct.pack(f"<{N * K}b", *q)),
        f"{LAYER}.SCB": data.entry("F32", [N], struct.pack(f"<{N}f", *largest)),
        f"{LAYER}.weight_format": data.entry("U8", [], b"\0")}


def coded(kind, cols, is_nested):
    """Codes of 4 bits in blocks of 64 that go on over the ends of rows."""
    count, block = N * cols, 64
    q = [(i * 7 + i // 32 * 3) % 16 for i in range(count)]
    table = [(i - 7) / 8 for i in range(16)]
    blocks = (count + block - 1) // block
    state = {"quant_type": kind, "blocksize": block, "dtype": "float32", "shape": [N, cols]}
    parts = {WEIGHT: data.entry("U8", [count // 2, 1], pairs(q, 1)),
             f"{WEIGHT}.quant_map": data.entry("F32", [16], struct.pack("<16f", *table))}
    if is_nested:
        nested = [i / 64 for i in range(256)]
        by = [(i * 5) % 256 for i in range(blocks)]
        of = [2.0 ** (i % 3) for i in range((blocks + 15) // 16)]
        absmax = [nested[b] * of[i // 16] + 0.25 for i, b in enumerate(by)]
        state.update(nested_blocksize=16, nested_dtype="float32", nested_offset=0.25)
        parts.update({f"{WEIGHT}.absmax": data.entry("U8", [blocks], bytes(by)),
                      f"{WEIGHT}.nested_absmax": data.entry(
                          "F32", [len(of)], struct.pack(f"<{len(of)}f", *of)),
                      f"{WEIGHT}.nested_quant_map": data.entry(
                          "F32", [256], struct.pack("<256f", *nested))})
    else:
        absmax = [2.0 ** (i % 3) for i in range(blocks)]
        parts[f"{WEIGHT}.absmax"] = data.entry("F32", [blocks], struct.pack(f"<{blocks}f", *absmax))
    text = json.dumps(state).encode()
    parts[f"{WEIGHT}.quant_state.bitsandbytes__{kind}"] = data.entry("U8", [len(text)], text)
    return [table[v] * absmax[i // block] for i, v in enumerate(q)], parts


def mxfp4(experts, n, groups):
    """Numbers of four bits, two a byte, and powers of two by which 32 of them are multiplied."""
    table = E2M1
    count = experts * n * groups
    q = [(i * 7 + i // 32 * 3) % 16 for i in range(32 * count)]
    by = [120 + i % 9 for i in range(count)]
    stem = "model.layers.0.mlp.experts.gate_up_proj"
    return [table[v] * 2.0 ** (by[i // 32] - 127) for i, v in enumerate(q)], {
        f"{stem}_blocks": data.entry("U8", [experts, n, groups, 16],
                                     pairs(q)),
        f"{stem}_scales": data.entry("U8", [experts, n, groups], bytes(by))}


IN_ORDER = {groups: [c * groups // K for c in range(K)] for groups in (1, 2, 4)}
FORMS = {
    "gptq-4": ("GPTQ", gptq(4, 2, IN_ORDER[2])),
    "gptq-8": ("GPTQ", gptq(8, 1, IN_ORDER[1])),
    "gptq-order": ("GPTQ", gptq(4, 4, [(c * 7) % 4 for c in range(K)])),
    "awq": ("AWQ", awq(4)),
    "awq-ends": ("AWQ", awq(3, 303)),
    "fp8": ("fp8 in blocks", fp8(256, 384)),
    "fp8-ends": ("fp8 in blocks", fp8(130, 200)),
    "blocks": ("compressed-tensors float-quantized in blocks", renamed(fp8(256, 384), "_scale")),
    "blocks-ends": ("compressed-tensors float-quantized in blocks",
                    renamed(fp8(130, 200), "_scale")),
    "fp8-one": ("fp8", fp8_whole("_scale_inv", [], ("activation_scale",))),
    "modelopt": ("compressed-tensors float-quantized",
                 fp8_whole("_scale", [1], ("input_scale", "k_scale"))),
    "mxfp4": ("MXFP4", mxfp4(3, 10, 2)),
    "gptq-second": ("GPTQ", gptq(4, 2, IN_ORDER[2], 0)),
    "gptq-format": ("GPTQ", gptq(8, 1, IN_ORDER[1], 0)),
    "gptq-in-turn": ("GPTQ", without(gptq(4, 2, IN_ORDER[2]), "g_idx")),
    "auto-round": ("GPTQ", without(gptq(4, 2, IN_ORDER[2]), "g_idx")),
    "nvfp4-packed": ("compressed-tensors nvfp4-pack-quantized", four_bits(
        "weight_packed", 16, NARROW, [("weight_global_scale", 8, 1 / 8)])),
    "nvfp4": ("ModelOpt NVFP4", four_bits(
        "weight", 16, NARROW, [("weight_scale_2", 0.25, 0.25), ("input_scale", 3, 1)])),
    "mxfp4-packed": ("compressed-tensors mxfp4-pack-quantized", four_bits(
        "weight_packed", 32, POWERS, [])),
    "mxfp8": ("MXFP8", mxfp8()),
    "bnb-int8": ("bitsandbytes LLM.int8", int8_rows()),
    "bnb-nf4": ("bitsandbytes nf4", coded("nf4", K, 1)),
    "bnb-fp4": ("bitsandbytes fp4", coded("fp4", 50, 0)),
}
SAYS = {"GPTQ": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False,
                 "checkpoint_format": "gptq"},
        "AWQ": {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True,
                "version": "GEMM"},
        "fp8 in blocks": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                          "weight_block_size": [128, 128]},
        "fp8": {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        "compressed-tensors float-quantized": {"quant_method": "modelopt", "quant_algo": "FP8"},
        "compressed-tensors float-quantized in blocks": {
            "quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
                "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                        "block_structure": [128, 128]}}}},
        "MXFP4": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]},
        "compressed-tensors nvfp4-pack-quantized": {
            "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": {"weights": {
                "num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}}}},
        "ModelOpt NVFP4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        "compressed-tensors mxfp4-pack-quantized": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
        "MXFP8": {"quant_method": "compressed-tensors", "format": "mxfp8-quantized"},
        "bitsandbytes LLM.int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
        "bitsandbytes nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "bitsandbytes fp4": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
SAYS_TOO = {"awq-ends": {"group_size": 101},
            "gptq-8": {"bits": 8}, "gptq-second": {"checkpoint_format": "gptq_v2"},
            "gptq-format": {"bits": 8, "checkpoint_format": None, "format": "gptq_v2"},
            "auto-round": {"quant_method": "auto-round",
                           "packing_format": "auto_round:auto_gptq"}}


def says(name):
    return {**SAYS[FORMS[name][0]], **SAYS_TOO.get(name, {})}


class Known(Scratch):
    @staticmethod
    def make(folder):
        for name, (_, (_, parts)) in FORMS.items():
            (folder / "folders" / name).mkdir(parents=True)
            data.write(folder / "folders" / name / "model.safetensors", parts)
            (folder / "folders" / name / "config.json").write_text(json.dumps(
                {"model_type": "llama", "quantization_config": says(name)}))
            data.write(folder / f"{name}.safetensors", parts)

    def test_numbers_are_exact(self):
        for name, (scheme, (want, _)) in FORMS.items():
            with self.subTest(name):
                done = self.json("convert", f"folders/{name}", "out", "--to", "dense", "--dtype",
                                 "f32", "--force")
                self.assertEqual((done["scheme"], done["weights"]), (scheme, 1))
                out = cli_data.read(self.folder / "out" / "model.safetensors")[0]
                made = WEIGHT if scheme != "MXFP4" else "model.layers.0.mlp.experts.gate_up_proj"
                self.assertEqual(set(out), {made, "model.norm.weight"})
                self.assertEqual(cli_data.floats(out[made][2]), want)

    def test_numbers_of_16_bits_are_the_same(self):
        for name in ("awq", "awq-ends", "gptq-4", "gptq-order", "fp8", "fp8-ends", "fp8-one"):
            with self.subTest(name):
                self.json("convert", f"folders/{name}", "out", "--to", "dense", "--dtype",
                          "bf16", "--force")
                out = cli_data.read(self.folder / "out" / "model.safetensors")[0]
                upper = struct.unpack(f"<{len(out[WEIGHT][2]) // 2}H", out[WEIGHT][2])
                wide = struct.pack(f"<{len(upper)}I", *(bits << 16 for bits in upper))
                self.assertEqual(cli_data.floats(wide), FORMS[name][1][0])

    def test_integers_without_zero_points_stay_integers(self):
        group_of = [c // 32 for c in range(K)]
        _, parts = gptq(4, 2, group_of)
        middle = data.words([7] * (2 * N), 4)
        parts[f"{LAYER}.qzeros"]["data"] = middle
        data.write(self.folder / "even.safetensors", parts)
        self.assertEqual(self.json("convert", "even.safetensors", "out.safetensors")["integers"], 0)
        _, parts = gptq(8, 1, IN_ORDER[1])
        parts[f"{LAYER}.qzeros"]["data"] = data.words([127] * N, 8)
        data.write(self.folder / "even.safetensors", parts)
        self.assertEqual(self.json("convert", "even.safetensors", "out.safetensors",
                                   "--force")["integers"], 1)

    def test_pieces_are_the_whole(self):
        cases = {"awq": (FORMS["awq"][1][1], 200, 1)}
        for bits, times in ((4, 1400), (8, 700)):
            _, parts = gptq(bits, 1, IN_ORDER[1])
            parts[f"{LAYER}.qzeros"]["data"] = data.words([2 ** (bits - 1) - 1] * N, bits)
            cases[f"gptq-{bits}"] = parts, times, 2
        for name, (parts, times, made) in cases.items():
            outs = []
            for rows in (1, times):
                data.write(self.folder / "in.safetensors", data.many_rows(parts, rows))
                self.good("convert", "in.safetensors", "out.safetensors", "--force")
                out = cli_data.read(self.folder / "out.safetensors")[0]
                outs.append({k: v[2] for k, v in out.items() if k.startswith(LAYER)})
            with self.subTest(name):
                self.assertEqual(len(outs[0]), made)
                self.assertEqual(outs[1], {k: v * times for k, v in outs[0].items()})

    def test_folders_say_so_and_do_not_run(self):
        for name, (scheme, (_, parts)) in FORMS.items():
            with self.subTest(name):
                model = self.folder / name
                tiny_bert.write(model)
                config = json.loads((model / "config.json").read_text())
                (model / "config.json").write_text(json.dumps(
                    {**config, "quantization_config": says(name)}))
                data.write(model / "model.safetensors", parts)
                info = self.json("info", name)
                self.assertEqual((info["scheme"], info["quantization"]),
                                 (scheme, says(name)["quant_method"]))
                for command in (("prune", name, "x"), ("pack", name, "x"), ("unpack", name, "x")):
                    done = run(*command, cwd=self.folder)
                    self.assertEqual(done.returncode, 5, done.stderr)
                    self.assertIn(f"stored as {scheme}: 'sparse24 convert'", done.stderr)
                self.good("convert", name, f"{name}-out")
                made = json.loads((self.folder / f"{name}-out/config.json").read_text())
                self.assertEqual(made, config)

    def test_bad_parts(self):
        cases = []
        for name, change, sentence in (
                ("gptq-4", {"qzeros": data.entry("I32", [2, 5], bytes(40))}, r'qzeros" has 5 in'),
                ("gptq-4", {"scales": data.entry("F16", [5, N], bytes(10 * N))},
                 r'scales": its groups do not divide 64 columns'),
                ("gptq-4", {"g_idx": data.entry("I32", [K], struct.pack("<i", 9) * K)},
                 r'g_idx": column 0 is in group 9 of 2'),
                ("gptq-8", {"qzeros": data.entry("I32", [1, N // 4], b"\xff" * N)},
                 "zero point of group 0, column 0 is 256"),
                ("awq", {"qweight": data.entry("I32", [K * N // 8], bytes(K * N // 2))},
                 r'qweight" is no matrix of I32'),
                ("fp8", {"weight_scale_inv": data.entry("F32", [2, 2], bytes(16))},
                 r'weight_scale_inv" has 2 in dimension 1, expected 3'),
                ("mxfp4", {"scales": data.entry("U8", [3, 9, 2], bytes(54))},
                 r'proj_scales" has 9 in dimension 1, expected 10'),
                ("mxfp4", {"scales": data.entry("U8", [3, 10, 2], b"\x7f" * 59 + b"\xff")},
                 r'proj_scales": scale 59 is no number'),
                ("mxfp4", {"scales": data.entry("U8", [3, 10, 2], b"\xfe" * 60)},
                 r'proj_blocks.: row 0, column 1, times its scale, is beyond bf16; expected a '
                 r'smaller scale'),
                ("mxfp4", {"blocks": data.entry("U8", [3, 10, 4, 8], bytes(960))},
                 r'proj_blocks" has no blocks of 16 bytes'),
                ("nvfp4", {"weight_scale_2": data.entry("F32", [2], bytes(8))},
                 r'weight_scale_2" is not one number of F32'),
                ("nvfp4-packed", {"weight_scale": data.entry("F8_E4M3", [N, 5], bytes(5 * N))},
                 r'weight_scale" has 5 in dimension 1, expected 4'),
                ("nvfp4-packed", {"weight_global_scale": data.entry("F32", [1], bytes(4))},
                 r'weight_scale": the scale at row 0, column 0 is'),
                ("mxfp8", {"weight_scale": data.entry("U8", [N, 2], b"\xff" * 2 * N)},
                 r'weight_scale": scale 0 is no number'),
                ("bnb-int8", {"weight_format": data.entry("U8", [], b"\2")},
                 r'weight_format" is not 0, elements row by row'),
                ("bnb-nf4", {"weight": data.entry("U8", [9, 1], bytes(9))},
                 r'weight" has 9 bytes, of \[48, 64\] 1536 are expected'),
                ("bnb-nf4", {"weight.nested_absmax": data.entry("F32", [1], bytes(4))},
                 r'nested_absmax" has 1 in dimension 0, expected 3'),
                ("bnb-fp4", {"weight.quant_state.bitsandbytes__fp4": data.entry("U8", [2], b"{}")},
                 r'quant_state.bitsandbytes__fp4.: JSON: the key "shape" is missing'),
                ("bnb-fp4", {"weight.absmax": data.entry("U8", [38], bytes(38))},
                 r'absmax" is U8, expected F32')):
            stem = "model.layers.0.mlp.experts.gate_up_proj_" if name == "mxfp4" else f"{LAYER}."
            parts = {**FORMS[name][1][1], **{f"{stem}{k}": v for k, v in change.items()}}
            bad = self.folder / f"bad-{len(cases)}"
            bad.mkdir()
            data.write(bad / "model.safetensors", parts)
            (bad / "config.json").write_text(json.dumps({"quantization_config": says(name)}))
            cases.append((bad.name, sentence))
        for name, sentence in cases:
            done = run("convert", name, "out", cwd=self.folder)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.assertFalse((self.folder / "out").exists())


UNKNOWN = (
    ({"quant_method": "aqlm"},
     "quantization_config.quant_method is 'aqlm', which is not known; compressed-tensors, fp8, "
     "gptq, awq, torchao, mxfp4, fbgemm_fp8, modelopt, quanto, bitsandbytes, auto-round are"),
    ({"bits": 4}, "quantization_config.quant_method is not there, which is not known"),
    ({"quant_method": "gptq", "bits": 3}, "quantization_config.bits is 3"),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
     "checkpoint_format is 'marlin', which is not known; gptq and gptq_v2 are"),
    ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, "is_marlin_format is true"),
    ({"quant_method": "auto-round", "packing_format": "auto_round"},
     "packing_format is 'auto_round', which is not known; auto_round:auto_gptq"),
    ({"quant_method": "compressed-tensors", "format": "dense",
      "transform_config": {"config_groups": {"R4": {"type": "hadamard"}}}},
     "quantization_config.transform_config has groups: layers that transform their inputs"),
    ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version is 'gemv'"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size is not known"),
    ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt is 'e5m2', which is not known; e4m3 is"),
    ({"quant_method": "compressed-tensors", "format": "mxfp6-pack-quantized"},
     "quantization_config.format is 'mxfp6-pack-quantized', which is not known; dense, "
     "sparse-bitmask"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 2, "type": "int", "strategy": "group"}}}},
     "config_groups.group_0.weights has num_bits 2 of type int"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "token"}}}},
     "config_groups.group_0.weights.strategy is 'token'"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                "block_structure": [64, 128]}}}},
     "config_groups.block_structure is not known; [128, 128] is"),
    ({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "block"}}}},
     "config_groups.group_0.weights has blocks of type int"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"},
     "quant_algo is 'NVFP4_AWQ', which is not known; FP8, NVFP4"),
    ({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
        "group_0": {"format": "mxfp6-pack-quantized"}}},
     "config_groups.format is 'mxfp6-pack-quantized'"),
    ({"quant_method": "compressed-tensors", "sparsity_config": {"format": "other"}},
     "sparsity_config.format is 'other'"),
)
LEFT = ("qweight", "qzeros", "weight.absmax", "weight.nested_absmax", "weight.quant_map",
        "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4", "SCB",
        "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_packed", "scales",
        "pre_quant_scale", "scale_weight", "weight_scales", "weight_zero_point", "weight_g_idx")


class Unknown(Scratch):
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "model")

    def refused(self, sentence):
        for command in (("convert", "model", "x"), ("prune", "model", "x"), ("pack", "model", "x"),
                        ("embed", "model", "--input", "-", "--output", "x.npy")):
            with self.subTest(command[0], sentence=sentence):
                done = run(*command, cwd=self.folder, text="read\n")
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(sentence, done.stderr)
                self.assertEqual({p.name for p in self.folder.iterdir()}, {"model"})

    def test_by_config(self):
        path = self.folder / "model/config.json"
        config = json.loads(path.read_text())
        for says, sentence in UNKNOWN:
            path.write_text(json.dumps({**config, "quantization_config": says}))
            self.refused(f"config.json: {sentence}" if sentence.startswith("quantization")
                         else sentence)
        path.write_text(json.dumps({**config, "text_config": {"quantization_config": {
            "quant_method": "aqlm"}}}))
        self.refused("quantization_config.quant_method is 'aqlm'")
        path.write_text(json.dumps({**config, "quantization": {"group_size": 64, "bits": 4}}))
        self.refused("quantization.quant_method is 'mlx'")
        path.write_text(json.dumps({**config, "compression_config": {"format": "marlin"}}))
        self.refused("compression_config.format is 'marlin'")
        self.assertEqual(self.json("info", "model")["quantization"], "")

    def test_by_other_files(self):
        for name, holds, sentence in (
                ("quantize_config.json", {"bits": 3}, "quantize_config.json.bits is 3"),
                ("quant_config.json", {"w_bit": 4, "version": "GEMV"},
                 "quant_config.json.version is 'GEMV'"),
                ("hf_quant_config.json", {"quantization": {"quant_algo": "INT4_AWQ"}},
                 "quantization.quant_algo is 'INT4_AWQ'")):
            path = self.folder / "model" / name
            path.write_text(json.dumps(holds))
            self.refused(sentence)
            path.unlink()

    def test_by_parts(self):
        path = self.folder / "model/model.safetensors"
        before = path.read_bytes()
        size = struct.unpack("<Q", before[:8])[0]
        header = json.loads(before[8:8 + size])
        end = len(before) - 8 - size
        for part in LEFT:
            name = f"encoder.layer.0.output.dense.{part}"
            text = json.dumps({**header, name: {"dtype": "U8", "shape": [4],
                                                "data_offsets": [end, end + 4]}}).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + before[8 + size:] + bytes(4))
            self.refused(f'tensor "{name}" is a part of a weight that another library quantised')


def words_of_seven(integers):
    """As compressed-tensors before 0.13 has them, four in a word."""
    return b"".join(struct.pack("<I", sum(q << 7 * i for i, q in enumerate(integers[at:at + 4])))
                    for at in range(0, len(integers), 4))


def packed(layer, bits, zeros=None):
    parts = {f"{layer}.weight_packed": data.entry(
                 "I32", [N, K * bits // 32],
                 data.words([(i * 37 + 129) % 2 ** bits for i in range(N * K)], bits)),
             f"{layer}.weight_scale": data.entry("F32", [N, 1], struct.pack("<f", 0.5) * N),
             f"{layer}.weight_shape": data.whole([N, K])}
    if zeros:
        parts[f"{layer}.weight_zero_point"] = zeros
    return parts


BYTES = data.entry("F8_E4M3", [N, K], bytes(N * K))
SEVEN = {**packed("a", 8), "a.weight_packed": data.entry(
    "I32", [N, K // 4], words_of_seven([(i * 37) % 128 for i in range(N * K)]))}
ALONE = {
    "of 7 bits or of 8": SEVEN,
    "of 4 bits, 8 or others": {
        "a.weight_packed": data.entry("I32", [2, 2], bytes(16)),
        "a.weight_shape": data.whole([2, 16]),
        "a.weight_scale": data.entry("F32", [2, 1], struct.pack("<2f", 1, 1))},
    "of GPTQ's first form or of its second": gptq(4, 2, IN_ORDER[2])[1],
    "has no g_idx": {**without(gptq(8, 1, IN_ORDER[1]), "g_idx")[1],
                     f"{LAYER}.qzeros": data.entry("I32", [1, N // 4], b"\x7f" * N)},
    'tensor "a.weight" has no ".weight_zero_point", which "b.weight" has': {
        **packed("a", 4), **packed("b", 4, data.entry("I32", [N // 8, 1], bytes(N // 2)))},
    'tensor "b.weight" is F8_E4M3 without a scale': {
        "b.weight": BYTES, "a.weight": BYTES,
        "a.weight_scale": data.entry("F32", [1], struct.pack("<f", 1))},
    'tensor "a.input_scale" is a part of a weight': {
        "a.weight": BYTES, "a.input_scale": data.entry("F32", [1], struct.pack("<f", 1))},
}


class Alone(Scratch):
    """Files without the folder whose config.json says what their numbers are."""

    @staticmethod
    def make(folder):
        for i, parts in enumerate(ALONE.values()):
            data.write(folder / f"{i}.safetensors", parts)

    def test_what_nothing_says_is_refused(self):
        self.refusals([(sentence, ("convert", f"{i}.safetensors", "out.safetensors"), 4, sentence)
                       for i, sentence in enumerate(ALONE)])

    def test_what_tensors_tell_is_read(self):
        _, parts = gptq(4, 1, IN_ORDER[1])
        for stored in (7, 8):
            parts[f"{LAYER}.qzeros"] = data.entry("I32", [1, N // 8], data.words([stored] * N, 4))
            data.write(self.folder / "even.safetensors", parts)
            self.good("convert", "even.safetensors", "out.safetensors", "--to", "dense", "--dtype",
                      "f32", "--force")
            out = cli_data.read(self.folder / "out.safetensors")[0]
            self.assertEqual(cli_data.floats(out[WEIGHT][2]),
                             numbers(codes(4), [[8] * N], steps(1), IN_ORDER[1]))

    def test_the_files_that_said_it_do_not_go_along(self):
        for name in ("quantize_config.json", "quant_config.json"):
            folder = self.folder / name
            folder.mkdir()
            form = "gptq-second" if name.startswith("quantize") else "awq"
            data.write(folder / "model.safetensors", FORMS[form][1][1])
            (folder / "config.json").write_text('{"model_type": "llama"}')
            (folder / name).write_text(json.dumps(says(form)))
            self.good("convert", name, "out", "--to", "dense", "--dtype", "f32", "--force")
            self.assertEqual({p.name for p in (self.folder / "out").iterdir()},
                             {"config.json", "model.safetensors"})
            out = cli_data.read(self.folder / "out" / "model.safetensors")[0]
            self.assertEqual(cli_data.floats(out[WEIGHT][2]), FORMS[form][1][0])


if __name__ == "__main__":
    unittest.main()
