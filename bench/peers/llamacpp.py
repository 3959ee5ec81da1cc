# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's decoding of a model of a given shape, through its Python package llama-cpp-python.

`sparse24 bench --generate --peers llama.cpp` carries it along, starts it (python -c) and tells it
what to do: a JSON object a line on standard input, one a line back. prepare (shape, dtype, threads,
batch, tokens) writes a GGUF of random weights of that shape into a temporary folder, once for each
dtype, and makes a context; turn (prompt, new) runs prompts of that many tokens and goes on with
them greedily, the first new token from the prompt's pass. All matrices, the table of words among
them, which is the head too, are of the dtype's one type; norms and biases are f32.
"""
import ctypes
import json
import os
import struct
import sys
import tempfile
import time

import numpy

# Of ours: the name and GGUF's number of what runs next to it, and the bytes of 32 numbers.
TYPES = {"f32": ("F32", 0, 128), "f16": ("F16", 1, 64), "bf16": ("BF16", 30, 64),
         "i8": ("Q8_0", 8, 34), "int8": ("Q8_0", 8, 34), "int8-g128": ("Q8_0", 8, 34),
         "int4": ("Q4_0", 2, 18), "int4-g64": ("Q4_0", 2, 18), "int4-g128": ("Q4_0", 2, 18)}
PIECE = 1 << 20  # numbers that are random; the others repeat them
ALIGNMENT = 32


# ---- a file of random weights --------------------------------------------------------------------

def piece_of(kind):
    """PIECE random numbers of about 0.02 as a type stores them."""
    random = numpy.random.default_rng(1)
    if kind in ("F32", "F16", "BF16"):
        wide = random.uniform(-0.035, 0.035, PIECE).astype(numpy.float32)
        if kind == "BF16":
            return (wide.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
        return wide.astype({"F32": numpy.float32, "F16": numpy.float16}[kind]).tobytes()
    count, bits = PIECE // 32, {"Q8_0": 256, "Q4_0": 128}[kind]
    blocks = numpy.zeros((count, 2 + bits // 8), numpy.uint8)
    scale = 0.035 / (127 if kind == "Q8_0" else 8)
    blocks[:, :2] = numpy.full(count, scale, numpy.float16).view(numpy.uint8).reshape(count, 2)
    blocks[:, 2:] = random.integers(0, 256, (count, bits // 8), numpy.uint8)
    return blocks.tobytes()


def matrices(shape):
    """Names, numbers of columns and of rows; no rows of what is a vector."""
    width, outer, head = shape["width"], shape["intermediate"], shape["width"] // shape["heads"]
    keys, gpt2 = shape["kv_heads"] * head, shape["type"] == "gpt2"
    yield "token_embd.weight", width, shape["vocabulary"]
    vectors = [("output_norm", width)]
    if gpt2:
        yield "position_embd.weight", width, shape["positions"]
    for b in range(shape["layers"]):
        block = f"blk.{b}."
        layers = [("attn_qkv", width, 3 * width)] if gpt2 else [
            ("attn_q", width, width), ("attn_k", width, keys), ("attn_v", width, keys)]
        layers += [("attn_output", width, width)] + ([] if gpt2 else [("ffn_gate", width, outer)])
        layers += [("ffn_up", width, outer), ("ffn_down", outer, width)]
        for name, cols, rows in layers:
            yield block + name + ".weight", cols, rows
            if gpt2:
                yield block + name + ".bias", rows, 0
        vectors += [(block + "attn_norm", width), (block + "ffn_norm", width)]
    for name, cols in vectors:
        yield name + ".weight", cols, 0
        if gpt2:
            yield name + ".bias", cols, 0


def keys_of(shape):
    arch, head = shape["type"], shape["width"] // shape["heads"]
    found = {"general.architecture": arch, "tokenizer.ggml.model": "none"}
    numbers = {"vocab_size": shape["vocabulary"], "context_length": shape["positions"],
               "embedding_length": shape["width"], "block_count": shape["layers"],
               "feed_forward_length": shape["intermediate"],
               "attention.head_count": shape["heads"],
               "attention.head_count_kv": shape["kv_heads"]}
    if arch == "llama":
        numbers.update({"rope.dimension_count": head, "rope.freq_base": 500000.0,
                        "attention.layer_norm_rms_epsilon": 1e-5})
    else:
        numbers["attention.layer_norm_epsilon"] = 1e-5
    found.update({f"{arch}.{key}": value for key, value in numbers.items()})
    return found


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def pair(key, value):
    if isinstance(value, str):
        return string(key) + struct.pack("<I", 8) + string(value)
    if isinstance(value, float):
        return string(key) + struct.pack("<If", 6, value)
    return string(key) + struct.pack("<II", 4, value)


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write_gguf(path, shape, dtype):
    kind, number, bytes32 = TYPES[dtype]
    pairs = [pair(key, value) for key, value in keys_of(shape).items()]
    tensors, infos, offset = list(matrices(shape)), [], 0
    for name, cols, rows in tensors:
        sizes = (cols, rows) if rows else (cols,)
        infos.append(string(name) + struct.pack("<I", len(sizes)) +
                     struct.pack(f"<{len(sizes)}Q", *sizes) +
                     struct.pack("<IQ", number if rows else 0, offset))
        offset += padded(cols * rows // 32 * bytes32 if rows else 4 * cols)
    piece = piece_of(kind)
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)))
        file.write(b"".join(pairs + infos))
        file.write(bytes(padded(file.tell()) - file.tell()))
        for name, cols, rows in tensors:
            size = cols * rows // 32 * bytes32 if rows else 4 * cols
            value = 1 if "norm.weight" in name else 0
            data = piece if rows else numpy.full(cols, value, numpy.float32).tobytes()
            for at in range(0, size, len(data)):
                file.write(data[:size - at])
            file.write(bytes(padded(size) - size))


# ---- decoding ------------------------------------------------------------------------------------

class Decoder:
    """A model of one dtype, with a context for a number of texts and threads."""

    def __init__(self, llama, path):
        self.llama = llama
        options = llama.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.context, self.batch = None, None

    def prepare(self, order):
        llama = self.llama
        self.release()
        options = llama.llama_context_default_params()
        options.n_ctx = order["batch"] * order["tokens"]
        options.n_batch = max(512, order["batch"])
        options.n_seq_max = order["batch"]
        options.n_threads = options.n_threads_batch = order["threads"]
        self.context = llama.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context")
        self.most, self.texts = options.n_batch, order["batch"]
        self.words = order["shape"]["vocabulary"]
        self.batch = llama.llama_batch_init(self.most, 0, 1)

    def release(self):
        if self.context:
            self.llama.llama_batch_free(self.batch)
            self.llama.llama_free(self.context)
        self.context = None

    def close(self):
        self.release()
        self.llama.llama_model_free(self.model)

    def run(self, tokens):
        """Runs (id, position, text, is its logits wanted) and gives the likeliest next ones."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, text, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, text
        if self.llama.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp fails to decode")
        found = {}
        for i, (_, _, text, wanted) in enumerate(tokens):
            if wanted:
                logits = self.llama.llama_get_logits_ith(self.context, i)
                found[text] = int(numpy.ctypeslib.as_array(logits, (self.words,)).argmax())
        return found

    def turn(self, prompt, new):
        """Seconds of the prompts' passes, and of a step after them."""
        llama, found = self.llama, {}
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        tokens = [((37 * p + text) % self.words, p, text, p + 1 == prompt)
                  for text in range(self.texts) for p in range(prompt)]
        start = time.perf_counter()
        for at in range(0, len(tokens), self.most):
            found.update(self.run(tokens[at:at + self.most]))
        filled = time.perf_counter()
        for step in range(new - 1):
            found = self.run([(found[text], prompt + step, text, True)
                              for text in range(self.texts)])
        end = time.perf_counter()
        return {"prefill": filled - start, "step": (end - filled) / max(new - 1, 1)}


