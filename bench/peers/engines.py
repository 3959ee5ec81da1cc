# SPDX-License-Identifier: Apache-2.0
"""The engines that run beside sparse24: one row here, one class below it or in none.

A class is made with the folder of exported graphs (export.py), the row, a number of threads and a
shape (texts, tokens); run(ids) takes int64 ids [texts, tokens] and gives f32 vectors [texts, width].
All of them compute the same function: embeddings, blocks, mean over the tokens, L2 norm. Imported
in the engine's own virtual environment, where the other engines' packages are not.
"""
import collections

Row = collections.namedtuple("Row", "name environment kind graph dtype weights")

#           name                environment    class         graph              dtype   weights
ROWS = [
    Row("openvino-f32", "openvino", "OpenVino", "dense.onnx", "f32", "dense"),
    Row("onnxruntime-f32", "onnxruntime", "OnnxRuntime", "dense.onnx", "f32", "dense"),
    Row("deepsparse-f32", "deepsparse", "DeepSparse", "sparse.onnx", "f32", "2:4"),
    Row("torch-f32", "torch", "Torch", None, "f32", "dense"),
    Row("openvino-bf16", "openvino", "OpenVino", "dense.onnx", "bf16", "dense"),
    Row("openvino-i8", "openvino", "OpenVinoIntegers", "dense.onnx", "i8", "dense"),
    Row("onnxruntime-i8", "onnxruntime", "OnnxRuntime", "dense-i8.onnx", "i8", "dense"),
]
# torch.compile takes minutes for what it does not win: only when it is named.
DEFAULT = [row.name for row in ROWS if row.environment != "torch"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def row_of(name):
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(f"there is no engine '{name}'; there are {', '.join(r.name for r in ROWS)}")


def arrays(numpy, ids, names=INPUTS):
    """ids with what goes along of mask and types, whole texts, one segment: not every model's graph
    has all of them."""
    ids = numpy.ascontiguousarray(ids, dtype=numpy.int64)
    found = dict(zip(INPUTS, (ids, numpy.ones_like(ids), numpy.zeros_like(ids))))
    return {name: found[name] for name in names}


class OpenVino:
    """Compiled for the one shape; the hints are those for one request at a time."""

    def __init__(self, folder, row, threads, shape):
        import numpy
        import openvino

        self.numpy = numpy
        core = openvino.Core()
        model = core.read_model(folder / row.graph)
        self.names = [i.any_name for i in model.inputs]
        model.reshape({name: list(shape) for name in self.names})
        self.request = core.compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": row.dtype,
            "PERFORMANCE_HINT": "LATENCY"}).create_infer_request()

    def run(self, ids):
        return self.request.infer(arrays(self.numpy, ids, self.names))[0]

    @staticmethod
    def version():
        import openvino
        return openvino.__version__.split("-")[0]


class OpenVinoIntegers(OpenVino):
    """Weights and activations in 8 bits by NNCF, ranges from texts of random tokens; the graph is
    kept next to the one that it is made of. The rest runs in bf16 where the CPU can."""

    def __init__(self, folder, row, threads, shape):
        import openvino

        path = folder / "openvino-i8.xml"
        if not path.exists():
            openvino.save_model(self.quantized(folder / row.graph), path, compress_to_fp16=False)
        super().__init__(folder, row._replace(graph=path.name, dtype="bf16"), threads, shape)

    @staticmethod
    def quantized(path):
        import nncf
        import numpy
        import openvino

        model = openvino.Core().read_model(path)
        names = [i.any_name for i in model.inputs]
        chance = numpy.random.default_rng(1)
        texts = [arrays(numpy, chance.integers(1000, 29000, (4, 64)), names) for _ in range(16)]
        return nncf.quantize(model, nncf.Dataset(texts), subset_size=len(texts),
                             model_type=nncf.ModelType.TRANSFORMER)


class OnnxRuntime:
    """Every graph optimisation on. The i8 graph quantises activations as it runs."""

    def __init__(self, folder, row, threads, shape):
        import numpy
        import onnxruntime

        del shape  # its graphs take any
        self.numpy = numpy
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(folder / row.graph), options,
                                                    providers=["CPUExecutionProvider"])
        self.names = [i.name for i in self.session.get_inputs()]

    def run(self, ids):
        return self.session.run(None, arrays(self.numpy, ids, self.names))[0]

    @staticmethod
    def version():
        import onnxruntime
        return onnxruntime.__version__


class DeepSparse:
    """Compiled for the one shape; finds the zeros of the 2:4 weights by itself."""

    def __init__(self, folder, row, threads, shape):
        import deepsparse
        import numpy
        import onnx

        self.numpy = numpy
        self.names = [i.name for i in onnx.load(folder / row.graph).graph.input]
        self.engine = deepsparse.Engine(str(folder / row.graph), batch_size=shape[0],
                                        num_cores=threads,
                                        input_shapes=[list(shape)] * len(self.names))

    def run(self, ids):
        inputs = list(arrays(self.numpy, ids, self.names).values())
        return self.engine.run(inputs, val_inp=False)[0]

    @staticmethod
    def version():
        import importlib.metadata
        return importlib.metadata.version("deepsparse")


class Torch:
    """torch.compile of the model itself, not of a graph."""

    def __init__(self, folder, row, threads, shape):
        import numpy
        import reference
        import torch

        del row, shape
        self.numpy, self.torch = numpy, torch
        torch.set_num_threads(threads)
        self.model = torch.compile(reference.Encoder(folder / "dense"))

    def run(self, ids):
        inputs = [self.torch.from_numpy(a) for a in arrays(self.numpy, ids).values()]
        with self.torch.inference_mode():
            return self.model(*inputs).numpy()

    @staticmethod
    def version():
        import torch
        return torch.__version__
