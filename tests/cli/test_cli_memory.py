# SPDX-License-Identifier: Apache-2.0
"""Memory: how much a header may cost, and what docs/trust.md promises of walks over tensors and of
texts. What is said when there is no more: tests/faults."""
import array
import base64
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import cli_case
import cli_data
import test_cli_images

sys.path.insert(0, os.path.join(os.environ["S24_SOURCE"], "tests/tools"))
import tiny_bert  # noqa: E402

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"
MOST = 1 << 20  # members of a header


def many_tensors(path, count):
    """A file of so many empty tensors, none of whose names is longer than it must be. Returns the
    bytes of its header."""
    members = ('"%s%s%s%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' %
               tuple(LETTERS[i >> shift & 63] for shift in (18, 12, 6, 0)) for i in range(count))
    header = ("{" + ",".join(members) + "}").encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return len(header)


class Measured(cli_case.Scratch):
    def peak(self, *arguments):
        """Bytes of memory that the program took at most."""
        child = subprocess.Popen([cli_case.PROGRAM, *arguments], cwd=self.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stderr.close()
        self.assertEqual(child.returncode, 0, error)
        return 1024 * usage.ru_maxrss

    def bytes_of(self, name):
        return (self.folder / name / "model.safetensors").stat().st_size

    def served(self, name, bodies, *more):
        """The peak of a server on one thread that was asked all of this at once, and the answers:
        (status, value)."""
        server = subprocess.Popen(
            [cli_case.PROGRAM, "serve", name, "--port", "0", "--threads", "1", "--json", *more],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            text = ""
            while not text.endswith("}\n"):
                line = server.stdout.readline()
                self.assertTrue(line)
                text += line
            url = cli_case.one_object(text)["url"] + "/embed"

            def ask(body):
                try:
                    with urllib.request.urlopen(url, json.dumps(body).encode(), 600) as answer:
                        return answer.status, json.loads(answer.read())
                except urllib.error.HTTPError as error:
                    with error:
                        return error.code, json.loads(error.read())

            with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                answers = list(pool.map(ask, bodies))
            with open(f"/proc/{server.pid}/status", encoding="utf-8") as status:
                return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]), answers
        finally:
            server.terminate()
            server.wait(cli_case.PATIENCE)
            server.stdout.close()

    def grows(self, names, most, measure):
        """From one size to the next memory grows by at most so much of what the file does."""
        peaks = [measure(name) for name in names]
        files = [self.bytes_of(name) for name in names]
        for i in range(1, len(SIZES)):
            more = most * (files[i] - files[i - 1]) + (5 << 20)
            self.assertLess(peaks[i] - peaks[i - 1], more, (names[i], peaks, files))


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Headers(Measured):
    @staticmethod
    def make(folder):
        many_tensors(folder / "more.safetensors", MOST + 1)

    def test_four_times_the_header(self):
        size = many_tensors(self.folder / "many.safetensors", MOST)
        many_tensors(self.folder / "one.safetensors", 1)
        for more in ([], ["--json"]):
            with self.subTest(more):
                least = self.peak("info", "one.safetensors", *more)
                self.assertLessEqual(self.peak("info", "many.safetensors", *more) - least, 4 * size)

    def test_a_limit_on_tensors(self):
        self.refusals([("more", ["info", "more.safetensors"], 4,
                        r"more\.safetensors: the header has more than 1048576 members \(tensors")])


ROWS, COLS = 1024, 1024  # of a tensor of 4 MiB


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Walks(Measured):
    """A walk over tensors takes the memory of the largest, however many there are."""
    @staticmethod
    def make(folder):
        chance = random.Random(3)
        row = array.array("f", (chance.uniform(-1, 1) for _ in range(COLS))).tobytes()
        for count in (4, 24):
            tensors = {f"layer.{i}.weight": cli_data.tensor("f32", [ROWS, COLS], row * ROWS)
                       for i in range(count)}
            cli_data.write(folder / f"{count}.safetensors", tensors)

    def test_of_any_length(self):
        commands = [("prune", "{}.safetensors", "p{}.safetensors"),
                    ("check", "p{}.safetensors"), ("check", "p{}.safetensors", "--verify"),
                    ("pack", "p{}.safetensors", "k{}.safetensors"),
                    ("info", "k{}.safetensors"),
                    ("unpack", "k{}.safetensors", "u{}.safetensors"),
                    ("convert", "p{}.safetensors", "c{}.safetensors", "--to", "torch")]
        for words in commands:
            with self.subTest(words):
                few, many = (self.peak(*(word.format(count) for word in words))
                             for count in (4, 24))
                # Twenty tensors more are 80 MiB, and 45 MiB packed.
                self.assertLess(many - few, 10 << 20)


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Texts(Measured):
    """Vectors of texts take the memory of their output and of the texts, and of one batch."""
    @staticmethod
    def make(folder):
        tiny_bert.write(folder / "bert")
        for count in (1000, 20000):
            (folder / f"{count}.txt").write_text("read the file of a thread\n" * count)

    def test_many_texts(self):
        few, many = (self.peak("embed", "bert", "--input", f"{count}.txt", "--output",
                               f"{count}.npy", "--sparse", "--threads", "2")
                     for count in (1000, 20000))
        more = 19000 * (4 * tiny_bert.WIDTH + len("read the file of a thread\n"))
        self.assertLess(many - few, 2 * more + (4 << 20))

    def test_a_stream(self):
        """One text is in memory at a time."""
        few, many = (self.peak("embed", "bert", "--input", f"{count}.txt", "--stream", "--sparse",
                               "--threads", "2") for count in (1000, 20000))
        self.assertLess(many - few, 4 << 20)


