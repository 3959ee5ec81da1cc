#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the hashes of tests/cli/foreign_data.py: of what compressed-tensors makes of its numbers.
Needs torch, safetensors and compressed-tensors 0.12 (later ones have no 2:4); no test runs it.

    python tests/golden/make_foreign.py
"""
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.config import SparsityCompressionConfig
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import foreign_data as data  # noqa: E402

LABELS = {torch.bfloat16: "BF16", torch.float16: "F16", torch.int32: "I32", torch.int64: "I64",
          torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
          torch.float8_e4m3fn: "F8_E4M3"}


def compressed(name, rows, by):
    kind, *rest = name.split()
    weight = torch.tensor(rows)
    if "bitmask" in kind:
        config = SparsityCompressionConfig(format=kind, targets=["Linear"],
                                           sparsity_structure="2:4")
        maker = BaseCompressor.load_from_registry(kind, config=config)
        return maker.compress({f"{data.LAYER}.weight": weight.bfloat16()},
                              compression_targets={data.LAYER})
    bits, group = map(int, rest or (8, data.COLS))
    args = QuantizationArgs(num_bits=bits, type="float" if kind.startswith("float") else "int",
                            symmetric=True, strategy="channel" if group == data.COLS else "group",
                            group_size=None if group == data.COLS else group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    dtype = torch.float16 if kind == "marlin-24" else torch.bfloat16
    state = {f"{data.LAYER}.weight": weight.to(dtype),
             f"{data.LAYER}.weight_scale": torch.tensor(by).to(dtype)}
    maker = BaseCompressor.load_from_registry(kind)
    return maker.compress(state, names_to_scheme={data.LAYER: scheme})


def main():
    for name, make in data.SCHEMES.items():
        rows, _ = make()
        group = int(name.split()[2]) if " " in name else data.COLS
        parts = {}
        for part, tensor in dict(compressed(name, rows, data.scales(group))).items():
            raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
            parts[part] = data.entry(LABELS[tensor.dtype], list(tensor.shape), raw)
        print(f'    "{name}": "{data.digest(parts)}",')


main()
