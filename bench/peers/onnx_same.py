#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the vectors of convert --to onnx in ONNX Runtime and OpenVINO against those of embed.

    bench/peers/onnx_same.py PROGRAM MODEL TEXTS

PROGRAM is sparse24, MODEL an encoder's folder with modules.json, TEXTS a file of texts. Needs the
packages numpy, onnx, onnxruntime, openvino, safetensors and tokenizers. Prints the largest
difference of each runtime.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
import openvino
from safetensors.numpy import load_file
from tokenizers import Tokenizer


def with_onnxruntime(path, inputs):
    session = onnxruntime.InferenceSession(path)
    names = [i.name for i in session.get_inputs()]
    return session.run(["sentence_embedding"], {n: inputs[n] for n in names})[0]


def with_openvino(path, inputs):
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [i.get_any_name() for i in model.inputs]
    return model({n: inputs[n] for n in names})["sentence_embedding"]


def main():
    program, model, texts = sys.argv[1:]
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding(length=None)
    batch = tokenizer.encode_batch(pathlib.Path(texts).read_text().splitlines())
    ids = numpy.array([e.ids for e in batch], numpy.int64)
    mask = numpy.array([e.attention_mask for e in batch], numpy.int64)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
    with tempfile.TemporaryDirectory() as folder:
        vectors, path = f"{folder}/v.safetensors", f"{folder}/out/model.onnx"
        subprocess.run([program, "embed", model, "--input", texts, "--output", vectors, "--dtype",
                        "f32", "--max-tokens", "256"], check=True)
        subprocess.run([program, "convert", model, f"{folder}/out", "--to", "onnx"], check=True)
        onnx.checker.check_model(path, full_check=True)
        wanted, = load_file(vectors).values()
        for run in (with_onnxruntime, with_openvino):
            print(f"{run.__name__}: {numpy.abs(run(path, inputs) - wanted).max():.3g}")


if __name__ == "__main__":
    main()
