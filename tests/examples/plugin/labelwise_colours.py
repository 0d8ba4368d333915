"""A plug-in with an encoder and a verb: features of an image are a histogram of its colours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

ENCODERS = {"colours": "labelwise_colours:open_colours"}
STEPS = 4  # of each of red, green and blue


def colours(image: Annotated[Path, typer.Argument(help="An image file.")]) -> None:
    """Show the most frequent colour of an image."""
    import numpy as np
    from PIL import Image

    from labelwise.cli.output import show

    with Image.open(image) as opened:
        pixels = np.asarray(opened.convert("RGB")).transpose(2, 0, 1)[None]
    most = int(Colours(None)(pixels).argmax())
    rgb = [step * 256 // STEPS for step in (most // STEPS**2, most // STEPS % STEPS, most % STEPS)]
    show({"image": str(image), "rgb": rgb}, f"{image}: about red {rgb[0]}, green {rgb[1]}, blue {rgb[2]}")


VERBS = {"More": (colours,)}


@dataclass(frozen=True)
class Colours:
    """An encoder: the share of each of 64 colours."""

    reference: Any  # the view, with which labelwise opens the encoder of a saved classifier again
    shape: tuple[int, ...] = (3, 32, 32)
    fit: str = "crop"
    id: str = "colours/1"  # to be changed when the features change: the cache goes by it
    name: str = "colours"
    width: int = STEPS**3
    runtime: str = "numpy"

    def __call__(self, images: Any) -> Any:
        """Return the features ``[n, 64]`` of images ``[n, 3, h, w]`` of bytes."""
        import numpy as np

        red, green, blue = (images.astype(int) * STEPS // 256).reshape(len(images), 3, -1).transpose(1, 0, 2)
        cells = (red * STEPS + green) * STEPS + blue
        return np.stack([np.bincount(row, minlength=self.width) / len(row) for row in cells]).astype(np.float32)


def open_colours(shape: tuple[int, ...] | None, view: Any) -> Colours:
    """Return the encoder; ``shape`` is given of one that was saved."""
    return Colours(view, shape or Colours.shape)