WIDTH, INNER, SIZES = 256, 1024, (1, 4, 10)  # of models: 3 MiB a block
MODELS = """
import array, json, pathlib, random, sys
import tiny_bert
chance = random.Random(3)
row = array.array("f", (chance.uniform(-0.1, 0.1) for _ in range(4096)))
tiny_bert.WIDTH, tiny_bert.HEADS, tiny_bert.INTERMEDIATE = map(int, sys.argv[1:4])
for layers in map(int, sys.argv[4:]):
    tiny_bert.LAYERS = layers
    tiny_bert.write(pathlib.Path(f"{layers}"),
                    fill=lambda count: (row * (count // 4096 + 1))[:count])
"""


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Models(Measured):
    """What a model's size costs: weights as they run, or a block of them."""
    @staticmethod
    def make(folder):
        # In a process of its own: a child's peak counts what its parent has when it is made.
        path = os.path.join(os.environ["S24_SOURCE"], "tests/tools")
        subprocess.run([sys.executable, "-c", MODELS, str(WIDTH), "4", str(INNER),
                        *map(str, SIZES)], cwd=folder, check=True,
                       env={**os.environ, "PYTHONPATH": path})
        (folder / "texts").write_text("read the file of a thread\n" * 8)
        for size in SIZES:
            done = cli_case.run("prune", f"{size}", f"p{size}", "--packed", cwd=folder)
            assert done.returncode == 0, done.stderr

    def embed(self, *more):
        return lambda name: self.peak("embed", name, "--input", "texts", "--output", "v.npy",
                                      "--force", "--threads", "1", *more)

    def test_weights_as_they_run_and_the_files_pages(self):
        self.grows([f"{size}" for size in SIZES], 2.2, self.embed("--dense"))
        self.grows([f"p{size}" for size in SIZES], 2.2, self.embed("--sparse"))

    def serve(self, name):
        """The peak of a server that has answered more texts than fit a batch."""
        most, answers = self.served(name, [{"inputs": ["read the file of a thread"] * 400}],
                                    "--sparse", "--max-batch-tokens", "512")
        self.assertEqual([(status, len(value)) for status, value in answers], [(200, 400)])
        return most

    def test_a_server_takes_what_its_model_does(self):
        self.grows([f"p{size}" for size in SIZES], 2.2, self.serve)

    def test_calibration_takes_a_block_and_the_files_pages(self):
        self.grows([f"{size}" for size in SIZES], 1.3, lambda name: self.peak(
            "prune", name, "out", "--force", "--calibration", "texts", "--method", "sparsegpt",
            "--threads", "1"))


def url_of(file):
    return "data:image/png;base64," + base64.b64encode(file).decode()


