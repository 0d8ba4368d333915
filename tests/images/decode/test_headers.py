"""Thumbnails of fingerprints are means of the pixels that each covers."""

import numpy as np
import pytest

from labelwise.images.decode.headers import SIDE, area, fingerprint


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 16, 16), (3, 40, 33), (4, 129, 256)])
def test_a_fingerprint_is_the_mean_of_the_pixels_under_each_part(shape: tuple[int, int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    grey, (_, height, width) = image.mean(0), shape
    rows, columns = ([(i * side // SIDE, -(-(i + 1) * side // SIDE)) for i in range(SIDE)] for side in (height, width))
    means = np.array([[grey[top:bottom, left:right].mean() for left, right in columns] for top, bottom in rows])
    assert np.allclose(area(grey, SIDE, SIDE), means)
    flat = (means - means.mean()).ravel()
    assert np.allclose(fingerprint(image), flat / np.linalg.norm(flat), atol=1e-6)


def test_uniform_images_have_no_fingerprint() -> None:
    assert not fingerprint(np.full((3, 50, 41), 97, np.uint8)).any()
