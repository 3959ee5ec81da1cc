# SPDX-License-Identifier: Apache-2.0
"""Weights that other libraries quantised: fp8 in blocks, GPTQ and AWQ become the numbers that they
stand for, and what is not known is refused by file, key and value, never taken for numbers."""
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


def codes(bits):
    """[K][N], as these libraries have them."""
    return [[(c * 37 + r * 11 + c // 16) % 2 ** bits for r in range(N)] for c in range(K)]


def points(bits, groups):
    """Zero points [groups][N]."""
    return [[2 ** (bits - 1) + (g + r) % 3 - 1 for r in range(N)] for g in range(groups)]


def steps(groups):
    return [[2.0 ** -(3 + (r + g) % 4) for r in range(N)] for g in range(groups)]


def numbers(q, zeros, scales, group_of):
    return [(q[c][r] - zeros[group_of[c]][r]) * scales[group_of[c]][r]
            for r in range(N) for c in range(K)]


def gptq(bits, groups, group_of):
    q, zeros, scales = codes(bits), points(bits, groups), steps(groups)
    each = 32 // bits
    columns = [q[at + i][r] for at in range(0, K, each) for r in range(N) for i in range(each)]
    return numbers(q, zeros, scales, group_of), {
        f"{LAYER}.qweight": data.entry("I32", [K // each, N], data.words(columns, bits)),
        f"{LAYER}.qzeros": data.entry("I32", [groups, N // each],
                                      data.words([z - 1 for z in data.flat(zeros)], bits)),
        f"{LAYER}.scales": data.entry("F16", [groups, N], data.halves(data.flat(scales))),
        f"{LAYER}.g_idx": data.entry("I32", [K], struct.pack(f"<{K}i", *group_of))}


def awq(groups):
    q, zeros, scales = codes(4), points(4, groups), steps(groups)
    group_of = [c * groups // K for c in range(K)]

    def packed(rows):
        return data.words([row[at + i] for row in rows for at in range(0, N, 8) for i in ORDER], 4)
    return numbers(q, zeros, scales, group_of), {
        f"{LAYER}.qweight": data.entry("I32", [K, N // 8], packed(q)),
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


def mxfp4(experts, n, groups):
    """Numbers of four bits, two a byte, and powers of two by which 32 of them are multiplied."""
    table = (0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6)
    count = experts * n * groups
    q = [(i * 7 + i // 32 * 3) % 16 for i in range(32 * count)]
    by = [120 + i % 9 for i in range(count)]
    stem = "model.layers.0.mlp.experts.gate_up_proj"
    return [table[v] * 2.0 ** (by[i // 32] - 127) for i, v in enumerate(q)], {
        f"{stem}_blocks": data.entry("U8", [experts, n, groups, 16],
                                     bytes(a | b << 4 for a, b in zip(q[::2], q[1::2]))),
        f"{stem}_scales": data.entry("U8", [experts, n, groups], bytes(by))}


IN_ORDER = {groups: [c * groups // K for c in range(K)] for groups in (1, 2, 4)}
FORMS = {
    "gptq-4": ("GPTQ", gptq(4, 2, IN_ORDER[2])),
    "gptq-8": ("GPTQ", gptq(8, 1, IN_ORDER[1])),
    "gptq-order": ("GPTQ", gptq(4, 4, [(c * 7) % 4 for c in range(K)])),
    "awq": ("AWQ", awq(4)),
    "fp8": ("fp8 in blocks", fp8(256, 384)),
    "fp8-ends": ("fp8 in blocks", fp8(130, 200)),
    "blocks": ("compressed-tensors float-quantized in blocks", renamed(fp8(256, 384), "_scale")),
    "blocks-ends": ("compressed-tensors float-quantized in blocks",
                    renamed(fp8(130, 200), "_scale")),
    "fp8-one": ("fp8", fp8_whole("_scale_inv", [], ("activation_scale",))),
    "modelopt": ("compressed-tensors float-quantized",
                 fp8_whole("_scale", [1], ("input_scale", "k_scale"))),
    "mxfp4": ("MXFP4", mxfp4(3, 10, 2)),
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
        "MXFP4": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}}


class Known(Scratch):
    @staticmethod
    def make(folder):
        for name, (_, (_, parts)) in FORMS.items():
            data.write(folder / f"{name}.safetensors", parts)

    def test_numbers_are_exact(self):
        for name, (scheme, (want, _)) in FORMS.items():
            with self.subTest(name):
                done = self.json("convert", f"{name}.safetensors", "out.safetensors", "--to",
                                 "dense", "--dtype", "f32", "--force")
                self.assertEqual((done["scheme"], done["weights"]), (scheme, 1))
                out = cli_data.read(self.folder / "out.safetensors")[0]
                made = WEIGHT if scheme != "MXFP4" else "model.layers.0.mlp.experts.gate_up_proj"
                self.assertEqual(set(out), {made, "model.norm.weight"})
                self.assertEqual(cli_data.floats(out[made][2]), want)

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

    def test_folders_say_so_and_do_not_run(self):
        for name, (scheme, (_, parts)) in FORMS.items():
            with self.subTest(name):
                model = self.folder / name
                tiny_bert.write(model)
                config = json.loads((model / "config.json").read_text())
                says = {**SAYS[scheme], **({"bits": 8} if name == "gptq-8" else {})}
                (model / "config.json").write_text(json.dumps(
                    {**config, "quantization_config": says}))
                data.write(model / "model.safetensors", parts)
                info = self.json("info", name)
                self.assertEqual((info["scheme"], info["quantization"]),
                                 (scheme, says["quant_method"]))
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
                 r'proj_blocks" has no blocks of 16 bytes')):
            stem = "model.layers.0.mlp.experts.gate_up_proj_" if name == "mxfp4" else f"{LAYER}."
            parts = {**FORMS[name][1][1], **{f"{stem}{k}": v for k, v in change.items()}}
            data.write(self.folder / f"bad-{len(cases)}.safetensors", parts)
            cases.append((f"bad-{len(cases)}.safetensors", sentence))
        for name, sentence in cases:
            done = run("convert", name, "out.safetensors", cwd=self.folder)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.assertFalse((self.folder / "out.safetensors").exists())


UNKNOWN = (
    ({"quant_method": "bitsandbytes", "load_in_4bit": True},
     "quantization_config.quant_method is 'bitsandbytes', which is not known; compressed-tensors, "
     "fp8, gptq, awq, torchao, mxfp4, fbgemm_fp8, modelopt, quanto are"),
    ({"bits": 4}, "quantization_config.quant_method is not there, which is not known"),
    ({"quant_method": "gptq", "bits": 3}, "quantization_config.bits is 3"),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
     "checkpoint_format is 'gptq_v2', which is not known; gptq is"),
    ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version is 'gemv'"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size is not known"),
    ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt is 'e5m2', which is not known; e4m3 is"),
    ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
     "quantization_config.format is 'nvfp4-pack-quantized', which is not known; dense, "
     "sparse-bitmask"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 2, "type": "int", "strategy": "group"}}}},
     "config_groups.group_0.weights has num_bits 2 of type int"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor_group"}}}},
     "config_groups.group_0.weights.strategy is 'tensor_group'"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                "block_structure": [64, 128]}}}},
     "config_groups.block_structure is not known; [128, 128] is"),
    ({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "block"}}}},
     "config_groups.group_0.weights has blocks of type int"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "quant_algo is 'NVFP4'"),
    ({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
        "group_0": {"format": "mxfp4-pack-quantized"}}},
     "config_groups.format is 'mxfp4-pack-quantized'"),
    ({"quant_method": "compressed-tensors", "sparsity_config": {"format": "other"}},
     "sparsity_config.format is 'other'"),
)
LEFT = ("qweight", "qzeros", "weight.absmax", "weight.nested_absmax", "weight.quant_map",
        "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4", "SCB",
        "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_packed")


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
        path.write_text(json.dumps({**config, "compression_config": {"format": "marlin"}}))
        self.refused("compression_config.format is 'marlin'")
        self.assertEqual(self.json("info", "model")["quantization"], "")

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


if __name__ == "__main__":
    unittest.main()
