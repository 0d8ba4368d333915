"""Photos of three colours of stripes, and a project of them."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 210)}


def draw_photos(folder: Path, each: int = 12) -> Path:
    """Draw so many small photos of each colour into a folder."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for number in range(each):
            noise = generator.integers(-30, 30, (32, 32, 3))
            Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(
                folder / f"{name} {number}.png"
            )
    return folder


def truth(file: str) -> str:
    """Return the label of a photo."""
    return Path(file).name.split(" ")[0]
