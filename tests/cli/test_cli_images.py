# SPDX-License-Identifier: Apache-2.0
"""Files of images end to end: a JPEG, the PNG with the pixels that Pillow makes of it, and an image
of another size become vectors; what is damaged is refused."""
import base64
import json
import random
import struct
import unittest
import zlib

from cli_case import Scratch
from cli_data import tensor, write

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


def png(width, height, pixels):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def write_model(folder, side=8, patch=4, width=16):
    chance = random.Random(1)
    tensors = {}

    def add(name, *shape):
        count = 1
        for extent in shape:
            count *= extent
        values = [chance.gauss(0, 0.3) for _ in range(count)]
        tensors[name] = tensor("f32", list(shape), struct.pack(f"<{count}f", *values))

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


def make(folder):
    write_model(folder / "model")
    images = folder / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(decode(JPEG))
    (images / "b.png").write_bytes(png(10, 12, decode(PIXELS)))
    (images / "c.PNG").write_bytes(png(3, 30, bytes(range(90)) * 3))
    (images / "notes.txt").write_text("no image")
    (folder / "cut.png").write_bytes(png(10, 12, decode(PIXELS))[:-20])
    (folder / "cut.jpg").write_bytes(decode(JPEG)[:300])


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

    def test_what_is_damaged(self):
        self.refusals([
            ("png", ["embed", "model", "--images", "cut.png", "--out", "v.npy"], 4,
             "cut.png: a whole PNG image is expected: it ends"),
            ("jpeg", ["embed", "model", "--images", "cut.jpg", "--out", "v.npy"], 4,
             "cut.jpg: a whole JPEG image is expected"),
        ])


if __name__ == "__main__":
    unittest.main()
