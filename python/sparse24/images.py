# SPDX-License-Identifier: Apache-2.0
"""Images as users have them: files, Pillow's images, arrays of bytes."""
from __future__ import annotations

import os
import typing

import numpy as np

from . import _core

#: A path, an image of Pillow, or bytes [height, width, 3], [3, height, width] or [height, width].
Image = typing.Any
READ = (".jpg", ".jpeg", ".png")


def is_image(given: typing.Any) -> bool:
    """Is it one image, as opposed to a text and to a sequence of either?"""
    if isinstance(given, str) or isinstance(given, (list, tuple)):
        return False
    if isinstance(given, os.PathLike) or _is_pillow(given):
        return True
    return getattr(given, "ndim", 0) in (2, 3) and np.asarray(given).dtype.kind not in "UO"


def _is_pillow(given: typing.Any) -> bool:
    return hasattr(given, "mode") and hasattr(given, "convert")


def _opened(path: str):
    """A file that the library has no reader for."""
    try:
        from PIL import Image as pillow  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise ValueError(f"{path}: {', '.join(READ)} are read, and what Pillow reads where it "
                         "is installed") from None
    with pillow.open(path) as image:
        return image.convert("RGB")


def _array(given: Image, index: int) -> np.ndarray:
    """Bytes [height, width, 3]."""
    if _is_pillow(given):
        given = given.convert("RGB")
    array = np.asarray(given)
    if array.dtype != np.uint8:
        raise TypeError(f"image {index} is an array of {array.dtype}; expected bytes (uint8), 0 to "
                        "255")
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    elif array.ndim == 3 and array.shape[0] == 3:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise ValueError(f"image {index} has the shape {list(array.shape)}; expected "
                         "[height, width, 3], [3, height, width] or [height, width]")
    return np.ascontiguousarray(array)


class ImageForm:
    """How a model wants images: resized, cut and normalised as preprocessor_config.json says."""

    def __init__(self, form: tuple[bytes, int], info: dict):
        self._form, made = form
        self.side, self.channels = info["image"], info["channels"]
        if made and made != self.side:
            raise ValueError(f"preprocessor_config.json makes images of {made} pixels a side, and "
                             f"the model reads {self.side}")

    def pixels(self, images: typing.Sequence[Image]) -> np.ndarray:
        """[n, 3, side, side] of f32, normalised. Raises TypeError, ValueError (an image of another
        shape, or where the folder has no preprocessor_config.json of another size), OSError,
        Error (a file that is damaged)."""
        if not self.side:
            raise ValueError("images were given to a model of texts")
        if self.channels != 3:
            raise ValueError(f"images have 3 channels, and the model reads {self.channels}")
        given = []
        for index, image in enumerate(images):
            if isinstance(image, (str, os.PathLike)):
                path = os.fspath(image)
                if path.lower().endswith(READ):
                    given.append(os.fsencode(path))
                    continue
                image = _opened(path)
            array = _array(image, index)
            given.append((array, *array.shape[:2]))
        out = np.empty((len(given), 3, self.side, self.side), np.float32)
        if given:
            _core.image_pixels(out, self._form, tuple(given))
        return out
