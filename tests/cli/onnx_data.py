# SPDX-License-Identifier: Apache-2.0
"""Reads model.onnx and runs its graph on small inputs, with nothing but the standard library. A
tensor is its shape and its numbers in a row."""
import itertools
import math
import struct


def message(raw):
    """Field to its values, in order: numbers, bytes, or four bytes."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << 64) if value >> 63 else value

    while at < len(raw):
        tag = number()
        kind = tag & 7
        if kind == 0:
            value = number()
        else:
            size = number() if kind == 2 else {5: 4}[kind]
            assert at + size <= len(raw)
            value, at = raw[at:at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def texts(values):
    return [value.decode() for value in values]


class Graph:
    def __init__(self, folder):
        self.model = message((folder / "model.onnx").read_bytes())
        self.graph = message(self.model[7][0])
        data = folder / "model.onnx_data"
        self.data = data.read_bytes() if data.exists() else b""
        self.tensors = dict(map(self.tensor, self.graph[5]))
        self.nodes = [self.node(raw) for raw in self.graph[1]]
        self.inputs, self.outputs = map(self.ends, (self.graph[11], self.graph[12]))

    def tensor(self, raw):
        fields = message(raw)
        shape, name = fields.get(1, []), fields[8][0].decode()
        entries = {message(e)[1][0]: message(e)[2][0].decode() for e in fields.get(13, [])}
        if entries:
            assert fields[14] == [1] and entries[b"location"] == "model.onnx_data"
            begin = int(entries[b"offset"])
            bytes_ = self.data[begin:begin + int(entries[b"length"])]
        else:
            bytes_ = fields[9][0]
        kind = {1: "f", 7: "q"}[fields[2][0]]
        values = struct.unpack(f"<{math.prod(shape)}{kind}", bytes_)
        return name, (shape, list(values))

    @staticmethod
    def node(raw):
        fields = message(raw)
        attributes = {}
        for one in map(message, fields.get(5, [])):
            value = {1: lambda: struct.unpack("<f", one[2][0])[0], 2: lambda: one[3][0],
                     7: lambda: one[8]}[one[20][0]]()
            attributes[one[1][0].decode()] = value
        return (fields[4][0].decode(), texts(fields[1]), fields[2][0].decode(), attributes)

    @staticmethod
    def ends(values):
        """Name to its element type and its sides, names or numbers."""
        found = {}
        for fields in map(message, values):
            tensor = message(message(fields[2][0])[1][0])
            sides = [message(side) for side in message(tensor[2][0])[1]]
            found[fields[1][0].decode()] = (tensor[1][0], [s[2][0].decode() if 2 in s else s[1][0]
                                                           for s in sides])
        return found

    def run(self, inputs):
        known = {**self.tensors, **inputs}
        for kind, names, out, attributes in self.nodes:
            known[out] = RUN[kind](*[known[name] for name in names], **attributes)
        return {name: known[name] for name in self.outputs}


# ---- operations -------------------------------------------------------------------------------

def strides(shape, wide):
    """Of a tensor that is spread over the shape `wide`."""
    found, step = [0] * len(wide), 1
    for i in range(1, len(shape) + 1):
        found[-i] = step if shape[-i] > 1 else 0
        step *= shape[-i]
    return found


def spread(function, *tensors):
    rank = max(len(shape) for shape, _ in tensors)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape, _ in tensors]
    wide = [max(sides) for sides in zip(*padded)]
    steps = [strides(shape, wide) for shape in padded]
    places = itertools.product(*map(range, wide))
    return wide, [function(*[values[sum(map(int.__mul__, place, step))]
                             for (_, values), step in zip(tensors, steps)]) for place in places]


def each(function):
    return lambda x, **_: (x[0], list(map(function, x[1])))


def pairs(function):
    return lambda a, b: spread(function, a, b)


def rows(x, function):
    """A function of the rows along the last side."""
    width = x[0][-1]
    return x[0], list(itertools.chain.from_iterable(
        function(x[1][i:i + width]) for i in range(0, len(x[1]), width)))


def layer_norm(x, gamma, beta=None, axis=-1, epsilon=0.0):
    def norm(row):
        mean = sum(row) / len(row)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + epsilon)
        more = beta[1] if beta else [0.0] * len(row)
        return [(v - mean) * scale * g + b for v, g, b in zip(row, gamma[1], more)]
    return rows(x, norm)


def softmax(x, axis):
    def share(row):
        powers = [math.exp(v - max(row)) for v in row]
        return [p / sum(powers) for p in powers]
    return rows(x, share)


def matmul(a, b):
    (*_, m, k), (*outer, _, n) = a[0], b[0]
    wide = a[0][:-2]
    out = []
    for i in range(math.prod(wide)):
        left = a[1][i * m * k:(i + 1) * m * k]
        right = b[1][(i * k * n if outer else 0):][:k * n]
        columns = [right[c::n] for c in range(n)]
        out += [sum(map(float.__mul__, left[r * k:(r + 1) * k], column))
                for r in range(m) for column in columns]
    return [*wide, m, n], out


def transpose(x, perm):
    steps = strides(x[0], x[0])
    shape = [x[0][p] for p in perm]
    return shape, [x[1][sum(i * steps[p] for i, p in zip(place, perm))]
                   for place in itertools.product(*map(range, shape))]


def gather(table, at):
    width = math.prod(table[0][1:])
    return at[0] + table[0][1:], [v for i in at[1] for v in table[1][i * width:(i + 1) * width]]


def reshape(x, to):
    return [x[0][i] if side == 0 else side for i, side in enumerate(to[1])], x[1]


def unsqueeze(x, axes):
    shape = list(x[0])
    for axis in axes[1]:
        shape.insert(axis, 1)
    return shape, x[1]


def squeeze(x, axes):
    return [side for i, side in enumerate(x[0]) if i not in axes[1]], x[1]


def cumsum(x, axis):
    return rows(x, itertools.accumulate)


def along_tokens(function, kept):
    """A reduction of the second side."""
    def reduce(x, *_, axes=None, keepdims=1):
        batch, count, *rest = x[0]
        width = math.prod(rest)
        out = [function(x[1][b * count * width + c:(b + 1) * count * width:width])
               for b in range(batch) for c in range(width)]
        return [batch, *([1] if kept else []), *rest], out
    return reduce


def concat(a, b, axis):
    """Of matrices, along their rows."""
    (count, one), other = a[0], b[0][1]
    return [count, one + other], [v for i in range(count)
                                  for v in a[1][i * one:][:one] + b[1][i * other:][:other]]


RUN = {"Add": pairs(lambda a, b: a + b), "Sub": pairs(lambda a, b: a - b),
       "Mul": pairs(lambda a, b: a * b), "Div": pairs(lambda a, b: a / b),
       "Pow": pairs(lambda a, b: a ** b), "Max": pairs(max), "Equal": pairs(lambda a, b: a == b),
       "Where": lambda a, b, c: spread(lambda i, x, y: x if i else y, a, b, c),
       "Erf": each(math.erf), "Tanh": each(math.tanh), "Sqrt": each(math.sqrt),
       "Relu": each(lambda v: max(v, 0.0)), "Sigmoid": each(lambda v: 1 / (1 + math.exp(-v))),
       "LeakyRelu": each(lambda v: v if v > 0 else 0.01 * v), "Not": each(lambda v: not v),
       "Cast": lambda x, to: (x[0], list(map({1: float, 7: int, 9: bool}[to], x[1]))),
       "Identity": lambda x: x, "Shape": lambda x: ([len(x[0])], list(x[0])),
       "Range": lambda a, b, c: ([b[1][0]], list(range(a[1][0], b[1][0], c[1][0]))),
       "LayerNormalization": layer_norm, "Softmax": softmax, "MatMul": matmul,
       "Transpose": transpose, "Gather": gather, "Reshape": reshape, "Unsqueeze": unsqueeze,
       "Concat": concat, "Squeeze": squeeze, "CumSum": cumsum, "ReduceSum": along_tokens(sum, True),
       "ReduceMax": along_tokens(max, False),
       "ReduceL2": along_tokens(lambda row: math.sqrt(sum(v * v for v in row)), True)}