def private_bytes():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    return -1


class Peer:
    def __init__(self, folder):
        import llama_cpp

        @llama_cpp.llama_log_callback
        def silent(level, text, user):
            del level, text, user

        self.silent, self.llama, self.folder = silent, llama_cpp, folder
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self.held, self.decoder = None, None

    def version(self, order):
        del order
        return {"version": self.llama.__version__}

    def prepare(self, order):
        shape, dtype = order["shape"], order["dtype"]
        if shape["type"] not in ("llama", "gpt2"):
            return {"refused": f"no file of a {shape['type']} model is written"}
        if dtype not in TYPES:
            return {"refused": f"it has nothing like {dtype}"}
        path = os.path.join(self.folder, dtype + ".gguf")
        if self.held != dtype:
            if self.decoder:
                self.decoder.close()
            for name in os.listdir(self.folder):
                os.remove(os.path.join(self.folder, name))
            write_gguf(path, shape, dtype)
            self.decoder, self.held = Decoder(self.llama, path), dtype
        self.decoder.prepare(order)
        self.decoder.turn(8, 2)
        return {"type": TYPES[dtype][0], "file_bytes": os.path.getsize(path),
                "private_bytes": private_bytes()}

    def turn(self, order):
        return self.decoder.turn(order["prompt"], order["new"])


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        for line in sys.stdin:
            order = json.loads(line)
            try:
                peer = peer or Peer(folder)
                answer = getattr(peer, order["do"])(order)
            except Exception as error:  # the other side says it
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
