# SPDX-License-Identifier: Apache-2.0
"""Files of images end to end: a JPEG, the PNG with the pixels that Pillow makes of it, and an image
of another size become vectors, also by a server; texts of one length; what is damaged."""
import base64
import json
import random
import struct
import unittest
import zlib

from cli_case import Scratch, run
from cli_data import tensor, write
from test_cli_serve import Server

# 12 rows of 10 pixels, as Pillow wrote them (quality 60), and what Pillow reads of that.
JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywt"
    "QFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT0//wAARCAAMAAoDASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcI"
    "CQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRol"
    "JicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ip"
    "qrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAA"
    "AAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLR"
    "ChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaX"
    "mJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEA"
    "PwChpOn/AHflrpV0/wCUfL2pNMhQR5A5ArUEKEAkUswzJYNxjy3v52/zOWEOY//Z")
PIXELS = (
    "AS1KCjVVGEJoIkt3K1OHNl2YQmmsTHO4WH7HYYfQCTVQEz9cIEtuK1V/M1uOPmWeSnKvVHy6YIfIaZDRFEBZHkplK1Z4"
    "NV+FPmeTSXGiVn6xYIi7bJTFdZ7MHEdqJlB2M1yIPmaXR26lUXixXoW+ao/EdpzLgKbTI0mHLVOSOl+lRWm1T3DBWnvM"
    "Z4jVcpPafqDfh6riK1KJNVyXQ2isTXG7WHnKY4LVcZDgfZvjianmk7LrNWR2P22FTXibWIGvY4fBbpDPfp7biajflbTj"
    "n77qPWuDR3SRVoCoYoi5bI/FeZrNh6nPkrTNoMPHqs3HRmy3VHnHYYTVaovadJXahqjWlLjGm8OpnsmEoM1yTXLCW4DR"
    "aYzecpPgf57ejrHRm8G2oMmNpNNhqNlMVoKpZZC6dJ3LfqXQi6/Rmb7GosqopM9/rNtXr+FCXYyea5qufabEiK/MlLrN"
    "oMfCpc6ipNF2sN9TteY/")


def decode(text):
    return base64.b64decode(text)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixels):
    rows = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def drawn():
    """Tensors, and what adds a random one of a shape."""
    chance = random.Random(1)
    tensors = {}

    def add(name, *shape):
        count = 1
        for extent in shape:
            count *= extent
        values = [chance.gauss(0, 0.3) for _ in range(count)]
        tensors[name] = tensor("f32", list(shape), struct.pack(f"<{count}f", *values))
    return tensors, add


def write_model(folder, side=8, patch=4, width=16):
    tensors, add = drawn()
    places = (side // patch) ** 2 + 1
    add("embeddings.cls_token", 1, 1, width)
    add("embeddings.position_embeddings", 1, places, width)
    add("embeddings.patch_embeddings.projection.weight", width, 3, patch, patch)
    add("embeddings.patch_embeddings.projection.bias", width)
    for b in range(2):
        at = f"encoder.layer.{b}."
        for name, rows, columns in (("attention.attention.query", width, width),
                                    ("attention.attention.key", width, width),
                                    ("attention.attention.value", width, width),
                                    ("attention.output.dense", width, width),
                                    ("intermediate.dense", 2 * width, width),
                                    ("output.dense", width, 2 * width)):
            add(at + name + ".weight", rows, columns)
            add(at + name + ".bias", rows)
        for name in ("layernorm_before", "layernorm_after"):
            add(at + name + ".weight", width)
            add(at + name + ".bias", width)
    add("layernorm.weight", width)
    add("layernorm.bias", width)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "vit_msn", "hidden_size": width, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 2 * width, "hidden_act": "gelu",
         "layer_norm_eps": 1e-6, "image_size": side, "patch_size": patch, "num_channels": 3}))
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"do_resize": True, "size": {"height": side, "width": side}, "resample": 2,
         "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
         "image_mean": [0.5, 0.4, 0.3], "image_std": [0.25, 0.3, 0.35]}))
    write(folder / "model.safetensors", tensors)


WORDS = ["<pad>", "</s>", "<unk>", "a", "b", "c", "d"]