EDGES = (512, 1536, 3072)  # of images: 1.5, 13.5 and 54 MiB of PNG's rows and pixels


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Pictures(Measured):
    """What images in requests cost: a thread decodes one at a time, 3 bytes a pixel and what PNG
    packs, here 3 more; what waits counts as the bodies do."""
    @staticmethod
    def make(folder):
        test_cli_images.write_model(folder / "model")
        test_cli_images.write_model(folder / "middle")
        (folder / "middle/preprocessor_config.json").write_text(json.dumps(
            {"size": {"shortest_edge": 64}, "do_center_crop": True,
             "crop_size": {"height": 8, "width": 8}}))

    @staticmethod
    def flat(width, height):
        """An image of few bytes and many pixels."""
        return url_of(test_cli_images.png(width, height, b"\x10\x80\xf0" * (width * height)))

    def peak_of(self, *images):
        most, answers = self.served("model", [{"inputs": list(images)}])
        self.assertEqual([(status, len(value)) for status, value in answers], [(200, len(images))])
        return most

    def test_pixels_of_one(self):
        peaks = [self.peak_of(self.flat(edge, edge)) for edge in EDGES]
        for i in range(1, len(EDGES)):
            pixels = EDGES[i] ** 2 - EDGES[i - 1] ** 2
            self.assertLess(peaks[i] - peaks[i - 1], 7 * pixels + (4 << 20), peaks)
            self.assertGreater(peaks[i] - peaks[i - 1], 3 * pixels, peaks)  # it was decoded

    def test_however_many_there_are(self):
        image = self.flat(1024, 1024)
        few, many = self.peak_of(image), self.peak_of(*[image] * 20)
        self.assertLess(many - few, 4 << 20)

    def test_what_would_be_too_large(self):
        line = url_of(test_cli_images.png(1, 16384, b"\0\1\2" * 16384))
        least, _ = self.served("middle", [{"inputs": self.flat(9, 8)}])
        most, answers = self.served("middle", [{"inputs": [line] * 16}])
        # Resized as a whole it would take 3 * 64 * 64 * 16384 bytes, 201 MB.
        self.assertEqual([(status, len(value)) for status, value in answers], [(200, 16)])
        self.assertLess(most - least, 8 << 20)
        bits = test_cli_images.png(1, 1, b"\0\0\0")
        head = test_cli_images.chunk(b"IHDR", (8193).to_bytes(4, "big") + (8192).to_bytes(4, "big")
                                     + bits[24:29])
        large = url_of(bits[:8] + head + bits[33:])
        most, answers = self.served("model", [{"inputs": [self.flat(9, 8), large]}])
        self.assertEqual(answers[0][0], 422)
        self.assertIn("element 1 has more than the 67108864 pixels that are taken",
                      answers[0][1]["error"]["message"])
        self.assertLess(most - least, 8 << 20)

    def test_what_waits(self):
        chance = random.Random(3)
        noise = url_of(test_cli_images.png(600, 600, chance.randbytes(3 * 600 * 600)))
        size = len(noise)  # 1.4 MiB
        one, _ = self.served("model", [{"inputs": noise}], "--http-threads", "2")
        most, answers = self.served("model", [{"inputs": noise}] * 96, "--http-threads", "2")
        self.assertIn(200, [status for status, _ in answers])
        self.assertLessEqual({status for status, _ in answers}, {200, 429})
        # Bodies, or what was decoded of them, and of each thread what JSON takes of one. All of the
        # bodies are 134 MB.
        self.assertLess(most - one, (32 << 20) + 2 * 8 * size)


BLOCKS, TEXTS, LENGTH = 4, (1, 5, 15), 500  # of the cache's model, and what it goes on with
LANGUAGE = """
import array, json, pathlib, random, sys
import tiny_bert
width, inner, letters = int(sys.argv[1]), int(sys.argv[2]), "abcdefgh"
chance = random.Random(3)
row = array.array("f", (chance.uniform(-0.1, 0.1) for _ in range(4096)))
for blocks in map(int, sys.argv[3:]):
    shapes = {"model.embed_tokens": [len(letters), width], "model.norm": [width]}
    for i in range(blocks):
        block = f"model.layers.{i}."
        shapes |= {block + "input_layernorm": [width], block + "post_attention_layernorm": [width]}
        shapes |= {f"{block}self_attn.{x}_proj": [width, width] for x in "qkvo"}
        shapes |= {f"{block}mlp.{x}_proj": [inner, width] for x in ("gate", "up")}
        shapes[block + "mlp.down_proj"] = [width, inner]
    tensors = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name + ".weight"] = (shape, (row * (count // 4096 + 1))[:count])
    folder = pathlib.Path(f"{blocks}")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": blocks, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": len(letters), "hidden_act": "silu",
        "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {
        "type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}))
"""


@unittest.skipIf(os.environ.get("S24_SANITIZE"), "a sanitizer's own memory would be measured")
class Generation(Measured):
    """What `generate` holds: weights as they run, and keys and values of all texts' tokens."""
    @staticmethod
    def make(folder):
        path = os.path.join(os.environ["S24_SOURCE"], "tests/tools")
        subprocess.run([sys.executable, "-c", LANGUAGE, str(WIDTH), str(INNER),
                        *map(str, SIZES)], cwd=folder, check=True,
                       env={**os.environ, "PYTHONPATH": path})
        for count in TEXTS:
            (folder / f"{count}.txt").write_text((("abcdefgh" * LENGTH)[:LENGTH] + "\n") * count)
        for size in SIZES:
            done = cli_case.run("prune", f"{size}", f"p{size}", "--packed", cwd=folder)
            assert done.returncode == 0, done.stderr

    def generate(self, model, texts, *more):
        return self.peak("generate", model, "--input", f"{texts}.txt", "--max-new", "4",
                         "--threads", "1", *more)

    def test_weights_as_they_run_and_the_files_pages(self):
        self.grows([f"{size}" for size in SIZES], 2.2, lambda n: self.generate(n, 1, "--dense"))
        self.grows([f"p{size}" for size in SIZES], 2.2, lambda n: self.generate(n, 1, "--sparse"))

    def test_keys_and_values(self):
        for cache, width in (((), 4), (("--cache-dtype", "i8"), 1)):
            with self.subTest(cache):
                token = 2 * BLOCKS * WIDTH * width
                peaks = [self.generate(f"{BLOCKS}", count, "--dense", *cache) for count in TEXTS]
                for i in range(1, len(TEXTS)):
                    tokens = (TEXTS[i] - TEXTS[i - 1]) * (LENGTH + 4)
                    self.assertLess(peaks[i] - peaks[i - 1],
                                    1.2 * tokens * token + (4 << 20), peaks)


if __name__ == "__main__":
    unittest.main()
