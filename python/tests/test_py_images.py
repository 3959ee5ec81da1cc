# SPDX-License-Identifier: Apache-2.0
"""Images of files, of Pillow and of arrays, through models of a folder."""
import base64
import json
import pathlib
import shutil
import tempfile
import unittest

import numpy as np
import sparse24
from py_support import golden, tiny_bert

# 8 x 8 pixels, all 200.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsL"
    "EBYQERMUFRUVDA8XGBYUGBIUFRT/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACP/EABQQAQAAAAAAAAAA"
    "AAAAAAAAAAD/2gAIAQEAAD8AYD//2Q==")


class Pillow:
    """What is read of an image of Pillow's."""
    mode = "L"

    def __init__(self, array):
        self.array = array

    def convert(self, mode):
        assert mode == "RGB"
        return self.array


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.place.name)
        cls.folder, cls.file = root / "vit", root / "grey.jpg"
        cls.folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(golden("models/vit") / name, cls.folder / name)
        (cls.folder / "preprocessor_config.json").write_text(json.dumps(
            {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3,
             "image_std": [0.25] * 3}))
        cls.file.write_bytes(JPEG)
        cls.encoder = sparse24.Encoder(cls.folder, pooling="cls")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def test_what_is_one_image(self):
        grey = np.full((8, 8), 200, np.uint8)
        wide = np.repeat(grey[:, :, None], 3, axis=2)
        pixels = np.full((1, 3, 32, 32), (200 / 255 - 0.5) / 0.25, np.float32)
        expected = self.encoder.encode_pixels(pixels)
        self.assertEqual(expected.shape, (1, self.encoder.width))
        given = [self.file, str(self.file), grey, wide, wide.transpose(2, 0, 1), Pillow(wide),
                 np.full((50, 33, 3), 200, np.uint8)[:, ::2]]
        got = self.encoder.encode(given)
        for image, row in zip(given, got):
            np.testing.assert_allclose(row, expected[0], atol=2e-5)
            np.testing.assert_allclose(self.encoder.encode(image), expected[0], atol=2e-5)
        self.assertEqual(self.encoder.encode(np.stack([wide] * 3)).shape, (3, 64))
        self.assertEqual(self.encoder.encode([]).shape, (0, 64))
        np.testing.assert_array_equal(self.encoder.share().encode([wide]), got[3:4])

    def test_pieces_and_progress(self):
        rng, seen = np.random.default_rng(1), []
        many = rng.integers(0, 256, (40, 9, 7, 3), np.uint8)
        got = self.encoder.encode(many, progress=lambda *step: seen.append(step) and False)
        self.assertEqual(seen, [("images", 32, 40), ("images", 40, 40)])
        np.testing.assert_allclose(got[35], self.encoder.encode(many[35]), atol=2e-5)
        with self.assertRaises(KeyboardInterrupt):
            self.encoder.encode(many, progress=lambda *step: True)

    def test_model(self):
        model = sparse24.Model(self.folder)
        wide = np.full((5, 9, 3), 200, np.uint8)
        pixels = model.image_form.pixels([wide])
        np.testing.assert_allclose(pixels, (200 / 255 - 0.5) / 0.25, atol=1e-5)
        np.testing.assert_array_equal(model.forward_images([wide, self.file])["logits"][0],
                                      model.forward_images(pixels)["logits"][0])

    def test_as_they_are(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "vit"
            shutil.copytree(self.folder, folder)
            (folder / "preprocessor_config.json").unlink()
            encoder = sparse24.Encoder(folder, pooling="cls", images=True)
            whole = np.full((32, 32, 3), 51, np.uint8)
            np.testing.assert_allclose(
                encoder.encode(whole),
                encoder.encode_pixels(np.full((1, 3, 32, 32), -0.6, np.float32))[0], atol=2e-5)
            with self.assertRaisesRegex(ValueError, "image 1 has 31 x 32 pixels; 1024 are"):
                encoder.encode([whole, whole[:, 1:]])
            with self.assertRaisesRegex(sparse24.Error, "8 x 8 pixels"):
                encoder.encode([whole, self.file])
            (folder / "preprocessor_config.json").write_text('{"size": 24}')
            with self.assertRaises((ValueError, sparse24.Error)):
                sparse24.Encoder(folder, pooling="cls")

    def test_refusals(self):
        wide = np.full((8, 8, 3), 200, np.uint8)
        for image, kind, said in (
                (wide.astype("f4"), TypeError, "image 1 is an array of float32; expected bytes"),
                (wide[:, :, :2], ValueError, r"image 1 has the shape \[8, 8, 2\]"),
                (wide[:0], ValueError, r"image 1 has the shape \[0, 8, 3\]"),
                ("nowhere.jpg", OSError, "nowhere.jpg"),
                (3, TypeError, "image 1 is an array of int64")):
            with self.assertRaisesRegex(kind, said):
                self.encoder.encode([wide, image])
        damaged = self.file.with_name("damaged.jpg")
        damaged.write_bytes(JPEG[:100])
        with self.assertRaisesRegex(sparse24.Error, "damaged.jpg: a whole JPEG image"):
            self.encoder.encode(damaged)
        with self.assertRaisesRegex(ValueError, "token ids were given to an encoder of images"):
            self.encoder.encode_ids([[1, 2]])
        with self.assertRaisesRegex(sparse24.Error, "reads images, and texts were given"):
            sparse24.Encoder(self.folder, pooling="cls", images=False)
        with self.assertRaisesRegex(ValueError, "pixels"):
            self.encoder.encode_pixels(np.zeros((1, 3, 32, 31), np.float32))

    def test_of_texts(self):
        folder = tiny_bert.write(self.place.name + "/bert")
        with self.assertRaisesRegex(ValueError, "images were given to an encoder of texts"):
            sparse24.Encoder(folder, images=False).encode([self.file])
        with self.assertRaises(sparse24.Error):
            sparse24.Encoder(folder).encode(self.file)
        with self.assertRaisesRegex(ValueError, "images were given to a model of texts"):
            sparse24.Model(folder).forward_images([self.file])


if __name__ == "__main__":
    unittest.main()