def write_texts(folder, tokenizer_class="GemmaTokenizer", width=16, positions=8):
    """SigLIP's tower of texts, with a tokenizer of words."""
    tensors, add = drawn()
    add("text_model.embeddings.token_embedding.weight", len(WORDS), width)
    add("text_model.embeddings.position_embedding.weight", positions, width)
    at = "text_model.encoder.layers.0."
    for name, rows, columns in (("self_attn.q_proj", width, width),
                                ("self_attn.k_proj", width, width),
                                ("self_attn.v_proj", width, width),
                                ("self_attn.out_proj", width, width),
                                ("mlp.fc1", 2 * width, width), ("mlp.fc2", width, 2 * width),
                                ("layer_norm1", width, 0), ("layer_norm2", width, 0)):
        add(at + name + ".weight", *[rows, columns][:2 if columns else 1])
        add(at + name + ".bias", rows)
    add("text_model.final_layer_norm.weight", width)
    add("text_model.final_layer_norm.bias", width)
    add("text_model.head.weight", width, width)
    add("text_model.head.bias", width)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "siglip_text_model", "vocab_size": len(WORDS), "hidden_size": width,
         "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 2 * width,
         "max_position_embeddings": positions}))
    (folder / "tokenizer.json").write_text(json.dumps(
        {"added_tokens": [{"id": i, "content": WORDS[i], "special": True} for i in range(3)],
         "pre_tokenizer": {"type": "Whitespace"},
         "post_processor": {"type": "TemplateProcessing",
                            "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                                     {"Sequence": {"id": "B", "type_id": 1}}],
                            "special_tokens": {"</s>": {"id": "</s>", "ids": [1],
                                                        "tokens": ["</s>"]}}},
         "model": {"type": "WordLevel", "unk_token": "<unk>",
                   "vocab": {word: i for i, word in enumerate(WORDS)}}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": tokenizer_class, "pad_token": {"content": "<pad>"},
         "model_max_length": positions}))
    write(folder / "model.safetensors", tensors)


def make(folder):
    write_model(folder / "model")
    write_model(folder / "bare")
    (folder / "bare/preprocessor_config.json").unlink()
    write_texts(folder / "texts")
    write_texts(folder / "first", "SiglipTokenizer")
    write_texts(folder / "none")
    (folder / "none/tokenizer_config.json").write_text('{"pad_token": "<lost>"}')
    images = folder / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(decode(JPEG))
    (images / "b.png").write_bytes(png(10, 12, decode(PIXELS)))
    (images / "c.PNG").write_bytes(png(3, 30, bytes(range(90)) * 3))
    (images / "notes.txt").write_text("no image")
    (folder / "cut.png").write_bytes(png(10, 12, decode(PIXELS))[:-20])
    (folder / "cut.jpg").write_bytes(decode(JPEG)[:300])
    (folder / "named.png").write_bytes(b"GIF89a" * 9)


class Images(Scratch):
    make = staticmethod(make)

    def vectors(self, path):
        self.good("embed", "model", "--images", path, "--out", "v.npy", "--force")
        raw = (self.folder / "v.npy").read_bytes()
        header = 10 + int.from_bytes(raw[8:10], "little")
        values = struct.unpack(f"<{(len(raw) - header) // 4}f", raw[header:])
        return [values[i:i + 16] for i in range(0, len(values), 16)]

    def test_a_jpeg_is_its_png(self):
        all_three = self.vectors("images")
        self.assertEqual(len(all_three), 3)
        self.assertEqual(all_three[0], all_three[1])
        self.assertNotEqual(all_three[0], all_three[2])
        for name, vector in zip(("a.jpg", "b.png", "c.PNG"), all_three):
            self.assertEqual(self.vectors(f"images/{name}"), [vector])

    def test_served(self):
        """Data URLs give what files give; a text, a damaged file and other URLs are refused."""
        server = Server(self, "model")

        def url(name):
            return ("data:image/any;base64,"
                    + base64.b64encode((self.folder / name).read_bytes()).decode())

        names = ["images/a.jpg", "images/c.PNG", "images/b.png"]
        expected = self.vectors("images")
        value = server.good("/v1/embeddings", {"input": [url(name) for name in names] * 9})
        for i, entry in enumerate(value["data"]):
            wanted = expected[(0, 2, 1)[i % 3]]
            self.assertLess(max(abs(a - b) for a, b in zip(entry["embedding"], wanted)), 1e-5)
        self.assertEqual(value["usage"]["prompt_tokens"], 27 * 5)
        one = server.good("/embed", {"inputs": url("images/b.png")})
        self.assertLess(max(abs(a - b) for a, b in zip(one[0], expected[1])), 1e-5)
        self.assertEqual(len(server.good("/similarity", {"inputs": {
            "source_sentence": url("images/a.jpg"), "sentences": [url("images/b.png")]}})), 1)
        for given, words in (("a text", "element 0 is no image"),
                             ([url("images/a.jpg"), "a text"], "element 1 is no image"),
                             ("data:image/png;base64,AAA", "element 0 is no image"),
                             ("data:image/png;base64,", "element 0 is no image"),
                             ("data:image/png,AAAA", "element 0 is no image"),
                             (url("cut.png"), "image 0: a whole PNG image is expected"),
                             ([url("images/b.png"), url("cut.jpg")],
                              "image 1: a whole JPEG image is expected")):
            status, _, answer = server.ask("/v1/embeddings", {"input": given})
            self.assertEqual(status, 422, answer)
            self.assertIn(words, answer["error"]["message"])
        self.assertEqual(server.ask("/tokenize", {"inputs": "a"})[0], 422)

    def test_served_by_a_model_that_says_nothing_of_sizes(self):
        """The middle of an image counts, with zeros around it where it is smaller."""
        def url(width, height, inner=None):
            pixels = inner or bytes((7 * i + 5) % 251 for i in range(3 * width * height))
            return ("data:image/png;base64,"
                    + base64.b64encode(png(width, height, pixels)).decode())

        def framed(width, height, pixels):
            """What is cut out of an image whose sides are 8 longer."""
            row, zeros = 3 * width, bytes(12)
            line = bytes(3 * (width + 8))
            rows = [zeros + pixels[row * y:row * (y + 1)] + zeros for y in range(height)]
            return line * 4 + b"".join(rows) + line * 4

        server = Server(self, "bare")
        square = bytes((11 * i + 3) % 253 for i in range(3 * 8 * 8))
        plain, wide = server.good("/embed", {"inputs": [url(8, 8, square),
                                                        url(16, 16, framed(8, 8, square))]})
        self.assertEqual(plain, wide)
        for sides in ((3, 30), (30, 3), (1, 1), (200, 150)):
            (vector,) = server.good("/embed", {"inputs": url(*sides)})
            self.assertEqual(len(vector), 16)
            self.assertNotEqual(vector, plain)

    def test_texts_are_filled(self):
        """SigLIP's texts are filled with the token that pads, and all of it is seen."""
        (self.folder / "lines").write_text("a b\nd\na b c d a b c d a b c\n")
        (self.folder / "ids").write_text("3 4 1 0 0 0 0 0\n6 1 0 0 0 0 0 0\n3 4 5 6 3 4 5 1\n"
                                         "3 4 1\n")
        self.good("embed", "texts", "--input", "lines", "--out", "lines.npy")
        self.good("embed", "texts", "--input", "ids", "--ids", "--out", "ids.npy")
        lines = (self.folder / "lines.npy").read_bytes()[128:]
        ids = (self.folder / "ids.npy").read_bytes()[128:]
        self.assertEqual(len(lines), 3 * 16 * 4)
        self.assertEqual(lines, ids[:len(lines)])
        self.assertNotEqual(ids[:64], ids[-64:])
        self.refusals([
            ("the first", ["embed", "first", "--input", "cut.png", "--out", "v.npy"], 5,
             "tokenizer_class SiglipTokenizer leaves punctuation out of texts, which is not"),
            ("no token", ["embed", "none", "--input", "cut.png", "--out", "v.npy"], 4,
             "tokenizer_config.json: the vocabulary has no <lost>"),
        ])

    def test_what_is_damaged(self):
        self.refusals([
            ("png", ["embed", "model", "--images", "cut.png", "--out", "v.npy"], 4,
             "cut.png: a whole PNG image is expected: it ends"),
            ("jpeg", ["embed", "model", "--images", "cut.jpg", "--out", "v.npy"], 4,
             "cut.jpg: a whole JPEG image is expected"),
            ("neither", ["embed", "model", "--images", "named.png", "--out", "v.npy"], 4,
             "named.png: a PNG or JPEG image is expected, and this begins as neither"),
        ])

    def test_a_model_that_does_not_say_how_images_are_resized(self):
        (self.folder / "model" / "preprocessor_config.json").unlink()
        (self.folder / "flat").mkdir()
        (self.folder / "flat" / "one.png").write_bytes(png(10, 12, decode(PIXELS)))
        done = run("embed", "model", "--images", "flat", "--out", "v.npy", cwd=self.folder)
        self.assertEqual(done.returncode, 4)
        self.assertIn("flat: a folder of JPEG or PNG files for each class is expected in it, and "
                      "there is none; to embed files without classes the model needs a "
                      "preprocessor_config.json", done.stderr)


if __name__ == "__main__":
    unittest.main()
